//! A scenario with its range, its culprits' places and its noise varied; what is to be found out stays the same.
//!
//! Of a linear history commits are added after the first and before the last: everything that stands between keeps
//! its neighbours, so a cluster that can't be built still surrounds its culprit. Noise is scaled by 0.8 to 1.2.

use super::draw::{fold, unif};
use serde_json::{Value, json};

/// Stream of draws beside those of the scenario file.
const VARY: u64 = 7;

/// Repetition 0 is the scenario as it is written.
pub fn varied(scenario: &Value, repetition: u64) -> Value {
    let mut varied = scenario.clone();
    if repetition == 0 {
        return varied;
    }
    let seed = scenario["seed"].as_u64().unwrap_or(0);
    let draw = |what: u64| unif(fold(seed, &[VARY, repetition, what]));
    let cv = &mut varied["measurement"]["base"]["cv_pct"];
    if let Some(pct) = cv.as_f64() {
        *cv = json!(pct * (0.8 + 0.4 * draw(0)));
    }
    let history = &scenario["history"];
    let (Some(n), Some(prefix), Some("linear")) = (
        history["n"].as_u64(),
        history["prefix"].as_str(),
        history["kind"].as_str(),
    ) else {
        return varied;
    };
    let more = |what| (draw(what) * n as f64 * 0.5) as u64;
    let (before, after) = (more(1), more(2));
    rename(&mut varied, &|text| moved(text, prefix, n, before));
    varied["history"] = json!({ "kind": "linear", "n": n + before + after, "prefix": prefix });
    let last = format!("{prefix}{}", n - 1);
    if scenario["range"]["bad"] == json!(last) {
        varied["range"]["bad"] = json!(format!("{prefix}{}", n - 1 + before + after));
    }
    // Twice as many commits take one test more.
    if let Some(most) = scenario["expected"]["max_commits_tested"].as_u64() {
        varied["expected"]["max_commits_tested"] = json!(most + 1);
    }
    varied
}

/// `c5` as the same commit is called after `before` more have been put in behind the first.
fn moved(text: &str, prefix: &str, n: u64, before: u64) -> Option<String> {
    let (head, id) = text
        .split_once(':')
        .map_or(("", text), |(status, id)| (&text[..=status.len()], id));
    let number: u64 = id.strip_prefix(prefix)?.parse().ok()?;
    (1..n)
        .contains(&number)
        .then(|| format!("{head}{prefix}{}", number + before))
}

/// Renames commits wherever they stand, as values and as keys; the scenario's own name and words stay.
fn rename(value: &mut Value, new: &dyn Fn(&str) -> Option<String>) {
    match value {
        Value::String(text) => {
            if let Some(renamed) = new(text) {
                *text = renamed;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|v| rename(v, new)),
        Value::Object(fields) => {
            let old = std::mem::take(fields);
            for (key, mut inner) in old {
                rename(&mut inner, new);
                fields.insert(new(&key).unwrap_or(key), inner);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_move_together_and_the_ends_stay_ends() {
        let scenario = json!({
            "name": "a01", "seed": 5,
            "history": { "kind": "linear", "n": 64, "prefix": "c" },
            "range": { "good": "c0", "bad": "c63" },
            "culprits": ["c37"],
            "measurement": { "base": { "mean": 1.0, "cv_pct": 2.0 }, "raw": { "c36": [1.0] } },
            "expected": { "status": "culprit_found", "first_bad": ["c37"], "accept_status": ["culprit_found:c37"] },
        });
        assert_eq!(varied(&scenario, 0), scenario);
        let mut sizes = std::collections::BTreeSet::new();
        for repetition in 1..20 {
            let new = varied(&scenario, repetition);
            let n = new["history"]["n"].as_u64().unwrap();
            sizes.insert(n);
            assert_eq!(
                new["range"],
                json!({ "good": "c0", "bad": format!("c{}", n - 1) })
            );
            let culprit: u64 = new["culprits"][0].as_str().unwrap()[1..].parse().unwrap();
            assert!((37..n - 1).contains(&culprit));
            assert_eq!(new["expected"]["first_bad"], new["culprits"]);
            assert_eq!(
                new["expected"]["accept_status"][0],
                json!(format!("culprit_found:c{culprit}"))
            );
            assert!(new["measurement"]["raw"][format!("c{}", culprit - 1)].is_array());
        }
        assert!(sizes.len() > 10);
    }
}
