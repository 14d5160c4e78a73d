//! One order, from its supplies to its report, over as many connections as it takes.

use super::call::{Call, Feed};
use super::{Fleet, FleetError, Reached, install};
use bytes::{Buf, BytesMut};
use protocol::{Event, Line, Names, Order, Report, Stored, Trip};
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::{Duration, Instant};
use tokio::io::AsyncRead;
use tokio::sync::mpsc;

/// A line holds one run's output (4 MiB twice), and JSON may write a byte as six.
const LINE_BYTES: usize = 64 << 20;

/// Trees remembered per machine as bases of thin packs.
const REMEMBERED_TREES: usize = 8;

/// Calls that ended by a signal or an odd status before the agent itself is taken to be at fault.
const BROKEN_CALLS: u32 = 4;

/// After the report the call has only its end to say.
const END_WAIT: Duration = Duration::from_secs(2);

pub type PackStream = Pin<Box<dyn AsyncRead + Send>>;
type PackFuture = Pin<Box<dyn Future<Output = Result<PackStream, String>> + Send>>;

/// A tree that the order needs, and who makes a pack of it.
pub struct TreeSupply {
    pub oid: String,
    /// Trees that may be there already (those of earlier builds): the machine is asked.
    pub bases: Vec<String>,
    /// A pack of `oid`, thin against the trees given.
    pub pack: Box<dyn Fn(Vec<String>) -> PackFuture + Send + Sync>,
}

/// What an order needs on the machine; sent only where it is missing.
#[derive(Default)]
pub struct Supplies {
    pub tree: Option<TreeSupply>,
    /// SHA-256 and where the file lies here.
    pub files: Vec<(String, PathBuf)>,
}

pub async fn carry(
    fleet: &Fleet,
    machine: &str,
    order: &Order,
    supplies: &Supplies,
    from_line: u64,
    lines: &mpsc::Sender<Line>,
) -> Result<Report, FleetError> {
    let trip = order.trip();
    let mut patience = Patience::new(fleet, machine, trip)?;
    while let Err(e) = prepare(fleet, machine, order, supplies).await {
        patience.wait(&order.id, e).await?;
    }
    let mut next = from_line;
    loop {
        let before = next;
        match follow(fleet, machine, &order.id, patience.silence, &mut next, lines).await {
            Ok(report) => return Ok(report),
            Err(e) => {
                if e.is_away() {
                    fleet.hang_up(machine)?;
                }
                if next > before {
                    patience = Patience::new(fleet, machine, trip)?;
                }
                patience.wait(&order.id, e).await?;
            }
        }
    }
}

/// How long an order without progress is still tried.
struct Patience<'a> {
    reached: &'a Reached,
    pause: Duration,
    pause_max: Duration,
    until: Instant,
    broken_calls: u32,
    silence: Duration,
    away: Duration,
}

impl<'a> Patience<'a> {
    /// A machine that travels is out of reach for as long as its boots take, and is looked for all the time: each
    /// second after it is back is lost.
    fn new(fleet: &'a Fleet, machine: &str, trip: Option<&Trip>) -> Result<Patience<'a>, FleetError> {
        let limits = &fleet.inner.limits;
        let way_s = trip.map_or(0, |t| t.shutdown_limit_s + t.firmware_limit_s + t.boot_limit_s);
        let way = Duration::from_secs(way_s.into());
        Ok(Patience {
            reached: fleet.reached(machine)?,
            pause: limits.back_off,
            pause_max: if trip.is_some() {
                limits.away
            } else {
                limits.back_off_max
            },
            until: Instant::now() + limits.give_up + 2 * way,
            broken_calls: 0,
            silence: if trip.is_some() {
                limits.trip_silence
            } else {
                limits.silence
            },
            away: limits.away,
        })
    }

    /// Pauses before the next try, or gives the error back: it does not pass, or has lasted too long.
    async fn wait(&mut self, order: &str, error: FleetError) -> Result<(), FleetError> {
        if error.is_away() && Instant::now() < self.until {
            tokio::time::sleep(self.away).await;
            return Ok(());
        }
        let may_pass = match &error {
            // The call was killed (a reboot, the OOM killer), or the agent is no longer where it was put.
            FleetError::Agent { .. } => {
                install::forget(self.reached).await;
                self.broken_calls += 1;
                self.broken_calls <= BROKEN_CALLS
            }
            other => other.is_passing(),
        };
        if !may_pass || Instant::now() + self.pause > self.until {
            return Err(error);
        }
        let (machine, pause_s) = (&self.reached.name, self.pause.as_secs_f64());
        tracing::warn!(machine, order, pause_s, "trying again: {error}");
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(self.pause_max);
        Ok(())
    }
}

/// Supplies what is missing and starts the order. Harmless when repeated, also when the order runs or has ended.
async fn prepare(fleet: &Fleet, machine: &str, order: &Order, supplies: &Supplies) -> Result<(), FleetError> {
    let files = supplies.files.iter().map(|(sha256, _)| sha256.clone()).collect();
    let trees = match &supplies.tree {
        Some(tree) => {
            let remembered = fleet
                .reached(machine)?
                .trees
                .lock()
                .expect("no holder panics")
                .clone();
            [tree.oid.clone()]
                .into_iter()
                .chain(tree.bases.iter().cloned())
                .chain(remembered)
                .collect()
        }
        None => Vec::new(),
    };
    let wanted = Names { files, trees };
    let mut there = Names::default();
    if !wanted.files.is_empty() || !wanted.trees.is_empty() {
        there = fleet.have(machine, &wanted).await?;
    }
    for (sha256, path) in supplies
        .files
        .iter()
        .filter(|(sha256, _)| !there.files.contains(sha256))
    {
        let file = tokio::fs::File::open(path)
            .await
            .map_err(|e| FleetError::Supply {
                machine: machine.into(),
                what: format!("{}: {e}", path.display()),
            })?;
        put(fleet, machine, &["put-file", sha256], Box::pin(file)).await?;
    }
    if let Some(tree) = supplies
        .tree
        .as_ref()
        .filter(|tree| !there.trees.contains(&tree.oid))
    {
        put_tree(fleet, machine, tree, there.trees).await?;
    }
    if let Some(tree) = &supplies.tree {
        remember(fleet, machine, &tree.oid)?;
    }
    fleet.start(machine, order).await.map(drop)
}

/// A thin pack first; whatever is wrong with that (a base that is not whole after all), the whole tree.
async fn put_tree(
    fleet: &Fleet,
    machine: &str,
    tree: &TreeSupply,
    bases: Vec<String>,
) -> Result<(), FleetError> {
    let supply = |what| FleetError::Supply {
        machine: machine.into(),
        what,
    };
    if !bases.is_empty() {
        let pack = (tree.pack)(bases).await.map_err(supply)?;
        match put(fleet, machine, &["put-tree", &tree.oid], pack).await {
            Ok(()) => return Ok(()),
            Err(e @ (FleetError::Refused { .. } | FleetError::Agent { .. })) => {
                tracing::warn!(machine, tree = tree.oid, "sending the whole tree: {e}");
            }
            Err(e) => return Err(e),
        }
    }
    let pack = (tree.pack)(Vec::new()).await.map_err(supply)?;
    put(fleet, machine, &["put-tree", &tree.oid], pack).await
}

async fn put(fleet: &Fleet, machine: &str, args: &[&str], content: PackStream) -> Result<(), FleetError> {
    let limit = fleet.inner.limits.transfer;
    let answer = fleet.answer(machine, args, Feed::Stream(content), limit).await?;
    answer.parse::<Stored>(machine, args[0]).map(drop)
}

fn remember(fleet: &Fleet, machine: &str, oid: &str) -> Result<(), FleetError> {
    let mut trees = fleet.reached(machine)?.trees.lock().expect("no holder panics");
    trees.retain(|known| known != oid);
    trees.push(oid.into());
    let surplus = trees.len().saturating_sub(REMEMBERED_TREES);
    trees.drain(..surplus);
    Ok(())
}

/// One connection's worth of following. `next` is the number of the first line that was not handed on yet.
async fn follow(
    fleet: &Fleet,
    machine: &str,
    order: &str,
    silence: Duration,
    next: &mut u64,
    lines: &mpsc::Sender<Line>,
) -> Result<Report, FleetError> {
    let from = next.to_string();
    let args = ["follow", order, "--from", &from];
    let mut call = fleet.call(machine, &args, Feed::Nothing, silence).await?;
    let protocol = |what: String| FleetError::Protocol {
        machine: machine.into(),
        verb: "follow".into(),
        what,
    };
    let mut text = BytesMut::new();
    let mut searched = 0;
    while let Some(chunk) = call.stdout.recv().await {
        text.extend_from_slice(&chunk);
        while let Some(length) = text[searched..]
            .iter()
            .position(|b| *b == b'\n')
            .map(|at| searched + at)
        {
            searched = 0;
            let raw = text.split_to(length);
            text.advance(1);
            let Ok(line) = serde_json::from_slice::<Line>(&raw) else {
                // Not a line: the refusal of this call, or no agent. Its end tells.
                let stdout = [&raw[..], b"\n", &text[..]].concat();
                return Err(ended_without_report(call, machine, stdout).await);
            };
            *fleet.reached(machine)?.heard.lock().expect("no holder panics") = Some(Instant::now());
            if let Some(report) = hand_on(machine, line, next, lines).await? {
                let _ = tokio::time::timeout(END_WAIT, call.end(machine)).await;
                return Ok(report);
            }
        }
        searched = text.len();
        if text.len() > LINE_BYTES {
            return Err(protocol(format!("a line of more than {LINE_BYTES} bytes")));
        }
    }
    Err(ended_without_report(call, machine, text.to_vec()).await)
}

/// Hands a new line on, in order; tells the report.
async fn hand_on(
    machine: &str,
    line: Line,
    next: &mut u64,
    lines: &mpsc::Sender<Line>,
) -> Result<Option<Report>, FleetError> {
    let report = match &line.event {
        Event::Heartbeat => return Ok(None),
        Event::Report(report) => Some(report.clone()),
        Event::Phase { .. } | Event::Console { .. } | Event::Log { .. } | Event::Run(_) => None,
    };
    if line.n > *next && report.is_none() {
        let what = format!("line {} where {} was expected", line.n, *next);
        return Err(FleetError::Protocol {
            machine: machine.into(),
            verb: "follow".into(),
            what,
        });
    }
    if line.n >= *next {
        *next = line.n + 1;
        if lines.send(line).await.is_err() {
            return Err(FleetError::Abandoned {
                machine: machine.into(),
            });
        }
    }
    Ok(report)
}

/// Why `follow` ended early: the connection, a refusal, or an agent that broke down.
async fn ended_without_report(mut call: Call, machine: &str, mut stdout: Vec<u8>) -> FleetError {
    while let Some(chunk) = call.stdout.recv().await {
        if stdout.len() < LINE_BYTES {
            stdout.extend_from_slice(&chunk);
        }
    }
    let end = match call.end(machine).await {
        Ok(end) => end,
        Err(e) => return e,
    };
    let shown = format!(
        "it ended without a report: {:.200}",
        String::from_utf8_lossy(&stdout)
    );
    match (super::call::Answer { stdout, end }).done(machine, "follow") {
        Err(e) => e,
        Ok(_) => FleetError::Protocol {
            machine: machine.into(),
            verb: "follow".into(),
            what: shown,
        },
    }
}
