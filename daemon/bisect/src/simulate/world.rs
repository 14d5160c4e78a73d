//! What is true in an invented world: its history, what changes where, how noisy it is.

use super::dice::Dice;
use super::lab::World;
use super::noise::{Machine, Manner, Noise};
use super::shape::Shape;
use crate::{Confirm, Costs, Kernel, Limits, LookFor, Metric, MinEffect, Outcome, Policy, Value};
use fixedbitset::FixedBitSet;
use std::collections::BTreeMap;

/// What a commit does.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum What {
    /// Adds to the level, on the log scale; below 0 is a loss.
    Level(f64),
    /// The share of boots in the second mode becomes this.
    ModeShare(f64),
    /// Boots and runs spread so many times as much.
    Spread(f64),
}

impl What {
    pub fn is_gain(self) -> bool {
        matches!(self, What::Level(step) if step > 0.0)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Form {
    #[default]
    Line,
    /// A mainline of merges.
    Dag,
    /// The same, with branches that forked before good and lack a change that good has.
    StaleForks,
}

/// A kind of world; a seed draws one of it.
#[derive(Clone, Debug)]
pub struct Setting {
    pub commits: usize,
    pub form: Form,
    /// Each falls on a commit of its own.
    pub changes: Vec<What>,
    /// So many commits with a change of so much either way, too small to be asked about.
    pub innocents: (usize, f64),
    pub noise: Noise,
    pub machines: usize,
    /// Share of commits that can't be built, in clusters of 4 on average.
    pub unbuildable: f64,
    /// Free builders beside the machines' own.
    pub builders: u32,
    pub costs: Costs,
    pub limits: Limits,
    /// Smallest loss asked for, in per cent.
    pub least_pct: f64,
    pub confidence: f64,
    pub look_for: LookFor,
}

impl Setting {
    /// A loss of 5 % on one machine; builds, boots and runs of 10, 2 and 2 minutes.
    pub fn new(commits: usize, noise: Noise) -> Setting {
        Setting {
            commits,
            form: Form::Line,
            changes: vec![What::Level(libm::log(0.95))],
            innocents: (0, 0.0),
            noise,
            machines: 1,
            unbuildable: 0.0,
            builders: 0,
            costs: Costs::default(),
            limits: Limits::default(),
            least_pct: 2.0,
            confidence: 0.99,
            look_for: LookFor::First,
        }
    }

    pub fn policy(&self) -> Policy {
        Policy {
            metric: Metric {
                name: "throughput".into(),
                unit: "MB/s".into(),
                higher_is_better: true,
                may_be_zero: false,
            },
            min_effect: MinEffect::Pct(self.least_pct),
            confidence: self.confidence,
            seed: 1,
            look_for: self.look_for,
            costs: self.costs.clone(),
            limits: self.limits,
            confirm: Confirm::default(),
            other_metrics: Vec::new(),
        }
    }

    pub fn draw(&self, seed: u64) -> Drawn {
        let mut dice = Dice::new(seed);
        let shape = match self.form {
            Form::Line => Shape::line(self.commits),
            Form::Dag => Shape::kernel_like(self.commits, 0, &mut dice),
            Form::StaleForks => Shape::kernel_like(self.commits, OLDER, &mut dice),
        };
        let candidates = shape.candidates();
        let mut changes = Vec::new();
        for &what in self.changes.iter().take(candidates.len()) {
            let mut at = candidates[dice.below(candidates.len())];
            while changes.iter().any(|c: &Change| c.at == at) {
                at = candidates[dice.below(candidates.len())];
            }
            changes.push(Change { at, what });
        }
        let mut small: BTreeMap<u32, f64> = BTreeMap::new();
        for _ in 0..self.innocents.0 {
            let sign = if dice.chance(0.5) { 1.0 } else { -1.0 };
            small.insert(candidates[dice.below(candidates.len())], sign * self.innocents.1);
        }
        if self.form == Form::StaleForks {
            // Some commits before good changed the number: what forked before them lacks that.
            for _ in 0..2 {
                let step = if dice.chance(0.5) { 0.05 } else { -0.05 };
                small.insert(1 + dice.below(OLDER) as u32, step);
            }
        }
        let mut fails = FixedBitSet::with_capacity(shape.parents.len());
        let wanted = (self.unbuildable * candidates.len() as f64) as usize;
        for _ in 0..4 * wanted {
            if fails.count_ones(..) >= wanted {
                break;
            }
            let from = dice.below(candidates.len());
            let length = 1 + (-4.0 * libm::log(1.0 - dice.unit())) as usize;
            for &c in candidates[from..]
                .iter()
                .take(length)
                .filter(|c| **c != shape.bad)
            {
                fails.insert(c as usize);
            }
        }
        let machines = (0..self.machines.max(1))
            .map(|m| {
                let level = if m == 0 { 0.0 } else { MACHINES * dice.normal() };
                Machine::new(self.noise, LEVEL + level, &mut dice)
            })
            .collect();
        Drawn {
            shape,
            changes,
            small,
            fails,
            failing: BTreeMap::new(),
            same: BTreeMap::new(),
            noise: self.noise,
            machines,
            above: BTreeMap::new(),
            dice,
        }
    }
}

/// Mainline commits before good, where forks are older than good.
const OLDER: usize = 25;
/// The log of the number where nothing changed.
const LEVEL: f64 = 7.0;
/// Spread of the machines' levels.
const MACHINES: f64 = 0.03;

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Change {
    pub at: u32,
    pub what: What,
}

/// One world.
pub struct Drawn {
    pub shape: Shape,
    pub changes: Vec<Change>,
    /// Small steps that nobody asks about, by commit.
    pub small: BTreeMap<u32, f64>,
    /// Commits that can't be built.
    pub fails: FixedBitSet,
    /// Commits that can't be measured, and why.
    pub failing: BTreeMap<u32, Outcome>,
    /// Commits that build to the binary of another one.
    pub same: BTreeMap<u32, u32>,
    noise: Noise,
    machines: Vec<Machine>,
    above: BTreeMap<u32, FixedBitSet>,
    dice: Dice,
}

impl Drawn {
    pub fn losses(&self) -> Vec<u32> {
        self.changes
            .iter()
            .filter(|c| !c.what.is_gain())
            .map(|c| c.at)
            .collect()
    }

    pub fn gains(&self) -> Vec<u32> {
        self.changes
            .iter()
            .filter(|c| c.what.is_gain())
            .map(|c| c.at)
            .collect()
    }

    /// Logs of the runs of one boot of a commit that can be measured.
    pub fn runs(&mut self, kernel: &Kernel, machine: usize, at_s: f64, runs: u32) -> Vec<f64> {
        let number = Shape::number(&kernel.commit).expect("a commit of this world");
        let commit = self.same.get(&number).copied().unwrap_or(number);
        let shape = &self.shape;
        let above = self.above.entry(commit).or_insert_with(|| shape.above(commit));
        let has = |c: u32| above.contains(c as usize) && !kernel.revert.contains(&Shape::name(c));
        let mut truth: f64 = self
            .small
            .iter()
            .filter(|(c, _)| has(**c))
            .map(|(_, step)| step)
            .sum();
        let mut manner = Manner {
            mode_share: self.noise.mode.0,
            spread: 1.0,
        };
        for change in self.changes.iter().filter(|c| has(c.at)) {
            match change.what {
                What::Level(step) => truth += step,
                What::ModeShare(share) => manner.mode_share = share,
                What::Spread(factor) => manner.spread *= factor,
            }
        }
        let image = self.digest(kernel);
        self.machines[machine].boot(truth, &image, manner, at_s, runs, &mut self.dice)
    }
}

impl World for Drawn {
    fn digest(&self, kernel: &Kernel) -> String {
        let number = Shape::number(&kernel.commit).unwrap_or(0);
        let binary = self.same.get(&number).copied().unwrap_or(number);
        let variant = if kernel.is_plain() {
            String::new()
        } else {
            format!("{:?} {:?} {}", kernel.revert, kernel.patches, kernel.layout)
        };
        format!("binary of c{binary} {variant}")
    }

    fn builds(&self, kernel: &Kernel) -> bool {
        let number = Shape::number(&kernel.commit);
        number.is_some_and(|n| !self.fails.contains(n as usize))
    }

    fn boot(&mut self, kernel: &Kernel, machine: usize, at_s: f64, runs: u32) -> Outcome {
        let number = Shape::number(&kernel.commit);
        if let Some(failure) = number.and_then(|n| self.failing.get(&n)) {
            return failure.clone();
        }
        let runs = self.runs(kernel, machine, at_s, runs);
        Outcome::Measured {
            values: runs.into_iter().map(|y| Value::Exact(libm::exp(y))).collect(),
            others: BTreeMap::new(),
        }
    }
}
