//! The scenarios of what a lab does to a bisection, played against the offline door over several seeds.

use coordinator::cli::simulate::draw::{fold, normal, sm};
use coordinator::cli::simulate::judge::{blames_wrongly, verdict};
use coordinator::cli::simulate::scenario::Scenario;
use coordinator::cli::simulate::truth::Truth;
use lab::simlab::{play, scenarios};

/// Scenarios about judgement and history; faults of the infrastructure are the daemon's (e*).
const JUDGEMENT: &[&str] = &["a", "b", "c", "d", "f"];

fn seeds() -> u64 {
    std::env::var("SCENARIO_SEEDS")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(3)
}

fn named(prefix: &str) -> Vec<Scenario> {
    scenarios()
        .scenarios
        .into_iter()
        .filter(|s| s.name.starts_with(prefix))
        .collect()
}

#[test]
fn the_generator_agrees_with_the_test_vectors() {
    let file = scenarios();
    let value = |name: &str, seed: u64, commit: &str, boot: u64, run: u64| {
        let scenario = file
            .scenarios
            .iter()
            .find(|s| s.name.starts_with(name))
            .expect("a scenario of that name");
        let mut world = Truth::new(scenario, 0);
        world.seed = seed;
        world.value(world.index[commit], "m1", boot, run, 0.0, 0)
    };
    for vector in &file.test_vectors {
        let numbers: Vec<u64> = vector
            .expr
            .split(|c: char| !c.is_ascii_digit())
            .filter(|s| !s.is_empty())
            .filter_map(|s| s.parse().ok())
            .collect();
        if let Some(hex) = &vector.hex {
            let got = if vector.expr.starts_with("sm") {
                sm(numbers[0])
            } else {
                fold(numbers[0], &numbers[1..])
            };
            assert_eq!(format!("{got:#x}"), *hex, "{}", vector.expr);
            continue;
        }
        let wanted: f64 = vector
            .value
            .as_deref()
            .and_then(|v| v.parse().ok())
            .expect("a value");
        let got = if vector.expr.starts_with("normal") {
            normal(fold(numbers[0], &numbers[1..]))
        } else {
            let words: Vec<&str> = vector
                .expr
                .split([' ', ',', '(', ')'])
                .filter(|w| !w.is_empty())
                .collect();
            let at = |name: &str| words.iter().position(|w| *w == name).map(|i| words[i + 1]);
            let scenario = at("scenario").unwrap_or(words[1]);
            let number = |name: &str| at(name).and_then(|w| w.parse().ok()).expect("a number");
            let commit = words[words.iter().position(|w| *w == "m1").expect("a machine") - 1];
            value(scenario, number("seed"), commit, number("boot"), number("run"))
        };
        assert!(
            (got / wanted - 1.0).abs() < 1e-12,
            "{}: {got} instead of {wanted}",
            vector.expr
        );
    }
}

fn run(prefix: &str) -> Vec<String> {
    let mut failures = Vec::new();
    let all = named(prefix);
    assert!(!all.is_empty(), "no scenario is called {prefix}");
    for scenario in all {
        for repetition in 0..seeds() {
            let ending = play(&scenario, repetition);
            let outcome = verdict(&scenario, &ending.judged());
            println!(
                "{} seed {repetition}: {} boots, {} commits, {:.0} min, {}",
                scenario.name,
                ending.boots,
                ending.commits_tested,
                ending.minutes,
                outcome.as_ref().err().map_or("right", String::as_str)
            );
            if let Err(why) = outcome {
                if std::env::var_os("SCENARIO_LOG").is_some() {
                    ending.log.iter().for_each(|l| println!("    {l}"));
                }
                failures.push(format!("{} seed {repetition}: {why}", scenario.name));
            }
        }
    }
    failures
}

#[track_caller]
fn all_right(prefixes: &[&str]) {
    let failures: Vec<String> = prefixes.iter().flat_map(|p| run(p)).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn steps_thresholds_and_directions_are_judged_right() {
    all_right(&["a01", "a02", "a09", "a11", "a12", "a17"]);
}

#[test]
fn histories_are_understood() {
    all_right(&["c"]);
}

#[test]
fn what_cannot_be_tested_is_no_verdict() {
    all_right(&["d"]);
}

/// One scenario by name, with every step printed.
#[test]
#[ignore = "for looking: SCENARIO=a09 SCENARIO_LOG=1, --ignored --nocapture"]
fn one() {
    let name = std::env::var("SCENARIO").unwrap_or_else(|_| "a01".into());
    all_right(&[&name]);
}

/// The whole of what is about judgement, counted: a wrong commit in at most 1 % of all plays.
#[test]
#[ignore = "minutes; run with --ignored, SCENARIO_SEEDS=20 for the full table"]
fn the_whole_table() {
    let mut wrong = 0;
    let mut plays = 0;
    for prefix in JUDGEMENT {
        for scenario in named(prefix) {
            let mut right = 0;
            let mut why = String::new();
            for repetition in 0..seeds() {
                let ending = play(&scenario, repetition);
                plays += 1;
                wrong += usize::from(blames_wrongly(&scenario, &ending.judged()));
                match verdict(&scenario, &ending.judged()) {
                    Ok(()) => right += 1,
                    Err(e) => why = e,
                }
            }
            println!(
                "{:40} {right:3} of {} {}",
                scenario.name,
                seeds(),
                why.get(..200.min(why.len())).unwrap_or(&why)
            );
        }
    }
    println!("{wrong} of {plays} plays name a wrong commit");
    assert!(
        wrong * 100 <= plays,
        "{wrong} of {plays} plays name a wrong commit"
    );
}

/// Two machines, each with a culprit of its own: neither may be named for both.
#[test]
fn machines_with_a_culprit_each_are_told_apart() {
    let mut scenario = named("b09").remove(0);
    let effect = |from: &str, machine: &str| serde_json::json!({ "from": from, "factor": 0.93, "machines": [machine] });
    scenario.machines.truncate(2);
    let ids: Vec<String> = scenario.machines.iter().map(|m| m.id.clone()).collect();
    scenario.measurement.effects = [effect("c20", &ids[0]), effect("c44", &ids[1])]
        .into_iter()
        .map(|e| serde_json::from_value(e).expect("an effect"))
        .collect();
    for repetition in 0..seeds() {
        let ending = play(&scenario, repetition);
        assert_eq!(ending.status(), "machine_dependent", "{}", ending.answer);
        let mut culprits = ending.list("first_bad");
        culprits.sort();
        assert_eq!(culprits, ["c20", "c44"], "{}", ending.answer);
    }
}
