//! `perfbisect submit`: a range, a workload, a machine; prints the bisection's number and page.

use super::client::{self, Answer, Client, Server};
use anyhow::Context;
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::process::ExitCode;

/// Submits a range. Exit codes: 0 started or joined, 1 failed, 2 refused.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    server: Server,
    /// Configured tree.
    #[arg(long, required_unless_present = "file")]
    tree: Option<String>,
    /// Last version known to be good: tag, branch or commit.
    #[arg(long, required_unless_present = "file")]
    good: Option<String>,
    /// A version known to be bad.
    #[arg(long, required_unless_present = "file")]
    bad: Option<String>,
    /// Configured workload.
    #[arg(long, required_unless_present = "file")]
    workload: Option<String>,
    /// Choice of a workload's parameter; may be given several times.
    #[arg(long = "parameter", value_name = "NAME=VALUE", value_parser = pair)]
    parameters: Vec<(String, String)>,
    /// Metric of the workload; may be left out where it has only one.
    #[arg(long)]
    metric: Option<String>,
    /// Smallest loss that matters, in per cent of the good level.
    #[arg(long, value_name = "PCT")]
    min_effect_pct: Option<f64>,
    /// The same in the metric's unit, for metrics that may be zero.
    #[arg(long, value_name = "NUMBER", conflicts_with = "min_effect_pct")]
    min_effect_abs: Option<f64>,
    /// Probability at which a commit is named.
    #[arg(long, value_name = "0.5..1")]
    confidence: Option<f64>,
    /// Seed of ties and of the order of boots.
    #[arg(long)]
    seed: Option<u64>,
    /// One culprit, or all that share the loss.
    #[arg(long, value_parser = ["first", "all"])]
    look_for: Option<String>,
    /// Stop after so many boots.
    #[arg(long, value_name = "N")]
    limit_boots: Option<u64>,
    /// Stop after so many seconds.
    #[arg(long, value_name = "S")]
    limit_time_s: Option<f64>,
    /// Stop where the two ends alone take so many seconds.
    #[arg(long, value_name = "S")]
    limit_ends_time_s: Option<f64>,
    /// Measure the bad end with the culprit reverted before concluding.
    #[arg(long)]
    confirm_revert: bool,
    /// Measure parent and culprit under another code layout before concluding.
    #[arg(long)]
    confirm_layout: bool,
    /// Search first parents only.
    #[arg(long)]
    first_parent: bool,
    /// Machine to measure on; may be given several times.
    #[arg(long, value_name = "NAME")]
    machine: Vec<String>,
    /// Pool of machines; may be given several times.
    #[arg(long, value_name = "NAME")]
    pool: Vec<String>,
    /// Higher goes first: -100 to 100.
    #[arg(long, allow_negative_numbers = true)]
    priority: Option<i32>,
    /// Mail the result to; may be given several times.
    #[arg(long, value_name = "ADDRESS")]
    mail: Vec<String>,
    /// Post the result to; may be given several times.
    #[arg(long, value_name = "URL")]
    webhook: Vec<String>,
    /// The request as a JSON file (`-`: standard input); other options add to it.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Follow it to its end, as `perfbisect watch` does.
    #[arg(long)]
    watch: bool,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    Ok((name.to_string(), value.to_string()))
}

pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let client = Client::new(&args.server)?;
    let body = request(&args)?;
    let (joined, bisection) = match client.post("/api/v1/bisections", Some(&body)).await? {
        Answer::Ok(status, bisection) => (status.as_u16() == 200, bisection),
        Answer::Refused(status, problem) => return Ok(client::refused(&args.server, status, &problem)),
    };
    let number = bisection
        .get("number")
        .and_then(Value::as_i64)
        .context("the answer holds no number")?;
    if args.server.json && !args.watch {
        println!("{bisection}");
    } else if !args.server.json {
        let what = if joined {
            "an equal request is open already; joined"
        } else {
            "started"
        };
        println!(
            "{what}: bisection {number}, {}",
            client::printable(client::text(&bisection, "/page"))
        );
    }
    if args.watch {
        return super::watch::follow(&client, &args.server, &number.to_string()).await;
    }
    Ok(ExitCode::from(client::DONE))
}

fn request(args: &Args) -> anyhow::Result<Value> {
    let mut body = match &args.file {
        Some(path) => read(path)?,
        None => Map::new(),
    };
    let mut set = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            body.insert(name.to_string(), value);
        }
    };
    set("tree", args.tree.as_ref().map(|v| json!(v)));
    set("good", args.good.as_ref().map(|v| json!(v)));
    set("bad", args.bad.as_ref().map(|v| json!(v)));
    set("workload", args.workload.as_ref().map(|v| json!(v)));
    set("metric", args.metric.as_ref().map(|v| json!(v)));
    set("min_effect_pct", args.min_effect_pct.map(|v| json!(v)));
    set("min_effect_abs", args.min_effect_abs.map(|v| json!(v)));
    set("confidence", args.confidence.map(|v| json!(v)));
    set("seed", args.seed.map(|v| json!(v)));
    set("look_for", args.look_for.as_ref().map(|v| json!(v)));
    set("priority", args.priority.map(|v| json!(v)));
    set("first_parent", args.first_parent.then_some(json!(true)));
    let parameters: Map<String, Value> = args
        .parameters
        .iter()
        .map(|(n, v)| (n.clone(), json!(v)))
        .collect();
    set(
        "parameters",
        (!parameters.is_empty()).then_some(Value::Object(parameters)),
    );
    let mut limits = Map::new();
    limits.extend(args.limit_boots.map(|n| ("boots".to_string(), json!(n))));
    limits.extend(args.limit_time_s.map(|s| ("time_s".to_string(), json!(s))));
    limits.extend(
        args.limit_ends_time_s
            .map(|s| ("ends_time_s".to_string(), json!(s))),
    );
    set("limits", (!limits.is_empty()).then_some(Value::Object(limits)));
    let confirm = json!({ "revert": args.confirm_revert, "layout": args.confirm_layout });
    set(
        "confirm",
        (args.confirm_revert || args.confirm_layout).then_some(confirm),
    );
    set("machine", (!args.machine.is_empty()).then(|| json!(args.machine)));
    set("pool", (!args.pool.is_empty()).then(|| json!(args.pool)));
    let mails = args.mail.iter().map(|m| json!({ "mail": m }));
    let recipients: Vec<Value> = mails
        .chain(args.webhook.iter().map(|w| json!({ "webhook": w })))
        .collect();
    set(
        "recipients",
        (!recipients.is_empty()).then_some(Value::Array(recipients)),
    );
    Ok(Value::Object(body))
}

fn read(path: &PathBuf) -> anyhow::Result<Map<String, Value>> {
    let text = match path.as_os_str() == "-" {
        true => std::io::read_to_string(std::io::stdin()).context("standard input cannot be read")?,
        false => {
            std::fs::read_to_string(path).with_context(|| format!("{}: cannot be read", path.display()))?
        }
    };
    serde_json::from_str(&text).with_context(|| format!("{}: is no JSON object", path.display()))
}
