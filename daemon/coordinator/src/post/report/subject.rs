//! One line that says what was found.

use super::words::{Scale, clean, count, cut, effect_phrase, short};
use super::{End, Ending, Evidence};
use bisect::{CommitId, Conclusion, Status};

/// Subjects of commits are cut to this, so that the effect is still seen in a list of mails.
const COMMIT_SUBJECT_CHARS: usize = 60;

pub fn subject(evidence: &Evidence) -> String {
    format!("[perfbisect] {}", clean(&what(evidence)))
}

fn what(evidence: &Evidence) -> String {
    let metric = &evidence.metric.name;
    let scale = Scale::of(evidence);
    let range = range(evidence);
    let Ending::Concluded(conclusion) = &evidence.ending else {
        return format!("cancelled: {metric} {range}");
    };
    let Conclusion {
        status,
        first_bad,
        improved,
        suspects,
        effect_pct,
        ..
    } = conclusion;
    let between = evidence
        .plan
        .as_ref()
        .and_then(|plan| plan.effect)
        .map(|effect| effect.pct);
    let culprit = |commit: &CommitId| named(evidence, commit);
    match status {
        Status::CulpritFound => {
            let phrase = effect_phrase(&scale, metric, *effect_pct);
            first_bad
                .first()
                .map_or(phrase.clone(), |commit| format!("{} {phrase}", culprit(commit)))
        }
        Status::CulpritsFound => {
            let size = between.map_or(String::new(), |change| format!("{} of ", scale.size(change)));
            format!("{} cost {size}{metric} {range}", count(first_bad.len(), "commit"))
        }
        Status::SeveralChanges => {
            let (losses, gains) = (count(first_bad.len(), "loss"), count(improved.len(), "gain"));
            format!("{losses} and {gains} of {metric} {range}")
        }
        Status::CulpritRange => {
            let size = between.map_or(String::new(), |change| format!(" of {}", scale.size(change)));
            format!(
                "a loss{size} of {metric} is in {} that cannot be told apart",
                count(suspects.len(), "commit")
            )
        }
        Status::EndpointsIndistinguishable => format!("not reproduced: no change of {metric} {range}"),
        Status::BelowThreshold => {
            format!(
                "loss of {metric} {range} is below {}",
                scale.smallest(evidence.min_effect)
            )
        }
        Status::ImprovedNotRegressed => {
            let size = between
                .or(*effect_pct)
                .map_or(String::new(), |change| format!(" by {}", scale.size(change)));
            format!("no loss: {metric} is better{size} {range}")
        }
        Status::MergeBaseBad => {
            format!(
                "{metric} is as bad at the merge base: {} has a fix",
                clean(&evidence.good.rev)
            )
        }
        Status::MachineDependent => format!("{metric} {range}: machines disagree on the first bad commit"),
        Status::Inconclusive => format!("undecided: {metric} {range}"),
        Status::InfraFailed => format!("could not be measured: {metric} {range}"),
    }
}

/// `1a2b3c4d5e6f ("mm: subject")`, as kernel people cite a commit.
pub fn named(evidence: &Evidence, commit: &CommitId) -> String {
    match evidence.commits.get(commit) {
        Some(text) => format!(
            "{} (\"{}\")",
            short(commit),
            cut(&clean(&text.subject), COMMIT_SUBJECT_CHARS)
        ),
        None => short(commit),
    }
}

fn range(evidence: &Evidence) -> String {
    let end = |end: &End| cut(&clean(&end.rev), 40);
    format!("from {} to {}", end(&evidence.good), end(&evidence.bad))
}
