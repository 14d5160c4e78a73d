//! `perfbisect machines`: what every test machine is doing.

use super::client::{self, Server, printable, text};
use serde_json::Value;
use std::process::ExitCode;

/// Lists the test machines. Exit codes: 0 done, 1 failed.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    server: Server,
}

pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let told = |machine: &Value| println!("{}", printable(&line(machine)));
    client::tell(&args.server, "/api/v1/machines", "machines", told).await
}

fn line(machine: &Value) -> String {
    // Configured, and never looked at by a daemon.
    let state = match text(machine, "/state") {
        "" => "not seen",
        state => state,
    };
    let work = machine.get("work").unwrap_or(&Value::Null);
    let work = match (text(work, "/phase"), work.get("bisection")) {
        ("", _) => text(machine, "/reason").to_owned(),
        (phase, Some(Value::Number(number))) => format!("{phase} for bisection {number}"),
        (phase, _) => phase.to_owned(),
    };
    let line = format!(
        "{:<16}  {state:<12}  {:<10}  {work}",
        text(machine, "/name"),
        text(machine, "/arch")
    );
    line.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_machine_is_a_line() {
        let busy = json!({ "name": "box1", "arch": "x86_64", "state": "idle",
            "work": { "phase": "benchmark", "bisection": 12 } });
        assert_eq!(
            line(&busy),
            "box1              idle          x86_64      benchmark for bisection 12"
        );
        let sick = json!({ "name": "box2", "arch": "x86_64", "state": "quarantined", "reason": "did not come home" });
        assert_eq!(
            line(&sick),
            "box2              quarantined   x86_64      did not come home"
        );
        assert_eq!(line(&json!({ "name": "box3" })), "box3              not seen");
    }
}
