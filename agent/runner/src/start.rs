//! `start`: takes an order in, fences off late ones, and leaves a detached worker behind.

use crate::content;
use crate::journey;
use crate::process::MARK;
use crate::root::{Root, check_name};
use crate::spool::{Life, Spool};
use crate::trouble::{Because, Trouble, Unable};
use protocol::{Order, Started, VERSION, Work};
use std::io::Read;
use std::process::{Command, Stdio};

/// With less than this, spools and files could not be written reliably.
const LEAST_FREE_MIB: u64 = 64;
/// A kernel's objects need this much more than what a slot has already.
const LEAST_FREE_FOR_BUILD_MIB: u64 = 512;

pub fn start(root: &Root, mut input: impl Read) -> Result<Started, Unable> {
    let mut text = String::new();
    input
        .read_to_string(&mut text)
        .because(|| "cannot read the order".into())?;
    let order: Order = serde_json::from_str(&text)
        .map_err(|e| Unable::refused("corrupt", format!("this is not an order: {e}")))?;
    check_name("order id", &order.id)?;
    if let Work::Build(build) = &order.work {
        check_name("slot", &build.slot)?;
    }
    if order.version > VERSION {
        let message = format!(
            "this agent speaks protocol {VERSION}, the order {}",
            order.version
        );
        return Err(Unable::refused("version", message));
    }

    let _held = root.lock()?;
    if let Some(spool) = Spool::find(root, &order.id) {
        // Whoever took it in may have died before a worker began.
        return match spool.settle()? {
            Life::Accepted => launch(root, &spool).map(|()| Started { fresh: true }),
            Life::Running(_) | Life::Away | Life::Orphaned(_) | Life::Ended(_) => {
                Ok(Started { fresh: false })
            }
        };
    }
    let highest = root.token()?;
    if order.token < highest {
        let message = format!(
            "token {} is older than {highest}, which was seen here",
            order.token
        );
        return Err(Unable::refused("old_token", message));
    }
    for other in Spool::all(root) {
        if let Life::Running(_) | Life::Away = other.settle()? {
            return Err(Unable::refused("busy", format!("order {} is running", other.id)));
        }
    }
    if let Some(id) = journey::order_of_this_boot() {
        let message = format!("this is the test kernel of order {id}; the machine is about to go home");
        return Err(Unable::refused("busy", message));
    }
    let needed = match order.work {
        Work::Build(_) => LEAST_FREE_FOR_BUILD_MIB,
        Work::Measure(_) => LEAST_FREE_MIB,
    };
    content::make_room(root, needed)?;
    let free = root.free_mib();
    if free < needed {
        let message = format!("{free} MiB free at {}, {needed} MiB needed", root.dir.display());
        return Err(Unable::refused("no_space", message));
    }
    root.set_token(order.token)?;
    let spool = Spool::create(root, &order)?;
    launch(root, &spool)?;
    Ok(Started { fresh: true })
}

/// Returns when the worker has a session of its own and has said so on disk: from then on nothing that happens to the
/// caller or its connection reaches it.
fn launch(root: &Root, spool: &Spool) -> Result<(), Unable> {
    let program = std::env::current_exe().because(|| "cannot find the agent's own path".into())?;
    let errors =
        std::fs::File::create(spool.dir.join("worker.err")).because(|| "cannot create worker.err".into())?;
    let mut child = Command::new(program)
        .arg("--root")
        .arg(&root.dir)
        .args(["work", &spool.id])
        .env(MARK, &spool.id)
        .current_dir(&root.dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(errors)
        .spawn()
        .because(|| "cannot start the worker".into())?;
    let mut word = String::new();
    if let Some(mut out) = child.stdout.take() {
        out.read_to_string(&mut word)
            .because(|| "cannot hear the worker".into())?;
    }
    match word.trim() {
        "ready" => Ok(()),
        _ => {
            let _ = child.wait();
            let said = std::fs::read_to_string(spool.dir.join("worker.err")).unwrap_or_default();
            Err(Trouble(format!("the worker did not begin: {}", said.trim())).into())
        }
    }
}
