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

use crate::noise::{Cell, Drift, Part, TREND_SD};

const LEVEL: usize = 0;
const DELTA: usize = 1;
const TREND: usize = 2;
const FIXED: usize = 3;

/// Log weight behind the best at which a noise hypothesis is dropped, and every how many boots that is done.
const DROP_CELL: f64 = 10.0;
const DROP_EVERY: usize = 4;
/// Share below which a class is dropped.
const DROP_CLASS: f64 = 1e-13;

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
    pub outliers: f64,
    pub two_modes: f64,
    pub drifts: f64,
    pub mode_spread: f64,
}

#[derive(Clone)]
struct State {
    log_weight: f64,
    m: Vec<f64>,
    p: Vec<f64>,
}

#[derive(Clone)]
struct Node {
    classes: Vec<usize>,
    states: Vec<State>,
}

/// Where offsets of images and forks live while their boots last.
struct Slots {
    /// For each row: (slot of the image, is its first boot).
    image: Vec<Option<(usize, bool)>>,
    fork: Vec<Option<(usize, bool)>>,
    count: usize,
}

fn slots(rows: &[Row]) -> Slots {
    let mut taken: Vec<Option<usize>> = Vec::new();
    let mut image = vec![None; rows.len()];
    let mut fork = vec![None; rows.len()];
    let last_image = |key: usize| rows.iter().rposition(|r| r.image == key);
    let fork_of = |row: &Row| match row.stands {
        Stands::On { fork, .. } => fork,
        Stands::Off => None,
    };
    let last_fork = |key: usize| rows.iter().rposition(|r| fork_of(r) == Some(key));
    let mut live: Vec<(bool, usize, usize, usize)> = Vec::new(); // is fork, key, slot, last row
    for (i, row) in rows.iter().enumerate() {
        live.retain(|l| {
            let ends = l.3 < i;
            if ends {
                taken[l.2] = None;
            }
            !ends
        });
        let mut place = |is_fork: bool, key: usize, last: usize| -> (usize, bool) {
            if let Some(l) = live.iter().find(|l| l.0 == is_fork && l.1 == key) {
                return (l.2, false);
            }
            let slot = taken.iter().position(Option::is_none).unwrap_or_else(|| {
                taken.push(None);
                taken.len() - 1
            });
            taken[slot] = Some(key);
            live.push((is_fork, key, slot, last));
            (slot, true)
        };
        image[i] = Some(place(false, row.image, last_image(row.image).unwrap_or(i)));
        if let Some(key) = fork_of(row) {
            fork[i] = Some(place(true, key, last_fork(key).unwrap_or(i)));
        }
    }
    Slots {
        image,
        fork,
        count: taken.len(),
    }
}

pub fn fold(rows: &[Row], model: &Model<'_>) -> Folded {
    let slots = slots(rows);
    let size = FIXED + slots.count;
    let mut cells = model.cells.clone();
    let start = |cell: &Cell| {
        let mut state = State {
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
        states: cells.iter().map(start).collect(),
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
            for (state, cell) in node.states.iter_mut().zip(&cells) {
                step(state, cell, &place, &time, bad, model);
            }
        }
        if i % DROP_EVERY == DROP_EVERY - 1 {
            drop_far(&mut nodes, &mut cells, model.class_prior);
        }
    }
    gather(&nodes, &cells, model, size)
}

struct Place<'a> {
    row: &'a Row,
    size: usize,
    image: Option<(usize, bool)>,
    fork: Option<(usize, bool)>,
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

fn open_slot(state: &mut State, size: usize, index: usize, variance: f64) {
    for j in 0..size {
        state.p[index * size + j] = 0.0;
        state.p[j * size + index] = 0.0;
    }
    state.m[index] = 0.0;
    state.p[index * size + index] = variance;
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
    let off = place.row.stands == Stands::Off;
    let image_variance = if off {
        FREE_SD * FREE_SD
    } else {
        cell.kappa * cell.kappa
    };
    if let Some((slot, first)) = place.image
        && image_variance > 0.0
    {
        if first {
            open_slot(state, size, FIXED + slot, image_variance);
        }
        sight.see(FIXED + slot, 1.0);
    }
    if let Some((slot, first)) = place.fork {
        if first {
            open_slot(state, size, FIXED + slot, model.fork_sd * model.fork_sd);
        }
        sight.see(FIXED + slot, 1.0);
    }
    update(state, size, &sight, place.row, cell, &model.shapes[cell.shape].0);
}

fn update(state: &mut State, size: usize, sight: &Sight, row: &Row, cell: &Cell, parts: &[Part]) {
    // g = P H', S = H P H', e = y - H m
    let mut g = [0.0f64; 64];
    let mut g_long;
    let g: &mut [f64] = if size <= 64 {
        &mut g[..size]
    } else {
        g_long = vec![0.0; size];
        &mut g_long
    };
    let (mut spread, mut error) = (0.0, row.y);
    for &(h, c) in sight.seen() {
        for i in 0..size {
            g[i] += c * state.p[h * size + i];
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
    if !(likelihood > 1e-290) {
        // Beyond what any part explains: the widest part takes it, so that nothing becomes infinite.
        state.log_weight -= 668.0;
        return;
    }
    state.log_weight += libm::log(likelihood);
    let (first, second, inverse) = (first / likelihood, second / likelihood, inverse / likelihood);
    let shrink = inverse - (second - first * first);
    for i in 0..size {
        if g[i] == 0.0 {
            continue;
        }
        state.m[i] += g[i] * first;
        let gi = g[i] * shrink;
        for j in 0..size {
            state.p[i * size + j] -= gi * g[j];
        }
    }
}

fn prior_of(node: &Node, class_prior: &[f64]) -> f64 {
    node.classes.iter().map(|&k| class_prior[k]).sum()
}

fn drop_far(nodes: &mut Vec<Node>, cells: &mut Vec<Cell>, class_prior: &[f64]) {
    let log_prior: Vec<f64> = nodes
        .iter()
        .map(|n| libm::log(prior_of(n, class_prior)))
        .collect();
    let mut best_of = vec![f64::NEG_INFINITY; cells.len()];
    for (node, prior) in nodes.iter().zip(&log_prior) {
        for (i, state) in node.states.iter().enumerate() {
            best_of[i] = best_of[i].max(prior + cells[i].log_prior + state.log_weight);
        }
    }
    let best = best_of.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let keep: Vec<bool> = best_of.iter().map(|b| *b >= best - DROP_CELL).collect();
    let mut k = keep.iter();
    cells.retain(|_| *k.next().unwrap_or(&true));
    for node in nodes.iter_mut() {
        let mut k = keep.iter();
        node.states.retain(|_| *k.next().unwrap_or(&true));
    }
    // A class is only dropped for itself, 'no change' never: it is asked for until the end.
    let weight = |node: &Node, prior: f64| {
        node.states
            .iter()
            .zip(cells.iter())
            .map(|(s, c)| libm::exp((prior + c.log_prior + s.log_weight - best).max(-700.0)))
            .sum::<f64>()
    };
    let weights: Vec<f64> = nodes.iter().zip(&log_prior).map(|(n, p)| weight(n, *p)).collect();
    let all: f64 = weights.iter().sum();
    let mut w = weights.iter();
    nodes.retain(|n| w.next().is_none_or(|w| *w >= DROP_CLASS * all) || n.classes.contains(&0));
}

fn gather(nodes: &[Node], cells: &[Cell], model: &Model<'_>, size: usize) -> Folded {
    let classes = model.class_prior.len();
    let mut folded = Folded {
        log_likelihood: vec![f64::NEG_INFINITY; classes],
        delta: vec![(0.0, model.delta_sd * model.delta_sd); classes],
        s2: 0.0,
        kappa2: 0.0,
        walk2: 0.0,
        outliers: 0.0,
        two_modes: 0.0,
        drifts: 0.0,
        mode_spread: 0.0,
    };
    let best = nodes
        .iter()
        .flat_map(|n| {
            n.states
                .iter()
                .zip(cells)
                .map(|(s, c)| s.log_weight + c.log_prior)
        })
        .fold(f64::NEG_INFINITY, f64::max);
    if !best.is_finite() {
        folded.log_likelihood = vec![0.0; classes];
        return folded;
    }
    let mut all = 0.0;
    for node in nodes {
        let mut here = Moments::default();
        for (state, cell) in node.states.iter().zip(cells) {
            let w = libm::exp((state.log_weight + cell.log_prior - best).max(-700.0));
            here.add(w, state, cell, size, &model.shapes[cell.shape].0);
        }
        let prior = prior_of(node, model.class_prior);
        all += prior * here.weight;
        folded.s2 += prior * here.s2;
        folded.kappa2 += prior * here.kappa2;
        folded.walk2 += prior * here.walk2;
        folded.outliers += prior * here.outliers;
        folded.two_modes += prior * here.two_modes;
        folded.drifts += prior * here.drifts;
        folded.mode_spread += prior * here.mode_spread;
        for &k in &node.classes {
            folded.log_likelihood[k] = libm::log(here.weight.max(1e-300));
            folded.delta[k] = here.delta();
        }
    }
    for sum in [
        &mut folded.s2,
        &mut folded.kappa2,
        &mut folded.walk2,
        &mut folded.outliers,
        &mut folded.two_modes,
        &mut folded.drifts,
        &mut folded.mode_spread,
    ] {
        *sum /= all.max(1e-300);
    }
    folded
}

#[derive(Default)]
struct Moments {
    weight: f64,
    d1: f64,
    d2: f64,
    s2: f64,
    kappa2: f64,
    walk2: f64,
    outliers: f64,
    two_modes: f64,
    drifts: f64,
    mode_spread: f64,
}

impl Moments {
    fn add(&mut self, w: f64, state: &State, cell: &Cell, size: usize, parts: &[Part]) {
        let s2 = cell.s * cell.s;
        self.weight += w;
        self.d1 += w * state.m[DELTA];
        self.d2 += w * (state.m[DELTA] * state.m[DELTA] + state.p[DELTA * size + DELTA].max(0.0));
        self.s2 += w * s2;
        self.kappa2 += w * cell.kappa * cell.kappa;
        match cell.drift {
            Drift::Walk(q) => {
                self.walk2 += w * q * s2;
                self.drifts += if q > 0.0 { w } else { 0.0 };
            }
            Drift::Trend => {
                let slope = state.m[TREND];
                self.walk2 += w * slope * slope;
                self.drifts += w;
            }
        }
        self.outliers += w * parts
            .iter()
            .filter(|p| p.extra > 0.0)
            .map(|p| p.weight)
            .sum::<f64>();
        if let [main, second, _] = parts {
            self.two_modes += w;
            // Variance that the second mode adds to a boot whose mode is not known.
            let share = second.weight / (main.weight + second.weight);
            self.mode_spread += w * share * (1.0 - share) * second.offset * second.offset * s2;
        }
    }

    fn delta(&self) -> (f64, f64) {
        let mean = self.d1 / self.weight.max(1e-300);
        (mean, (self.d2 / self.weight.max(1e-300) - mean * mean).max(0.0))
    }
}
