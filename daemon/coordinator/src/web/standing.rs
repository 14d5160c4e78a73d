//! Where a bisection stands, in one sentence: the same words on pages, in the API and in a shell.
//!
//! Pure: from what was decided to text. It must not know where the text goes.

use super::reading::{ConclusionRead, PlanRead};
use super::say;

/// So much likelier than the next one is worth a word; less is how the commits happen to be ordered.
const LEAD: f64 = 1.25;

/// What a sentence needs to know of a bisection.
pub struct Facts<'a> {
    pub state: &'a str,
    pub good: &'a str,
    pub bad: &'a str,
    pub min_effect: String,
    pub metric: &'a str,
    pub plan: Option<&'a PlanRead>,
    pub conclusion: Option<&'a ConclusionRead>,
    pub boots: i64,
}

pub fn sentence(facts: &Facts) -> String {
    match (facts.state, facts.conclusion, facts.plan) {
        ("cancelled", _, _) => {
            format!(
                "Cancelled after {}; what was measured stays.",
                say::count(facts.boots, "boot", "boots")
            )
        }
        (_, Some(conclusion), _) => concluded(facts, conclusion),
        (_, None, None) => "Submitted; the first plan is being made.".into(),
        (_, None, Some(plan)) => searching(facts, plan),
    }
}

fn searching(facts: &Facts, plan: &PlanRead) -> String {
    let end = |commit: &str| {
        plan.verdicts
            .iter()
            .any(|v| v.commit == commit && v.verdict != "open")
    };
    if !(end(facts.good) && end(facts.bad)) && plan.effect.is_none() {
        return "Measuring both ends first: is there a loss at all?".into();
    }
    let left = say::count(plan.suspects_left.into(), "commit is", "commits are");
    let second = plan.suspects.get(1).map_or(0.0, |s| s.probability);
    match plan.suspects.first() {
        Some(top) if plan.suspects_left > 1 && top.probability > LEAD * second => {
            let name = say::short(&top.commit);
            format!(
                "{left} still suspect; {name} leads with {}.",
                say::share(top.probability)
            )
        }
        Some(_) if plan.suspects_left > 1 => format!("{left} still suspect; none stands out yet."),
        Some(top) => format!(
            "{} is the last suspect; it is being confirmed.",
            say::short(&top.commit)
        ),
        None => format!("{left} still suspect."),
    }
}

fn concluded(facts: &Facts, c: &ConclusionRead) -> String {
    let names = |ids: &[String]| ids.iter().map(|id| say::short(id)).collect::<Vec<_>>().join(", ");
    let effect = c
        .effect_pct
        .map(say::change)
        .unwrap_or_else(|| "an unknown amount".into());
    let interval = c.ci95_pct.map(|[low, high]| {
        format!(
            " (95\u{202f}% interval {} to {})",
            say::change(low),
            say::change(high)
        )
    });
    let interval = interval.unwrap_or_default();
    let metric = facts.metric;
    match c.status.as_str() {
        "culprit_found" => format!(
            "{} is the first bad commit: {metric} changed by {effect}{interval}.",
            names(&c.first_bad)
        ),
        "culprits_found" => format!(
            "{} commits share the loss: {}.",
            c.first_bad.len(),
            names(&c.first_bad)
        ),
        "several_changes" => format!(
            "Losses at {}, gains at {}: the range goes down and up.",
            names(&c.first_bad),
            names(&c.improved)
        ),
        "culprit_range" => format!(
            "One of {} commits that cannot be told apart, since what lies between them cannot be tested.",
            c.suspects.len()
        ),
        "endpoints_indistinguishable" => {
            format!(
                "The ends do not differ: a loss of {} would have been seen.",
                facts.min_effect
            )
        }
        "below_threshold" => {
            format!(
                "There is a loss of {effect}{interval}, below the {} asked for.",
                facts.min_effect
            )
        }
        "improved_not_regressed" => format!("{metric} got better, not worse: {effect}{interval}."),
        "merge_base_bad" => "The merge base is already bad: the good side holds a fix.".into(),
        "machine_dependent" => format!("Machines disagree: losses at {}.", names(&c.first_bad)),
        "inconclusive" => "Ended undecided at a limit; what is known is below.".into(),
        "infra_failed" => "Ended by the lab: an end cannot be built, booted or measured.".into(),
        other => format!("Ended: {other}."),
    }
}

/// A word for the list, and the tone it is shown in.
pub fn badge(
    state: &str,
    conclusion: Option<&ConclusionRead>,
    working: bool,
) -> (&'static str, &'static str) {
    match (state, conclusion.map(|c| c.status.as_str())) {
        ("cancelled", _) => ("cancelled", "quiet"),
        (_, Some("culprit_found")) => ("found", "found"),
        (_, Some("culprits_found")) => ("several found", "found"),
        (_, Some("several_changes")) => ("several changes", "found"),
        (_, Some("culprit_range")) => ("range found", "found"),
        (_, Some("machine_dependent")) => ("machines differ", "found"),
        (_, Some("merge_base_bad")) => ("merge base bad", "found"),
        (_, Some("endpoints_indistinguishable")) => ("no difference", "quiet"),
        (_, Some("below_threshold")) => ("below threshold", "quiet"),
        (_, Some("improved_not_regressed")) => ("improved", "good"),
        (_, Some("inconclusive")) => ("undecided", "warn"),
        (_, Some("infra_failed")) => ("lab failed", "warn"),
        (_, Some(_)) => ("ended", "quiet"),
        (_, None) if working => ("running", "live"),
        (_, None) => ("waiting", "wait"),
    }
}
