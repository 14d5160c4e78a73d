//! The machines: reach an agent, by SSH or as a child process, and have it carry out an order.
//!
//! Both ways carry the same calls of the same program (`protocol` names the verbs). A dropped connection costs a
//! `follow` from the next line, nothing else. What an order means, what is done with its report, and where trees
//! and images come from is not known here: they come in as bytes.

mod call;
mod carry;
mod error;
mod install;
mod local;
pub mod power;
mod ssh;

pub use carry::{PackStream, Supplies, TreeSupply};
pub use error::FleetError;
pub use install::agent_file;

use crate::config::{Address, Machine};
use call::{Answer, Call, Feed};
use protocol::{Cancelled, Names, Order, Probe, Started};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, ReadBuf};

/// How long things may take. The defaults are for production; a test that waits for one makes it shorter.
#[derive(Clone, Debug)]
pub struct Limits {
    /// TCP connect, handshake, login, and each step of an upload.
    pub login: Duration,
    /// No byte on a `follow`, heartbeats counted, for so long: the machine or the way to it is dead.
    pub silence: Duration,
    /// The same for calls that answer at once.
    pub answer: Duration,
    /// The same for transfers: after the last byte the agent indexes and checks, silently.
    pub transfer: Duration,
    /// Pause before the first new connection; it doubles up to `back_off_max`.
    pub back_off: Duration,
    pub back_off_max: Duration,
    /// A machine on its way to a test kernel or home is asked again after so long.
    pub away: Duration,
    /// `silence` of a machine that travels: a kernel may die under the connection.
    pub trip_silence: Duration,
    /// Without any progress for so long an order is given up as unreachable.
    pub give_up: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            login: Duration::from_secs(15),
            silence: Duration::from_secs(6 * protocol::HEARTBEAT_S),
            answer: Duration::from_secs(60),
            transfer: Duration::from_secs(600),
            back_off: Duration::from_millis(500),
            back_off_max: Duration::from_secs(30),
            away: Duration::from_secs(1),
            trip_silence: Duration::from_secs(3 * protocol::HEARTBEAT_S),
            give_up: Duration::from_secs(900),
        }
    }
}

/// All configured machines; cheap to clone.
#[derive(Clone)]
pub struct Fleet {
    inner: Arc<Inner>,
}

struct Inner {
    machines: BTreeMap<String, Reached>,
    agent: install::AgentFile,
    limits: Limits,
}

struct Reached {
    name: String,
    work_dir: PathBuf,
    reach: Reach,
    /// When the agent last said anything that was not `away`, heartbeats counted.
    heard: std::sync::Mutex<Option<std::time::Instant>>,
    /// Trees this process has put there, the newest last: bases for thin packs.
    trees: std::sync::Mutex<Vec<String>>,
}

enum Reach {
    Local,
    Ssh(ssh::Ssh),
}

impl Fleet {
    pub fn new(machines: &BTreeMap<String, Machine>, agent: &Path) -> Result<Fleet, FleetError> {
        Fleet::with_limits(machines, agent, Limits::default())
    }

    pub fn with_limits(
        machines: &BTreeMap<String, Machine>,
        agent: &Path,
        limits: Limits,
    ) -> Result<Fleet, FleetError> {
        let agent = install::AgentFile::read(agent)?;
        let mut hosts = ssh::Hosts::default();
        let mut reached = BTreeMap::new();
        for (name, machine) in machines {
            let reach = match &machine.address {
                Address::Local => Reach::Local,
                Address::Ssh { user, host, port } => Reach::Ssh(ssh::Ssh::new(
                    name,
                    user,
                    host,
                    *port,
                    machine.ssh.as_ref(),
                    limits.login,
                    &mut hosts,
                )?),
            };
            let (name, work_dir) = (name.clone(), machine.work_dir.clone());
            reached.insert(
                name.clone(),
                Reached {
                    name,
                    work_dir,
                    reach,
                    heard: Default::default(),
                    trees: Default::default(),
                },
            );
        }
        Ok(Fleet {
            inner: Arc::new(Inner {
                machines: reached,
                agent,
                limits,
            }),
        })
    }

    /// SHA-256 of the agent this daemon installs.
    pub fn agent_sha256(&self) -> &str {
        &self.inner.agent.sha256
    }

    /// What the machine is; installs the agent where it is not.
    pub async fn probe(&self, machine: &str) -> Result<Probe, FleetError> {
        self.ask(machine, &["probe"], Feed::Nothing).await
    }

    /// Stops an order; an unknown one is no error (`was_running` is false).
    pub async fn cancel(&self, machine: &str, order: &str) -> Result<Cancelled, FleetError> {
        self.ask(machine, &["cancel", order], Feed::Nothing).await
    }

    /// Forgets an order's spool. Only after its report is committed.
    pub async fn erase(&self, machine: &str, order: &str) -> Result<(), FleetError> {
        let answer = self
            .answer(
                machine,
                &["erase", order],
                Feed::Nothing,
                self.inner.limits.answer,
            )
            .await?;
        answer.done(machine, "erase").map(drop)
    }

    /// Carries one order to its report: supplies what is missing, starts it where it is not known yet, and
    /// follows it from line `from_line` on, over as many connections as it takes. Every line from there on
    /// goes to `lines`, in order and once, the report's included; heartbeats do not.
    pub async fn carry(
        &self,
        machine: &str,
        order: &Order,
        supplies: Supplies,
        from_line: u64,
        lines: tokio::sync::mpsc::Sender<protocol::Line>,
    ) -> Result<protocol::Report, FleetError> {
        carry::carry(self, machine, order, &supplies, from_line, &lines).await
    }

    /// The bytes of a file in the machine's content store. Reading ends with an error if they are not whole; that
    /// they are the right ones is for the reader to check.
    pub async fn get_file(&self, machine: &str, sha256: &str) -> Result<Incoming, FleetError> {
        let call = self
            .call(
                machine,
                &["get-file", sha256],
                Feed::Nothing,
                self.inner.limits.transfer,
            )
            .await?;
        Ok(Incoming {
            machine: machine.into(),
            call,
            chunk: bytes::Bytes::new(),
            state: IncomingState::Content,
        })
    }

    async fn have(&self, machine: &str, names: &Names) -> Result<Names, FleetError> {
        self.ask(machine, &["have"], Feed::json(names)).await
    }

    async fn start(&self, machine: &str, order: &Order) -> Result<Started, FleetError> {
        self.ask(machine, &["start"], Feed::json(order)).await
    }

    /// A call that is answered by one JSON value. All such calls may be repeated, so a connection that turns
    /// out to be stale is replaced once.
    async fn ask<T: DeserializeOwned>(
        &self,
        machine: &str,
        args: &[&str],
        feed: Feed,
    ) -> Result<T, FleetError> {
        let again = feed.again();
        let limit = self.inner.limits.answer;
        let answer = match (self.answer(machine, args, feed, limit).await, again) {
            (Err(e), Some(feed)) if e.is_passing() => self.answer(machine, args, feed, limit).await?,
            (other, _) => other?,
        };
        answer.parse(machine, args[0])
    }

    async fn answer(
        &self,
        machine: &str,
        args: &[&str],
        feed: Feed,
        stall: Duration,
    ) -> Result<Answer, FleetError> {
        self.call(machine, args, feed, stall).await?.answer(machine).await
    }

    /// Runs one verb of the agent on the machine.
    async fn call(
        &self,
        machine: &str,
        args: &[&str],
        feed: Feed,
        stall: Duration,
    ) -> Result<Call, FleetError> {
        let reached = self.reached(machine)?;
        let program = install::ensure(self, reached).await?;
        self.run(reached, &program, args, feed, stall).await
    }

    async fn run(
        &self,
        reached: &Reached,
        program: &Path,
        args: &[&str],
        feed: Feed,
        stall: Duration,
    ) -> Result<Call, FleetError> {
        let root = reached.work_dir.to_string_lossy().into_owned();
        let program = program.to_string_lossy().into_owned();
        let argv: Vec<&str> = [program.as_str(), "--root", &root]
            .into_iter()
            .chain(args.iter().copied())
            .collect();
        match &reached.reach {
            Reach::Local => local::call(&reached.name, args[0], &argv, feed, stall),
            Reach::Ssh(ssh) => ssh.call(args[0], &argv, feed, stall).await,
        }
    }

    /// How long ago a line or heartbeat of an order came from the machine.
    pub fn silent_for(&self, machine: &str) -> Option<Duration> {
        let reached = self.inner.machines.get(machine)?;
        let heard = *reached.heard.lock().expect("no holder panics");
        heard.map(|at| at.elapsed())
    }

    /// Connections that are kept for the machine lead to a kernel that is going down.
    fn hang_up(&self, machine: &str) -> Result<(), FleetError> {
        match &self.reached(machine)?.reach {
            Reach::Local => {}
            Reach::Ssh(ssh) => ssh.hang_up(),
        }
        Ok(())
    }

    fn reached(&self, machine: &str) -> Result<&Reached, FleetError> {
        self.inner
            .machines
            .get(machine)
            .ok_or_else(|| FleetError::UnknownMachine {
                machine: machine.into(),
                known: self.inner.machines.keys().cloned().collect::<Vec<_>>().join(", "),
            })
    }
}

/// A file on its way from a machine.
pub struct Incoming {
    machine: String,
    call: Call,
    chunk: bytes::Bytes,
    state: IncomingState,
}

enum IncomingState {
    Content,
    End,
}

impl AsyncRead for Incoming {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let this = &mut *self;
        if this.chunk.is_empty() && matches!(this.state, IncomingState::Content) {
            match std::task::ready!(this.call.stdout.poll_recv(cx)) {
                Some(chunk) => this.chunk = chunk,
                None => {
                    std::task::ready!(this.call.poll_success(&this.machine, cx))
                        .map_err(std::io::Error::other)?;
                    this.state = IncomingState::End;
                }
            }
        }
        let n = this.chunk.len().min(buf.remaining());
        buf.put_slice(&this.chunk.split_to(n));
        Poll::Ready(Ok(()))
    }
}
