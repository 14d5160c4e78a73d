//! Confirmation: culprit and each parent side by side in fresh boots, whose number is fixed before the first of
//! them and which chose nothing. They give the headline effect; the search's own boots would flatter it.
//!
//! The number n is kept in the boots' own identity (`replicate = CONFIRM n + i`), so a plan made from the record
//! alone knows it. `n = 2 (z_0.975 + z_0.80)^2 / d^2` boots a side, between 2 and 8, 4 at least where the machine
//! drifts, and one where noise is nothing beside the step.

mod round;

use crate::belief::{Belief, MachineBelief};
use crate::facts::Facts;
use crate::search::{Ask, Searcher};
use crate::stats::{mean, phi, t95};
use crate::{Check, CheckResult, Checked, Kernel};
pub use round::Round;

/// An effect with its uncertainty.
#[derive(Clone, Debug, Default)]
pub struct Size {
    pub difference: f64,
    pub sd: f64,
    pub interval: (f64, f64),
    pub size_confidence: f64,
    pub boots: usize,
    pub censored: bool,
    pub checks: Vec<Checked>,
    pub notes: Vec<String>,
}

/// Standard deviations between the two measures of one step that are no reason to doubt.
const FITS: f64 = 1.5;

pub fn confirm(searcher: &Searcher<'_>, belief: &Belief, culprit: u32) -> Result<Size, Ask> {
    let facts = searcher.facts;
    let Some(machine) = best_machine(belief).and_then(|m| belief.on(m)) else {
        return Ok(from_belief(searcher, belief));
    };
    let history = facts.history;
    let parents: Vec<u32> = history
        .parents(culprit)
        .iter()
        .copied()
        .filter(|&p| facts.skip_at(p).is_none())
        .collect();
    let plain = |place: u32| Kernel::plain(history.id(place).clone());
    let mut kernels: Vec<Kernel> = parents.iter().map(|&p| plain(p)).collect();
    kernels.push(plain(culprit));
    let mut round = Round::of(facts, machine, &kernels);
    let mut sized = loop {
        let count = round.count;
        let reason = format!(
            "{} is the suspect: it and its {} side by side, {count} boot{} each, to size the loss",
            history.id(culprit),
            if parents.len() == 1 { "parent" } else { "parents" },
            if count == 1 { "" } else { "s" },
        );
        round.ask(facts, &kernels, &reason)?;
        let sized = size(searcher, belief, round, &parents, culprit);
        let told = sized.interval.0 * sized.interval.1 > 0.0;
        if (told && fits(&sized, machine)) || sized.boots == 0 || round.is_longest() {
            break sized;
        }
        // An interval that holds nothing at all, or not what the ends show: once more, with as many boots as there
        // may be.
        round = round.longest();
    };
    if facts.scale.loss(sized.difference) * facts.scale.loss(machine.delta.0) < 0.0 {
        let contrary = sized.checks;
        sized = from_belief(searcher, belief);
        sized.checks = contrary;
        sized
            .notes
            .push("the boots side by side do not show it: its size is the search's own".to_owned());
    }
    sized.notes.extend(missing_parents(facts, culprit, &parents));
    sized.checks.push(parents_check(facts, &sized, culprit, &parents));
    sized.checks.push(same_binary(facts, culprit, &parents));
    sized.checks.push(revert(searcher, &sized, culprit, round)?);
    sized
        .checks
        .push(layout(searcher, &sized, culprit, &parents, round)?);
    Ok(sized)
}

/// Is the step side by side the loss that the search has seen? A much larger or smaller one is a sign that few boots
/// taught it too little noise, or that one of the two images is off by itself.
fn fits(sized: &Size, machine: &MachineBelief) -> bool {
    let (delta, sd) = machine.delta;
    let off = (sized.difference - delta).abs();
    off < FITS * libm::sqrt(sized.sd * sized.sd + sd * sd)
}

/// The belief's own word on the effect, where no boots were meant to size it.
pub fn from_belief(searcher: &Searcher<'_>, belief: &Belief) -> Size {
    let Some(machine) = best_machine(belief).and_then(|m| belief.on(m)) else {
        return Size::default();
    };
    let (difference, sd) = machine.delta;
    with_interval(
        searcher.facts,
        Size {
            difference,
            sd,
            interval: (difference - 1.96 * sd, difference + 1.96 * sd),
            ..Size::default()
        },
    )
}

fn with_interval(facts: &Facts<'_>, mut sized: Size) -> Size {
    let loss = facts.scale.loss(sized.difference);
    sized.size_confidence = phi((loss - facts.scale.least) / sized.sd.max(1e-9));
    sized
}

/// The machine on which the step stands out most.
fn best_machine(belief: &Belief) -> Option<usize> {
    let clear = |m: &&crate::belief::MachineBelief| m.delta.0.abs() / m.boot_sd().max(1e-9);
    belief
        .machines
        .iter()
        .max_by(|a, b| clear(a).total_cmp(&clear(b)).then(b.machine.cmp(&a.machine)))
        .map(|m| m.machine)
}

fn mean_of(facts: &Facts<'_>, boots: &[usize]) -> f64 {
    mean(&boots.iter().map(|&b| facts.boots[b].y).collect::<Vec<_>>())
}

fn size(searcher: &Searcher<'_>, belief: &Belief, round: Round, parents: &[u32], culprit: u32) -> Size {
    let facts = searcher.facts;
    let plain = |place: u32| Kernel::plain(facts.history.id(place).clone());
    let bad = round.boots(facts, &plain(culprit));
    // Against the parent that is nearest: a merge is only to blame for what every parent lacks.
    let nearest = parents
        .iter()
        .map(|&p| round.boots(facts, &plain(p)))
        .filter(|b| !b.is_empty() && !bad.is_empty())
        .min_by(|a, b| {
            let loss = |boots: &[usize]| facts.scale.loss(mean_of(facts, &bad) - mean_of(facts, boots));
            loss(a).total_cmp(&loss(b))
        });
    let Some(good) = nearest else {
        return from_belief(searcher, belief);
    };
    let difference = mean_of(facts, &bad) - mean_of(facts, &good);
    let variance = |boots: &[usize]| {
        belief
            .on(round.machine)
            .map_or(0.0, |m| m.mean_variance(facts, boots))
    };
    let sd = libm::sqrt(variance(&good) + variance(&bad));
    let reach = t95(facts.summaries.boot_degrees.max(2.0)) * sd;
    with_interval(
        facts,
        Size {
            difference,
            sd,
            interval: (difference - reach, difference + reach),
            boots: good.len().min(bad.len()),
            censored: bad
                .iter()
                .chain(&good)
                .any(|&b| facts.boots[b].cuts.iter().any(|c| *c != 0)),
            ..Size::default()
        },
    )
}

fn missing_parents(facts: &Facts<'_>, culprit: u32, measured: &[u32]) -> Vec<String> {
    let commit = &facts.history.commits()[culprit as usize];
    let take = if facts.history.first_parent() {
        1
    } else {
        usize::MAX
    };
    let missing = commit.parents.iter().take(take).filter(|p| {
        facts
            .history
            .place(p)
            .is_none_or(|place| !measured.contains(&place))
    });
    missing
        .map(|p| format!("parent {p} could not be measured: it is not in the history, or can't be tested"))
        .collect()
}

fn checked(check: Check, result: CheckResult, detail: impl Into<String>) -> Checked {
    Checked {
        check,
        result,
        detail: detail.into(),
    }
}

fn parents_check(facts: &Facts<'_>, sized: &Size, culprit: u32, parents: &[u32]) -> Checked {
    if parents.is_empty() || sized.boots == 0 {
        return checked(
            Check::Parents,
            CheckResult::NotPossible,
            "no parent could be measured beside it",
        );
    }
    let loss = facts.scale.loss(sized.difference);
    let (low, high) = (
        facts.scale.loss(sized.interval.0),
        facts.scale.loss(sized.interval.1),
    );
    let holds = loss > 0.0 && low.min(high) > 0.0;
    let detail = format!(
        "{} boots each of {} and its parents, side by side: {:+.2} {}",
        sized.boots,
        facts.history.id(culprit),
        facts.scale.change(sized.difference),
        facts.scale.unit(&facts.record.policy.metric.unit),
    );
    checked(
        Check::Parents,
        if holds {
            CheckResult::Passed
        } else {
            CheckResult::Failed
        },
        detail,
    )
}

fn same_binary(facts: &Facts<'_>, culprit: u32, parents: &[u32]) -> Checked {
    let binary = |place: u32| {
        facts
            .plain(place)
            .map(|k| &facts.kernels[k])
            .filter(|k| k.built)
            .map(|k| k.binary)
    };
    let digests = facts
        .record
        .images
        .iter()
        .any(|i| i.kernel.is_plain() && i.kernel.commit == *facts.history.id(culprit));
    match binary(culprit) {
        Some(own) if digests && parents.iter().all(|&p| binary(p).is_some_and(|b| b != own)) => checked(
            Check::SameBinary,
            CheckResult::Passed,
            "its binary differs from each parent's",
        ),
        Some(own) if digests && parents.iter().any(|&p| binary(p) == Some(own)) => checked(
            Check::SameBinary,
            CheckResult::Failed,
            "a parent has the same binary",
        ),
        _ => checked(
            Check::SameBinary,
            CheckResult::NotPossible,
            "no digests of the images",
        ),
    }
}

fn revert(searcher: &Searcher<'_>, sized: &Size, culprit: u32, round: Round) -> Result<Checked, Ask> {
    let facts = searcher.facts;
    if !facts.record.policy.confirm.revert {
        return Ok(checked(Check::Revert, CheckResult::NotPossible, "not asked for"));
    }
    let bad = facts.history.bad();
    let culprit_id = facts.history.id(culprit);
    let kernel = Kernel {
        revert: vec![culprit_id.clone()],
        ..Kernel::plain(bad.clone())
    };
    let why = format!("the bad end with {culprit_id} reverted: is the loss gone?");
    round.ask(facts, std::slice::from_ref(&kernel), &why)?;
    let boots = round.boots(facts, &kernel);
    let ends = facts
        .history
        .place(bad)
        .map(|p| facts.boots_on(p, round.machine))
        .unwrap_or_default();
    if boots.is_empty() || ends.is_empty() {
        return Ok(checked(
            Check::Revert,
            CheckResult::NotPossible,
            "it does not revert, build or run on the bad end",
        ));
    }
    let back = mean_of(facts, &boots) - mean_of(facts, &ends);
    let gone = -back / sized.difference;
    let detail = format!(
        "reverting {culprit_id} on {bad} brings back {:.0} % of its loss",
        100.0 * gone
    );
    Ok(checked(
        Check::Revert,
        if gone > 0.5 {
            CheckResult::Passed
        } else {
            CheckResult::Failed
        },
        detail,
    ))
}

fn layout(
    searcher: &Searcher<'_>,
    sized: &Size,
    culprit: u32,
    parents: &[u32],
    round: Round,
) -> Result<Checked, Ask> {
    let facts = searcher.facts;
    if !facts.record.policy.confirm.layout {
        return Ok(checked(Check::Layout, CheckResult::NotPossible, "not asked for"));
    }
    let Some(&parent) = parents.first() else {
        return Ok(checked(
            Check::Layout,
            CheckResult::NotPossible,
            "no parent to compare with",
        ));
    };
    let anew = |place: u32| Kernel {
        layout: 1,
        ..Kernel::plain(facts.history.id(place).clone())
    };
    let kernels = [anew(parent), anew(culprit)];
    round.ask(
        facts,
        &kernels,
        "culprit and parent laid out anew: is it the code, or its place?",
    )?;
    let (good, bad) = (round.boots(facts, &kernels[0]), round.boots(facts, &kernels[1]));
    if good.is_empty() || bad.is_empty() {
        return Ok(checked(
            Check::Layout,
            CheckResult::NotPossible,
            "they don't build or run laid out anew",
        ));
    }
    let stays = (mean_of(facts, &bad) - mean_of(facts, &good)) / sized.difference;
    let detail = format!("laid out anew, {:.0} % of the loss stays", 100.0 * stays);
    Ok(checked(
        Check::Layout,
        if stays > 0.5 {
            CheckResult::Passed
        } else {
            CheckResult::Failed
        },
        detail,
    ))
}
