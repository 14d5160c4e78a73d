//! `ETag` and `If-None-Match` for what the API answers: who looks again for news is told "none" in a few bytes.

use super::error::Problem;
use crate::case::sha256_hex;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// Of what a GET of the API answers, by its content: an answer that did not change has the tag it had.
pub async fn tag(request: Request, next: Next) -> Response {
    let reads = *request.method() == Method::GET && request.uri().path().starts_with("/api/");
    let asked = request.headers().clone();
    let response = next.run(request).await;
    match reads && response.status() == StatusCode::OK {
        true => tagged(&asked, response)
            .await
            .unwrap_or_else(Problem::into_response),
        false => response,
    }
}

async fn tagged(asked: &HeaderMap, response: Response) -> Result<Response, Problem> {
    let (mut parts, body) = response.into_parts();
    let bytes = to_bytes(body, usize::MAX)
        .await
        .map_err(|e| Problem::internal("an answer broke off", e))?;
    // Weak: the same content may be compressed or not.
    let tag = format!("W/\"{}\"", &sha256_hex(&bytes)[..32]);
    let value = HeaderValue::from_str(&tag).map_err(|e| Problem::internal("an answer has no tag", e))?;
    parts.headers.insert(header::ETAG, value);
    if !is_known(asked, &tag) {
        return Ok(Response::from_parts(parts, Body::from(bytes)));
    }
    parts.status = StatusCode::NOT_MODIFIED;
    parts.headers.remove(header::CONTENT_TYPE);
    parts.headers.remove(header::CONTENT_LENGTH);
    Ok(Response::from_parts(parts, Body::empty()))
}

/// Whether the one who asks has what `tag` stands for.
pub fn is_known(asked: &HeaderMap, tag: &str) -> bool {
    let known = asked
        .get_all(header::IF_NONE_MATCH)
        .iter()
        .filter_map(|v| v.to_str().ok());
    known.flat_map(|line| line.split(',')).any(|known| {
        let known = known.trim();
        known == "*" || known == tag || Some(known) == tag.strip_prefix("W/")
    })
}
