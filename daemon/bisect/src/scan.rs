//! A stretch whose ends are alike may still hold a loss and a gain that undo each other. Where everything is asked
//! for, kernels are measured so densely that no longer stretch than a sixteenth of the range stays unseen.

use crate::mass;
use crate::pivot::{OBVIOUS, PATIENCE, STEP, SUSPICIOUS, gap};
use crate::search::{Ask, Searcher, want};
use crate::span::{Base, Span};

const STRETCHES: usize = 16;
/// A stretch so short is left alone.
const SHORT: usize = 4;

pub enum Scanned {
    /// Nothing in it stands out.
    Alike,
    /// This kernel clearly differs from one end at least, which are alike: something changed on the way to it.
    Split(u32),
    Look(Ask),
}

pub fn scan(searcher: &Searcher<'_>, from: u32, to: u32) -> Scanned {
    let facts = searcher.facts;
    let span = facts.span(from, to);
    let usable = facts.usable();
    let machines: Vec<usize> = searcher
        .ready()
        .into_iter()
        .filter(|m| usable.contains(m))
        .collect();
    let measured = |place: u32| machines.iter().any(|&m| !facts.boots_on(place, m).is_empty());
    let inner: Vec<u32> = span
        .candidates
        .ones()
        .map(|p| p as u32)
        .filter(|&p| p != to && span.base(p) == Base::Low && facts.skip_at(p).is_none())
        .collect();
    let mut again: Option<(f64, u32)> = None;
    for &place in inner.iter().filter(|&&p| measured(p)) {
        let (Some(below), Some(above)) = (gap(searcher, from, place), gap(searcher, place, to)) else {
            continue;
        };
        let z = below.z.abs().max(above.z.abs());
        let step = below.difference.abs().max(above.difference.abs());
        let boots = facts.boots_at(place).len();
        let least = facts.scale.least;
        if (boots >= 3 || z > OBVIOUS) && (below.clear(least) || above.clear(least)) {
            return Scanned::Split(place);
        }
        let suspicious = z > SUSPICIOUS && step > STEP * least && boots < PATIENCE;
        if suspicious && again.is_none_or(|(best, _)| z > best) {
            again = Some((z, place));
        }
    }
    let next = again.map(|(_, place)| (place, "does not fit its stretch: once more, to be sure"));
    let unseen = || widest(searcher, &span, &inner, &measured);
    let next = next.or_else(|| unseen().map(|p| (p, "lies in a stretch that was never looked into")));
    let Some((place, why)) = next else {
        return Scanned::Alike;
    };
    let free = machines.iter().find(|&&m| facts.machines[m].free);
    let under_way = machines.iter().any(|&m| facts.pending_at(place, m) > 0);
    let wants = free
        .filter(|_| !under_way)
        .and_then(|&m| Some(want(facts, place, m, searcher.look(m)?.best_runs(facts))));
    Scanned::Look(Ask {
        wants: wants.into_iter().collect(),
        reason: format!("{} {why}", facts.history.id(place)),
        ..Ask::default()
    })
}

/// The kernel that halves the widest unseen stretch, if one is too wide.
fn widest(
    searcher: &Searcher<'_>,
    span: &Span,
    inner: &[u32],
    measured: &dyn Fn(u32) -> bool,
) -> Option<u32> {
    let history = searcher.facts.history;
    let mut ones = vec![0.0; history.len()];
    span.candidates.ones().for_each(|p| ones[p] = 1.0);
    let rank = mass::masses(history, span, &ones);
    let longest = (history.candidates() / STRETCHES).max(SHORT) as f64;
    let mut seen: Vec<f64> = inner
        .iter()
        .filter(|&&p| measured(p))
        .map(|&p| rank[p as usize])
        .collect();
    seen.extend([0.0, rank[span.high as usize]]);
    seen.sort_by(f64::total_cmp);
    let mut holes: Vec<(f64, f64)> = seen
        .windows(2)
        .map(|w| (w[0], w[1]))
        .filter(|h| h.1 - h.0 > longest)
        .collect();
    holes.sort_by(|a, b| (b.1 - b.0).total_cmp(&(a.1 - a.0)));
    holes.into_iter().find_map(|(low, high)| {
        let off = |p: u32| (rank[p as usize] - 0.5 * (low + high)).abs();
        inner
            .iter()
            .copied()
            .filter(|&p| !measured(p) && off(p) < 0.5 * (high - low))
            .min_by(|&a, &b| off(a).total_cmp(&off(b)).then(a.cmp(&b)))
    })
}
