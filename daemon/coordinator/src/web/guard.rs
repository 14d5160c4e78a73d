//! What stands before every route: who may ask at all, and what every answer says to a browser.
//!
//! The daemon listens on loopback, where any page in a browser of this machine can send requests. Two checks keep
//! those out: the Host header must name this daemon (against DNS rebinding), and a request that changes something
//! must not come from another site (against forged requests).

use super::error::Problem;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// Longer than any answer takes; a submission may wait for a fetch of its tree. Streams are not timed.
const DEADLINE: Duration = Duration::from_secs(120);

/// Host names besides loopback's under which people reach the daemon.
#[derive(Clone)]
pub struct Hosts(Arc<Vec<String>>);

impl Hosts {
    pub fn of(base_url: &str) -> Hosts {
        let host = base_url
            .parse::<Uri>()
            .ok()
            .and_then(|uri| uri.host().map(str::to_ascii_lowercase));
        Hosts(Arc::new(host.into_iter().collect()))
    }

    fn admit(&self, authority: &str) -> bool {
        let host = host_of(authority).to_ascii_lowercase();
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        host == "localhost"
            || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
            || self.0.contains(&host)
    }
}

/// `[::1]:8642` to `[::1]`, `localhost:8642` to `localhost`.
fn host_of(authority: &str) -> &str {
    match authority.strip_prefix('[') {
        Some(rest) => rest.find(']').map_or(authority, |end| &authority[..end + 2]),
        None => authority.split(':').next().unwrap_or(authority),
    }
}

pub async fn known_host(State(hosts): State<Hosts>, request: Request, next: Next) -> Response {
    let authority =
        text(request.headers(), header::HOST).or_else(|| request.uri().authority().map(|a| a.as_str()));
    match authority {
        Some(authority) if hosts.admit(authority) => next.run(request).await,
        Some(authority) => {
            let shown: String = authority.chars().filter(|c| !c.is_control()).take(80).collect();
            Problem::wrong_host(format!(
                "`{shown}` is none of this daemon's names: use localhost, or set base_url in its configuration"
            ))
            .into_response()
        }
        None => Problem::wrong_host("the request has no Host header").into_response(),
    }
}

/// Programs send neither header and are let through; browsers send at least one with every unsafe request.
pub async fn same_site(request: Request, next: Next) -> Response {
    let safe = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    match (safe, foreign(request.headers())) {
        (false, Some(why)) => Problem::cross_site(why).into_response(),
        _ => next.run(request).await,
    }
}

fn foreign(headers: &HeaderMap) -> Option<String> {
    let from = text(headers, header::HeaderName::from_static("sec-fetch-site"));
    if let Some(site) = from.filter(|site| !matches!(*site, "same-origin" | "none")) {
        return Some(format!(
            "a page of another site sent this (Sec-Fetch-Site: {site}); open the daemon's own page"
        ));
    }
    let origin = text(headers, header::ORIGIN)?;
    let host = text(headers, header::HOST).unwrap_or_default();
    let same = origin
        .split_once("://")
        .is_some_and(|(scheme, rest)| matches!(scheme, "http" | "https") && rest.eq_ignore_ascii_case(host));
    (!same).then(|| "a page of another origin sent this; open the daemon's own page".to_string())
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name).and_then(|v| v.to_str().ok())
}

pub async fn say_policy(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "same-origin"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (
            header::HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
        (
            header::HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-cache"));
    response
}

pub async fn deadline(request: Request, next: Next) -> Response {
    match tokio::time::timeout(DEADLINE, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Problem::unavailable(format!("no answer within {} s; try again", DEADLINE.as_secs()))
            .into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_names_are_admitted() {
        let hosts = Hosts::of("https://bisect.example.org/lab");
        for ours in [
            "localhost",
            "LOCALHOST:8642",
            "127.0.0.1:1",
            "127.9.9.9",
            "[::1]:8642",
            "bisect.example.org",
        ] {
            assert!(hosts.admit(ours), "{ours}");
        }
        for other in [
            "evil.example",
            "localhost.evil.example",
            "10.0.0.1",
            "[::2]:1",
            "",
            "127.0.0.1.evil.example",
        ] {
            assert!(!hosts.admit(other), "{other}");
        }
    }

    #[test]
    fn other_sites_are_foreign() {
        let headers = |pairs: &[(&'static str, &'static str)]| {
            let pairs = pairs
                .iter()
                .map(|(n, v)| (header::HeaderName::from_static(n), HeaderValue::from_static(v)));
            pairs.collect::<HeaderMap>()
        };
        let host = ("host", "localhost:8642");
        assert!(foreign(&headers(&[host])).is_none());
        assert!(foreign(&headers(&[host, ("sec-fetch-site", "same-origin")])).is_none());
        assert!(foreign(&headers(&[host, ("origin", "http://localhost:8642")])).is_none());
        assert!(foreign(&headers(&[host, ("origin", "http://localhost:9999")])).is_some());
        assert!(foreign(&headers(&[host, ("origin", "null")])).is_some());
        assert!(foreign(&headers(&[host, ("sec-fetch-site", "same-site")])).is_some());
        assert!(foreign(&headers(&[host, ("sec-fetch-site", "cross-site")])).is_some());
    }
}
