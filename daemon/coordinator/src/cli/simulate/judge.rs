//! Whether a scenario ended as it should.

use super::scenario::Scenario;

/// An ending in words and ids, from wherever it comes.
#[derive(Clone, Debug, Default)]
pub struct Ending {
    pub status: String,
    pub first_bad: Vec<String>,
    pub improved: Vec<String>,
    pub suspects: Vec<String>,
    pub commits_tested: usize,
}

/// Whether the ending is what the scenario expects; if not, why.
pub fn verdict(scenario: &Scenario, ending: &Ending) -> Result<(), String> {
    let expected = &scenario.expected;
    let sorted = |list: &[String]| {
        let mut list = list.to_vec();
        list.sort();
        list
    };
    let Ending {
        status,
        first_bad,
        improved,
        suspects,
        commits_tested,
    } = ending;
    let first_bad = sorted(first_bad);
    let accepted = expected.accept_status.iter().any(|a| {
        let (word, commit) = a.split_once(':').unwrap_or((a, ""));
        word == status && (commit.is_empty() || first_bad == [commit])
    });
    if accepted {
        return Ok(());
    }
    if *status != expected.status {
        let right = (&expected.status, &expected.first_bad);
        return Err(format!(
            "{status} {first_bad:?} instead of {} {:?}",
            right.0, right.1
        ));
    }
    if first_bad != sorted(&expected.first_bad) {
        return Err(format!(
            "blames {first_bad:?} instead of {:?}",
            expected.first_bad
        ));
    }
    if !expected.suspects.is_empty() && sorted(suspects) != sorted(&expected.suspects) {
        return Err(format!(
            "suspects {suspects:?} instead of {:?}",
            expected.suspects
        ));
    }
    // A loss that is undone is a gain too; naming it is right, not naming it as well.
    let undone = |c: &String| scenario.measurement.effects.iter().any(|e| e.until.contains(c));
    let mut named = sorted(improved);
    named.retain(|c| expected.also_improved.contains(c) || !undone(c));
    if named != sorted(&expected.also_improved) {
        return Err(format!(
            "improved {improved:?} instead of {:?}",
            expected.also_improved
        ));
    }
    match expected.max_commits_tested {
        Some(most) if *commits_tested > most => Err(format!(
            "{commits_tested} commits tested, at most {most} expected"
        )),
        _ => Ok(()),
    }
}

/// A wrong commit named: worse than any other failure.
pub fn blames_wrongly(scenario: &Scenario, ending: &Ending) -> bool {
    ending.first_bad.iter().any(|c| !scenario.culprits.contains(c))
}
