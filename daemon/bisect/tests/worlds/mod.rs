//! Invented worlds for the mind: a line of commits, one change, a model of noise; played until it concludes.

use bisect::*;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// xorshift64*: any fixed generator would do; this one is short.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        (0..8).for_each(|_| {
            dice.next();
        });
        dice
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn normal(&mut self) -> f64 {
        let (u, v) = (1.0 - self.unit(), self.unit());
        (-2.0 * u.ln()).sqrt() * (2.0 * std::f64::consts::PI * v).cos()
    }
}

/// Noise of a machine, on the log scale.
#[derive(Clone, Copy, Debug, Default)]
pub struct Noise {
    pub run: f64,
    pub boot: f64,
    /// Share of runs with three times the noise.
    pub heavy: f64,
    /// Share of boots in a second mode, and how far it is.
    pub mode: (f64, f64),
    /// Random walk, a root hour.
    pub walk: f64,
    /// A step of the machine, at a minute drawn from 0 to 300.
    pub step: f64,
    /// Offset of each image.
    pub image: f64,
    /// Share of boots that are off as a whole, and by how much.
    pub outlier: (f64, f64),
}

pub struct World {
    pub commits: usize,
    pub culprit: Option<usize>,
    /// Change of the number at the culprit, on the log scale.
    pub effect: f64,
    pub noise: Noise,
    pub build_s: f64,
    pub boot_s: f64,
    pub run_s: f64,
    /// Smallest loss asked for, in per cent.
    pub least_pct: f64,
    /// Commits that can't be measured, and why.
    pub fails: BTreeMap<usize, Outcome>,
    /// Commits that build to the binary of another one.
    pub same: BTreeMap<usize, usize>,
    dice: Dice,
    level: f64,
    level_at_s: f64,
    step_at_s: f64,
    images: BTreeMap<usize, f64>,
}

/// CPU time of this thread, as far as the system tells it; else the time since the first call.
pub fn cpu() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = told.and_then(|t| t.split_whitespace().next()?.parse().ok());
    nanoseconds.map_or_else(|| START.get_or_init(Instant::now).elapsed(), Duration::from_nanos)
}

#[derive(Debug)]
pub struct Played {
    pub conclusion: Conclusion,
    pub boots: usize,
    pub kernels: usize,
    pub minutes: f64,
    pub plans: usize,
    /// Filter updates of all plans.
    pub updates: u64,
    /// Time spent in plans: all, and the slowest.
    pub planning: Duration,
    pub slowest: Duration,
    pub end: (History, Record),
}

impl World {
    pub fn new(seed: u64, commits: usize, effect: f64, noise: Noise) -> World {
        let mut dice = Dice::new(seed);
        let culprit = 1 + (dice.next() % (commits as u64 - 1)) as usize;
        let step_at_s = 18000.0 * dice.unit();
        World {
            commits,
            culprit: (effect != 0.0).then_some(culprit),
            effect,
            noise,
            build_s: 600.0,
            boot_s: 120.0,
            run_s: 120.0,
            least_pct: 2.0,
            fails: BTreeMap::new(),
            same: BTreeMap::new(),
            dice,
            level: 7.0,
            level_at_s: 0.0,
            step_at_s,
            images: BTreeMap::new(),
        }
    }

    pub fn history(&self) -> History {
        let name = |i: usize| CommitId::new(format!("c{i}"));
        let commits = (0..self.commits).map(|i| Commit {
            id: name(i),
            parents: i.checked_sub(1).map(name).into_iter().collect(),
        });
        History::new(
            name(0),
            name(self.commits - 1),
            commits.collect(),
            false,
            BTreeMap::new(),
        )
        .expect("a line")
    }

    pub fn policy(&self) -> Policy {
        Policy {
            metric: Metric {
                name: "m".into(),
                unit: "x".into(),
                higher_is_better: true,
                may_be_zero: false,
            },
            min_effect: MinEffect::Pct(self.least_pct),
            confidence: 0.99,
            seed: 1,
            look_for: LookFor::First,
            costs: Costs {
                build_s: self.build_s,
                boot_s: self.boot_s,
                run_s: self.run_s,
                ..Costs::default()
            },
            limits: Limits::default(),
            confirm: Confirm::default(),
            other_metrics: Vec::new(),
        }
    }

    fn measure(&mut self, commit: usize, at_s: f64, runs: u32) -> Vec<Value> {
        let hours = ((at_s - self.level_at_s) / 3600.0).max(0.0);
        self.level += self.noise.walk * hours.sqrt() * self.dice.normal();
        self.level_at_s = at_s;
        let mut centre = self.level
            + if at_s > self.step_at_s {
                self.noise.step
            } else {
                0.0
            };
        if self.culprit.is_some_and(|c| commit >= c) {
            centre += self.effect;
        }
        let own = self.noise.image * self.dice.normal();
        let binary = self.same.get(&commit).copied().unwrap_or(commit);
        centre += *self.images.entry(binary).or_insert(own);
        centre += self.noise.boot * self.dice.normal();
        if self.dice.unit() < self.noise.mode.0 {
            centre += self.noise.mode.1;
        }
        if self.noise.outlier.0 > 0.0 && self.dice.unit() < self.noise.outlier.0 {
            centre += self.noise.outlier.1;
        }
        (0..runs)
            .map(|_| {
                let wide = if self.dice.unit() < self.noise.heavy {
                    3.0
                } else {
                    1.0
                };
                Value::Exact((centre + wide * self.noise.run * self.dice.normal()).exp())
            })
            .collect()
    }

    /// Until the conclusion, one machine.
    pub fn play(mut self) -> Played {
        let history = self.history();
        let machine = MachineId::new("m1");
        let mut record = Record {
            policy: self.policy(),
            machines: vec![Machine {
                id: machine,
                busy: false,
            }],
            builders: 0,
            now_s: 0.0,
            images: Vec::new(),
            observations: Vec::new(),
            pending: Vec::new(),
            overrides: Vec::new(),
        };
        let mut plans = 0;
        let mut planner = Planner::new();
        let (mut planning, mut slowest) = (Duration::ZERO, Duration::ZERO);
        loop {
            plans += 1;
            assert!(plans < 3000, "never ends");
            let begun = cpu();
            let step = planner.plan(&history, &record).step;
            planning += cpu() - begun;
            slowest = slowest.max(cpu() - begun);
            match step {
                Step::Conclude(conclusion) => {
                    return Played {
                        conclusion,
                        boots: record.observations.len(),
                        kernels: record.images.len(),
                        minutes: record.now_s / 60.0,
                        plans,
                        updates: planner.updates(),
                        planning,
                        slowest,
                        end: (history, record),
                    };
                }
                Step::Wait => panic!("waits for nothing"),
                Step::Run(jobs) => {
                    for job in jobs {
                        self.carry(job, &mut record);
                    }
                }
            }
        }
    }

    fn carry(&mut self, job: Job, record: &mut Record) {
        let commit: usize = job.kernel.commit.as_str()[1..].parse().expect("c and a number");
        let fails = self.fails.get(&commit).cloned();
        if record.images.iter().all(|i| i.kernel != job.kernel) {
            record.now_s += self.build_s;
            if fails != Some(Outcome::BuildFailed) {
                let binary = self.same.get(&commit).copied().unwrap_or(commit);
                record.images.push(Image {
                    kernel: job.kernel.clone(),
                    digest: format!("d{binary}"),
                });
            }
        }
        record.now_s += self.boot_s;
        let at_s = record.now_s;
        let outcome = fails.unwrap_or_else(|| {
            let values = self.measure(commit, at_s, job.runs);
            record.now_s += self.run_s * f64::from(job.runs);
            Outcome::Measured {
                values,
                others: BTreeMap::new(),
            }
        });
        record.observations.push(Observation {
            kernel: job.kernel,
            machine: job.machine,
            replicate: job.replicate,
            at_s,
            outcome,
        });
    }
}
