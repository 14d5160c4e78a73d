//! `cancel` and `erase`.

use crate::root::Root;
use crate::spool::{Life, Spool};
use crate::trouble::{Because, Unable};
use crate::{journey, process};
use protocol::{Cancelled, Report};
use std::fs;

pub fn cancel(root: &Root, id: &str) -> Result<Cancelled, Unable> {
    // Not while an order is being started: its worker would be missed.
    let _held = root.lock()?;
    let Some(spool) = Spool::find(root, id) else {
        return Ok(Cancelled { was_running: false });
    };
    let worker = match spool.settle()? {
        Life::Ended(_) | Life::Orphaned(_) => return Ok(Cancelled { was_running: false }),
        Life::Away => {
            let what = format!("order {id} is on its way to a test kernel or home");
            return Err(Unable::refused("away", what));
        }
        Life::Accepted => None,
        Life::Running(worker) => Some(worker),
    };
    if let Some(worker) = worker
        && !process::end_worker(&worker, id)
    {
        return Err(Unable::Broken(format!(
            "a process of order {id} cannot be killed"
        )));
    }
    if journey::order_of_this_boot().as_deref() == Some(id) {
        // The report is written at home, as every journey's is.
        journey::abandon(&spool)?;
        return Ok(Cancelled { was_running: true });
    }
    journey::unstage(&spool);
    // The worker may have reported in its last moment; then that stands.
    let was_running = spool.conclude(Report::Cancelled)?;
    Ok(Cancelled { was_running })
}

pub fn erase(root: &Root, id: &str) -> Result<(), Unable> {
    let _held = root.lock()?;
    let Some(spool) = Spool::find(root, id) else {
        return Ok(());
    };
    if let Life::Running(_) | Life::Away = spool.settle()? {
        return Err(Unable::refused("busy", format!("order {id} is running")));
    }
    let away = root.dir.join("spool").join(format!(".{id}.erased"));
    let _ = fs::remove_dir_all(&away);
    fs::rename(&spool.dir, &away).because(|| format!("cannot erase {}", spool.dir.display()))?;
    fs::remove_dir_all(&away).because(|| format!("cannot erase {}", away.display()))?;
    Ok(())
}
