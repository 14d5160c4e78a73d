//! What people and programs reach over HTTP: the API, the pages, live events, health and metrics.
//!
//! Reads the store and the trees, writes submissions and cancellations, and decides nothing else. It must not know
//! how a machine is reached or a message sent.

mod access;
mod answers;
mod api;
mod assets;
mod error;
mod fields;
mod fresh;
mod guard;
mod idempotency;
mod lab;
mod levels;
mod live;
mod metrics;
mod openapi;
mod pages;
mod paging;
mod plot;
mod reading;
mod request;
mod say;
mod standing;
mod submit;
mod surroundings;
mod tokens;

use crate::config::Config;
use crate::images::Images;
use crate::store::Store;
use crate::tree::Trees;
use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::header;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use error::Problem;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::request_id::{MakeRequestUuid, PropagateRequestIdLayer, SetRequestIdLayer};
use tower_http::trace::TraceLayer;

/// Larger than any sensible request.
const BODY_BYTES: usize = 1 << 20;
/// What a clean stop grants to requests that are being answered.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// What every handler may use.
#[derive(Clone)]
pub struct WebState {
    pub store: Store,
    pub trees: Trees,
    pub images: Images,
    pub config: Arc<Config>,
    /// Ends the streams when the daemon stops.
    pub shutdown: CancellationToken,
}

/// All routes with all their guards.
pub fn router(state: WebState) -> Router {
    metrics::install();
    let hosts = guard::Hosts::of(&state.config.base_url());
    let described = Arc::new(openapi::document(&state.config).to_string());
    let answers = Router::from(openapi::answers())
        .route(openapi::PATH, get(describe))
        .route("/", get(pages::list))
        .route("/bisections/{name}", get(pages::bisection))
        .route("/bisections/{name}/cancel", post(pages::cancel))
        .route("/bisections/{name}/retry", post(pages::retry))
        .route("/submit", get(pages::submit_form).post(pages::send_form))
        .route("/api", get(pages::reference))
        .route("/access", get(pages::keys::show).post(pages::keys::create))
        .route("/access/{id}/revoke", post(pages::keys::revoke))
        .route("/login", get(access::form).post(access::log_in))
        .route("/logout", post(access::log_out))
        .route("/assets/{name}", get(assets::serve))
        .route("/healthz", get(metrics::healthz))
        .route("/metrics", get(metrics::metrics))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(axum::Extension(described))
        .layer(from_fn_with_state(state.clone(), idempotency::once))
        .layer(from_fn(fresh::tag))
        .layer(CompressionLayer::new())
        .layer(from_fn(guard::deadline));
    Router::from(openapi::streams())
        .method_not_allowed_fallback(method_not_allowed)
        .merge(answers)
        .layer(from_fn(error::as_problem))
        .layer(axum::Extension(Arc::new(access::Logins::default())))
        .layer(from_fn_with_state(state.clone(), access::gate))
        .layer(DefaultBodyLimit::max(BODY_BYTES))
        .layer(from_fn(guard::same_site))
        .layer(from_fn_with_state(hosts, guard::known_host))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(from_fn(metrics::count_requests))
        .layer(from_fn(guard::say_policy))
        .layer(PropagateRequestIdLayer::x_request_id())
        .layer(TraceLayer::new_for_http().make_span_with(span))
        .layer(SetRequestIdLayer::x_request_id(MakeRequestUuid))
        .with_state(state)
}

/// Serves until `shutdown`, then lets running answers end; streams end at once.
pub async fn serve(listener: tokio::net::TcpListener, state: WebState) -> anyhow::Result<()> {
    let shutdown = state.shutdown.clone();
    let service = router(state).into_make_service_with_connect_info::<SocketAddr>();
    let serving = axum::serve(listener, service).with_graceful_shutdown(shutdown.clone().cancelled_owned());
    tokio::select! {
        ended = serving.into_future() => Ok(ended?),
        () = async { shutdown.cancelled().await; tokio::time::sleep(STOP_LIMIT).await } => {
            tracing::warn!("some requests were cut off: they took longer than {} s to end", STOP_LIMIT.as_secs());
            Ok(())
        }
    }
}

async fn describe(axum::Extension(described): axum::Extension<Arc<String>>) -> Response {
    (
        [(header::CONTENT_TYPE, "application/json")],
        described.to_string(),
    )
        .into_response()
}

fn span(request: &Request) -> tracing::Span {
    let id = request
        .headers()
        .get("x-request-id")
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default();
    tracing::info_span!("http", method = %request.method(), path = request.uri().path(), request = id)
}

fn panicked(panic: Box<dyn std::any::Any + Send + 'static>) -> Response {
    let said = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied());
    Problem::internal(
        "a request made the daemon panic",
        said.unwrap_or("without a word"),
    )
    .into_response()
}

async fn not_found(request: Request) -> Response {
    let path: String = request.uri().path().chars().take(200).collect();
    let problem = Problem::not_found(format!("nothing is at {path}"));
    match wants_page(&request) {
        true => pages::problem(problem),
        false => problem.into_response(),
    }
}

/// A browser on its way to a page, not a program.
fn wants_page(request: &Request) -> bool {
    let accept = request
        .headers()
        .get(header::ACCEPT)
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default();
    !request.uri().path().starts_with("/api/") && accept.contains("text/html")
}

async fn method_not_allowed(request: Request) -> Response {
    Problem::method_not_allowed(request.method().as_str()).into_response()
}
