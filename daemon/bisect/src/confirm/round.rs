//! One round of boots side by side: kernels, their machine, and a number fixed before the first boot.

use crate::Kernel;
use crate::belief::{MOST_RUNS, MachineBelief};
use crate::facts::{Facts, MOST_CONFIRM, confirmation};
use crate::search::{Ask, Want};

/// `z_0.975 + z_0.90`.
const POWER: f64 = 3.24;
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
    /// The round that is under way for these kernels, or the cheapest one of the power asked for.
    pub fn of(facts: &Facts<'_>, on: &MachineBelief, kernels: &[Kernel]) -> Round {
        let machine = on.machine;
        let cheapest = cheapest(facts, on);
        match begun(facts, machine, kernels) {
            Some(count) if count != cheapest.count => Round {
                machine,
                count,
                runs: on.best_runs(facts),
            },
            _ => cheapest,
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

/// The number that was fixed for a round of these kernels already.
fn begun(facts: &Facts<'_>, machine: usize, kernels: &[Kernel]) -> Option<u32> {
    let of_kernel = |k: &Kernel| facts.by_kernel.get(k).copied();
    kernels
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
        .max()
}

/// Boots of each kernel, and their runs: `n = 2 (z_0.975 + z_0.90)^2 s_r^2 / delta^2`, at least two of each kernel.
fn cheapest(facts: &Facts<'_>, on: &MachineBelief) -> Round {
    // A machine that may move by half a boot's spread within an hour.
    let drifts = on.folded.walk2 > 0.25 * on.folded.s2 && on.folded.drifts > 0.6;
    let round = |runs: u32| {
        let d = on.delta.0.abs() / libm::sqrt(on.boot_variance(runs)).max(1e-9);
        let by_power = (2.0 * POWER * POWER / (d * d)).ceil();
        let count = match d {
            d if d > 25.0 => 1,
            _ => by_power.clamp(if drifts { 4.0 } else { 2.0 }, f64::from(MOST_CONFIRM)) as u32,
        };
        Round {
            machine: on.machine,
            count,
            runs: runs + facts.summaries.warm_up,
        }
    };
    let seconds = |r: &Round| f64::from(r.count) * facts.boot_s(r.runs);
    // What the most boots can't reach with few runs is nearest with many.
    let most = round(MOST_RUNS);
    let all = (1..MOST_RUNS).map(round).filter(|r| r.count < MOST_CONFIRM);
    all.chain([most])
        .min_by(|a, b| seconds(a).total_cmp(&seconds(b)))
        .unwrap_or(most)
}
