//! The API under `/api/v1`: JSON of what the store holds, field names with units.

use super::answers;
use super::error::Problem;
use super::openapi::LARGEST;
use super::{WebState, reading, say};
use crate::store::CancelOutcome;
use crate::store::views::{BisectionView, ListFilter, Name};
use axum::Json;
use axum::extract::{Path, RawQuery, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use uuid::Uuid;

pub const PAGE_DEFAULT: i64 = 50;
pub const PAGE_MOST: i64 = 200;
const DECISIONS_MOST: i64 = 1000;
/// Pieces of console that one answer holds: the newest, some megabytes at most.
const CONSOLE_PIECES: i64 = 4000;

/// The parameters of a query, each known and given once.
pub struct Query(BTreeMap<String, String>);

impl Query {
    pub fn read(raw: Option<&str>, known: &[&str]) -> Result<Query, Problem> {
        let mut all = BTreeMap::new();
        let pairs = pairs(raw.unwrap_or_default());
        let pairs = pairs.ok_or_else(|| Problem::bad_query("query", "is not well formed"))?;
        for (name, value) in pairs {
            if !known.contains(&name.as_str()) {
                return Err(Problem::bad_query(
                    &name,
                    format!("is unknown here; known are: {}", known.join(", ")),
                ));
            }
            if all.insert(name.clone(), value).is_some() {
                return Err(Problem::bad_query(&name, "is given twice"));
            }
        }
        Ok(Query(all))
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub fn whole(&self, name: &str, least: i64, most: i64) -> Result<Option<i64>, Problem> {
        let Some(text) = self.get(name) else {
            return Ok(None);
        };
        match text.parse::<i64>() {
            Ok(n) if (least..=most).contains(&n) => Ok(Some(n)),
            _ => Err(Problem::bad_query(
                name,
                format!("must be a whole number from {least} to {most}"),
            )),
        }
    }
}

/// Names and values of a query or a form, decoded.
pub fn pairs(encoded: &str) -> Option<Vec<(String, String)>> {
    let uri = format!("/?{encoded}").parse().ok()?;
    axum::extract::Query::try_from_uri(&uri).ok().map(|query| query.0)
}

/// By number or id; anything else is not found.
pub async fn find(state: &WebState, name: &str) -> Result<BisectionView, Problem> {
    let unknown = || {
        let shown: String = name.chars().filter(|c| !c.is_control()).take(60).collect();
        Problem::not_found(format!(
            "there is no bisection `{shown}`; GET /api/v1/bisections lists them"
        ))
    };
    let parsed: Name = name.parse().map_err(|()| unknown())?;
    state.store.view_bisection(parsed).await?.ok_or_else(unknown)
}

/// List bisections, the newest first
#[utoipa::path(get, path = "/api/v1/bisections", tag = "bisections", operation_id = "list_bisections",
    params(
        ("state" = Option<answers::BisectionState>, Query, description = "Only those in this state"),
        ("tree" = Option<String>, Query, pattern = "^[A-Za-z0-9_.-]{1,64}$", description = "Only those of this tree"),
        ("before" = Option<i64>, Query, minimum = 1, maximum = 9_007_199_254_740_991_i64, description = "Only numbers below this one: `next_before` of the page before"),
        ("limit" = Option<i64>, Query, minimum = 1, maximum = 200, description = "Rows of a page"),
    ),
    responses((status = 200, description = "A page of them", body = answers::Bisections)))]
pub async fn list(State(state): State<WebState>, RawQuery(raw): RawQuery) -> Result<Response, Problem> {
    let query = Query::read(raw.as_deref(), &["state", "tree", "before", "limit"])?;
    let wanted = query.get("state");
    if let Some(other) = wanted.filter(|s| answers::BisectionState::ALL.iter().all(|(name, _)| name != s)) {
        return Err(Problem::bad_query(
            "state",
            format!("must be open, concluded or cancelled, is `{other}`"),
        ));
    }
    let is_name = |text: &str| {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        (1..=64).contains(&text.len()) && text.bytes().all(plain)
    };
    if query.get("tree").is_some_and(|tree| !is_name(tree)) {
        return Err(Problem::bad_query("tree", "is no name of a tree"));
    }
    let limit = query.whole("limit", 1, PAGE_MOST)?.unwrap_or(PAGE_DEFAULT);
    let filter = ListFilter {
        state: wanted.map(str::to_string),
        tree: query.get("tree").map(str::to_string),
        before: query.whole("before", 1, LARGEST)?,
        // One more than asked for tells whether there is a next page.
        limit: limit + 1,
    };
    let mut views = state.store.view_bisections(&filter).await?;
    let more = views.len() as i64 > limit;
    views.truncate(limit as usize);
    let next = views.last().filter(|_| more).map(|last| last.number);
    let bisections = views.iter().map(|v| summary(&state, v)).collect();
    Ok(Json(answers::Bisections {
        bisections,
        next_before: next,
    })
    .into_response())
}

/// A row of the list.
fn summary(state: &WebState, v: &BisectionView) -> answers::Summary {
    let plan = v.plan.as_ref().map(reading::plan);
    let conclusion = v.conclusion.as_ref().map(reading::conclusion);
    let end = |revision: &str, commit: &str| answers::End {
        revision: revision.to_string(),
        commit: commit.to_string(),
    };
    answers::Summary {
        id: v.id,
        number: v.number,
        url: format!("/api/v1/bisections/{}", v.number),
        page: format!("{}/bisections/{}", state.config.base_url(), v.number),
        state: v.state.clone(),
        status: conclusion.as_ref().map(|c| c.status.clone()),
        sentence: super::pages::sentence(v, plan.as_ref(), conclusion.as_ref()),
        tree: v.tree.clone(),
        good: end(&v.good_rev, &v.good_commit),
        bad: end(&v.bad_rev, &v.bad_commit),
        workload: v.case.get("workload").cloned(),
        metric: v.policy.pointer("/metric/name").cloned(),
        machines: v.machines.clone(),
        priority: v.priority,
        created_at: v.created_at,
        ended_at: v.ended_at,
        suspects_left: plan.as_ref().map(|p| p.suspects_left),
        first_bad: conclusion.map(|c| c.first_bad).unwrap_or_default(),
        counts: answers::Counts {
            kernels: v.kernels,
            boots: v.boots,
            builds: v.builds,
            working: v.working,
        },
    }
}

/// Everything of one: what was asked, how it was resolved, the latest plan, the conclusion.
pub fn detail(state: &WebState, v: &BisectionView) -> answers::Detail {
    answers::Detail {
        summary: summary(state, v),
        first_parent: v.first_parent,
        request: v.request.clone(),
        case: v.case.clone(),
        policy: v.policy.clone(),
        record_version: v.record_version,
        planned_version: v.planned_version,
        planned_at: v.planned_at,
        plan: v.plan.clone().unwrap_or(Value::Null),
        conclusion: v.conclusion.clone().unwrap_or(Value::Null),
    }
}

/// Show a bisection
#[utoipa::path(get, path = "/api/v1/bisections/{name}", tag = "bisections", operation_id = "show_bisection",
    params(("name" = String, Path, description = "Its number or its id")),
    responses((status = 200, description = "All of it", body = answers::Detail)))]
pub async fn one(State(state): State<WebState>, Path(name): Path<String>) -> Result<Response, Problem> {
    let view = find(&state, &name).await?;
    Ok(Json(detail(&state, &view)).into_response())
}

/// Cancel a bisection: running jobs are stopped, what was measured stays
#[utoipa::path(post, path = "/api/v1/bisections/{name}/cancel", tag = "bisections", operation_id = "cancel_bisection",
    params(("name" = String, Path, description = "Its number or its id")),
    responses((status = 200, description = "As it is now", body = answers::Detail)))]
pub async fn cancel(State(state): State<WebState>, Path(name): Path<String>) -> Result<Response, Problem> {
    let view = find(&state, &name).await?;
    cancel_view(&state, &view).await?;
    let view = find(&state, &name).await?;
    Ok(Json(detail(&state, &view)).into_response())
}

pub async fn cancel_view(state: &WebState, view: &BisectionView) -> Result<(), Problem> {
    match state.store.cancel(view.id).await? {
        CancelOutcome::Cancelled => Ok(()),
        CancelOutcome::Ended(ended) => Err(Problem::conflict(format!(
            "bisection {} is {ended} already; nothing is left to cancel",
            view.number
        ))),
        CancelOutcome::Unknown => Err(Problem::not_found(format!("bisection {} is gone", view.number))),
    }
}

/// List the outcomes of its jobs
#[utoipa::path(get, path = "/api/v1/bisections/{name}/samples", tag = "bisections", operation_id = "list_samples",
    params(("name" = String, Path, description = "Its number or its id")),
    responses((status = 200, description = "All of them", body = answers::Samples)))]
pub async fn samples(State(state): State<WebState>, Path(name): Path<String>) -> Result<Response, Problem> {
    let view = find(&state, &name).await?;
    let samples = state.store.view_samples(view.id).await?;
    let one = |s: crate::store::views::SampleView| answers::Sample {
        id: s.id,
        kernel: s.kernel,
        machine: s.machine,
        lane: s.lane,
        replicate: s.replicate,
        outcome: s.outcome,
        observed_at: s.observed_at,
        boot_id: s.boot_id,
        attempt_id: s.attempt_id,
        failure: s.failure.unwrap_or(Value::Null),
    };
    let samples = samples.into_iter().map(one).collect();
    Ok(Json(answers::Samples { samples }).into_response())
}

/// List its jobs
#[utoipa::path(get, path = "/api/v1/bisections/{name}/jobs", tag = "bisections", operation_id = "list_jobs",
    params(("name" = String, Path, description = "Its number or its id")),
    responses((status = 200, description = "All of them", body = answers::Jobs)))]
pub async fn jobs(State(state): State<WebState>, Path(name): Path<String>) -> Result<Response, Problem> {
    let view = find(&state, &name).await?;
    let jobs = state.store.view_jobs(view.id).await?;
    let one = |j: crate::store::views::JobView| answers::Job {
        id: j.id,
        kernel: j.kernel,
        machine: j.machine,
        lane: j.lane,
        replicate: j.replicate,
        runs: j.runs,
        state: j.state,
        failures: j.failures,
        created_at: j.created_at,
        ended_at: j.ended_at,
        attempt: j.attempt_id.map(|id| answers::JobAttempt {
            id,
            phase: j.phase,
            trouble: j.trouble,
        }),
    };
    let jobs = jobs.into_iter().map(one).collect();
    Ok(Json(answers::Jobs { jobs }).into_response())
}

/// List its attempts
///
/// Every try at its builds and jobs, and how long it took from the grant of the machine to the stored outcome.
#[utoipa::path(get, path = "/api/v1/bisections/{name}/attempts", tag = "bisections", operation_id = "list_attempts",
    params(("name" = String, Path, description = "Its number or its id")),
    responses((status = 200, description = "All of them", body = answers::Attempts)))]
pub async fn attempts(State(state): State<WebState>, Path(name): Path<String>) -> Result<Response, Problem> {
    let view = find(&state, &name).await?;
    let attempts = state.store.view_attempts(view.id).await?;
    let one = |a: crate::store::views::AttemptView| {
        let wall = a
            .ended_at
            .map(|end| (end - a.started_at).num_milliseconds() as f64 / 1000.0);
        answers::Attempt {
            id: a.id,
            kind: if a.building { "build" } else { "measure" },
            kernel: a.kernel,
            machine: a.machine,
            state: a.state,
            ended_by: a.ended_by,
            trouble: a.trouble,
            started_at: a.started_at,
            ended_at: a.ended_at,
            wall_s: wall,
        }
    };
    let attempts = attempts.into_iter().map(one).collect();
    Ok(Json(answers::Attempts { attempts }).into_response())
}

/// List what was decided, and on which record
#[utoipa::path(get, path = "/api/v1/bisections/{name}/decisions", tag = "bisections", operation_id = "list_decisions",
    params(("name" = String, Path, description = "Its number or its id")),
    responses((status = 200, description = "The newest thousand", body = answers::Decisions)))]
pub async fn decisions(State(state): State<WebState>, Path(name): Path<String>) -> Result<Response, Problem> {
    let view = find(&state, &name).await?;
    let decisions = state.store.view_decisions(view.id, DECISIONS_MOST).await?;
    let one = |d: crate::store::views::DecisionView| answers::Decision {
        id: d.id,
        record_version: d.record_version,
        planner_version: d.planner_version,
        made_at: d.made_at,
        plan: d.plan,
    };
    let decisions = decisions.into_iter().map(one).collect();
    Ok(Json(answers::Decisions { decisions }).into_response())
}

/// Show the console of an attempt
///
/// The console and build log of one attempt as plain text, the newest part of it.
#[utoipa::path(get, path = "/api/v1/attempts/{id}/console", tag = "bisections", operation_id = "show_console",
    params(("id" = String, Path, description = "The id of an attempt")),
    responses((status = 200, description = "Text", body = String, content_type = "text/plain")))]
pub async fn console(State(state): State<WebState>, Path(id): Path<String>) -> Result<Response, Problem> {
    let unknown =
        || Problem::not_found("there is no attempt of this id; the jobs of a bisection list theirs");
    let id: Uuid = id.parse().map_err(|_| unknown())?;
    if !state.store.view_attempt_exists(id).await? {
        return Err(unknown());
    }
    let pieces = state.store.view_console(id, CONSOLE_PIECES).await?;
    let text = say::plain_console(&pieces.concat());
    Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response())
}

/// List machines and what they do
#[utoipa::path(get, path = "/api/v1/machines", tag = "lab", operation_id = "list_machines",
    responses((status = 200, description = "All of them", body = answers::Machines)))]
pub async fn machines(State(state): State<WebState>) -> Result<Response, Problem> {
    let seen: BTreeMap<String, _> = state
        .store
        .view_machines()
        .await?
        .into_iter()
        .map(|m| (m.name.clone(), m))
        .collect();
    let one = |m: &crate::config::Machine| {
        let seen = seen.get(&m.name);
        answers::Machine {
            name: m.name.clone(),
            arch: m.arch.clone(),
            pools: m.pools.clone(),
            roles: json!(m.roles),
            state: seen.map(|s| s.state.clone()),
            reason: seen.and_then(|s| s.reason.clone()),
            lane: seen.map(|s| s.lane),
            admission: seen.and_then(|s| s.admission.clone()).unwrap_or(Value::Null),
            probed_at: seen.and_then(|s| s.probed_at),
            probe: seen.and_then(|s| s.probe.clone()).unwrap_or(Value::Null),
            work: seen.filter(|s| s.attempt_id.is_some()).map(work),
        }
    };
    let machines = state.config.machines.values().map(one).collect();
    Ok(Json(answers::Machines { machines }).into_response())
}

fn work(s: &crate::store::views::MachineView) -> answers::Work {
    answers::Work {
        attempt: s.attempt_id,
        bisection: s.bisection,
        kernel: s.kernel_key.clone(),
        building: s.building,
        trial: s.trial.clone(),
        replicate: s.replicate,
        phase: s.phase.clone(),
        started_at: s.started_at,
        deadline_at: s.deadline_at,
    }
}

/// Try a machine anew before it serves
///
/// Tried again from the start, out of quarantine.
#[utoipa::path(post, path = "/api/v1/machines/{name}/admit", tag = "lab", operation_id = "admit_machine",
    params(("name" = String, Path, description = "Its name")),
    responses((status = 200, description = "It is tried", body = answers::Admitted)))]
pub async fn admit(State(state): State<WebState>, Path(name): Path<String>) -> Result<Response, Problem> {
    // Postgres takes no NUL, and no machine has one in its name.
    match !name.contains('\0') && state.store.admit_again(&name).await? {
        true => Ok(Json(answers::Admitted { name }).into_response()),
        false => Err(Problem::not_found(format!(
            "there is no machine `{name}`; GET /api/v1/machines lists them"
        ))),
    }
}

/// List what can be measured
#[utoipa::path(get, path = "/api/v1/workloads", tag = "lab", operation_id = "list_workloads",
    responses((status = 200, description = "All of them", body = answers::Workloads)))]
pub async fn workloads(State(state): State<WebState>) -> Response {
    let one = |w: &crate::config::Workload| answers::Workload {
        name: w.name.clone(),
        description: w.description.clone(),
        parameters: json!(w.parameters),
        metrics: json!(w.metrics),
        warmup_runs: w.warmup_runs,
        run_limit_s: w.run_limit_s,
    };
    let workloads = state.config.workloads.values().map(one).collect();
    Json(answers::Workloads { workloads }).into_response()
}

/// Names of branches and tags that a tree has now, the newest first, so that a form can offer them.
const REFS: usize = 50;

/// List trees and their branches and tags
#[utoipa::path(get, path = "/api/v1/trees", tag = "lab", operation_id = "list_trees",
    responses((status = 200, description = "All of them", body = answers::Trees)))]
pub async fn trees(State(state): State<WebState>) -> Response {
    let mut trees = Vec::new();
    for name in state.config.file.trees.keys() {
        let refs = refs_of(&state, name).await;
        trees.push(answers::Tree {
            name: name.clone(),
            refs,
        });
    }
    Json(answers::Trees { trees }).into_response()
}

pub async fn refs_of(state: &WebState, tree: &str) -> Vec<String> {
    match state.trees.refs(tree, "", REFS).await {
        Ok(refs) => refs.into_iter().map(|r| r.name).collect(),
        Err(error) => {
            tracing::warn!(tree, %error, "the tree's names cannot be listed");
            Vec::new()
        }
    }
}
