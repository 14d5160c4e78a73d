//! The offline door with a lab behind it: what every answer must hold while a bisection is played to its end.

use coordinator::cli::plan::{Door, answer};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// A number in [-1, 1) that depends on nothing but its place in the sequence.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

fn linear(n: usize) -> Value {
    let commits: Vec<Value> = (0..n)
        .map(|i| match i {
            0 => json!({"id": "c0", "parents": []}),
            _ => json!({"id": format!("c{i}"), "parents": [format!("c{}", i - 1)]}),
        })
        .collect();
    json!({"good": "c0", "bad": format!("c{}", n - 1), "commits": commits})
}

fn start(n: usize, machines: &[&str]) -> Value {
    let machines: Vec<Value> = machines.iter().map(|m| json!({"id": m, "busy": false})).collect();
    json!({
        "history": linear(n),
        "policy": {"metric": {"name": "m", "unit": "x", "higher_is_better": true}, "min_effect_pct": 3.0},
        "machines": machines, "builders": 3, "now_s": 0,
        "images": [], "observations": [], "pending": []
    })
}

fn ask(line: &Value) -> Value {
    serde_json::from_str(&answer(&mut Door::default(), &line.to_string())).expect("the door answers JSON")
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().map_or(&[], Vec::as_slice)
}

fn identity(job: &Value) -> String {
    format!("{} {} {}", job["kernel"], job["machine"], job["replicate"])
}

/// What the contract says of any answer to any record.
fn hold(line: &Value, answer: &Value) {
    let (observed, pending) = (list(line, "observations"), list(line, "pending"));
    let jobs = list(&answer["step"], "run");
    let mut taken: BTreeSet<String> = observed.iter().chain(pending).map(identity).collect();
    for job in jobs {
        let machine = list(line, "machines").iter().find(|m| m["id"] == job["machine"]);
        assert_eq!(machine.map(|m| &m["busy"]), Some(&json!(false)), "{job}");
        assert!(taken.insert(identity(job)), "asked for twice: {job}");
    }
    if answer["step"].get("wait").is_some() {
        let busy = list(line, "machines").iter().any(|m| m["busy"] == true);
        assert!(busy || !pending.is_empty(), "waits for nothing: {answer}");
    }
    let ahead = list(answer, "build_ahead");
    assert!(ahead.len() as u64 <= line["builders"].as_u64().unwrap_or(0));
    for kernel in ahead {
        let known = observed.iter().filter(|o| o["outcome"] != "lost");
        let mut coming = known.chain(pending).chain(jobs);
        assert!(
            coming.all(|j| j["kernel"] != *kernel),
            "built ahead for nothing: {kernel}"
        );
    }
    let suspects = list(answer, "suspects");
    let shown: f64 = suspects.iter().filter_map(|s| s["probability"].as_f64()).sum();
    let all = shown + answer["p_no_change"].as_f64().expect("a probability");
    assert!(suspects.len() <= 20 && all < 1.0 + 1e-6, "{all}");
    assert!(suspects.len() == 20 || all > 1.0 - 1e-6, "{all}: {answer}");
    assert!(answer["remaining"]["time_s"].is_number(), "{answer}");
    let spent = observed.iter().filter(|o| o["outcome"] != "build_failed").count();
    if let Some(limit) = line["policy"]["limits"]["boots"].as_u64() {
        assert!((spent + pending.len() + jobs.len()) as u64 <= limit || jobs.is_empty());
    }
    let end = &answer["step"]["conclude"];
    if end["status"] == "inconclusive" {
        let told = |n: &Value| n.as_str().is_some_and(|n| n.contains("more boots"));
        assert!(list(end, "notes").iter().any(told), "{end}");
    }
}

/// Plays `line` to its end: each boot of `commit` on `machine` has the level that `level` says.
fn play(mut line: Value, level: impl Fn(usize, &str) -> f64, noise_pct: f64) -> (Value, Value) {
    let mut noise = Noise(7);
    for step in 0..300 {
        for i in 0..list(&line, "machines").len() {
            let id = line["machines"][i]["id"].clone();
            let busy = list(&line, "pending").iter().any(|p| p["machine"] == id);
            line["machines"][i]["busy"] = json!(busy);
        }
        let answer = ask(&line);
        hold(&line, &answer);
        if answer["step"].get("conclude").is_some() {
            return (answer["step"]["conclude"].clone(), line);
        }
        let mut pending = list(&line, "pending").to_vec();
        pending.extend_from_slice(list(&answer["step"], "run"));
        // One job ends at a time, so that machines are seldom all free at once.
        let job = pending.remove(0);
        let commit = job["kernel"]["commit"]
            .as_str()
            .expect("a commit")
            .trim_start_matches('c');
        let commit: usize = commit.parse().expect("a number");
        let machine = job["machine"].as_str().expect("a machine");
        let boot = level(commit, machine) * (1.0 + noise_pct / 100.0 * noise.next());
        let runs = job["runs"].as_u64().expect("a number of runs");
        let values: Vec<f64> = (0..runs).map(|_| boot * (1.0 + 0.002 * noise.next())).collect();
        let mut observation = job.clone();
        observation.as_object_mut().expect("an object").remove("runs");
        observation["at_s"] = json!(600 * step);
        observation["outcome"] = json!({"measured": {"values": values}});
        line["now_s"] = json!(600 * (step + 1));
        line["observations"]
            .as_array_mut()
            .expect("a list")
            .push(observation);
        line["pending"] = json!(pending);
    }
    panic!("no end after 300 steps");
}

fn drop_at(culprit: usize) -> impl Fn(usize, &str) -> f64 {
    move |commit, machine| {
        let speed = if machine == "m1" { 100.0 } else { 40.0 };
        speed * if commit >= culprit { 0.92 } else { 1.0 }
    }
}

#[test]
fn one_machine_finds_the_commit() {
    let (end, _) = play(start(64, &["m1"]), drop_at(23), 2.0);
    assert_eq!(end["status"], "culprit_found", "{end}");
    assert_eq!(end["first_bad"], json!(["c23"]));
    assert!(end["effect_pct"].as_f64().is_some_and(|e| e < 0.0));
}

/// Nothing lies between the ends to be measured: only the ends themselves can settle whether there is a loss.
#[test]
fn the_only_suspect_is_settled_by_boots_of_the_ends() {
    for seed in 0..8 {
        let mut line = start(2, &["m1"]);
        line["policy"]["seed"] = json!(seed);
        let (end, line) = play(
            line,
            |commit, _| if commit == 1 { 95.5 } else { 100.0 },
            1.0 + 0.4 * seed as f64,
        );
        assert_eq!(end["first_bad"], json!(["c1"]), "{end}");
        assert!(list(&line, "observations").len() < 60);
    }
}

#[test]
fn a_merge_with_a_parent_outside_is_not_said_to_have_good_parents() {
    let mut line = start(4, &["m1"]);
    line["history"]["commits"][3]["parents"] = json!(["c2", "outside"]);
    let (end, _) = play(line, drop_at(3), 1.0);
    assert_eq!(end["first_bad"], json!(["c3"]), "{end}");
    let notes = end["notes"].to_string();
    assert!(
        notes.contains("parent outside could not be measured") && !notes.contains("every parent is good")
    );
}

#[test]
fn several_machines_in_parallel_find_the_commit() {
    let (end, _) = play(start(32, &["m1", "m1#2", "m3"]), drop_at(9), 2.0);
    assert_eq!(end["first_bad"], json!(["c9"]), "{end}");
}

#[test]
fn boots_under_way_count_against_the_limit() {
    for limit in [0, 1, 2, 5, 9] {
        let mut line = start(64, &["m1", "m2", "m3"]);
        line["policy"]["limits"] = json!({"boots": limit});
        let (end, line) = play(line, drop_at(30), 2.0);
        assert_eq!(end["status"], "inconclusive", "{end}");
        assert_eq!(list(&line, "observations").len(), limit);
    }
}

#[test]
fn time_for_the_ends_is_a_limit_from_the_first_boot_on() {
    let mut line = start(64, &["m1"]);
    line["policy"]["limits"] = json!({"ends_time_s": 0});
    let (end, line) = play(line, drop_at(30), 2.0);
    assert_eq!(
        (&end["status"], list(&line, "observations").len()),
        (&json!("inconclusive"), 0)
    );
}

#[test]
fn boots_of_before_are_reused_not_spent() {
    let mut line = start(16, &["m1"]);
    line["policy"]["limits"] = json!({"boots": 1});
    line["observations"] = json!([
        {"kernel": {"commit": "c0"}, "machine": "m1", "replicate": 0, "at_s": -600,
         "outcome": {"measured": {"values": [100.0, 101.0]}}}]);
    assert_eq!(list(&ask(&line)["step"], "run").len(), 1);
    line["observations"][0]["at_s"] = json!(600);
    assert_eq!(ask(&line)["step"]["conclude"]["status"], "inconclusive");
}

/// A lab may number its boots as it likes: high numbers are no promise of thousands of confirmations.
#[test]
fn replicate_numbers_of_the_labs_own_do_no_harm() {
    let mut line = start(4, &["m1"]);
    let boots = (0..40u32).map(|i| {
        let commit = i % 4;
        let level = if commit >= 2 { 92.0 } else { 100.0 } + f64::from(i % 5) * 0.1;
        json!({"kernel": {"commit": format!("c{commit}")}, "machine": "m1", "replicate": 4_294_967_295 - i,
               "at_s": 600 * i, "outcome": {"measured": {"values": [level, level + 0.1, level - 0.1]}}})
    });
    line["observations"] = boots.collect();
    line["now_s"] = json!(600 * 40);
    let (end, line) = play(line, drop_at(2), 0.2);
    assert_eq!(end["first_bad"], json!(["c2"]), "{end}");
    assert!(list(&line, "observations").len() < 60);
}

#[test]
fn what_was_booted_or_is_coming_is_not_built_ahead() {
    let mut line = start(16, &["m1", "m2"]);
    line["builders"] = json!(20);
    line["observations"] = json!([
        {"kernel": {"commit": "c7"}, "machine": "m1", "outcome": "boot_failed"},
        {"kernel": {"commit": "c11"}, "machine": "m1", "at_s": 5, "outcome": "benchmark_failed"}]);
    line["pending"] = json!([{"kernel": {"commit": "c3"}, "machine": "m2"}]);
    line["machines"][1]["busy"] = json!(true);
    let answer = ask(&line);
    hold(&line, &answer);
    assert!(!list(&answer, "build_ahead").is_empty(), "{answer}");
}

#[test]
fn a_word_against_an_end_costs_no_boot() {
    for (commit, verdict) in [("c0", "bad"), ("c15", "good")] {
        let mut line = start(16, &["m1"]);
        line["overrides"] = json!([{"commit": commit, "verdict": verdict}]);
        assert_eq!(ask(&line)["step"]["conclude"]["status"], "inconclusive");
    }
}

#[test]
fn an_override_is_gone_with_its_line() {
    let mut line = start(16, &["m1"]);
    let plain = ask(&line);
    line["overrides"] = json!([{"commit": "c8", "verdict": "bad"}]);
    let told = ask(&line);
    let names: Vec<&str> = list(&told, "suspects")
        .iter()
        .filter_map(|s| s["commit"].as_str())
        .collect();
    assert!(
        names.iter().all(|n| n[1..].parse::<u32>().is_ok_and(|n| n <= 8)),
        "{names:?}"
    );
    line["overrides"] = json!([]);
    assert_eq!(ask(&line), plain);
}

/// Two machines, one of which says little: all noise hypotheses of 'no change' once fell by the way, and every
/// probability became no number.
#[test]
fn no_change_keeps_a_probability() {
    let mut line = start(16, &["m1", "m2"]);
    line["policy"]["metric"]["higher_is_better"] = json!(false);
    line["policy"]["seed"] = json!(7);
    let observation = |(i, (kernel, machine, at_s, values)): (usize, &(&str, &str, f64, &[f64]))| {
        let kernel: Value = serde_json::from_str(kernel).expect("a kernel");
        json!({"kernel": kernel, "machine": machine, "replicate": 10 + i, "at_s": at_s,
               "outcome": {"measured": {"values": values}}})
    };
    line["observations"] = BOOTS.iter().enumerate().map(observation).collect();
    hold(&line, &ask(&line));
}

#[rustfmt::skip]
const BOOTS: &[(&str, &str, f64, &[f64])] = &[
    (r#"{"commit": "c15"}"#, "m2", 17316.273684430576, &[90.51838354104876, 90.76015009443772, 90.0, 89.21604067594399]),
    (r#"{"commit": "c8"}"#, "m2", -88690.92192464258, &[100.80058159896052]),
    (r#"{"commit": "c14"}"#, "m2", -89018.70693795361, &[90.0, 89.754033204473, 90.0]),
    (r#"{"commit": "c15"}"#, "m2", 5227.645196597194, &[90.0]),
    (r#"{"commit": "c0", "revert": ["c2"]}"#, "m2", -56.58817139173334, &[99.15508072184956]),
    (r#"{"commit": "c12", "layout": 1}"#, "m2", 51541.88489740185, &[89.9336931720034]),
    (r#"{"commit": "c0"}"#, "m2", 15441.431105997312, &[101.51426764785934, 101.19026760263768, 99.23724971682006]),
    (r#"{"commit": "c5"}"#, "m2", 63530.080405888206, &[99.10723626928785, 99.23028553161683, 100.0]),
    (r#"{"commit": "c15"}"#, "m2", -79221.69832788508, &[90.39954259459803, 92.67824232499547, 90.13173915328628, 90.26926422839428]),
    (r#"{"commit": "c5"}"#, "m2", -78126.01364561511, &[100.0, 101.18991663119768, 99.95056227840952, 99.90184456376522]),
    (r#"{"commit": "c1"}"#, "m2", -17345.376885642865, &[99.76782131333873]),
    (r#"{"commit": "c1", "layout": 1}"#, "m2", 2920.84200782876, &[102.5901641912831, 101.86120049765364]),
    (r#"{"commit": "c10", "revert": ["c9"]}"#, "m2", -92494.37397746851, &[91.17476337349063]),
    (r#"{"commit": "c2"}"#, "m2", 46276.09009921309, &[100.29364102750327, 100.0]),
    (r#"{"commit": "c15"}"#, "m2", 26646.59466884978, &[90.65738674785737, 90.0, 90.0, 90.0]),
    (r#"{"commit": "c15"}"#, "m2", -8531.272744597722, &[90.0, 88.87805585447052, 90.0, 90.0]),
    (r#"{"commit": "c13"}"#, "m1", -79957.65971064997, &[92.99013441272005, 92.91377544370029]),
];
