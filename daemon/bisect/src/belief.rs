//! From boots to belief about one span: which candidates may be the culprit, each with its probability.
//!
//! Candidates that the measured kernels cannot tell apart form a class; the bank gives each class a likelihood
//! on each machine, and the machines' likelihoods multiply, for a machine has a level, a noise and an effect of
//! its own. A machine may also show no effect at all (weight [`NULL_MACHINE`]): then it says nothing about the
//! place.

use crate::bank::{self, Folded, Model, Row, Stands};
use crate::facts::{Boot, Facts};
use crate::noise;
use crate::span::{Base, Span};
use crate::stats::{median, phi};
use std::collections::{BTreeMap, HashMap};

/// Prior probability that the ends do not differ.
pub const NO_CHANGE: f64 = 0.2;
/// A merge that changes nothing by itself is rarely the culprit, but may be.
const MERGE_WEIGHT: f64 = 0.2;
/// Prior standard deviation of what a branch lacks of `low`, on the scale.
const FORK_SD: f64 = 0.05;
const LEVEL_SD: f64 = 0.15;
/// Least prior standard deviation of delta; a larger gap between the ends widens it.
const DELTA_SD: f64 = 0.1;
const NULL_MACHINE: f64 = 0.1;

pub struct Class {
    /// Places of its candidates, rising; empty for 'no change'.
    pub members: Vec<u32>,
    pub probability: f64,
}

pub struct MachineBelief {
    pub machine: usize,
    pub p_no_change: f64,
    /// Mean and standard deviation of delta, given a change.
    pub delta: (f64, f64),
    pub folded: Folded,
}

pub struct Belief {
    /// Class 0 is 'no change'.
    pub classes: Vec<Class>,
    pub machines: Vec<MachineBelief>,
    /// Measured kernels on the span: place and which classes they contain.
    pub columns: Vec<(u32, Vec<bool>)>,
    /// Prior weight of each candidate by place (0 elsewhere).
    pub weight: Vec<f64>,
    class_of: Vec<u32>,
    class_weight: Vec<f64>,
}

impl Belief {
    pub fn p_no_change(&self) -> f64 {
        self.classes[0].probability
    }

    /// Probability that this candidate is the culprit.
    pub fn of(&self, place: u32) -> f64 {
        let class = self.class_of[place as usize] as usize;
        if class == 0 || self.class_weight[class] <= 0.0 {
            return 0.0;
        }
        self.classes[class].probability * self.weight[place as usize] / self.class_weight[class]
    }

    /// Probability of each candidate by place, given that there is a change.
    pub fn masses(&self) -> Vec<f64> {
        let change = (1.0 - self.p_no_change()).max(1e-300);
        (0..self.weight.len())
            .map(|p| self.of(p as u32) / change)
            .collect()
    }

    /// Probability that a measured kernel contains the culprit, given a change.
    pub fn p_bad(&self, place: u32) -> Option<f64> {
        let (_, contains) = self.columns.iter().find(|c| c.0 == place)?;
        let bad: f64 = self
            .classes
            .iter()
            .zip(contains)
            .skip(1)
            .filter(|c| *c.1)
            .map(|c| c.0.probability)
            .sum();
        Some((bad / (1.0 - self.p_no_change()).max(1e-300)).clamp(0.0, 1.0))
    }

    pub fn best_class(&self) -> Option<usize> {
        (1..self.classes.len()).max_by(|&a, &b| {
            self.classes[a]
                .probability
                .total_cmp(&self.classes[b].probability)
                .then_with(|| b.cmp(&a))
        })
    }

    pub fn on(&self, machine: usize) -> Option<&MachineBelief> {
        self.machines.iter().find(|m| m.machine == machine)
    }
}

impl MachineBelief {
    /// Standard deviation of one boot of three runs about its image's level. A second mode counts once it is more
    /// likely than not: as a mere possibility it would drown every difference.
    pub fn boot_sd(&self) -> f64 {
        let modes = if self.folded.two_modes > 0.5 {
            self.folded.mode_spread
        } else {
            0.0
        };
        libm::sqrt(self.folded.s2 + modes)
    }

    /// Probability that the loss is at least `least` (in the direction of `sign`), 'no change' counted in.
    pub fn p_loss_at_least(&self, sign: f64, least: f64) -> f64 {
        let (mean, sd) = self.delta;
        (1.0 - self.p_no_change) * phi((sign * mean - least) / sd.max(1e-12))
    }

    /// 95 % interval of delta; it holds 0 where 'no change' keeps 5 %.
    pub fn interval(&self) -> (f64, f64) {
        let (mean, sd) = self.delta;
        let (low, high) = (mean - 1.96 * sd, mean + 1.96 * sd);
        if self.p_no_change > 0.05 {
            (low.min(0.0), high.max(0.0))
        } else {
            (low, high)
        }
    }
}

/// The belief about `span` from the boots of the machines in `use_machines`.
pub fn believe(facts: &Facts<'_>, span: &Span, use_machines: &[usize]) -> Belief {
    let columns = columns(facts, span, use_machines);
    let weight = weights(facts, span);
    let (class_of, mut members, mut contains) = classes(facts, span, &columns);
    let mut class_weight: Vec<f64> = vec![0.0; members.len()];
    for (class, places) in members.iter().enumerate() {
        class_weight[class] = places.iter().map(|&p| weight[p as usize]).sum();
    }
    let total: f64 = class_weight.iter().sum();
    let prior: Vec<f64> = (0..members.len())
        .map(|k| match k {
            // With every candidate excluded nothing else is left.
            0 if total <= 0.0 => 1.0,
            0 => NO_CHANGE,
            _ if total > 0.0 => (1.0 - NO_CHANGE) * class_weight[k] / total,
            _ => 0.0,
        })
        .collect();
    for column in &mut contains {
        column.resize(members.len(), false);
    }
    let mut machines = Vec::new();
    for &machine in use_machines {
        if let Some(belief) = fold_machine(facts, span, machine, &columns, &contains, &prior) {
            machines.push(belief);
        }
    }
    let probability = combine(&machines, &prior);
    let classes = members
        .drain(..)
        .zip(probability)
        .map(|(members, probability)| Class { members, probability });
    let classes = classes.collect();
    let columns = columns.into_iter().zip(contains).collect();
    Belief {
        classes,
        machines,
        columns,
        weight,
        class_of,
        class_weight,
    }
}

/// Places of plain kernels on the span that were measured on these machines, rising.
fn columns(facts: &Facts<'_>, span: &Span, machines: &[usize]) -> Vec<u32> {
    let mut places: Vec<u32> = facts
        .kernels
        .iter()
        .filter(|k| k.kernel.is_plain())
        .filter(|k| {
            k.boots
                .iter()
                .any(|&b| machines.contains(&facts.boots[b].machine))
        })
        .map(|k| k.place)
        .filter(|&p| stands_on(span, p))
        .collect();
    places.sort_unstable();
    places.dedup();
    places
}

fn stands_on(span: &Span, place: u32) -> bool {
    place == span.low || span.has(place)
}

/// Prior weights: what the history says, merges little, and nothing for a commit whose kernel is the same
/// binary as one without it, or that the user's word excludes.
fn weights(facts: &Facts<'_>, span: &Span) -> Vec<f64> {
    let history = facts.history;
    let mut weight = vec![0.0; history.len()];
    for place in span.candidates.ones() {
        let said = history
            .weights()
            .get(history.id(place as u32))
            .copied()
            .unwrap_or(1.0);
        let merge = history.commits()[place].parents.len() > 1 && !history.first_parent();
        weight[place] = said.clamp(1e-9, 1e9) * if merge { MERGE_WEIGHT } else { 1.0 };
    }
    let mut by_binary: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
    for kernel in facts.kernels.iter().filter(|k| k.kernel.is_plain() && k.built) {
        if stands_on(span, kernel.place) {
            by_binary.entry(kernel.binary).or_default().push(kernel.place);
        }
    }
    for places in by_binary.values_mut() {
        places.sort_unstable();
        for pair in places.windows(2) {
            let mut between = history.ancestors(pair[0]);
            between.symmetric_difference_with(&history.ancestors(pair[1]));
            between.ones().for_each(|p| weight[p] = 0.0);
        }
    }
    for &(place, bad) in &facts.words {
        if !stands_on(span, place) {
            continue;
        }
        let above = history.ancestors(place);
        for (p, weight) in weight.iter_mut().enumerate() {
            if above.contains(p) != bad {
                *weight = 0.0;
            }
        }
    }
    weight
}

/// Partition refinement: candidates by which measured kernels contain them.
fn classes(facts: &Facts<'_>, span: &Span, columns: &[u32]) -> (Vec<u32>, Vec<Vec<u32>>, Vec<Vec<bool>>) {
    let n = facts.history.len();
    let mut class_of = vec![0u32; n];
    let mut count = 2u32;
    for place in span.candidates.ones() {
        class_of[place] = 1;
    }
    for &column in columns {
        if !span.has(column) {
            continue;
        }
        let above = facts.history.ancestors(column);
        let mut renamed: HashMap<(u32, bool), u32> = HashMap::new();
        count = 1;
        for place in span.candidates.ones() {
            let key = (class_of[place], above.contains(place));
            let next = *renamed.entry(key).or_insert_with(|| {
                count += 1;
                count - 1
            });
            class_of[place] = next;
        }
    }
    let mut members = vec![Vec::new(); count as usize];
    for place in span.candidates.ones() {
        members[class_of[place] as usize].push(place as u32);
    }
    let contains = columns
        .iter()
        .map(|&column| {
            let above = facts.history.ancestors(column);
            let on = span.has(column);
            members
                .iter()
                .map(|m| on && m.first().is_some_and(|&p| above.contains(p as usize)))
                .collect()
        })
        .collect();
    (class_of, members, contains)
}

fn fold_machine(
    facts: &Facts<'_>,
    span: &Span,
    machine: usize,
    columns: &[u32],
    contains: &[Vec<bool>],
    prior: &[f64],
) -> Option<MachineBelief> {
    let boots: Vec<&Boot> = facts.boots.iter().filter(|b| b.machine == machine).collect();
    if boots.is_empty() {
        return None;
    }
    let mut forks: BTreeMap<Base, usize> = BTreeMap::new();
    let summaries = &facts.summaries;
    let column_of: HashMap<u32, usize> = columns.iter().copied().zip(0..).collect();
    // A fork point below `low` stands on the span too: it contains no candidate and carries its own offset.
    let mut extra_contains = contains.to_vec();
    extra_contains.push(vec![false; prior.len()]);
    let nothing = columns.len();
    let used_forks: Vec<Base> = columns
        .iter()
        .map(|&c| span.base(c))
        .filter(|b| matches!(b, Base::Fork(_) | Base::Outside))
        .collect();
    let rows: Vec<Row> = boots
        .iter()
        .map(|boot| {
            let kernel = &facts.kernels[boot.kernel];
            let base = span.base(kernel.place);
            let column = column_of
                .get(&kernel.place)
                .copied()
                .filter(|_| kernel.kernel.is_plain());
            let is_fork = kernel.kernel.is_plain() && column.is_none() && used_forks.contains(&base);
            let stands = match column.or(is_fork.then_some(nothing)) {
                None => Stands::Off,
                Some(_) if base == Base::Outside && column.is_none() => Stands::Off,
                Some(column) => {
                    let count = forks.len();
                    let fork = (base != Base::Low).then(|| *forks.entry(base).or_insert(count));
                    Stands::On { column, fork }
                }
            };
            let variance_factor = variance_factor(boot.counted, summaries.sigma_within, summaries.sigma_boot);
            Row {
                y: boot.y,
                hours: boot.at_s / 3600.0,
                variance_factor,
                image: kernel.binary,
                stands,
            }
        })
        .collect();
    let at = |place: u32| -> Vec<f64> {
        facts
            .boots_on(place, machine)
            .iter()
            .map(|&b| facts.boots[b].y)
            .collect()
    };
    let (low, high) = (at(span.low), at(span.high));
    let all: Vec<f64> = rows.iter().map(|r| r.y).collect();
    let level_mean = if low.is_empty() {
        median(&all)
    } else {
        median(&low)
    };
    let gap = if low.is_empty() || high.is_empty() {
        0.0
    } else {
        (median(&high) - median(&low)).abs()
    };
    let range = all.iter().map(|y| (y - level_mean).abs()).fold(0.0, f64::max);
    let shapes = noise::shapes(range);
    let model = Model {
        shapes: &shapes,
        cells: noise::cells(
            0.85 * summaries.sigma_within / libm::sqrt(3.0),
            &shapes,
            !span.is_pair(),
        ),
        level_mean,
        level_sd: LEVEL_SD.max(range),
        delta_sd: DELTA_SD.max(gap),
        fork_sd: FORK_SD,
        contains: &extra_contains,
        class_prior: prior,
    };
    let folded = bank::fold(&rows, &model);
    let (p_no_change, delta) = summary(&folded, prior);
    Some(MachineBelief {
        machine,
        p_no_change,
        delta,
        folded,
    })
}

/// Variance of a boot of `runs` runs relative to one of three: `(tau^2 + sigma^2/r) / (tau^2 + sigma^2/3)`.
pub fn variance_factor(runs: u32, sigma_within: f64, sigma_boot: Option<f64>) -> f64 {
    let within = 1.05 * sigma_within * sigma_within;
    let boot = sigma_boot.unwrap_or(0.0);
    let between = (boot * boot - within / 3.0).max(0.15 * within);
    let three = between + within / 3.0;
    if three <= 0.0 {
        1.0
    } else {
        (between + within / f64::from(runs.max(1))) / three
    }
}

/// `P(no change)`, and the moments of delta given a change.
fn summary(folded: &Folded, prior: &[f64]) -> (f64, (f64, f64)) {
    let weights = normalised(&folded.log_likelihood, prior);
    let change: f64 = weights.iter().skip(1).sum();
    let mixed = |moments: &[(f64, f64)]| {
        if change <= 0.0 {
            return (0.0, 0.0);
        }
        let mean: f64 = weights
            .iter()
            .zip(moments)
            .skip(1)
            .map(|(w, m)| w * m.0)
            .sum::<f64>()
            / change;
        let second: f64 = weights
            .iter()
            .zip(moments)
            .skip(1)
            .map(|(w, m)| w * (m.1 + m.0 * m.0))
            .sum::<f64>()
            / change;
        (mean, libm::sqrt((second - mean * mean).max(0.0)))
    };
    (weights[0], mixed(&folded.delta))
}

fn normalised(log_likelihood: &[f64], prior: &[f64]) -> Vec<f64> {
    let log: Vec<f64> = log_likelihood
        .iter()
        .zip(prior)
        .map(|(l, p)| {
            if *p > 0.0 {
                l + libm::log(*p)
            } else {
                f64::NEG_INFINITY
            }
        })
        .collect();
    let best = log.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if !best.is_finite() {
        return prior.to_vec();
    }
    let weights: Vec<f64> = log.iter().map(|l| libm::exp(l - best)).collect();
    let all: f64 = weights.iter().sum();
    weights.into_iter().map(|w| w / all).collect()
}

fn combine(machines: &[MachineBelief], prior: &[f64]) -> Vec<f64> {
    let mut joint = vec![0.0; prior.len()];
    let several = machines.len() > 1;
    for machine in machines {
        let own = &machine.folded.log_likelihood;
        let null = own[0];
        for (k, sum) in joint.iter_mut().enumerate() {
            *sum += match (k, several) {
                (0, _) | (_, false) => own[k],
                _ if own[k].max(null) == f64::NEG_INFINITY => f64::NEG_INFINITY,
                _ => {
                    let best = own[k].max(null);
                    best + libm::log(
                        (1.0 - NULL_MACHINE) * libm::exp(own[k] - best)
                            + NULL_MACHINE * libm::exp(null - best),
                    )
                }
            };
        }
    }
    normalised(&joint, prior)
}
