//! The bank: one small Kalman filter per class of culprits and noise hypothesis, folded over boots by time.
//!
//! A node is a set of candidates that no boot has told apart yet (and 'no change', until a boot of the high end
//! parts it off). Given a node and a [`Cell`], a boot is
//!
//! ```text
//! y = level + [kernel contains the culprit] delta + offset of its fork + offset of its image + trend t + noise
//! ```
//!
//! with Gaussian priors on all unknowns, so the state `(level, delta, trend, offsets...)` has a closed-form
//! posterior; noise that is a mixture is collapsed to its first two moments after each boot (Harrison and
//! Stevens 1976, 'GPB1'; the arithmetic is in `tank`). A kernel measured for the first time splits the nodes that
//! hold candidates on both sides of it: their filters were one and the same so far and are copied.
//!
//! The fold is a left fold over rows sorted by time: nothing here looks ahead, hypotheses far behind the best are
//! dropped at fixed places, so a bank that is pushed one more row is bit for bit the bank folded from scratch.
//! What this file must *not* know: where rows come from, and what a probability is used for.

mod moments;
mod tank;

use crate::noise::{Cell, Cells, Drift};
use crate::span::Span;
use fixedbitset::FixedBitSet;
pub use moments::Folded;
use std::sync::Arc;
use tank::{Sight, Tank};

/// Prior probability that the ends do not differ.
pub const NO_CHANGE: f64 = 0.2;

/// Factor behind the best at which a noise hypothesis is dropped: e^-8; and at which one node loses one: e^-18.
const DROP_CELL: f64 = 3.35e-4;
const DROP_STATE: f64 = 1.52e-8;
const DROP_FROM: usize = 4;
/// Filters that are kept at most after a boot: with it `updates <= 2 MOST_FILTERS` a boot, whatever the record.
pub const MOST_FILTERS: usize = 20_000;
/// Images whose offsets are kept in mind; past that the one not seen for longest counts as a new one.
const MOST_OFFSETS: usize = 24;
/// The node of a candidate that was ruled out.
pub const DEAD: u32 = u32::MAX;

/// One boot as the filters see it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Row {
    pub y: f64,
    pub hours: f64,
    pub runs: u32,
    /// Numbered by first appearance among the rows.
    pub image: u32,
    /// The kernel's place.
    pub column: u32,
    /// The fork whose offset it carries, numbered by first appearance.
    pub fork: Option<u32>,
    /// `y` is a limit: what was cut off lies above (1) or below (-1) it; 0 where it is the value.
    pub cut: i8,
}

/// What the fold assumes before the first boot.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    pub level_mean: f64,
    pub level_sd: f64,
    pub delta_sd: f64,
    pub fork_sd: f64,
    /// How far outliers reach, and the least noise that the runs within boots allow.
    pub outlier_sd: f64,
    pub least_s: f64,
    /// Variance of the runs of one boot.
    pub within: f64,
    /// The largest offset an image may carry: none where two images are compared as they are.
    pub most_offset: f64,
}

/// Prior probability of each candidate by place; they add up to `1 - none`.
#[derive(PartialEq, Debug)]
pub struct Prior {
    pub none: f64,
    pub of: Vec<f64>,
}

impl Prior {
    /// Is there but one candidate?
    pub fn is_sole(&self) -> bool {
        self.of.iter().filter(|p| **p > 0.0).take(2).count() == 1
    }
}

#[derive(Clone)]
struct Node {
    /// Prior probability of its candidates, and of 'no change' if it is in here.
    mass: f64,
    none: bool,
    /// Which columns, by number, contain its candidates.
    inside: FixedBitSet,
    /// Weights of its filters are to be multiplied by two to this power.
    exponent: i32,
    /// By kind: plain, with a trend, with offsets of images.
    tanks: [Tank; 3],
}

pub struct Bank {
    settings: Settings,
    prior: Arc<Prior>,
    cells: Cells,
    rows: Vec<Row>,
    columns: Vec<u32>,
    nodes: Vec<Node>,
    node_of: Vec<u32>,
    forks: Vec<u32>,
    /// Images that have a slot in the tanks with offsets: position among the slots, image, last row.
    images: Vec<(usize, u32, usize)>,
    folded: Option<Arc<Folded>>,
    updates: u64,
}

impl Bank {
    pub fn new(settings: Settings, prior: Arc<Prior>) -> Bank {
        let cells = Cells::new(settings.least_s, settings.outlier_sd, settings.most_offset);
        let tanks = cells
            .by_kind
            .clone()
            .map(|numbers| Tank::new(&numbers, &cells.all, &settings));
        let node = Node {
            mass: 1.0,
            none: true,
            inside: FixedBitSet::new(),
            exponent: 0,
            tanks,
        };
        Bank {
            node_of: vec![0; prior.of.len()],
            settings,
            prior,
            cells,
            rows: Vec::new(),
            columns: Vec::new(),
            nodes: vec![node],
            forks: Vec::new(),
            images: Vec::new(),
            folded: None,
            updates: 0,
        }
    }

    /// Would folding these rows with these assumptions begin with what is folded already?
    pub fn begins(&self, settings: &Settings, prior: &Arc<Prior>, rows: &[Row]) -> bool {
        self.settings == *settings
            && rows.starts_with(&self.rows)
            && (Arc::ptr_eq(&self.prior, prior) || self.prior == *prior)
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Filter updates so far: the work done.
    pub fn updates(&self) -> u64 {
        self.updates
    }

    /// Which node holds a candidate; `DEAD` where it was ruled out.
    pub fn node_of(&self, place: u32) -> u32 {
        self.node_of[place as usize]
    }

    /// Which node holds 'no change'.
    pub fn none(&self) -> usize {
        self.nodes.iter().position(|n| n.none).unwrap_or(0)
    }

    pub fn folded(&mut self) -> Arc<Folded> {
        if let Some(folded) = &self.folded {
            return folded.clone();
        }
        let folded = Arc::new(moments::gather(&self.nodes, &self.cells));
        self.folded = Some(folded.clone());
        folded
    }

    /// One more boot, not before the last one; `above`: what its kernel contains, if it is a candidate.
    pub fn push(&mut self, row: Row, span: &Span, above: Option<&FixedBitSet>) {
        self.folded = None;
        let before = self.rows.last().map_or(row.hours, |r| r.hours);
        let since = row.hours - self.rows.first().map_or(row.hours, |r| r.hours);
        let column = match self.columns.iter().position(|&c| c == row.column) {
            Some(number) => number,
            None => {
                self.columns.push(row.column);
                let number = self.columns.len() - 1;
                if let Some(above) = above {
                    self.split(number, span, above);
                }
                number
            }
        };
        let fork = row.fork.map(|fork| self.fork_slot(fork));
        let image = self.image_slot(row.image);
        let boot = tank::Boot {
            y: row.y,
            runs: row.runs,
            cut: f64::from(row.cut),
            within: self.settings.within,
            hours: (row.hours - before).max(0.0),
        };
        for node in &mut self.nodes {
            let bad = node.inside.contains(column);
            for (kind, tank) in node.tanks.iter_mut().enumerate() {
                let mut sight = Sight::new(bad);
                if kind == TREND_KIND {
                    sight.see(tank::TREND, since);
                }
                for slot in [fork, (kind == OFFSET_KIND).then_some(image).flatten()]
                    .into_iter()
                    .flatten()
                {
                    sight.see(base(kind) + slot, 1.0);
                }
                self.updates += tank.len() as u64;
                tank.step(&boot, &sight, &self.cells);
            }
            node.rescale();
        }
        self.rows.push(row);
        if self.rows.len() >= DROP_FROM {
            self.drop_far(DROP_CELL, DROP_STATE);
        }
    }

    fn split(&mut self, column: usize, span: &Span, above: &FixedBitSet) {
        let mut with = vec![0.0; self.nodes.len()];
        let mut without = vec![0.0; self.nodes.len()];
        for place in span.candidates.ones() {
            let node = self.node_of[place];
            if node != DEAD {
                let side = if above.contains(place) {
                    &mut with
                } else {
                    &mut without
                };
                side[node as usize] += self.prior.of[place];
            }
        }
        let mut moved = vec![DEAD; self.nodes.len()];
        for i in 0..with.len() {
            let node = &mut self.nodes[i];
            let rest = without[i] + if node.none { self.prior.none } else { 0.0 };
            if with[i] <= 0.0 {
                continue;
            }
            if rest <= 0.0 {
                node.inside.grow_and_insert(column);
                continue;
            }
            node.mass = rest;
            let mut other = node.clone();
            (other.mass, other.none) = (with[i], false);
            other.inside.grow_and_insert(column);
            moved[i] = self.nodes.len() as u32;
            self.nodes.push(other);
        }
        for place in span.candidates.ones() {
            let node = &mut self.node_of[place];
            if *node != DEAD && moved[*node as usize] != DEAD && above.contains(place) {
                *node = moved[*node as usize];
            }
        }
    }

    /// Where the offset of a fork lives, the same in every tank.
    fn fork_slot(&mut self, fork: u32) -> usize {
        // Forks and images share the slots of the third kind: forks of the other kinds are where images are not.
        let sd = self.settings.fork_sd;
        if let Some(i) = self.forks.iter().position(|&f| f == fork) {
            return i;
        }
        // Slots of forks come first, so that one number serves all kinds: images move up.
        let at = self.forks.len();
        self.forks.push(fork);
        for node in &mut self.nodes {
            for (kind, tank) in node.tanks.iter_mut().enumerate() {
                tank.open(base(kind) + at, |_| sd, &self.cells.all);
            }
        }
        for image in &mut self.images {
            image.0 += 1;
        }
        at
    }

    /// Where the offset of an image lives in tanks of the third kind; nothing where there are none.
    fn image_slot(&mut self, image: u32) -> Option<usize> {
        if self.nodes.iter().all(|n| n.tanks[OFFSET_KIND].len() == 0) {
            return None;
        }
        let row = self.rows.len();
        if let Some(known) = self.images.iter_mut().find(|i| i.1 == image) {
            known.2 = row;
            return Some(known.0);
        }
        let slot = if self.images.len() < MOST_OFFSETS {
            let slot = self.forks.len() + self.images.len();
            self.images.push((slot, image, row));
            for node in &mut self.nodes {
                node.tanks[OFFSET_KIND].open(base(OFFSET_KIND) + slot, |c| c.kappa, &self.cells.all);
            }
            slot
        } else {
            let oldest = self.images.iter_mut().min_by_key(|i| i.2)?;
            (oldest.1, oldest.2) = (image, row);
            let slot = oldest.0;
            for node in &mut self.nodes {
                node.tanks[OFFSET_KIND].renew(base(OFFSET_KIND) + slot, |c| c.kappa, &self.cells.all);
            }
            slot
        };
        Some(slot)
    }

    fn drop_far(&mut self, drop_cell: f64, drop_state: f64) {
        let factors = factors(&self.nodes);
        let mut best_of = vec![0.0f64; self.cells.all.len()];
        for (node, factor) in self.nodes.iter().zip(&factors) {
            for (cell, weight) in node.filters() {
                best_of[cell] = best_of[cell].max(factor * weight);
            }
        }
        let best = best_of.iter().copied().fold(0.0, f64::max);
        let mut left = 0;
        for (node, factor) in self.nodes.iter_mut().zip(&factors) {
            // 'No change' is never dropped: it is asked for until the end. Its best noise may be none of the others'.
            let own = node.filters().map(|f| f.1).fold(0.0, f64::max);
            let none = node.none;
            for tank in &mut node.tanks {
                tank.retain(|cell, weight| {
                    let all = factor * weight;
                    let near = best_of[cell] >= drop_cell * best && all >= drop_state * best;
                    near || (none
                        && weight >= drop_cell * own
                        && (weight >= own || best_of[cell] >= drop_cell * best))
                });
                left += tank.len();
            }
        }
        if left > MOST_FILTERS && drop_state < 1e-3 {
            return self.drop_far(drop_cell * 10.0, drop_state * 1e3);
        }
        self.bury();
        if left > MOST_FILTERS {
            self.keep_heaviest();
        }
    }

    /// Takes nodes out that lost all their filters.
    fn bury(&mut self) {
        if self.nodes.iter().all(Node::lives) {
            return;
        }
        let mut next = 0;
        let renamed: Vec<u32> = self
            .nodes
            .iter()
            .map(|n| {
                let name = if n.lives() { next } else { DEAD };
                next += u32::from(n.lives());
                name
            })
            .collect();
        self.nodes.retain(Node::lives);
        for node in self.node_of.iter_mut().filter(|n| **n != DEAD) {
            *node = renamed[*node as usize];
        }
    }

    /// The heaviest nodes only, 'no change' among them: the bound on work holds for any record.
    fn keep_heaviest(&mut self) {
        let factors = factors(&self.nodes);
        let weight = |i: usize| factors[i] * self.nodes[i].filters().map(|f| f.1).fold(0.0, f64::max);
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        order.sort_by(|&a, &b| {
            let none = |i: usize| self.nodes[i].none;
            none(b)
                .cmp(&none(a))
                .then(weight(b).total_cmp(&weight(a)))
                .then(a.cmp(&b))
        });
        let mut room = MOST_FILTERS;
        for i in order {
            let own = self.nodes[i].filters().count();
            if own <= room {
                room -= own;
            } else {
                room = 0;
                self.nodes[i]
                    .tanks
                    .iter_mut()
                    .for_each(|t| t.retain(|_, _| false));
            }
        }
        self.bury();
    }
}

const TREND_KIND: usize = 1;
const OFFSET_KIND: usize = 2;

/// Which kind of tank a cell's filters live in.
pub fn kind(cell: &Cell) -> usize {
    match cell.drift {
        Drift::Trend => TREND_KIND,
        Drift::Walk(_) if cell.kappa > 0.0 => OFFSET_KIND,
        Drift::Walk(_) => 0,
    }
}

/// Entries of the state before the slots.
fn base(kind: usize) -> usize {
    if kind == TREND_KIND { 3 } else { 2 }
}

impl Node {
    fn filters(&self) -> impl Iterator<Item = (usize, f64)> {
        self.tanks.iter().flat_map(Tank::filters)
    }

    fn lives(&self) -> bool {
        self.tanks.iter().any(|t| t.len() > 0)
    }

    /// Keeps weights near 1: powers of two, so that nothing is rounded.
    fn rescale(&mut self) {
        let most = self.filters().map(|f| f.1).fold(0.0, f64::max);
        if most > 0.0 && !(1e-20..1e20).contains(&most) {
            let up = -libm::ilogb(most);
            self.exponent -= up;
            let factor = libm::ldexp(1.0, up);
            self.tanks.iter_mut().for_each(|t| t.scale(factor));
        }
    }
}

/// Prior times scale of each node, relative to the greatest scale.
fn factors(nodes: &[Node]) -> Vec<f64> {
    let most = nodes.iter().map(|n| n.exponent).max().unwrap_or(0);
    let factor = |n: &Node| n.mass * libm::ldexp(1.0, n.exponent.saturating_sub(most));
    nodes.iter().map(factor).collect()
}
