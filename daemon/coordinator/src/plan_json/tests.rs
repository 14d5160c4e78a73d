use super::*;
use bisect::{Outcome, Policy, Value as Run};

const POLICY: &str = r#"{"metric": {"name": "tiobench.seq_write", "unit": "MB/s", "higher_is_better": true},
  "min_effect_pct": 3.0, "confidence": 0.99, "seed": 7, "look_for": "all",
  "costs": {"build_s": 600, "boot_s": 120, "run_s": 120, "build_s_of": {"c31": 900}},
  "limits": {"boots": 500, "time_s": 200000, "ends_time_s": 21600},
  "confirm": {"revert": false, "layout": true},
  "other_metrics": [{"name": "lat_ms", "unit": "ms", "higher_is_better": false}]}"#;

fn policy(text: &str) -> Result<Policy, Malformed> {
    policy_from_json(&serde_json::from_str(text).expect("a test's own JSON"), "policy")
}

#[test]
fn a_policy_survives_the_round_trip() {
    let read = policy(POLICY).expect("valid");
    assert_eq!(policy_from_json(&policy_to_json(&read), "policy"), Ok(read));
}

#[test]
fn every_outcome_survives_the_round_trip() {
    let others = [("lat_ms".to_owned(), vec![Run::AtMost(2.0)])].into();
    let values = vec![Run::Exact(1.5), Run::AtLeast(300.0)];
    let all = [
        Outcome::Measured { values, others },
        Outcome::BuildFailed,
        Outcome::BootFailed,
        Outcome::BenchmarkFailed,
        Outcome::Lost,
    ];
    for outcome in all {
        assert_eq!(
            outcome_from_json(&outcome_to_json(&outcome), "outcome"),
            Ok(outcome)
        );
    }
}

#[test]
fn a_kernel_is_written_in_one_way_only() {
    let kernel = Kernel::plain("c1".into());
    assert_eq!(kernel_to_json(&kernel).to_string(), r#"{"commit":"c1"}"#);
    let kernel = Kernel {
        revert: vec!["c2".into()],
        patches: vec!["p".into()],
        layout: 1,
        ..kernel
    };
    assert_eq!(kernel_from_json(&kernel_to_json(&kernel), "kernel"), Ok(kernel));
}

#[test]
fn what_is_not_known_is_refused_with_its_place() {
    let at = |from: &str, to: &str| policy(&POLICY.replace(from, to)).expect_err("must be refused").at;
    assert_eq!(at("\"boots\"", "\"boot\""), "policy.limits.boot");
    assert_eq!(
        at("\"min_effect_pct\": 3.0", "\"min_effect_pct\": -3.0"),
        "policy.min_effect_pct"
    );
    assert_eq!(at("\"min_effect_pct\": 3.0,", ""), "policy.min_effect_pct");
    assert_eq!(
        at("\"confidence\": 0.99", "\"confidence\": 1"),
        "policy.confidence"
    );
    assert_eq!(at("\"lat_ms\"", "7"), "policy.other_metrics[0].name");
    assert_eq!(at("\"c31\": 900", "\"c31\": -1"), "policy.costs.build_s_of.c31");
}
