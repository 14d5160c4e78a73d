//! The API's view of the lab: machines, what can be measured, trees.

use super::error::Problem;
use super::{WebState, answers};
use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::collections::BTreeMap;

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
