//! The next boot: the most information per second.
//!
//! For a kernel `x` whose ancestors hold the share `p` of the posterior, `k` boots of `r` runs tell good from bad
//! like one look at `N(X d, 1)`, `d^2 = gap^2 / (kappa^2 + s^2 vf(r) / k)`; the score is
//! `P(it builds and boots) information(p, d) / (build + k (boot + r run))`. `k` only spreads the build's cost:
//! one boot is asked for, then everything is looked at again. Boots under way are treated as answered: what
//! counts is the information left inside each segment that they cut.

use crate::belief::{Belief, MachineBelief};
use crate::facts::Facts;
use crate::mass;
use crate::noise::boot_variance;
use crate::span::{Base, Span};
use crate::stats::information;
use fixedbitset::FixedBitSet;
use std::borrow::Cow;
use std::collections::VecDeque;

const RUNS: [u32; 5] = [1, 2, 3, 5, 8];
const BOOTS: [u32; 5] = [1, 2, 3, 4, 6];
/// Probability that a kernel builds and boots, far from any failure.
const WORKS: f64 = 0.97;
/// A failure makes its neighbours suspicious: 75 % beside it, less by e for every 4 commits.
const FAILS_BESIDE: f64 = 0.75;
const FAILS_REACH: f64 = 4.0;
const SHORTLIST: usize = 12;
/// Below so many bits there is nothing left to ask.
const NOTHING: f64 = 1e-4;
/// Probability of a class below which none of its kernels is worth a look.
const EXCLUDED: f64 = 1e-7;

#[derive(Clone, Debug)]
pub struct Choice {
    pub place: u32,
    pub runs: u32,
    pub bits: f64,
    pub seconds: f64,
    /// Share of the suspects on the bad side of it.
    pub share: f64,
    pub boots: usize,
}

/// A part of the posterior that no boot under way will cut.
struct Segment<'a> {
    share: f64,
    weight: Cow<'a, [f64]>,
    masses: Cow<'a, [f64]>,
}

pub struct Chooser<'a> {
    facts: &'a Facts<'a>,
    span: &'a Span,
    belief: &'a Belief,
    /// Probability of each candidate by place, and of each kernel's ancestors together.
    whole: Vec<f64>,
    masses: Vec<f64>,
    works: Vec<f64>,
    measured: FixedBitSet,
}

impl<'a> Chooser<'a> {
    pub fn new(facts: &'a Facts<'a>, span: &'a Span, belief: &'a Belief) -> Chooser<'a> {
        let whole = belief.masses();
        let masses = mass::masses(facts.history, span, &whole);
        let works = works(facts, span);
        let mut measured = FixedBitSet::with_capacity(facts.history.len());
        belief.columns.iter().for_each(|c| measured.insert(c.0 as usize));
        Chooser {
            facts,
            span,
            belief,
            whole,
            masses,
            works,
            measured,
        }
    }

    /// The best boot on this machine, given the places already under way.
    pub fn best(&self, machine: &MachineBelief, under_way: &[u32]) -> Option<Choice> {
        let segments = self.segments(under_way);
        let measured = self
            .belief
            .columns
            .iter()
            .map(|c| c.0)
            .filter(|&p| self.span.has(p));
        let mut places: Vec<u32> = measured.collect();
        places.extend(self.shortlist(&segments));
        places.retain(|p| !under_way.contains(p) && self.facts.skip_at(*p).is_none());
        let mut best: Option<(f64, Choice)> = None;
        for place in places {
            let shares = self.shares(place, &segments);
            if let Some((score, choice)) = self.score(place, machine, &shares)
                && best
                    .as_ref()
                    .is_none_or(|(s, c)| score > *s * (1.0 + 1e-9) || (score == *s && place < c.place))
            {
                best = Some((score, choice));
            }
        }
        best.map(|(_, choice)| choice).filter(|c| c.bits > NOTHING)
    }

    /// Kernels worth building while this one is measured: the halves of either answer.
    pub fn ahead(&self, place: u32, count: usize) -> Vec<u32> {
        let mut chosen: Vec<u32> = vec![place];
        // What boots already, or is being built for it, needs no builder of its own.
        let pending = self.facts.pending.iter().map(|p| &self.facts.kernels[p.0]);
        chosen.extend(pending.filter(|k| k.kernel.is_plain()).map(|k| k.place));
        let mut ahead = Vec::new();
        while ahead.len() < count {
            let segments = self.segments(&chosen);
            let next = self
                .shortlist(&segments)
                .into_iter()
                .find(|p| !chosen.contains(p));
            let Some(next) = next else { break };
            chosen.push(next);
            if !self.facts.built(next) {
                ahead.push(next);
            }
        }
        ahead
    }

    /// The posterior cut by the places under way: each part's share, its candidates, masses of ancestors in it.
    fn segments(&self, under_way: &[u32]) -> Vec<Segment<'_>> {
        let mut parts: Vec<Cow<'_, [f64]>> = vec![Cow::Borrowed(&self.whole)];
        for &place in under_way.iter().filter(|p| self.span.has(**p)).take(4) {
            let above = self.facts.ancestors(place);
            let side = |part: &[f64], inside: bool| -> Cow<'_, [f64]> {
                let own = part.iter().enumerate();
                Cow::Owned(
                    own.map(|(p, w)| if above.contains(p) == inside { *w } else { 0.0 })
                        .collect(),
                )
            };
            let cut = parts
                .iter()
                .flat_map(|part| [side(part, true), side(part, false)]);
            parts = cut.filter(|part| part.iter().sum::<f64>() > 1e-6).collect();
        }
        if parts.len() == 1 {
            return vec![Segment {
                share: 1.0,
                weight: Cow::Borrowed(&self.whole),
                masses: Cow::Borrowed(&self.masses),
            }];
        }
        let segment = |weight: Cow<'_, [f64]>| Segment {
            share: weight.iter().sum(),
            masses: Cow::Owned(mass::masses(self.facts.history, self.span, &weight)),
            weight: Cow::Owned(weight.into_owned()),
        };
        parts.into_iter().map(segment).collect()
    }

    /// Of each segment its share, and the share of it that this kernel contains, exactly.
    fn shares(&self, place: u32, segments: &[Segment<'_>]) -> Vec<(f64, f64)> {
        let exact = !mass::sampled_for(self.facts.history, self.span);
        let above = (!exact).then(|| self.facts.history.ancestors(place));
        let inside = |s: &Segment<'_>| match &above {
            None => s.masses[place as usize],
            Some(above) => above.ones().map(|p| s.weight[p]).sum(),
        };
        segments
            .iter()
            .map(|s| (s.share, (inside(s) / s.share.max(1e-300)).clamp(0.0, 1.0)))
            .collect()
    }

    /// Unmeasured testable kernels that cut the suspects best, builds of equal worth taken as built first.
    fn shortlist(&self, segments: &[Segment<'_>]) -> Vec<u32> {
        let mut scored: Vec<(f64, u32)> = Vec::new();
        let mut consider = |place: u32| {
            let works = self.works[place as usize];
            if works <= 0.0 || self.measured.contains(place as usize) {
                return;
            }
            let parted = segments.iter().map(|s| {
                let p = s.masses[place as usize] / s.share.max(1e-300);
                // Close to the bits of the coin, in order and size, and cheap.
                s.share * (4.0 * p * (1.0 - p)).max(0.0)
            });
            let loose = if self.span.base(place) == Base::Low {
                1.0
            } else {
                0.8
            };
            let worth = parted.sum::<f64>() * works * loose;
            if worth > NOTHING {
                scored.push((worth, place));
            }
        };
        // A kernel among excluded candidates parts nothing that its neighbours do not part.
        for class in 1..self.belief.classes.len() {
            if self.belief.probability[class] > EXCLUDED {
                self.belief
                    .classes
                    .members(class)
                    .iter()
                    .for_each(|&p| consider(p));
            }
        }
        let key = |a: &(f64, u32), b: &(f64, u32)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
        if scored.len() > SHORTLIST {
            scored.select_nth_unstable_by(SHORTLIST, key);
            scored.truncate(SHORTLIST);
        }
        scored.sort_by(key);
        scored.into_iter().map(|s| s.1).collect()
    }

    fn score(&self, place: u32, machine: &MachineBelief, shares: &[(f64, f64)]) -> Option<(f64, Choice)> {
        let facts = self.facts;
        let gap = machine.delta.0.abs();
        let kappa2 = machine.folded.kappa2;
        // A boot in the rarer mode tells little of a level, but all there is to tell of a switch of modes.
        let modes = 0.3 + 0.7 * machine.folded.switch;
        let noise = machine.folded.s2 + modes * machine.folded.mode_spread;
        let within = facts.summaries.within();
        let done = facts.boots_on(place, machine.machine).len();
        let (extra_s, loose) = self.fork_cost(place, machine.machine);
        let build_s = facts.build_s(place) + extra_s;
        let share = shares.iter().map(|(all, p)| all * p).sum();
        let mut best: Option<(f64, Choice)> = None;
        for runs in RUNS {
            let summaries = &facts.summaries;
            let variance = boot_variance(noise, within, runs).max(1e-12);
            let asked = runs + summaries.warm_up;
            for boots in BOOTS {
                let precision = |n: f64| {
                    if n > 0.0 {
                        1.0 / (kappa2 + loose + variance / n)
                    } else {
                        0.0
                    }
                };
                let more = precision(done as f64 + f64::from(boots)) - precision(done as f64);
                let d = gap * libm::sqrt(more.max(0.0));
                let bits: f64 = shares.iter().map(|(all, p)| all * information(*p, d)).sum();
                let bits = bits * self.works[place as usize] * fresh(done as f64, gap * gap / variance);
                let seconds = build_s + f64::from(boots) * facts.boot_s(asked);
                let score = bits / seconds;
                if best.as_ref().is_none_or(|(s, _)| score > s * (1.0 + 1e-9)) {
                    best = Some((
                        score,
                        Choice {
                            place,
                            runs: asked,
                            bits,
                            seconds,
                            share,
                            boots: done,
                        },
                    ));
                }
            }
        }
        best
    }

    /// Seconds to tie down the fork that `place` stands on, and the variance that stays where that can't be done.
    fn fork_cost(&self, place: u32, machine: usize) -> (f64, f64) {
        match self.span.base(place) {
            Base::Low => (0.0, 0.0),
            Base::Outside => (0.0, 0.0025),
            Base::Fork(fork) if self.facts.skip_at(fork).is_some() => (0.0, 0.0025),
            Base::Fork(fork) if self.facts.boots_on(fork, machine).is_empty() => {
                (self.facts.build_s(fork) + 2.0 * self.facts.boot_s(3), 0.0)
            }
            Base::Fork(_) => (0.0, 0.0),
        }
    }
}

/// What so many boots left open, more of the same will hardly close: about `41 / d^2` decide a kernel three times
/// over, and doubt that outlasts them is of another kind (an offset, the level of an end).
fn fresh(boots: f64, d2: f64) -> f64 {
    let share = boots / (41.0 / d2.max(1e-9)).max(4.0);
    1.0 / (1.0 + share * share)
}

/// For each candidate the probability that it can be measured: 0 for those that are left alone, less near failures.
fn works(facts: &Facts<'_>, span: &Span) -> Vec<f64> {
    let history = facts.history;
    let mut works = vec![WORKS; history.len()];
    let failed: Vec<u32> = facts
        .kernels
        .iter()
        .filter(|k| k.kernel.is_plain() && k.skip().is_some())
        .map(|k| k.place)
        .collect();
    let reach = (6.0 * FAILS_REACH) as u32;
    for &start in &failed {
        let mut distance = std::collections::BTreeMap::from([(start, 0u32)]);
        let mut queue = VecDeque::from([start]);
        while let Some(at) = queue.pop_front() {
            let d = distance[&at];
            works[at as usize] *= 1.0 - FAILS_BESIDE * libm::exp(-f64::from(d) / FAILS_REACH);
            if d < reach && distance.len() < 500 {
                for &next in history.parents(at).iter().chain(history.children(at)) {
                    distance.entry(next).or_insert_with(|| {
                        queue.push_back(next);
                        d + 1
                    });
                }
            }
        }
    }
    for &start in &failed {
        works[start as usize] = 0.0;
    }
    for (place, works) in works.iter_mut().enumerate() {
        if !span.has(place as u32) {
            *works = 0.0;
        }
    }
    works
}
