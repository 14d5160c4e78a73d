//! Events of a bisection as they happen (server-sent events), replayed from Postgres after a break.
//!
//! An event's id is its row's id, so a browser that comes back with `Last-Event-ID` misses nothing. The bell only
//! says that something may be new; the rows are the truth. A stream ends with the daemon, never by itself.

use super::api::Query;
use super::error::Problem;
use super::openapi::LARGEST;
use super::{WebState, answers, api};
use crate::store::views::EventView;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream, StreamExt};
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;
use uuid::Uuid;

/// Without a bell a stream looks by itself; also what a lost bell costs.
const LOOK: Duration = Duration::from_secs(5);
/// Said on a quiet stream, so that a proxy or a sleeping laptop notices a dead one.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Rows read at a time.
const PAGE: i64 = 200;
/// Ids are given out before their transaction commits, so a lower one may come to light after a higher one: each
/// look reaches so far back, and skips what was sent.
const REACH_BACK: i64 = 200;

/// Follow a bisection: its events as they happen
#[utoipa::path(get, path = "/api/v1/bisections/{name}/events", tag = "events", operation_id = "follow_bisection",
    params(
        ("name" = String, Path, description = "Its number or its id"),
        ("follow" = Option<bool>, Query, description = "false: what has happened, and the stream ends"),
        ("Last-Event-ID" = Option<i64>, Header, minimum = 0, maximum = 9_007_199_254_740_991_i64, description = "Only what came after this event"),
    ),
    responses((status = 200, description = "Server-sent events", body = answers::Event, content_type = "text/event-stream")))]
pub async fn of_bisection(
    State(state): State<WebState>,
    Path(name): Path<String>,
    RawQuery(raw): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let follow = follow(raw.as_deref())?;
    let view = api::find(&state, &name).await?;
    open(state, Some(view.id), headers, follow).await
}

/// Follow every bisection
#[utoipa::path(get, path = "/api/v1/events", tag = "events", operation_id = "follow_all",
    params(
        ("follow" = Option<bool>, Query, description = "false: what has happened, and the stream ends"),
        ("Last-Event-ID" = Option<i64>, Header, minimum = 0, maximum = 9_007_199_254_740_991_i64, description = "Only what came after this event"),
    ),
    responses((status = 200, description = "Server-sent events", body = answers::Event, content_type = "text/event-stream")))]
pub async fn of_all(
    State(state): State<WebState>,
    RawQuery(raw): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let follow = follow(raw.as_deref())?;
    open(state, None, headers, follow).await
}

fn follow(raw: Option<&str>) -> Result<bool, Problem> {
    match Query::read(raw, &["follow"])?.get("follow") {
        None | Some("true") => Ok(true),
        Some("false") => Ok(false),
        Some(_) => Err(Problem::bad_query("follow", "must be true or false")),
    }
}

/// With `Last-Event-ID` from there on; without it, from now on, or all that has been where nothing is followed.
async fn open(
    state: WebState,
    bisection: Option<Uuid>,
    headers: HeaderMap,
    follow: bool,
) -> Result<Response, Problem> {
    let after = match headers.get("last-event-id") {
        None if !follow => 0,
        None => state.store.view_last_event(bisection).await?,
        Some(value) => {
            let id = value.to_str().ok().and_then(|text| text.trim().parse().ok());
            id.filter(|id| (0..=LARGEST).contains(id)).ok_or_else(|| {
                Problem::bad_query(
                    "Last-Event-ID",
                    "must be the id of an event of this daemon: a whole number",
                )
            })?
        }
    };
    let stopping = state.shutdown.clone();
    let stream = events(state, bisection, after, follow).take_until(stopping.cancelled_owned());
    let mut response = Sse::new(stream)
        .keep_alive(KeepAlive::new().interval(HEARTBEAT))
        .into_response();
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Asks nginx and its like not to collect the stream.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

struct Cursor {
    state: WebState,
    bell: crate::store::Bell,
    bisection: Option<Uuid>,
    /// Nothing at or below is sent: what the watcher had when it came.
    floor: i64,
    highest: i64,
    sent: BTreeSet<i64>,
    ready: std::collections::VecDeque<EventView>,
    opened: bool,
}

fn events(
    state: WebState,
    bisection: Option<Uuid>,
    after: i64,
    follow: bool,
) -> impl Stream<Item = Result<Event, Infallible>> {
    let bell = state.store.listen();
    let cursor = Cursor {
        state,
        bell,
        bisection,
        floor: after,
        highest: after,
        sent: BTreeSet::new(),
        ready: Default::default(),
        opened: false,
    };
    stream::unfold(cursor, move |mut cursor| async move {
        if !cursor.opened {
            cursor.opened = true;
            // Tells the browser how long to wait before it comes back, and opens the stream at once.
            let hello = Event::default()
                .retry(Duration::from_secs(2))
                .comment("perfbisect");
            return Some((Ok(hello), cursor));
        }
        loop {
            if let Some(event) = cursor.ready.pop_front() {
                return Some((Ok(written(&event)), cursor));
            }
            if cursor.look().await {
                continue;
            }
            if !follow {
                return None;
            }
            tokio::select! {
                () = cursor.bell.rung() => {}
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    })
}

impl Cursor {
    /// Reads what is new into `ready`; false when there was nothing.
    async fn look(&mut self) -> bool {
        let mut from = (self.highest - REACH_BACK).max(self.floor);
        loop {
            let rows = match self.state.store.view_events(self.bisection, from, PAGE).await {
                Ok(rows) => rows,
                Err(error) => {
                    tracing::warn!(%error, "events cannot be read now; the stream looks again");
                    return false;
                }
            };
            let full = rows.len() as i64 == PAGE;
            from = rows.last().map_or(from, |r| r.id);
            for row in rows {
                if self.sent.insert(row.id) {
                    self.ready.push_back(row);
                }
            }
            if !self.ready.is_empty() || !full {
                break;
            }
        }
        self.highest = self.highest.max(self.sent.last().copied().unwrap_or(0));
        let keep_from = self.highest - REACH_BACK;
        self.sent = self.sent.split_off(&keep_from);
        !self.ready.is_empty()
    }
}

fn written(event: &EventView) -> Event {
    let data = serde_json::json!({
        "id": event.id,
        "bisection": event.number,
        "kind": event.kind,
        "text": event.text,
        "at": event.at,
    });
    // Unnamed (`message`): a browser's `onmessage` takes every kind, also those of a later version.
    Event::default().id(event.id.to_string()).data(data.to_string())
}
