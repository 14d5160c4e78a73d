//! The record put in order: kernels with their boots, failures and pending jobs, sorted so that the order of
//! the record's rows cannot matter. Same binaries are found here. What this file must *not* know: suspects.

use crate::memo::Memo;
use crate::scale::Scale;
use crate::span::Span;
use crate::summary::{self, Summaries};
use crate::{History, Kernel, MachineId, Outcome, OverrideVerdict, Record, Value};
use fixedbitset::FixedBitSet;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Confirmation boots carry replicate numbers from here on: so the record itself says which boots were asked
/// for to size the effect, their number fixed beforehand as `replicate / CONFIRM`, and which ones chose.
pub const CONFIRM: u32 = 1000;
/// More boots than this are never fixed beforehand: a lab may number its own as high as it likes.
pub const MOST_CONFIRM: u32 = 8;

/// The same of boots that tell a switch of modes from chance: a first round, and a second one with a number of its own.
pub const SWITCH_CONFIRM: [u32; 2] = [12, 13];

/// The number fixed beforehand that a boot's replicate number tells, where it is a confirmation.
pub fn confirmation(replicate: u32) -> Option<u32> {
    Some(replicate / CONFIRM).filter(|n| (1..=MOST_CONFIRM).contains(n) || SWITCH_CONFIRM.contains(n))
}

/// Failures of one kernel after which it is left alone: a build is the same each time, a boot or a benchmark
/// may fail by chance (with 12 % of boots hanging, three in a row happen to one kernel in 580).
const BOOT_FAILURES: u32 = 3;
const LOST: u32 = 3;
/// Jobs lost in a row after which a machine is given up.
const MACHINE_LOST: usize = 4;

/// One measured boot.
#[derive(Clone, Debug)]
pub struct Boot {
    pub kernel: usize,
    pub machine: usize,
    pub replicate: u32,
    pub at_s: f64,
    pub runs: Vec<f64>,
    /// The robust centre of the runs.
    pub y: f64,
    /// Runs that count (warm-up runs left out).
    pub counted: u32,
    /// Of each run: 1 where it was cut off at a lower limit of what it is, -1 at an upper one, 0 where it is a value.
    pub cuts: Vec<i8>,
    /// The same of `y`.
    pub cut: i8,
}

#[derive(Clone, Debug)]
pub struct Tried {
    pub kernel: Kernel,
    pub place: u32,
    /// Kernels with the same number run the same binary.
    pub binary: usize,
    pub boots: Vec<usize>,
    pub build_failed: bool,
    pub boot_failed: u32,
    pub benchmark_failed: u32,
    pub lost: u32,
    pub skip_override: bool,
    /// Built already, as far as the record tells.
    pub built: bool,
}

impl Tried {
    /// Why nothing more is asked of this kernel, if so.
    pub fn skip(&self) -> Option<&'static str> {
        if self.skip_override {
            Some("override")
        } else if !self.boots.is_empty() {
            None
        } else if self.build_failed {
            Some("build_failed")
        } else if self.boot_failed >= BOOT_FAILURES {
            Some("boot_failed")
        } else if self.benchmark_failed >= BOOT_FAILURES
            || self.boot_failed + self.benchmark_failed > BOOT_FAILURES
        {
            Some("benchmark_failed")
        } else if self.lost >= LOST {
            Some("lost")
        } else {
            None
        }
    }
}

#[derive(Clone, Debug)]
pub struct Lab {
    pub id: MachineId,
    /// Listed, not busy and without a pending job.
    pub free: bool,
    pub listed: bool,
    /// Its last jobs were all lost.
    pub given_up: bool,
}

/// How many of `n` boots the assumptions before the fold are made from: seldom another number, so that what was
/// folded stays folded.
pub fn stage(n: usize) -> usize {
    const STAGES: [usize; 7] = [1, 2, 4, 6, 8, 12, 16];
    let last = STAGES.iter().copied().rfind(|s| *s <= n).unwrap_or(0);
    let mut stage = last;
    while last == 16 && stage * 2 <= n {
        stage *= 2;
    }
    stage
}

pub struct Facts<'a> {
    pub history: &'a History,
    pub record: &'a Record,
    pub memo: &'a RefCell<Memo>,
    pub scale: Scale,
    pub machines: Vec<Lab>,
    pub kernels: Vec<Tried>,
    pub by_kernel: BTreeMap<Kernel, usize>,
    plain_at: HashMap<u32, usize>,
    /// By time, then identity.
    pub boots: Vec<Boot>,
    pub summaries: Summaries,
    /// `(kernel, machine)` of jobs asked for and not finished.
    pub pending: Vec<(usize, usize, u32)>,
    /// User's words: place and whether it is bad.
    pub words: Vec<(u32, bool)>,
    pub boots_spent: u32,
    taken: BTreeMap<(usize, usize), BTreeSet<u32>>,
}

impl<'a> Facts<'a> {
    pub fn new(history: &'a History, record: &'a Record, memo: &'a RefCell<Memo>) -> Facts<'a> {
        memo.borrow_mut().turn_to(history);
        let scale = Scale::of(&record.policy);
        let mut machines: BTreeMap<&MachineId, (bool, bool)> = BTreeMap::new();
        for m in &record.machines {
            machines.insert(&m.id, (true, !m.busy));
        }
        for o in &record.observations {
            machines.entry(&o.machine).or_insert((false, false));
        }
        for job in &record.pending {
            machines.entry(&job.machine).or_insert((false, false)).1 = false;
        }
        let machine_of: BTreeMap<&MachineId, usize> = machines.keys().copied().zip(0..).collect();
        let labs = machines
            .iter()
            .map(|(id, (listed, free))| Lab {
                id: (*id).clone(),
                free: *free,
                listed: *listed,
                given_up: false,
            })
            .collect();
        let mut facts = Facts {
            history,
            record,
            memo,
            scale,
            machines: labs,
            kernels: Vec::new(),
            by_kernel: BTreeMap::new(),
            plain_at: HashMap::new(),
            boots: Vec::new(),
            summaries: Summaries::default(),
            pending: Vec::new(),
            words: Vec::new(),
            boots_spent: 0,
            taken: BTreeMap::new(),
        };
        facts.list_kernels();
        facts.take_observations(&machine_of);
        for job in &record.pending {
            if let (Some(&k), Some(&m)) = (facts.by_kernel.get(&job.kernel), machine_of.get(&job.machine)) {
                facts.taken.entry((k, m)).or_default().insert(job.replicate);
                facts.pending.push((k, m, job.replicate));
            }
        }
        facts.pending.sort_unstable();
        facts.pending.dedup();
        facts
    }

    fn list_kernels(&mut self) {
        let record = self.record;
        let skips = record
            .overrides
            .iter()
            .filter(|o| o.verdict == OverrideVerdict::Skip);
        let skips: BTreeSet<_> = skips.map(|o| &o.commit).collect();
        let mut kernels: BTreeSet<Kernel> = record.observations.iter().map(|o| o.kernel.clone()).collect();
        kernels.extend(record.images.iter().map(|i| i.kernel.clone()));
        kernels.extend(record.pending.iter().map(|j| j.kernel.clone()));
        kernels.extend(skips.iter().map(|c| Kernel::plain((*c).clone())));
        for o in &record.overrides {
            if let (Some(place), true) = (self.history.place(&o.commit), o.verdict != OverrideVerdict::Skip) {
                self.words.push((place, o.verdict == OverrideVerdict::Bad));
            }
        }
        self.words.sort_unstable();
        self.words.dedup_by_key(|w| w.0);
        let digests: BTreeMap<&Kernel, &str> = record
            .images
            .iter()
            .map(|i| (&i.kernel, i.digest.as_str()))
            .collect();
        let mut binaries: BTreeMap<&str, usize> = BTreeMap::new();
        for kernel in kernels {
            let Some(place) = self.history.place(&kernel.commit) else {
                continue;
            };
            let number = self.kernels.len();
            let digest = digests.get(&kernel);
            let binary = digest.map_or(number, |d| *binaries.entry(d).or_insert(number));
            self.by_kernel.insert(kernel.clone(), number);
            if kernel.is_plain() {
                self.plain_at.insert(place, number);
            }
            self.kernels.push(Tried {
                skip_override: kernel.is_plain() && skips.contains(&kernel.commit),
                built: digest.is_some(),
                kernel,
                place,
                binary,
                boots: Vec::new(),
                build_failed: false,
                boot_failed: 0,
                benchmark_failed: 0,
                lost: 0,
            });
        }
    }

    fn take_observations(&mut self, machine_of: &BTreeMap<&MachineId, usize>) {
        let mut order: Vec<_> = self.record.observations.iter().collect();
        order.sort_by(|a, b| {
            let key = |o: &'a crate::Observation| (&o.machine, &o.kernel, o.replicate);
            a.at_s.total_cmp(&b.at_s).then_with(|| key(a).cmp(&key(b)))
        });
        let mut lost_in_a_row = vec![0usize; self.machines.len()];
        for o in order {
            let (Some(&k), Some(&m)) = (self.by_kernel.get(&o.kernel), machine_of.get(&o.machine)) else {
                continue;
            };
            if !self.taken.entry((k, m)).or_default().insert(o.replicate) {
                continue; // a second row of one identity: the first stands
            }
            lost_in_a_row[m] = if o.outcome == Outcome::Lost {
                lost_in_a_row[m] + 1
            } else {
                0
            };
            // A boot from before the bisection is reused, not spent by it.
            self.boots_spent += u32::from(o.outcome != Outcome::BuildFailed && o.at_s >= 0.0);
            let tried = &mut self.kernels[k];
            // What was booted was built.
            tried.built |= !matches!(o.outcome, Outcome::BuildFailed | Outcome::Lost);
            match &o.outcome {
                Outcome::BuildFailed => tried.build_failed = true,
                Outcome::BootFailed => tried.boot_failed += 1,
                Outcome::BenchmarkFailed => tried.benchmark_failed += 1,
                Outcome::Lost => tried.lost += 1,
                Outcome::Measured { values, .. } => {
                    let on_scale = values.iter().filter_map(|v| {
                        let cut = match v {
                            Value::Exact(_) => 0,
                            Value::AtLeast(_) => 1,
                            Value::AtMost(_) => -1,
                        };
                        Some((self.scale.y(*v)?, cut))
                    });
                    let (runs, cuts): (Vec<f64>, Vec<i8>) = on_scale.unzip();
                    if runs.is_empty() || !o.at_s.is_finite() {
                        tried.benchmark_failed += 1;
                        continue;
                    }
                    let (kernel, machine) = (k, m);
                    let boot = Boot {
                        kernel,
                        machine,
                        replicate: o.replicate,
                        at_s: o.at_s,
                        y: 0.0,
                        counted: 0,
                        runs,
                        cuts,
                        cut: 0,
                    };
                    self.boots.push(boot);
                }
            }
        }
        for (lab, lost) in self.machines.iter_mut().zip(lost_in_a_row) {
            lab.given_up = lost >= MACHINE_LOST;
        }
        self.summaries = summary::summarise(&mut self.boots, &self.kernels);
        self.boots.retain(|b| b.counted > 0);
        for (i, boot) in self.boots.iter().enumerate() {
            self.kernels[boot.kernel].boots.push(i);
        }
    }

    pub fn ancestors(&self, place: u32) -> Arc<FixedBitSet> {
        self.memo.borrow_mut().ancestors(self.history, place)
    }

    pub fn span(&self, low: u32, high: u32) -> Arc<Span> {
        self.memo.borrow_mut().span(self.history, low, high)
    }

    pub fn pair(&self, low: u32, high: u32) -> Arc<Span> {
        self.memo.borrow_mut().pair(self.history, low, high)
    }

    /// Where a plain kernel of this commit is listed, if it was ever tried.
    pub fn plain(&self, place: u32) -> Option<usize> {
        self.plain_at.get(&place).copied()
    }

    /// Boots of this kernel and of every kernel with the same binary.
    pub fn boots_of_binary(&self, kernel: usize) -> Vec<usize> {
        let binary = self.kernels[kernel].binary;
        let mut all: Vec<usize> = self
            .kernels
            .iter()
            .filter(|k| k.binary == binary)
            .flat_map(|k| k.boots.iter().copied())
            .collect();
        all.sort_unstable();
        all
    }

    /// Boots that say something about this commit: its own and its same binaries'.
    pub fn boots_at(&self, place: u32) -> Vec<usize> {
        self.plain(place)
            .map(|k| self.boots_of_binary(k))
            .unwrap_or_default()
    }

    pub fn boots_on(&self, place: u32, machine: usize) -> Vec<usize> {
        self.boots_at(place)
            .into_iter()
            .filter(|&b| self.boots[b].machine == machine)
            .collect()
    }

    pub fn pending_at(&self, place: u32, machine: usize) -> usize {
        match self.plain(place) {
            Some(k) => self.pending.iter().filter(|p| p.0 == k && p.1 == machine).count(),
            None => 0,
        }
    }

    pub fn skip_at(&self, place: u32) -> Option<&'static str> {
        self.plain(place).and_then(|k| self.kernels[k].skip())
    }

    pub fn built(&self, place: u32) -> bool {
        self.plain(place).is_some_and(|k| self.kernels[k].built)
    }

    /// The smallest replicate number from `from` on that was neither observed nor asked for.
    pub fn next_replicate(&self, kernel: &Kernel, machine: usize, from: u32) -> u32 {
        let taken = self
            .by_kernel
            .get(kernel)
            .and_then(|&k| self.taken.get(&(k, machine)));
        let mut number = from;
        while taken.is_some_and(|t| t.contains(&number)) {
            number = number.saturating_add(1);
        }
        number
    }

    /// Machines that may still be asked.
    pub fn usable(&self) -> Vec<usize> {
        (0..self.machines.len())
            .filter(|&m| self.machines[m].listed && !self.machines[m].given_up)
            .collect()
    }

    pub fn build_s(&self, place: u32) -> f64 {
        if self.built(place) {
            return 0.0;
        }
        let costs = &self.record.policy.costs;
        let known = costs.build_s_of.get(self.history.id(place)).copied();
        sane(known.unwrap_or(costs.build_s))
    }

    pub fn boot_s(&self, runs: u32) -> f64 {
        let costs = &self.record.policy.costs;
        (sane(costs.boot_s) + f64::from(runs) * sane(costs.run_s)).max(1e-3)
    }
}

fn sane(seconds: f64) -> f64 {
    if seconds.is_finite() && seconds >= 0.0 {
        seconds
    } else {
        0.0
    }
}
