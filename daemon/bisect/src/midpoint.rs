//! The commits of a range by their distance from its ends, as git's own bisection counts and chooses them.
//!
//! git's rules (`bisect.c`, `find_bisection`): a commit reaches so many commits of the range that changed something;
//! its distance is the smaller of that and of what is left. `--bisect-all` sorts by distance, then by id. `--bisect`
//! takes the first that is halfway, in the order in which git comes to know the numbers: merges first, then along the
//! list from the oldest; only where none is halfway the best of all. Halfway is within one of the half, twice over, or
//! within a thousandth of the range.
//!
//! What this file must *not* know: where the list comes from.

use crate::segments::{Dag, Segments};
use std::cmp::Ordering;

/// A range as git lists it, oldest first (its list reversed).
#[derive(Clone, Debug)]
pub struct Listed {
    start: Vec<u32>,
    parent: Vec<u32>,
    /// Whether a commit counts: with a path limit those that change nothing there do not.
    counted: Vec<bool>,
    reach: Vec<u32>,
    total: u32,
}

impl Listed {
    /// `parents`: of each commit in turn the places in this list of those parents that lie in the range. Children
    /// may stand before parents, where clocks were wrong.
    pub fn new(parents: &[Vec<u32>], counted: Vec<bool>) -> Listed {
        let mut start = vec![0];
        let mut parent = Vec::new();
        for own in parents {
            parent.extend_from_slice(own);
            start.push(parent.len() as u32);
        }
        let mut listed = Listed {
            start,
            parent,
            total: counted.iter().map(|c| u32::from(*c)).sum(),
            counted,
            reach: Vec::new(),
        };
        listed.reach = listed.count();
        listed
    }

    fn parents(&self, at: usize) -> &[u32] {
        &self.parent[self.start[at] as usize..self.start[at + 1] as usize]
    }

    fn count(&self) -> Vec<u32> {
        let order = self.parents_first();
        let mut place = vec![u32::MAX; order.len()];
        for (i, &at) in order.iter().enumerate() {
            place[at as usize] = i as u32;
        }
        let dag = Dag::new(order.iter().map(|&at| {
            let parents = self.parents(at as usize).iter();
            parents.map(|p| place[*p as usize])
        }));
        let weight = order
            .iter()
            .map(|&at| f64::from(u8::from(self.counted[at as usize])));
        let masses = Segments::new(&dag).masses(&weight.collect::<Vec<f64>>());
        // Whole numbers below 2^53: the sums are exact.
        place.iter().map(|&p| masses[p as usize] as u32).collect()
    }

    /// Kahn's order; the list itself where no clock was wrong.
    fn parents_first(&self) -> Vec<u32> {
        let n = self.counted.len();
        let sorted = (0..n).all(|at| self.parents(at).iter().all(|p| (*p as usize) < at));
        if sorted {
            return (0..n as u32).collect();
        }
        let mut waits = vec![0u32; n];
        let mut children = vec![Vec::new(); n];
        for (at, waits) in waits.iter_mut().enumerate() {
            for &p in self.parents(at) {
                *waits += 1;
                children[p as usize].push(at as u32);
            }
        }
        let mut order: Vec<u32> = (0..n as u32).filter(|&at| waits[at as usize] == 0).collect();
        let mut next = 0;
        while let Some(&at) = order.get(next) {
            next += 1;
            for &child in &children[at as usize] {
                waits[child as usize] -= 1;
                if waits[child as usize] == 0 {
                    order.push(child);
                }
            }
        }
        order
    }

    /// How many counted commits it contains, itself included.
    pub fn reach(&self, at: usize) -> u32 {
        self.reach[at]
    }

    pub fn distance(&self, at: usize) -> u32 {
        self.reach[at].min(self.total - self.reach[at])
    }

    /// Counted commits with their distances, furthest from the ends first; `by_name` compares two of them.
    pub fn all(&self, by_name: impl Fn(usize, usize) -> Ordering) -> Vec<(usize, u32)> {
        let counted = (0..self.counted.len()).filter(|&at| self.counted[at]);
        let mut all: Vec<(usize, u32)> = counted.map(|at| (at, self.distance(at))).collect();
        all.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| by_name(a.0, b.0)));
        all
    }

    /// The one that git would test next.
    pub fn best(&self) -> Option<usize> {
        self.first_halfway().or_else(|| {
            let counted = (0..self.counted.len()).filter(|&at| self.counted[at]);
            counted.reduce(|best, at| {
                if self.distance(at) > self.distance(best) {
                    at
                } else {
                    best
                }
            })
        })
    }

    fn halfway(&self, at: usize) -> bool {
        let off = (2 * i64::from(self.reach[at]) - i64::from(self.total)).unsigned_abs();
        self.counted[at] && (off <= 1 || off < u64::from(self.total / 1024))
    }

    fn first_halfway(&self) -> Option<usize> {
        let n = self.counted.len();
        let merge = |at: &usize| self.parents(*at).len() > 1;
        if let Some(at) = (0..n).filter(merge).find(|&at| self.halfway(at)) {
            return Some(at);
        }
        // A number is known once a parent's is; roots know theirs from the start and are not looked at.
        let mut known: Vec<bool> = (0..n).map(|at| self.parents(at).len() != 1).collect();
        let mut left: Vec<usize> = (0..n).filter(|at| !known[*at]).collect();
        while !left.is_empty() {
            let before = left.len();
            let mut later = Vec::new();
            for at in left {
                if !known[self.parents(at)[0] as usize] {
                    later.push(at);
                    continue;
                }
                known[at] = true;
                if self.halfway(at) {
                    return Some(at);
                }
            }
            if later.len() == before {
                break; // a cycle: no git history
            }
            left = later;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_a_line_is_its_half() {
        let parents: Vec<Vec<u32>> = (0..5u32)
            .map(|i| i.checked_sub(1).into_iter().collect())
            .collect();
        let listed = Listed::new(&parents, vec![true; 5]);
        assert_eq!(listed.best(), Some(1)); // 2 of 5: git stops at the first that is within one of half
        let all = listed.all(|a, b| a.cmp(&b));
        assert_eq!(all, [(1, 2), (2, 2), (0, 1), (3, 1), (4, 0)]);
    }

    #[test]
    fn children_may_stand_before_parents_and_nothing_has_no_middle() {
        let listed = Listed::new(&[vec![2], vec![0], vec![]], vec![true; 3]);
        assert_eq!((0..3).map(|at| listed.reach(at)).collect::<Vec<_>>(), [2, 3, 1]);
        assert_eq!(Listed::new(&[], Vec::new()).best(), None);
    }
}
