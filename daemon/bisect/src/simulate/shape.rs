//! Shapes of invented histories: a line, and a mainline of merges like a kernel's.

use super::dice::Dice;
use crate::{Commit, CommitId, History};
use fixedbitset::FixedBitSet;
use std::collections::BTreeMap;

/// Commits by number, parents before children; commit `n` is called `c<n>`.
#[derive(Clone, Debug)]
pub struct Shape {
    pub parents: Vec<Vec<u32>>,
    pub good: u32,
    pub bad: u32,
}

/// Commits of a topic branch, on average.
const TOPIC: f64 = 14.0;
/// How far back on the mainline a topic branch may start, in mainline commits.
const FORKS_BACK: usize = 25;
/// Share of topic branches that take in another one on their way.
const CROSSES: f64 = 0.1;

impl Shape {
    /// `good` and as many commits after it, one on the other.
    pub fn line(candidates: usize) -> Shape {
        let candidates = candidates.max(1) as u32;
        Shape {
            parents: (0..=candidates)
                .map(|i| i.checked_sub(1).into_iter().collect())
                .collect(),
            good: 0,
            bad: candidates,
        }
    }

    /// A mainline that merges topic branches (6 % of the commits are merges, some branches merge each other).
    /// `older` mainline commits lie before `good`: where there are some, branches fork from them too.
    pub fn kernel_like(candidates: usize, older: usize, dice: &mut Dice) -> Shape {
        let candidates = candidates.max(1);
        let mut parents: Vec<Vec<u32>> = Shape::line(older.max(1)).parents;
        parents.truncate(older + 1);
        let good = older as u32;
        let mut mainline: Vec<u32> = (0..=good).collect();
        let mut tips: Vec<u32> = Vec::new();
        let push = |parents: &mut Vec<Vec<u32>>, own: Vec<u32>| {
            parents.push(own);
            parents.len() as u32 - 1
        };
        while parents.len() - 1 - older < candidates {
            let left = candidates - (parents.len() - 1 - older);
            let tip = mainline[mainline.len() - 1];
            if left < 3 || dice.chance(0.4) {
                mainline.push(push(&mut parents, vec![tip]));
                continue;
            }
            let wanted = (-TOPIC * libm::log(1.0 - dice.unit())) as usize + 1;
            let length = wanted.min(left - 1);
            let back = dice.below(FORKS_BACK.min(mainline.len()));
            let mut at = mainline[mainline.len() - 1 - back];
            let cross = dice.chance(CROSSES).then(|| dice.below(length));
            for i in 0..length {
                let mut own = vec![at];
                if cross == Some(i) && !tips.is_empty() {
                    own.push(tips[tips.len() - 1 - dice.below(tips.len().min(8))]);
                }
                at = push(&mut parents, own);
            }
            tips.push(at);
            mainline.push(push(&mut parents, vec![tip, at]));
        }
        let bad = parents.len() as u32 - 1;
        Shape { parents, good, bad }
    }

    pub fn name(commit: u32) -> CommitId {
        CommitId::new(format!("c{commit}"))
    }

    /// The number of a commit that is one of a shape's.
    pub fn number(id: &CommitId) -> Option<u32> {
        id.as_str().strip_prefix('c')?.parse().ok()
    }

    /// # Panics
    /// Where `parents` was made by hand and is no history from `good` to `bad`.
    pub fn history(&self) -> History {
        let commits = self.parents.iter().zip(0u32..).map(|(parents, i)| Commit {
            id: Shape::name(i),
            parents: parents.iter().map(|p| Shape::name(*p)).collect(),
        });
        let (good, bad) = (Shape::name(self.good), Shape::name(self.bad));
        History::new(good, bad, commits.collect(), false, BTreeMap::new()).expect("bad contains good")
    }

    /// The commit and all that it contains.
    pub fn above(&self, commit: u32) -> FixedBitSet {
        let mut seen = FixedBitSet::with_capacity(self.parents.len());
        let mut stack = vec![commit];
        seen.insert(commit as usize);
        while let Some(at) = stack.pop() {
            for &p in &self.parents[at as usize] {
                if !seen.put(p as usize) {
                    stack.push(p);
                }
            }
        }
        seen
    }

    /// Commits that may have made the difference, lowest number first.
    pub fn candidates(&self) -> Vec<u32> {
        let mut left = self.above(self.bad);
        left.difference_with(&self.above(self.good));
        left.ones().map(|c| c as u32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_like_history_has_as_many_candidates_as_asked_for_and_merges_like_a_kernel() {
        for (candidates, older) in [(2, 0), (64, 0), (1024, 30), (16384, 30)] {
            let shape = Shape::kernel_like(candidates, older, &mut Dice::new(5));
            assert_eq!(shape.candidates().len(), candidates);
            assert_eq!(shape.history().candidates(), candidates);
            let merges = shape.parents.iter().filter(|p| p.len() > 1).count() as f64;
            if candidates > 1000 {
                let share = merges / candidates as f64;
                assert!((0.04..0.09).contains(&share), "{share}");
            }
        }
    }

    #[test]
    fn branches_fork_before_good_where_the_mainline_is_older() {
        let shape = Shape::kernel_like(512, 30, &mut Dice::new(7));
        let stale = shape.candidates().into_iter().filter(|&c| {
            let above = shape.above(c);
            !above.contains(shape.good as usize)
        });
        assert!(stale.count() > 20);
    }
}
