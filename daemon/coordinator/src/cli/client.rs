//! A daemon over HTTP, as the commands use it: requests, problems in words, exit codes.
//!
//! It must not know the daemon's rooms: what it knows is the API.

use anyhow::{Context, bail};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Method, Response, StatusCode};
use serde_json::Value;
use std::process::ExitCode;
use std::time::Duration;

/// Exit codes of the commands that talk to a daemon.
pub const DONE: u8 = 0;
/// Not found, not reachable, or ended without a culprit (`watch`).
pub const FAILED: u8 = 1;
/// The daemon refused the request: mend it and try again.
pub const REFUSED: u8 = 2;

/// Shorter than the daemon's own limit makes no sense: a submission may wait for a fetch.
const ANSWER_LIMIT: Duration = Duration::from_secs(130);
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

#[derive(clap::Args, Clone)]
pub struct Server {
    /// Address of the daemon. A token for it is taken from PERFBISECT_TOKEN.
    #[arg(
        long,
        env = "PERFBISECT_SERVER",
        default_value = "http://127.0.0.1:8642",
        value_name = "URL"
    )]
    pub server: String,
    /// Print what the daemon answers as JSON.
    #[arg(long)]
    pub json: bool,
}

pub struct Client {
    base: String,
    http: reqwest::Client,
}

/// What the daemon said.
pub enum Answer {
    Ok(StatusCode, Value),
    /// A problem, already in words.
    Refused(StatusCode, Value),
}

impl Client {
    pub fn new(server: &Server) -> anyhow::Result<Client> {
        // Fails only where another part of the program chose one first, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder()
            .user_agent(concat!("perfbisect/", env!("CARGO_PKG_VERSION")))
            .default_headers(token()?)
            .connect_timeout(CONNECT_LIMIT)
            .build()?;
        let base = server.server.trim_end_matches('/').to_string();
        if !base.starts_with("http://") && !base.starts_with("https://") {
            bail!("--server {base}: an address starts with http:// or https://");
        }
        Ok(Client { base, http })
    }

    pub async fn get(&self, path: &str) -> anyhow::Result<Answer> {
        self.send(Method::GET, path, None).await
    }

    pub async fn post(&self, path: &str, body: Option<&Value>) -> anyhow::Result<Answer> {
        self.send(Method::POST, path, body).await
    }

    async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Answer> {
        let mut request = self
            .http
            .request(method, format!("{}{path}", self.base))
            .timeout(ANSWER_LIMIT);
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.send().await.with_context(|| self.unreachable())?;
        let status = response.status();
        let text = response
            .text()
            .await
            .with_context(|| format!("{}: the answer broke off", self.base))?;
        let value = serde_json::from_str(&text).unwrap_or(Value::Null);
        match (status.is_success(), value) {
            (true, Value::Null) => bail!(
                "{}{path}: answered with something that is no JSON: is this a perfbisect daemon?",
                self.base
            ),
            (true, value) => Ok(Answer::Ok(status, value)),
            (false, Value::Null) => bail!(
                "{}{path}: answered {status}: is this a perfbisect daemon?",
                self.base
            ),
            (false, value) => Ok(Answer::Refused(status, value)),
        }
    }

    /// An event stream, from after the event `last` on.
    pub async fn stream(&self, path: &str, last: Option<&str>) -> anyhow::Result<Response> {
        let mut request = self
            .http
            .get(format!("{}{path}", self.base))
            .header("accept", "text/event-stream");
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let response = request.send().await.with_context(|| self.unreachable())?;
        Ok(response.error_for_status()?)
    }

    fn unreachable(&self) -> String {
        format!(
            "{} cannot be reached: is the daemon running there? (--server or PERFBISECT_SERVER)",
            self.base
        )
    }
}

/// From the environment alone: an argument would stand in the list of processes.
fn token() -> anyhow::Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    if let Some(token) = std::env::var("PERFBISECT_TOKEN")
        .ok()
        .filter(|t| !t.trim().is_empty())
    {
        let mut value = HeaderValue::from_str(&format!("Bearer {}", token.trim()))
            .context("PERFBISECT_TOKEN holds what is no token")?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    Ok(headers)
}

/// Says a problem on standard error, field by field; with `--json` as the daemon gave it.
pub fn refused(server: &Server, status: StatusCode, problem: &Value) -> ExitCode {
    if server.json {
        println!("{problem}");
    } else {
        let text = |name: &str| {
            problem
                .get(name)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_string()
        };
        eprintln!("perfbisect: {} ({})", text("title"), status.as_u16());
        match problem
            .get("errors")
            .and_then(Value::as_array)
            .filter(|errors| !errors.is_empty())
        {
            Some(errors) => {
                for error in errors {
                    let part = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default();
                    eprintln!("  {}: {}", part("field"), part("message"));
                }
            }
            None => eprintln!("  {}", text("detail")),
        }
    }
    let refusal = matches!(status.as_u16(), 400 | 401 | 403 | 409 | 413 | 415 | 421 | 422);
    ExitCode::from(if refusal { REFUSED } else { FAILED })
}

/// A bisection is named by its number or its id; anything else is a slip, caught before it is sent.
pub fn name(text: &str) -> Result<String, String> {
    let fits =
        !text.is_empty() && text.len() <= 40 && text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    if fits {
        Ok(text.to_string())
    } else {
        Err("give a bisection's number (`12`) or its id".to_string())
    }
}

/// Tells the rows that a list of the daemon holds under `name`, or the answer as it came with `--json`.
pub async fn tell(server: &Server, path: &str, name: &str, row: impl Fn(&Value)) -> anyhow::Result<ExitCode> {
    let answer = match Client::new(server)?.get(path).await? {
        Answer::Ok(_, answer) => answer,
        Answer::Refused(status, problem) => return Ok(refused(server, status, &problem)),
    };
    if server.json {
        println!("{answer}");
    } else {
        let rows = answer.get(name).and_then(Value::as_array);
        rows.into_iter().flatten().for_each(row);
    }
    Ok(ExitCode::from(DONE))
}

pub fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub fn number(value: &Value, pointer: &str) -> Option<f64> {
    value.pointer(pointer).and_then(Value::as_f64)
}

/// Text that came over the wire, safe for a terminal.
pub fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}
