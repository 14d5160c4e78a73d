//! The offline door: malformed lines get their error and the door goes on.

use coordinator::cli::plan::{Door, answer};
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
