//! Everything a bisection's page shows, gathered from the store and the tree and put into words.
//!
//! One read, one value: the whole page and the fragment that a browser fetches on an event are two templates over
//! the same [`BisectionPage`].

use super::super::levels::{self, ByMachine, KernelLevels};
use super::super::plot::{self, Column, Plot};
use super::super::reading::{self, ConclusionRead, PlanRead};
use super::super::standing::{self, Facts};
use super::super::{WebState, error::Problem, say};
use crate::store::views::{BisectionView, DecisionView, MachineView};
use crate::tree::CommitInfo;
use bisect::CommitId;
use chrono::{DateTime, Utc};
use std::collections::{BTreeMap, HashMap};

/// Decisions shown; the API has them all.
const DECISIONS: i64 = 40;
/// Pieces of console read for the tail, and lines of it shown.
const CONSOLE_PIECES: i64 = 120;
const CONSOLE_LINES: usize = 14;

pub struct BisectionPage {
    pub number: i64,
    pub title: String,
    pub badge: &'static str,
    pub tone: &'static str,
    pub sentence: String,
    pub open: bool,
    pub tree: String,
    pub submitted: Moment,
    pub ended: Option<Moment>,
    pub figures: Vec<Figure>,
    pub found: Option<Found>,
    pub plots: Vec<PlotPair>,
    pub suspects: Vec<SuspectRow>,
    pub suspects_left: u32,
    pub p_no_change: Option<String>,
    pub workers: Vec<Worker>,
    pub kernels: Vec<KernelRow>,
    pub many_machines: bool,
    pub unit: String,
    pub decisions: Vec<DecisionRow>,
    pub asked: Vec<(&'static str, String)>,
    pub repeat: String,
}

/// Written as a time of day: the script turns it into "2 minutes ago", which must not change the page's own text.
pub struct Moment {
    pub iso: String,
    pub long: String,
    pub short: String,
}

impl Moment {
    pub fn of(at: DateTime<Utc>) -> Moment {
        Moment {
            iso: at.to_rfc3339(),
            long: say::time(at),
            short: at.format("%-d %b, %H:%M").to_string(),
        }
    }
}

/// A number with its name, for the row of figures.
pub struct Figure {
    pub name: &'static str,
    pub value: String,
    pub note: String,
}

pub struct Named {
    pub id: String,
    pub short: String,
    pub subject: String,
    pub by: String,
}

pub struct Found {
    pub heading: String,
    pub first_bad: Vec<Named>,
    pub improved: Vec<Named>,
    pub suspects: Vec<Named>,
    pub evidence: Vec<(&'static str, String)>,
    pub checks: Vec<CheckRow>,
    pub notes: Vec<String>,
}

pub struct CheckRow {
    pub name: String,
    pub result: String,
    pub tone: &'static str,
    pub detail: String,
}

pub struct PlotPair {
    pub machine: String,
    pub wide: String,
    pub narrow: String,
}

pub struct SuspectRow {
    pub commit: Named,
    pub share: String,
    /// Of the most probable one, in per cent: the bar's length.
    pub length: f64,
}

pub struct Worker {
    pub name: String,
    pub does: String,
    pub since: Option<Moment>,
    pub tone: &'static str,
    pub console: String,
    pub attempt: Option<String>,
}

pub struct KernelRow {
    pub commit: Named,
    pub variant: String,
    pub machine: String,
    pub verdict: String,
    pub why: String,
    pub excerpt: String,
    pub attempt: Option<String>,
    pub boots: usize,
    pub level: String,
    pub interval: String,
    pub change: String,
    pub p_bad: String,
    pub position: usize,
}

pub struct DecisionRow {
    pub at: Moment,
    pub step: String,
    pub reason: String,
    pub left: String,
}

/// What the tree knows of a bisection's commits; empty where the mirror cannot tell.
pub struct Commits {
    positions: HashMap<String, usize>,
    infos: HashMap<String, CommitInfo>,
}

impl Commits {
    pub fn named(&self, id: &str) -> Named {
        let info = self.infos.get(id);
        Named {
            id: id.to_string(),
            short: say::short(id).to_string(),
            subject: info.map(|i| i.subject.clone()).unwrap_or_default(),
            by: info
                .map(|i| format!("{}, {}", i.author, i.date.format("%-d %b %Y")))
                .unwrap_or_default(),
        }
    }

    fn position(&self, id: &str) -> usize {
        self.positions.get(id).copied().unwrap_or(0)
    }
}

pub async fn commits_of(state: &WebState, view: &BisectionView, wanted: Vec<String>) -> Commits {
    let (good, bad) = (CommitId::new(&view.good_commit), CommitId::new(&view.bad_commit));
    let positions = match state
        .trees
        .history(&view.tree, &good, &bad, view.first_parent)
        .await
    {
        Ok(history) => history
            .commits()
            .iter()
            .enumerate()
            .map(|(i, c)| (c.id.as_str().to_string(), i))
            .collect(),
        Err(error) => {
            tracing::warn!(bisection = view.number, %error, "the page has no history");
            HashMap::new()
        }
    };
    let mut ids = wanted;
    ids.sort();
    ids.dedup();
    let ids: Vec<CommitId> = ids.iter().map(CommitId::new).collect();
    let infos = match state.trees.commits(&view.tree, &ids).await {
        Ok(infos) => infos
            .into_iter()
            .map(|i| (i.id.as_str().to_string(), i))
            .collect(),
        Err(error) => {
            tracing::warn!(bisection = view.number, %error, "the page has no subjects");
            HashMap::new()
        }
    };
    Commits { positions, infos }
}

impl BisectionPage {
    pub async fn read(state: &WebState, view: BisectionView) -> Result<BisectionPage, Problem> {
        let now = Utc::now();
        let samples = state.store.view_samples(view.id).await?;
        let decisions = state.store.view_decisions(view.id, DECISIONS).await?;
        let machines = state.store.view_machines().await?;
        let plan = view.plan.as_ref().map(reading::plan);
        let conclusion = view.conclusion.as_ref().map(reading::conclusion);
        let levels = levels::by_machine(&samples);
        let commits = commits_of(
            state,
            &view,
            ids_of(&view, plan.as_ref(), conclusion.as_ref(), &levels),
        )
        .await;
        let mut workers = Vec::new();
        for machine in machines {
            if view.machines.contains(&machine.name) || machine.bisection == Some(view.number) {
                workers.push(worker(state, &view, machine).await?);
            }
        }
        let scene = Scene {
            view: &view,
            plan: plan.as_ref(),
            conclusion: conclusion.as_ref(),
            commits: &commits,
        };
        let working = workers.iter().any(|w| w.tone == "live");
        let (badge, tone) = standing::badge(&view.state, conclusion.as_ref(), working);
        Ok(BisectionPage {
            number: view.number,
            title: format!(
                "{} from {} to {}",
                scene.metric("name"),
                view.good_rev,
                view.bad_rev
            ),
            badge,
            tone,
            sentence: sentence(&view, plan.as_ref(), conclusion.as_ref()),
            open: view.state == "open",
            tree: view.tree.clone(),
            submitted: Moment::of(view.created_at),
            ended: view.ended_at.map(Moment::of),
            figures: scene.figures(now),
            found: conclusion.as_ref().map(|c| scene.found(c)),
            plots: scene.plots(&levels),
            suspects: scene.suspects(),
            suspects_left: plan.as_ref().map_or(0, |p| p.suspects_left),
            p_no_change: plan
                .as_ref()
                .filter(|p| p.p_no_change > 0.0)
                .map(|p| say::share(p.p_no_change)),
            workers,
            kernels: scene.kernels(&levels),
            many_machines: levels.len() > 1,
            unit: scene.metric("unit"),
            decisions: decisions.iter().map(decision).collect(),
            asked: scene.asked(),
            repeat: repeat(&state.config.base_url(), &view),
        })
    }
}

fn ids_of(
    view: &BisectionView,
    plan: Option<&PlanRead>,
    conclusion: Option<&ConclusionRead>,
    levels: &ByMachine,
) -> Vec<String> {
    let mut ids = vec![view.good_commit.clone(), view.bad_commit.clone()];
    if let Some(plan) = plan {
        ids.extend(plan.suspects.iter().map(|s| s.commit.clone()));
        ids.extend(plan.verdicts.iter().map(|v| v.commit.clone()));
    }
    if let Some(c) = conclusion {
        ids.extend(
            [&c.first_bad, &c.improved, &c.suspects]
                .into_iter()
                .flatten()
                .cloned(),
        );
    }
    ids.extend(
        levels
            .values()
            .flat_map(|k| k.keys())
            .map(|key| say::commit_of(key).to_string()),
    );
    ids
}

/// Where it stands, in one sentence.
pub fn sentence(
    view: &BisectionView,
    plan: Option<&PlanRead>,
    conclusion: Option<&ConclusionRead>,
) -> String {
    standing::sentence(&Facts {
        state: &view.state,
        good: &view.good_commit,
        bad: &view.bad_commit,
        min_effect: min_effect(&view.policy),
        metric: view
            .policy
            .pointer("/metric/name")
            .and_then(|v| v.as_str())
            .unwrap_or("the metric"),
        plan,
        conclusion,
        boots: view.boots,
    })
}

fn min_effect(policy: &serde_json::Value) -> String {
    let unit = policy
        .pointer("/metric/unit")
        .and_then(|v| v.as_str())
        .unwrap_or_default();
    let number = |name: &str| policy.get(name).and_then(|v| v.as_f64());
    match (number("min_effect_pct"), number("min_effect_abs")) {
        (Some(pct), _) => format!("{pct}\u{202f}%"),
        (None, Some(abs)) => format!("{} {unit}", say::number(abs)),
        (None, None) => "–".into(),
    }
}

async fn worker(state: &WebState, view: &BisectionView, machine: MachineView) -> Result<Worker, Problem> {
    let ours = machine.bisection == Some(view.number);
    let phase = machine
        .phase
        .as_deref()
        .map(|p| format!(": {p}"))
        .unwrap_or_default();
    let (does, tone) = match (machine.attempt_id, machine.bisection, machine.state.as_str()) {
        (Some(_), Some(_), _) if ours => {
            let kernel = machine.kernel_key.as_deref().unwrap_or_default();
            let name = format!("{}{}", say::short(say::commit_of(kernel)), say::variant(kernel));
            let does = match (machine.building, machine.replicate) {
                (Some(true), _) => format!("builds {name}{phase}"),
                (_, Some(replicate)) => format!("measures {name}, boot {}{phase}", replicate + 1),
                (_, None) => format!("works on {name}{phase}"),
            };
            (does, "live")
        }
        (Some(_), Some(other), _) => (format!("works for bisection {other}"), "wait"),
        (Some(_), None, _) => ("works for another search".to_string(), "wait"),
        (None, _, "quarantined") => (
            format!(
                "quarantined: {}",
                machine.reason.as_deref().unwrap_or("no reason kept")
            ),
            "warn",
        ),
        (None, _, "retired") => ("retired".to_string(), "quiet"),
        (None, ..) => ("idle".to_string(), "quiet"),
    };
    let console = match machine.attempt_id.filter(|_| ours) {
        Some(attempt) => {
            let pieces = state.store.view_console(attempt, CONSOLE_PIECES).await?;
            say::tail(&say::plain_console(&pieces.concat()), CONSOLE_LINES)
        }
        None => String::new(),
    };
    Ok(Worker {
        name: machine.name,
        does,
        since: machine.started_at.filter(|_| ours).map(Moment::of),
        tone,
        console,
        attempt: machine.attempt_id.filter(|_| ours).map(|a| a.to_string()),
    })
}

fn decision(d: &DecisionView) -> DecisionRow {
    let plan = reading::plan(&d.plan);
    let step = match (&plan.step.conclude, plan.step.run.as_slice()) {
        (Some(c), _) => format!("concluded: {}", c.status.replace('_', " ")),
        (None, []) => "waits for what runs".into(),
        (None, jobs) => {
            let mut names: Vec<&str> = jobs.iter().map(|j| say::short(&j.kernel.commit)).collect();
            names.dedup();
            format!(
                "{} of {}",
                say::count(jobs.len() as i64, "boot", "boots"),
                names.join(", ")
            )
        }
    };
    let left = say::count(plan.suspects_left.into(), "suspect", "suspects");
    DecisionRow {
        at: Moment::of(d.made_at),
        step,
        reason: plan.reason,
        left,
    }
}

/// The request again, as a shell would send it.
fn repeat(base_url: &str, view: &BisectionView) -> String {
    let body = serde_json::to_string_pretty(&view.request)
        .unwrap_or_default()
        .replace('\'', r"'\''");
    format!(
        "curl -sS {base_url}/api/v1/bisections \\\n  -H 'Content-Type: application/json' \\\n  -d '{body}'"
    )
}

struct Scene<'a> {
    view: &'a BisectionView,
    plan: Option<&'a PlanRead>,
    conclusion: Option<&'a ConclusionRead>,
    commits: &'a Commits,
}

impl Scene<'_> {
    fn metric(&self, field: &str) -> String {
        let value = self.view.policy.pointer(&format!("/metric/{field}"));
        value.and_then(|v| v.as_str()).unwrap_or_default().to_string()
    }

    fn figures(&self, now: DateTime<Utc>) -> Vec<Figure> {
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

    fn found(&self, c: &ConclusionRead) -> Found {
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
                detail: check.detail.clone(),
            }
        });
        Found {
            heading: heading.into(),
            first_bad: all(&c.first_bad),
            improved: all(&c.improved),
            suspects,
            evidence,
            checks: checks.collect(),
            notes: c.notes.clone(),
        }
    }

    fn verdict(&self, commit: &str) -> (String, String) {
        let found = self
            .plan
            .and_then(|p| p.verdicts.iter().find(|v| v.commit == commit));
        match found {
            Some(v) => (v.verdict.clone(), v.why.clone().unwrap_or_default()),
            None => ("open".into(), String::new()),
        }
    }

    fn plots(&self, levels: &ByMachine) -> Vec<PlotPair> {
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

    fn suspects(&self) -> Vec<SuspectRow> {
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
        plan.suspects.iter().take(20).map(row).collect()
    }

    fn kernels(&self, levels: &ByMachine) -> Vec<KernelRow> {
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

    fn asked(&self) -> Vec<(&'static str, String)> {
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
