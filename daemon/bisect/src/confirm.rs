//! Confirmation: culprit and each parent side by side in fresh boots, whose number is fixed before the first of
//! them and which chose nothing. They give the headline effect; the search's own boots would flatter it.
//!
//! The number n is kept in the boots' own identity (`replicate = CONFIRM n + i`), so a plan made from the record
//! alone knows it. `n = 2 (z_0.995 + z_0.90)^2 / d^2` boots a side, between 2 and 8, 4 at least where the machine
//! drifts, and one where noise is nothing beside the step.

use crate::belief::Belief;
use crate::ends::POWER;
use crate::facts::{Facts, MOST_CONFIRM, confirmation};
use crate::search::{Ask, Searcher, Want};
use crate::stats::{mean, phi, t95};
use crate::{Check, CheckResult, Checked, Kernel};

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

/// Boots that failed among a kernel's confirmations after which no more are asked.
const PATIENCE: u32 = 3;

pub fn confirm(searcher: &Searcher<'_>, belief: &Belief, culprit: u32) -> Result<Size, Ask> {
    let facts = searcher.facts;
    let Some(machine) = best_machine(belief) else {
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
    let count = number(facts, belief, machine, &kernels);
    side_by_side(
        facts,
        &kernels,
        machine,
        count,
        &format!(
            "{} is the suspect: it and its {} side by side, {count} boot{} each, to size the loss",
            history.id(culprit),
            if parents.len() == 1 { "parent" } else { "parents" },
            if count == 1 { "" } else { "s" },
        ),
    )?;
    let mut sized = size(searcher, belief, machine, &parents, culprit);
    sized.notes.extend(missing_parents(facts, culprit, &parents));
    sized.checks.push(parents_check(facts, &sized, culprit, &parents));
    sized.checks.push(same_binary(facts, culprit, &parents));
    sized
        .checks
        .push(revert(searcher, &sized, culprit, machine, count)?);
    sized
        .checks
        .push(layout(searcher, &sized, culprit, &parents, machine, count)?);
    Ok(sized)
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

fn number(facts: &Facts<'_>, belief: &Belief, machine: usize, kernels: &[Kernel]) -> u32 {
    let of_kernel = |k: &Kernel| facts.by_kernel.get(k).copied();
    let begun = kernels
        .iter()
        .filter_map(of_kernel)
        .flat_map(|k| {
            let seen = facts.kernels[k]
                .boots
                .iter()
                .map(|&b| (facts.boots[b].machine, facts.boots[b].replicate));
            let pending = facts.pending.iter().filter(move |p| p.0 == k).map(|p| (p.1, p.2));
            seen.chain(pending)
        })
        .filter(|(m, _)| *m == machine)
        .filter_map(|(_, r)| confirmation(r))
        .max();
    if let Some(count) = begun {
        return count;
    }
    let Some(on) = belief.on(machine) else { return 2 };
    let d = on.delta.0.abs() / on.boot_sd().max(1e-9);
    if d > 25.0 {
        return 1;
    }
    let by_power = (2.0 * POWER * POWER / (d * d))
        .ceil()
        .clamp(2.0, f64::from(MOST_CONFIRM)) as u32;
    if on.folded.drifts > 0.5 {
        by_power.max(4)
    } else {
        by_power
    }
}

/// Asks until each kernel has `count` confirmation boots, fewest first, so that they alternate.
fn side_by_side(
    facts: &Facts<'_>,
    kernels: &[Kernel],
    machine: usize,
    count: u32,
    reason: &str,
) -> Result<(), Ask> {
    let mut under_way = false;
    let mut next: Option<(u32, usize)> = None;
    for (i, kernel) in kernels.iter().enumerate() {
        let (measured, pending, failed) = confirmed(facts, kernel, machine);
        under_way |= pending > 0;
        if measured + pending < count && failed < PATIENCE {
            // Rounds alternate their order: A B, B A.
            let round = measured + pending;
            let rank = if round % 2 == 0 { i } else { kernels.len() - i };
            if next.is_none_or(|n| (round, rank) < n) {
                next = Some((round, rank));
            }
        }
    }
    let Some((round, rank)) = next else {
        return if under_way {
            Err(Ask {
                reason: reason.to_owned(),
                ..Ask::default()
            })
        } else {
            Ok(())
        };
    };
    let kernel = kernels[if round % 2 == 0 {
        rank
    } else {
        kernels.len() - rank
    }]
    .clone();
    let mut ask = Ask {
        reason: reason.to_owned(),
        ..Ask::default()
    };
    if facts.machines[machine].free {
        ask.wants.push(Want {
            kernel,
            machine,
            runs: 3 + facts.summaries.warm_up,
            of: count,
        });
    }
    Err(ask)
}

/// Confirmation boots of a kernel: measured, under way, failed.
fn confirmed(facts: &Facts<'_>, kernel: &Kernel, machine: usize) -> (u32, u32, u32) {
    let Some(&k) = facts.by_kernel.get(kernel) else {
        return (0, 0, 0);
    };
    let tried = &facts.kernels[k];
    if tried.build_failed {
        return (0, 0, PATIENCE);
    }
    let measured = confirm_boots(facts, kernel, machine).len() as u32;
    let pending = facts
        .pending
        .iter()
        .filter(|p| p.0 == k && p.1 == machine && confirmation(p.2).is_some())
        .count() as u32;
    (
        measured,
        pending,
        tried.boot_failed.max(tried.benchmark_failed).max(tried.lost),
    )
}

fn confirm_boots(facts: &Facts<'_>, kernel: &Kernel, machine: usize) -> Vec<usize> {
    let Some(&k) = facts.by_kernel.get(kernel) else {
        return Vec::new();
    };
    let of = |&&b: &&usize| {
        let boot = &facts.boots[b];
        boot.machine == machine && confirmation(boot.replicate).is_some()
    };
    facts.kernels[k].boots.iter().filter(of).copied().collect()
}

fn mean_of(facts: &Facts<'_>, boots: &[usize]) -> f64 {
    mean(&boots.iter().map(|&b| facts.boots[b].y).collect::<Vec<_>>())
}

fn size(searcher: &Searcher<'_>, belief: &Belief, machine: usize, parents: &[u32], culprit: u32) -> Size {
    let facts = searcher.facts;
    let plain = |place: u32| Kernel::plain(facts.history.id(place).clone());
    let bad = confirm_boots(facts, &plain(culprit), machine);
    // Against the parent that is nearest: a merge is only to blame for what every parent lacks.
    let nearest = parents
        .iter()
        .map(|&p| confirm_boots(facts, &plain(p), machine))
        .filter(|b| !b.is_empty() && !bad.is_empty())
        .min_by(|a, b| {
            let loss = |boots: &[usize]| facts.scale.loss(mean_of(facts, &bad) - mean_of(facts, boots));
            loss(a).total_cmp(&loss(b))
        });
    let Some(good) = nearest else {
        return from_belief(searcher, belief);
    };
    let difference = mean_of(facts, &bad) - mean_of(facts, &good);
    let noise = belief.on(machine).map_or(0.0, |m| m.boot_sd());
    let sd = noise * libm::sqrt(1.0 / good.len() as f64 + 1.0 / bad.len() as f64);
    let reach = t95(facts.summaries.boot_degrees.max(2.0)) * sd;
    with_interval(
        facts,
        Size {
            difference,
            sd,
            interval: (difference - reach, difference + reach),
            boots: good.len().min(bad.len()),
            censored: bad.iter().chain(&good).any(|&b| facts.boots[b].censored),
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

fn revert(
    searcher: &Searcher<'_>,
    sized: &Size,
    culprit: u32,
    machine: usize,
    count: u32,
) -> Result<Checked, Ask> {
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
    side_by_side(facts, std::slice::from_ref(&kernel), machine, count, &why)?;
    let boots = confirm_boots(facts, &kernel, machine);
    let ends = facts
        .history
        .place(bad)
        .map(|p| facts.boots_on(p, machine))
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
    machine: usize,
    count: u32,
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
    side_by_side(
        facts,
        &kernels,
        machine,
        count,
        "culprit and parent laid out anew: is it the code, or its place?",
    )?;
    let (good, bad) = (
        confirm_boots(facts, &kernels[0], machine),
        confirm_boots(facts, &kernels[1], machine),
    );
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
