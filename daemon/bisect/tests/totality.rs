//! A plan for any record: it never panics, its work stays within a bound, and what it asks for makes sense.
//!
//! Records are drawn from seeds: random DAGs with merges and loose roots, boots that contradict each other, failed
//! and lost jobs, numbers no machine ever told, limits, words of the user, machines that come and go. A few hundred
//! run with every test; `CASES=100000 COMMITS=64` and `CASES=1000 COMMITS=1000` with `--release -- --ignored`.

use bisect::*;
use std::collections::{BTreeMap, BTreeSet};

/// SplitMix64 (Steele, Lea and Flood 2014).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

fn name(i: usize) -> CommitId {
    CommitId::new(format!("c{i}"))
}

fn history(dice: &mut Dice, most: usize) -> Option<History> {
    let n = 2 + dice.below(most - 1);
    let (merges, roots) = (2 + dice.below(12), 5 + dice.below(60));
    let commits = (0..n).map(|i| {
        let mut parents = Vec::new();
        if i > 0 && !dice.one_in(roots) {
            let near = |dice: &mut Dice| i - 1 - dice.below(i.min(6));
            parents.push(name(near(dice)));
            if dice.one_in(merges) {
                parents.push(name(dice.below(i)));
            }
            if dice.one_in(merges * 4) {
                parents.push(name(dice.below(i)));
            }
        }
        Commit { id: name(i), parents }
    });
    let commits = commits.collect();
    let good = if dice.one_in(4) { dice.below(n) } else { 0 };
    let first_parent = dice.one_in(6);
    History::new(name(good), name(n - 1), commits, first_parent, BTreeMap::new()).ok()
}

fn value(dice: &mut Dice, centre: f64, noise: f64) -> Value {
    const ODD: [f64; 8] = [
        0.0,
        -1.0,
        1e-300,
        1e300,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::MAX,
    ];
    let x = if dice.one_in(60) {
        ODD[dice.below(ODD.len())]
    } else {
        centre * (1.0 + noise * (dice.unit() + dice.unit() + dice.unit() - 1.5))
    };
    match dice.below(40) {
        0 => Value::AtLeast(x),
        1 => Value::AtMost(x),
        _ => Value::Exact(x),
    }
}

fn record(dice: &mut Dice, history: &History) -> Record {
    let n = history.len();
    let machines = 1 + dice.below(3);
    let culprit = dice.below(n);
    let noise = [0.0, 0.001, 0.02, 0.2][dice.below(4)];
    let boots = dice.below(60);
    let kernels: Vec<usize> = (0..1 + dice.below(20)).map(|_| dice.below(n)).collect();
    let place = |c: &CommitId| history.place(c).unwrap_or(0) as usize;
    let ends = [place(history.good()), place(history.bad())];
    let mut seen = BTreeSet::new();
    let mut observations = Vec::new();
    for i in 0..boots {
        let at = if i < 8 || dice.one_in(3) {
            ends[i % 2]
        } else {
            kernels[dice.below(kernels.len())]
        };
        let mut kernel = Kernel::plain(history.id(at as u32).clone());
        if dice.one_in(30) {
            kernel.layout = 1;
        }
        let machine = MachineId::new(format!("m{}", dice.below(machines)));
        let replicate = if dice.one_in(12) {
            2000 + dice.below(3) as u32
        } else {
            dice.below(40) as u32
        };
        let centre = if at >= culprit { 95.0 } else { 100.0 };
        let outcome = match dice.below(24) {
            0 => Outcome::BuildFailed,
            1 => Outcome::BootFailed,
            2 => Outcome::BenchmarkFailed,
            3 => Outcome::Lost,
            _ => Outcome::Measured {
                values: (0..dice.below(5)).map(|_| value(dice, centre, noise)).collect(),
                others: BTreeMap::new(),
            },
        };
        if seen.insert((kernel.clone(), machine.clone(), replicate)) {
            let at_s = if dice.one_in(200) {
                f64::NAN
            } else {
                3e4 * dice.unit() - 1e3
            };
            observations.push(Observation {
                kernel,
                machine,
                replicate,
                at_s,
                outcome,
            });
        }
    }
    let images = kernels.iter().enumerate().map(|(i, &k)| Image {
        kernel: Kernel::plain(history.id(k as u32).clone()),
        digest: format!("d{}", if i % 5 == 4 { i - 1 } else { i }),
    });
    let words = [OverrideVerdict::Good, OverrideVerdict::Bad, OverrideVerdict::Skip];
    let rarely = dice.one_in(3);
    Record {
        policy: Policy {
            metric: Metric {
                name: "m".into(),
                unit: "s".into(),
                higher_is_better: dice.one_in(2),
                may_be_zero: dice.one_in(5),
            },
            min_effect: if dice.one_in(5) {
                MinEffect::Abs(dice.unit())
            } else {
                MinEffect::Pct(5.0 * dice.unit())
            },
            confidence: [0.6, 0.95, 0.99, 0.999][dice.below(4)],
            seed: dice.next(),
            look_for: if dice.one_in(3) {
                LookFor::All
            } else {
                LookFor::First
            },
            costs: Costs {
                build_s: [0.0, 600.0, f64::NAN, 1e300][dice.below(4)],
                ..Costs::default()
            },
            limits: Limits {
                boots: dice.one_in(5).then(|| dice.below(80) as u32),
                time_s: dice.one_in(8).then(|| 4e4 * dice.unit()),
                ends_time_s: dice.one_in(8).then(|| 4e4 * dice.unit()),
            },
            confirm: Confirm {
                revert: dice.one_in(3),
                layout: dice.one_in(3),
            },
            other_metrics: Vec::new(),
        },
        machines: (0..machines)
            .map(|m| Machine {
                id: MachineId::new(format!("m{m}")),
                busy: dice.one_in(4),
            })
            .collect(),
        builders: dice.below(3) as u32,
        now_s: 3e4,
        images: if rarely { images.collect() } else { Vec::new() },
        observations,
        pending: Vec::new(),
        overrides: (0..if rarely { dice.below(3) } else { 0 })
            .map(|_| Override {
                commit: history.id(dice.below(n) as u32).clone(),
                verdict: words[dice.below(3)],
            })
            .collect(),
    }
}

/// Plans `cases` random records; the most filter updates that one plan cost.
fn fuzz(seed: u64, cases: u64, most: usize) -> u64 {
    let mut worst = 0;
    for case in 0..cases {
        let mut dice = Dice(seed.wrapping_add(case.wrapping_mul(0x5851_F42D_4C95_7F2D)));
        let Some(history) = history(&mut dice, most) else {
            continue;
        };
        let record = record(&mut dice, &history);
        let mut planner = Planner::new();
        let plan = planner.plan(&history, &record);
        let boots = record.observations.len().max(1) as u64;
        let kernels: BTreeSet<&Kernel> = record.observations.iter().map(|o| &o.kernel).collect();
        // A bank of each end pair and span; three more for each kernel that is put to the test, on each level.
        let banks = 8 * (4 + 3 * kernels.len() as u64);
        let bound = 4 * MOST_FILTERS as u64 * boots * banks;
        assert!(
            planner.updates() <= bound,
            "seed {seed} case {case}: {} updates",
            planner.updates()
        );
        worst = worst.max(planner.updates());
        let sum: f64 = plan.suspects.iter().map(|s| s.probability).sum();
        assert!(
            (0.0..=1.0 + 1e-9).contains(&(sum + plan.p_no_change)),
            "seed {seed} case {case}: {sum}"
        );
        if let Step::Run(jobs) = &plan.step {
            for job in jobs {
                let free = record.machines.iter().any(|m| m.id == job.machine && !m.busy);
                let asked = record.observations.iter().any(|o| {
                    (&o.kernel, &o.machine, o.replicate) == (&job.kernel, &job.machine, job.replicate)
                });
                assert!(free && !asked, "seed {seed} case {case}: {job:?}");
            }
        }
    }
    worst
}

#[test]
fn any_record_has_a_plan() {
    fuzz(1, 400, 64);
    fuzz(2, 10, 1000);
}

#[test]
#[ignore = "minutes, in release: CASES=100000 COMMITS=64, CASES=1000 COMMITS=1000"]
fn any_record_of_very_many_has_a_plan() {
    let number = |name: &str, default: u64| {
        let told = std::env::var(name).ok().and_then(|v| v.parse().ok());
        told.unwrap_or(default)
    };
    let (seed, cases, commits) = (
        number("SEED", 11),
        number("CASES", 100_000),
        number("COMMITS", 64),
    );
    let worst = fuzz(seed, cases, commits as usize);
    println!(
        "{cases} cases of up to {commits} commits from seed {seed}: at most {worst} filter updates a plan"
    );
}
