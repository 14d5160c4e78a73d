//! A span: two kernels `low` and `high` and the commits between them that may have made the difference.
//!
//! A kernel that contains `low` differs from it only by candidates. One that does not (its branch forked before
//! `low`) also lacks what `low` got since the fork: it has a level of its own until its fork point is measured.
//! The same holds for the whole range where good is no ancestor of bad: its merge base is the fork point.

use crate::History;
use crate::mass::Graph;
use crate::memo::SpanKey;
use fixedbitset::FixedBitSet;
use std::sync::OnceLock;

pub const NO_FORK: u32 = u32::MAX;

pub struct Span {
    pub low: u32,
    pub high: u32,
    pub candidates: FixedBitSet,
    /// The candidates' graph, once masses were asked for.
    pub graph: OnceLock<Graph>,
    below_low: FixedBitSet,
    /// For each candidate the latest ancestor of `low` that it contains: `low` itself, or a fork point;
    /// `NO_FORK` where its root lies outside of the history.
    fork: Vec<u32>,
}

impl Span {
    pub fn new(history: &History, low: u32, high: u32) -> Span {
        let below_low = history.ancestors(low);
        let mut candidates = history.ancestors(high);
        candidates.difference_with(&below_low);
        let mut fork = vec![NO_FORK; history.len()];
        for place in candidates.ones() {
            // Places rise from parents to children, so `low` is the highest place among its ancestors.
            fork[place] = history
                .parents(place as u32)
                .iter()
                .map(|&p| {
                    if below_low.contains(p as usize) {
                        p
                    } else {
                        fork[p as usize]
                    }
                })
                .filter(|&f| f != NO_FORK)
                .max()
                .unwrap_or(NO_FORK);
        }
        Span {
            low,
            high,
            candidates,
            graph: OnceLock::new(),
            below_low,
            fork,
        }
    }

    /// Two kernels compared for themselves, wherever they stand: the only candidate is `high`.
    pub fn pair(history: &History, low: u32, high: u32) -> Span {
        let mut candidates = FixedBitSet::with_capacity(history.len());
        candidates.insert(high as usize);
        Span {
            low,
            high,
            candidates,
            graph: OnceLock::new(),
            below_low: FixedBitSet::new(),
            fork: Vec::new(),
        }
    }

    pub fn is_pair(&self) -> bool {
        self.fork.is_empty()
    }

    pub fn key(&self) -> SpanKey {
        (self.low, self.high, self.is_pair())
    }

    pub fn has(&self, place: u32) -> bool {
        self.candidates.contains(place as usize)
    }

    /// What `place` stands on, apart from candidates.
    pub fn base(&self, place: u32) -> Base {
        if self.is_pair() {
            let end = place == self.low || place == self.high;
            return if end { Base::Low } else { Base::Outside };
        }
        if self.has(place) {
            match self.fork[place as usize] {
                f if f == self.low => Base::Low,
                NO_FORK => Base::Outside,
                f => Base::Fork(f),
            }
        } else if place == self.low {
            Base::Low
        } else if self.below_low.contains(place as usize) {
            Base::Fork(place)
        } else {
            Base::Outside
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Base {
    Low,
    /// The latest ancestor of `low` that it contains.
    Fork(u32),
    /// Nothing in common with `low`, as far as the history tells.
    Outside,
}
