//! How probable it is that a kernel contains the culprit: the mass of its ancestors, for every commit at once.
//!
//! A commit with one parent has its parent's ancestors and itself: only merges need a union of sets. Small ranges
//! take it exactly. On large ones the mass is first estimated from 256 systematic samples of the posterior,
//! carried through the graph as bits, and then computed exactly for the few that matter (a split at 0.49 instead
//! of 0.5 loses 0.0003 bit).

use crate::History;
use crate::span::Span;

/// Merges x commits above which masses are sampled first.
const EXACT_WORK: usize = 200_000;
const WORDS: usize = 4;

pub fn masses(history: &History, span: &Span, weight: &[f64]) -> Vec<f64> {
    if sampled_for(history, span) {
        sampled(history, span, weight)
    } else {
        exact(history, span, weight)
    }
}

/// Whether masses are estimated on this span.
pub fn sampled_for(history: &History, span: &Span) -> bool {
    span.merges.saturating_mul(history.len()) > EXACT_WORK
}

pub fn exact(history: &History, span: &Span, weight: &[f64]) -> Vec<f64> {
    let mut mass = vec![0.0; history.len()];
    for place in span.candidates.ones() {
        let mut inside = history.parents(place as u32).iter().filter(|&&p| span.has(p));
        mass[place] = match (inside.next(), inside.next()) {
            (None, _) => weight[place],
            (Some(&parent), None) => mass[parent as usize] + weight[place],
            _ => one(history, span, weight, place as u32),
        };
    }
    mass
}

/// The mass of one commit's ancestors, itself included.
pub fn one(history: &History, span: &Span, weight: &[f64], place: u32) -> f64 {
    let above = history.ancestors(place);
    above
        .ones()
        .filter(|&p| span.has(p as u32))
        .map(|p| weight[p])
        .sum()
}

fn sampled(history: &History, span: &Span, weight: &[f64]) -> Vec<f64> {
    let total: f64 = span.candidates.ones().map(|p| weight[p]).sum();
    let samples = 64 * WORDS;
    let mut bits = vec![[0u64; WORDS]; history.len()];
    let (mut sum, mut next) = (0.0, 0usize);
    for place in span.candidates.ones() {
        let mut own = [0u64; WORDS];
        for &p in history.parents(place as u32) {
            for (o, b) in own.iter_mut().zip(&bits[p as usize]) {
                *o |= b;
            }
        }
        sum += weight[place];
        while next < samples && sum >= total * (next as f64 + 0.5) / samples as f64 {
            own[next / 64] |= 1 << (next % 64);
            next += 1;
        }
        bits[place] = own;
    }
    let share = |b: &[u64; WORDS]| b.iter().map(|w| w.count_ones()).sum::<u32>() as f64 / samples as f64;
    bits.iter().map(|b| total * share(b)).collect()
}

/// How many of `members` each kernel contains: exact, 64 at a time.
pub fn counts(history: &History, span: &Span, members: &[u32]) -> Vec<u32> {
    let mut counts = vec![0; history.len()];
    let mut bits = vec![0u64; history.len()];
    for chunk in members.chunks(64) {
        bits.fill(0);
        for (i, &p) in chunk.iter().enumerate() {
            bits[p as usize] |= 1 << i;
        }
        for place in span.candidates.ones() {
            let above = history.parents(place as u32).iter().map(|&p| bits[p as usize]);
            bits[place] |= above.fold(0, |all, own| all | own);
            counts[place] += bits[place].count_ones();
        }
    }
    counts
}
