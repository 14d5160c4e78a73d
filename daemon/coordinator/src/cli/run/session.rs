//! A run under way: what the mind asks for is checked out, built and measured, and every fact is kept at once.

use super::measure::{Ended, Interrupt, Outputs, Start};
use super::state::{Line, State, observed};
use crate::cli::display::{Display, Tint, bar, duration};
use crate::plan_json::conclusion_to_json;
use crate::tree::local::{Local, Span};
use crate::tree::worktrees::Worktrees;
use anyhow::{Context, bail};
use bisect::{CommitId, Conclusion, History, Job, Outcome, Plan, Planner, Step, Value, Verdict};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A search that has not ended after so many steps never will.
const MOST_STEPS: usize = 100_000;
/// Characters of an id that are shown.
pub const SHORT: usize = 12;
const BAR: usize = 20;
/// Characters that a verdict takes.
const WORD: usize = 9;

pub struct Session {
    pub local: Local,
    pub state: State,
    pub worktrees: Worktrees,
    pub outputs: Outputs,
    pub display: Display,
    pub interrupt: Interrupt,
    /// Measured and not shown yet: the next plan says what it means.
    pub news: Option<(CommitId, String)>,
}

/// How a run ended.
pub enum End {
    Concluded(Box<Conclusion>),
    /// Everything measured is kept.
    Interrupted,
    /// The command's word, or its being broken.
    Stopped(String),
}

/// What one job came to.
enum Done {
    Kept,
    Ended(End),
}

impl Session {
    pub fn span(&self, good: &CommitId) -> Span {
        let settings = &self.state.settings;
        Span {
            good: good.clone(),
            bad: CommitId::new(&settings.bad),
            first_parent: settings.first_parent,
            paths: settings.paths.clone(),
        }
    }

    /// Seconds since the run began, pauses counted: the machine's level may have moved meanwhile.
    pub fn now_s(&self) -> f64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        (now.as_secs_f64() - self.state.settings.began_unix_s).max(0.0)
    }

    /// Measures until the mind concludes; `enough` may end it earlier, with nothing concluded.
    pub async fn drive(
        &mut self,
        history: &History,
        enough: &dyn Fn(&Plan) -> bool,
    ) -> anyhow::Result<(Plan, Option<End>)> {
        let mut planner = Planner::new();
        for _ in 0..MOST_STEPS {
            let record = self.state.record(history, self.now_s());
            let plan = planner.plan(history, &record);
            if let Some((commit, text)) = self.news.take() {
                let word = self.verdict(&plan, &commit);
                self.tell(&commit, &word, &text);
            }
            if enough(&plan) {
                return Ok((plan, None));
            }
            let job = match &plan.step {
                Step::Conclude(conclusion) => {
                    let end = End::Concluded(Box::new(conclusion.clone()));
                    return Ok((plan, Some(end)));
                }
                Step::Run(jobs) => jobs.first().context("the plan asks for nothing")?.clone(),
                Step::Wait => bail!("the plan waits, and nothing is under way"),
            };
            if let Done::Ended(end) = self.measure(&job, &plan).await? {
                return Ok((plan, Some(end)));
            }
        }
        bail!("no end after {MOST_STEPS} steps")
    }

    pub fn keep_conclusion(&mut self, conclusion: &Conclusion) -> anyhow::Result<()> {
        self.state.add(&Line::Concluded(conclusion_to_json(conclusion)))
    }

    async fn measure(&mut self, job: &Job, plan: &Plan) -> anyhow::Result<Done> {
        let commit = job.kernel.commit.clone();
        let (folder, built) = self.worktrees.at(&commit)?;
        if !built && let Some(done) = self.build(job, &folder, plan).await? {
            return Ok(done);
        }
        let settings = &self.state.settings;
        let measure = settings.measure.clone();
        let start = Start {
            program: &measure.command,
            folder: &folder,
            env: vec![
                ("PERFBISECT_COMMIT", commit.to_string()),
                ("PERFBISECT_RUNS", job.runs.to_string()),
                ("PERFBISECT_BOOT", job.replicate.to_string()),
                ("PERFBISECT_CHECKOUT", self.local.top.display().to_string()),
            ],
            limit: measure.timeout_s.map(Duration::from_secs_f64),
            outputs: &self.outputs,
            state: &self.state.path,
        };
        let said = saying(plan, &self.state, &commit, "measuring");
        let at_s = self.now_s();
        let began = Instant::now();
        let display = &mut self.display;
        let mut tick = |for_so_long: Duration| display.status(&said(for_so_long));
        let metric = self.state.policy.metric.clone();
        let ended = measure
            .run(&metric, start, &mut self.interrupt, &mut tick)
            .await?;
        let took_s = began.elapsed().as_secs_f64();
        let nothing_yet = !self.state.any_measured();
        let outcome = match ended {
            Ended::Measured(values) => Outcome::Measured {
                values,
                others: Default::default(),
            },
            Ended::Skip => return self.skip(&commit),
            // The first number that is missing is a slip in the command; a later one is the commit's.
            Ended::NoNumber(why) if nothing_yet => {
                return Ok(Done::Ended(End::Stopped(format!(
                    "{}: {why}",
                    self.name(&commit)
                ))));
            }
            Ended::Failed(why) | Ended::NoNumber(why) => {
                self.tell(&commit, "failed", &why);
                Outcome::BenchmarkFailed
            }
            Ended::Stop(why) => {
                return Ok(Done::Ended(End::Stopped(format!(
                    "{}: {why}",
                    self.name(&commit)
                ))));
            }
            Ended::Interrupted => return Ok(Done::Ended(End::Interrupted)),
            Ended::Built => bail!("a measurement is no build"),
        };
        self.state
            .add(&observed(&job.kernel, job.replicate, at_s, took_s, &outcome))?;
        if let Outcome::Measured { values, .. } = &outcome {
            let shown: Vec<String> = values.iter().map(shown).collect();
            let unit = &self.state.policy.metric.unit;
            self.news = Some((
                commit,
                format!("{} {unit}", shown.join(" ")).trim_end().to_owned(),
            ));
        }
        Ok(Done::Kept)
    }

    /// Something to say where the build ends the job.
    async fn build(&mut self, job: &Job, folder: &Path, plan: &Plan) -> anyhow::Result<Option<Done>> {
        let commit = job.kernel.commit.clone();
        let measure = self.state.settings.measure.clone();
        let began = Instant::now();
        if let Some(script) = &measure.build {
            let start = Start {
                program: &["sh".to_owned(), "-c".to_owned(), script.clone()],
                folder,
                env: vec![
                    ("PERFBISECT_COMMIT", commit.to_string()),
                    ("PERFBISECT_CHECKOUT", self.local.top.display().to_string()),
                ],
                limit: None,
                outputs: &self.outputs,
                state: &self.state.path,
            };
            let said = saying(plan, &self.state, &commit, "building");
            let display = &mut self.display;
            let mut tick = |for_so_long: Duration| display.status(&said(for_so_long));
            match measure.build(start, &mut self.interrupt, &mut tick).await? {
                Ended::Built => {}
                Ended::Skip => return self.skip(&commit).map(Some),
                // It was measured before: the machine's trouble, not the commit's, and asking again would not end it.
                Ended::Failed(why) if self.state.is_measured(&commit) => {
                    let why = format!("{}: was built before and now is not: {why}", short(&commit));
                    return Ok(Some(Done::Ended(End::Stopped(why))));
                }
                Ended::Failed(why) | Ended::NoNumber(why) => {
                    self.tell(&commit, "not built", &why);
                    let now_s = self.now_s();
                    let took_s = began.elapsed().as_secs_f64();
                    let line = observed(&job.kernel, job.replicate, now_s, took_s, &Outcome::BuildFailed);
                    self.state.add(&line)?;
                    return Ok(Some(Done::Kept));
                }
                Ended::Stop(why) => {
                    return Ok(Some(Done::Ended(End::Stopped(format!(
                        "{}: {why}",
                        self.name(&commit)
                    )))));
                }
                Ended::Interrupted => return Ok(Some(Done::Ended(End::Interrupted))),
                Ended::Measured(_) => bail!("a build measures nothing"),
            }
        }
        let digest = match &measure.artifact {
            Some(file) => digest(&folder.join(file))?,
            // The same source is the same program.
            None => format!("tree:{}", self.local.tree_of(&commit)?),
        };
        self.worktrees.built(&commit)?;
        let took_s = began.elapsed().as_secs_f64();
        let commit = commit.to_string();
        self.state.add(&Line::Built {
            commit,
            digest,
            took_s,
        })?;
        Ok(None)
    }

    fn skip(&mut self, commit: &CommitId) -> anyhow::Result<Done> {
        self.tell(commit, "skip", "cannot be tested (exit code 125)");
        self.state.add(&Line::Word {
            commit: commit.to_string(),
            verdict: "skip".into(),
            why: "exit code 125".into(),
        })?;
        Ok(Done::Kept)
    }

    fn name(&self, commit: &CommitId) -> String {
        short(commit)
    }

    /// What is believed of a commit, with its probability where that is open.
    fn verdict(&self, plan: &Plan, commit: &CommitId) -> String {
        let (old, new) = &self.state.settings.terms;
        let line = plan.verdicts.iter().find(|v| v.commit == *commit);
        match line.map(|l| &l.verdict) {
            Some(Verdict::Good) => self.display.tint(old, Tint::Good),
            Some(Verdict::Bad) => self.display.tint(new, Tint::Bad),
            Some(Verdict::Open) if line.is_some_and(|l| l.p_bad.is_some()) => {
                let p_bad = line.and_then(|l| l.p_bad).unwrap_or_default();
                format!("{new} {:.0} %", 100.0 * p_bad)
            }
            _ => String::new(),
        }
    }

    fn tell(&mut self, commit: &CommitId, word: &str, text: &str) {
        let number = self.state.observations.len();
        let name = short(commit);
        let subject: String = match self.display.is_terminal() {
            true => format!("  {}", self.display.tint(&self.local.subject(commit), Tint::Dim)),
            false => String::new(),
        };
        // Colours have no width.
        let pad = " ".repeat(WORD.saturating_sub(Display::width(word)));
        self.display
            .line(&format!("{number:>4}  {name}  {word}{pad}  {text}{subject}"));
    }
}

/// What the bottom line says while a command runs.
fn saying(plan: &Plan, state: &State, commit: &CommitId, doing: &str) -> impl Fn(Duration) -> String + use<> {
    let (done_s, left_s) = (state.spent_s(), plan.remaining.time_s);
    let share = if done_s + left_s > 0.0 {
        done_s / (done_s + left_s)
    } else {
        0.0
    };
    let lead = plan.suspects.first().filter(|s| s.probability > 0.02);
    let lead = lead.map(|s| format!(", {} {:.0} %", short(&s.commit), 100.0 * s.probability));
    let left = if left_s > 0.0 {
        format!(
            " · about {} boots, {} left",
            plan.remaining.boots,
            duration(left_s)
        )
    } else {
        String::new()
    };
    let suspects = plan.suspects_left;
    let (commit, doing, lead) = (short(commit), doing.to_owned(), lead.unwrap_or_default());
    move |for_so_long| {
        format!(
            "{} {doing} {commit} {} s · {suspects} suspects{lead}{left}",
            bar(share, BAR),
            for_so_long.as_secs()
        )
    }
}

pub fn short(commit: &CommitId) -> String {
    commit.as_str().chars().take(SHORT).collect()
}

fn shown(value: &Value) -> String {
    match value {
        Value::Exact(x) => figure(*x),
        Value::AtLeast(x) => format!("> {}", figure(*x)),
        Value::AtMost(x) => format!("< {}", figure(*x)),
    }
}

/// Six significant digits: more than any benchmark has.
fn figure(x: f64) -> String {
    let before = if x == 0.0 {
        0
    } else {
        x.abs().log10().floor() as i32
    };
    format!("{x:.*}", (5 - before).clamp(0, 12) as usize)
}

fn digest(file: &PathBuf) -> anyhow::Result<String> {
    let bytes = std::fs::read(file)
        .with_context(|| format!("--artifact {}: the build left no such file", file.display()))?;
    Ok(Sha256::digest(&bytes)
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect())
}
