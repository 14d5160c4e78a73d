//! One round of boots side by side: kernels, their machine, and a number fixed before the first boot.

use crate::Kernel;
use crate::belief::MachineBelief;
use crate::facts::{Facts, MOST_CONFIRM, confirmation};
use crate::search::{Ask, Want};

/// `z_0.975 + z_0.80`.
const POWER: f64 = 2.8;
/// Boots that failed among a kernel's confirmations after which no more are asked.
const PATIENCE: u32 = 3;

#[derive(Clone, Copy)]
pub struct Round {
    pub machine: usize,
    /// Boots of each kernel.
    pub count: u32,
    pub runs: u32,
}

impl Round {
    /// The round that is under way for these kernels, or the one that power asks for.
    pub fn of(facts: &Facts<'_>, on: &MachineBelief, kernels: &[Kernel]) -> Round {
        let runs = on.best_runs(facts);
        Round {
            machine: on.machine,
            count: number(facts, on, runs, kernels),
            runs,
        }
    }

    /// The last word, where a first round told nothing.
    pub fn longest(self) -> Round {
        Round {
            count: MOST_CONFIRM,
            ..self
        }
    }

    pub fn is_longest(&self) -> bool {
        self.count >= MOST_CONFIRM
    }

    /// Only boots of this round: another one's number was fixed for another reason.
    fn is_own(&self, replicate: u32) -> bool {
        confirmation(replicate) == Some(self.count)
    }

    /// Asks until each kernel has `count` confirmation boots, fewest first, so that they alternate.
    pub fn ask(&self, facts: &Facts<'_>, kernels: &[Kernel], reason: &str) -> Result<(), Ask> {
        let Round { machine, count, runs } = *self;
        let mut under_way = false;
        let mut next: Option<(u32, usize)> = None;
        for (i, kernel) in kernels.iter().enumerate() {
            let (measured, pending, failed) = self.confirmed(facts, kernel);
            under_way |= pending > 0;
            if measured + pending < count && failed < PATIENCE {
                // Rounds alternate their order: A B, B A.
                let round = measured + pending;
                let rank = if round % 2 == 0 { i } else { kernels.len() - i };
                if next.is_none_or(|n| (round, rank) < n) {
                    next = Some((round, rank));
                }
            }
        }
        let Some((round, rank)) = next else {
            return if under_way {
                Err(Ask {
                    reason: reason.to_owned(),
                    ..Ask::default()
                })
            } else {
                Ok(())
            };
        };
        let kernel = kernels[if round % 2 == 0 {
            rank
        } else {
            kernels.len() - rank
        }]
        .clone();
        let mut ask = Ask {
            reason: reason.to_owned(),
            ..Ask::default()
        };
        if facts.machines[machine].free {
            ask.wants.push(Want {
                kernel,
                machine,
                runs,
                of: count,
            });
        }
        Err(ask)
    }

    /// Confirmation boots of a kernel: measured, under way, failed.
    fn confirmed(&self, facts: &Facts<'_>, kernel: &Kernel) -> (u32, u32, u32) {
        let Some(&k) = facts.by_kernel.get(kernel) else {
            return (0, 0, 0);
        };
        let tried = &facts.kernels[k];
        if tried.build_failed {
            return (0, 0, PATIENCE);
        }
        let measured = self.boots(facts, kernel).len() as u32;
        let pending = facts
            .pending
            .iter()
            .filter(|p| p.0 == k && p.1 == self.machine && self.is_own(p.2))
            .count() as u32;
        (
            measured,
            pending,
            tried.boot_failed.max(tried.benchmark_failed).max(tried.lost),
        )
    }

    pub fn boots(&self, facts: &Facts<'_>, kernel: &Kernel) -> Vec<usize> {
        let Some(&k) = facts.by_kernel.get(kernel) else {
            return Vec::new();
        };
        let of = |&&b: &&usize| {
            let boot = &facts.boots[b];
            boot.machine == self.machine && self.is_own(boot.replicate)
        };
        facts.kernels[k].boots.iter().filter(of).copied().collect()
    }
}

fn number(facts: &Facts<'_>, on: &MachineBelief, runs: u32, kernels: &[Kernel]) -> u32 {
    let machine = on.machine;
    let of_kernel = |k: &Kernel| facts.by_kernel.get(k).copied();
    let begun = kernels
        .iter()
        .filter_map(of_kernel)
        .flat_map(|k| {
            let seen = facts.kernels[k]
                .boots
                .iter()
                .map(|&b| (facts.boots[b].machine, facts.boots[b].replicate));
            let pending = facts.pending.iter().filter(move |p| p.0 == k).map(|p| (p.1, p.2));
            seen.chain(pending)
        })
        .filter(|(m, _)| *m == machine)
        .filter_map(|(_, r)| confirmation(r))
        .max();
    if let Some(count) = begun {
        return count;
    }
    let d = on.delta.0.abs()
        / libm::sqrt(on.boot_variance(runs.saturating_sub(facts.summaries.warm_up))).max(1e-9);
    if d > 25.0 {
        return 1;
    }
    let by_power = (2.0 * POWER * POWER / (d * d))
        .ceil()
        .clamp(2.0, f64::from(MOST_CONFIRM)) as u32;
    // A machine that may move by half a boot's spread within an hour.
    if on.folded.walk2 > 0.25 * on.folded.s2 && on.folded.drifts > 0.6 {
        by_power.max(4)
    } else {
        by_power
    }
}
