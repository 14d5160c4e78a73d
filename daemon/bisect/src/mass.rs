//! How probable it is that a kernel contains the culprit: the mass of its ancestors, for every commit at once.
//!
//! Exact (see `segments`) wherever that takes milliseconds: nearly always, since what carries no mass any more costs
//! nothing. On a range like a whole kernel's development cycle 256 samples of the posterior stand in, and whoever
//! chooses counts the few that matter exactly.

use crate::History;
use crate::segments::{Dag, Segments, sampled};
use crate::span::Span;

/// Words of 64 sources above which masses are sampled: about 50 ms of exact counting.
const EXACT_WORK: usize = 6_000_000;

/// The candidates of a span as a graph, made ready once for any number of weights.
#[derive(Debug)]
pub struct Graph {
    dag: Dag,
    segments: Segments,
}

impl Graph {
    fn new(history: &History, span: &Span) -> Graph {
        let dag = Dag::new((0..history.len() as u32).map(|place| {
            let parents = if span.has(place) {
                history.parents(place)
            } else {
                &[]
            };
            parents.iter().copied().filter(|p| span.has(*p))
        }));
        Graph {
            segments: Segments::new(&dag),
            dag,
        }
    }
}

fn graph<'s>(history: &History, span: &'s Span) -> &'s Graph {
    span.graph.get_or_init(|| Graph::new(history, span))
}

/// For each place the weight of those candidates that it contains.
pub fn masses(history: &History, span: &Span, weight: &[f64]) -> Vec<f64> {
    let graph = graph(history, span);
    let mut inside = vec![0.0; graph.dag.len()];
    for place in span.candidates.ones() {
        inside[place] = weight[place];
    }
    if sampled_for(history, span) {
        sampled(&graph.dag, &inside)
    } else {
        graph.segments.masses(&inside)
    }
}

/// Whether masses are estimated on this span.
pub fn sampled_for(history: &History, span: &Span) -> bool {
    graph(history, span).segments.most_work() > EXACT_WORK
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
