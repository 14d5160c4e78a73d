//! One start of the user's command, or of their build: a fresh process in a worktree, and what came of it.
//!
//! The exit codes are those of `git bisect run`, except that the number decides what is slow: 0 the number counts,
//! 125 this commit cannot be tested, 126 and 127 the command itself is broken, 128 and more (or a signal) stop; any
//! other is a failure that says nothing about speed.

use anyhow::{Context, bail};
use bisect::{Metric, Value};
use parsers::{Parser, Wanted};
use rustix::process::{Pid, Signal, kill_process, kill_process_group, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tokio::process::Command;

const BUILD: &str = "build";
/// In the environment of everything a run starts: its state file, by which leftovers of a killed run are found.
const MARK: &str = "PERFBISECT_RUN";
/// Output beyond this is not read: a benchmark prints a number, not a film.
const MOST_OUTPUT: u64 = 16 << 20;
/// Lines of a failed command that are shown.
const SHOWN_LINES: usize = 8;
/// A run that may last for ever is cut off here.
const FOR_EVER: Duration = Duration::from_secs(365 * 86_400);

/// How a commit is built and measured.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measure {
    pub command: Vec<String>,
    /// For the shell.
    pub build: Option<String>,
    /// The number is the seconds that the command takes.
    pub time: bool,
    pub parser: Option<String>,
    pub pattern: Option<String>,
    pub timeout_s: Option<f64>,
    /// A file of the build; where two are equal, so are the commits.
    pub artifact: Option<String>,
}

/// How one start ended.
#[derive(Debug)]
pub enum Ended {
    /// The values of one boot, in order.
    Measured(Vec<Value>),
    /// A build: all went well.
    Built,
    Skip,
    /// Says nothing about speed; why, in words.
    Failed(String),
    /// Nothing was found to be measured, though the command ended well.
    NoNumber(String),
    /// The command itself is broken, or said stop.
    Stop(String),
    Interrupted,
}

/// Where the output of what runs now goes.
pub struct Outputs {
    folder: PathBuf,
}

impl Outputs {
    pub fn new(folder: PathBuf) -> Outputs {
        Outputs { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn read(&self, name: &str) -> String {
        use std::io::Read;
        let mut bytes = Vec::new();
        if let Ok(file) = File::open(self.path(name)) {
            // What cannot be read is as good as not printed.
            let _ = file.take(MOST_OUTPUT).read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The last words of a command.
    fn tail(&self) -> String {
        let text = self.read("stderr");
        let text = if text.trim().is_empty() {
            self.read("stdout")
        } else {
            text
        };
        let lines: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).collect();
        let from = lines.len().saturating_sub(SHOWN_LINES);
        lines[from..].join("\n  ")
    }
}

/// Waits for what ends a run from outside.
pub struct Interrupt {
    int: tokio::signal::unix::Signal,
    term: tokio::signal::unix::Signal,
}

impl Interrupt {
    pub fn listen() -> anyhow::Result<Interrupt> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Interrupt {
            int: signal(SignalKind::interrupt())?,
            term: signal(SignalKind::terminate())?,
        })
    }

    async fn wait(&mut self) {
        tokio::select! { _ = self.int.recv() => {} _ = self.term.recv() => {} }
    }
}

/// One start of `program` in `folder`.
pub struct Start<'a> {
    pub program: &'a [String],
    pub folder: &'a Path,
    pub env: Vec<(&'static str, String)>,
    pub limit: Option<Duration>,
    pub outputs: &'a Outputs,
    pub state: &'a Path,
}

enum Finished {
    Exit(ExitStatus, Duration),
    Timeout(Duration),
    Interrupted,
}

impl Start<'_> {
    async fn run(
        &self,
        interrupt: &mut Interrupt,
        tick: &mut dyn FnMut(Duration),
    ) -> anyhow::Result<Result<Finished, String>> {
        let (name, args) = self
            .program
            .split_first()
            .context("there is no command to start")?;
        let mut command = Command::new(name);
        command.args(args).current_dir(self.folder).stdin(Stdio::null());
        command.stdout(File::create(self.outputs.path("stdout"))?);
        command.stderr(File::create(self.outputs.path("stderr"))?);
        // A hook's variables would lead git in the command to the user's own checkout.
        for variable in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX"] {
            command.env_remove(variable);
        }
        command
            .env(MARK, self.state)
            .envs(self.env.iter().map(|(k, v)| (k, v)));
        command.process_group(0).kill_on_drop(true);
        // SAFETY: between fork and exec this makes one system call and allocates nothing.
        unsafe {
            command.pre_exec(|| set_parent_process_death_signal(Some(Signal::KILL)).map_err(Into::into));
        }
        let began = Instant::now();
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => return Ok(Err(format!("{name}: cannot be started: {error}"))),
        };
        let group = child.id().and_then(|id| Pid::from_raw(id as i32));
        let limit = tokio::time::sleep(self.limit.unwrap_or(FOR_EVER));
        tokio::pin!(limit);
        let mut second = tokio::time::interval(Duration::from_secs(1));
        let finished = loop {
            tokio::select! {
                status = child.wait() => break Finished::Exit(status?, began.elapsed()),
                () = &mut limit => break Finished::Timeout(began.elapsed()),
                () = interrupt.wait() => break Finished::Interrupted,
                _ = second.tick() => tick(began.elapsed()),
            }
        };
        // Whatever it left running would disturb the next measurement.
        if let Some(group) = group {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = child.wait().await;
        Ok(Ok(finished))
    }
}

impl Measure {
    /// Runs the build in `folder`, where there is one.
    pub async fn build(
        &self,
        start: Start<'_>,
        interrupt: &mut Interrupt,
        tick: &mut dyn FnMut(Duration),
    ) -> anyhow::Result<Ended> {
        Ok(match start.run(interrupt, tick).await? {
            Err(why) => Ended::Stop(why),
            Ok(Finished::Interrupted) => Ended::Interrupted,
            Ok(Finished::Timeout(_)) => Ended::Failed("the build did not end in time".into()),
            Ok(Finished::Exit(status, _)) if status.success() => Ended::Built,
            Ok(Finished::Exit(status, _)) => failed(BUILD, status, start.outputs),
        })
    }

    /// Runs the command in `folder` once and reads its numbers.
    pub async fn run(
        &self,
        metric: &Metric,
        start: Start<'_>,
        interrupt: &mut Interrupt,
        tick: &mut dyn FnMut(Duration),
    ) -> anyhow::Result<Ended> {
        Ok(match start.run(interrupt, tick).await? {
            Err(why) => Ended::Stop(why),
            Ok(Finished::Interrupted) => Ended::Interrupted,
            // At least this slow: that is a measurement, too.
            Ok(Finished::Timeout(took)) if self.time => {
                Ended::Measured(vec![Value::AtLeast(took.as_secs_f64())])
            }
            Ok(Finished::Timeout(took)) => Ended::Failed(format!(
                "not done after {:.0} s (--timeout-s)",
                took.as_secs_f64()
            )),
            Ok(Finished::Exit(status, took)) if status.success() => match self.time {
                true => Ended::Measured(vec![Value::Exact(took.as_secs_f64())]),
                false => match self.numbers(metric, start.outputs)? {
                    Ok(values) => Ended::Measured(values),
                    Err(why) => Ended::NoNumber(why),
                },
            },
            Ok(Finished::Exit(status, _)) => failed("command", status, start.outputs),
        })
    }

    /// The parser that was named, or nothing: plain numbers, one a line.
    pub fn parser(&self, metric: &str) -> anyhow::Result<Option<Parser>> {
        if let Some(pattern) = &self.pattern {
            let patterns = BTreeMap::from([(metric.to_owned(), pattern.clone())]);
            return Ok(Some(
                Parser::regex(&patterns).map_err(|e| anyhow::anyhow!("--pattern: {e}"))?,
            ));
        }
        Ok(match self.parser.as_deref() {
            None => None,
            Some("fio") => Some(Parser::Fio),
            Some("tiotest") => Some(Parser::Tiotest),
            Some("tiobench") => Some(Parser::Tiobench),
            Some("dbench") => Some(Parser::Dbench),
            Some("hackbench") => Some(Parser::Hackbench),
            Some("perf_bench") => Some(Parser::PerfBench),
            Some(other) => bail!("--parser {other}: there is none of that name"),
        })
    }

    fn numbers(&self, metric: &Metric, outputs: &Outputs) -> anyhow::Result<Result<Vec<Value>, String>> {
        let stdout = outputs.read("stdout");
        let Some(parser) = self.parser(&metric.name)? else {
            return Ok(plain_numbers(&stdout, metric.may_be_zero));
        };
        let found = match parser.parse(&stdout, &outputs.read("stderr")) {
            Ok(found) => found,
            Err(why) => return Ok(Err(why.to_string())),
        };
        let unit = found
            .get(&metric.name)
            .and_then(|n| n.unit)
            .unwrap_or(&metric.unit);
        let wanted = Wanted {
            name: metric.name.clone(),
            unit: unit.to_owned(),
            may_be_zero: metric.may_be_zero,
        };
        let number = parsers::judge_one(&found, &wanted);
        Ok(number
            .map(|n| vec![Value::Exact(n)])
            .map_err(|why| why.to_string()))
    }
}

/// Every line that is a number and nothing else.
fn plain_numbers(text: &str, may_be_zero: bool) -> Result<Vec<Value>, String> {
    let mut values = Vec::new();
    for number in text.lines().filter_map(|line| line.trim().parse::<f64>().ok()) {
        if !number.is_finite() || (number <= 0.0 && !may_be_zero) {
            return Err(format!(
                "it printed {number}: only numbers above 0 count (others need --min-effect-abs)"
            ));
        }
        values.push(Value::Exact(number));
    }
    if values.is_empty() {
        return Err(
            "it printed no line that is a number: print one, or use --time, --pattern or --parser".into(),
        );
    }
    Ok(values)
}

/// What an exit means that is no success. A build may well lack a script at one commit and have it at the next: its
/// 126 and 127 are failures like others.
fn failed(what: &str, status: ExitStatus, outputs: &Outputs) -> Ended {
    let tail = outputs.tail();
    let tail = if tail.is_empty() {
        tail
    } else {
        format!(":\n  {tail}")
    };
    match (status.code(), status.signal()) {
        (Some(125), _) => Ended::Skip,
        (Some(code @ (126 | 127)), _) if what != BUILD => Ended::Stop(format!(
            "the {what} is broken (exit code {code}): it is started in a worktree of the commit, where only files of that \
             commit are; name scripts of your own by their whole path{tail}"
        )),
        (Some(code), _) if code >= 128 => {
            Ended::Stop(format!("the {what} said stop (exit code {code}){tail}"))
        }
        (Some(code), _) => Ended::Failed(format!("the {what} failed (exit code {code}){tail}")),
        (None, signal) => Ended::Stop(format!(
            "the {what} was ended by signal {}{tail}",
            signal.unwrap_or_default()
        )),
    }
}

/// Ends what a killed run of this state file left behind: it would disturb what is measured now.
pub fn end_leftovers(state: &Path) {
    let mark = [MARK.as_bytes(), b"=", state.as_os_str().as_encoded_bytes()].concat();
    let own = std::process::id();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(id) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        let marked = std::fs::read(entry.path().join("environ"))
            .is_ok_and(|all| all.split(|b| *b == 0).any(|variable| variable == mark));
        if let (true, true, Some(pid)) = (marked, id != own, Pid::from_raw(id as i32)) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_lines_of_their_own() {
        assert_eq!(
            plain_numbers("run 1\n 12.5 \n3e2\n12 ms\n", false),
            Ok(vec![Value::Exact(12.5), Value::Exact(300.0)])
        );
        assert!(plain_numbers("12 ms\n", false).is_err());
        assert!(plain_numbers("0\n", false).is_err());
        assert_eq!(plain_numbers("-1\n", true), Ok(vec![Value::Exact(-1.0)]));
    }
}
