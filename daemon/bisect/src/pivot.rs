//! A level that fits neither end: the sign of more than one change.
//!
//! A kernel `x` that stands off both ends is put to the test as a pivot: is the data better explained by one change
//! between the ends (with noise, modes, drift and offsets of images as large as they may be), or by one on each
//! side of `x`? Given the level of `x` the two sides know nothing of each other, so
//!
//! ```text
//! ln BF = ln E(low..x) + ln E(x..high) - ln E(x) - ln E(low..high)
//! ```
//!
//! with evidences `E` of the same bank, 'no change' left out (a junction-tree factorisation: Lauritzen and
//! Spiegelhalter 1988; noise is shared in truth and learned twice here, which errs towards one change).

use crate::belief::{Belief, believe};
use crate::search::{Searcher, Want, want};
use crate::span::{Base, Span};
use crate::stats::mean;

/// z against both ends at which a kernel is put to the test.
pub const SUSPICIOUS: f64 = 2.0;
/// Log Bayes factor at which a kernel is a pivot (100 to 1), and at which it is measured again to see.
const PIVOT: f64 = 4.6;
const OPEN: f64 = 1.0;
/// Boots of a suspicious kernel after which it is left to the search.
pub const PATIENCE: usize = 6;
/// z at which two boots are as good as three.
pub const OBVIOUS: f64 = 12.0;
/// Widens the noise of a difference: it was learned from few boots.
const CAUTION: f64 = 1.2;
/// Share of the least effect that a step must have to be one.
pub const STEP: f64 = 0.6;
pub enum Pivot {
    Split(u32),
    More(Want),
}

pub struct Gap {
    pub difference: f64,
    pub z: f64,
}

impl Gap {
    /// Surely a step, of a size that matters.
    pub fn clear(&self, least: f64) -> bool {
        self.z.abs() > 3.5 && self.difference.abs() > 0.75 * least
    }
}

/// The difference of levels between two measured kernels, on the machine that knows best.
pub fn gap(searcher: &Searcher<'_>, from: u32, to: u32) -> Option<Gap> {
    let gaps = searcher
        .ready()
        .into_iter()
        .filter_map(|m| gap_on(searcher, from, to, m));
    gaps.max_by(|a, b| a.z.abs().total_cmp(&b.z.abs()))
}

fn gap_on(searcher: &Searcher<'_>, from: u32, to: u32, machine: usize) -> Option<Gap> {
    let facts = searcher.facts;
    let noise = searcher.look(machine)?;
    let (a, b) = (facts.boots_on(from, machine), facts.boots_on(to, machine));
    if a.is_empty() || b.is_empty() {
        return None;
    }
    let level = |boots: &[usize]| mean(&boots.iter().map(|&b| facts.boots[b].y).collect::<Vec<_>>());
    let hour = |boots: &[usize]| {
        mean(
            &boots
                .iter()
                .map(|&b| facts.boots[b].at_s / 3600.0)
                .collect::<Vec<_>>(),
        )
    };
    let spread = noise.mean_variance(facts, &a) + noise.mean_variance(facts, &b);
    // What the machine may have drifted between the two, on average.
    let hours = (hour(&a) - hour(&b)).abs();
    let drift = noise.folded.walk2 * hours + noise.folded.slope2 * hours * hours;
    let difference = level(&b) - level(&a);
    Some(Gap {
        difference,
        z: difference / libm::sqrt(CAUTION * CAUTION * spread + drift).max(1e-6),
    })
}

pub fn find(searcher: &Searcher<'_>, span: &Span, belief: &Belief) -> Option<Pivot> {
    let facts = searcher.facts;
    let step = STEP * facts.scale.least;
    let mut split: Option<(f64, u32)> = None;
    let mut more: Option<(f64, u32, usize)> = None;
    for &(place, _) in &belief.columns {
        if !span.has(place)
            || place == span.high
            || span.base(place) != Base::Low
            || facts.skip_at(place).is_some()
        {
            continue;
        }
        for machine in searcher.ready() {
            let below = gap_on(searcher, span.low, place, machine);
            let above = gap_on(searcher, place, span.high, machine);
            let (Some(below), Some(above)) = (below, above) else {
                continue;
            };
            if below.difference.abs() < step || above.difference.abs() < step {
                continue;
            }
            let z = below.z.abs().min(above.z.abs());
            if z < SUSPICIOUS {
                continue;
            }
            let odds = evidence(searcher, span, belief, place);
            let boots = facts.boots_on(place, machine).len();
            let enough = boots >= 3 || (boots == 2 && z > OBVIOUS);
            if enough && odds > PIVOT && split.is_none_or(|(best, _)| odds > best) {
                split = Some((odds, place));
            } else if boots < PATIENCE && odds > OPEN && more.is_none_or(|(best, ..)| odds > best) {
                more = Some((odds, place, machine));
            }
        }
    }
    if let Some((_, place)) = split {
        return Some(Pivot::Split(place));
    }
    let (_, place, machine) = more?;
    let runs = belief.on(machine)?.best_runs(facts);
    let free = facts.machines[machine].free;
    free.then(|| Pivot::More(want(facts, place, machine, runs)))
}

/// Log Bayes factor for a change on each side of `x` against one change in all.
fn evidence(searcher: &Searcher<'_>, span: &Span, belief: &Belief, x: u32) -> f64 {
    let facts = searcher.facts;
    let ready = searcher.ready();
    let of = |low, high| believe(facts, &facts.span(low, high), &ready);
    let (below, above, alone) = (of(span.low, x), of(x, span.high), of(x, x));
    ready
        .iter()
        .filter_map(|&m| {
            let (all, below, above, alone) = (belief.on(m)?, below.on(m)?, above.on(m)?, alone.on(m)?);
            let apart = below.rows + above.rows - alone.rows;
            // Boots on neither side count as explained as well as the others.
            let missing = all.evidence * (1.0 - apart as f64 / all.rows as f64);
            Some(below.evidence + above.evidence - alone.evidence + missing - all.evidence)
        })
        .sum()
}
