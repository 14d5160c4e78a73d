//! `perfbisect simulate`: described ranges and scenario files, many seeds, text and JSON.

use lab::binaries;
use serde_json::Value;
use std::process::{Command, Output};

fn simulate(args: &[&str]) -> Output {
    let mut command = Command::new(binaries::daemon());
    command
        .arg("simulate")
        .args(args)
        .output()
        .expect("the program starts")
}

fn answered(args: &[&str]) -> Value {
    let output = simulate(args);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

const SCENARIOS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/scenarios.json");

#[test]
fn a_described_range_is_played_and_the_same_seeds_give_the_same_answer() {
    let range = [
        "--commits",
        "200",
        "--effect-pct",
        "10",
        "--seeds",
        "20",
        "--seed",
        "7",
        "--json",
    ];
    let one = answered(&[&range[..], &["--threads", "1"]].concat());
    assert_eq!(one["trials"], 20);
    assert_eq!(one["wrong"]["count"], 0, "{one}");
    assert!(one["right"]["count"].as_u64() >= Some(19), "{one}");
    // ceil(log2 200) kernels and the two ends' worth; never under the bound.
    assert!(one["kernels"]["p50"].as_f64() <= Some(10.0), "{one}");
    assert!(one["time_s"]["p10"].as_f64() >= one["bound_s"].as_f64(), "{one}");
    let interval = &one["right"]["ci95"];
    assert!(
        interval[0].as_f64() > Some(0.7) && interval[1].as_f64() <= Some(1.0),
        "{one}"
    );
    let two = answered(&[&range[..], &["--threads", "2"]].concat());
    assert_eq!(one, two, "threads change nothing");
}

#[test]
fn where_nothing_changed_no_commit_is_named() {
    let none = answered(&["--commits", "64", "--effect-pct", "0", "--seeds", "20", "--json"]);
    assert_eq!(none["wrong"]["count"], 0, "{none}");
    assert!(none["endings"]["culprit_found"].is_null(), "{none}");
}

#[test]
fn several_machines_take_less_time() {
    let range = [
        "--commits",
        "500",
        "--seeds",
        "10",
        "--boot-pct",
        "2",
        "--json",
        "--machines",
    ];
    let hours = |machines: &str| answered(&[&range[..], &[machines]].concat())["time_s"]["p50"].as_f64();
    let (one, three) = (hours("1").expect("a number"), hours("3").expect("a number"));
    assert!(three < 0.8 * one, "{three} s on three machines, {one} s on one");
}

#[test]
fn the_text_says_what_it_will_take() {
    let output = simulate(&["--commits", "100", "--effect-pct", "8", "--seeds", "5"]);
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    for word in [
        "about ",
        " kernels, ",
        " boots, ",
        "likely to end with one commit",
        "information bound",
    ] {
        assert!(text.contains(word), "{word:?} is not in\n{text}");
    }
}

#[test]
fn a_file_of_scenarios_is_judged_by_what_each_expects() {
    let played = answered(&[SCENARIOS, "--name", "a01,d07,c11", "--seeds", "3", "--json"]);
    let scenarios = played["scenarios"].as_array().expect("a list");
    assert_eq!(scenarios.len(), 3);
    for scenario in scenarios {
        assert_eq!(scenario["right"]["count"], 3, "{scenario}");
    }
    let varied = answered(&[SCENARIOS, "--name", "a11", "--seeds", "3", "--vary", "--json"]);
    assert_ne!(
        varied,
        answered(&[SCENARIOS, "--name", "a11", "--seeds", "3", "--json"])
    );
    assert_eq!(varied["scenarios"][0]["wrong"]["count"], 0, "{varied}");
}

#[test]
fn what_cannot_be_played_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = std::fs::read_to_string(SCENARIOS).expect("the scenarios");
    let all: Value = serde_json::from_str(&text).expect("JSON");
    let mut scenario = all["scenarios"][0].clone();
    scenario["metric"]["min_effect_pct"] = 0.into();
    let file = folder.path().join("one.json");
    std::fs::write(&file, scenario.to_string()).expect("written");
    let file = file.to_str().expect("UTF-8");
    for (args, word) in [
        (&[file] as &[&str], "min_effect_pct"),
        (&["/no/such/file"], "/no/such/file"),
        (&[SCENARIOS, "--name", "z99"], "no scenario"),
        (&["--commits", "10", "--boot-pct=-4"], "--boot-pct"),
        (&[], "--commits"),
    ] {
        let output = simulate(args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
        assert!(said.contains(word), "{args:?}: {said}");
    }
}
