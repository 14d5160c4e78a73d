//! From boots to belief about one span: which candidates may be the culprit, each with its probability.
//!
//! Candidates that the measured kernels cannot tell apart form a class; the bank gives each class a likelihood
//! on each machine, and the machines' likelihoods multiply, for a machine has a level, a noise and an effect of
//! its own. A machine may also show no effect at all (weight [`NULL_MACHINE`]): then it says nothing about the
//! place.

use crate::LookFor;
use crate::bank::{DEAD, Folded, Prior, Row, Settings};
use crate::classes::Classes;
use crate::facts::{Boot, Facts, stage};
use crate::noise;
use crate::prior::{prior, stands_on};
use crate::span::{Base, Span};
use crate::stats::{median, phi};
use std::sync::Arc;

/// Prior standard deviation of what a branch lacks of `low`, on the scale.
const FORK_SD: f64 = 0.05;
/// The same of a kernel that is no end of a pair; and how many of them are listened to.
const OTHER_SD: f64 = 0.3;
const MOST_OTHERS: u32 = 16;
const LEVEL_SD: f64 = 0.15;
/// The prior of the level is centred so many of these from the first boot.
const LEVEL_STEP: f64 = 0.05;
/// Least prior standard deviation of delta; a larger gap between the ends widens it.
const DELTA_SD: f64 = 0.1;
/// Largest offset of an image beside the smallest step, where every step is looked for.
const STEP_OFFSET: f64 = 0.25;
const NULL_MACHINE: f64 = 0.1;
/// Runs in a boot, at most.
pub const MOST_RUNS: u32 = 5;

pub struct MachineBelief {
    pub machine: usize,
    pub p_no_change: f64,
    /// Mean and standard deviation of delta, given a change.
    pub delta: (f64, f64),
    /// Log likelihood of each class, up to a common constant.
    pub log_likelihood: Vec<f64>,
    /// Log evidence of one change, wherever it is; of none where there is no candidate.
    pub evidence: f64,
    /// Boots that were folded.
    pub rows: usize,
    /// Variance of the runs of one boot.
    within: f64,
    pub folded: Arc<Folded>,
}

pub struct Belief {
    pub classes: Arc<Classes>,
    /// Of each class; class 0 is 'no change'.
    pub probability: Vec<f64>,
    pub machines: Vec<MachineBelief>,
    /// Measured kernels on the span: place and which classes they contain.
    pub columns: Vec<(u32, Vec<bool>)>,
    prior: Arc<Prior>,
    class_prior: Vec<f64>,
}

impl Belief {
    pub fn p_no_change(&self) -> f64 {
        self.probability[0]
    }

    /// Whether this candidate may be the culprit at all.
    pub fn possible(&self, place: u32) -> bool {
        self.prior.of[place as usize] > 0.0
    }

    /// Candidates of a class that may be the culprit at all.
    pub fn members(&self, class: usize) -> Vec<u32> {
        let members = self.classes.members(class).iter().copied();
        members.filter(|&p| self.possible(p)).collect()
    }

    /// Only one commit could be the culprit from the first.
    pub fn is_sole(&self) -> bool {
        self.prior.is_sole()
    }

    pub fn class_prior(&self, class: usize) -> f64 {
        self.class_prior[class]
    }

    /// Probability of each candidate by place, given that there is a change.
    pub fn masses(&self) -> Vec<f64> {
        let change = (1.0 - self.p_no_change()).max(1e-300);
        let mut masses = vec![0.0; self.prior.of.len()];
        for class in 1..self.classes.len() {
            if self.class_prior[class] > 0.0 && self.probability[class] > 0.0 {
                let factor = self.probability[class] / change / self.class_prior[class];
                for &p in self.classes.members(class) {
                    masses[p as usize] = factor * self.prior.of[p as usize];
                }
            }
        }
        masses
    }

    /// Probability that a measured kernel contains the culprit, given a change.
    pub fn p_bad(&self, place: u32) -> Option<f64> {
        let (_, contains) = self.columns.iter().find(|c| c.0 == place)?;
        let inside = self.probability.iter().zip(contains).skip(1).filter(|c| *c.1);
        let bad: f64 = inside.map(|c| c.0).sum();
        Some((bad / (1.0 - self.p_no_change()).max(1e-300)).clamp(0.0, 1.0))
    }

    pub fn best_class(&self) -> Option<usize> {
        (1..self.classes.len()).max_by(|&a, &b| {
            let p = &self.probability;
            p[a].total_cmp(&p[b]).then_with(|| b.cmp(&a))
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

    /// Variance of a boot of so many runs about its image's level.
    pub fn boot_variance(&self, runs: u32) -> f64 {
        let three = self.boot_sd() * self.boot_sd();
        noise::boot_variance(three, self.within, runs)
    }

    /// Variance of the mean of these boots.
    pub fn mean_variance(&self, facts: &Facts<'_>, boots: &[usize]) -> f64 {
        let of = |&b: &usize| self.boot_variance(facts.boots[b].counted);
        boots.iter().map(of).sum::<f64>() / (boots.len() * boots.len()).max(1) as f64
    }

    /// Runs that a boot should have to tell most for its time, warm-up included: `sqrt(c_boot sigma^2 / c_run tau^2)`
    /// (Cochran 1977, 10.6: the optimum of two-stage sampling).
    pub fn best_runs(&self, facts: &Facts<'_>) -> u32 {
        let between = noise::between(self.boot_sd() * self.boot_sd(), self.within).max(0.15 * self.within);
        let costs = &facts.record.policy.costs;
        let ratio = costs.boot_s * self.within / (costs.run_s * between);
        let runs = if ratio.is_finite() && self.within > 0.0 {
            libm::sqrt(ratio.max(0.0))
        } else {
            1.0
        };
        libm::round(runs).clamp(1.0, f64::from(MOST_RUNS)) as u32 + facts.summaries.warm_up
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
    let prior = prior(facts, span);
    let classes = facts.memo.borrow_mut().classes(facts.history, span, &columns);
    let contains = contains(facts, span, &columns, &classes);
    let class_prior: Vec<f64> = (0..classes.len())
        .map(|k| match k {
            0 => prior.none,
            _ => classes.members(k).iter().map(|&p| prior.of[p as usize]).sum(),
        })
        .collect();
    let scene = Scene {
        facts,
        span,
        columns: &columns,
        prior: &prior,
        classes: &classes,
        class_prior: &class_prior,
    };
    let machines: Vec<MachineBelief> = use_machines.iter().filter_map(|&m| scene.fold(m)).collect();
    let probability = combine(&machines, &class_prior);
    Belief {
        probability,
        machines,
        columns: columns.into_iter().zip(contains).collect(),
        classes,
        prior,
        class_prior,
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

fn contains(facts: &Facts<'_>, span: &Span, columns: &[u32], classes: &Classes) -> Vec<Vec<bool>> {
    let of = |&column: &u32| -> Vec<bool> {
        if !span.has(column) {
            return vec![false; classes.len()];
        }
        let above = facts.ancestors(column);
        let inside = |k| {
            classes
                .members(k)
                .first()
                .is_some_and(|&p| above.contains(p as usize))
        };
        (0..classes.len()).map(inside).collect()
    };
    columns.iter().map(of).collect()
}

/// What the fold of each machine has in common.
struct Scene<'a> {
    facts: &'a Facts<'a>,
    span: &'a Span,
    columns: &'a [u32],
    prior: &'a Arc<Prior>,
    classes: &'a Classes,
    class_prior: &'a [f64],
}

impl Scene<'_> {
    fn fold(&self, machine: usize) -> Option<MachineBelief> {
        let rows = self.rows(machine);
        if rows.is_empty() {
            return None;
        }
        let settings = self.settings(&rows);
        let mut memo = self.facts.memo.borrow_mut();
        let bank = memo.bank(
            self.facts.history,
            self.span,
            machine,
            settings,
            self.prior,
            &rows,
        );
        let folded = bank.folded();
        let node = |k: usize| match self.classes.members(k).first() {
            None => bank.none() as u32,
            Some(&p) => bank.node_of(p),
        };
        let nodes: Vec<u32> = (0..self.classes.len()).map(node).collect();
        let told = |n: &u32| match *n {
            DEAD => f64::NEG_INFINITY,
            n => folded.log_likelihood[n as usize],
        };
        let moments = |n: &u32| match *n {
            DEAD => (0.0, 0.0),
            n => folded.delta[n as usize],
        };
        let log_likelihood: Vec<f64> = nodes.iter().map(told).collect();
        let deltas: Vec<(f64, f64)> = nodes.iter().map(moments).collect();
        let (p_no_change, delta) = summary(&log_likelihood, &deltas, self.class_prior);
        Some(MachineBelief {
            machine,
            p_no_change,
            delta,
            evidence: evidence(&log_likelihood, self.class_prior),
            rows: rows.len(),
            within: self.facts.summaries.within(),
            log_likelihood,
            folded,
        })
    }

    /// The boots of one machine that stand on the span: kernels measured on it, and fork points that they need.
    /// Of a pair all others too, each with a level of its own: they teach noise, not place.
    fn rows(&self, machine: usize) -> Vec<Row> {
        let (facts, span) = (self.facts, self.span);
        let forked = |b: &Base| matches!(b, Base::Fork(_) | Base::Outside);
        let used: Vec<Base> = self
            .columns
            .iter()
            .map(|&c| span.base(c))
            .filter(forked)
            .collect();
        let (mut images, mut forks, mut others) = (Vec::new(), Vec::new(), Vec::new());
        let mut row = |boot: &Boot| {
            let kernel = &facts.kernels[boot.kernel];
            let base = span.base(kernel.place);
            let column = self.columns.contains(&kernel.place);
            let fork_point = base != Base::Outside && used.contains(&base);
            let stands = kernel.kernel.is_plain() && (column || fork_point);
            let fork = match (stands, span.is_pair()) {
                (true, _) => (base != Base::Low).then(|| number(&mut forks, base)),
                (false, true) => Some(number(&mut others, kernel.binary)).filter(|n| *n < MOST_OTHERS),
                (false, false) => None,
            };
            if !stands && fork.is_none() {
                return None;
            }
            Some(Row {
                y: boot.y.clamp(-1e9, 1e9),
                hours: boot.at_s / 3600.0,
                runs: boot.counted,
                image: number(&mut images, kernel.binary),
                column: if stands { kernel.place } else { u32::MAX },
                fork,
                cut: boot.cut,
            })
        };
        let boots = facts.boots.iter().filter(|b| b.machine == machine);
        boots.filter_map(&mut row).collect()
    }

    /// Assumptions before the first boot, from the first boots: in coarse steps, so that they seldom change.
    fn settings(&self, rows: &[Row]) -> Settings {
        let first = &rows[..stage(rows.len())];
        let at =
            |place: u32| -> Vec<f64> { first.iter().filter(|r| r.column == place).map(|r| r.y).collect() };
        let (low, high) = (at(self.span.low), at(self.span.high));
        let all: Vec<f64> = first.iter().map(|r| r.y).collect();
        let level = median(if low.is_empty() { &all } else { &low });
        // In steps from the first boot, so that the scale's origin (the metric's unit) does not matter.
        let origin = first[0].y;
        let level_mean = origin + libm::round((level - origin) / LEVEL_STEP) * LEVEL_STEP;
        let gap = if low.is_empty() || high.is_empty() {
            0.0
        } else {
            (median(&high) - median(&low)).abs()
        };
        let range = all.iter().map(|y| (y - level_mean).abs()).fold(0.0, f64::max);
        Settings {
            level_mean,
            level_sd: doubled(LEVEL_SD, range),
            delta_sd: doubled(DELTA_SD, gap),
            fork_sd: if self.span.is_pair() { OTHER_SD } else { FORK_SD },
            outlier_sd: doubled(noise::OUTLIER_SD, range),
            least_s: noise::least(0.85 * self.facts.summaries.sigma_within / libm::sqrt(3.0)),
            within: self.facts.summaries.within(),
            most_offset: match self.facts.record.policy.look_for {
                // Two images as they are: one commit between them leaves nothing else to tell an offset from.
                _ if self.span.is_pair() || self.prior.is_sole() => 0.0,
                LookFor::First => f64::INFINITY,
                // An offset as large as a step is none to be told from a change and its undoing.
                LookFor::All => STEP_OFFSET * self.facts.scale.least,
            },
        }
    }
}

/// `from`, doubled until it reaches `to`.
fn doubled(from: f64, to: f64) -> f64 {
    let mut value = from;
    while value < to {
        value *= 2.0;
    }
    value
}

/// The number of `what` among those seen, by first appearance.
fn number<T: PartialEq>(seen: &mut Vec<T>, what: T) -> u32 {
    let at = seen.iter().position(|s| *s == what).unwrap_or_else(|| {
        seen.push(what);
        seen.len() - 1
    });
    at as u32
}

/// `P(no change)`, and the moments of delta given a change.
fn summary(log_likelihood: &[f64], deltas: &[(f64, f64)], prior: &[f64]) -> (f64, (f64, f64)) {
    let weights = normalised(log_likelihood, prior);
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
    (weights[0], mixed(deltas))
}

fn evidence(log_likelihood: &[f64], prior: &[f64]) -> f64 {
    let changes: f64 = prior.iter().skip(1).sum();
    if changes <= 0.0 {
        return log_likelihood[0];
    }
    let all = log_likelihood
        .iter()
        .zip(prior)
        .skip(1)
        .filter(|(_, p)| **p > 0.0);
    let terms: Vec<f64> = all.map(|(l, p)| l + libm::log(p / changes)).collect();
    log_sum(&terms)
}

/// `ln sum exp`.
fn log_sum(terms: &[f64]) -> f64 {
    let best = terms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if best == f64::NEG_INFINITY {
        return -1e6;
    }
    best + libm::log(terms.iter().map(|t| libm::exp(t - best)).sum::<f64>())
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
        let own = &machine.log_likelihood;
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
