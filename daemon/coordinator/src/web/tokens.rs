//! Tokens and the log of actions, for admins: `/api/v1/tokens`, `/api/v1/actions`; and who one is, for everybody.

use super::api::{PAGE_DEFAULT, PAGE_MOST, Query};
use super::error::{FieldError, Problem};
use super::fields::{Complaints, Fields};
use super::openapi::LARGEST;
use super::submit::json_body;
use super::{WebState, access, answers};
use crate::secret::Secret;
use crate::store::actions::ActionView;
use crate::store::tokens::{NewToken, Role, TokenView};
use axum::Json;
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use uuid::Uuid;

/// Longer names are no names.
pub const NAME_CHARS: usize = 80;
/// Ten years: who wants longer leaves it out.
pub const LIFETIME_DAYS: i64 = 3650;

fn token(t: TokenView) -> answers::Token {
    answers::Token {
        id: t.id,
        name: t.name,
        role: t.role,
        created_by: t.created_by,
        created_at: t.created_at,
        expires_at: t.expires_at,
        used_at: t.used_at,
        revoked_at: t.revoked_at,
    }
}

/// List tokens, without their secrets
#[utoipa::path(get, path = "/api/v1/tokens", tag = "access", operation_id = "list_tokens",
    responses((status = 200, description = "All of them, the newest first", body = answers::Tokens)))]
pub async fn list(State(state): State<WebState>) -> Result<Response, Problem> {
    let tokens = state.store.tokens().await?;
    let tokens = tokens.into_iter().map(token).collect();
    Ok(Json(answers::Tokens { tokens }).into_response())
}

/// Make a token; its secret is shown in this answer only
#[utoipa::path(post, path = "/api/v1/tokens", tag = "access", operation_id = "create_token",
    request_body(content = ref("#/components/schemas/NewToken"), content_type = "application/json"),
    responses((status = 201, description = "It holds", body = answers::MadeToken)))]
pub async fn create(State(state): State<WebState>, request: Request) -> Result<Response, Problem> {
    let body = json_body(request).await?;
    let made = make(&state, &body).await?;
    let headers = [(header::CACHE_CONTROL, "no-store")];
    Ok((StatusCode::CREATED, headers, Json(made)).into_response())
}

/// The same for the API and the page.
pub async fn make(state: &WebState, body: &Value) -> Result<answers::MadeToken, Problem> {
    let wanted = read(body).map_err(Problem::invalid)?;
    let secret = Secret::draw().map_err(|e| Problem::internal("no secret can be drawn", e))?;
    let (name, role, lifetime_days) = wanted;
    let new = NewToken {
        name,
        role,
        secret: secret.digest(),
        created_by: access::visitor().actor().to_string(),
        lifetime_days,
    };
    Ok(answers::MadeToken {
        about: token(state.store.create_token(&new).await?),
        token: secret.text().to_string(),
    })
}

fn read(body: &Value) -> Result<(String, Role, Option<i32>), Vec<FieldError>> {
    let complaints = Complaints::default();
    let fields = Fields::of(body, "", &complaints);
    let name = fields.need_text("name", "who or what will use the token");
    if name.is_some_and(|n| n.chars().count() > NAME_CHARS) {
        fields.complain("name", format!("has at most {NAME_CHARS} characters"));
    }
    let known = || Role::ALL.map(Role::name).join(", ");
    let role = fields.need_text("role", &known());
    let found = role.and_then(Role::of);
    if let (Some(other), None) = (role, found) {
        fields.complain("role", format!("must be one of {}, is `{other}`", known()));
    }
    let days = fields
        .whole("lifetime_days", 1..=LIFETIME_DAYS)
        .map(|days| days as i32);
    fields.end();
    let wanted = name.zip(found).map(|(name, role)| (name.to_string(), role, days));
    complaints.into_result(wanted)
}

/// Revoke a token, and end its browser sessions
#[utoipa::path(post, path = "/api/v1/tokens/{id}/revoke", tag = "access", operation_id = "revoke_token",
    params(("id" = String, Path, description = "Its id")),
    responses((status = 200, description = "It holds no longer", body = answers::Token)))]
pub async fn revoke(State(state): State<WebState>, Path(id): Path<String>) -> Result<Response, Problem> {
    let revoked = end(&state, &id).await?;
    Ok(Json(revoked).into_response())
}

pub async fn end(state: &WebState, id: &str) -> Result<answers::Token, Problem> {
    let unknown = || Problem::not_found("there is no token of this id; GET /api/v1/tokens lists them");
    let id: Uuid = id.parse().map_err(|_| unknown())?;
    let revoked = state.store.revoke_token(id).await?.ok_or_else(unknown)?;
    Ok(token(revoked))
}

/// List who did what, the newest first
#[utoipa::path(get, path = "/api/v1/actions", tag = "access", operation_id = "list_actions",
    params(
        ("before" = Option<i64>, Query, minimum = 1, maximum = 9_007_199_254_740_991_i64, description = "Only ids below this one: `next_before` of the page before"),
        ("limit" = Option<i64>, Query, minimum = 1, maximum = 200, description = "Rows of a page"),
    ),
    responses((status = 200, description = "A page of them", body = answers::Actions)))]
pub async fn actions(State(state): State<WebState>, RawQuery(raw): RawQuery) -> Result<Response, Problem> {
    let query = Query::read(raw.as_deref(), &["before", "limit"])?;
    let limit = query.whole("limit", 1, PAGE_MOST)?.unwrap_or(PAGE_DEFAULT);
    let before = query.whole("before", 1, LARGEST)?;
    let mut actions = state.store.actions(before, limit + 1).await?;
    let more = actions.len() as i64 > limit;
    actions.truncate(limit as usize);
    let next = actions.last().filter(|_| more).map(|last| last.id);
    let one = |a: ActionView| answers::Action {
        id: a.id,
        at: a.at,
        actor: a.actor,
        token_id: a.token_id,
        role: a.role,
        method: a.method,
        path: a.path,
        request_id: a.request_id,
        status: a.status,
    };
    let actions = actions.into_iter().map(one).collect();
    Ok(Json(answers::Actions {
        actions,
        next_before: next,
    })
    .into_response())
}

/// Who am I, and in which role?
#[utoipa::path(get, path = "/api/v1/me", tag = "access", operation_id = "show_me",
    responses((status = 200, description = "Whom the daemon takes you for", body = answers::Me)))]
pub async fn me(State(state): State<WebState>) -> Response {
    let visitor = access::visitor();
    let role = visitor.role(&state).map(|r| r.name().to_string());
    let actor = visitor.actor().to_string();
    Json(answers::Me { actor, role }).into_response()
}
