//! What holds of every plan, whatever the record: proved on arbitrary histories and records.

use bisect::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const COMMITS: usize = 12;

fn name(i: usize) -> CommitId {
    CommitId::new(format!("c{i}"))
}

/// A random DAG with one root: each commit has one or two earlier parents; the last one is bad.
fn history() -> impl Strategy<Value = History> {
    prop::collection::vec(
        (
            any::<prop::sample::Index>(),
            any::<prop::sample::Index>(),
            any::<bool>(),
        ),
        COMMITS - 1,
    )
    .prop_filter_map("bad must not be below good", |parents| {
        let mut commits = vec![Commit {
            id: name(0),
            parents: Vec::new(),
        }];
        for (i, (a, b, merge)) in parents.into_iter().enumerate() {
            let mut own = vec![name(a.index(i + 1))];
            if merge {
                own.push(name(b.index(i + 1)));
            }
            commits.push(Commit {
                id: name(i + 1),
                parents: own,
            });
        }
        History::new(name(0), name(COMMITS - 1), commits, false, BTreeMap::new()).ok()
    })
}

fn outcome() -> impl Strategy<Value = Outcome> {
    let value = prop_oneof![
        8 => (1.0f64..1.2).prop_map(Value::Exact),
        1 => prop_oneof![Just(1e-300), Just(1e300), Just(0.0), Just(-1.0), Just(f64::NAN)].prop_map(Value::Exact),
        1 => (1.0f64..2.0).prop_map(Value::AtLeast),
    ];
    prop_oneof![
        8 => prop::collection::vec(value, 1..4)
            .prop_map(|values| Outcome::Measured { values, others: BTreeMap::new() }),
        1 => Just(Outcome::BuildFailed),
        1 => Just(Outcome::BootFailed),
        1 => Just(Outcome::BenchmarkFailed),
        1 => Just(Outcome::Lost),
    ]
}

fn observation() -> impl Strategy<Value = Observation> {
    let commit = prop_oneof![2 => Just(0), 2 => Just(COMMITS - 1), 3 => 0..COMMITS];
    let replicate = prop_oneof![6 => 0u32..4, 1 => 2000u32..2003];
    (commit, 0..2usize, replicate, 0.0f64..20_000.0, outcome()).prop_map(
        |(commit, machine, replicate, at_s, outcome)| Observation {
            kernel: Kernel::plain(name(commit)),
            machine: MachineId::new(format!("m{machine}")),
            replicate,
            at_s,
            outcome,
        },
    )
}

fn record() -> impl Strategy<Value = Record> {
    let overrides = prop::collection::vec((0..COMMITS, 0..3u8), 0..2);
    (
        prop::collection::vec(observation(), 0..24),
        any::<[bool; 2]>(),
        any::<bool>(),
        overrides,
        0..3u32,
    )
        .prop_map(|(observations, busy, all, overrides, builders)| {
            let mut seen = BTreeSet::new();
            let observations: Vec<_> = observations
                .into_iter()
                .filter(|o| seen.insert((o.kernel.clone(), o.machine.clone(), o.replicate)))
                .collect();
            let verdict =
                |v| [OverrideVerdict::Good, OverrideVerdict::Bad, OverrideVerdict::Skip][v as usize];
            Record {
                policy: Policy {
                    metric: Metric {
                        name: "m".into(),
                        unit: "s".into(),
                        higher_is_better: false,
                        may_be_zero: false,
                    },
                    min_effect: MinEffect::Pct(2.0),
                    confidence: 0.99,
                    seed: 3,
                    look_for: if all { LookFor::All } else { LookFor::First },
                    costs: Costs::default(),
                    limits: Limits::default(),
                    confirm: Confirm {
                        revert: all,
                        layout: all,
                    },
                    other_metrics: Vec::new(),
                },
                machines: (0..2)
                    .map(|m| Machine {
                        id: MachineId::new(format!("m{m}")),
                        busy: busy[m],
                    })
                    .collect(),
                builders,
                now_s: 20_000.0,
                images: Vec::new(),
                observations,
                pending: Vec::new(),
                overrides: overrides
                    .into_iter()
                    .map(|(c, v)| Override {
                        commit: name(c),
                        verdict: verdict(v),
                    })
                    .collect(),
            }
        })
}

/// The same record with values near 1 alone, one at least a boot.
fn ordinary(record: &Record) -> Record {
    let mut record = record.clone();
    for o in &mut record.observations {
        if let Outcome::Measured { values, .. } = &mut o.outcome {
            values.retain(|v| matches!(v, Value::Exact(x) if (0.5..2.0).contains(x)));
            values.push(Value::Exact(1.1));
        }
    }
    record
}

fn with_values(record: &Record, change: impl Fn(f64) -> f64) -> Record {
    let mut record = record.clone();
    for o in &mut record.observations {
        if let Outcome::Measured { values, .. } = &mut o.outcome {
            values.iter_mut().for_each(|v| {
                if let Value::Exact(x) = v {
                    *x = change(*x)
                }
            });
        }
    }
    record
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn a_plan_is_sound(history in history(), record in record()) {
        let plan = bisect::plan(&history, &record);
        let sum: f64 = plan.p_no_change + plan.suspects.iter().map(|s| s.probability).sum::<f64>();
        prop_assert!((sum - 1.0).abs() < 1e-6, "probabilities sum to {sum}");
        if let Step::Run(jobs) = &plan.step {
            prop_assert!(!jobs.is_empty());
            for job in jobs {
                let free = record.machines.iter().any(|m| m.id == job.machine && !m.busy);
                prop_assert!(free, "{job:?} is for a machine that is busy");
                let asked = record.observations.iter().any(|o| {
                    (&o.kernel, &o.machine, o.replicate) == (&job.kernel, &job.machine, job.replicate)
                });
                prop_assert!(!asked, "{job:?} was observed");
            }
            let mut again = record.clone();
            again.pending = jobs.clone();
            if let Step::Run(more) = bisect::plan(&history, &again).step {
                let asked = |j: &Job| jobs.iter().any(|p| (&p.kernel, &p.machine, p.replicate) == (&j.kernel, &j.machine, j.replicate));
                prop_assert!(!more.iter().any(asked), "a pending job is asked again");
            }
        }
    }

    #[test]
    fn a_planner_that_saw_more_or_less_before_plans_the_same(
        histories in prop::collection::vec(history(), 2),
        records in prop::collection::vec(record(), 2),
        order in prop::collection::vec((0..2usize, 0..2usize, 0..24usize), 1..12),
    ) {
        let mut planner = Planner::new();
        for (history, record, boots) in order {
            // The first boots by time, as a record grows; then fewer again, or another record.
            let mut record = records[record].clone();
            record.observations.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
            record.observations.truncate(boots);
            let history = &histories[history];
            let kept = planner.plan(history, &record);
            prop_assert_eq!(format!("{kept:?}"), format!("{:?}", bisect::plan(history, &record)));
        }
    }

    #[test]
    fn the_order_of_rows_is_nothing(history in history(), record in record()) {
        let mut turned = record.clone();
        turned.observations.reverse();
        turned.machines.reverse();
        turned.overrides.reverse();
        turned.overrides.dedup_by_key(|o| o.commit.clone());
        let mut plain = record.clone();
        plain.overrides = turned.overrides.iter().rev().cloned().collect();
        // By its text, which shows every bit of a number and holds NaN equal to itself.
        prop_assert_eq!(format!("{:?}", bisect::plan(&history, &plain)), format!("{:?}", bisect::plan(&history, &turned)));
    }

    #[test]
    fn the_unit_of_the_metric_is_nothing(history in history(), record in record()) {
        let plain = ordinary(&record);
        let scaled = with_values(&plain, |x| x * 4.0);
        let (a, b) = (bisect::plan(&history, &plain), bisect::plan(&history, &scaled));
        prop_assert!((a.p_no_change - b.p_no_change).abs() < 1e-6, "{} {}", a.p_no_change, b.p_no_change);
    }

    /// Not bit for bit: which of two modes is called the second is a matter of the sign.
    #[test]
    fn the_sign_of_the_metric_is_nothing(history in history(), record in record()) {
        let mut plain = ordinary(&record);
        plain.overrides.clear();
        let mut turned = with_values(&plain, |x| 1.0 / x);
        turned.policy.metric.higher_is_better = !turned.policy.metric.higher_is_better;
        let (a, b) = (bisect::plan(&history, &plain), bisect::plan(&history, &turned));
        prop_assert!((a.p_no_change - b.p_no_change).abs() < 0.02, "{} {}", a.p_no_change, b.p_no_change);
    }
}
