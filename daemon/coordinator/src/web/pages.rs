//! The pages: rendered here, complete without a script; a script only keeps them fresh.

mod bisection;
mod form;
pub mod keys;
mod reference;
mod scene;

pub use bisection::sentence;
pub use form::{send_form, submit_form};
pub use reference::reference;

use super::api::{self, Query};
use super::error::Problem;
use super::{WebState, reading, say, standing, submit};
use crate::case::sha256_hex;
use crate::store::Submitted;
use crate::store::views::{BisectionView, ListFilter, MachineView};
use askama::Template;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{Html, IntoResponse, Redirect, Response};
use bisection::{BisectionPage, Moment};

/// Rows of the home page; older ones are a link away.
const ROWS: i64 = 40;

/// A failure as a page: the same words as the problem, for people.
pub struct PageError(Problem);

impl<E: Into<Problem>> From<E> for PageError {
    fn from(error: E) -> PageError {
        PageError(error.into())
    }
}

impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        problem(self.0)
    }
}

#[derive(Template)]
#[template(path = "problem.html")]
struct ProblemPage {
    title: &'static str,
    detail: String,
    status: u16,
}

pub fn problem(problem: Problem) -> Response {
    let status = problem.status();
    let page = ProblemPage {
        title: problem.title,
        detail: problem.detail.clone(),
        status: problem.status,
    };
    match page.render() {
        Ok(html) => {
            let mut response = (status, Html(html)).into_response();
            problem.say_in(response.headers_mut());
            response
        }
        Err(_) => problem.into_response(),
    }
}

/// A page with its own hash as ETag: a browser that looks again for news is told "none" in a few bytes.
fn page(template: &impl Template, asked: &HeaderMap) -> Result<Response, PageError> {
    let html = template
        .render()
        .map_err(|e| Problem::internal("a page could not be written", e))?;
    let etag = format!("W/\"{}\"", &sha256_hex(html.as_bytes())[..32]);
    let known = asked.get(header::IF_NONE_MATCH).and_then(|v| v.to_str().ok());
    let fresh = known.is_some_and(|known| known.split(',').any(|tag| tag.trim() == etag));
    let headers = [
        (header::ETAG, etag),
        (header::CACHE_CONTROL, "no-cache".to_string()),
    ];
    match fresh {
        true => Ok((StatusCode::NOT_MODIFIED, headers).into_response()),
        false => Ok((headers, Html(html)).into_response()),
    }
}

struct ListRow {
    number: i64,
    badge: &'static str,
    tone: &'static str,
    title: String,
    range: String,
    sentence: String,
    machines: String,
    at: Moment,
    boots: i64,
    left: String,
}

struct MachineRow {
    name: String,
    does: String,
    tone: &'static str,
    bisection: Option<i64>,
}

struct Group {
    id: &'static str,
    heading: &'static str,
    empty: &'static str,
    rows: Vec<ListRow>,
}

#[derive(Template)]
#[template(path = "list.html")]
struct ListPage {
    groups: Vec<Group>,
    machines: Vec<MachineRow>,
    older: Option<i64>,
    live: bool,
}

#[derive(Template)]
#[template(path = "list_live.html")]
struct ListFragment {
    groups: Vec<Group>,
    machines: Vec<MachineRow>,
    older: Option<i64>,
}

pub async fn list(
    State(state): State<WebState>,
    RawQuery(raw): RawQuery,
    headers: HeaderMap,
) -> Result<Response, PageError> {
    let query = Query::read(raw.as_deref(), &["before", "fragment"])?;
    let before = match query.get("before") {
        None => None,
        Some(text) => Some(
            text.parse::<i64>()
                .map_err(|_| Problem::bad_query("before", "must be a number"))?,
        ),
    };
    // What is open is always shown whole: nothing that runs or waits may hide behind a page break.
    let open = ListFilter {
        state: Some("open".into()),
        before: None,
        tree: None,
        limit: 500,
    };
    let open = if before.is_none() {
        state.store.view_bisections(&open).await?
    } else {
        Vec::new()
    };
    let all = ListFilter {
        before,
        limit: ROWS + 1,
        ..ListFilter::default()
    };
    let mut ended = state.store.view_bisections(&all).await?;
    let older = (ended.len() as i64 > ROWS).then(|| ended[ROWS as usize - 1].number);
    ended.truncate(ROWS as usize);
    ended.retain(|v| v.state != "open");
    let (running, waiting): (Vec<_>, Vec<_>) = open.into_iter().partition(|v| v.working > 0);
    let group = |id, heading, empty, views: Vec<BisectionView>| Group {
        id,
        heading,
        empty,
        rows: views.iter().map(row).collect(),
    };
    let mut groups = Vec::new();
    if before.is_none() {
        groups.push(group("running", "Running", "Nothing runs.", running));
        groups.push(group("waiting", "Waiting", "Nothing waits.", waiting));
    }
    groups.push(group("ended", "Ended", "Nothing has ended yet.", ended));
    let machines = state
        .store
        .view_machines()
        .await?
        .into_iter()
        .map(machine_row)
        .collect();
    match query.get("fragment") {
        Some(_) => page(
            &ListFragment {
                groups,
                machines,
                older,
            },
            &headers,
        ),
        None => page(
            &ListPage {
                groups,
                machines,
                older,
                live: before.is_none(),
            },
            &headers,
        ),
    }
}

fn row(v: &BisectionView) -> ListRow {
    let plan = v.plan.as_ref().map(reading::plan);
    let conclusion = v.conclusion.as_ref().map(reading::conclusion);
    let (badge, tone) = standing::badge(&v.state, conclusion.as_ref(), v.working > 0);
    let text = |pointer: &str| {
        v.policy
            .pointer(pointer)
            .and_then(|x| x.as_str())
            .unwrap_or_default()
            .to_string()
    };
    let at = v.ended_at.unwrap_or(v.created_at);
    let left = plan
        .as_ref()
        .filter(|p| v.state == "open" && p.remaining.time_s > 0.0);
    ListRow {
        number: v.number,
        badge,
        tone,
        title: text("/metric/name"),
        range: format!("{}..{}", say::short(&v.good_rev), say::short(&v.bad_rev)),
        sentence: sentence(v, plan.as_ref(), conclusion.as_ref()),
        machines: v.machines.join(", "),
        at: Moment::of(at),
        boots: v.boots,
        left: left
            .map(|p| format!("about {} left", say::duration(p.remaining.time_s)))
            .unwrap_or_default(),
    }
}

fn machine_row(m: MachineView) -> MachineRow {
    let kernel = m
        .kernel_key
        .as_deref()
        .map(|k| say::short(say::commit_of(k)).to_string())
        .unwrap_or_default();
    let (does, tone) = match (m.attempt_id, m.building, m.state.as_str()) {
        (Some(_), Some(true), _) => (format!("builds {kernel}"), "live"),
        (Some(_), _, _) if m.trial.is_some() => (
            format!("is tried before it serves ({})", m.trial.unwrap_or_default()),
            "live",
        ),
        (Some(_), _, _) => (format!("measures {kernel}"), "live"),
        (None, _, "quarantined") => (format!("quarantined: {}", m.reason.unwrap_or_default()), "warn"),
        (None, _, "retired") => ("retired".into(), "quiet"),
        (None, ..) => ("idle".into(), "quiet"),
    };
    MachineRow {
        name: m.name,
        does,
        tone,
        bisection: m.bisection,
    }
}

#[derive(Template)]
#[template(path = "bisection.html")]
struct Whole {
    p: BisectionPage,
}

#[derive(Template)]
#[template(path = "bisection_live.html")]
struct Fragment {
    p: BisectionPage,
}

pub async fn bisection(
    State(state): State<WebState>,
    Path(name): Path<String>,
    RawQuery(raw): RawQuery,
    headers: HeaderMap,
) -> Result<Response, PageError> {
    let query = Query::read(raw.as_deref(), &["fragment"])?;
    let view = api::find(&state, &name).await?;
    let p = BisectionPage::read(&state, view).await?;
    match query.get("fragment") {
        Some(_) => page(&Fragment { p }, &headers),
        None => page(&Whole { p }, &headers),
    }
}

pub async fn retry(State(state): State<WebState>, Path(name): Path<String>) -> Result<Response, PageError> {
    let view = api::find(&state, &name).await?;
    let (Submitted::Created(_, number) | Submitted::Joined(_, number)) = submit::again(&state, &view).await?;
    Ok(Redirect::to(&format!("/bisections/{number}")).into_response())
}

pub async fn cancel(State(state): State<WebState>, Path(name): Path<String>) -> Result<Response, PageError> {
    let view = api::find(&state, &name).await?;
    api::cancel_view(&state, &view).await?;
    Ok(Redirect::to(&format!("/bisections/{}", view.number)).into_response())
}
