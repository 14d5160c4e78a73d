//! Tokens and the log of actions, for admins: `/api/v1/tokens`, `/api/v1/actions`; and who one is, for everybody.

use super::api::{PAGE_DEFAULT, PAGE_MOST, Query};
use super::error::{FieldError, Problem};
use super::fields::{Complaints, Fields};
use super::submit::json_body;
use super::{WebState, access};
use crate::secret::Secret;
use crate::store::actions::ActionView;
use crate::store::tokens::{NewToken, Role, TokenView};
use axum::Json;
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use uuid::Uuid;

/// Longer names are no names.
pub const NAME_CHARS: usize = 80;
/// Ten years: who wants longer leaves it out.
pub const LIFETIME_DAYS: i64 = 3650;

fn token(t: &TokenView) -> Value {
    json!({
        "id": t.id,
        "name": t.name,
        "role": t.role,
        "created_by": t.created_by,
        "created_at": t.created_at,
        "expires_at": t.expires_at,
        "used_at": t.used_at,
        "revoked_at": t.revoked_at,
    })
}

pub async fn list(State(state): State<WebState>) -> Result<Response, Problem> {
    let tokens = state.store.tokens().await?;
    Ok(Json(json!({ "tokens": tokens.iter().map(token).collect::<Vec<_>>() })).into_response())
}

pub async fn create(State(state): State<WebState>, request: Request) -> Result<Response, Problem> {
    let body = json_body(request).await?;
    let wanted = read(&body).map_err(Problem::invalid)?;
    let secret = Secret::draw().map_err(|e| Problem::internal("no secret can be drawn", e))?;
    let (name, role, lifetime_days) = wanted;
    let new = NewToken {
        name,
        role,
        secret: secret.digest(),
        created_by: access::visitor().actor().to_string(),
        lifetime_days,
    };
    let mut made = token(&state.store.create_token(&new).await?);
    made["token"] = json!(secret.text());
    let headers = [(header::CACHE_CONTROL, "no-store")];
    Ok((StatusCode::CREATED, headers, Json(made)).into_response())
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

pub async fn revoke(State(state): State<WebState>, Path(id): Path<String>) -> Result<Response, Problem> {
    let unknown = || Problem::not_found("there is no token of this id; GET /api/v1/tokens lists them");
    let id: Uuid = id.parse().map_err(|_| unknown())?;
    let revoked = state.store.revoke_token(id).await?.ok_or_else(unknown)?;
    Ok(Json(token(&revoked)).into_response())
}

pub async fn actions(State(state): State<WebState>, RawQuery(raw): RawQuery) -> Result<Response, Problem> {
    let query = Query::read(raw.as_deref(), &["before", "limit"])?;
    let limit = query.whole("limit", 1, PAGE_MOST)?.unwrap_or(PAGE_DEFAULT);
    let before = query.whole("before", 1, i64::MAX)?;
    let mut actions = state.store.actions(before, limit + 1).await?;
    let more = actions.len() as i64 > limit;
    actions.truncate(limit as usize);
    let next = actions.last().filter(|_| more).map(|last| last.id);
    let one = |a: &ActionView| {
        json!({
            "id": a.id,
            "at": a.at,
            "actor": a.actor,
            "token_id": a.token_id,
            "role": a.role,
            "method": a.method,
            "path": a.path,
            "request_id": a.request_id,
            "status": a.status,
        })
    };
    let actions: Vec<Value> = actions.iter().map(one).collect();
    Ok(Json(json!({ "actions": actions, "next_before": next })).into_response())
}

pub async fn me(State(state): State<WebState>) -> Response {
    let visitor = access::visitor();
    let role = visitor.role(&state).map(Role::name);
    Json(json!({ "actor": visitor.actor(), "role": role })).into_response()
}
