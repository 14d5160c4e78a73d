//! A scenario as a lab of the simulator: its commits, its policy, its machines, its troubles.

use super::judge::{Ending, blames_wrongly, verdict};
use super::scenario::Scenario;
use super::truth::{Trouble, Truth};
use bisect::simulate::{Answer, Lab, Played, Tally, World, play};
use bisect::{
    Commit, CommitId, Confirm, Costs, History, Kernel, Limits, LookFor, MachineId, Metric, MinEffect,
    Outcome, Policy, Value,
};
use std::collections::BTreeMap;

/// Tries of a job before the lab gives it up, where a wrong kernel came up or the connection went.
const LAB_TRIES: u32 = 8;

struct ScenarioLab {
    truth: Truth,
    machines: Vec<String>,
    boots: BTreeMap<(usize, usize), u64>,
}

/// Plays one repetition of a scenario and counts how it ended; the text is why it was not right.
pub fn one(scenario: &Scenario, repetition: u64, tally: &mut Tally) -> Option<String> {
    let truth = Truth::new(scenario, repetition);
    let commits = truth.commits.iter().map(|c| Commit {
        id: CommitId::new(&c.id),
        parents: c.parents.iter().map(CommitId::new).collect(),
    });
    let (good, bad) = (
        CommitId::new(&scenario.range.good),
        CommitId::new(&scenario.range.bad),
    );
    let history = History::new(good, bad, commits.collect(), false, BTreeMap::new());
    let seed = truth.seed;
    let machines: Vec<String> = match scenario.machines.as_slice() {
        [] => vec!["m1".to_owned()],
        named => named.iter().map(|m| m.id.clone()).collect(),
    };
    let mut lab = Lab::of(1);
    lab.machines = machines.iter().map(MachineId::new).collect();
    let mut world = ScenarioLab {
        truth,
        machines,
        boots: BTreeMap::new(),
    };
    let policy = policy(scenario, seed);
    let (ending, played) = match history {
        Ok(history) => {
            let played = play(&history, policy, &lab, &mut world);
            (ending(&played), played)
        }
        Err(_) => (
            Ending {
                status: "request_rejected".into(),
                ..Ending::default()
            },
            Played::refused(policy),
        ),
    };
    let verdict = verdict(scenario, &ending);
    let answer = match verdict {
        Ok(()) => Answer::Right,
        Err(_) if blames_wrongly(scenario, &ending) => Answer::Wrong,
        Err(_) => Answer::Undecided,
    };
    tally.count(seed, answer, &played);
    verdict.err()
}

fn ending(played: &Played) -> Ending {
    let names = |ids: &[CommitId]| ids.iter().map(|c| c.as_str().to_owned()).collect();
    let mut tested: Vec<&CommitId> = played
        .record
        .observations
        .iter()
        .map(|o| &o.kernel.commit)
        .collect();
    tested.sort();
    tested.dedup();
    let commits_tested = tested.len();
    match &played.conclusion {
        Some(c) => Ending {
            status: c.status.word().to_owned(),
            first_bad: names(&c.first_bad),
            improved: names(&c.improved),
            suspects: names(&c.suspects),
            commits_tested,
        },
        None => Ending {
            status: "never_ended".into(),
            commits_tested,
            ..Ending::default()
        },
    }
}

/// Builds, boots and runs take 6, 4 and 2 minutes.
fn policy(scenario: &Scenario, seed: u64) -> Policy {
    let boots = scenario.config["max_total_runs"].as_u64().map(|runs| runs / 3);
    Policy {
        metric: Metric {
            name: scenario.metric.name.clone(),
            unit: scenario.metric.unit.clone(),
            higher_is_better: scenario.metric.higher_is_better,
            may_be_zero: false,
        },
        min_effect: MinEffect::Pct(scenario.metric.min_effect_pct),
        confidence: 0.99,
        seed,
        look_for: if scenario.culprits.len() > 1 {
            LookFor::All
        } else {
            LookFor::First
        },
        costs: Costs {
            build_s: 360.0,
            boot_s: 240.0,
            run_s: 120.0,
            ..Costs::default()
        },
        limits: Limits {
            boots: boots.map(|b| u32::try_from(b).unwrap_or(u32::MAX)),
            ..Limits::default()
        },
        confirm: Confirm::default(),
        other_metrics: Vec::new(),
    }
}

impl ScenarioLab {
    fn commit(&self, kernel: &Kernel) -> Option<usize> {
        self.truth.index.get(kernel.commit.as_str()).copied()
    }
}

impl World for ScenarioLab {
    fn digest(&self, kernel: &Kernel) -> String {
        self.commit(kernel)
            .map(|c| self.truth.digest(c))
            .unwrap_or_default()
    }

    fn builds(&self, kernel: &Kernel) -> bool {
        self.commit(kernel).is_some_and(|c| self.truth.builds(c))
    }

    fn boot(&mut self, kernel: &Kernel, machine: usize, at_s: f64, runs: u32) -> Outcome {
        let Some(commit) = self.commit(kernel) else {
            return Outcome::Lost;
        };
        for _ in 0..LAB_TRIES {
            match self.truth.trouble(commit) {
                Some(Trouble::Build) => return Outcome::BuildFailed,
                Some(Trouble::Boot) => return Outcome::BootFailed,
                Some(Trouble::Benchmark) => return Outcome::BenchmarkFailed,
                Some(Trouble::Lab) => continue,
                None => {}
            }
            let boots = self.boots.entry((commit, machine)).or_default();
            let boot = *boots;
            *boots += 1;
            let name = &self.machines[machine];
            let values = self.truth.boot(commit, name, boot, u64::from(runs), at_s / 60.0);
            let limit = self.truth.scenario.config["bench_timeout_s"].as_f64();
            let cut = |v: f64| match limit {
                Some(limit) if v > limit => Value::AtLeast(limit),
                _ => Value::Exact(v),
            };
            return Outcome::Measured {
                values: values.into_iter().map(cut).collect(),
                others: BTreeMap::new(),
            };
        }
        Outcome::Lost
    }
}
