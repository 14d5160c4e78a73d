//! `perfbisect workloads`: what can be measured, and by which numbers.

use super::client::{self, Server, printable, text};
use serde_json::Value;
use std::process::ExitCode;

/// Lists the workloads with their metrics and parameters. Exit codes: 0 done, 1 failed.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    server: Server,
}

pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let told = |workload: &Value| {
        for line in lines(workload) {
            println!("{}", printable(&line));
        }
    };
    client::tell(&args.server, "/api/v1/workloads", "workloads", told).await
}

fn lines(workload: &Value) -> Vec<String> {
    let mut lines = vec![format!(
        "{}  {}",
        text(workload, "/name"),
        text(workload, "/description")
    )];
    for metric in workload
        .get("metrics")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let higher = metric.get("higher_is_better").and_then(Value::as_bool);
        let better = if higher == Some(true) { "more" } else { "less" };
        let (name, unit) = (text(metric, "/name"), text(metric, "/unit"));
        lines.push(format!("    metric     {name} in {unit}, {better} is better"));
    }
    let parameters = workload.get("parameters").and_then(Value::as_object);
    for (name, choices) in parameters.into_iter().flatten() {
        let choices = choices.as_array().into_iter().flatten();
        let choices: Vec<String> = choices
            .map(|c| c.as_str().map_or_else(|| c.to_string(), str::to_owned))
            .collect();
        lines.push(format!("    parameter  {name}: {}", choices.join(", ")));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn metrics_and_parameters_are_listed_under_their_workload() {
        let workload = json!({ "name": "pipe", "description": "pipes",
            "metrics": [{ "name": "usecs_per_op", "unit": "us/op", "higher_is_better": false }],
            "parameters": { "threads": ["1", "8"] } });
        assert_eq!(
            lines(&workload),
            [
                "pipe  pipes",
                "    metric     usecs_per_op in us/op, less is better",
                "    parameter  threads: 1, 8"
            ]
        );
    }
}
