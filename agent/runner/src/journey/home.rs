//! In the home kernel again: a journey's end is told, and what it left on the machine is taken away.

use super::{Journey, Leg, Whereabouts, boot_of, loader, relics, run, stage};
use crate::environment;
use crate::measure::console::Fault;
use crate::root::lock;
use crate::spool::Spool;
use crate::trouble::Trouble;
use protocol::{Boot, BootFailed, Order, Phase, Report};

const DISARM_LIMIT_S: u64 = 120;

/// Ends the journey of a machine that is home again, once; whoever notices first does it.
pub fn settle(spool: &Spool, whereabouts: Whereabouts) -> Result<(), Trouble> {
    let _held = lock(&spool.dir.join("journey.lock"))?;
    let (Some(journey), order) = (Journey::read(spool), spool.order()?) else {
        return Ok(());
    };
    if spool.has_ended() || order.trip().is_none() {
        return Ok(());
    }
    let report = match whereabouts {
        Whereabouts::BackHome => told(&journey, &order),
        Whereabouts::Stuck => Report::Trouble {
            what: "the machine did not leave its home kernel, and the agent's worker is gone".into(),
        },
        Whereabouts::Here | Whereabouts::Away | Whereabouts::Stranded => return Ok(()),
    };
    clear(&journey, &order);
    spool.conclude(report).map(drop)
}

/// Files, modules and whatever is armed, gone.
pub fn clear(journey: &Journey, order: &Order) {
    match boot_of(order) {
        Some(Boot::Oneshot(oneshot)) => loader::disarm(&oneshot.loader),
        Some(Boot::Commands(commands)) if !commands.disarm.is_empty() => {
            if let Err(Trouble(what)) = run(&commands.disarm, DISARM_LIMIT_S, &[]) {
                eprintln!("{what}");
            }
        }
        Some(Boot::Kexec(_) | Boot::Commands(_) | Boot::Qemu(_) | Boot::None) | None => {}
    }
    stage::remove(&journey.staged);
}

fn told(journey: &Journey, order: &Order) -> Report {
    let now = environment::proof();
    if now.release != journey.home.release {
        let what = format!(
            "the machine left from {} and came back with {}: its default kernel is another one now",
            journey.home.release, now.release
        );
        return Report::Trouble { what };
    }
    let (what, phase) = match &journey.leg {
        Leg::Returning { report, .. } => return report.clone(),
        Leg::Staging => {
            let what = "the machine restarted before it was to leave its home kernel".into();
            return Report::Trouble { what };
        }
        Leg::Leaving { .. } => {
            if let Some(Boot::Oneshot(oneshot)) = boot_of(order)
                && loader::still_armed(&oneshot.loader) == Some(true)
            {
                let what = "the boot loader did not take the one-shot entry: the home kernel was booted";
                return Report::Trouble { what: what.into() };
            }
            (
                "the machine came home without a word of the test kernel's agent",
                Phase::Boot,
            )
        }
        Leg::There { .. } => ("the machine restarted in mid-benchmark", Phase::Bench),
    };
    let (fault, excerpt) = match relics::collect(&journey.relics) {
        Some((fault, lines)) => (
            fault.map_or("reset", Fault::name),
            format!("{what}; its last words:\n{lines}"),
        ),
        None => ("reset", what.to_string()),
    };
    Report::BootFailed(BootFailed {
        fault: fault.into(),
        excerpt,
        phase,
    })
}
