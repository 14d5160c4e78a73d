//! How often the mind is right, wrong or undecided in worlds of several kinds of noise.
//!
//! `quick` runs with every test; the full table is `cargo test -p bisect --test calibration -- --ignored
//! --nocapture`, `TRIALS=400 COMMITS=1024` for the figures of the documentation.

mod worlds;

use bisect::Status;
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
}

fn count(trials: u64, base: u64, commits: usize, effect: f64, noise: Noise) -> Count {
    let mut count = Count::default();
    for trial in 0..trials {
        let world = World::new(base + trial, commits, effect, noise);
        let culprit = world.culprit;
        let Played {
            conclusion,
            boots,
            kernels,
            minutes,
            plans,
        } = world.play();
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
                        "    seed {} names {named:?} for {truth:?}: {:?}",
                        base + trial,
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
            let started = std::time::Instant::now();
            let c = count(trials, base, commits, effect, noise);
            let named = (c.right + c.wrong).max(1) as f64;
            println!(
                "{name:12} {what:5} right {:5.1} wrong {:4.1} undecided {:4.1} %, claimed {:.4} actual {:.4}, {:.0} min, {:.0} kernels, {:.0} boots, {:.1} ms a plan",
                100.0 * c.right as f64 / trials as f64,
                100.0 * c.wrong as f64 / trials as f64,
                100.0 * c.undecided as f64 / trials as f64,
                c.claimed / named,
                c.right as f64 / named,
                median(&c.minutes),
                median(&c.kernels),
                median(&c.boots),
                1000.0 * started.elapsed().as_secs_f64() / c.plans as f64,
            );
        }
    }
}
