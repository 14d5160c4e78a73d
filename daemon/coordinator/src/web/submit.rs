//! `POST /api/v1/bisections`: a body becomes a running search, or a refusal that says what to do.
//!
//! Everything is checked before anything is spent: the body, the configuration, then the range in the tree. The
//! commits are pinned before the row exists, so that no force-push in between takes them away.

use super::error::{FieldError, Problem};
use super::request::{self, Wanted};
use super::{BODY_BYTES, WebState, answers, api};
use crate::case::{Definition, RecipeDef};
use crate::plan_json;
use crate::store::views::BisectionView;
use crate::store::{Submission, Submitted};
use crate::tree::RangeError;
use axum::body::to_bytes;
use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bisect::CommitId;
use serde_json::Value;
use uuid::Uuid;

/// Submit a range; an equal open one is joined (200)
#[utoipa::path(post, path = "/api/v1/bisections", tag = "bisections", operation_id = "submit_bisection",
    request_body(content = ref("#/components/schemas/Submission"), content_type = "application/json"),
    responses(
        (status = 201, description = "It is searched", body = answers::Detail,
            headers(("Location" = String, description = "Where it is shown"))),
        (status = 200, description = "It was searched already, and is joined", body = answers::Detail,
            headers(("Location" = String, description = "Where it is shown"))),
    ))]
pub async fn accept(State(state): State<WebState>, request: Request) -> Result<Response, Problem> {
    let body = json_body(request).await?;
    let submitted = submit(&state, body).await?;
    answer(&state, submitted).await
}

/// Search again what has ended: the same request, its names resolved anew
#[utoipa::path(post, path = "/api/v1/bisections/{name}/retry", tag = "bisections", operation_id = "retry_bisection",
    params(("name" = String, Path, description = "Its number or its id")),
    responses(
        (status = 201, description = "Another one searches", body = answers::Detail,
            headers(("Location" = String, description = "Where it is shown"))),
        (status = 200, description = "An equal one was searched already, and is joined", body = answers::Detail,
            headers(("Location" = String, description = "Where it is shown"))),
    ))]
pub async fn retry(State(state): State<WebState>, Path(name): Path<String>) -> Result<Response, Problem> {
    let view = api::find(&state, &name).await?;
    let submitted = again(&state, &view).await?;
    answer(&state, submitted).await
}

pub async fn again(state: &WebState, view: &BisectionView) -> Result<Submitted, Problem> {
    match view.state.as_str() {
        "open" => Err(Problem::conflict(format!(
            "bisection {} still searches; cancel it first, or wait",
            view.number
        ))),
        _ => submit(state, view.request.clone()).await,
    }
}

async fn answer(state: &WebState, submitted: Submitted) -> Result<Response, Problem> {
    let (status, id, number) = match submitted {
        Submitted::Created(id, number) => (StatusCode::CREATED, id, number),
        Submitted::Joined(id, number) => (StatusCode::OK, id, number),
    };
    let view = api::find(state, &id.to_string()).await?;
    let location = [(header::LOCATION, format!("/api/v1/bisections/{number}"))];
    Ok((status, location, axum::Json(api::detail(state, &view))).into_response())
}

/// Whether the media type is JSON, then the size, then the syntax: each refusal names the one that failed.
pub async fn json_body(request: Request) -> Result<Value, Problem> {
    let kind = request
        .headers()
        .get(header::CONTENT_TYPE)
        .and_then(|v| v.to_str().ok())
        .unwrap_or("nothing");
    let essence = kind
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    let json =
        essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"));
    if !json {
        return Err(Problem::unsupported_media_type(
            &kind.chars().take(80).collect::<String>(),
        ));
    }
    let bytes = to_bytes(request.into_body(), BODY_BYTES)
        .await
        .map_err(|_| Problem::too_large(BODY_BYTES))?;
    serde_json::from_slice(&bytes).map_err(|error| Problem::not_json(error.to_string()))
}

/// Checks, pins, stores; the same for the API and the form.
pub async fn submit(state: &WebState, body: Value) -> Result<Submitted, Problem> {
    let wanted = request::read(&body, &state.config).map_err(Problem::invalid)?;
    let range = state
        .trees
        .check_range(&wanted.tree, &wanted.good, &wanted.bad, wanted.first_parent)
        .await;
    let bounds = range.map_err(range_refused)?;
    let tree = state.config.file.trees.get(&wanted.tree);
    let recipe = tree
        .map(RecipeDef::new)
        .transpose()
        .map_err(|e| Problem::internal("the tree's recipe", format!("{e:#}")))?;
    let recipe = recipe.ok_or_else(|| Problem::not_found(format!("tree `{}` is gone", wanted.tree)))?;
    for (sha256, path) in &wanted.files {
        let stored = state.images.put_file(sha256, path).await;
        stored.map_err(|e| Problem::internal("a file of the workload could not be kept", e))?;
    }
    let id = Uuid::now_v7();
    let commits = [bounds.good.clone(), bounds.bad.clone()];
    let pinned = state.trees.pin(&wanted.tree, id, &commits).await;
    pinned.map_err(|e| Problem::internal("the commits could not be pinned", e))?;
    let submitted = state
        .store
        .submit(&submission(id, body, &wanted, &bounds.good, &bounds.bad, &recipe))
        .await;
    if !matches!(submitted, Ok(Submitted::Created(..))) {
        // Nobody needs this pin: the request joined another one, or failed.
        if let Err(error) = state.trees.unpin(&wanted.tree, id).await {
            tracing::warn!(%error, bisection = %id, "a pin that nobody needs stays in the mirror");
        }
    }
    Ok(submitted?)
}

fn submission(
    id: Uuid,
    body: Value,
    w: &Wanted,
    good: &CommitId,
    bad: &CommitId,
    recipe: &RecipeDef,
) -> Submission {
    let policy = plan_json::policy_to_json(&w.policy);
    Submission {
        id,
        tree: w.tree.clone(),
        good_rev: w.good.clone(),
        bad_rev: w.bad.clone(),
        good_commit: good.to_string(),
        bad_commit: bad.to_string(),
        first_parent: w.first_parent,
        case: Definition::of("case", &w.case),
        recipe: Definition::of("recipe", recipe),
        policy: Definition::of("policy", &policy),
        machines: w.machines.clone(),
        priority: w.priority,
        recipients: w.recipients.clone(),
        request: body,
    }
}

fn range_refused(error: RangeError) -> Problem {
    match (error.is_the_requests_fault(), error.field()) {
        (true, Some(field)) => Problem::invalid(vec![FieldError {
            field: field.to_string(),
            message: error.to_string(),
        }]),
        (true, None) => Problem::invalid(vec![FieldError {
            field: "tree".into(),
            message: error.to_string(),
        }]),
        (false, _) => {
            tracing::error!(%error, "a tree cannot be used");
            Problem::unavailable(error.to_string())
        }
    }
}
