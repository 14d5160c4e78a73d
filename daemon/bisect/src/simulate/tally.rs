//! How often the answer was right, wrong or none, what was claimed, and what it cost.

use super::lab::Played;
use super::shape::Shape;
use super::world::Drawn;
use crate::special::beta_quantile;
use crate::{Conclusion, Status};
use std::collections::BTreeMap;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    Right,
    /// A commit is named that did no harm, or a set that holds none that did.
    Wrong,
    Undecided,
}

impl Answer {
    /// What a conclusion is worth in a world whose losses and gains are known. Where several changed, right is who
    /// names all losses; where none did, who says so.
    pub fn of(conclusion: Option<&Conclusion>, losses: &[u32], gains: &[u32], several: bool) -> Answer {
        let Some(conclusion) = conclusion else {
            return Answer::Undecided;
        };
        let numbers =
            |ids: &[crate::CommitId]| -> Vec<Option<u32>> { ids.iter().map(Shape::number).collect() };
        let named = numbers(&conclusion.first_bad);
        let known = |n: &Option<u32>| n.is_some_and(|n| losses.contains(&n));
        if !named.iter().all(known) {
            return Answer::Wrong;
        }
        match conclusion.status {
            Status::CulpritFound | Status::CulpritsFound | Status::SeveralChanges => {
                let better = numbers(&conclusion.improved);
                let missed = several && (named.len() < losses.len() || better.len() < gains.len());
                if !better.iter().all(|n| n.is_some_and(|n| gains.contains(&n))) {
                    Answer::Wrong
                } else if missed || named.is_empty() {
                    Answer::Undecided
                } else {
                    Answer::Right
                }
            }
            Status::CulpritRange => {
                let held = numbers(&conclusion.suspects).iter().any(known);
                if held { Answer::Undecided } else { Answer::Wrong }
            }
            Status::EndpointsIndistinguishable | Status::BelowThreshold if losses.is_empty() => Answer::Right,
            Status::EndpointsIndistinguishable
            | Status::BelowThreshold
            | Status::ImprovedNotRegressed
            | Status::MergeBaseBad
            | Status::MachineDependent
            | Status::Inconclusive
            | Status::InfraFailed => Answer::Undecided,
        }
    }
}

/// Exact two-sided 95 % interval of a share, `hits` of `trials` (Clopper and Pearson 1934).
pub fn exact95(hits: usize, trials: usize) -> (f64, f64) {
    let (k, n) = (hits.min(trials) as f64, trials as f64);
    let low = if hits == 0 {
        0.0
    } else {
        beta_quantile(0.025, k, n - k + 1.0)
    };
    let high = if hits >= trials {
        1.0
    } else {
        beta_quantile(0.975, k + 1.0, n - k)
    };
    (low, high)
}

#[derive(Clone, Default, Debug)]
pub struct Tally {
    pub right: usize,
    pub wrong: usize,
    pub undecided: usize,
    /// Confidences of those that named commits.
    pub claimed: Vec<f64>,
    /// How many named commits, and how many of these rightly.
    pub named: usize,
    pub named_right: usize,
    pub statuses: BTreeMap<&'static str, usize>,
    pub boots: Vec<f64>,
    pub kernels: Vec<f64>,
    pub minutes: Vec<f64>,
    /// Seeds of worlds in which something wrong was said.
    pub wrong_seeds: Vec<u64>,
}

impl Tally {
    /// Judges how a drawn world was played, and counts it.
    pub fn add(&mut self, seed: u64, world: &Drawn, several: bool, played: &Played) -> Answer {
        let answer = Answer::of(
            played.conclusion.as_ref(),
            &world.losses(),
            &world.gains(),
            several,
        );
        self.count(seed, answer, played);
        answer
    }

    pub fn count(&mut self, seed: u64, answer: Answer, played: &Played) {
        match answer {
            Answer::Right => self.right += 1,
            Answer::Wrong => {
                self.wrong += 1;
                self.wrong_seeds.push(seed);
            }
            Answer::Undecided => self.undecided += 1,
        }
        let conclusion = played.conclusion.as_ref();
        if let Some(c) = conclusion
            && !c.first_bad.is_empty()
        {
            self.named += 1;
            self.claimed.push(c.confidence);
            self.named_right += usize::from(answer != Answer::Wrong);
        }
        let word = conclusion.map_or("never_ended", |c| c.status.word());
        *self.statuses.entry(word).or_default() += 1;
        self.boots.push(played.boots() as f64);
        self.kernels.push(played.kernels as f64);
        self.minutes.push(played.minutes());
    }

    pub fn join(&mut self, other: Tally) {
        self.right += other.right;
        self.wrong += other.wrong;
        self.undecided += other.undecided;
        self.claimed.extend(other.claimed);
        self.named += other.named;
        self.named_right += other.named_right;
        for (status, count) in other.statuses {
            *self.statuses.entry(status).or_default() += count;
        }
        self.boots.extend(other.boots);
        self.kernels.extend(other.kernels);
        self.minutes.extend(other.minutes);
        self.wrong_seeds.extend(other.wrong_seeds);
        self.wrong_seeds.sort_unstable();
    }

    pub fn trials(&self) -> usize {
        self.right + self.wrong + self.undecided
    }

    /// Mean confidence of those that named commits, and the share of them that was right.
    pub fn claimed_and_actual(&self) -> Option<(f64, f64)> {
        // Sorted before they are summed: trials come in any order.
        let mut claimed = self.claimed.clone();
        claimed.sort_by(f64::total_cmp);
        let named = self.named as f64;
        (self.named > 0).then(|| {
            (
                claimed.iter().sum::<f64>() / named,
                self.named_right as f64 / named,
            )
        })
    }

    /// The value below which the share `q` of them lies; sorts, so the order of trials does not matter.
    pub fn quantile(values: &[f64], q: f64) -> f64 {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = (q * sorted.len() as f64) as usize;
        sorted
            .get(at.min(sorted.len().saturating_sub(1)))
            .copied()
            .unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_intervals_are_those_of_the_tables() {
        // Clopper and Pearson: 0 of n is 1 - 0.025^(1/n); 1 of 10 is 0.0025 to 0.4450.
        let (low, high) = exact95(0, 10_000);
        assert_eq!(low, 0.0);
        assert!((high - (1.0 - 0.025f64.powf(1e-4))).abs() < 1e-12);
        let (low, high) = exact95(1, 10);
        assert!(
            (low - 0.002_529).abs() < 1e-6 && (high - 0.445_016).abs() < 1e-6,
            "{low} {high}"
        );
        assert_eq!(exact95(10, 10).1, 1.0);
    }

    fn conclusion(status: Status, first_bad: &[u32], improved: &[u32]) -> Conclusion {
        let names = |of: &[u32]| of.iter().map(|c| Shape::name(*c)).collect::<Vec<_>>();
        Conclusion {
            first_bad: names(first_bad),
            improved: names(improved),
            suspects: names(first_bad),
            confidence: 0.99,
            ..crate::report::blank(status)
        }
    }

    #[test]
    fn naming_an_innocent_is_wrong_and_missing_one_is_not_right() {
        let of = |status, first_bad: &[u32], improved: &[u32], losses: &[u32], gains: &[u32], several| {
            Answer::of(
                Some(&conclusion(status, first_bad, improved)),
                losses,
                gains,
                several,
            )
        };
        let found = Status::CulpritFound;
        assert_eq!(of(found, &[3], &[], &[3], &[], false), Answer::Right);
        assert_eq!(of(found, &[4], &[], &[3], &[], false), Answer::Wrong);
        assert_eq!(of(found, &[3], &[], &[], &[], false), Answer::Wrong);
        assert_eq!(of(found, &[3], &[5], &[3], &[], false), Answer::Wrong);
        assert_eq!(of(found, &[3], &[], &[3, 7], &[], true), Answer::Undecided);
        assert_eq!(
            of(Status::CulpritsFound, &[3, 7], &[], &[3, 7], &[], true),
            Answer::Right
        );
        assert_eq!(
            of(Status::CulpritRange, &[], &[], &[3], &[], false),
            Answer::Wrong
        );
        let same = Status::EndpointsIndistinguishable;
        assert_eq!(of(same, &[], &[], &[], &[], false), Answer::Right);
        assert_eq!(of(same, &[], &[], &[3], &[], false), Answer::Undecided);
        assert_eq!(Answer::of(None, &[3], &[], false), Answer::Undecided);
    }
}
