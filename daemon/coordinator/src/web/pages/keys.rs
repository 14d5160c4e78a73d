//! Tokens and the log of actions as a page, for admins: the API's operations as forms.

use super::{Moment, PageError, page};
use crate::store::tokens::{Role, TokenView};
use crate::web::error::{FieldError, Problem};
use crate::web::{BODY_BYTES, WebState, api, say, tokens};
use askama::Template;
use axum::body::to_bytes;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{Html, IntoResponse, Redirect, Response};
use serde_json::{Map, Value, json};

/// Rows of the log; the API has the older ones.
const ACTIONS: i64 = 100;

struct TokenRow {
    id: String,
    name: String,
    role: String,
    standing: String,
    used: String,
    holds: bool,
}

struct ActionRow {
    at: Moment,
    actor: String,
    role: String,
    what: String,
    status: String,
}

#[derive(Template)]
#[template(path = "keys.html")]
struct KeysPage {
    tokens: Vec<TokenRow>,
    actions: Vec<ActionRow>,
    roles: [&'static str; 4],
    /// Of a token that was made just now.
    shown_once: String,
    errors: Vec<FieldError>,
}

async fn keys(state: &WebState, shown_once: String, errors: Vec<FieldError>) -> Result<KeysPage, Problem> {
    let tokens = state.store.tokens().await?.into_iter().map(token_row).collect();
    let actions = state.store.actions(None, ACTIONS).await?.into_iter();
    let actions = actions.map(|a| ActionRow {
        at: Moment::of(a.at),
        actor: a.actor,
        role: a.role,
        what: format!("{} {}", a.method, a.path),
        status: a.status.map_or("unanswered".into(), |s| s.to_string()),
    });
    Ok(KeysPage {
        tokens,
        actions: actions.collect(),
        roles: Role::ALL.map(Role::name),
        shown_once,
        errors,
    })
}

fn token_row(t: TokenView) -> TokenRow {
    let standing = match (t.revoked_at, t.expires_at) {
        (Some(at), _) => format!("revoked {}", say::time(at)),
        (None, Some(at)) => format!("until {}", say::time(at)),
        (None, None) => "holds".to_string(),
    };
    TokenRow {
        id: t.id.to_string(),
        name: t.name,
        role: t.role,
        standing,
        used: t.used_at.map_or("never".into(), say::time),
        holds: t.revoked_at.is_none(),
    }
}

pub async fn show(State(state): State<WebState>, headers: HeaderMap) -> Result<Response, PageError> {
    page(&keys(&state, String::new(), Vec::new()).await?, &headers)
}

/// The secret stands in the answer to the form itself: no address leads to it a second time.
pub async fn create(State(state): State<WebState>, request: Request) -> Result<Response, PageError> {
    let bytes = to_bytes(request.into_body(), BODY_BYTES)
        .await
        .map_err(|_| Problem::too_large(BODY_BYTES))?;
    let typed = api::pairs(&String::from_utf8_lossy(&bytes))
        .ok_or_else(|| Problem::bad_query("form", "is not well formed"))?;
    let mut body = Map::new();
    for (name, value) in typed.into_iter().filter(|(_, value)| !value.trim().is_empty()) {
        match name.as_str() {
            "name" | "role" => body.insert(name, json!(value)),
            "lifetime_days" => body.insert(
                name,
                value.trim().parse::<i64>().map_or(json!(value), Value::from),
            ),
            _ => None,
        };
    }
    let (status, whole) = match tokens::make(&state, &Value::Object(body)).await {
        Ok(made) => (StatusCode::CREATED, keys(&state, made.token, Vec::new()).await?),
        Err(problem) if problem.status == 422 => (
            StatusCode::UNPROCESSABLE_ENTITY,
            keys(&state, String::new(), problem.errors).await?,
        ),
        Err(problem) => return Err(problem.into()),
    };
    let html = whole
        .render()
        .map_err(|e| Problem::internal("a page could not be written", e))?;
    Ok((status, [(header::CACHE_CONTROL, "no-store")], Html(html)).into_response())
}

pub async fn revoke(State(state): State<WebState>, Path(id): Path<String>) -> Result<Response, PageError> {
    tokens::end(&state, &id).await?;
    Ok(Redirect::to("/access").into_response())
}
