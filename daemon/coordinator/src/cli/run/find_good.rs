//! A good end found by itself: back over the tags, in steps that double, until one is faster than the slow end.
//!
//! Each tag is compared with the slow end alone, by the mind's own look at two ends; every measurement stays a fact
//! of the search that follows.

use super::session::{End, Session, short};
use super::state::Line;
use anyhow::bail;
use bisect::{Commit, CommitId, History, Plan};
use std::collections::BTreeMap;

/// `P(no change)` below which a tag differs from the slow end.
const DIFFERS: f64 = 0.01;

pub enum Found {
    Good(CommitId),
    Ended(End),
}

pub async fn find(session: &mut Session) -> anyhow::Result<Found> {
    let bad = CommitId::new(&session.state.settings.bad);
    let pattern = session
        .state
        .settings
        .find_good
        .clone()
        .unwrap_or_else(|| "*".into());
    let mut tags: Vec<(String, CommitId)> = Vec::new();
    for name in session.local.tags_before(&bad, &pattern)? {
        let commit = session.local.commit(&format!("refs/tags/{name}"))?;
        if commit != bad && tags.iter().all(|(_, c)| *c != commit) {
            tags.push((name, commit));
        }
    }
    if tags.is_empty() {
        bail!(
            "no tag before {} fits `{pattern}`: name a good revision yourself",
            short(&bad)
        );
    }
    let higher_is_better = session.state.policy.metric.higher_is_better;
    let lossy = |plan: &Plan| plan.effect.is_some_and(|e| (e.pct < 0.0) == higher_is_better);
    let differs = |plan: &Plan| plan.p_no_change < DIFFERS && lossy(plan);
    for (name, commit) in doubling(&tags) {
        session
            .display
            .line(&format!("is {name} ({}) faster?", short(commit)));
        let history = pair(commit, &bad)?;
        let (plan, end) = session.drive(&history, &differs).await?;
        let named = match end {
            None => true,
            Some(End::Concluded(conclusion)) => !conclusion.first_bad.is_empty(),
            Some(end) => return Ok(Found::Ended(end)),
        };
        if named {
            session.display.line(&format!("{name} is: {}", plan.reason));
            session.state.add(&Line::Good {
                commit: commit.to_string(),
                name: name.clone(),
            })?;
            return Ok(Found::Good(commit.clone()));
        }
    }
    bail!(
        "none of the tags back to {} is faster than {}: the loss is older, or smaller than asked about",
        tags.last().map_or("", |(name, _)| name),
        short(&bad)
    )
}

/// The 1st, 2nd, 4th, 8th … and the last.
fn doubling<T>(list: &[T]) -> impl Iterator<Item = &T> {
    let powers = (0..usize::BITS)
        .map(|p| (1usize << p) - 1)
        .take_while(|at| *at + 1 < list.len());
    powers
        .chain([list.len().saturating_sub(1)])
        .filter_map(|at| list.get(at))
}

/// Two commits as if nothing lay between them.
fn pair(good: &CommitId, bad: &CommitId) -> anyhow::Result<History> {
    let one = Commit {
        id: good.clone(),
        parents: Vec::new(),
    };
    let other = Commit {
        id: bad.clone(),
        parents: vec![good.clone()],
    };
    let commits = vec![one, other];
    Ok(History::new(
        good.clone(),
        bad.clone(),
        commits,
        false,
        BTreeMap::new(),
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_double_and_the_last_is_never_left_out() {
        let steps = |n: usize| {
            doubling(&(1..=n).collect::<Vec<_>>())
                .copied()
                .collect::<Vec<_>>()
        };
        assert_eq!(steps(1), [1]);
        assert_eq!(steps(2), [1, 2]);
        assert_eq!(steps(9), [1, 2, 4, 8, 9]);
        assert_eq!(steps(8), [1, 2, 4, 8]);
    }
}
