//! A journey: the machine itself leaves its home kernel, boots the order's kernel once, measures in it and comes home.
//!
//! `spool/<order>/journey.json` says how far it is; it is on disk before each step that a kernel may not survive. The
//! home kernel is the known good one, the boot loader's default: whatever happens to a test kernel (panic, watchdog,
//! power cycle, its own deadline), the next boot is home, and there the journey's end is told. So the report of a
//! journey is always written at home, and a machine is free for the next order only there.
//!
//! | leg | written by | in which kernel | and if the machine restarts in it |
//! |---|---|---|---|
//! | `Staging` | the worker | home | the lab's trouble |
//! | `Leaving` | the worker, before it arms | home | the test kernel did not come up |
//! | `There` | `resume` | test | the test kernel died |
//! | `Returning` | `resume` | test | home: its report is told |
//!
//! Modules: `depart` (home: stage, arm, leave), `there` (test kernel), `home` (the end), `stage` (files), `loader`
//! (arming by boot loader), `relics` (what a dead kernel left in pstore), `watchdog`, `readiness`
//! (for `probe`).

mod depart;
mod home;
mod loader;
mod readiness;
mod relics;
mod stage;
mod there;
mod watchdog;

pub use depart::depart;
pub use home::settle;
pub use readiness::facts;
pub use there::{abandon, resume};

use crate::root::{Root, write_atomically};
use crate::spool::Spool;
use crate::system;
use crate::trouble::{Because, Trouble};
use protocol::{Boot, Order, Proof, Report, Trip, Work};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// On a test kernel's command line: whose it is.
const ORDER_WORD: &str = "perfbisect.order=";

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Journey {
    pub leg: Leg,
    /// The kernel that was left and must be seen again.
    pub home: Proof,
    /// What the test kernel must prove to be.
    pub release: String,
    pub build_id: String,
    /// Files and folders to be gone again at home.
    pub staged: Vec<PathBuf>,
    /// Names in pstore that were there before.
    pub relics: Vec<String>,
    /// Of the order's deadline when home was left. Time is counted while a kernel runs, never read off the wall clock:
    /// clocks of test machines jump at boots.
    pub left_s: u64,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "one journey at a time is under way")]
pub enum Leg {
    Staging,
    /// Armed, or about to be, and going down since the home kernel was up for so long.
    Leaving {
        since_s: u64,
    },
    There {
        boot_id: String,
    },
    /// The test kernel's last word; going down since it was up for so long.
    Returning {
        boot_id: String,
        since_s: u64,
        report: Report,
    },
}

/// Where a journey is, seen from the boot that asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whereabouts {
    /// In the kernel of its present leg: its worker says the rest.
    Here,
    /// Going down, or up but not taken up again by `resume` yet.
    Away,
    /// In its test kernel for a while, and nobody is at work: it needs `resume`.
    Stranded,
    /// The machine is home again and the journey's end is not told.
    BackHome,
    /// Still home though it should have gone down long ago.
    Stuck,
}

/// `resume` may come so long after the kernel began: user space takes its time to start.
const RESUME_WITHIN_S: u64 = 180;

impl Journey {
    fn path(spool: &Spool) -> PathBuf {
        spool.dir.join("journey.json")
    }

    pub fn read(spool: &Spool) -> Option<Journey> {
        serde_json::from_slice(&fs::read(Journey::path(spool)).ok()?).ok()
    }

    /// On disk when it returns.
    pub fn write(&self, spool: &Spool) -> Result<(), Trouble> {
        let text = serde_json::to_vec(self).because(|| "cannot write the journey".into())?;
        write_atomically(&Journey::path(spool), &text)
    }

    /// `at_work`: the order's worker is alive in this very boot.
    pub fn whereabouts(&self, order: &str, trip: &Trip, at_work: bool) -> Whereabouts {
        let (now, up_s) = (crate::process::boot_id(), system::uptime_s());
        let is_home = now == self.home.boot_id;
        let in_test = !is_home && order_of_this_boot().as_deref() == Some(order);
        let down_by = |since_s: u64| since_s + u64::from(trip.shutdown_limit_s);
        match &self.leg {
            Leg::Staging if is_home => Whereabouts::Here,
            Leg::Leaving { since_s } if is_home && up_s <= down_by(*since_s) => Whereabouts::Away,
            // Its worker, if it lives, is about to say so itself.
            Leg::Leaving { .. } if is_home && at_work => Whereabouts::Here,
            Leg::Leaving { .. } if is_home => Whereabouts::Stuck,
            _ if !in_test => Whereabouts::BackHome,
            Leg::There { boot_id } if at_work && *boot_id == now => Whereabouts::Here,
            Leg::Returning { boot_id, since_s, .. } if *boot_id == now && up_s <= down_by(*since_s) => {
                Whereabouts::Away
            }
            Leg::Staging | Leg::Leaving { .. } | Leg::There { .. } | Leg::Returning { .. } => {
                if up_s > RESUME_WITHIN_S && !at_work {
                    Whereabouts::Stranded
                } else {
                    Whereabouts::Away
                }
            }
        }
    }
}

/// The order whose test kernel this is, by its command line.
pub fn order_of_this_boot() -> Option<String> {
    let line = system::command_line();
    let id = line.split_whitespace().find_map(|w| w.strip_prefix(ORDER_WORD))?;
    crate::root::check_name("order id", id)
        .is_ok()
        .then(|| id.to_string())
}

fn boot_of(order: &Order) -> Option<&Boot> {
    match &order.work {
        Work::Measure(measure) => Some(&measure.boot),
        Work::Build(_) => None,
    }
}

/// `home.json`: the boot hook ran in this boot of the home kernel, so it will run in the next ones.
fn hook_seen_path(root: &Root) -> PathBuf {
    root.dir.join("home.json")
}

pub fn hook_ran(root: &Root) -> bool {
    fs::read_to_string(hook_seen_path(root)).is_ok_and(|seen| seen.trim() == crate::process::boot_id())
}

/// `resume` in the root leads to the agent that the next boot's hook runs: the one that knows the orders under way.
fn point_hook(root: &Root) -> Result<(), Trouble> {
    let program = std::env::current_exe().because(|| "cannot find the agent's own path".into())?;
    let (link, temporary) = (root.dir.join("resume"), root.dir.join("resume.new"));
    let _ = fs::remove_file(&temporary);
    std::os::unix::fs::symlink(program, &temporary)
        .and_then(|()| fs::rename(&temporary, &link))
        .because(|| format!("cannot point {} to this agent", link.display()))
}

/// Runs argv of the machine's file; what it said where it failed.
fn run(argv: &[String], limit_s: u64, extra: &[(&str, String)]) -> Result<String, Trouble> {
    let Some((program, arguments)) = argv.split_first() else {
        return Err(Trouble("the machine's file has an empty command".into()));
    };
    let mut command = std::process::Command::new(program);
    command.args(arguments).envs(extra.iter().map(|(k, v)| (k, v)));
    let ended = crate::command::run(&mut command, std::time::Duration::from_secs(limit_s), &mut |_| {})
        .because(|| format!("cannot run {program}"))?;
    if ended.succeeded() {
        return Ok(ended.stdout);
    }
    let said = format!("{}{}", ended.stdout, ended.stderr);
    Err(Trouble(format!(
        "{}: {}: {}",
        argv.join(" "),
        ended.how(),
        said.trim()
    )))
}

/// Restarts the machine, whatever user space thinks of it. Comes back only where boots are played.
fn restart(reboot: &[String], limit_s: u32) {
    rustix::fs::sync();
    if let Err(Trouble(what)) = run(reboot, limit_s.into(), &[]) {
        eprintln!("perfbisect: {what}");
    }
    if system::is_played() {
        return;
    }
    // The end of this process comes with the machine's; past the limit it is forced.
    std::thread::sleep(std::time::Duration::from_secs(limit_s.into()));
    rustix::fs::sync();
    let _ = rustix::system::reboot(rustix::system::RebootCommand::Restart);
}

/// The worker's end in the home kernel of a journey that did not begin, or the order's of one that never was one.
pub fn unstage(spool: &Spool) {
    if let (Some(journey), Ok(order)) = (Journey::read(spool), spool.order()) {
        home::clear(&journey, &order);
    }
}

/// Goes on with a stranded journey, detached, from within its test kernel.
pub fn take_up(root: &Path) -> Result<(), Trouble> {
    let program = std::env::current_exe().because(|| "cannot find the agent's own path".into())?;
    std::process::Command::new(program)
        .arg("--root")
        .arg(root)
        .arg("resume")
        .current_dir(root)
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .because(|| "cannot start `resume`".into())?;
    Ok(())
}
