//! Refusals and failures as RFC 9457 problems: what happened, where, what to do.

use crate::store::StoreError;
use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// A problem of one field, named as the request names it: `limits.boots`, `recipients[1]`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct FieldError {
    pub field: String,
    pub message: String,
}

/// The framework says little.
const SAID_BYTES: usize = 1 << 16;

#[derive(Clone, Debug, Serialize)]
pub struct Problem {
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub title: &'static str,
    pub status: u16,
    pub detail: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
    /// For 405: what the address does take.
    #[serde(skip)]
    pub allow: Option<&'static str>,
    /// For 429: when to try again.
    #[serde(skip)]
    pub wait_s: Option<u64>,
}

impl Problem {
    fn new(
        status: StatusCode,
        kind: &'static str,
        title: &'static str,
        detail: impl Into<String>,
    ) -> Problem {
        Problem {
            kind,
            title,
            status: status.as_u16(),
            detail: detail.into(),
            errors: Vec::new(),
            allow: None,
            wait_s: None,
        }
    }

    pub fn invalid(errors: Vec<FieldError>) -> Problem {
        let detail = match errors.as_slice() {
            [one] => format!("{}: {}", one.field, one.message),
            many => format!("{} fields need a change; nothing was started", many.len()),
        };
        let mut problem = Problem::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "/problems/invalid-request",
            "The request cannot be accepted",
            detail,
        );
        problem.errors = errors;
        problem
    }

    pub fn not_json(detail: impl Into<String>) -> Problem {
        Problem::new(
            StatusCode::BAD_REQUEST,
            "/problems/not-json",
            "The body is not JSON",
            detail,
        )
    }

    pub fn bad_query(field: &str, message: impl Into<String>) -> Problem {
        let message = message.into();
        let mut problem = Problem::new(
            StatusCode::BAD_REQUEST,
            "/problems/invalid-query",
            "The query cannot be understood",
            format!("{field}: {message}"),
        );
        problem.errors.push(FieldError {
            field: field.to_string(),
            message,
        });
        problem
    }

    pub fn bad_header(field: &str, message: impl Into<String>) -> Problem {
        let message = message.into();
        let mut problem = Problem::new(
            StatusCode::BAD_REQUEST,
            "/problems/invalid-header",
            "A header cannot be understood",
            format!("{field}: {message}"),
        );
        problem.errors.push(FieldError {
            field: field.to_string(),
            message,
        });
        problem
    }

    pub fn unsupported_media_type(found: &str) -> Problem {
        let detail = format!("send `Content-Type: application/json`, not `{found}`");
        Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "/problems/unsupported-media-type",
            "The body is of another type",
            detail,
        )
    }

    pub fn too_large(limit_bytes: usize) -> Problem {
        let detail = format!("a body holds at most {limit_bytes} bytes here");
        Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "/problems/too-large",
            "The body is too large",
            detail,
        )
    }

    pub fn not_found(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::NOT_FOUND, "/problems/not-found", "Not found", detail)
    }

    pub fn method_not_allowed(method: &str) -> Problem {
        let detail = format!("{method} means nothing at this address; the Allow header lists what does");
        Problem::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "/problems/method-not-allowed",
            "The method is not allowed",
            detail,
        )
    }

    pub fn conflict(detail: impl Into<String>) -> Problem {
        Problem::new(
            StatusCode::CONFLICT,
            "/problems/conflict",
            "The state does not allow it",
            detail,
        )
    }

    pub fn unauthenticated(detail: impl Into<String>) -> Problem {
        Problem::new(
            StatusCode::UNAUTHORIZED,
            "/problems/unauthenticated",
            "Who is asking?",
            detail,
        )
    }

    pub fn forbidden(detail: impl Into<String>) -> Problem {
        Problem::new(
            StatusCode::FORBIDDEN,
            "/problems/forbidden",
            "The role does not allow it",
            detail,
        )
    }

    pub fn forged(detail: impl Into<String>) -> Problem {
        Problem::new(
            StatusCode::FORBIDDEN,
            "/problems/forged",
            "Not sent by a page of this daemon",
            detail,
        )
    }

    pub fn too_many(what: &str, wait_s: u64) -> Problem {
        let mut problem = Problem::new(
            StatusCode::TOO_MANY_REQUESTS,
            "/problems/too-many",
            "Too many tries",
            format!("{what}; try again in {wait_s} s"),
        );
        problem.wait_s = Some(wait_s);
        problem
    }

    pub fn cross_site(detail: impl Into<String>) -> Problem {
        Problem::new(
            StatusCode::FORBIDDEN,
            "/problems/cross-site",
            "A request from another site",
            detail,
        )
    }

    pub fn wrong_host(detail: impl Into<String>) -> Problem {
        Problem::new(
            StatusCode::MISDIRECTED_REQUEST,
            "/problems/wrong-host",
            "Not this host",
            detail,
        )
    }

    pub fn unavailable(detail: impl Into<String>) -> Problem {
        Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "/problems/unavailable",
            "Not available now",
            detail,
        )
    }

    /// Our own failure: said in the log with its cause, to the client without it.
    pub fn internal(what: &str, error: impl std::fmt::Display) -> Problem {
        tracing::error!(%error, "{what}");
        let detail = format!("{what}: this is the daemon's fault; its log says more under this request's id");
        Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "/problems/internal",
            "The daemon failed",
            detail,
        )
    }

    /// What is said beside the body, whatever form that has.
    pub fn say_in(&self, headers: &mut HeaderMap) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(allow) = self.allow {
            headers.insert(header::ALLOW, HeaderValue::from_static(allow));
        }
        if self.status == 401 {
            headers.insert(
                header::WWW_AUTHENTICATE,
                HeaderValue::from_static("Bearer realm=\"perfbisect\""),
            );
        }
        if let Some(wait_s) = self.wait_s {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(wait_s));
        }
        if self.status == 503 {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
        }
    }

    pub fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Problem {
        match error.is_unreachable() {
            true => {
                tracing::error!(%error, "the database cannot be reached");
                Problem::unavailable("the database cannot be reached; try again in a moment")
            }
            false => Problem::internal("the store failed", error),
        }
    }
}

/// What the framework refuses by itself (an address that is no UTF-8, a body cut off), in the form of all refusals.
pub async fn as_problem(request: Request, next: Next) -> Response {
    let api = request.uri().path().starts_with("/api/");
    let response = next.run(request).await;
    let status = response.status();
    let kind = response.headers().get(header::CONTENT_TYPE);
    let told = kind.is_some_and(|k| k.as_bytes().starts_with(b"application/problem+json"));
    if !api || told || !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let said = to_bytes(response.into_body(), SAID_BYTES)
        .await
        .unwrap_or_default();
    Problem::new(
        status,
        "/problems/refused",
        "The request cannot be taken",
        String::from_utf8_lossy(&said),
    )
    .into_response()
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = (self.status(), body).into_response();
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        self.say_in(headers);
        response
    }
}
