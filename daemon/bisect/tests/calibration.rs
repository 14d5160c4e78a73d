//! How often the mind is right, wrong or undecided in worlds of several kinds of noise.
//!
//! `quick` runs with every test; the full table is `cargo test -p bisect --test calibration -- --ignored
//! --nocapture`, `TRIALS=400 COMMITS=1024` for the figures of the documentation.

mod worlds;

use bisect::{Outcome, Status};
use std::time::Duration;
use worlds::{Noise, Played, World};

#[derive(Default, Debug)]
struct Count {
    right: usize,
    wrong: usize,
    undecided: usize,
    claimed: f64,
    minutes: Vec<f64>,
    boots: Vec<f64>,
    kernels: Vec<f64>,
    plans: usize,
    updates: u64,
    planning: Duration,
    slowest: Duration,
}

fn count(trials: u64, base: u64, commits: usize, effect: f64, noise: Noise) -> Count {
    count_worlds((0..trials).map(|trial| World::new(base + trial, commits, effect, noise)))
}

fn count_worlds(worlds: impl Iterator<Item = World>) -> Count {
    let mut count = Count::default();
    for (number, world) in worlds.enumerate() {
        let culprit = world.culprit;
        let Played {
            conclusion,
            boots,
            kernels,
            minutes,
            plans,
            updates,
            planning,
            slowest,
            end: (history, record),
        } = world.play();
        // What was planned step by step is what the whole record says at once.
        assert_eq!(
            bisect::plan(&history, &record).step,
            bisect::Step::Conclude(conclusion.clone())
        );
        let named: Vec<&str> = conclusion.first_bad.iter().map(|c| c.as_str()).collect();
        let truth = culprit.map(|c| format!("c{c}"));
        match (conclusion.status, &truth) {
            (Status::CulpritFound, Some(truth)) if named == [truth.as_str()] => {
                count.right += 1;
                count.claimed += conclusion.confidence;
            }
            (Status::CulpritFound | Status::CulpritsFound | Status::SeveralChanges, _) => {
                count.wrong += 1;
                count.claimed += conclusion.confidence;
                if std::env::var_os("SHOW_WRONG").is_some() {
                    println!(
                        "    world {number} names {named:?} for {truth:?} after {boots} boots: {:?}",
                        conclusion.notes
                    );
                }
            }
            _ => count.undecided += 1,
        }
        count.minutes.push(minutes);
        count.boots.push(boots as f64);
        count.kernels.push(kernels as f64);
        count.plans += plans;
        count.updates += updates;
        count.planning += planning;
        count.slowest = count.slowest.max(slowest);
    }
    count
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

fn models() -> Vec<(&'static str, Noise)> {
    let base = Noise::default();
    vec![
        ("gauss", Noise { run: 0.02, ..base }),
        (
            "boot",
            Noise {
                run: 0.02,
                boot: 0.02,
                ..base
            },
        ),
        (
            "heavy",
            Noise {
                run: 0.02,
                boot: 0.01,
                heavy: 0.05,
                ..base
            },
        ),
        (
            "bimodal",
            Noise {
                run: 0.02,
                boot: 0.006,
                mode: (0.3, 0.08),
                ..base
            },
        ),
        (
            "drift",
            Noise {
                run: 0.02,
                boot: 0.01,
                walk: 0.01,
                ..base
            },
        ),
        (
            "step",
            Noise {
                run: 0.02,
                step: 0.03,
                ..base
            },
        ),
        (
            "image 0.5 %",
            Noise {
                run: 0.02,
                boot: 0.02,
                image: 0.005,
                ..base
            },
        ),
        (
            "image 1 %",
            Noise {
                run: 0.02,
                boot: 0.02,
                image: 0.01,
                ..base
            },
        ),
        (
            "image 2 %",
            Noise {
                run: 0.02,
                boot: 0.02,
                image: 0.02,
                ..base
            },
        ),
    ]
}

const LOSS: f64 = -0.0513; // 5 %

#[test]
fn a_loss_in_plain_noise_is_found_and_nothing_else_is_named() {
    let noise = Noise {
        run: 0.02,
        boot: 0.01,
        ..Noise::default()
    };
    let found = count(20, 500, 64, LOSS, noise);
    assert_eq!(found.wrong, 0, "{found:?}");
    assert!(found.right >= 19, "{found:?}");
    let none = count(20, 900, 64, 0.0, noise);
    assert_eq!(none.wrong, 0, "{none:?}");
}

#[test]
fn without_noise_a_kernel_takes_one_boot_or_two() {
    let noise = Noise::default();
    for seed in 0..10 {
        let mut world = World::new(seed, 64, -0.04, noise);
        (world.build_s, world.boot_s, world.run_s) = (4.0, 1.0, 0.5);
        let truth = format!("c{}", world.culprit.expect("a loss"));
        let played = world.play();
        assert_eq!(
            played
                .conclusion
                .first_bad
                .iter()
                .map(|c| c.as_str())
                .collect::<Vec<_>>(),
            [truth]
        );
        assert!(
            played.boots <= 2 * played.kernels,
            "{} boots of {} kernels",
            played.boots,
            played.kernels
        );
        assert!(played.kernels <= 6 + 3, "{} kernels", played.kernels);
    }
}

/// A world like an emulator that counts instructions: hardly any noise, kernels that fail, kernels that are the
/// same binary. Nearly everything is told by one boot.
fn counting_world(seed: u64) -> World {
    let noise = Noise {
        run: 0.0003,
        boot: 0.0004,
        ..Noise::default()
    };
    let mut world = World::new(seed, 40, -0.0513, noise);
    (world.build_s, world.boot_s, world.run_s) = (5.0, 1.5, 0.5);
    let culprit = world.culprit.expect("a loss");
    // The first places a search comes to, then anything.
    let mut innocent = [19, 10, 29]
        .into_iter()
        .chain((0..).map(|i| 1 + (7 * i + 11 * seed as usize) % 38));
    let mut next = || {
        let free = |c: &usize| *c != culprit && c + 1 != culprit && *c != culprit + 1;
        innocent.find(free).expect("there are more")
    };
    let (unbuildable, panics, same) = (next(), next(), next());
    world.fails.insert(unbuildable, Outcome::BuildFailed);
    world.fails.insert(panics, Outcome::BootFailed);
    world.same.insert(same, same - 1);
    world
}

#[test]
fn where_instructions_are_counted_few_boots_are_enough() {
    let (mut boots, mut kernels) = (Vec::new(), Vec::new());
    for seed in 0..20 {
        let world = counting_world(seed);
        let truth = format!("c{}", world.culprit.expect("a loss"));
        let played = world.play();
        let named: Vec<&str> = played.conclusion.first_bad.iter().map(|c| c.as_str()).collect();
        println!(
            "seed {seed}: {truth}, {} kernels, {} boots, {named:?}",
            played.kernels, played.boots
        );
        assert_eq!(named, [truth.as_str()], "seed {seed}: {:?}", played.conclusion);
        assert!(played.kernels <= 10, "seed {seed}: {} kernels", played.kernels);
        boots.push(played.boots as f64);
        kernels.push(played.kernels as f64);
    }
    assert!(median(&kernels) <= 9.0, "{kernels:?}");
    assert!(median(&boots) <= 2.0 * median(&kernels), "{boots:?}");
}

/// A world like a plain emulator on a busy host: noisy boots, some far off, small losses.
fn emulated_world(seed: u64, boot: f64, distance: f64, outliers: f64) -> World {
    let noise = Noise {
        run: 0.005,
        boot,
        outlier: (outliers, -(1.5f64.ln())),
        ..Noise::default()
    };
    let mut world = World::new(seed, 40, -distance * boot, noise);
    (world.build_s, world.boot_s, world.run_s) = (5.0, 1.5, 0.5);
    world.least_pct = 1.0;
    world
}

#[test]
#[ignore = "minutes; TRIALS=20, --ignored --nocapture"]
fn on_a_busy_host_nothing_wrong_is_named() {
    let trials = std::env::var("TRIALS")
        .ok()
        .and_then(|t| t.parse().ok())
        .unwrap_or(20);
    let mut wrong = 0;
    for (boot, distance, outliers) in [
        (0.02, 2.0, 0.0),
        (0.04, 2.5, 0.0),
        (0.03, 3.0, 0.05),
        (0.02, 2.0, 0.05),
    ] {
        let c = count_worlds((0..trials).map(|t| emulated_world(70_000 + t, boot, distance, outliers)));
        println!(
            "boots {:.0} %, loss {distance} sd, outliers {outliers}: right {} wrong {} undecided {} of {trials}, {:.0} boots, {:.0} kernels",
            100.0 * boot,
            c.right,
            c.wrong,
            c.undecided,
            median(&c.boots),
            median(&c.kernels),
        );
        wrong += c.wrong;
        assert!(median(&c.boots) <= 150.0, "{:?}", c.boots);
    }
    assert_eq!(wrong, 0);
}

#[test]
#[ignore = "minutes to hours; see the module's doc"]
fn the_table() {
    let number = |name: &str, default: u64| {
        std::env::var(name)
            .ok()
            .and_then(|v| v.parse().ok())
            .unwrap_or(default)
    };
    let (trials, commits, base) = (
        number("TRIALS", 50),
        number("COMMITS", 64) as usize,
        number("SEED", 10_000),
    );
    let only = std::env::var("MODEL").ok();
    println!("{trials} trials, {commits} commits, seeds from {base}");
    for (name, noise) in models() {
        if only.as_ref().is_some_and(|o| !name.starts_with(o.as_str())) {
            continue;
        }
        for (what, effect) in [("5 %", LOSS), ("none", 0.0)] {
            let c = count(trials, base, commits, effect, noise);
            let named = (c.right + c.wrong).max(1) as f64;
            println!(
                "{name:12} {what:5} right {:5.1} wrong {:4.1} undecided {:4.1} %, claimed {:.4} actual {:.4}, {:.0} min, {:.0} kernels, {:.0} boots, {:.1} ms a search, {:.1} the slowest plan, {:.0} updates a plan",
                100.0 * c.right as f64 / trials as f64,
                100.0 * c.wrong as f64 / trials as f64,
                100.0 * c.undecided as f64 / trials as f64,
                c.claimed / named,
                c.right as f64 / named,
                median(&c.minutes),
                median(&c.kernels),
                median(&c.boots),
                1000.0 * c.planning.as_secs_f64() / trials as f64,
                1000.0 * c.slowest.as_secs_f64(),
                c.updates as f64 / c.plans as f64,
            );
        }
    }
}
