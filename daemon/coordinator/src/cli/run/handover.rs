//! Searches handed over, from git to a run and from a run to git.

use super::state::State;
use crate::tree::bisect_log::{BisectLog, Mark, State as Side, Terms};
use crate::tree::local::{Local, Span};
use anyhow::{Context, bail};
use bisect::{CommitId, Conclusion, History, OverrideVerdict, Planner, Verdict};
use std::collections::BTreeMap;
use std::io::Read;

/// What a git bisect log says, its revisions looked up.
pub struct Taken {
    pub log: BisectLog,
    pub good: CommitId,
    pub bad: CommitId,
    /// The other marks: a person's word.
    pub words: Vec<(CommitId, String)>,
}

/// Reads a log: a file's, standard input's, or that of the bisection under way in the repository.
pub fn take_over(local: &Local, from: &str) -> anyhow::Result<Taken> {
    let text = match from {
        "" => local
            .git(&["bisect", "log"])
            .context("no git bisection is under way here")?,
        "-" => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text)?;
            text
        }
        file => std::fs::read_to_string(file).with_context(|| file.to_owned())?,
    };
    let log = BisectLog::read(&text).map_err(|why| anyhow::anyhow!("the git bisect log: {why}"))?;
    let mut marks: Vec<(CommitId, Side)> = Vec::new();
    for mark in &log.marks {
        let commit = local.commit(&mark.revision)?;
        // A later mark takes the place of an earlier one.
        marks.retain(|(c, _)| *c != commit);
        marks.push((commit, mark.state));
    }
    let first = |side: Side| marks.iter().find(|(_, s)| *s == side).map(|(c, _)| c.clone());
    let (old, new) = (&log.terms.old, &log.terms.new);
    let Some(bad) = first(Side::New) else {
        bail!("the git bisect log marks no commit {new}: mark one first");
    };
    let mut good = None;
    for (commit, _) in marks.iter().filter(|(_, s)| *s == Side::Old) {
        if local.is_ancestor(commit, &bad)? {
            good = Some(commit.clone());
            break;
        }
    }
    let Some(good) = good.or_else(|| first(Side::Old)) else {
        bail!("the git bisect log marks no commit {old}: mark one first");
    };
    let others = marks.into_iter().filter(|(c, _)| *c != good && *c != bad);
    let words = others.map(|(commit, side)| {
        let verdict = match side {
            Side::Old => "good",
            Side::New => "bad",
            Side::Skip => "skip",
        };
        (commit, verdict.to_owned())
    });
    Ok(Taken {
        words: words.collect(),
        log,
        good,
        bad,
    })
}

/// Where `--refs` puts what is known: the names that git bisect uses below `refs/bisect`.
const REFS: &str = "refs/perfbisect/run";

/// What the run in this repository knows, as git would have written it down.
pub fn as_git_bisect_log(local: &Local, state: &State) -> anyhow::Result<String> {
    let log = known(local, state)?;
    let mut text = log.write(|revision| local.subject(&CommitId::new(revision)));
    let named = state.concluded.as_ref().and_then(only_culprit);
    if let Some(culprit) = named {
        text += &format!(
            "# first {} commit: [{culprit}] {}\n",
            log.terms.new,
            local.subject(culprit)
        );
    }
    Ok(text)
}

/// Points `refs/perfbisect/run/bad`, `good-<id>` and `skip-<id>` at what the run knows; older ones go.
pub fn write_refs(local: &Local, state: &State) -> anyhow::Result<()> {
    let log = known(local, state)?;
    let list = local.git(&["for-each-ref", "--format=%(refname)", REFS])?;
    for name in list.lines() {
        local.git(&["update-ref", "-d", name])?;
    }
    for mark in &log.marks {
        let id = &mark.revision;
        let name = match mark.state {
            Side::New => format!("{REFS}/{}", log.terms.new),
            Side::Old => format!("{REFS}/{}-{id}", log.terms.old),
            Side::Skip => format!("{REFS}/skip-{id}"),
        };
        local.git(&["update-ref", &name, id])?;
    }
    Ok(())
}

fn known(local: &Local, state: &State) -> anyhow::Result<BisectLog> {
    let settings = &state.settings;
    let Some(good) = state.good.clone() else {
        bail!("the run has not found a good end yet: there is nothing to hand over");
    };
    let span = Span {
        good,
        bad: CommitId::new(&settings.bad),
        first_parent: settings.first_parent,
        paths: settings.paths.clone(),
    };
    let history = local.history(&span)?;
    Ok(BisectLog {
        terms: Terms {
            old: settings.terms.0.clone(),
            new: settings.terms.1.clone(),
        },
        first_parent: settings.first_parent,
        paths: settings.paths.clone(),
        marks: marks(state, &history),
    })
}

/// Marks that git can go on with: the ends, then verdicts that agree with what was found. A mark that contradicts
/// it would send git to the other side, so it is left out.
fn marks(state: &State, history: &History) -> Vec<Mark> {
    let plan = Planner::new().plan(history, &state.record(history, 0.0));
    let mut sides: BTreeMap<u32, Side> = BTreeMap::new();
    for line in &plan.verdicts {
        let side = match line.verdict {
            Verdict::Good => Side::Old,
            Verdict::Bad => Side::New,
            Verdict::Skip { .. } => Side::Skip,
            Verdict::Open => continue,
        };
        sides.extend(history.place(&line.commit).map(|place| (place, side)));
    }
    for word in &state.words {
        let side = match word.verdict {
            OverrideVerdict::Good => Side::Old,
            OverrideVerdict::Bad => Side::New,
            OverrideVerdict::Skip => Side::Skip,
        };
        sides.extend(history.place(&word.commit).map(|place| (place, side)));
    }
    if let Some(culprit) = state.concluded.as_ref().and_then(only_culprit) {
        agree_with(history, culprit, &mut sides);
    }
    let ends = [(history.bad(), Side::New), (history.good(), Side::Old)];
    for (end, _) in ends {
        sides.remove(&history.place(end).unwrap_or(u32::MAX));
    }
    let mark = |commit: &CommitId, state: Side| Mark {
        state,
        revision: commit.to_string(),
    };
    let ends = ends.into_iter().map(|(commit, side)| mark(commit, side));
    // git knows one new commit only, the one marked last: children come before parents, and the culprit at the end.
    let tried = sides
        .into_iter()
        .rev()
        .map(|(place, side)| mark(history.id(place), side));
    ends.chain(tried).collect()
}

fn only_culprit(conclusion: &Conclusion) -> Option<&CommitId> {
    match conclusion.first_bad.as_slice() {
        [culprit] => Some(culprit),
        _ => None,
    }
}

/// The culprit is new and its parents are old; of the others stay those that fit.
fn agree_with(history: &History, culprit: &CommitId, sides: &mut BTreeMap<u32, Side>) {
    let Some(culprit) = history.place(culprit) else {
        return;
    };
    sides.retain(|place, side| {
        let has_it = history.ancestors(*place).contains(culprit as usize);
        match side {
            Side::Old => !has_it,
            Side::New => has_it,
            Side::Skip => *place != culprit,
        }
    });
    sides.insert(culprit, Side::New);
    sides.extend(history.parents(culprit).iter().map(|parent| (*parent, Side::Old)));
}
