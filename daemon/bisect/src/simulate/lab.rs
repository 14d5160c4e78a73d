//! An invented lab: machines that build, boot and measure what the plan asks for, on a clock of their own making.
//!
//! Each machine has a builder of its own; builders beside them build ahead. Whatever ends first moves the clock,
//! then the plan is made anew.

use crate::{
    Conclusion, History, Image, Job, Kernel, Machine, MachineId, Observation, Outcome, Plan, Planner, Policy,
    Record, Step,
};
use std::collections::BTreeMap;

/// The truth behind a lab.
pub trait World {
    /// Kernels with equal digests are the same binary.
    fn digest(&self, kernel: &Kernel) -> String;
    fn builds(&self, kernel: &Kernel) -> bool;
    /// One boot of a kernel that builds, on the machine of that number, the first run starting at `at_s`.
    fn boot(&mut self, kernel: &Kernel, machine: usize, at_s: f64, runs: u32) -> Outcome;
}

#[derive(Clone, Debug)]
pub struct Lab {
    pub machines: Vec<MachineId>,
    /// Free builders beside the machines' own.
    pub builders: u32,
    /// Plans after which a search counts as one that never ends.
    pub most_plans: usize,
}

impl Lab {
    pub fn of(machines: usize) -> Lab {
        Lab {
            machines: (1..=machines.max(1))
                .map(|m| MachineId::new(format!("m{m}")))
                .collect(),
            builders: 0,
            most_plans: 3000,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Played {
    /// `None`: it did not end within the lab's number of plans, or waited for nothing.
    pub conclusion: Option<Conclusion>,
    pub record: Record,
    /// Kernels built.
    pub kernels: usize,
    pub plans: usize,
}

impl Played {
    /// A range that no search was begun on.
    pub fn refused(policy: Policy) -> Played {
        Played {
            conclusion: None,
            record: blank(policy),
            kernels: 0,
            plans: 0,
        }
    }

    pub fn boots(&self) -> usize {
        let booted = |o: &&Observation| o.outcome != Outcome::BuildFailed;
        self.record.observations.iter().filter(booted).count()
    }

    pub fn minutes(&self) -> f64 {
        self.record.now_s / 60.0
    }

    /// Minutes of all machines together.
    pub fn machine_minutes(&self, lab: &Lab) -> f64 {
        self.minutes() * lab.machines.len() as f64
    }
}

struct Running {
    ends_s: f64,
    machine: usize,
    observation: Observation,
}

struct Work<'w> {
    lab: Lab,
    world: &'w mut dyn World,
    record: Record,
    running: Vec<Running>,
    /// When each kernel's build ends or ended.
    built_at_s: BTreeMap<Kernel, f64>,
    /// Builds ahead under way.
    ahead: Vec<Kernel>,
}

/// Plays until the conclusion.
pub fn play(history: &History, policy: Policy, lab: &Lab, world: &mut dyn World) -> Played {
    let mut planner = Planner::new();
    play_with(policy, lab, world, &mut |record| planner.plan(history, record))
}

/// The same with plans from elsewhere: watched, timed, or another's.
pub fn play_with(
    policy: Policy,
    lab: &Lab,
    world: &mut dyn World,
    planned: &mut dyn FnMut(&Record) -> Plan,
) -> Played {
    let mut work = Work {
        lab: lab.clone(),
        world,
        record: blank(policy),
        running: Vec::new(),
        built_at_s: BTreeMap::new(),
        ahead: Vec::new(),
    };
    let mut conclusion = None;
    let mut plans = 0;
    while plans < lab.most_plans {
        plans += 1;
        work.look();
        let plan = planned(&work.record);
        match plan.step {
            Step::Conclude(found) => {
                conclusion = Some(found);
                break;
            }
            Step::Run(jobs) => jobs.into_iter().for_each(|job| work.start(job)),
            Step::Wait => {}
        }
        plan.build_ahead
            .into_iter()
            .for_each(|kernel| work.build_ahead(kernel));
        if !work.finish_next() {
            break;
        }
    }
    Played {
        conclusion,
        kernels: work.built_at_s.len(),
        record: work.record,
        plans,
    }
}

fn blank(policy: Policy) -> Record {
    Record {
        policy,
        machines: Vec::new(),
        builders: 0,
        now_s: 0.0,
        images: Vec::new(),
        observations: Vec::new(),
        pending: Vec::new(),
        overrides: Vec::new(),
    }
}

impl Work<'_> {
    /// What the lab shows at this moment.
    fn look(&mut self) {
        let now_s = self.record.now_s;
        let busy = |m: usize| self.running.iter().any(|r| r.machine == m);
        let machines = self.lab.machines.iter().enumerate();
        self.record.machines = machines
            .map(|(m, id)| Machine {
                id: id.clone(),
                busy: busy(m),
            })
            .collect();
        self.ahead.retain(|k| self.built_at_s[k] > now_s);
        self.record.builders = self.lab.builders.saturating_sub(self.ahead.len() as u32);
        let known: Vec<Kernel> = self.record.images.iter().map(|i| i.kernel.clone()).collect();
        for (kernel, at_s) in &self.built_at_s {
            if *at_s <= now_s && self.world.builds(kernel) && !known.contains(kernel) {
                self.record.images.push(Image {
                    digest: self.world.digest(kernel),
                    kernel: kernel.clone(),
                });
            }
        }
    }

    fn build_s(&self, kernel: &Kernel) -> f64 {
        let costs = &self.record.policy.costs;
        costs
            .build_s_of
            .get(&kernel.commit)
            .copied()
            .unwrap_or(costs.build_s)
    }

    fn build_ahead(&mut self, kernel: Kernel) {
        if self.ahead.len() < self.lab.builders as usize && !self.built_at_s.contains_key(&kernel) {
            let ends_s = self.record.now_s + self.build_s(&kernel);
            self.built_at_s.insert(kernel.clone(), ends_s);
            self.ahead.push(kernel);
        }
    }

    /// Carries a job out at once and keeps its outcome until the clock has come so far.
    fn start(&mut self, job: Job) {
        let Some(machine) = self.lab.machines.iter().position(|m| *m == job.machine) else {
            return;
        };
        let now_s = self.record.now_s;
        let build_s = self.build_s(&job.kernel);
        let built_s = self.built_at_s.get(&job.kernel).copied();
        let built_s = built_s.unwrap_or(now_s + build_s).max(now_s);
        let costs = &self.record.policy.costs;
        let (boot_s, run_s) = (costs.boot_s, costs.run_s);
        let at_s = built_s + boot_s;
        let outcome = if self.world.builds(&job.kernel) {
            self.world.boot(&job.kernel, machine, at_s, job.runs)
        } else {
            Outcome::BuildFailed
        };
        let (at_s, ends_s) = match &outcome {
            Outcome::BuildFailed => (built_s, built_s),
            Outcome::Measured { values, .. } => (at_s, at_s + run_s * values.len() as f64),
            Outcome::BootFailed | Outcome::BenchmarkFailed | Outcome::Lost => (at_s, at_s),
        };
        self.built_at_s.insert(job.kernel.clone(), built_s);
        self.running.push(Running {
            ends_s,
            machine,
            observation: Observation {
                kernel: job.kernel.clone(),
                machine: job.machine.clone(),
                replicate: job.replicate,
                at_s,
                outcome,
            },
        });
        self.record.pending.push(job);
    }

    /// False where nothing is under way: the plan waits for nothing.
    fn finish_next(&mut self) -> bool {
        let order = |a: &usize, b: &usize| {
            let (a, b) = (&self.running[*a], &self.running[*b]);
            a.ends_s.total_cmp(&b.ends_s).then(a.machine.cmp(&b.machine))
        };
        let Some(next) = (0..self.running.len()).min_by(order) else {
            return false;
        };
        let done = self.running.swap_remove(next);
        self.record.now_s = self.record.now_s.max(done.ends_s);
        let o = &done.observation;
        self.record
            .pending
            .retain(|j| (&j.kernel, &j.machine, j.replicate) != (&o.kernel, &o.machine, o.replicate));
        self.record.observations.push(done.observation);
        true
    }
}
