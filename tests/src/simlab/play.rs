//! Plays a scenario against the offline door, job by job, on a clock that only these steps move.

use coordinator::cli::plan::{Door, answer};
use coordinator::cli::simulate::judge;
use coordinator::cli::simulate::scenario::Scenario;
use coordinator::cli::simulate::truth::{Trouble, Truth};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Steps after which a scenario counts as one that never ends.
const MOST_STEPS: usize = 3000;
const BUILD_MIN: f64 = 6.0;
const BOOT_MIN: f64 = 4.0;
const RUN_MIN: f64 = 2.0;
/// A transient trouble of the lab is tried again so often before the job counts as lost.
const LAB_TRIES: u32 = 8;

pub struct Ending {
    /// `conclude` or `error` as answered.
    pub answer: Value,
    pub boots: usize,
    pub commits_tested: usize,
    pub minutes: f64,
    /// Every answer on the way, for those who want to see.
    pub log: Vec<String>,
}

impl Ending {
    pub fn status(&self) -> &str {
        match self.answer["status"].as_str() {
            Some(status) => status,
            None if self.answer["kind"].is_string() => "request_rejected",
            None => "none",
        }
    }

    pub fn judged(&self) -> judge::Ending {
        judge::Ending {
            status: self.status().to_owned(),
            first_bad: self.list("first_bad"),
            improved: self.list("improved"),
            suspects: self.list("suspects"),
            commits_tested: self.commits_tested,
        }
    }

    pub fn list(&self, field: &str) -> Vec<String> {
        let items = self.answer[field].as_array().cloned().unwrap_or_default();
        items
            .iter()
            .filter_map(|v| v.as_str().map(str::to_owned))
            .collect()
    }
}

struct Running {
    machine: String,
    ends_min: f64,
    job: Value,
    observation: Value,
}

struct Play {
    world: Truth,
    now: f64,
    observations: Vec<Value>,
    images: BTreeMap<usize, String>,
    running: Vec<Running>,
    boots: BTreeMap<(usize, String), u64>,
    seen: BTreeSet<String>,
}

pub fn play(scenario: &Scenario, repetition: u64) -> Ending {
    let world = Truth::new(scenario, repetition);
    let mut play = Play {
        world,
        now: 0.0,
        observations: Vec::new(),
        images: BTreeMap::new(),
        running: Vec::new(),
        boots: BTreeMap::new(),
        seen: BTreeSet::new(),
    };
    let mut door = Door::default();
    let mut log = Vec::new();
    for step in 0..MOST_STEPS {
        let line = play.line(step == 0);
        let answer: Value =
            serde_json::from_str(&answer(&mut door, &line.to_string())).expect("the door answers JSON");
        log.push(format!(
            "{:7.0} {} | {}",
            play.now,
            answer["step"],
            answer["reason"].as_str().unwrap_or("")
        ));
        let end = [&answer["error"], &answer["step"]["conclude"]]
            .into_iter()
            .find(|v| v.is_object());
        if let Some(end) = end {
            return play.ending(end.clone(), log);
        }
        let jobs = answer["step"]["run"].as_array().cloned().unwrap_or_default();
        assert!(
            !jobs.is_empty() || !play.running.is_empty(),
            "{}: waits for nothing: {answer}",
            scenario.name
        );
        for job in jobs {
            play.start(job);
        }
        play.finish_next();
    }
    play.ending(json!({ "status": "never ended" }), log)
}

impl Play {
    fn ending(self, answer: Value, log: Vec<String>) -> Ending {
        let commits: BTreeSet<&str> = self
            .observations
            .iter()
            .filter_map(|o| o["kernel"]["commit"].as_str())
            .collect();
        let commits_tested = commits.len();
        Ending {
            answer,
            boots: self.observations.len(),
            commits_tested,
            minutes: self.now,
            log,
        }
    }

    fn machines(&self) -> Vec<String> {
        let named: Vec<String> = self
            .world
            .scenario
            .machines
            .iter()
            .map(|m| m.id.clone())
            .collect();
        if named.is_empty() {
            vec!["m1".to_owned()]
        } else {
            named
        }
    }

    fn line(&self, first: bool) -> Value {
        let scenario = &self.world.scenario;
        let several = scenario.culprits.len() > 1;
        let boots = scenario.config["max_total_runs"].as_u64().map(|runs| runs / 3);
        let machines: Vec<Value> = self
            .machines()
            .into_iter()
            .map(|id| json!({ "busy": self.running.iter().any(|r| r.machine == id), "id": id }))
            .collect();
        let images = self.images.iter().map(|(commit, digest)| {
            json!({ "kernel": { "commit": self.world.commits[*commit].id }, "digest": digest })
        });
        let mut line = json!({
            "policy": {
                "metric": {
                    "name": scenario.metric.name, "unit": scenario.metric.unit,
                    "higher_is_better": scenario.metric.higher_is_better,
                },
                "min_effect_pct": scenario.metric.min_effect_pct,
                "seed": self.world.seed,
                "look_for": if several { "all" } else { "first" },
                "costs": { "build_s": 60.0 * BUILD_MIN, "boot_s": 60.0 * BOOT_MIN, "run_s": 60.0 * RUN_MIN },
                "limits": { "boots": boots },
            },
            "machines": machines,
            "now_s": 60.0 * self.now,
            "images": images.collect::<Vec<_>>(),
            "observations": self.observations,
            "pending": self.running.iter().map(|r| r.job.clone()).collect::<Vec<_>>(),
        });
        if first {
            let commits = self
                .world
                .commits
                .iter()
                .map(|c| json!({ "id": c.id, "parents": c.parents }));
            line["history"] = json!({
                "good": scenario.range.good, "bad": scenario.range.bad, "commits": commits.collect::<Vec<_>>(),
            });
        }
        line
    }

    /// Carries a job out at once and keeps its outcome until the clock has come so far.
    fn start(&mut self, job: Value) {
        let key = format!("{}|{}|{}", job["kernel"], job["machine"], job["replicate"]);
        assert!(self.seen.insert(key.clone()), "asked twice: {key}");
        let machine = job["machine"]
            .as_str()
            .expect("a job names its machine")
            .to_owned();
        assert!(
            !self.running.iter().any(|r| r.machine == machine),
            "{machine} is busy: {job}"
        );
        let id = job["kernel"]["commit"]
            .as_str()
            .expect("a kernel names its commit");
        let commit = self.world.index[id];
        let runs = job["runs"].as_u64().expect("a job says how many runs");
        let mut minute = self.now;
        let (mut outcome, mut started) = (json!("lost"), minute);
        for _ in 0..LAB_TRIES {
            let trouble = self.world.trouble(commit);
            if !self.images.contains_key(&commit) {
                minute += BUILD_MIN;
            }
            if trouble == Some(Trouble::Build) {
                outcome = json!("build_failed");
                break;
            }
            self.images.insert(commit, self.world.digest(commit));
            minute += BOOT_MIN;
            started = minute;
            match trouble {
                Some(Trouble::Boot) => outcome = json!("boot_failed"),
                Some(Trouble::Benchmark) => outcome = json!("benchmark_failed"),
                Some(Trouble::Lab | Trouble::Build) => continue,
                None => {
                    let boots = self.boots.entry((commit, machine.clone())).or_default();
                    let boot = *boots;
                    *boots += 1;
                    let values = self.world.boot(commit, &machine, boot, runs, minute);
                    let limit = self.world.scenario.config["bench_timeout_s"].as_f64();
                    let values: Vec<Value> = values
                        .into_iter()
                        .map(|v| match limit {
                            Some(limit) if v > limit => json!({ "at_least": limit }),
                            _ => json!(v),
                        })
                        .collect();
                    outcome = json!({ "measured": { "values": values } });
                }
            }
            minute += RUN_MIN * runs as f64;
            break;
        }
        let observation = json!({
            "kernel": job["kernel"], "machine": machine, "replicate": job["replicate"],
            "at_s": 60.0 * started, "outcome": outcome,
        });
        self.running.push(Running {
            machine,
            ends_min: minute,
            job,
            observation,
        });
    }

    fn finish_next(&mut self) {
        let next = (0..self.running.len())
            .min_by(|&a, &b| self.running[a].ends_min.total_cmp(&self.running[b].ends_min));
        if let Some(next) = next {
            let done = self.running.remove(next);
            self.now = self.now.max(done.ends_min);
            self.observations.push(done.observation);
        }
    }
}
