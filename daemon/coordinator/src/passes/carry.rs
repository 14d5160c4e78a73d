//! Carries one attempt: from its order to its facts, under a lease that is renewed while it lasts.
//!
//! The agent works on by itself; a carrier only listens. One that dies costs a `follow` by the next.

use super::travel::{self, Travel, Turn};
use super::{Passes, beside, finish, order};
use crate::config::Lane;
use crate::fleet::FleetError;
use crate::store::attempts::{Carried, CarriedWork, LEASE_S, LogKind, LogLine};
use crate::store::facts::{Ending, Finished};
use crate::store::jobs::short_key;
use anyhow::Context;
use chrono::{DateTime, Utc};
use order::NoOrder;
use protocol::{Event, Line, Phase, Report, Run};
use serde_json::{Value, json};
use std::pin::pin;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

const RENEW: Duration = Duration::from_millis((LEASE_S * 1000.0 / 3.0) as u64);
/// Lines are kept in batches: soon enough for people who watch, seldom enough for the database.
const KEEP_AFTER: Duration = Duration::from_millis(250);
const KEEP_LINES: usize = 200;
/// Past its deadline an agent may still be cleaning up; then the machine counts as gone.
const GONE_AFTER_S: f64 = 120.0;
/// A machine that cannot be reached is tried again after this, under the same attempt.
const UNREACHABLE_PAUSE_S: f64 = 10.0;
/// A machine that is busy with a stale order has been told to stop it.
const BUSY_PAUSE_S: f64 = 1.0;
/// Tries to write an end while the database is away; then the next carrier does it.
const FINISH_TRIES: u32 = 5;
/// A call that only tidies up may fail; the sweep comes back to it.
const TIDY_LIMIT: Duration = Duration::from_secs(30);

/// How carrying came to its end.
enum Carry {
    Ended(Box<Ending>, Option<Value>),
    /// Somebody else carries it, or it has ended.
    LeaseLost,
    /// Laid down; to be taken up again after so many seconds.
    LaidDown {
        pause_s: f64,
    },
}

impl Carry {
    fn unreported(ending: Ending) -> Carry {
        Carry::Ended(Box::new(ending), None)
    }
}

pub async fn carry(p: Passes, attempt: Uuid, stop: CancellationToken) {
    let carried = match p.store.carried(attempt).await {
        Ok(Some(carried)) => carried,
        Ok(None) => return,
        Err(error) => return tracing::error!(%attempt, "cannot be read, its lease lapses: {error}"),
    };
    let machine = carried.machine.clone();
    match carry_to_end(&p, &carried, &stop).await {
        Ok(Carry::Ended(ending, report)) => end(&p, &carried, *ending, report).await,
        Ok(Carry::LeaseLost) => tracing::info!(%attempt, machine, "carried by another coordinator now"),
        Ok(Carry::LaidDown { pause_s }) => {
            if let Err(error) = p.store.release(attempt, &p.instance, pause_s).await {
                tracing::warn!(%attempt, machine, "cannot be laid down, its lease lapses: {error}");
            }
        }
        Err(error) => {
            tracing::error!(%attempt, machine, "laid down after an error: {error:#}");
            let _ = p.store.release(attempt, &p.instance, UNREACHABLE_PAUSE_S).await;
        }
    }
}

async fn carry_to_end(p: &Passes, carried: &Carried, stop: &CancellationToken) -> anyhow::Result<Carry> {
    let machine = p
        .config
        .machines
        .get(&carried.machine)
        .context("the machine is configured no more")?;
    let id = carried.id.to_string();
    if carried.cancel_asked && carried.seen_lines == 0 {
        // Perhaps never started: then it must not be started now.
        let cancelled = timeout(TIDY_LIMIT, p.fleet.cancel(&machine.name, &id)).await;
        if matches!(cancelled, Ok(Ok(c)) if !c.was_running) {
            return Ok(Carry::unreported(Ending::Cancelled));
        }
    }
    let (order, supplies) = match order::order(p, machine, carried).await {
        Ok(made) => made,
        Err(NoOrder::Kernel(excerpt)) => {
            let failure = json!({"class": "source", "excerpt": excerpt});
            return Ok(Carry::unreported(Ending::BuildFailed { failure, wall_s: 0.0 }));
        }
        Err(NoOrder::Lab(error)) => {
            return Ok(Carry::unreported(Ending::Trouble {
                what: format!("{error:#}"),
            }));
        }
    };
    if carried.seen_lines == 0 {
        announce(p, carried).await?;
    }
    let mut travel = match &carried.work {
        CarriedWork::Measure { lane, .. } | CarriedWork::Trial { lane, .. } => {
            let lane: Lane = order::read("lane", lane)?;
            travel::watch(machine, &lane.boot, carried.seen_lines > 0)
        }
        CarriedWork::Build { .. } => None,
    };
    let (send, mut lines) = mpsc::channel(256);
    let from = carried.seen_lines.cast_unsigned();
    let mut work = pin!(async {
        let report = p.fleet.carry(&machine.name, &order, supplies, from, send).await?;
        if let Report::Built(built) = &report {
            fetch(p, &machine.name, &built.manifest).await?;
        }
        Ok(report)
    });
    let gone = sleep(Duration::from_secs_f64(
        (GONE_AFTER_S - carried.overdue_s).max(1.0),
    ));
    let mut gone = pin!(gone);
    let mut renew = interval(RENEW);
    renew.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut bell = p.store.listen();
    let mut kept = Kept::new(carried);
    let mut cancels = JoinSet::new();
    let report: Result<Report, FleetError> = loop {
        tokio::select! {
            done = &mut work => break done,
            turn = turn(&mut travel, p) => match turn? {
                Turn::Console(text) => p.store.keep_console(carried.id, &text).await?,
                Turn::Cycle => if let Some(travel) = &mut travel { travel.cycle(p, carried.id) },
                Turn::Stranded(what) => return stranded(p, carried, &what).await,
            },
            Some(line) = lines.recv() => {
                if let Some(travel) = &mut travel { travel.line(&line.event) }
                kept.take(line);
                if kept.waiting.len() >= KEEP_LINES {
                    kept.keep(p).await?;
                }
            }
            () = sleep_until(kept.due), if !kept.waiting.is_empty() => kept.keep(p).await?,
            _ = renew.tick() => {
                if let Lease::Lost = renewed(p, carried, &mut cancels).await { return Ok(Carry::LeaseLost) }
            }
            () = bell.rung(), if !kept.rung_just_now() => {
                if let Lease::Lost = renewed(p, carried, &mut cancels).await { return Ok(Carry::LeaseLost) }
            }
            // Never started, and it shall not be: leaving ends its supplies.
            Some(Ok(Some(false))) = cancels.join_next(), if !cancels.is_empty() => {
                if kept.next == 0 { return Ok(Carry::unreported(Ending::Cancelled)) }
            }
            () = &mut gone => {
                let what = "nothing was heard past its deadline".to_string();
                if travel.is_some() { return stranded(p, carried, &what).await }
                return Ok(Carry::unreported(Ending::Gone { what }));
            }
            () = stop.cancelled() => {
                kept.keep(p).await?;
                return Ok(Carry::LaidDown { pause_s: 0.0 });
            }
        }
    };
    while let Ok(line) = lines.try_recv() {
        kept.take(line);
    }
    kept.keep(p).await?;
    let report = match (report, &mut travel) {
        (Ok(report), Some(travel)) => {
            p.store.keep_console(carried.id, &travel.rest()).await?;
            Ok(travel.judge(report))
        }
        (report, _) => report,
    };
    match report {
        Ok(report) => {
            let runs = runs(p, carried.id).await?;
            let ending = match unconfirmed(p, carried, &report, travel.is_some()).await? {
                Some(trouble) => trouble,
                None => finish::ending(
                    carried,
                    &report,
                    &runs,
                    &beside::gather(p, carried, machine).await?,
                )?,
            };
            Ok(Carry::Ended(
                Box::new(ending),
                Some(serde_json::to_value(&report)?),
            ))
        }
        Err(error) => without_report(p, carried, &kept, error).await,
    }
}

async fn turn(travel: &mut Option<Travel>, p: &Passes) -> anyhow::Result<Turn> {
    match travel {
        Some(travel) => travel.turn(p).await,
        None => std::future::pending().await,
    }
}

/// A boot of real hardware that fails once may be the hardware's: it counts when a second one has failed as well.
async fn unconfirmed(
    p: &Passes,
    carried: &Carried,
    report: &Report,
    travels: bool,
) -> anyhow::Result<Option<Ending>> {
    let Report::BootFailed(failed) = report else {
        return Ok(None);
    };
    let a_job = matches!(carried.work, CarriedWork::Measure { .. });
    if !travels
        || !a_job
        || failed.fault == "wrong_kernel"
        || p.store.boots_failed_before(carried.id).await? > 0
    {
        return Ok(None);
    }
    let what = format!(
        "it did not boot ({}), which counts when a second boot fails as well",
        failed.fault
    );
    Ok(Some(Ending::Trouble { what }))
}

/// The machine did not come home: it is given nothing any more until somebody has looked at it. Its job goes back, and
/// the commit has no verdict from it.
async fn stranded(p: &Passes, carried: &Carried, what: &str) -> anyhow::Result<Carry> {
    let reason = format!("it did not come home from a test kernel: {what}");
    tracing::error!(machine = carried.machine, attempt = %carried.id, "quarantined: {reason}");
    p.store.quarantine(&carried.machine, &reason).await?;
    Ok(Carry::unreported(Ending::Trouble { what: reason }))
}

/// What becomes of an attempt whose machine gave no report.
async fn without_report(
    p: &Passes,
    carried: &Carried,
    kept: &Kept,
    error: FleetError,
) -> anyhow::Result<Carry> {
    match &error {
        // Whatever runs there runs on, and says how it ended when the way is open again.
        FleetError::Unreachable { .. } | FleetError::Abandoned { .. } if kept.next > 0 => {
            tracing::warn!(attempt = %carried.id, machine = carried.machine, "{error}");
            Ok(Carry::LaidDown {
                pause_s: UNREACHABLE_PAUSE_S,
            })
        }
        FleetError::Refused { refusal, .. } if refusal.kind == "busy" => {
            stop_stale_orders(p, &carried.machine).await?;
            Ok(Carry::LaidDown {
                pause_s: BUSY_PAUSE_S,
            })
        }
        FleetError::UnknownMachine { .. }
        | FleetError::Unreachable { .. }
        | FleetError::HostKey { .. }
        | FleetError::PinnedKey { .. }
        | FleetError::Auth { .. }
        | FleetError::Refused { .. }
        | FleetError::Protocol { .. }
        | FleetError::Agent { .. }
        | FleetError::Install { .. }
        | FleetError::NoAgent { .. }
        | FleetError::Supply { .. }
        | FleetError::Power { .. }
        | FleetError::Abandoned { .. } => Ok(Carry::unreported(Ending::Trouble {
            what: error.to_string(),
        })),
    }
}

/// Stops what runs on a machine for attempts that have ended, so that it takes new orders.
async fn stop_stale_orders(p: &Passes, machine: &str) -> anyhow::Result<()> {
    let probe = p.fleet.probe(machine).await?;
    let running = probe
        .orders
        .iter()
        .filter(|o| o.running)
        .filter_map(|o| o.id.parse().ok());
    let ids: Vec<Uuid> = running.collect();
    for ended in p.store.ended_among(&ids).await? {
        tracing::info!(machine, order = %ended.id, "stopping an order whose attempt has ended");
        p.fleet.cancel(machine, &ended.id.to_string()).await?;
    }
    Ok(())
}

enum Lease {
    Stands,
    Lost,
}

/// Renews the lease and passes a cancellation on, aside: the agent's answer may have to wait for lines that only
/// the caller takes. What comes back is whether the order was running.
async fn renewed(p: &Passes, carried: &Carried, cancels: &mut JoinSet<Option<bool>>) -> Lease {
    let renewed = match p.store.renew(carried.id, &p.instance).await {
        Ok(Some(renewed)) => renewed,
        Ok(None) => return Lease::Lost,
        Err(error) => {
            tracing::warn!(attempt = %carried.id, "the lease cannot be renewed now: {error}");
            return Lease::Stands;
        }
    };
    if renewed.cancel_asked && cancels.is_empty() {
        let (fleet, machine, order) = (p.fleet.clone(), carried.machine.clone(), carried.id.to_string());
        cancels.spawn(async move {
            match timeout(TIDY_LIMIT, fleet.cancel(&machine, &order)).await {
                Ok(Ok(cancelled)) => Some(cancelled.was_running),
                Ok(Err(error)) => {
                    tracing::warn!(order, machine, "cannot be cancelled yet: {error}");
                    None
                }
                Err(_) => None,
            }
        });
    }
    Lease::Stands
}

/// Lines on their way into the record.
struct Kept {
    attempt: Uuid,
    waiting: Vec<LogLine>,
    next: i64,
    phase: Option<Phase>,
    /// When what waits is to be kept.
    due: Instant,
    last: Instant,
}

impl Kept {
    fn new(carried: &Carried) -> Kept {
        let now = Instant::now();
        Kept {
            attempt: carried.id,
            waiting: Vec::new(),
            next: carried.seen_lines,
            phase: None,
            due: now,
            last: now,
        }
    }

    fn take(&mut self, line: Line) {
        let n = i64::try_from(line.n).unwrap_or(i64::MAX - 1);
        self.next = self.next.max(n + 1);
        let (kind, text) = match line.event {
            Event::Phase { phase, .. } => {
                self.phase = Some(phase);
                (LogKind::Phase, word(phase))
            }
            Event::Console { text } => (LogKind::Console, text),
            Event::Log { text } => (LogKind::Log, text),
            Event::Run(run) => match serde_json::to_string(&run) {
                Ok(text) => (LogKind::Run, text),
                Err(_) => return,
            },
            Event::Heartbeat | Event::Report(_) => return,
        };
        if self.waiting.is_empty() {
            self.due = Instant::now() + KEEP_AFTER;
        }
        let at_ms = i64::try_from(line.at_ms).unwrap_or(0);
        let at = DateTime::from_timestamp_millis(at_ms).unwrap_or_else(Utc::now);
        self.waiting.push(LogLine { n, kind, text, at });
    }

    /// The bell rings for our own lines, too; that is no news for us.
    fn rung_just_now(&self) -> bool {
        self.last.elapsed() < KEEP_AFTER
    }

    async fn keep(&mut self, p: &Passes) -> anyhow::Result<()> {
        let phase = self.phase.take().map(word);
        if self.waiting.is_empty() && phase.is_none() {
            return Ok(());
        }
        let lines = std::mem::take(&mut self.waiting);
        p.store
            .keep_lines(self.attempt, &lines, self.next, phase.as_deref())
            .await?;
        self.last = Instant::now();
        Ok(())
    }
}

fn word(phase: Phase) -> String {
    match serde_json::to_value(phase) {
        Ok(Value::String(word)) => word,
        _ => String::new(),
    }
}

async fn announce(p: &Passes, carried: &Carried) -> anyhow::Result<()> {
    let Some(bisection) = carried.bisection else {
        return Ok(());
    };
    let (kind, kernel_key) = match &carried.work {
        CarriedWork::Build { kernel_key, .. } => ("building", kernel_key),
        CarriedWork::Measure { kernel_key, .. } => ("booting", kernel_key),
        CarriedWork::Trial { .. } => return Ok(()),
    };
    let text = format!("{kind} {} on {}", short_key(kernel_key), carried.machine);
    Ok(p.store.say(bisection, kind, &text).await?)
}

/// Brings an image's files home, so that any machine can boot it.
async fn fetch(p: &Passes, machine: &str, manifest: &protocol::ImageManifest) -> Result<(), FleetError> {
    let failed = |what: String| FleetError::Supply {
        machine: machine.to_string(),
        what,
    };
    for file in &manifest.files {
        if p.images
            .has(&file.sha256)
            .await
            .map_err(|e| failed(e.to_string()))?
        {
            continue;
        }
        let content = p.fleet.get_file(machine, &file.sha256).await?;
        p.images
            .put(&file.sha256, content)
            .await
            .map_err(|e| failed(e.to_string()))?;
    }
    Ok(())
}

/// The benchmark's runs as they are in the record: also those that an earlier carrier received.
pub(super) async fn runs(p: &Passes, attempt: Uuid) -> anyhow::Result<Vec<Run>> {
    let stored = p.store.runs_of(attempt).await?;
    stored
        .iter()
        .map(|text| serde_json::from_str(text).context("a stored run"))
        .collect()
}

/// Keeps lines that arrived otherwise than under a lease.
pub(super) async fn keep_all(
    p: &Passes,
    carried: &Carried,
    lines: &mut mpsc::Receiver<Line>,
) -> anyhow::Result<()> {
    let mut kept = Kept::new(carried);
    while let Some(line) = lines.recv().await {
        kept.take(line);
    }
    kept.keep(p).await
}

/// Writes the end into the record, then lets the agent forget the order.
pub(super) async fn end(p: &Passes, carried: &Carried, ending: Ending, report: Option<Value>) {
    let (attempt, machine) = (carried.id, carried.machine.as_str());
    let mut tries = 0;
    let finished = loop {
        match p
            .store
            .finish(attempt, &p.instance, report.as_ref(), &ending)
            .await
        {
            Ok(finished) => break finished,
            Err(error) if tries < FINISH_TRIES => {
                tracing::warn!(%attempt, machine, "its end cannot be written now: {error}");
                tries += 1;
                sleep(Duration::from_millis(200 << tries)).await;
            }
            Err(error) => return tracing::error!(%attempt, machine, "its end cannot be written: {error}"),
        }
    };
    match finished {
        Finished::Recorded => {}
        Finished::Evidence => {
            tracing::info!(%attempt, machine, "its report came late and is kept as evidence")
        }
        Finished::NotOurs => return tracing::info!(%attempt, machine, "another coordinator decides about it"),
    }
    if let Err(error) = p.store.quarantine_losers().await {
        tracing::error!(machine, "machines that lose jobs cannot be set aside: {error}");
    }
    if report.is_some() {
        match timeout(TIDY_LIMIT, p.fleet.erase(machine, &attempt.to_string())).await {
            Ok(Ok(())) | Err(_) => {}
            Ok(Err(error)) => tracing::info!(%attempt, machine, "its spool is erased later: {error}"),
        }
    }
}
