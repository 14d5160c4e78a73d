//! Both ends first: is there a difference worth a search, on each machine?
//!
//! Boots alternate A B B A, so that a drift falls on both alike. The looks are at two boots a side (only for an
//! overwhelming difference) and at every further one; what is printed when there is none is the effect that would
//! have been seen: `MDE(n) = (z_0.995 + z_0.90) s sqrt(2/n) = 3.86 s sqrt(2/n)`.

use crate::belief::{MachineBelief, believe};
use crate::facts::Facts;

pub const POWER: f64 = 3.86;
/// Boots a side after which the ends are left undecided.
pub const MOST_BOOTS: usize = 20;
/// `P(no change)` below which the search starts: at two boots a side, and later.
const EARLY: f64 = 0.004;
const CLEAR: f64 = 0.03;
/// The same at which the ends are told apart for good.
const FINAL: f64 = 0.002;
/// Probability of a loss of the least size from which the ends may take twice as many boots.
const PROMISING: f64 = 0.2;
/// Boots a side after which a step that is still not clear counts as none.
const SETTLED: usize = 8;
/// Boots a side from which the ends may be called the same, where noise is not nearly nothing beside what is asked.
const REFUSE: usize = 6;

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Ends {
    /// More boots are needed to say.
    Open,
    /// A loss, worth searching.
    Loss,
    /// No difference, and one of the smallest effect would have been seen.
    Same,
    /// A loss, but smaller than asked for.
    Small,
    Gain,
    /// Enough was spent.
    Undecided,
}

pub struct Look {
    pub machine: usize,
    pub ends: Ends,
    pub belief: Option<MachineBelief>,
    /// Boots a side.
    pub boots: usize,
    /// What they are worth, in boots of three runs.
    pub worth: f64,
}

impl Look {
    /// Smallest difference that so many boots would have found, on the scale.
    pub fn detectable(&self) -> Option<f64> {
        let belief = self.belief.as_ref()?;
        (self.boots > 0).then(|| POWER * belief.boot_sd() * libm::sqrt(2.0 / self.worth.max(1e-9)))
    }

    /// Boots a side that would find `size`.
    pub fn boots_for(&self, size: f64) -> Option<f64> {
        let belief = self.belief.as_ref()?;
        Some(
            (2.0 * POWER * POWER * belief.boot_sd() * belief.boot_sd() / (size * size))
                .ceil()
                .clamp(2.0, 1e9),
        )
    }
}

/// Looks at `low` against `high` on one machine.
pub fn look(facts: &Facts<'_>, low: u32, high: u32, machine: usize, searching: bool) -> Look {
    let span = facts.pair(low, high);
    let mut belief = believe(facts, &span, &[machine]);
    let (lows, highs) = (facts.boots_on(low, machine), facts.boots_on(high, machine));
    let boots = lows.len().min(highs.len());
    let belief = (!belief.machines.is_empty()).then(|| belief.machines.swap_remove(0));
    let mean = |b: &MachineBelief| b.mean_variance(facts, &lows) + b.mean_variance(facts, &highs);
    let worth = belief
        .as_ref()
        .map_or(0.0, |b| 2.0 * b.boot_sd() * b.boot_sd() / mean(b).max(1e-30));
    let mut look = Look {
        machine,
        ends: Ends::Open,
        belief,
        boots,
        worth,
    };
    look.ends = judge(facts, &look, low, high, searching);
    look
}

fn judge(facts: &Facts<'_>, look: &Look, low: u32, high: u32, searching: bool) -> Ends {
    let (Some(belief), true) = (&look.belief, look.boots >= 2) else {
        return if out_of_time(facts, low, high, look.machine) {
            Ends::Undecided
        } else {
            Ends::Open
        };
    };
    let scale = &facts.scale;
    let none = belief.p_no_change;
    let loss = scale.loss(belief.delta.0);
    let detectable = look.detectable().unwrap_or(f64::INFINITY);
    let bar = match (searching, look.boots) {
        (true, _) => 0.05,
        (false, 2) => EARLY,
        (false, _) => CLEAR,
    };
    // Two boots a side may stop only where noise is nearly nothing beside what is asked.
    let may_refuse = look.boots >= 3 || detectable <= scale.least / 3.0;
    let enough = belief.p_loss_at_least(scale.loss_sign, scale.least);
    if none < 0.05 && loss > 0.0 && enough < 0.025 && may_refuse {
        return Ends::Small;
    }
    if none < bar && loss > 0.0 {
        return Ends::Loss;
    }
    // A gain ends the matter, a loss only begins the search.
    // But where boots have modes, the few of one end may all have been in another one: only from boots enough to show
    // them, and once it stands out of them as well.
    let knows_modes = look.boots >= SETTLED || detectable <= scale.least / 3.0;
    let out_of_modes = loss.abs() > detectable || look.worth >= 0.8 * MOST_BOOTS as f64;
    if none < FINAL && loss < 0.0 && knows_modes && out_of_modes {
        return Ends::Gain;
    }
    // A small step that stands out may yet prove to be one: then it is called small, not nothing.
    let stands_out = belief.delta.0.abs() > 1.96 * belief.delta.1 && look.boots < SETTLED;
    // Few boots know their own noise badly, and power is not evidence: the loss asked for must be unlikely by now.
    let knows = look.boots >= REFUSE || detectable <= scale.least / 3.0;
    if none > 0.05 && detectable <= scale.least && knows && enough < 0.05 && !stands_out {
        return Ends::Same;
    }
    // As long again, where a loss worth finding is more than a possibility.
    let most = MOST_BOOTS as f64 * if enough > PROMISING { 2.0 } else { 1.0 };
    if look.worth >= most || out_of_time(facts, low, high, look.machine) {
        return if none < 0.05 && loss > 0.0 {
            Ends::Loss
        } else {
            Ends::Undecided
        };
    }
    Ends::Open
}

fn out_of_time(facts: &Facts<'_>, low: u32, high: u32, machine: usize) -> bool {
    let Some(limit) = facts.record.policy.limits.ends_time_s else {
        return false;
    };
    let boots = facts
        .boots_on(low, machine)
        .into_iter()
        .chain(facts.boots_on(high, machine));
    let spent: f64 = boots
        .map(|b| facts.boot_s(facts.boots[b].runs.len() as u32))
        .sum();
    spent >= limit
}

/// Which end comes next: A B B A, the one with fewer boots when they fell apart.
pub fn next_end(facts: &Facts<'_>, low: u32, high: u32, machine: usize) -> u32 {
    let count = |place| facts.boots_on(place, machine).len() + facts.pending_at(place, machine);
    let (lows, highs) = (count(low), count(high));
    if lows.abs_diff(highs) >= 2 {
        return if lows < highs { low } else { high };
    }
    let first_is_high = facts.record.policy.seed % 2 == 1;
    let turn = matches!((lows + highs) % 4, 1 | 2);
    match (lows.cmp(&highs), (lows + highs) % 2) {
        (std::cmp::Ordering::Less, 1) => low,
        (std::cmp::Ordering::Greater, 1) => high,
        _ if turn != first_is_high => high,
        _ => low,
    }
}
