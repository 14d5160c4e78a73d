//! What measuring a commit on a machine at a minute gives: the exact rule of the scenario file.

use super::draw::{BOOT_MODE, FLAKE, OUTLIER, RUN, fold, normal, unif};
use super::scenario::{Behaviour, Commit, Effect, Modifier, Scenario, Which};
use std::collections::HashMap;

pub struct Truth {
    pub scenario: Scenario,
    pub seed: u64,
    pub commits: Vec<Commit>,
    pub index: HashMap<String, usize>,
    /// For each commit that an effect names: which commits contain it.
    containing: HashMap<String, Vec<bool>>,
    runs_on: HashMap<usize, u64>,
    tries: HashMap<usize, u64>,
}

/// Why a boot yields nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trouble {
    Build,
    Boot,
    Benchmark,
    /// The lab's: another kernel came up, the connection went; tried again.
    Lab,
}

impl Truth {
    pub fn new(scenario: &Scenario, repetition: u64) -> Truth {
        let commits = scenario.commits();
        let index: HashMap<String, usize> = commits
            .iter()
            .enumerate()
            .map(|(i, c)| (c.id.clone(), i))
            .collect();
        let measurement = &scenario.measurement;
        let mut containing: HashMap<String, Vec<bool>> = HashMap::new();
        for effect in measurement.effects.iter().chain(&measurement.cv_effects) {
            for id in effect
                .from
                .all()
                .into_iter()
                .chain(effect.until.iter().map(String::as_str))
            {
                containing.entry(id.to_owned()).or_insert_with(|| {
                    let mut inside: Vec<bool> = Vec::with_capacity(commits.len());
                    for commit in &commits {
                        let parents = commit.parents.iter().filter_map(|p| index.get(p));
                        let has = parents
                            .into_iter()
                            .any(|p| inside.get(*p).copied().unwrap_or(false));
                        inside.push(has || commit.id == id);
                    }
                    inside
                });
            }
        }
        Truth {
            scenario: scenario.clone(),
            seed: scenario.seed.wrapping_add(repetition.wrapping_mul(1000)),
            commits,
            index,
            containing,
            runs_on: HashMap::new(),
            tries: HashMap::new(),
        }
    }

    fn contains(&self, commit: usize, id: &str) -> bool {
        self.containing.get(id).is_some_and(|inside| inside[commit])
    }

    fn applies(&self, effect: &Effect, commit: usize, machine: &str) -> bool {
        effect.from.all().iter().all(|f| self.contains(commit, f))
            && !effect.until.iter().any(|u| self.contains(commit, u))
            && effect
                .machines
                .as_ref()
                .is_none_or(|m| m.iter().any(|m| m == machine))
    }

    pub fn machine_index(&self, machine: &str) -> usize {
        self.scenario
            .machines
            .iter()
            .position(|m| m.id == machine)
            .unwrap_or(0)
    }

    fn mean(&self, commit: usize, machine: &str) -> f64 {
        let factor = self
            .scenario
            .machines
            .iter()
            .find(|m| m.id == machine)
            .map_or(1.0, |m| m.factor);
        let effects = self
            .scenario
            .measurement
            .effects
            .iter()
            .filter(|e| self.applies(e, commit, machine));
        self.scenario.measurement.base.mean * factor * effects.map(|e| e.factor).product::<f64>()
    }

    /// One run; `minute` is when it starts, `before` how many runs this machine made since it was last reset.
    pub fn value(&self, commit: usize, machine: &str, boot: u64, run: u64, minute: f64, before: u64) -> f64 {
        let m = &self.scenario.measurement;
        if let Some(raw) = m.raw.get(&self.commits[commit].id) {
            return raw[run as usize % raw.len().max(1)];
        }
        let machine_index = self.machine_index(machine) as u64;
        let key = [commit as u64, machine_index, boot];
        let mean = self.mean(commit, machine);
        let mut cv = m.base.cv_pct / 100.0;
        cv *= m
            .cv_effects
            .iter()
            .filter(|e| self.applies(e, commit, machine))
            .map(|e| e.factor)
            .product::<f64>();
        let mut level = mean;
        for modifier in &m.modifiers {
            level *= self.modifier(modifier, key, run, minute, before);
        }
        let noise = normal(fold(self.seed, &[RUN, key[0], key[1], boot, run]));
        (level * (1.0 + cv * noise)).max(0.001 * mean)
    }

    fn modifier(&self, modifier: &Modifier, key: [u64; 3], run: u64, minute: f64, before: u64) -> f64 {
        let [commit, machine, boot] = key;
        let when = |yes: bool, factor: f64| if yes { factor } else { 1.0 };
        match modifier {
            Modifier::BootBimodal { p, factor } => when(
                unif(fold(self.seed, &[BOOT_MODE, commit, machine, boot])) < *p,
                *factor,
            ),
            Modifier::FirstRuns { factors } => factors.get(run as usize).copied().unwrap_or(1.0),
            Modifier::Drift {
                pct_per_hour,
                max_pct,
            } => 1.0 + (pct_per_hour * minute / 60.0).clamp(-max_pct, *max_pct) / 100.0,
            Modifier::Window {
                from_min,
                to_min,
                factor,
            } => when((*from_min..*to_min).contains(&minute), *factor),
            Modifier::Periodic {
                period_min,
                length_min,
                factor,
            } => when(minute.rem_euclid(*period_min) >= period_min - length_min, *factor),
            Modifier::Outlier { p, factor } => when(
                unif(fold(self.seed, &[OUTLIER, commit, machine, boot, run])) < *p,
                *factor,
            ),
            Modifier::Ageing { pct_per_run } => (1.0 + pct_per_run / 100.0).powf(before as f64),
        }
    }

    fn concerns(&self, which: &Which, commit: usize) -> bool {
        match which {
            Which::Text(text) => text == "*" || *text == self.commits[commit].id,
            Which::Ids(ids) => ids.contains(&self.commits[commit].id),
            Which::Between { from, to } => match (self.index.get(from), self.index.get(to)) {
                (Some(from), Some(to)) => (from..=to).contains(&&commit),
                _ => false,
            },
        }
    }

    /// What goes wrong with this try, if anything.
    pub fn trouble(&mut self, commit: usize) -> Option<Trouble> {
        let tries = self.tries.entry(commit).or_default();
        *tries += 1;
        let tries = *tries;
        let happens = |b: &Behaviour| {
            !b.transient || unif(fold(self.seed, &[FLAKE, commit as u64, tries])) < b.probability
        };
        let own = self
            .scenario
            .commit_behaviour
            .iter()
            .filter(|b| self.concerns(&b.commits, commit) && happens(b));
        let mut found = None;
        for behaviour in own {
            let one = match (
                behaviour.build.as_deref(),
                behaviour.boot.as_deref(),
                behaviour.bench.as_deref(),
            ) {
                (Some(_), ..) => Some(Trouble::Build),
                (_, Some("hang" | "panic"), _) => Some(Trouble::Boot),
                // The agent compares build ids: a wrong kernel is the lab's trouble and tried again.
                (_, Some(_), _) | (_, _, Some("connection_lost")) => Some(Trouble::Lab),
                (_, _, Some(_)) => Some(Trouble::Benchmark),
                _ => None,
            };
            found = found.or(one);
        }
        found
    }

    /// Whether it can be built at all.
    pub fn builds(&self, commit: usize) -> bool {
        let own = self.scenario.commit_behaviour.iter();
        let never = |b: &&Behaviour| b.build.is_some() && !b.transient;
        !own.filter(never).any(|b| self.concerns(&b.commits, commit))
    }

    /// The digest of a commit's image: its own, or that of the commit it is identical to.
    pub fn digest(&self, commit: usize) -> String {
        let own = self
            .scenario
            .commit_behaviour
            .iter()
            .filter(|b| self.concerns(&b.commits, commit));
        let same = own.filter_map(|b| b.identical_to.clone()).next();
        format!(
            "image of {}",
            same.unwrap_or_else(|| self.commits[commit].id.clone())
        )
    }

    /// Runs of one boot that starts at `minute`, and the minutes it took beyond the boot itself.
    pub fn boot(&mut self, commit: usize, machine: &str, boot: u64, runs: u64, minute: f64) -> Vec<f64> {
        let index = self.machine_index(machine);
        // The prepare hook makes the file system anew before each boot's runs.
        self.runs_on.insert(index, 0);
        (0..runs)
            .map(|run| {
                let before = self.runs_on.get(&index).copied().unwrap_or(0);
                let value = self.value(commit, machine, boot, run, minute + 2.0 * run as f64, before);
                self.runs_on.insert(index, before + 1);
                value
            })
            .collect()
    }
}
