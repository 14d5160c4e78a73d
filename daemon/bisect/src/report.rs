//! What is shown beside the step: suspects, verdicts, effect, noise, what is left; and the conclusion's words.

use crate::belief::{Belief, MachineBelief};
use crate::ends::{Ends, Look};
use crate::facts::Facts;
use crate::plan::{Effect, Noise, OtherMetric, Remaining, Suspect, Verdict, VerdictLine};
use crate::search::{Change, Found};
use crate::stats::{coin_bits, mean, t95, variance};
use crate::switch;
use crate::{CommitId, Conclusion, Outcome, Status, Value};
use std::collections::BTreeSet;

const SHOWN: usize = 20;
const LEFT: f64 = 1e-4;
/// Probability beyond which a kernel counts as good or bad.
const DECIDED: f64 = 0.98;

/// The most probable suspects, and how many are left at all.
pub fn suspects(facts: &Facts<'_>, belief: &Belief) -> (Vec<Suspect>, u32) {
    let change = 1.0 - belief.p_no_change();
    let mut left = 0;
    // Best first, equal ones by place: the last is the bar that a later one must pass.
    let mut best: Vec<(f64, u32)> = Vec::with_capacity(SHOWN + 1);
    for (place, mass) in (0..).zip(belief.masses()) {
        let probability = mass * change;
        left += u32::from(probability > LEFT);
        let bar = if best.len() < SHOWN {
            0.0
        } else {
            best[SHOWN - 1].0
        };
        if probability > bar {
            let at = best.partition_point(|b| b.0 >= probability);
            best.insert(at, (probability, place));
            best.truncate(SHOWN);
        }
    }
    let suspect = |(probability, place): (f64, u32)| Suspect {
        commit: facts.history.id(place).clone(),
        probability,
    };
    (best.into_iter().map(suspect).collect(), left)
}

pub fn verdicts(facts: &Facts<'_>, belief: Option<&Belief>, ends_differ: bool) -> Vec<VerdictLine> {
    let mut lines = Vec::new();
    let mut places: BTreeSet<u32> = facts
        .kernels
        .iter()
        .filter(|k| k.kernel.is_plain())
        .map(|k| k.place)
        .collect();
    places.extend(facts.words.iter().map(|w| w.0));
    for place in places {
        let boots = facts.boots_at(place);
        let word = facts.words.iter().find(|w| w.0 == place);
        let skip = facts.skip_at(place);
        if boots.is_empty() && word.is_none() && skip.is_none() {
            continue;
        }
        let p_bad = belief.and_then(|b| b.p_bad(place)).filter(|_| ends_differ);
        let verdict = match (word, skip, p_bad) {
            (Some((_, true)), ..) => Verdict::Bad,
            (Some((_, false)), ..) => Verdict::Good,
            (None, Some(why), _) => Verdict::Skip { why: why.to_owned() },
            (None, None, Some(p)) if p > DECIDED => Verdict::Bad,
            (None, None, Some(p)) if p < 1.0 - DECIDED => Verdict::Good,
            (None, None, _) => Verdict::Open,
        };
        let ys: Vec<f64> = boots.iter().map(|&b| facts.boots[b].y).collect();
        lines.push(VerdictLine {
            commit: facts.history.id(place).clone(),
            verdict,
            boots: ys.len() as u32,
            level: (!ys.is_empty()).then(|| facts.scale.level(mean(&ys))),
            p_bad,
        });
    }
    lines
}

/// The look that says most: a loss before anything else, then the most boots.
pub fn telling(looks: &[Look]) -> Option<&Look> {
    looks
        .iter()
        .filter(|l| l.belief.is_some())
        .max_by_key(|l| (l.ends == Ends::Loss, l.boots, std::cmp::Reverse(l.machine)))
}

pub fn effect(facts: &Facts<'_>, look: Option<&Look>) -> Option<Effect> {
    let look = look.filter(|l| l.boots > 0)?;
    let belief = look.belief.as_ref()?;
    let (low, high) = belief.interval();
    let change = |y| facts.scale.change(y);
    Some(Effect {
        pct: change(belief.delta.0),
        ci95_pct: (change(low), change(high)),
    })
}

/// Levels of the ends in the metric's unit, each with its 95 % interval.
pub fn level(facts: &Facts<'_>, place: u32, look: Option<&Look>) -> Option<(f64, f64, f64)> {
    let look = look?;
    let belief = look.belief.as_ref()?;
    let ys: Vec<f64> = facts
        .boots_on(place, look.machine)
        .into_iter()
        .map(|b| facts.boots[b].y)
        .collect();
    if ys.is_empty() {
        return None;
    }
    let reach = 1.96 * belief.boot_sd() / libm::sqrt(ys.len() as f64);
    let centre = mean(&ys);
    let at = |y| facts.scale.level(y);
    Some((at(centre), at(centre - reach), at(centre + reach)))
}

pub fn noise(facts: &Facts<'_>, on: Option<&MachineBelief>) -> Noise {
    let Some(on) = on else {
        return Noise {
            modes: 1,
            ..Noise::default()
        };
    };
    let spread = |variance: f64| facts.scale.spread(libm::sqrt(variance.max(0.0)));
    Noise {
        boot_pct: spread(on.folded.s2),
        run_pct: facts.scale.spread(facts.summaries.sigma_within),
        image_pct: spread(on.folded.kappa2),
        drift_pct_per_h: spread(on.folded.walk2 + on.folded.slope2),
        outlier_share: on.folded.outliers,
        modes: if on.folded.two_modes > 0.5 { 2 } else { 1 },
    }
}

/// The other metrics between the ends, from the same boots.
pub fn others(facts: &Facts<'_>) -> Vec<OtherMetric> {
    let metrics = &facts.record.policy.other_metrics;
    let looked: Vec<(Option<Effect>, f64)> = metrics.iter().map(|metric| other(facts, metric)).collect();
    let holds = switch::holm(&looked.iter().map(|l| l.1).collect::<Vec<_>>());
    let each = metrics.iter().zip(looked).zip(holds);
    each.map(|((metric, (effect, _)), holds)| OtherMetric {
        name: metric.name.clone(),
        effect,
        note: switch::word(effect, holds, metric.higher_is_better).to_owned(),
    })
    .collect()
}

/// The change of a metric between the ends, and a p-value that holds however often it is looked at.
fn other(facts: &Facts<'_>, metric: &crate::Metric) -> (Option<Effect>, f64) {
    let history = facts.history;
    let level = |end: &CommitId| -> Vec<f64> {
        let mut boots: Vec<f64> = facts
            .record
            .observations
            .iter()
            .filter(|o| o.kernel.is_plain() && o.kernel.commit == *end)
            .filter_map(|o| match &o.outcome {
                Outcome::Measured { others, .. } => others.get(&metric.name),
                _ => None,
            })
            .map(|values| {
                let (Value::Exact(first) | Value::AtLeast(first) | Value::AtMost(first)) =
                    values.first().copied().unwrap_or(Value::Exact(f64::NAN));
                let numbers: Vec<f64> = values
                    .iter()
                    .map(|v| match v {
                        Value::Exact(x) | Value::AtLeast(x) | Value::AtMost(x) => *x,
                    })
                    .collect();
                if numbers.is_empty() { first } else { mean(&numbers) }
            })
            .filter(|x| x.is_finite() && (metric.may_be_zero || *x > 0.0))
            .collect();
        boots.sort_by(f64::total_cmp);
        boots
    };
    let (good, bad) = (level(history.good()), level(history.bad()));
    let effect = (good.len() >= 2 && bad.len() >= 2).then(|| {
        let (a, b) = (mean(&good), mean(&bad));
        let unit = if metric.may_be_zero || a == 0.0 {
            1.0
        } else {
            100.0 / a
        };
        let sd = libm::sqrt(variance(&good) / good.len() as f64 + variance(&bad) / bad.len() as f64);
        let reach = t95((good.len() + bad.len() - 2) as f64) * sd;
        Effect {
            pct: unit * (b - a),
            ci95_pct: (unit * (b - a - reach), unit * (b - a + reach)),
        }
    });
    (effect, switch::always_valid_p(&good, &bad))
}

/// Kernels, boots and seconds until the end, from the bits that are missing and the rate of the next step.
pub fn remaining(facts: &Facts<'_>, belief: Option<&Belief>, rate: Option<(f64, f64)>, d: f64) -> Remaining {
    let bits = belief.map_or_else(
        || libm::log2(facts.history.candidates().max(1) as f64),
        |b| {
            (1..b.classes.len())
                .map(|k| class_bits(b.probability[k], b.classes.members(k).len()))
                .sum::<f64>()
        },
    );
    let kernels = bits.ceil().max(0.0);
    // Boots a bit: 2 ln(1/eps) / d^2 for a decision with error eps = 1e-3, at least one; two kernels confirmed.
    let boots_a_kernel = (13.8 / (d * d).max(0.1)).clamp(1.0, 40.0);
    let boots = (kernels + 2.0) * boots_a_kernel;
    let costs = &facts.record.policy.costs;
    let by_count = kernels * costs.build_s.max(0.0) + boots * facts.boot_s(3);
    let confirming = 2.0 * boots_a_kernel * facts.boot_s(3);
    let time_s = match rate {
        Some((rate, _)) if rate > 0.0 => (bits / rate + confirming).min(4.0 * by_count.max(1.0)),
        _ => by_count,
    };
    Remaining {
        kernels: kernels as u32,
        boots: boots.ceil() as u32,
        // Beyond any double where the costs given are: still a number.
        time_s: time_s.clamp(0.0, f64::MAX),
    }
}

fn class_bits(probability: f64, members: usize) -> f64 {
    if probability <= 0.0 {
        return 0.0;
    }
    let own = if probability < 1.0 {
        -probability * libm::log2(probability)
    } else {
        0.0
    };
    own + probability * libm::log2(members.max(1) as f64) * coin_bits(0.5)
}

pub fn blank(status: Status) -> Conclusion {
    Conclusion {
        status,
        first_bad: Vec::new(),
        improved: Vec::new(),
        suspects: Vec::new(),
        confidence: 0.0,
        size_confidence: None,
        effect_pct: None,
        ci95_pct: None,
        share_of_loss: None,
        machines: Vec::new(),
        not_reproduced_on: Vec::new(),
        checks: Vec::new(),
        notes: Vec::new(),
    }
}

/// Names of machines that took part, and of those whose ends show no loss beside one that does.
pub fn name_machines(facts: &Facts<'_>, looks: &[Look], conclusion: &mut Conclusion) {
    let name = |l: &&Look| facts.machines[l.machine].id.clone();
    let any_loss = looks.iter().any(|l| l.ends == Ends::Loss);
    conclusion.machines = looks
        .iter()
        .filter(|l| l.boots > 0 && (!any_loss || l.ends == Ends::Loss))
        .map(|l| name(&l))
        .collect();
    if any_loss {
        let silent = looks
            .iter()
            .filter(|l| matches!(l.ends, Ends::Same | Ends::Small | Ends::Gain));
        conclusion.not_reproduced_on = silent.map(|l| name(&l)).collect();
    }
}

/// The conclusion of a finished search.
pub fn conclude(facts: &Facts<'_>, looks: &[Look], found: &[Found], total: Option<f64>) -> Conclusion {
    let scale = &facts.scale;
    let is_loss = |c: &&Change| c.loss > 0.0;
    let changes: Vec<&Change> = found
        .iter()
        .filter_map(|f| match f {
            Found::Change(c) => Some(c),
            Found::Undecided { .. } => None,
        })
        .collect();
    let mut losses: Vec<&Change> = changes.iter().copied().filter(|c| is_loss(c)).collect();
    losses.sort_by(|a, b| a.members.cmp(&b.members));
    let single = |c: &&&Change| c.members.len() == 1;
    let gains: Vec<&Change> = changes.iter().copied().filter(|c| !is_loss(c)).collect();
    let ids = |list: &[&Change]| -> Vec<CommitId> {
        let mut places: Vec<u32> = list.iter().filter(single).map(|c| c.members[0]).collect();
        places.sort_unstable();
        places.dedup();
        places.into_iter().map(|p| facts.history.id(p).clone()).collect()
    };
    let (first_bad, improved) = (ids(&losses), ids(&gains));
    let status = match (first_bad.len(), losses.len(), gains.len()) {
        (_, 0, _) => Status::Inconclusive,
        (0, ..) => Status::CulpritRange,
        (1, _, _) => Status::CulpritFound,
        (_, _, 0) => Status::CulpritsFound,
        _ => Status::SeveralChanges,
    };
    let mut conclusion = blank(status);
    let main = losses.iter().max_by(|a, b| {
        let loss = |c: &Change| scale.loss(c.effect.difference);
        (a.members.len() == 1)
            .cmp(&(b.members.len() == 1))
            .then(loss(a).total_cmp(&loss(b)))
    });
    if let Some(main) = main {
        let effect = &main.effect;
        conclusion.confidence = losses.iter().map(|c| c.probability).fold(1.0, f64::min);
        conclusion.size_confidence = Some(effect.size_confidence);
        conclusion.effect_pct = Some(scale.change(effect.difference));
        conclusion.ci95_pct = Some((scale.change(effect.interval.0), scale.change(effect.interval.1)));
        conclusion.share_of_loss = total.filter(|t| t.abs() > 1e-9).map(|t| effect.difference / t);
        conclusion.checks = effect.checks.clone();
        conclusion.notes = notes(facts, &losses, &gains);
    }
    let mut suspects: Vec<u32> = losses.iter().flat_map(|c| c.members.iter().copied()).collect();
    for one in found {
        if let Found::Undecided {
            suspects: open,
            probability,
        } = one
        {
            if losses.is_empty() {
                suspects.extend(open);
                conclusion.confidence = *probability;
            }
            conclusion.notes.push(format!(
                "undecided among {} commits: more boots tell nothing more",
                open.len()
            ));
        }
    }
    suspects.sort_unstable();
    suspects.dedup();
    conclusion.suspects = suspects
        .into_iter()
        .map(|p| facts.history.id(p).clone())
        .collect();
    (conclusion.first_bad, conclusion.improved) = (first_bad, improved);
    name_machines(facts, looks, &mut conclusion);
    conclusion
}

fn notes(facts: &Facts<'_>, losses: &[&Change], gains: &[&Change]) -> Vec<String> {
    let history = facts.history;
    let mut notes = Vec::new();
    let unit = facts.scale.unit(&facts.record.policy.metric.unit);
    for change in losses {
        notes.extend(change.effect.notes.iter().cloned());
        if let [culprit] = change.members[..] {
            let id = history.id(culprit);
            let parents = &history.commits()[culprit as usize].parents;
            let testable = |p: &CommitId| history.place(p).is_some_and(|p| facts.skip_at(p).is_none());
            if parents.len() > 1 && parents.iter().all(testable) && !history.first_parent() {
                notes.push(format!(
                    "{id} is a merge commit: every parent is good, neither side alone has the loss"
                ));
            }
            if losses.len() > 1 {
                notes.push(format!(
                    "{id}: {:+.2} {unit}",
                    facts.scale.change(change.effect.difference)
                ));
            }
            if change.effect.size_confidence < 0.5 {
                notes.push(format!(
                    "{id} is located, but its loss may be smaller than asked for: size unsure"
                ));
            }
        } else {
            notes.push(format!(
                "{} commits can't be told apart: {}",
                change.members.len(),
                untestable(facts, change)
            ));
        }
        if change.effect.censored {
            notes.push("runs were cut off at a limit: the effect is at least the one given".to_owned());
        }
    }
    for gain in gains {
        let what = match gain.members[..] {
            [one] => history.id(one).to_string(),
            _ => format!("one of {} commits", gain.members.len()),
        };
        notes.push(format!(
            "{what} made it better by {:.2} {unit}: the history is not monotone",
            facts.scale.change(gain.effect.difference).abs()
        ));
    }
    notes.extend(same_binaries(facts));
    notes
}

fn untestable(facts: &Facts<'_>, change: &Change) -> String {
    let skipped = change
        .members
        .iter()
        .filter_map(|&p| facts.skip_at(p).map(|why| (facts.history.id(p), why)));
    let words: Vec<String> = skipped.map(|(id, why)| format!("{id} {why}")).collect();
    if words.is_empty() {
        "no testable kernel parts them".to_owned()
    } else {
        words.join(", ")
    }
}

/// Commits whose kernel is the same binary as a parent's: they can't be to blame.
fn same_binaries(facts: &Facts<'_>) -> Vec<String> {
    let same = facts
        .kernels
        .iter()
        .filter(|k| k.kernel.is_plain() && k.built)
        .filter_map(|kernel| {
            let parents = facts.history.parents(kernel.place).iter();
            let twin = parents
                .filter_map(|&p| facts.plain(p))
                .find(|&p| facts.kernels[p].binary == kernel.binary)?;
            let (id, parent) = (&kernel.kernel.commit, &facts.kernels[twin].kernel.commit);
            Some(format!(
                "{id} is the same binary as its parent {parent}: it can't be to blame"
            ))
        });
    same.collect()
}
