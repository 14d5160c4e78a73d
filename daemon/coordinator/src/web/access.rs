//! Who is asking, and whether they may: before every route, so that none can forget it.
//!
//! Without `[auth]` whoever reaches loopback may do everything. With it a request carries a token, or the cookie of a
//! browser that showed one; what comes with a cookie and changes something needs the page's own token besides, since
//! a browser sends its cookies also for other pages. What is changed is written down before it is done.

mod login;
mod logins;
pub mod needs;

pub use login::{form, log_in, log_out};
pub use logins::Logins;

use super::error::Problem;
use super::{BODY_BYTES, WebState, api, pages, wants_page};
use crate::secret;
use crate::store::actions::NewAction;
use crate::store::tokens::{Holder, Role};
use axum::body::{Body, to_bytes};
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use needs::Need;

const COOKIE: &str = "perfbisect_session";
const CSRF_FIELD: &str = "csrf";
const CSRF_HEADER: &str = "x-csrf-token";
/// Request ids may come from clients; more of one is not kept.
const REQUEST_ID_CHARS: usize = 100;

#[derive(Clone, Debug)]
pub enum Visitor {
    /// On a daemon without `[auth]`: reaching it is enough.
    Local,
    Anonymous,
    Token(Holder),
    /// A browser, and what its forms must carry.
    Session(Holder, String),
}

impl Visitor {
    fn holder(&self) -> Option<&Holder> {
        match self {
            Visitor::Token(holder) | Visitor::Session(holder, _) => Some(holder),
            Visitor::Local | Visitor::Anonymous => None,
        }
    }

    pub fn actor(&self) -> &str {
        match self {
            Visitor::Local => "local",
            Visitor::Anonymous => "anonymous",
            Visitor::Token(holder) | Visitor::Session(holder, _) => &holder.name,
        }
    }

    /// Whose idempotency keys they are: an admin's are not another's, whatever both are called.
    pub fn owner(&self) -> String {
        match self.holder() {
            Some(holder) => holder.token_id.to_string(),
            None => self.actor().to_string(),
        }
    }

    /// `None`: may see nothing that is not open to all.
    pub fn role(&self, state: &WebState) -> Option<Role> {
        match self {
            Visitor::Local => Some(Role::Admin),
            Visitor::Anonymous => {
                let public = state.config.file.auth.as_ref().is_some_and(|a| a.public_read);
                public.then_some(Role::Viewer)
            }
            Visitor::Token(holder) | Visitor::Session(holder, _) => Some(holder.role),
        }
    }
}

tokio::task_local! {
    /// Of the request that is being answered. Every page needs it in its frame and every form in a field: passed by
    /// hand, a new page could forget it.
    static VISITOR: Visitor;
}

pub fn visitor() -> Visitor {
    VISITOR.try_with(Visitor::clone).unwrap_or(Visitor::Anonymous)
}

/// What a form carries in its hidden field; empty where none is asked for.
pub fn csrf() -> String {
    match visitor() {
        Visitor::Session(_, csrf) => csrf,
        Visitor::Local | Visitor::Anonymous | Visitor::Token(_) => String::new(),
    }
}

/// Whom a browser is logged in as.
pub fn logged_in() -> Option<String> {
    match visitor() {
        Visitor::Session(holder, _) => Some(format!("{} ({})", holder.name, holder.role.name())),
        Visitor::Local | Visitor::Anonymous | Visitor::Token(_) => None,
    }
}

/// Whether the one who looks at a page may see who has tokens.
pub fn is_admin() -> bool {
    match visitor() {
        Visitor::Session(holder, _) | Visitor::Token(holder) => holder.role == Role::Admin,
        Visitor::Local => true,
        Visitor::Anonymous => false,
    }
}

pub async fn gate(State(state): State<WebState>, request: Request, next: Next) -> Response {
    let page = wants_page(&request) || is_page_form(&request);
    let came_for = request
        .uri()
        .path_and_query()
        .map_or("/", |p| p.as_str())
        .to_string();
    let safe = is_safe(request.method());
    match admit(&state, request, next).await {
        Ok(response) => response,
        Err(problem) if page && safe && problem.status == 401 => {
            Redirect::to(&login::address(&came_for)).into_response()
        }
        Err(problem) if page => pages::problem(problem),
        Err(problem) => problem.into_response(),
    }
}

async fn admit(state: &WebState, request: Request, next: Next) -> Result<Response, Problem> {
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map(|p| p.as_str().to_string());
    let need = needs::of(request.method(), route.as_deref());
    let visitor = match need {
        Need::Nothing => who(state, request.headers()).await.unwrap_or(Visitor::Anonymous),
        Need::Role(_) => who(state, request.headers()).await?,
    };
    let role = visitor.role(state);
    let changes = !is_safe(request.method()) && matches!(need, Need::Role(_));
    let written = match (changes, &visitor) {
        (false, _) | (true, Visitor::Anonymous) => None,
        (true, _) => {
            let (method, path) = (request.method(), request.uri().path());
            Some(write_down(state, &visitor, role, method, path, request.headers()).await?)
        }
    };
    let response = match allowed(need, &visitor, role) {
        Ok(()) => match forged(&visitor, request, changes).await {
            Ok(request) => VISITOR.scope(visitor, next.run(request)).await,
            Err(problem) => problem.into_response(),
        },
        Err(problem) if written.is_none() => return Err(problem),
        Err(problem) => problem.into_response(),
    };
    if let Some(id) = written
        && let Err(error) = state.store.end_action(id, response.status().as_u16()).await
    {
        tracing::error!(%error, action = id, "how an action ended could not be written down");
    }
    Ok(response)
}

fn allowed(need: Need, visitor: &Visitor, role: Option<Role>) -> Result<(), Problem> {
    match (need, role) {
        (Need::Nothing, _) => Ok(()),
        (Need::Role(needed), Some(role)) if role >= needed => Ok(()),
        (Need::Role(needed), _) => Err(match visitor {
            Visitor::Anonymous => Problem::unauthenticated(format!(
                "this needs a token with the role {}: send `Authorization: Bearer …`, or log in at /login",
                needed.name()
            )),
            Visitor::Local | Visitor::Token(_) | Visitor::Session(..) => Problem::forbidden(format!(
                "this needs the role {}; {} has the role {}",
                needed.name(),
                visitor.actor(),
                role.map_or("none", Role::name)
            )),
        }),
    }
}

/// By the token of the request, or by its cookie. A token that does not hold is refused, not ignored: the one who
/// sends it believes to be somebody. A cookie that does not hold is an ended session.
async fn who(state: &WebState, headers: &HeaderMap) -> Result<Visitor, Problem> {
    if state.config.file.auth.is_none() {
        return Ok(Visitor::Local);
    }
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let text = value.to_str().unwrap_or_default();
        let token = text
            .split_once(' ')
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        let Some((_, token)) = token else {
            return Err(Problem::unauthenticated(
                "the Authorization header must read `Bearer` and a token",
            ));
        };
        let found = state.store.holder_of_token(&secret::digest(token.trim())).await?;
        return found.map(Visitor::Token).ok_or_else(|| {
            Problem::unauthenticated(
                "this token is unknown, has expired or was revoked; an admin makes another one",
            )
        });
    }
    let Some(cookie) = cookie(headers, COOKIE) else {
        return Ok(Visitor::Anonymous);
    };
    let found = state.store.holder_of_session(&secret::digest(cookie)).await?;
    Ok(found.map_or(Visitor::Anonymous, |holder| {
        Visitor::Session(holder, secret::derived(cookie, "csrf"))
    }))
}

/// The request unread, or the refusal of one that a page of ours did not send.
async fn forged(visitor: &Visitor, request: Request, changes: bool) -> Result<Request, Problem> {
    let Visitor::Session(_, csrf) = visitor else {
        return Ok(request);
    };
    if !changes {
        return Ok(request);
    }
    let said = request.headers().get(CSRF_HEADER).and_then(|v| v.to_str().ok());
    if said.is_some_and(|said| secret::same(said, csrf)) {
        return Ok(request);
    }
    let (parts, body) = request.into_parts();
    let bytes = to_bytes(body, BODY_BYTES)
        .await
        .map_err(|_| Problem::too_large(BODY_BYTES))?;
    let fields = api::pairs(&String::from_utf8_lossy(&bytes)).unwrap_or_default();
    let said = fields.iter().find(|(name, _)| name == CSRF_FIELD);
    match said.is_some_and(|(_, said)| secret::same(said, csrf)) {
        true => Ok(Request::from_parts(parts, Body::from(bytes))),
        false => Err(Problem::forged(
            "the form's own token is missing or of another session: load the page again and repeat",
        )),
    }
}

async fn write_down(
    state: &WebState,
    visitor: &Visitor,
    role: Option<Role>,
    method: &Method,
    path: &str,
    headers: &HeaderMap,
) -> Result<i64, Problem> {
    let request_id = request_id(headers);
    let action = NewAction {
        actor: visitor.actor(),
        token_id: visitor.holder().map(|h| h.token_id),
        role: role.map_or("none", Role::name),
        method: method.as_str(),
        path,
        request_id: &request_id,
    };
    Ok(state.store.begin_action(&action).await?)
}

fn request_id(headers: &HeaderMap) -> String {
    let id = headers.get("x-request-id").and_then(|v| v.to_str().ok());
    id.unwrap_or_default().chars().take(REQUEST_ID_CHARS).collect()
}

fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let all = headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|v| v.to_str().ok());
    let mut pairs = all
        .flat_map(|line| line.split(';'))
        .filter_map(|p| p.trim().split_once('='));
    pairs.find(|(found, _)| *found == name).map(|(_, value)| value)
}

fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// A form of a page: its answer is for people, whatever it says to accept.
fn is_page_form(request: &Request) -> bool {
    let kind = request.headers().get(header::CONTENT_TYPE);
    let form = kind.is_some_and(|k| k.as_bytes().starts_with(b"application/x-www-form-urlencoded"));
    form && !request.uri().path().starts_with("/api/")
}
