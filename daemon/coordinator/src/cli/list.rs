//! `perfbisect list`: a line per bisection, the newest first.

use super::client::{self, Answer, Client, Server};
use serde_json::Value;
use std::process::ExitCode;

/// Lists bisections. Exit codes: 0 done, 1 failed, 2 refused.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    server: Server,
    /// Only those in this state.
    #[arg(long, value_parser = ["open", "concluded", "cancelled"])]
    state: Option<String>,
    /// Only those of this tree.
    #[arg(long)]
    tree: Option<String>,
    /// At most so many.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=200))]
    limit: u16,
    /// Only numbers below this one.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    before: Option<u64>,
}

pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let client = Client::new(&args.server)?;
    let mut path = format!("/api/v1/bisections?limit={}", args.limit);
    for (name, value) in [("state", &args.state), ("tree", &args.tree)] {
        if let Some(value) = value {
            path.push_str(&format!("&{name}={}", encoded(value)));
        }
    }
    if let Some(before) = args.before {
        path.push_str(&format!("&before={before}"));
    }
    let answer = match client.get(&path).await? {
        Answer::Ok(_, answer) => answer,
        Answer::Refused(status, problem) => return Ok(client::refused(&args.server, status, &problem)),
    };
    if args.server.json {
        println!("{answer}");
        return Ok(ExitCode::from(client::DONE));
    }
    let rows = answer
        .get("bisections")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    if rows.is_empty() {
        println!("no bisections");
    }
    for row in &rows {
        let state = match client::text(row, "/status") {
            "" => client::text(row, "/state"),
            status => status,
        };
        let range = format!(
            "{}..{}",
            client::text(row, "/good/revision"),
            client::text(row, "/bad/revision")
        );
        let line = format!(
            "{:>5}  {:<18}  {:<24}  {:<28}  {}",
            row.get("number").and_then(Value::as_i64).unwrap_or_default(),
            state.replace('_', " "),
            client::text(row, "/metric"),
            range,
            client::text(row, "/sentence"),
        );
        println!("{}", client::printable(&line));
    }
    if let Some(next) = answer.get("next_before").and_then(Value::as_i64) {
        println!("more: --before {next}");
    }
    Ok(ExitCode::from(client::DONE))
}

fn encoded(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.~".contains(&b);
    text.bytes()
        .map(|b| {
            if plain(b) {
                char::from(b).to_string()
            } else {
                format!("%{b:02X}")
            }
        })
        .collect()
}
