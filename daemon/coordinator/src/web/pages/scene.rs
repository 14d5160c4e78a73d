//! The parts of a bisection's page: figures, finding, plots, suspects, kernels, what was asked.
//!
//! Pure: from what was read to what is shown.

use super::bisection::{CheckRow, Commits, Figure, Found, KernelRow, PlotPair, SuspectRow, min_effect};
use crate::store::views::BisectionView;
use crate::web::levels::{ByMachine, KernelLevels};
use crate::web::plot::{self, Column, Plot};
use crate::web::reading::{self, ConclusionRead, PlanRead};
use crate::web::say;
use chrono::{DateTime, Utc};
use std::collections::BTreeMap;

pub(super) struct Scene<'a> {
    pub view: &'a BisectionView,
    pub plan: Option<&'a PlanRead>,
    pub conclusion: Option<&'a ConclusionRead>,
    pub commits: &'a Commits,
}

impl Scene<'_> {
    pub(super) fn metric(&self, field: &str) -> String {
        let value = self.view.policy.pointer(&format!("/metric/{field}"));
        value.and_then(|v| v.as_str()).unwrap_or_default().to_string()
    }

    pub(super) fn figures(&self, now: DateTime<Utc>) -> Vec<Figure> {
        let figure = |name, value: String, note: String| Figure { name, value, note };
        let spent = (self.view.ended_at.unwrap_or(now) - self.view.created_at).num_seconds() as f64;
        let mut figures = Vec::new();
        let commits = self.commits.positions.len();
        if let Some(plan) = self.plan {
            let of = if commits > 1 {
                format!("of {}", commits - 1)
            } else {
                String::new()
            };
            figures.push(figure("Suspects left", plan.suspects_left.to_string(), of));
        }
        let to_go = |n: u32, what: &str| {
            if n == 0 {
                String::new()
            } else {
                format!("about {n} {what}")
            }
        };
        let remaining = self
            .plan
            .filter(|_| self.view.state == "open")
            .map(|p| p.remaining)
            .unwrap_or_default();
        figures.push(figure(
            "Kernels tried",
            self.view.kernels.to_string(),
            to_go(remaining.kernels, "to go"),
        ));
        figures.push(figure(
            "Boots measured",
            self.view.boots.to_string(),
            to_go(remaining.boots, "to go"),
        ));
        let left = if remaining.time_s > 0.0 {
            format!("about {} left", say::duration(remaining.time_s))
        } else {
            String::new()
        };
        figures.push(figure("Time spent", say::duration(spent), left));
        if let Some(effect) = self.plan.and_then(|p| p.effect) {
            let [low, high] = effect.ci95_pct;
            figures.push(figure(
                "Between the ends",
                say::change(effect.pct),
                format!("{} to {}", say::change(low), say::change(high)),
            ));
        }
        if let Some(plan) = self.plan.filter(|p| p.noise.boot_pct > 0.0) {
            let note = format!("{:.1}\u{202f}% within a boot", plan.noise.run_pct);
            figures.push(figure(
                "Noise of a boot",
                format!("{:.1}\u{202f}%", plan.noise.boot_pct),
                note,
            ));
        }
        figures
    }

    pub(super) fn found(&self, c: &ConclusionRead) -> Found {
        let all = |ids: &[String]| ids.iter().map(|id| self.commits.named(id)).collect::<Vec<_>>();
        let mut evidence = Vec::new();
        if let Some(effect) = c.effect_pct {
            evidence.push(("Effect", say::change(effect)));
        }
        if let Some([low, high]) = c.ci95_pct {
            evidence.push((
                "95 % interval",
                format!("{} to {}", say::change(low), say::change(high)),
            ));
        }
        if let Some(p) = c
            .confidence
            .filter(|_| !(c.first_bad.is_empty() && c.suspects.is_empty()))
        {
            evidence.push(("Sure of the place", say::share(p)));
        }
        if let Some(p) = c.size_confidence {
            evidence.push(("Sure of the size", say::share(p)));
        }
        if let Some(p) = c.share_of_loss {
            evidence.push(("Share of the loss", say::share(p)));
        }
        if !c.machines.is_empty() {
            evidence.push(("Seen on", c.machines.join(", ")));
        }
        if !c.not_reproduced_on.is_empty() {
            evidence.push(("Not reproduced on", c.not_reproduced_on.join(", ")));
        }
        let heading = match (c.first_bad.len(), c.status.as_str()) {
            (1, _) => "First bad commit",
            (2.., "machine_dependent") => "First bad commits, by machine",
            (2.., _) => "Bad commits",
            (0, "culprit_range") => "One of these",
            (0, _) => "What was found",
        };
        let suspects = if c.first_bad.is_empty() {
            all(&c.suspects)
        } else {
            Vec::new()
        };
        let checks = c.checks.iter().map(|check| {
            let tone = match check.result.as_str() {
                "passed" => "good",
                "failed" => "bad",
                _ => "quiet",
            };
            let name = match check.check.as_str() {
                "parents" => "Every parent is good".to_string(),
                "revert" => "Reverting it brings the number back".to_string(),
                "layout" => "The step stays under another code layout".to_string(),
                "same_binary" => "Not the same binary as its parent".to_string(),
                other => other.replace('_', " "),
            };
            CheckRow {
                name,
                result: check.result.replace('_', " "),
                tone,
                detail: say::short_ids(&check.detail),
            }
        });
        Found {
            heading: heading.into(),
            first_bad: all(&c.first_bad),
            improved: all(&c.improved),
            suspects,
            evidence,
            checks: checks.collect(),
            notes: c.notes.iter().map(|note| say::short_ids(note)).collect(),
        }
    }

    pub(super) fn verdict(&self, commit: &str) -> (String, String) {
        let found = self
            .plan
            .and_then(|p| p.verdicts.iter().find(|v| v.commit == commit));
        match found {
            Some(v) => (v.verdict.clone(), v.why.clone().unwrap_or_default()),
            None => ("open".into(), String::new()),
        }
    }

    pub(super) fn plots(&self, levels: &ByMachine) -> Vec<PlotPair> {
        let one_machine = levels.len() == 1;
        let draw = |(key, (machine, kernels)): (usize, (&String, &BTreeMap<String, KernelLevels>))| {
            let columns = kernels
                .iter()
                .filter(|(key, _)| say::variant(key).is_empty())
                .map(|(key, levels)| {
                    let commit = self.commits.named(key);
                    let verdict = self.verdict(key).0;
                    let position = self.commits.position(key);
                    Column {
                        position,
                        name: commit.short,
                        subject: commit.subject,
                        verdict,
                        levels,
                    }
                });
            let end = |commit: &str| kernels.get(commit).and_then(KernelLevels::level);
            let stated = |level: Option<reading::LevelRead>| level.filter(|_| one_machine);
            let unit = self.metric("unit");
            let metric = self.metric("name");
            let plot = Plot {
                title: format!("{metric} ({unit}) by commit on {machine}"),
                unit: &unit,
                metric: &metric,
                commits: self.commits.positions.len().max(2),
                good_at: self.commits.position(&self.view.good_commit),
                bad_at: self.commits.position(&self.view.bad_commit),
                columns: columns.collect(),
                good: stated(self.plan.and_then(|p| p.good_level)).or_else(|| end(&self.view.good_commit)),
                bad: stated(self.plan.and_then(|p| p.bad_level)).or_else(|| end(&self.view.bad_commit)),
                suspects: self
                    .plan
                    .map(|p| {
                        p.suspects
                            .iter()
                            .map(|s| (self.commits.position(&s.commit), s.probability))
                            .collect()
                    })
                    .unwrap_or_default(),
                culprits: self
                    .conclusion
                    .map(|c| c.first_bad.iter().map(|id| self.commits.position(id)).collect())
                    .unwrap_or_default(),
            };
            PlotPair {
                machine: machine.clone(),
                wide: plot::svg(&plot, plot::WIDE, key),
                narrow: plot::svg(&plot, plot::NARROW, key),
            }
        };
        levels.iter().enumerate().map(draw).collect()
    }

    pub(super) fn suspects(&self) -> Vec<SuspectRow> {
        let Some(plan) = self.plan else { return Vec::new() };
        let most = plan
            .suspects
            .iter()
            .map(|s| s.probability)
            .fold(f64::MIN_POSITIVE, f64::max);
        let row = |s: &reading::SuspectRead| SuspectRow {
            commit: self.commits.named(&s.commit),
            share: say::share(s.probability),
            length: (s.probability / most * 1000.0).round() / 10.0,
        };
        plan.suspects
            .iter()
            .take((plan.suspects_left as usize).clamp(1, 20))
            .map(row)
            .collect()
    }

    pub(super) fn kernels(&self, levels: &ByMachine) -> Vec<KernelRow> {
        let good_level = |machine: &str| levels.get(machine)?.get(&self.view.good_commit)?.level();
        let mut rows = Vec::new();
        for (machine, kernels) in levels {
            let base = good_level(machine).map(|l| l.level).filter(|l| *l != 0.0);
            for (key, kernel) in kernels {
                let commit = say::commit_of(key);
                let variant = say::variant(key);
                let plain = variant.is_empty();
                let (verdict, why) = if plain {
                    self.verdict(commit)
                } else {
                    ("check".into(), String::new())
                };
                let skip = kernel.skips.first();
                let level = kernel.level();
                let p_bad = self
                    .plan
                    .filter(|_| plain)
                    .and_then(|p| p.verdicts.iter().find(|v| v.commit == commit)?.p_bad);
                let why = match skip {
                    Some(s) => {
                        let detail = if s.detail.is_empty() {
                            String::new()
                        } else {
                            format!(" ({})", s.detail)
                        };
                        format!("{}{detail}", reading::outcome_words(&s.word))
                    }
                    None => reading::outcome_words(&why).to_string(),
                };
                rows.push(KernelRow {
                    commit: self.commits.named(commit),
                    variant,
                    machine: machine.clone(),
                    verdict,
                    why,
                    excerpt: skip.map(|s| say::tail(&s.excerpt, 12)).unwrap_or_default(),
                    attempt: skip
                        .and_then(|s| s.attempt)
                        .or_else(|| kernel.boots.last()?.attempt)
                        .map(|a| a.to_string()),
                    boots: kernel.boots.len(),
                    level: level.map(|l| say::number(l.level)).unwrap_or_default(),
                    interval: level
                        .filter(|_| kernel.boots.len() > 1)
                        .map(|l| format!("{} to {}", say::number(l.low), say::number(l.high)))
                        .unwrap_or_default(),
                    change: level
                        .zip(base)
                        .filter(|_| commit != self.view.good_commit || !plain)
                        .map(|(l, base)| say::change((l.level / base - 1.0) * 100.0))
                        .unwrap_or_default(),
                    p_bad: p_bad.map(say::share).unwrap_or_default(),
                    position: self.commits.position(commit),
                });
            }
        }
        rows.sort_by(|a, b| (&a.machine, a.position, &a.variant).cmp(&(&b.machine, b.position, &b.variant)));
        rows
    }

    pub(super) fn asked(&self) -> Vec<(&'static str, String)> {
        let v = self.view;
        let text = |pointer: &str| {
            v.policy
                .pointer(pointer)
                .and_then(|x| x.as_str())
                .unwrap_or_default()
        };
        let number = |pointer: &str| v.policy.pointer(pointer).and_then(|x| x.as_f64());
        let end = |rev: &str, commit: &str| match commit.starts_with(rev) {
            true => say::short(commit).to_string(),
            false => format!("{rev} ({})", say::short(commit)),
        };
        let better = match v
            .policy
            .pointer("/metric/higher_is_better")
            .and_then(|x| x.as_bool())
        {
            Some(true) => "higher is better",
            Some(false) => "lower is better",
            None => "",
        };
        let mut asked = vec![
            ("Tree", v.tree.clone()),
            ("Good", end(&v.good_rev, &v.good_commit)),
            ("Bad", end(&v.bad_rev, &v.bad_commit)),
            (
                "Workload",
                v.case
                    .pointer("/workload")
                    .and_then(|x| x.as_str())
                    .unwrap_or_default()
                    .to_string(),
            ),
        ];
        if let Some(parameters) = v
            .case
            .get("parameters")
            .and_then(|p| p.as_object())
            .filter(|p| !p.is_empty())
        {
            let said: Vec<String> = parameters
                .iter()
                .map(|(k, x)| format!("{k} = {}", x.as_str().unwrap_or_default()))
                .collect();
            asked.push(("Parameters", said.join(", ")));
        }
        asked.push((
            "Metric",
            format!("{} in {}, {better}", text("/metric/name"), text("/metric/unit")),
        ));
        asked.push(("Smallest effect", min_effect(&v.policy)));
        asked.push((
            "Confidence",
            number("/confidence").map(say::share).unwrap_or_default(),
        ));
        if text("/look_for") == "all" {
            asked.push(("Look for", "all commits that share the loss".into()));
        }
        if v.first_parent {
            asked.push(("History", "first parents only".into()));
        }
        asked.push(("Machines", v.machines.join(", ")));
        if let Some(boots) = number("/limits/boots") {
            asked.push(("Limit of boots", boots.to_string()));
        }
        if let Some(time) = number("/limits/time_s") {
            asked.push(("Limit of time", say::duration(time)));
        }
        if v.priority != 0 {
            asked.push(("Priority", v.priority.to_string()));
        }
        asked
    }
}
