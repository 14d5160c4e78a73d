//! Everything a bisection's page shows, gathered from the store and the tree and put into words.
//!
//! One read, one value: the whole page and the fragment that a browser fetches on an event are two templates over
//! the same [`BisectionPage`].

use super::scene::Scene;
use crate::store::views::{BisectionView, DecisionView, MachineView};
use crate::tree::CommitInfo;
use crate::web::levels::{self, ByMachine};
use crate::web::reading::{self, ConclusionRead, PlanRead};
use crate::web::standing::{self, Facts};
use crate::web::surroundings::{self, SurroundingsRows};
use crate::web::{WebState, error::Problem, say};
use bisect::CommitId;
use chrono::{DateTime, Utc};
use std::collections::HashMap;

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
    pub surroundings: SurroundingsRows,
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
    pub(super) positions: HashMap<String, usize>,
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

    pub(super) fn position(&self, id: &str) -> usize {
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
                say::short(&view.good_rev),
                say::short(&view.bad_rev)
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
            surroundings: surroundings::rows(&surroundings::read(state, view.id).await?),
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

pub(super) fn min_effect(policy: &serde_json::Value) -> String {
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
        reason: say::short_ids(&plan.reason),
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
