//! The next boot: the most information per second.
//!
//! For a kernel `x` whose ancestors hold the share `p` of the posterior, `k` boots of `r` runs tell good from bad
//! like one look at `N(X d, 1)`, `d^2 = gap^2 / (kappa^2 + s^2 vf(r) / k)`; the score is
//! `P(it builds and boots) information(p, d) / (build + k (boot + r run))`. `k` only spreads the build's cost:
//! one boot is asked for, then everything is looked at again. Boots under way are treated as answered: what
//! counts is the information left inside each segment that they cut.

use crate::belief::{Belief, MachineBelief, variance_factor};
use crate::facts::Facts;
use crate::mass;
use crate::span::{Base, Span};
use crate::stats::{coin_bits, information};
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

pub struct Chooser<'a> {
    facts: &'a Facts<'a>,
    span: &'a Span,
    belief: &'a Belief,
    masses: Vec<f64>,
    works: Vec<f64>,
}

impl<'a> Chooser<'a> {
    pub fn new(facts: &'a Facts<'a>, span: &'a Span, belief: &'a Belief) -> Chooser<'a> {
        let masses = mass::masses(facts.history, span, &belief.masses());
        let works = works(facts, span);
        Chooser {
            facts,
            span,
            belief,
            masses,
            works,
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

    /// The posterior cut by the places under way: masses of ancestors within each segment, and its share.
    fn segments(&self, under_way: &[u32]) -> Vec<(f64, Vec<f64>)> {
        let whole = self.belief.masses();
        let mut parts: Vec<Vec<f64>> = vec![whole];
        for &place in under_way.iter().filter(|p| self.span.has(**p)).take(4) {
            let above = self.facts.history.ancestors(place);
            parts = parts
                .into_iter()
                .flat_map(|part| {
                    let inside = part
                        .iter()
                        .enumerate()
                        .map(|(p, w)| if above.contains(p) { *w } else { 0.0 });
                    let inside: Vec<f64> = inside.collect();
                    let outside = part
                        .iter()
                        .enumerate()
                        .map(|(p, w)| if above.contains(p) { 0.0 } else { *w });
                    let outside: Vec<f64> = outside.collect();
                    [inside, outside]
                })
                .filter(|part| part.iter().sum::<f64>() > 1e-6)
                .collect();
        }
        if parts.len() == 1 {
            return vec![(1.0, self.masses.clone())];
        }
        let masses = |part: Vec<f64>| {
            (
                part.iter().sum(),
                mass::masses(self.facts.history, self.span, &part),
            )
        };
        parts.into_iter().map(masses).collect()
    }

    fn shares(&self, place: u32, segments: &[(f64, Vec<f64>)]) -> Vec<(f64, f64)> {
        segments
            .iter()
            .map(|(all, m)| (*all, (m[place as usize] / all.max(1e-300)).clamp(0.0, 1.0)))
            .collect()
    }

    /// Unmeasured testable kernels that cut the suspects best, builds of equal worth taken as built first.
    fn shortlist(&self, segments: &[(f64, Vec<f64>)]) -> Vec<u32> {
        let mut scored: Vec<(f64, u32)> = Vec::new();
        for place in self.span.candidates.ones() {
            let works = self.works[place];
            if works <= 0.0 || self.belief.columns.iter().any(|c| c.0 == place as u32) {
                continue;
            }
            let bits: f64 = segments
                .iter()
                .map(|(all, m)| all * coin_bits(m[place] / all.max(1e-300)))
                .sum::<f64>();
            let bits = bits
                * works
                * if self.span.base(place as u32) == Base::Low {
                    1.0
                } else {
                    0.8
                };
            if bits > NOTHING {
                scored.push((bits, place as u32));
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
        let noise = machine.folded.s2 + 0.3 * machine.folded.mode_spread;
        let done = facts.boots_on(place, machine.machine).len();
        let (extra_s, loose) = self.fork_cost(place, machine.machine);
        let build_s = facts.build_s(place) + extra_s;
        let share = shares.iter().map(|(all, p)| all * p).sum();
        let mut best: Option<(f64, Choice)> = None;
        for runs in RUNS {
            let summaries = &facts.summaries;
            let variance =
                (noise * variance_factor(runs, summaries.sigma_within, summaries.sigma_boot)).max(1e-12);
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
