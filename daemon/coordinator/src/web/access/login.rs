//! Logging in and out: a browser shows its token once, and is known by a cookie from then on.

use super::{COOKIE, CSRF_FIELD, Logins, Visitor, cookie, request_id, visitor};
use crate::secret::{self, Secret};
use crate::store::actions::NewAction;
use crate::web::error::Problem;
use crate::web::pages::PageError;
use crate::web::{BODY_BYTES, WebState, api};
use askama::Template;
use axum::Extension;
use axum::body::to_bytes;
use axum::extract::{ConnectInfo, RawQuery, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{Html, IntoResponse, Redirect, Response};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

/// Holds what the login form must send back, so that no other page can log a browser in as somebody else.
const LOGIN_COOKIE: &str = "perfbisect_login";

#[derive(Template)]
#[template(path = "login.html")]
struct LoginPage {
    csrf: String,
    to: String,
    complaint: String,
}

/// Where to log in on the way to `came_for`.
pub fn address(came_for: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"/-_.~".contains(&b);
    let written: String = came_for
        .bytes()
        .map(|b| match plain(b) {
            true => char::from(b).to_string(),
            false => format!("%{b:02X}"),
        })
        .collect();
    format!("/login?to={written}")
}

/// A path of ours, never another site's: `//host` would be one.
fn own_path(to: Option<&str>) -> String {
    let own = |to: &&str| {
        to.starts_with('/')
            && !to.starts_with("//")
            && !to.contains('\\')
            && !to.chars().any(char::is_control)
    };
    to.filter(own).unwrap_or("/").to_string()
}

pub async fn form(State(state): State<WebState>, RawQuery(raw): RawQuery) -> Result<Response, PageError> {
    let pairs = api::pairs(&raw.unwrap_or_default()).unwrap_or_default();
    let to = pairs
        .iter()
        .find(|(name, _)| name == "to")
        .map(|(_, to)| to.as_str());
    if state.config.file.auth.is_none() {
        return Ok(Redirect::to(&own_path(to)).into_response());
    }
    shown(&state, own_path(to), String::new(), StatusCode::OK)
}

fn shown(state: &WebState, to: String, complaint: String, status: StatusCode) -> Result<Response, PageError> {
    let once = Secret::draw().map_err(|e| Problem::internal("no secret can be drawn", e))?;
    let page = LoginPage {
        csrf: secret::derived(once.text(), "login"),
        to,
        complaint,
    };
    let html = page
        .render()
        .map_err(|e| Problem::internal("a page could not be written", e))?;
    let cookie = set_cookie(state, LOGIN_COOKIE, once.text(), "/login", 3600);
    let headers = [
        (header::SET_COOKIE, cookie),
        (header::CACHE_CONTROL, "no-store".into()),
    ];
    Ok((status, headers, Html(html)).into_response())
}

pub async fn log_in(
    State(state): State<WebState>,
    Extension(logins): Extension<Arc<Logins>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
) -> Result<Response, PageError> {
    let Some(auth) = state.config.file.auth.clone() else {
        return Ok(Redirect::to("/").into_response());
    };
    if let Some(wait) = logins.wait(peer.ip(), Instant::now()) {
        return Err(Problem::too_many(
            "too many logins from this address have failed",
            wait.as_secs() + 1,
        )
        .into());
    }
    let (parts, body) = request.into_parts();
    let bytes = to_bytes(body, BODY_BYTES)
        .await
        .map_err(|_| Problem::too_large(BODY_BYTES))?;
    let fields = api::pairs(&String::from_utf8_lossy(&bytes)).unwrap_or_default();
    let field = |name: &str| {
        fields
            .iter()
            .find(|(found, _)| found == name)
            .map(|(_, v)| v.trim())
    };
    let expected = cookie(&parts.headers, LOGIN_COOKIE).map(|once| secret::derived(once, "login"));
    if !expected.is_some_and(|e| field(CSRF_FIELD).is_some_and(|said| secret::same(said, &e))) {
        return Err(Problem::forged("the login form is out of date: load it again").into());
    }
    let token = field("token").unwrap_or_default();
    let Some(holder) = state.store.holder_of_token(&secret::digest(token)).await? else {
        logins.failed(peer.ip(), Instant::now());
        write_down(&state, &parts.headers, &Visitor::Anonymous, 401).await?;
        let complaint = "This token is unknown, has expired or was revoked.".to_string();
        return shown(&state, own_path(field("to")), complaint, StatusCode::UNAUTHORIZED);
    };
    let session = Secret::draw().map_err(|e| Problem::internal("no secret can be drawn", e))?;
    let hours = auth.session_hours;
    state
        .store
        .open_session(holder.token_id, &session.digest(), hours.into())
        .await?;
    write_down(&state, &parts.headers, &Visitor::Token(holder), 303).await?;
    let cookie = set_cookie(&state, COOKIE, session.text(), "/", u32::from(hours) * 3600);
    let to = own_path(field("to"));
    Ok(([(header::SET_COOKIE, cookie)], Redirect::to(&to)).into_response())
}

pub async fn log_out(State(state): State<WebState>, headers: HeaderMap) -> Result<Response, PageError> {
    if let (Visitor::Session(..), Some(session)) = (visitor(), cookie(&headers, COOKIE)) {
        state.store.close_session(&secret::digest(session)).await?;
    }
    let gone = set_cookie(&state, COOKIE, "", "/", 0);
    Ok(([(header::SET_COOKIE, gone)], Redirect::to("/login")).into_response())
}

async fn write_down(
    state: &WebState,
    headers: &HeaderMap,
    visitor: &Visitor,
    status: u16,
) -> Result<(), Problem> {
    let request_id = request_id(headers);
    let action = NewAction {
        actor: visitor.actor(),
        token_id: visitor.holder().map(|h| h.token_id),
        role: visitor.holder().map_or("none", |h| h.role.name()),
        method: "POST",
        path: "/login",
        request_id: &request_id,
    };
    let id = state.store.begin_action(&action).await?;
    Ok(state.store.end_action(id, status).await?)
}

/// Never read by a script, never sent by another site's forms; over TLS only where people come over TLS.
fn set_cookie(state: &WebState, name: &str, value: &str, path: &str, seconds: u32) -> String {
    let secure = match state.config.base_url().starts_with("https://") {
        true => "; Secure",
        false => "",
    };
    format!("{name}={value}; Path={path}; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_leads_to_our_own_pages_only() {
        assert_eq!(own_path(Some("/bisections/3?x=1")), "/bisections/3?x=1");
        for other in [
            "https://evil.example",
            "//evil.example",
            "/\\evil.example",
            "evil",
            "",
            "/a\nb",
        ] {
            assert_eq!(own_path(Some(other)), "/", "{other}");
        }
        assert_eq!(address("/?a=b&c"), "/login?to=/%3Fa%3Db%26c");
    }
}
