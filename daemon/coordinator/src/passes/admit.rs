//! Admission: before a machine serves in a lane, its home kernel boots itself by the lane's way, then panics, then hangs,
//! and each time the machine must be home again without a person. Told by `web`, and done again at a person's word.
//!
//! The kernel is the machine's own; panic and hang are its init's doing (`perfbisect_trial` of the agent), which to the
//! lab looks as they do in a kernel: nothing comes but what `panic=`, a watchdog or power control bring about.

use super::{Passes, order};
use crate::config::{Lane as LaneDef, Machine};
use crate::store::admission::Lane;
use crate::store::facts::Ending;
use protocol::{BootFailed, Report};
use serde_json::Value;
use uuid::Uuid;

/// In this order: what fails early is cheap.
const TRIALS: [&str; 3] = ["good", "panic", "hang"];
/// A trial that fails twice is no accident.
const FAILURES: usize = 2;

/// Where an admission stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Standing {
    Admitted,
    Due(&'static str),
    Refused(String),
}

pub fn standing(admission: Option<&Value>) -> Standing {
    let none = Vec::new();
    let tries = admission.and_then(|a| a["tries"].as_array()).unwrap_or(&none);
    for trial in TRIALS {
        let of_it = || tries.iter().filter(|t| t["trial"] == trial);
        if of_it().any(|t| t["passed"] == true) {
            continue;
        }
        if of_it().count() < FAILURES {
            return Standing::Due(trial);
        }
        let what = of_it()
            .next_back()
            .and_then(|t| t["what"].as_str())
            .unwrap_or_default();
        return Standing::Refused(format!("not admitted: the kernel that {}: {what}", words(trial)));
    }
    Standing::Admitted
}

fn words(trial: &str) -> &'static str {
    match trial {
        "panic" => "panics",
        "hang" => "hangs",
        _ => "is its own",
    }
}

/// The next trial of a free machine, granted; or whether it may serve.
pub async fn next(p: &Passes, machine: &Machine) -> anyhow::Result<Result<(), Option<Uuid>>> {
    if machine.boot.trip().is_none() {
        return Ok(Ok(()));
    }
    let Some(Lane {
        number,
        method,
        admission,
    }) = p.store.lane_of(&machine.name).await?
    else {
        return Ok(Err(None));
    };
    match standing(admission.as_ref()) {
        Standing::Admitted => Ok(Ok(())),
        Standing::Refused(reason) => {
            p.store.quarantine(&machine.name, &reason).await?;
            tracing::error!(machine = machine.name, "quarantined: {reason}");
            Ok(Err(None))
        }
        Standing::Due(trial) => {
            let lane: LaneDef = order::read("lane", &method)?;
            let deadline_s = order::trial_deadline_s(machine, &lane);
            let granted = p
                .store
                .grant_trial(&machine.name, number, trial, deadline_s, &p.instance)
                .await?;
            if granted.is_some() {
                tracing::info!(machine = machine.name, trial, "tried before it serves");
            }
            Ok(Err(granted))
        }
    }
}

/// What a trial's report means.
pub fn judged(trial: &str, report: &Report) -> Ending {
    let (passed, what) = match (trial, report) {
        ("good", Report::Measured(measured)) => (
            true,
            format!("{} came up and went home again", measured.proof.release),
        ),
        ("panic" | "hang", Report::BootFailed(BootFailed { fault, .. })) if fault != "wrong_kernel" => {
            (true, format!("it came home ({fault})"))
        }
        (_, Report::BootFailed(failed)) => (false, format!("{}: {}", failed.fault, failed.excerpt)),
        (_, Report::Trouble { what }) => (false, what.clone()),
        (_, Report::BenchmarkFailed(failed)) => (false, failed.what.clone()),
        (_, Report::Cancelled) => return Ending::Cancelled,
        (_, Report::Measured(_)) => (false, "it came up and did not fail as it was to".into()),
        (_, Report::Built(_) | Report::BuildFailed(_)) => (false, "it answered with a build".into()),
    };
    Ending::Tried { passed, what }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_machine_serves_after_all_three_trials_and_never_after_one_that_failed_twice() {
        let tries = |list: &[(&str, bool)]| {
            let line =
                |(trial, passed): &(&str, bool)| json!({"trial": trial, "passed": passed, "what": "silent"});
            json!({"tries": list.iter().map(line).collect::<Vec<_>>()})
        };
        assert_eq!(standing(None), Standing::Due("good"));
        assert_eq!(standing(Some(&tries(&[("good", false)]))), Standing::Due("good"));
        assert_eq!(
            standing(Some(&tries(&[("good", false), ("good", true)]))),
            Standing::Due("panic")
        );
        let all = [("good", true), ("panic", true), ("hang", true)];
        assert_eq!(standing(Some(&tries(&all))), Standing::Admitted);
        let twice = [("good", true), ("panic", true), ("hang", false), ("hang", false)];
        assert_eq!(
            standing(Some(&tries(&twice))),
            Standing::Refused("not admitted: the kernel that hangs: silent".into())
        );
    }
}
