//! Tables from real kernel mails: the textbook's figures as the product prints them against oracle values, and its
//! judgement beside the one that people made.

use bisect::Value;
use bisect::compare::{self, Summary};
use coordinator::cli::compare::{by_summary, figures};
use lab::binaries;
use serde_json::Value as Json;
use std::process::Command;

fn tables() -> Vec<Json> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/data/seed-numbers/seed-numbers.json");
    let text = std::fs::read_to_string(path).expect("the tables");
    let file: Json = serde_json::from_str(&text).expect("JSON");
    file["tables"].as_array().expect("a list").clone()
}

fn table(id: &str) -> Json {
    tables()
        .into_iter()
        .find(|t| t["id"] == id)
        .expect("a table of that name")
}

/// Comparisons of rows whose single values were printed: table, comparison, both sides.
fn raw_comparisons() -> Vec<(String, Json, Vec<f64>, Vec<f64>)> {
    let mut found = Vec::new();
    for table in tables() {
        for comparison in table["comparisons"].as_array().into_iter().flatten() {
            let side = |name: &str| -> Option<Vec<f64>> {
                let row = &table["rows"][comparison[name].as_u64()? as usize];
                row["raw"].as_array()?.iter().map(Json::as_f64).collect()
            };
            if let (Some(a), Some(b)) = (side("a_row"), side("b_row")) {
                let id = comparison["id"].as_str().expect("a name").to_owned();
                found.push((id, comparison.clone(), a, b));
            }
        }
    }
    assert!(
        found.len() >= 8,
        "only {} comparisons have single values",
        found.len()
    );
    found
}

/// The file rounds to eight digits; five must agree.
#[track_caller]
fn close(what: &str, got: &Json, wanted: &Json) {
    close_within(1e-5, what, got, wanted);
}

#[track_caller]
fn close_within(share: f64, what: &str, got: &Json, wanted: &Json) {
    let (got, wanted) = (got.as_f64(), wanted.as_f64());
    let (Some(g), Some(w)) = (got, wanted) else {
        panic!("{what}: {got:?} for {wanted:?}");
    };
    assert!((g - w).abs() <= share * w.abs().max(1e-9), "{what}: {g} for {w}");
}

#[test]
fn the_command_prints_the_oracle_values() {
    for (id, oracle, a, b) in raw_comparisons() {
        let list = |v: &[f64]| v.iter().map(f64::to_string).collect::<Vec<_>>().join(",");
        let mut command = Command::new(binaries::daemon());
        command.args(["compare", "--json", "--old", &list(&a), "--new", &list(&b)]);
        let output = command.output().expect("the program starts");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let ours: Json = serde_json::from_slice(&output.stdout).expect("JSON");
        for (at, theirs) in [
            ("/diff", "/diff"),
            ("/diff_pct", "/diff_pct"),
            ("/welch/t", "/welch/t"),
            ("/welch/df", "/welch/df"),
            ("/welch/p_two_sided", "/welch/p_two_sided"),
            ("/welch/ci95_diff/0", "/welch/ci95_diff/0"),
            ("/welch/ci95_diff/1", "/welch/ci95_diff/1"),
            ("/welch_log/t", "/welch_log/t"),
            ("/welch_log/df", "/welch_log/df"),
            ("/welch_log/p_two_sided", "/welch_log/p_two_sided"),
            ("/welch_log/ci95_ratio_pct/0", "/welch_log/ci95_ratio_pct/0"),
            ("/welch_log/ci95_ratio_pct/1", "/welch_log/ci95_ratio_pct/1"),
            ("/student/t", "/student_pooled/t"),
            ("/student/p_two_sided", "/student_pooled/p_two_sided"),
            ("/mann_whitney/U_b", "/mann_whitney/U_b"),
            (
                "/mann_whitney/p_two_sided_exact",
                "/mann_whitney/p_two_sided_exact",
            ),
            (
                "/mann_whitney/min_possible_p_two_sided",
                "/mann_whitney/min_possible_p_two_sided",
            ),
            (
                "/permutation_p_two_sided",
                "/permutation_mean_diff/p_two_sided_exact",
            ),
            ("/cohens_d", "/cohens_d"),
            ("/hedges_g", "/hedges_g"),
            ("/hodges_lehmann_shift", "/hodges_lehmann_shift"),
            ("/cliffs_delta", "/cliffs_delta"),
        ] {
            let (got, wanted) = (ours.pointer(at), oracle.pointer(theirs));
            close(
                &format!("{id} {at}"),
                got.unwrap_or(&Json::Null),
                wanted.unwrap_or(&Json::Null),
            );
        }
    }
}

#[test]
fn summaries_alone_give_the_oracle_values_too() {
    let table = table("s2.tiobench10");
    let side = |row: usize| Summary {
        n: table["rows"][row]["n"].as_u64().expect("a count") as usize,
        mean: table["rows"][row]["stated"]["mean"].as_f64().expect("a mean"),
        sd: table["rows"][row]["stated"]["sd"].as_f64().expect("a deviation"),
    };
    let ours = by_summary(side(0), side(1));
    let oracle = &table["comparisons"][0];
    for at in [
        "/welch/t",
        "/welch/df",
        "/welch/p_two_sided",
        "/welch/ci95_diff/0",
        "/welch/ci95_diff/1",
    ] {
        close(
            at,
            &ours.pointer(at).cloned().unwrap_or_default(),
            oracle.pointer(at).expect("an oracle"),
        );
    }
    close(
        "F",
        &ours["variance_ratio"]["F"],
        &oracle["variance_ratio"]["F_sda2_over_sdb2"],
    );
    close(
        "p of F",
        &ours["variance_ratio"]["p_two_sided"],
        &oracle["variance_ratio"]["p_two_sided"],
    );
}

#[test]
fn pairs_give_the_oracle_values() {
    let paired = &table("s0.c")["paired"];
    let p = compare::sign_test(6, 6);
    close("sign test", &p.into(), &paired["sign_test_p_two_sided"]);
    let wilcoxon = compare::wilcoxon(&[-3.0, -1.0, -2.0, -4.0, -6.0, -5.0]);
    close(
        "signed ranks",
        &wilcoxon.into(),
        &paired["wilcoxon_p_two_sided_exact"],
    );
    // Seventeen cases of one table, each on two kernels.
    let table = table("s2.compare");
    let rows = table["rows"].as_array().expect("rows");
    let number = |row: &Json, side: &str| row[side].as_f64();
    let differences: Vec<f64> = rows
        .iter()
        .filter(|row| row["label"].as_str().is_some_and(|l| l.contains('=')))
        .filter_map(|row| Some(number(row, "patched")? - number(row, "base")?))
        .collect();
    let all = &table["totals"]["all"];
    assert_eq!(differences.len() as u64, all["n"].as_u64().expect("a count"));
    let lower = differences.iter().filter(|d| **d < 0.0).count();
    assert_eq!(lower as u64, all["lower"].as_u64().expect("a count"));
    // The table was printed with five digits.
    close_within(
        5e-5,
        "sign test of the table",
        &compare::sign_test(lower, differences.len()).into(),
        &all["sign_p"],
    );
    close_within(
        5e-5,
        "signed ranks of the table",
        &compare::wilcoxon(&differences).into(),
        &all["wilcoxon_p"],
    );
}

/// Our judgement beside the one that people made. Where they differ it is always this way round: three runs that
/// people called a regression are not enough for us yet; we never contradict.
#[test]
fn people_are_not_contradicted() {
    let mut differ = Vec::new();
    println!(
        "{:34} {:>8} {:>11} {:28} people",
        "comparison", "diff %", "P(none)", "the mind"
    );
    for (id, oracle, a, b) in raw_comparisons() {
        let exact = |v: &[f64]| v.iter().map(|x| Value::Exact(*x)).collect::<Vec<_>>();
        let ours = figures(&exact(&a), &exact(&b), oracle["higher_is_better"] == true, 3.0);
        let judgement = &ours["judgement"];
        let word = judgement["word"].as_str().expect("a word");
        let people = oracle["human_judgement"].as_str().expect("a judgement");
        println!(
            "{id:34} {:8.2} {:11.4} {word:28} {people}",
            ours["diff_pct"].as_f64().unwrap_or(f64::NAN),
            judgement["p_no_change"].as_f64().unwrap_or(f64::NAN),
        );
        let says_loss = people.starts_with("regression");
        match word {
            "loss" => assert!(says_loss || people == "not_judged", "{id}: {judgement}"),
            "gain" => assert!(
                people == "not_judged" || people.starts_with("improvement"),
                "{id}: {judgement}"
            ),
            _ if says_loss => differ.push(id),
            _ => {}
        }
    }
    assert!(differ.len() < 5, "undecided where people were sure: {differ:?}");
    assert!(
        !differ.contains(&"s0.b.16t".to_owned()),
        "a third less, in every run"
    );
    // Two runs beyond five minutes against seconds: cut-off values count as at least that.
    let cut = figures(
        &[7.241, 12.172, 7.199].map(Value::Exact),
        &[300.0, 300.0].map(Value::AtLeast),
        false,
        50.0,
    );
    assert_eq!(cut["judgement"]["word"], "loss", "{cut}");
    assert!(cut["welch"].is_null());
}
