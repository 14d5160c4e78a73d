//! Before the first boot: how probable each candidate of a span is to be the culprit.
//!
//! `P(no change)` is fixed; the rest is shared out by the history's weights. What this file must *not* know: levels.

use crate::History;
use crate::bank::{NO_CHANGE, Prior};
use crate::facts::Facts;
use crate::memo::PriorKey;
use crate::span::Span;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A merge that changes nothing by itself is rarely the culprit, but may be.
const MERGE_WEIGHT: f64 = 0.2;

/// Whether a kernel is one of the span's: its low end, or a candidate.
pub fn stands_on(span: &Span, place: u32) -> bool {
    place == span.low || span.has(place)
}

/// Prior of each candidate: what the history says, merges little, and nothing for a commit whose kernel is the
/// same binary as one without it, or that the user's word excludes.
pub fn prior(facts: &Facts<'_>, span: &Span) -> Arc<Prior> {
    let mut by_binary: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
    for kernel in facts.kernels.iter().filter(|k| k.kernel.is_plain() && k.built) {
        if stands_on(span, kernel.place) {
            by_binary.entry(kernel.binary).or_default().push(kernel.place);
        }
    }
    let mut twins = Vec::new();
    for places in by_binary.values_mut() {
        places.sort_unstable();
        twins.extend(places.windows(2).map(|pair| (pair[0], pair[1])));
    }
    twins.sort_unstable();
    let words = facts
        .words
        .iter()
        .copied()
        .filter(|w| stands_on(span, w.0))
        .collect();
    let key = PriorKey {
        span: span.key(),
        twins,
        words,
    };
    let new = || weigh(facts.history, span, &key);
    facts.memo.borrow_mut().prior(key.clone(), new)
}

fn weigh(history: &History, span: &Span, key: &PriorKey) -> Prior {
    let mut weight = vec![0.0; history.len()];
    let plain = history.weights().is_empty();
    for place in span.candidates.ones() {
        let said = if plain {
            None
        } else {
            history.weights().get(history.id(place as u32))
        };
        let merge = history.commits()[place].parents.len() > 1 && !history.first_parent();
        let said = said.copied().unwrap_or(1.0).clamp(1e-9, 1e9);
        weight[place] = said * if merge { MERGE_WEIGHT } else { 1.0 };
    }
    for &(a, b) in &key.twins {
        let mut between = history.ancestors(a);
        between.symmetric_difference_with(&history.ancestors(b));
        between.ones().for_each(|p| weight[p] = 0.0);
    }
    for &(place, bad) in &key.words {
        let above = history.ancestors(place);
        for (p, weight) in weight.iter_mut().enumerate() {
            if above.contains(p) != bad {
                *weight = 0.0;
            }
        }
    }
    let total: f64 = weight.iter().sum();
    if total > 0.0 {
        weight.iter_mut().for_each(|w| *w *= (1.0 - NO_CHANGE) / total);
    }
    Prior {
        // With every candidate excluded nothing else is left.
        none: if total > 0.0 { NO_CHANGE } else { 1.0 },
        of: weight,
    }
}
