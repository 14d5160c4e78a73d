//! The offline door: malformed lines get their error and the door goes on.

use coordinator::cli::plan::{Door, answer, serve};
use serde_json::{Value, json};

fn line() -> Value {
    json!({
        "history": {"good": "c0", "bad": "c2", "commits": [
            {"id": "c2", "parents": ["c1"]}, {"id": "c0", "parents": []}, {"id": "c1", "parents": ["c0"]}]},
        "policy": {"metric": {"name": "m", "unit": "x", "higher_is_better": true}, "min_effect_pct": 3.0},
        "machines": [{"id": "m1", "busy": false}],
        "observations": [{"kernel": {"commit": "c0"}, "machine": "m1", "replicate": 0, "at_s": 1,
                          "outcome": {"measured": {"values": [1.0]}}}]
    })
}

fn ask(door: &mut Door, line: &str) -> Value {
    serde_json::from_str(&answer(door, line)).expect("the door answers JSON")
}

/// The error of the line with one place changed.
fn error(pointer: &str, value: Value) -> (String, String) {
    let mut line = line();
    match line.pointer_mut(pointer) {
        Some(place) => *place = value,
        None => {
            let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
            line.pointer_mut(parent).expect("a parent")[key] = value;
        }
    }
    let answer = ask(&mut Door::default(), &line.to_string());
    let text = |field: &str| answer["error"][field].as_str().unwrap_or_default().to_owned();
    (text("kind"), text("at"))
}

#[test]
fn each_mistake_has_its_kind_and_place() {
    let cases: Vec<(&str, Value, &str, &str)> = vec![
        (
            "/policy/min_effect_pct",
            json!(-1),
            "invalid_field",
            "policy.min_effect_pct",
        ),
        (
            "/policy/metric/colour",
            json!("red"),
            "invalid_field",
            "policy.metric.colour",
        ),
        ("/nonsense", json!(1), "invalid_field", "nonsense"),
        (
            "/observations/0/outcome/measured/values/0",
            json!(0),
            "invalid_field",
            "observations[0].outcome.measured.values[0]",
        ),
        (
            "/observations/0/kernel/commit",
            json!("c9"),
            "unknown_commit",
            "observations[0].kernel.commit",
        ),
        ("/history/bad", json!("c9"), "unknown_commit", "history.bad"),
        (
            "/history/commits/1/parents",
            json!(["c2"]),
            "cycle",
            "history.commits",
        ),
        ("/history/bad", json!("c0"), "equal_ends", "history"),
        (
            "/history/commits/2/parents",
            json!([]),
            "no_common_ancestor",
            "history",
        ),
        (
            "/machines",
            json!([{"id": "m1"}, {"id": "m1"}]),
            "duplicate",
            "machines[1].id",
        ),
        (
            "/policy/other_metrics",
            json!([{"name": "l", "higher_is_better": false}, {"name": "l", "higher_is_better": true}]),
            "duplicate",
            "policy.other_metrics[1].name",
        ),
        (
            "/policy/metric/may_be_zero",
            json!(true),
            "invalid_field",
            "policy.min_effect_abs",
        ),
        (
            "/pending",
            json!([{"kernel": {"commit": "c0"}, "machine": "m1", "replicate": 0}]),
            "duplicate",
            "pending[0]",
        ),
        (
            "/history/commits/1/parents",
            json!(["c0"]),
            "cycle",
            "history.commits",
        ),
        (
            "/history/weights",
            json!({"c9": 0.5}),
            "unknown_commit",
            "history.weights.c9",
        ),
        (
            "/observations/0/kernel/revert",
            json!(["c9"]),
            "unknown_commit",
            "observations[0].kernel.revert[0]",
        ),
        (
            "/overrides",
            json!([{"commit": "c9", "verdict": "bad"}]),
            "unknown_commit",
            "overrides[0].commit",
        ),
        (
            "/policy/costs",
            json!({"build_s_of": {"c9": 1}}),
            "unknown_commit",
            "policy.costs.build_s_of.c9",
        ),
        (
            "/observations/0/outcome/measured/values",
            json!([]),
            "invalid_field",
            "observations[0].outcome.measured.values",
        ),
    ];
    for (pointer, value, kind, at) in cases {
        assert_eq!(
            error(pointer, value),
            (kind.to_owned(), at.to_owned()),
            "{pointer}"
        );
    }
}

#[test]
fn a_reversed_range_is_named() {
    let mut line = line();
    line["history"]["good"] = json!("c2");
    line["history"]["bad"] = json!("c0");
    assert_eq!(
        ask(&mut Door::default(), &line.to_string())["error"]["kind"],
        "reversed_range"
    );
}

#[test]
fn the_door_goes_on_after_a_bad_line_and_keeps_the_last_history() {
    let mut door = Door::default();
    let mut later = line();
    later.as_object_mut().expect("an object").remove("history");
    assert_eq!(ask(&mut door, &later.to_string())["error"]["at"], "history");
    assert_eq!(ask(&mut door, "{nonsense")["error"]["kind"], "not_json");
    let first = ask(&mut door, &line().to_string());
    assert!(first["step"]["run"].is_array(), "{first}");
    assert_eq!(ask(&mut door, &later.to_string()), first);
}

#[test]
fn a_number_that_is_not_finite_is_shown_its_place() {
    let values = "observations[0].outcome.measured.values[0]";
    let overflow = format!("1{}", "0".repeat(400));
    for number in [
        "NaN",
        "Infinity",
        "-Infinity",
        "1e999",
        "-1E+999",
        overflow.as_str(),
    ] {
        let text = line().to_string().replace("[1.0]", &format!("[{number}]"));
        let error = &ask(&mut Door::default(), &text)["error"];
        assert_eq!(
            (&error["kind"], &error["at"]),
            (&json!("invalid_field"), &json!(values)),
            "{number}"
        );
    }
    // In a string the same letters are letters; and such a number does not make JSON of what else is none.
    let named = line().to_string().replace("\"m1\"", "\"NaN 1e999 \\\" \"");
    assert!(ask(&mut Door::default(), &named)["step"]["run"].is_array());
    let broken = line().to_string().replace("[1.0]", "[NaN, ]");
    assert_eq!(ask(&mut Door::default(), &broken)["error"]["kind"], "not_json");
}

#[test]
fn every_line_has_its_answer_and_the_last_needs_no_newline() {
    let good = line().to_string();
    let mut input = Vec::new();
    for part in [
        good.as_bytes(),
        b"\r\n",
        b"\n",
        b"  \t\n",
        b"[]\n",
        b"\xff{}\n",
        good.as_bytes(),
    ] {
        input.extend_from_slice(part);
    }
    let mut output = Vec::new();
    serve(input.as_slice(), &mut output).expect("written to memory");
    let answers: Vec<Value> = String::from_utf8(output)
        .expect("UTF-8")
        .lines()
        .map(|l| serde_json::from_str(l).expect("JSON"))
        .collect();
    let kinds: Vec<&Value> = answers.iter().map(|a| &a["error"]["kind"]).collect();
    let (plan, not_json) = (&Value::Null, &json!("not_json"));
    assert_eq!(
        kinds,
        [plan, not_json, not_json, &json!("invalid_field"), not_json, plan]
    );
    assert_eq!(answers[0], answers[5]);
}

#[test]
fn a_history_stands_even_where_the_rest_of_its_line_is_refused() {
    let mut door = Door::default();
    ask(&mut door, &line().to_string());
    let mut longer = line();
    longer["history"]["bad"] = json!("c3");
    let commits = longer["history"]["commits"].as_array_mut().expect("commits");
    commits.push(json!({"id": "c3", "parents": ["c2"]}));
    let expected = ask(&mut Door::default(), &longer.to_string());
    longer["policy"]["confidence"] = json!(7);
    assert_eq!(
        ask(&mut door, &longer.to_string())["error"]["at"],
        "policy.confidence"
    );
    // One that can't be read leaves the last one in place.
    let mut cyclic = line();
    cyclic["history"]["commits"][1]["parents"] = json!(["c2"]);
    assert_eq!(ask(&mut door, &cyclic.to_string())["error"]["kind"], "cycle");
    let mut later = line();
    later.as_object_mut().expect("an object").remove("history");
    assert_eq!(ask(&mut door, &later.to_string()), expected);
}

#[test]
fn an_absolute_effect_takes_the_place_of_the_per_cent() {
    let mut line = line();
    line["policy"]["metric"]["may_be_zero"] = json!(true);
    line["policy"]["min_effect_abs"] = json!(0.5);
    line["observations"][0]["outcome"]["measured"]["values"] = json!([0, -1.5]);
    let beside = ask(&mut Door::default(), &line.to_string());
    assert!(beside["step"]["run"].is_array(), "{beside}");
    line["policy"]
        .as_object_mut()
        .expect("an object")
        .remove("min_effect_pct");
    assert_eq!(ask(&mut Door::default(), &line.to_string()), beside);
}
