//! How often the mind is right, wrong or undecided in worlds of several kinds of noise: a quick version of what
//! `tests/bench/mind` prints in full, with bounds that two simpler bisectors break.

mod peers;

use bisect::simulate::{Answer, Drawn, Lab, Noise, Played, Setting, Tally, What, play};
use bisect::{Costs, Outcome, Step};

fn noise(name: &str) -> Noise {
    Noise::named(name, 0.02).expect("a model of that name")
}

fn played(setting: &Setting, world: &mut Drawn) -> Played {
    let history = world.shape.history();
    let played = play(&history, setting.policy(), &Lab::of(setting.machines), world);
    // What was planned step by step is what the whole record says at once.
    let again = bisect::plan(&history, &played.record).step;
    let conclusion = played.conclusion.clone().expect("every search ends");
    assert_eq!(again, Step::Conclude(conclusion));
    played
}

fn tally(setting: &Setting, seeds: std::ops::Range<u64>) -> Tally {
    let mut tally = Tally::default();
    for seed in seeds {
        let mut world = setting.draw(seed);
        let played = played(setting, &mut world);
        tally.add(seed, &world, setting.changes.len() > 1, &played);
    }
    tally
}

fn median(values: &[f64]) -> f64 {
    Tally::quantile(values, 0.5)
}

/// The bound that a mind must keep in noisy worlds, counted over all of them.
fn keeps_the_bound(answers: &[Answer]) -> bool {
    let count = |wanted| answers.iter().filter(|a| **a == wanted).count();
    count(Answer::Wrong) * 33 <= answers.len() && count(Answer::Right) * 10 >= 9 * answers.len()
}

#[test]
fn the_mind_keeps_a_bound_that_a_naive_bisector_and_a_gaussian_one_break() {
    const EACH: u64 = 20;
    let (mut mind, mut naive, mut gaussian) = (Vec::new(), Vec::new(), Vec::new());
    for (model, base) in ["drift", "bimodal", "boot"].into_iter().zip([100, 200, 300]) {
        let setting = Setting::new(64, noise(model));
        for seed in base..base + EACH {
            let mut world = setting.draw(seed);
            let played = played(&setting, &mut world);
            mind.push(Answer::of(
                played.conclusion.as_ref(),
                &world.losses(),
                &world.gains(),
                false,
            ));
        }
        // The peers cost nothing: enough of them that their failing is no accident.
        for seed in base..base + 20 * EACH {
            naive.push(peers::naive(&mut setting.draw(seed)));
            gaussian.push(peers::gaussian(&mut setting.draw(seed)));
        }
    }
    assert!(keeps_the_bound(&mind), "{mind:?}");
    assert!(
        !keeps_the_bound(&naive),
        "the bound is too loose: three runs each keep it"
    );
    assert!(
        !keeps_the_bound(&gaussian),
        "the bound is too loose: normal noise keeps it"
    );
}

#[test]
fn where_nothing_changed_nothing_is_named() {
    let mut setting = Setting::new(64, noise("boot"));
    setting.changes.clear();
    let none = tally(&setting, 900..920);
    assert_eq!(none.named, 0, "{:?}", none.statuses);
}

#[test]
fn without_noise_a_kernel_takes_one_boot_or_two() {
    let mut setting = Setting::new(63, Noise::default());
    setting.changes = vec![What::Level(-0.04)];
    setting.costs = seconds(4.0, 1.0, 0.5);
    for seed in 0..10 {
        let mut world = setting.draw(seed);
        let played = played(&setting, &mut world);
        let answer = Answer::of(played.conclusion.as_ref(), &world.losses(), &[], false);
        assert_eq!(answer, Answer::Right, "seed {seed}: {:?}", played.conclusion);
        let (boots, kernels) = (played.boots(), played.kernels);
        assert!(boots <= 2 * kernels, "{boots} boots of {kernels} kernels");
        assert!(kernels <= 6 + 3, "{kernels} kernels");
    }
}

fn seconds(build_s: f64, boot_s: f64, run_s: f64) -> Costs {
    Costs {
        build_s,
        boot_s,
        run_s,
        ..Costs::default()
    }
}

/// A world like an emulator that counts instructions: hardly any noise, kernels that fail, kernels that are the
/// same binary. Nearly everything is told by one boot.
fn counting(seed: u64) -> (Setting, Drawn) {
    let mut setting = Setting::new(
        39,
        Noise {
            run: 0.0003,
            boot: 0.0004,
            ..Noise::default()
        },
    );
    setting.costs = seconds(5.0, 1.5, 0.5);
    let mut world = setting.draw(seed);
    let culprit = world.changes[0].at;
    // The first places a search comes to, then anything.
    let mut innocent = [19, 10, 29]
        .into_iter()
        .chain((0..).map(|i| 1 + (7 * i + 11 * seed as u32) % 38));
    let mut next = || {
        let free = |c: &u32| *c != culprit && c + 1 != culprit && *c != culprit + 1;
        innocent.find(free).expect("there are more")
    };
    let (unbuildable, panics, same) = (next(), next(), next());
    world.fails.insert(unbuildable as usize);
    world.failing.insert(panics, Outcome::BootFailed);
    world.same.insert(same, same - 1);
    (setting, world)
}

#[test]
fn where_instructions_are_counted_few_boots_are_enough() {
    let (mut boots, mut kernels) = (Vec::new(), Vec::new());
    for seed in 0..20 {
        let (setting, mut world) = counting(seed);
        let played = played(&setting, &mut world);
        let answer = Answer::of(played.conclusion.as_ref(), &world.losses(), &[], false);
        assert_eq!(answer, Answer::Right, "seed {seed}: {:?}", played.conclusion);
        assert!(played.kernels <= 11, "seed {seed}: {} kernels", played.kernels);
        boots.push(played.boots() as f64);
        kernels.push(played.kernels as f64);
    }
    assert!(median(&kernels) <= 9.0, "{kernels:?}");
    assert!(median(&boots) <= 2.0 * median(&kernels), "{boots:?}");
}

/// A world like a plain emulator on a busy host: noisy boots, some far off, small losses.
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
        let noise = Noise {
            run: 0.005,
            boot,
            outlier: (outliers, -(1.5f64.ln())),
            ..Noise::default()
        };
        let mut setting = Setting::new(39, noise);
        setting.changes = vec![What::Level(-distance * boot)];
        setting.costs = seconds(5.0, 1.5, 0.5);
        setting.least_pct = 1.0;
        let c = tally(&setting, 70_000..70_000 + trials);
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
