//! `perfbisect watch`: follows a bisection to its end.
//!
//! In a terminal one line that keeps up with the search; in a pipe a line per event. A broken connection or a
//! restarted daemon is waited out: the stream goes on after the last event that was seen.

use super::client::{self, Answer, Client, Server, number, printable, text};
use super::display::{Display, Stream, Tint, bar};
use super::show;
use futures_util::StreamExt;
use serde_json::Value;
use std::process::ExitCode;
use std::time::Duration;

/// Between two tries to reach the daemon again.
const RETRY: Duration = Duration::from_secs(2);
/// A stream that says nothing for so long is dead: the daemon sends a heartbeat every 15 s.
const SILENCE: Duration = Duration::from_secs(45);
/// Longest event that is taken; more is no event of ours.
const EVENT_BYTES: usize = 1 << 20;
/// Characters of the bar that shows how much is done.
const BAR: usize = 20;

/// Follows one bisection to its end. Exit codes: 0 it named what it looked for, 1 it ended otherwise or is not
/// found.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    server: Server,
    /// Its number or id.
    #[arg(value_parser = client::name)]
    bisection: String,
}

pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let client = Client::new(&args.server)?;
    follow(&client, &args.server, &args.bisection).await
}

pub async fn follow(client: &Client, server: &Server, name: &str) -> anyhow::Result<ExitCode> {
    let path = format!("/api/v1/bisections/{name}");
    // From the first event on: what happened before is told too, and nothing falls between a look and the stream.
    let mut last = "0".to_string();
    let mut screen = Screen::new(server.json);
    let mut found = false;
    loop {
        match look(client, &path, &mut screen).await {
            Ok(Look::Open) => found = true,
            Ok(Look::Ended(bisection)) => return Ok(end(server, &mut screen, &bisection)),
            Ok(Look::Refused(status, problem)) => return Ok(client::refused(server, status, &problem)),
            // The first look must work: a wrong address is not a restart.
            Err(error) if !found => return Err(error),
            Err(_) => screen.note("the daemon cannot be reached; trying again"),
        }
        if let Err(error) = listen(client, &path, &mut last, &mut screen).await {
            screen.note(&format!("{error:#}; trying again"));
            tokio::time::sleep(RETRY).await;
        }
    }
}

enum Look {
    Open,
    Ended(Box<Value>),
    Refused(reqwest::StatusCode, Value),
}

async fn look(client: &Client, path: &str, screen: &mut Screen) -> anyhow::Result<Look> {
    match client.get(path).await? {
        Answer::Refused(status, problem) if status.is_server_error() => {
            anyhow::bail!("{}", text(&problem, "/detail"))
        }
        Answer::Refused(status, problem) => Ok(Look::Refused(status, problem)),
        Answer::Ok(_, bisection) if text(&bisection, "/state") == "open" => {
            screen.progress(&bisection);
            Ok(Look::Open)
        }
        Answer::Ok(_, bisection) => Ok(Look::Ended(Box::new(bisection))),
    }
}

/// Takes events until the stream ends or an event says that the search may have ended.
async fn listen(client: &Client, path: &str, last: &mut String, screen: &mut Screen) -> anyhow::Result<()> {
    let response = client.stream(&format!("{path}/events"), Some(last)).await?;
    let mut bytes = response.bytes_stream();
    let mut reader = EventReader::default();
    loop {
        let chunk = match tokio::time::timeout(SILENCE, bytes.next()).await {
            Err(_) => anyhow::bail!("the daemon has been silent for {} s", SILENCE.as_secs()),
            Ok(None) => anyhow::bail!("the daemon ended the stream"),
            Ok(Some(chunk)) => chunk?,
        };
        reader.push(&chunk)?;
        let mut news = false;
        while let Some((id, data)) = reader.next() {
            if let Some(id) = id {
                *last = id;
            }
            if let Ok(event) = serde_json::from_str::<Value>(&data) {
                screen.event(&event);
                news = true;
            }
        }
        if news {
            match look(client, path, screen).await? {
                Look::Open => {}
                Look::Ended(_) | Look::Refused(..) => return Ok(()),
            }
        }
    }
}

/// Server-sent events out of chunks that may be cut anywhere.
#[derive(Default)]
struct EventReader {
    buffer: Vec<u8>,
}

impl EventReader {
    fn push(&mut self, chunk: &[u8]) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.buffer.len() + chunk.len() <= EVENT_BYTES,
            "the stream holds something that is no event"
        );
        // Our daemon ends lines with LF; a proxy might not.
        self.buffer.extend(chunk.iter().copied().filter(|b| *b != b'\r'));
        Ok(())
    }

    /// The next whole event with data: its id, if it has one, and the data.
    fn next(&mut self) -> Option<(Option<String>, String)> {
        loop {
            let end = self.buffer.windows(2).position(|pair| pair == b"\n\n")?;
            let block: Vec<u8> = self.buffer.drain(..end + 2).collect();
            let block = String::from_utf8_lossy(&block);
            let (mut id, mut data) = (None, Vec::new());
            for line in block.lines() {
                match line.split_once(':') {
                    Some(("id", value)) => id = Some(value.trim_start().to_string()),
                    Some(("data", value)) => data.push(value.strip_prefix(' ').unwrap_or(value)),
                    _ => {}
                }
            }
            if !data.is_empty() {
                return Some((id, data.join("\n")));
            }
        }
    }
}

/// Where progress goes: a line at the bottom of a terminal, lines, or JSON.
struct Screen {
    json: bool,
    display: Display,
    noted: String,
}

impl Screen {
    fn new(json: bool) -> Screen {
        Screen {
            json,
            display: Display::new(Stream::Out),
            noted: String::new(),
        }
    }

    fn progress(&mut self, b: &Value) {
        self.noted.clear();
        if self.json || !self.display.is_terminal() {
            return;
        }
        let left = number(b, "/plan/suspects_left")
            .map(|n| format!("{n} suspects"))
            .unwrap_or("planning".into());
        let boots = number(b, "/counts/boots").unwrap_or_default();
        let remaining = b.get("plan").map(show::remaining).filter(|r| !r.is_empty());
        let remaining = remaining.map(|r| format!(" · {r} left")).unwrap_or_default();
        let lead = b.pointer("/plan/suspects/0").map(|s| {
            let commit: String = text(s, "/commit").chars().take(12).collect();
            format!(
                " · {commit} {:.0} %",
                number(s, "/probability").unwrap_or_default() * 100.0
            )
        });
        let to_come = number(b, "/plan/remaining/boots").unwrap_or_default();
        let done = bar(boots / (boots + to_come).max(1.0), BAR);
        self.display.status(&format!(
            "{done} {left} · {boots} boots{remaining}{}",
            lead.unwrap_or_default()
        ));
    }

    fn event(&mut self, event: &Value) {
        if self.json {
            println!("{event}");
            return;
        }
        let at: String = text(event, "/at").chars().skip(11).take(8).collect();
        let kind = format!("{:<10}", printable(text(event, "/kind")));
        let kind = self.display.tint(&kind, Tint::Strong);
        self.display
            .line(&format!("{at}  {kind} {}", printable(text(event, "/text"))));
    }

    /// Said once, however often it is tried again.
    fn note(&mut self, said: &str) {
        if self.noted == said {
            return;
        }
        self.noted = said.to_string();
        self.display.clear();
        eprintln!("perfbisect: {said}");
    }
}

fn end(server: &Server, screen: &mut Screen, b: &Value) -> ExitCode {
    screen.display.clear();
    match server.json {
        true => println!("{b}"),
        false => {
            println!("{}", printable(text(b, "/sentence")));
            if let Some(conclusion) = b.get("conclusion").filter(|c| c.is_object()) {
                show::conclusion(conclusion);
            }
            println!("{:<14}{}", "page", printable(text(b, "/page")));
        }
    }
    let named = b
        .get("first_bad")
        .and_then(Value::as_array)
        .is_some_and(|commits| !commits.is_empty());
    ExitCode::from(if named { client::DONE } else { client::FAILED })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_out_whole_wherever_the_chunks_are_cut() {
        let stream =
            b": hello\nretry: 2000\n\nid: 7\ndata: {\"a\":1}\n\n:\n\nid: 8\r\ndata: one\r\ndata: two\r\n\r\n";
        for size in 1..stream.len() {
            let mut reader = EventReader::default();
            let mut events = Vec::new();
            for chunk in stream.chunks(size) {
                reader.push(chunk).expect("small");
                while let Some(event) = reader.next() {
                    events.push(event);
                }
            }
            let wanted = [
                (Some("7".into()), "{\"a\":1}".into()),
                (Some("8".into()), "one\ntwo".to_string()),
            ];
            assert_eq!(events, wanted, "in chunks of {size}");
        }
    }
}
