//! The API under `/api/v1`: JSON of what the store holds, field names with units.

use super::answers;
use super::error::Problem;
use super::openapi::LARGEST;
use super::paging::{self, page};
use super::{WebState, reading, say};
use crate::store::CancelOutcome;
use crate::store::views::{BisectionView, ListFilter, Name};
use axum::Json;
use axum::extract::{Path, RawQuery, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::Value;
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
    let wanted = paging::one_of(&query, "state", &answers::BisectionState::ALL)?;
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
    params(
        ("name" = String, Path, description = "Its number or its id"),
        ("machine" = Option<String>, Query, pattern = "^[A-Za-z0-9_.-]{1,64}$", description = "Only those of this machine"),
        ("after" = Option<String>, Query, pattern = "^[0-9a-f-]{1,36}$", description = "Only rows after this one: `next_after` of the page before"),
        ("limit" = Option<i64>, Query, minimum = 1, maximum = 1000, description = "Rows of a page; without it all of them"),
    ),
    responses((status = 200, description = "All of them", body = answers::Samples)))]
pub async fn samples(
    State(state): State<WebState>,
    Path(name): Path<String>,
    RawQuery(raw): RawQuery,
) -> Result<Response, Problem> {
    let query = Query::read(
        raw.as_deref(),
        &["machine", paging::PARAMETERS[0], paging::PARAMETERS[1]],
    )?;
    let machine = query.get("machine");
    let view = find(&state, &name).await?;
    let mut samples = state.store.view_samples(view.id).await?;
    samples.retain(|row| machine.is_none_or(|m| row.machine == m));
    let (samples, next_after) = page(samples, |row| row.id.to_string(), &query)?;
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
    Ok(Json(answers::Samples { samples, next_after }).into_response())
}

/// List its jobs
#[utoipa::path(get, path = "/api/v1/bisections/{name}/jobs", tag = "bisections", operation_id = "list_jobs",
    params(
        ("name" = String, Path, description = "Its number or its id"),
        ("machine" = Option<String>, Query, pattern = "^[A-Za-z0-9_.-]{1,64}$", description = "Only those of this machine"),
        ("state" = Option<answers::JobState>, Query, description = "Only those in this state"),
        ("after" = Option<String>, Query, pattern = "^[0-9a-f-]{1,36}$", description = "Only rows after this one: `next_after` of the page before"),
        ("limit" = Option<i64>, Query, minimum = 1, maximum = 1000, description = "Rows of a page; without it all of them"),
    ),
    responses((status = 200, description = "All of them", body = answers::Jobs)))]
pub async fn jobs(
    State(state): State<WebState>,
    Path(name): Path<String>,
    RawQuery(raw): RawQuery,
) -> Result<Response, Problem> {
    let query = Query::read(
        raw.as_deref(),
        &["machine", "state", paging::PARAMETERS[0], paging::PARAMETERS[1]],
    )?;
    let machine = query.get("machine");
    let state_asked = paging::one_of(&query, "state", &answers::JobState::ALL)?;
    let view = find(&state, &name).await?;
    let mut jobs = state.store.view_jobs(view.id).await?;
    jobs.retain(|row| machine.is_none_or(|m| row.machine == m));
    jobs.retain(|row| state_asked.is_none_or(|s| row.state == s));
    let (jobs, next_after) = page(jobs, |row| row.id.to_string(), &query)?;
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
    Ok(Json(answers::Jobs { jobs, next_after }).into_response())
}

/// List its attempts
///
/// Every try at its builds and jobs, and how long it took from the grant of the machine to the stored outcome.
#[utoipa::path(get, path = "/api/v1/bisections/{name}/attempts", tag = "bisections", operation_id = "list_attempts",
    params(
        ("name" = String, Path, description = "Its number or its id"),
        ("machine" = Option<String>, Query, pattern = "^[A-Za-z0-9_.-]{1,64}$", description = "Only those of this machine"),
        ("state" = Option<answers::AttemptState>, Query, description = "Only those in this state"),
        ("after" = Option<String>, Query, pattern = "^[0-9a-f-]{1,36}$", description = "Only rows after this one: `next_after` of the page before"),
        ("limit" = Option<i64>, Query, minimum = 1, maximum = 1000, description = "Rows of a page; without it all of them"),
    ),
    responses((status = 200, description = "All of them", body = answers::Attempts)))]
pub async fn attempts(
    State(state): State<WebState>,
    Path(name): Path<String>,
    RawQuery(raw): RawQuery,
) -> Result<Response, Problem> {
    let query = Query::read(
        raw.as_deref(),
        &["machine", "state", paging::PARAMETERS[0], paging::PARAMETERS[1]],
    )?;
    let machine = query.get("machine");
    let state_asked = paging::one_of(&query, "state", &answers::AttemptState::ALL)?;
    let view = find(&state, &name).await?;
    let mut attempts = state.store.view_attempts(view.id).await?;
    attempts.retain(|row| machine.is_none_or(|m| row.machine == m));
    attempts.retain(|row| state_asked.is_none_or(|s| row.state == s));
    let (attempts, next_after) = page(attempts, |row| row.id.to_string(), &query)?;
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
    Ok(Json(answers::Attempts { attempts, next_after }).into_response())
}

/// List what was decided, and on which record
#[utoipa::path(get, path = "/api/v1/bisections/{name}/decisions", tag = "bisections", operation_id = "list_decisions",
    params(
        ("name" = String, Path, description = "Its number or its id"),
        ("after" = Option<String>, Query, pattern = "^[0-9a-f-]{1,36}$", description = "Only rows after this one: `next_after` of the page before"),
        ("limit" = Option<i64>, Query, minimum = 1, maximum = 1000, description = "Rows of a page; without it all of them"),
    ),
    responses((status = 200, description = "The newest thousand", body = answers::Decisions)))]
pub async fn decisions(
    State(state): State<WebState>,
    Path(name): Path<String>,
    RawQuery(raw): RawQuery,
) -> Result<Response, Problem> {
    let query = Query::read(raw.as_deref(), &[paging::PARAMETERS[0], paging::PARAMETERS[1]])?;
    let view = find(&state, &name).await?;
    let decisions = state.store.view_decisions(view.id, DECISIONS_MOST).await?;
    let (decisions, next_after) = page(decisions, |row| row.id.to_string(), &query)?;
    let one = |d: crate::store::views::DecisionView| answers::Decision {
        id: d.id,
        record_version: d.record_version,
        planner_version: d.planner_version,
        made_at: d.made_at,
        plan: d.plan,
    };
    let decisions = decisions.into_iter().map(one).collect();
    Ok(Json(answers::Decisions {
        decisions,
        next_after,
    })
    .into_response())
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
