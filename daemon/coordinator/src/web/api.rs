//! The API under `/api/v1`: JSON of what the store holds, field names with units.

use super::error::Problem;
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

pub async fn list(State(state): State<WebState>, RawQuery(raw): RawQuery) -> Result<Response, Problem> {
    let query = Query::read(raw.as_deref(), &["state", "tree", "before", "limit"])?;
    let wanted = query.get("state");
    if let Some(other) = wanted.filter(|s| !["open", "concluded", "cancelled"].contains(s)) {
        return Err(Problem::bad_query(
            "state",
            format!("must be open, concluded or cancelled, is `{other}`"),
        ));
    }
    let limit = query.whole("limit", 1, PAGE_MOST)?.unwrap_or(PAGE_DEFAULT);
    let filter = ListFilter {
        state: wanted.map(str::to_string),
        tree: query.get("tree").map(str::to_string),
        before: query.whole("before", 1, i64::MAX)?,
        // One more than asked for tells whether there is a next page.
        limit: limit + 1,
    };
    let mut views = state.store.view_bisections(&filter).await?;
    let more = views.len() as i64 > limit;
    views.truncate(limit as usize);
    let next = views.last().filter(|_| more).map(|last| last.number);
    let bisections: Vec<Value> = views.iter().map(|v| summary(&state, v)).collect();
    Ok(Json(json!({ "bisections": bisections, "next_before": next })).into_response())
}

/// A row of the list.
fn summary(state: &WebState, v: &BisectionView) -> Value {
    let plan = v.plan.as_ref().map(reading::plan);
    let conclusion = v.conclusion.as_ref().map(reading::conclusion);
    json!({
        "id": v.id,
        "number": v.number,
        "url": format!("/api/v1/bisections/{}", v.number),
        "page": format!("{}/bisections/{}", state.config.base_url(), v.number),
        "state": v.state,
        "status": conclusion.as_ref().map(|c| c.status.clone()),
        "sentence": super::pages::sentence(v, plan.as_ref(), conclusion.as_ref()),
        "tree": v.tree,
        "good": { "revision": v.good_rev, "commit": v.good_commit },
        "bad": { "revision": v.bad_rev, "commit": v.bad_commit },
        "workload": v.case.get("workload"),
        "metric": v.policy.pointer("/metric/name"),
        "machines": v.machines,
        "priority": v.priority,
        "created_at": v.created_at,
        "ended_at": v.ended_at,
        "suspects_left": plan.as_ref().map(|p| p.suspects_left),
        "first_bad": conclusion.map(|c| c.first_bad).unwrap_or_default(),
        "counts": { "kernels": v.kernels, "boots": v.boots, "builds": v.builds, "working": v.working },
    })
}

/// Everything of one: what was asked, how it was resolved, the latest plan, the conclusion.
pub fn detail(state: &WebState, v: &BisectionView) -> Value {
    let mut all = summary(state, v);
    all["first_parent"] = json!(v.first_parent);
    all["request"] = v.request.clone();
    all["case"] = v.case.clone();
    all["policy"] = v.policy.clone();
    all["record_version"] = json!(v.record_version);
    all["planned_version"] = json!(v.planned_version);
    all["planned_at"] = json!(v.planned_at);
    all["plan"] = v.plan.clone().unwrap_or(Value::Null);
    all["conclusion"] = v.conclusion.clone().unwrap_or(Value::Null);
    all
}

pub async fn one(State(state): State<WebState>, Path(name): Path<String>) -> Result<Response, Problem> {
    let view = find(&state, &name).await?;
    Ok(Json(detail(&state, &view)).into_response())
}

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

pub async fn samples(State(state): State<WebState>, Path(name): Path<String>) -> Result<Response, Problem> {
    let view = find(&state, &name).await?;
    let samples = state.store.view_samples(view.id).await?;
    let one = |s: &crate::store::views::SampleView| {
        json!({
            "id": s.id,
            "kernel": s.kernel,
            "machine": s.machine,
            "lane": s.lane,
            "replicate": s.replicate,
            "outcome": s.outcome,
            "observed_at": s.observed_at,
            "boot_id": s.boot_id,
            "attempt_id": s.attempt_id,
            "failure": s.failure,
        })
    };
    Ok(Json(json!({ "samples": samples.iter().map(one).collect::<Vec<_>>() })).into_response())
}

pub async fn jobs(State(state): State<WebState>, Path(name): Path<String>) -> Result<Response, Problem> {
    let view = find(&state, &name).await?;
    let jobs = state.store.view_jobs(view.id).await?;
    let one = |j: &crate::store::views::JobView| {
        json!({
            "id": j.id,
            "kernel": j.kernel,
            "machine": j.machine,
            "lane": j.lane,
            "replicate": j.replicate,
            "runs": j.runs,
            "state": j.state,
            "failures": j.failures,
            "created_at": j.created_at,
            "ended_at": j.ended_at,
            "attempt": j.attempt_id.map(|id| json!({ "id": id, "phase": j.phase, "trouble": j.trouble })),
        })
    };
    Ok(Json(json!({ "jobs": jobs.iter().map(one).collect::<Vec<_>>() })).into_response())
}

/// Every try at its builds and jobs, and how long it took from the grant of the machine to the stored outcome.
pub async fn attempts(State(state): State<WebState>, Path(name): Path<String>) -> Result<Response, Problem> {
    let view = find(&state, &name).await?;
    let attempts = state.store.view_attempts(view.id).await?;
    let one = |a: &crate::store::views::AttemptView| {
        let wall = a
            .ended_at
            .map(|end| (end - a.started_at).num_milliseconds() as f64 / 1000.0);
        json!({
            "id": a.id,
            "kind": if a.building { "build" } else { "measure" },
            "kernel": a.kernel,
            "machine": a.machine,
            "state": a.state,
            "ended_by": a.ended_by,
            "trouble": a.trouble,
            "started_at": a.started_at,
            "ended_at": a.ended_at,
            "wall_s": wall,
        })
    };
    Ok(Json(json!({ "attempts": attempts.iter().map(one).collect::<Vec<_>>() })).into_response())
}

pub async fn decisions(State(state): State<WebState>, Path(name): Path<String>) -> Result<Response, Problem> {
    let view = find(&state, &name).await?;
    let decisions = state.store.view_decisions(view.id, DECISIONS_MOST).await?;
    let one = |d: &crate::store::views::DecisionView| {
        json!({
            "id": d.id,
            "record_version": d.record_version,
            "planner_version": d.planner_version,
            "made_at": d.made_at,
            "plan": d.plan,
        })
    };
    Ok(Json(json!({ "decisions": decisions.iter().map(one).collect::<Vec<_>>() })).into_response())
}

/// The console and build log of one attempt as plain text, the newest part of it.
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
        json!({
            "name": m.name,
            "arch": m.arch,
            "pools": m.pools,
            "roles": m.roles,
            "state": seen.map(|s| &s.state),
            "reason": seen.and_then(|s| s.reason.as_ref()),
            "lane": seen.map(|s| s.lane),
            "admission": seen.and_then(|s| s.admission.as_ref()),
            "probed_at": seen.and_then(|s| s.probed_at),
            "probe": seen.and_then(|s| s.probe.as_ref()),
            "work": seen.filter(|s| s.attempt_id.is_some()).map(|s| json!({
                "attempt": s.attempt_id,
                "bisection": s.bisection,
                "kernel": s.kernel_key,
                "building": s.building,
                "trial": s.trial,
                "replicate": s.replicate,
                "phase": s.phase,
                "started_at": s.started_at,
                "deadline_at": s.deadline_at,
            })),
        })
    };
    Ok(
        Json(json!({ "machines": state.config.machines.values().map(one).collect::<Vec<_>>() }))
            .into_response(),
    )
}

/// Tried again from the start, out of quarantine.
pub async fn admit(State(state): State<WebState>, Path(name): Path<String>) -> Result<Response, Problem> {
    match state.store.admit_again(&name).await? {
        true => Ok(Json(json!({ "name": name })).into_response()),
        false => Err(Problem::not_found(format!(
            "there is no machine `{name}`; GET /api/v1/machines lists them"
        ))),
    }
}

pub async fn workloads(State(state): State<WebState>) -> Response {
    let one = |w: &crate::config::Workload| {
        json!({
            "name": w.name,
            "description": w.description,
            "parameters": w.parameters,
            "metrics": w.metrics,
            "warmup_runs": w.warmup_runs,
            "run_limit_s": w.run_limit_s,
        })
    };
    Json(json!({ "workloads": state.config.workloads.values().map(one).collect::<Vec<_>>() })).into_response()
}

/// Names of branches and tags that a tree has now, the newest first, so that a form can offer them.
const REFS: usize = 50;

pub async fn trees(State(state): State<WebState>) -> Response {
    let mut trees = Vec::new();
    for name in state.config.file.trees.keys() {
        let refs = refs_of(&state, name).await;
        trees.push(json!({ "name": name, "refs": refs }));
    }
    Json(json!({ "trees": trees })).into_response()
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
