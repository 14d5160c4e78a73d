//! `perfbisect show`: one bisection in a screenful, with its conclusion and the evidence.

use super::client::{self, Answer, Client, Server, number, printable, text};
use serde_json::Value;
use std::process::ExitCode;

/// Shows one bisection. Exit codes: 0 done, 1 not found or failed.
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
    match client
        .get(&format!("/api/v1/bisections/{}", args.bisection))
        .await?
    {
        Answer::Refused(status, problem) => Ok(client::refused(&args.server, status, &problem)),
        Answer::Ok(_, bisection) => {
            match args.server.json {
                true => println!("{bisection}"),
                false => print(&bisection),
            }
            Ok(ExitCode::from(client::DONE))
        }
    }
}

pub fn print(b: &Value) {
    let line = |name: &str, value: String| {
        if !value.is_empty() {
            println!("{name:<14}{}", printable(&value));
        }
    };
    let named = |end: &str| {
        let commit = text(b, &format!("/{end}/commit"));
        format!("{}  {commit}", text(b, &format!("/{end}/revision")))
    };
    println!(
        "bisection {} ({})",
        number(b, "/number").unwrap_or_default(),
        text(b, "/state")
    );
    println!("{}", printable(text(b, "/sentence")));
    println!();
    line("tree", text(b, "/tree").into());
    line("good", named("good"));
    line("bad", named("bad"));
    line("workload", text(b, "/workload").into());
    let unit = text(b, "/policy/metric/unit");
    line("metric", format!("{} in {unit}", text(b, "/metric")));
    line("machines", list(b.get("machines")));
    line("page", text(b, "/page").into());
    let count = |name: &str| number(b, &format!("/counts/{name}")).unwrap_or_default();
    line(
        "spent",
        format!("{} kernels, {} boots", count("kernels"), count("boots")),
    );
    if let Some(plan) = b
        .get("plan")
        .filter(|p| p.is_object() && text(b, "/state") == "open")
    {
        line("remaining", remaining(plan));
        line("reason", text(plan, "/reason").into());
        let suspects = plan
            .get("suspects")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        for s in suspects.iter().take(5) {
            line(
                "suspect",
                format!(
                    "{:>5.1} %  {}",
                    number(s, "/probability").unwrap_or_default() * 100.0,
                    text(s, "/commit")
                ),
            );
        }
    }
    if let Some(c) = b.get("conclusion").filter(|c| c.is_object()) {
        println!();
        conclusion(c);
    }
}

/// The end of a search, a fact a line.
pub fn conclusion(c: &Value) {
    let line = |name: &str, value: String| {
        if !value.is_empty() {
            println!("{name:<14}{}", printable(&value));
        }
    };
    line("status", text(c, "/status").replace('_', " "));
    for (field, name) in [
        ("first_bad", "first bad"),
        ("improved", "improved"),
        ("suspects", "suspect"),
    ] {
        let named = c
            .get("first_bad")
            .and_then(Value::as_array)
            .is_some_and(|l| !l.is_empty());
        if field == "suspects" && named {
            continue;
        }
        for commit in c.get(field).and_then(Value::as_array).into_iter().flatten() {
            line(name, commit.as_str().unwrap_or_default().into());
        }
    }
    if let Some(effect) = number(c, "/effect_pct") {
        let interval = number(c, "/ci95_pct/0").zip(number(c, "/ci95_pct/1"));
        let interval = interval.map(|(low, high)| format!(" (95 % interval {low:+.1} to {high:+.1} %)"));
        line(
            "effect",
            format!("{effect:+.1} %{}", interval.unwrap_or_default()),
        );
    }
    line(
        "confidence",
        number(c, "/confidence")
            .map(|p| format!("{p:.4}"))
            .unwrap_or_default(),
    );
    for check in c.get("checks").and_then(Value::as_array).into_iter().flatten() {
        let detail = text(check, "/detail");
        let said = format!(
            "{} {}",
            text(check, "/check"),
            text(check, "/result").replace('_', " ")
        );
        line(
            "check",
            if detail.is_empty() {
                said
            } else {
                format!("{said}: {detail}")
            },
        );
    }
    for note in c.get("notes").and_then(Value::as_array).into_iter().flatten() {
        line("note", note.as_str().unwrap_or_default().into());
    }
}

/// `about 6 kernels, 21 boots, 3 h 3 min`, or nothing where nothing is left.
pub fn remaining(plan: &Value) -> String {
    let part = |name: &str| number(plan, &format!("/remaining/{name}")).unwrap_or_default();
    let seconds = part("time_s");
    if seconds <= 0.0 {
        return String::new();
    }
    let minutes = (seconds / 60.0).ceil() as u64;
    let time = match minutes {
        0..=1 => format!("{seconds:.0} s"),
        2..60 => format!("{minutes} min"),
        _ => format!("{} h {} min", minutes / 60, minutes % 60),
    };
    format!(
        "about {} kernels, {} boots, {time}",
        part("kernels"),
        part("boots")
    )
}

fn list(value: Option<&Value>) -> String {
    let items = value.and_then(Value::as_array).into_iter().flatten();
    items.filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
}
