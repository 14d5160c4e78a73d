//! `Idempotency-Key`: a request whose answer was lost is sent again without being carried out again.
//!
//! The key is claimed before the request is carried out and keeps its answer for a day. A daemon that died in between
//! leaves a claim without an answer; once no request can still be under way it may be claimed anew.

use super::access;
use super::error::{FieldError, Problem};
use super::{BODY_BYTES, WebState};
use crate::case::sha256_hex;
use crate::store::idempotency::{Answer, Claim};
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

const NAME: HeaderName = HeaderName::from_static("idempotency-key");
/// Printable, without spaces; a UUID is one.
pub const PATTERN: &str = "^[!-~]{1,200}$";
const KEY_BYTES: usize = 200;
/// Said of an answer that was given before.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// Not for new tokens: their answer holds a secret, and answers are kept.
pub fn applies(path: &str) -> bool {
    path.starts_with("/api/") && path != "/api/v1/tokens"
}

pub async fn once(State(state): State<WebState>, request: Request, next: Next) -> Response {
    let keyed = request.method() == Method::POST && applies(request.uri().path());
    match request.headers().get(NAME).filter(|_| keyed).cloned() {
        None => next.run(request).await,
        Some(key) => keep(&state, key, request, next)
            .await
            .unwrap_or_else(Problem::into_response),
    }
}

async fn keep(state: &WebState, key: HeaderValue, request: Request, next: Next) -> Result<Response, Problem> {
    let written = key.to_str().unwrap_or_default().to_string();
    if written.is_empty() || written.len() > KEY_BYTES || !written.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(Problem::bad_header(
            "Idempotency-Key",
            format!("must be 1 to {KEY_BYTES} printable ASCII characters without spaces"),
        ));
    }
    let visitor = access::visitor();
    let owner = visitor.owner();
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, BODY_BYTES)
        .await
        .map_err(|_| Problem::too_large(BODY_BYTES))?;
    let asked = format!("{} {}\n{}", parts.method, parts.uri, sha256_hex(&body));
    let digest = sha256_hex(asked.as_bytes());
    match state.store.claim_key(&owner, &written, &digest).await? {
        Claim::Ours => {}
        Claim::Other => {
            return Err(Problem::invalid(vec![FieldError {
                field: "Idempotency-Key".into(),
                message: "was used for another request; take a new key for a new request".into(),
            }]));
        }
        Claim::UnderWay => {
            return Err(Problem::conflict(
                "the same request under this key is being carried out; ask again in a moment",
            ));
        }
        Claim::Answered(answer) => return replay(answer),
    }
    let response = next.run(Request::from_parts(parts, Body::from(body))).await;
    if response.status().is_server_error() {
        // It failed for reasons of ours: the client shall be able to try again.
        state.store.drop_key(&owner, &written).await?;
        return Ok(response);
    }
    let (parts, body) = response.into_parts();
    let bytes = to_bytes(body, usize::MAX)
        .await
        .map_err(|e| Problem::internal("an answer could not be kept", e))?;
    let text = |name: HeaderName| parts.headers.get(name).and_then(|v| v.to_str().ok());
    let answer = Answer {
        status: parts.status.as_u16().into(),
        content_type: text(header::CONTENT_TYPE)
            .unwrap_or("application/json")
            .to_string(),
        location: text(header::LOCATION).map(String::from),
        body: bytes.to_vec(),
    };
    state.store.keep_answer(&owner, &written, &answer).await?;
    Ok(Response::from_parts(parts, Body::from(bytes)))
}

fn replay(answer: Answer) -> Result<Response, Problem> {
    let wrong = |what: &str| Problem::internal("a kept answer cannot be given again", what);
    let status = u16::try_from(answer.status)
        .ok()
        .and_then(|s| StatusCode::from_u16(s).ok())
        .ok_or_else(|| wrong("its status"))?;
    let mut response = (status, answer.body).into_response();
    let headers = response.headers_mut();
    let value = |text: &str| HeaderValue::from_str(text).map_err(|_| wrong("its headers"));
    headers.insert(header::CONTENT_TYPE, value(&answer.content_type)?);
    if let Some(location) = &answer.location {
        headers.insert(header::LOCATION, value(location)?);
    }
    headers.insert(REPLAYED, HeaderValue::from_static("true"));
    Ok(response)
}
