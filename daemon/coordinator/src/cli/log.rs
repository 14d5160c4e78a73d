//! `perfbisect log`: why each step of a search was taken; or the search as `git bisect log` would tell it, so that
//! `git bisect replay` goes on from there.

use super::client::{self, Answer, Client, Server, printable, text};
use super::run::{as_git_bisect_log, state, state_path, write_refs};
use crate::tree::bisect_log::{BisectLog, Mark, State};
use crate::tree::local::Local;
use serde_json::Value;
use std::path::PathBuf;
use std::process::ExitCode;

/// Print why each step of a daemon's search was taken, or a search as a git bisect log.
///
/// Without BISECTION: the `perfbisect run` of this repository, as a git bisect log. `git bisect replay` goes on with
/// it. Exit codes: 0 done, 1 not found or failed.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    server: Server,
    /// Its number or id.
    #[arg(value_parser = client::name)]
    bisection: Option<String>,
    /// Print a daemon's search as a git bisect log, too.
    #[arg(long, requires = "bisection", conflicts_with = "json")]
    git_bisect: bool,
    /// Without BISECTION: point `refs/perfbisect/run/bad`, `good-<id>` and `skip-<id>` at what is known, as git bisect
    /// does below `refs/bisect`.
    #[arg(long, conflicts_with = "bisection")]
    refs: bool,
    /// The repository.
    #[arg(long, default_value = ".", value_name = "FOLDER")]
    repo: PathBuf,
}

pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Some(name) = &args.bisection else {
        let local = Local::open(&args.repo)?;
        let state = state::State::open(&state_path(&local), false)?;
        if args.refs {
            write_refs(&local, &state)?;
        }
        print!("{}", as_git_bisect_log(&local, &state)?);
        return Ok(ExitCode::SUCCESS);
    };
    let client = Client::new(&args.server)?;
    let path = format!("/api/v1/bisections/{name}");
    let decisions = match client.get(&format!("{path}/decisions")).await? {
        Answer::Ok(_, decisions) => decisions,
        Answer::Refused(status, problem) => return Ok(client::refused(&args.server, status, &problem)),
    };
    if args.git_bisect {
        match client.get(&path).await? {
            Answer::Ok(_, bisection) => print!("{}", git_log(&bisection, &decisions)),
            Answer::Refused(status, problem) => return Ok(client::refused(&args.server, status, &problem)),
        }
    } else if args.server.json {
        println!("{decisions}");
    } else {
        for decision in in_order(&decisions) {
            let at: String = text(decision, "/made_at").chars().take(19).collect();
            println!(
                "{}",
                printable(&format!("{at}  {}", text(decision, "/plan/reason")))
            );
        }
    }
    Ok(ExitCode::from(client::DONE))
}

/// The oldest first.
fn in_order(decisions: &Value) -> Vec<&Value> {
    let list = decisions.get("decisions").and_then(Value::as_array);
    let mut list: Vec<&Value> = list.into_iter().flatten().collect();
    list.sort_by_key(|d| d.get("record_version").and_then(Value::as_i64));
    list
}

/// The verdicts of the latest decision as marks: the commit named comes last, since git knows the last one only.
fn git_log(bisection: &Value, decisions: &Value) -> String {
    let (good, bad) = (text(bisection, "/good/commit"), text(bisection, "/bad/commit"));
    let named = text(bisection, "/conclusion/first_bad/0");
    let mark = |state, revision: &str| Mark {
        state,
        revision: revision.to_owned(),
    };
    let mut marks = vec![mark(State::New, bad), mark(State::Old, good)];
    let latest = in_order(decisions).into_iter().next_back();
    let verdicts = latest.and_then(|d| d.pointer("/plan/verdicts")?.as_array());
    for line in verdicts.into_iter().flatten() {
        let commit = text(line, "/commit");
        let state = match text(line, "/verdict") {
            "good" => State::Old,
            // Which of two bad commits is the nearer one is for git's own order to say: the one named is enough.
            "skip" => State::Skip,
            _ => continue,
        };
        if commit != good && commit != bad {
            marks.push(mark(state, commit));
        }
    }
    if !named.is_empty() && named != bad {
        marks.push(mark(State::New, named));
    }
    let log = BisectLog {
        first_parent: bisection.get("first_parent").and_then(Value::as_bool) == Some(true),
        marks,
        ..BisectLog::default()
    };
    log.write(|_| String::new())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_daemons_search_becomes_a_log_of_gits() {
        let bisection = json!({ "good": { "commit": "a0" }, "bad": { "commit": "f5" }, "first_parent": true,
            "conclusion": { "first_bad": ["d3"] } });
        let verdict = |commit, verdict| json!({ "commit": commit, "verdict": verdict });
        let decisions = json!({ "decisions": [
            { "record_version": 9, "plan": { "verdicts": [
                verdict("a0", "good"), verdict("c2", "good"), verdict("d3", "bad"), verdict("e4", "skip")] } },
            { "record_version": 2, "plan": { "verdicts": [verdict("b1", "good")] } }] });
        let text = git_log(&bisection, &decisions);
        let commands: Vec<&str> = text.lines().filter(|l| !l.starts_with('#')).collect();
        assert_eq!(
            commands,
            [
                "git bisect start '--first-parent'",
                "git bisect bad f5",
                "git bisect good a0",
                "git bisect good c2",
                "git bisect skip e4",
                "git bisect bad d3"
            ]
        );
    }
}
