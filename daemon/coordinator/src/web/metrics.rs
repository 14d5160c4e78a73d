//! `/healthz` and `/metrics`: for supervisors and Prometheus.

use super::WebState;
use super::error::Problem;
use axum::extract::{MatchedPath, Request, State};
use axum::http::header;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use std::fmt::Write;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// Postgres must answer within this to be called healthy.
const PATIENCE: Duration = Duration::from_secs(3);

/// One recorder a process: what any room counts with the `metrics` macros is shown here.
static RECORDER: LazyLock<Option<PrometheusHandle>> = LazyLock::new(|| {
    let buckets = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];
    let builder = PrometheusBuilder::new().set_buckets(&buckets).ok()?;
    match builder.install_recorder() {
        Ok(handle) => Some(handle),
        Err(error) => {
            tracing::error!(%error, "metrics are not collected");
            None
        }
    }
});

pub fn install() {
    LazyLock::force(&RECORDER);
}

pub async fn count_requests(request: Request, next: Next) -> Response {
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or("(none)".to_string(), |p| p.as_str().to_string());
    let method = request.method().as_str().to_string();
    let began = Instant::now();
    let response = next.run(request).await;
    let status = response.status().as_u16().to_string();
    metrics::counter!("perfbisect_http_requests_total", "route" => route.clone(), "method" => method, "status" => status)
        .increment(1);
    metrics::histogram!("perfbisect_http_request_seconds", "route" => route)
        .record(began.elapsed().as_secs_f64());
    response
}

pub async fn healthz(State(state): State<WebState>) -> Result<Response, Problem> {
    match tokio::time::timeout(PATIENCE, state.store.answers()).await {
        Ok(Ok(())) => Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], "ok\n").into_response()),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(Problem::unavailable(format!(
            "Postgres did not answer within {} s",
            PATIENCE.as_secs()
        ))),
    }
}

pub async fn metrics(State(state): State<WebState>) -> Result<Response, Problem> {
    let counts = state.store.view_counts().await?;
    let mut text = RECORDER
        .as_ref()
        .map(PrometheusHandle::render)
        .unwrap_or_default();
    let families = [
        ("bisections", "state", "Bisections by state."),
        (
            "builds",
            "state",
            "Kernels to build or built, by state; wanted is the queue.",
        ),
        ("jobs", "state", "Jobs by state; wanted is the queue."),
        ("attempts", "end", "Attempts by how they ended; held ones run."),
        (
            "notices",
            "state",
            "Messages owed or sent, by state; waiting is the queue.",
        ),
        ("machines", "state", "Machines by state."),
        ("observations", "outcome", "Outcomes of jobs, by kind."),
    ];
    for (family, label, help) in families {
        let _ = writeln!(
            text,
            "# HELP perfbisect_{family} {help}\n# TYPE perfbisect_{family} gauge"
        );
        for (_, value, count) in counts.iter().filter(|(metric, ..)| metric == family) {
            let _ = writeln!(text, "perfbisect_{family}{{{label}=\"{value}\"}} {count}");
        }
    }
    let _ = writeln!(
        text,
        "# HELP perfbisect_build_info Version of this daemon.\n# TYPE perfbisect_build_info gauge\n\
         perfbisect_build_info{{version=\"{}\"}} 1",
        env!("CARGO_PKG_VERSION")
    );
    Ok((
        [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")],
        text,
    )
        .into_response())
}
