//! The bank: one small Kalman filter per class of culprits and noise hypothesis, folded over boots by time.
//!
//! A class is a set of candidates that the measured kernels cannot tell apart; class 0 is 'no change'. Given a
//! class and a [`Cell`], a boot is
//!
//! ```text
//! y = level + [kernel contains the culprit] delta + offset of its fork + offset of its image + trend t + noise
//! ```
//!
//! with Gaussian priors on all unknowns, so the state `(level, delta, trend, slots...)` has a closed-form
//! posterior; noise that is a mixture is collapsed to its first two moments after each boot (Harrison and
//! Stevens 1976, 'GPB1'). Since every component updates along the same direction `P H'`, a boot costs one
//! rank-one update. Offsets live in slots that are taken at an image's first boot and given back at its last.
//! Filters of classes that no boot has told apart yet are one and the same, copied where a kernel first splits
//! them. Hypotheses far behind the best are dropped at fixed places of the sorted order, so the order of
//! arrival cannot matter.

mod moments;
mod slots;

use crate::noise::{Cell, Drift, Part, TREND_SD};
use moments::gather;
use slots::{Slot, slots};

const LEVEL: usize = 0;
const DELTA: usize = 1;
const TREND: usize = 2;
const FIXED: usize = 3;

/// Log weight behind the best at which a noise hypothesis is dropped, and every how many boots that is done.
const DROP_CELL: f64 = 10.0;
/// Log weight behind the best at which one class loses one of its noise hypotheses.
const DROP_STATE: f64 = 23.0;
const DROP_EVERY: usize = 4;

/// Prior of an offset that nothing ties down: a kernel of another branch, or laid out anew.
const FREE_SD: f64 = 0.3;

/// One boot as the filters see it.
#[derive(Clone, Debug)]
pub struct Row {
    pub y: f64,
    pub hours: f64,
    /// Variance of this boot's noise relative to a boot of three runs.
    pub variance_factor: f64,
    pub image: usize,
    pub stands: Stands,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stands {
    /// On the span's line: the column of classes that it contains, and the fork whose offset it carries.
    On { column: usize, fork: Option<usize> },
    /// Elsewhere: teaches noise, not place.
    Off,
}

pub struct Model<'a> {
    pub shapes: &'a [(Vec<Part>, f64)],
    pub cells: Vec<Cell>,
    pub level_mean: f64,
    pub level_sd: f64,
    pub delta_sd: f64,
    pub fork_sd: f64,
    /// `contains[column][class]`: does the kernel of that column contain the class's culprit?
    pub contains: &'a [Vec<bool>],
    pub class_prior: &'a [f64],
}

/// What the boots of one machine say.
#[derive(Clone, Debug)]
pub struct Folded {
    /// Log likelihood of each class, up to a common constant.
    pub log_likelihood: Vec<f64>,
    /// Posterior mean and variance of delta in each class.
    pub delta: Vec<(f64, f64)>,
    /// Posterior means over everything: of `s^2`, `kappa^2`, walk variance an hour, outliers, two modes, any drift.
    pub s2: f64,
    pub kappa2: f64,
    pub walk2: f64,
    /// Square of a linear trend's slope, an hour: predicted, so no reason to look again.
    pub slope2: f64,
    pub outliers: f64,
    pub two_modes: f64,
    pub drifts: f64,
    pub mode_spread: f64,
}

#[derive(Clone)]
struct State {
    cell: usize,
    log_weight: f64,
    m: Vec<f64>,
    p: Vec<f64>,
}

#[derive(Clone)]
struct Node {
    classes: Vec<usize>,
    states: Vec<State>,
}

pub fn fold(rows: &[Row], model: &Model<'_>) -> Folded {
    let slots = slots(rows);
    let size = FIXED + slots.count;
    let cells = &model.cells;
    let start = |(number, cell): (usize, &Cell)| {
        let mut state = State {
            cell: number,
            log_weight: 0.0,
            m: vec![0.0; size],
            p: vec![0.0; size * size],
        };
        state.m[LEVEL] = model.level_mean;
        state.p[LEVEL * size + LEVEL] = model.level_sd * model.level_sd;
        state.p[DELTA * size + DELTA] = model.delta_sd * model.delta_sd;
        if cell.drift == Drift::Trend {
            state.p[TREND * size + TREND] = TREND_SD * TREND_SD;
        }
        state
    };
    let classes: Vec<usize> = (0..model.class_prior.len())
        .filter(|&k| model.class_prior[k] > 0.0)
        .collect();
    let mut nodes = vec![Node {
        classes,
        states: cells.iter().enumerate().map(start).collect(),
    }];
    let mut seen = vec![false; model.contains.len()];
    let origin = rows.first().map_or(0.0, |r| r.hours);
    let mut before = origin;
    for (i, row) in rows.iter().enumerate() {
        if let Stands::On { column, .. } = row.stands
            && !std::mem::replace(&mut seen[column], true)
        {
            nodes = split(nodes, &model.contains[column]);
        }
        let place = Place {
            row,
            size,
            image: slots.image[i],
            fork: slots.fork[i],
        };
        let time = Time {
            step: (row.hours - before).max(0.0),
            since: row.hours - origin,
        };
        before = row.hours;
        for node in &mut nodes {
            let bad = match row.stands {
                Stands::On { column, .. } => node.classes.first().is_some_and(|&k| model.contains[column][k]),
                Stands::Off => false,
            };
            for state in &mut node.states {
                step(state, &cells[state.cell], &place, &time, bad, model);
            }
        }
        if i % DROP_EVERY == DROP_EVERY - 1 {
            drop_far(&mut nodes, cells, model.class_prior);
        }
    }
    gather(&nodes, model, size)
}

struct Place<'a> {
    row: &'a Row,
    size: usize,
    image: Slot,
    fork: Option<Slot>,
}

struct Time {
    step: f64,
    since: f64,
}

fn split(nodes: Vec<Node>, contains: &[bool]) -> Vec<Node> {
    let mut all = Vec::with_capacity(nodes.len() + 2);
    for node in nodes {
        let (with, without): (Vec<usize>, Vec<usize>) = node.classes.iter().partition(|&&k| contains[k]);
        if with.is_empty() || without.is_empty() {
            all.push(node);
        } else {
            all.push(Node {
                classes: without,
                states: node.states.clone(),
            });
            all.push(Node {
                classes: with,
                states: node.states,
            });
        }
    }
    all
}

/// The sparse row H of a boot: indices with coefficients.
struct Sight {
    at: [(usize, f64); 5],
    len: usize,
}

impl Sight {
    fn see(&mut self, index: usize, coefficient: f64) {
        self.at[self.len] = (index, coefficient);
        self.len += 1;
    }

    fn seen(&self) -> &[(usize, f64)] {
        &self.at[..self.len]
    }
}

fn clear_slot(state: &mut State, size: usize, index: usize) {
    for j in 0..size {
        state.p[index * size + j] = 0.0;
        state.p[j * size + index] = 0.0;
    }
    state.m[index] = 0.0;
}

fn step(state: &mut State, cell: &Cell, place: &Place<'_>, time: &Time, bad: bool, model: &Model<'_>) {
    let size = place.size;
    if let Drift::Walk(q) = cell.drift {
        state.p[LEVEL * size + LEVEL] += q * cell.s * cell.s * time.step;
    }
    let mut sight = Sight {
        at: [(0, 0.0); 5],
        len: 0,
    };
    sight.see(LEVEL, 1.0);
    if bad {
        sight.see(DELTA, 1.0);
    }
    if cell.drift == Drift::Trend {
        sight.see(TREND, time.since);
    }
    let image_sd = match place.row.stands {
        Stands::Off => FREE_SD,
        Stands::On { .. } => cell.kappa,
    };
    let offsets = [
        (image_sd > 0.0).then_some((place.image, image_sd)),
        place.fork.map(|slot| (slot, model.fork_sd)),
    ];
    for (slot, sd) in offsets.into_iter().flatten() {
        let index = FIXED + slot.index;
        if slot.opens {
            state.p[index * size + index] = sd * sd;
        }
        sight.see(index, 1.0);
    }
    update(state, size, &sight, place.row, cell, &model.shapes[cell.shape].0);
    for (slot, _) in offsets.into_iter().flatten().filter(|o| o.0.closes) {
        clear_slot(state, size, FIXED + slot.index);
    }
}

fn update(state: &mut State, size: usize, sight: &Sight, row: &Row, cell: &Cell, parts: &[Part]) {
    // g = P H', S = H P H', e = y - H m
    let mut short = [0.0f64; 32];
    let mut long;
    let g: &mut [f64] = if size <= short.len() {
        &mut short[..size]
    } else {
        long = vec![0.0; size];
        &mut long
    };
    let (mut spread, mut error) = (0.0, row.y);
    for &(h, c) in sight.seen() {
        for (g, p) in g.iter_mut().zip(&state.p[h * size..(h + 1) * size]) {
            *g += c * p;
        }
        error -= c * state.m[h];
    }
    for &(h, c) in sight.seen() {
        spread += c * g[h];
    }
    let noise = cell.s * cell.s * row.variance_factor;
    let (mut likelihood, mut first, mut second, mut inverse) = (0.0, 0.0, 0.0, 0.0);
    for part in parts {
        let e = error - part.offset * cell.s;
        let v = spread + noise + part.extra;
        let weight = part.weight * libm::exp(-0.5 * e * e / v) / libm::sqrt(v);
        likelihood += weight;
        first += weight * e / v;
        second += weight * (e / v) * (e / v);
        inverse += weight / v;
    }
    if likelihood.is_nan() || likelihood <= 1e-290 {
        // Beyond what any part explains: nothing is learned, so that nothing becomes infinite.
        state.log_weight -= 668.0;
        return;
    }
    state.log_weight += libm::log(likelihood);
    let (first, second, inverse) = (first / likelihood, second / likelihood, inverse / likelihood);
    let shrink = inverse - (second - first * first);
    for (i, &gi) in g.iter().enumerate() {
        // Most of the state is empty for most cells: no trend, no offsets.
        if gi == 0.0 {
            continue;
        }
        state.m[i] += gi * first;
        let pull = gi * shrink;
        for (p, gj) in state.p[i * size..(i + 1) * size].iter_mut().zip(g.iter()) {
            *p -= pull * gj;
        }
    }
}

fn prior_of(node: &Node, class_prior: &[f64]) -> f64 {
    node.classes.iter().map(|&k| class_prior[k]).sum()
}

fn drop_far(nodes: &mut Vec<Node>, cells: &[Cell], class_prior: &[f64]) {
    let weighed = |node: &Node| -> Vec<f64> {
        let prior = libm::log(prior_of(node, class_prior));
        let states = node.states.iter();
        states
            .map(|s| prior + cells[s.cell].log_prior + s.log_weight)
            .collect()
    };
    let mut best_of = vec![f64::NEG_INFINITY; cells.len()];
    for node in nodes.iter() {
        for (state, weight) in node.states.iter().zip(weighed(node)) {
            best_of[state.cell] = best_of[state.cell].max(weight);
        }
    }
    let best = best_of.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    for node in nodes.iter_mut() {
        let own = weighed(node);
        // 'No change' is never dropped: it is asked for until the end. Its best noise may be none of the others'.
        let own_best = own.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (bar, keep) = if node.classes.contains(&0) {
            (own_best - DROP_CELL, own_best)
        } else {
            (best - DROP_STATE, f64::INFINITY)
        };
        let mut own = own.into_iter();
        node.states.retain(|s| {
            let weight = own.next().unwrap_or(f64::NEG_INFINITY);
            weight >= keep
                || (best_of[s.cell] >= best - DROP_CELL && (weight >= bar || weight >= best - DROP_STATE))
        });
    }
    nodes.retain(|n| !n.states.is_empty());
}
