//! The agent over SSH: a few connections per machine, each with a thread of its own, kept for the next call.
//!
//! A connection carries one call at a time. libssh2 wants a packet that was written in part to be finished before
//! anything else is sent, which calls sharing a connection would have to know of each other.

mod host_key;
mod link;
mod login;
mod upload;

use super::FleetError;
use super::call::{Call, Cut, Feed, PIECES};
use crate::config;
use host_key::HostKey;
use link::{CallJob, Job, Link, Trust};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex as StdMutex};
use std::time::Duration;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use upload::{FileTrouble, UploadJob};

/// sshd takes ten sessions a connection and starts dropping new connections at ten unfinished ones.
const CONNECTIONS: usize = 4;

/// Handshakes at a time with one host. Debian's sshd drops a third of fifty that come at once, none of eight.
const HANDSHAKES: usize = 8;

/// A host that is too busy to show its banner is asked again, this often, with a pause that doubles.
const BANNER_TRIES: u32 = 6;
const BANNER_PAUSE: Duration = Duration::from_millis(200);

/// Machines on the same host and port share its handshakes.
#[derive(Default)]
pub struct Hosts(HashMap<(String, u16), Arc<Semaphore>>);

/// Where to log in, and by what right.
pub struct Route {
    pub machine: String,
    pub user: String,
    pub host: String,
    pub port: u16,
    pub host_key: HostKey,
    pub key_file: Option<PathBuf>,
    pub limit: Duration,
}

impl Route {
    pub fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    pub fn unreachable(&self, what: impl Into<String>) -> FleetError {
        FleetError::Unreachable {
            machine: self.machine.clone(),
            address: self.address(),
            what: what.into(),
        }
    }
}

pub struct Ssh {
    route: Arc<Route>,
    links: StdMutex<Vec<Link>>,
    calls: Arc<Semaphore>,
    handshakes: Arc<Semaphore>,
    pub installed: Mutex<bool>,
    /// Connections that have broken so far.
    broken: Arc<AtomicU64>,
}

impl Ssh {
    pub fn new(
        machine: &str,
        user: &str,
        host: &str,
        port: u16,
        ssh: Option<&config::Ssh>,
        limit: Duration,
        hosts: &mut Hosts,
    ) -> Result<Ssh, FleetError> {
        let wrong = |what: String| FleetError::PinnedKey {
            machine: machine.into(),
            host: host.into(),
            what,
        };
        let ssh = ssh.ok_or_else(|| wrong("there is none".into()))?;
        let host_key = HostKey::parse(&ssh.host_key).map_err(wrong)?;
        let handshakes = hosts
            .0
            .entry((host.into(), port))
            .or_insert_with(|| Arc::new(Semaphore::new(HANDSHAKES)));
        Ok(Ssh {
            handshakes: handshakes.clone(),
            route: Arc::new(Route {
                machine: machine.into(),
                user: user.into(),
                host: host.into(),
                port,
                host_key,
                key_file: ssh.key_file.clone(),
                limit,
            }),
            links: StdMutex::default(),
            calls: Arc::new(Semaphore::new(CONNECTIONS)),
            installed: Mutex::new(false),
            broken: Arc::default(),
        })
    }

    pub async fn call(
        &self,
        verb: &str,
        argv: &[&str],
        feed: Feed,
        stall: Duration,
    ) -> Result<Call, FleetError> {
        let (link, permit) = self.link().await?;
        let (stdout_tx, stdout) = mpsc::channel(PIECES);
        let (end_tx, end) = oneshot::channel();
        let wake = link.wake.clone();
        let feed = feed.pump(move || wake.ring());
        let command = argv.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
        let job = CallJob {
            command: format!("exec {command}"),
            feed,
            stdout: stdout_tx,
            end: end_tx,
            stall,
        };
        self.give(&link, Job::Call(job), permit)?;
        let wake = link.wake.clone();
        let cut = Cut(Some(Box::new(move || wake.ring())));
        Ok(Call {
            verb: verb.into(),
            address: self.route.address(),
            stdout,
            end,
            _cut: cut,
        })
    }

    /// Puts a file there, executable, and the folders it lies in.
    pub async fn upload(&self, from: &Path, to: &Path) -> Result<(), FleetError> {
        self.file_job(
            |done| UploadJob::Put {
                from: from.into(),
                to: to.into(),
                done,
            },
            to,
        )
        .await
    }

    pub async fn remove(&self, path: &Path) -> Result<(), FleetError> {
        self.file_job(
            |done| UploadJob::Remove {
                path: path.into(),
                done,
            },
            path,
        )
        .await
    }

    async fn file_job(
        &self,
        job: impl FnOnce(oneshot::Sender<Result<(), FileTrouble>>) -> UploadJob,
        place: &Path,
    ) -> Result<(), FleetError> {
        let (link, permit) = self.link().await?;
        let (done, outcome) = oneshot::channel();
        self.give(&link, Job::Upload(job(done)), permit)?;
        match outcome.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(FileTrouble::There(what))) => Err(FleetError::Install {
                machine: self.route.machine.clone(),
                path: place.to_string_lossy().into_owned(),
                what,
            }),
            Ok(Err(FileTrouble::Here(what))) => Err(FleetError::Supply {
                machine: self.route.machine.clone(),
                what,
            }),
            Ok(Err(FileTrouble::Way(what))) => Err(self.route.unreachable(what)),
            Err(_) => Err(self.route.unreachable("the connection was lost during an upload")),
        }
    }

    fn give(&self, link: &Link, job: Job, permit: OwnedSemaphorePermit) -> Result<(), FleetError> {
        link.give(job, permit)
            .map_err(|()| self.route.unreachable("the connection was closed while idle"))
    }

    /// A free connection: one that is kept, or a new one. The permit keeps their number down.
    async fn link(&self) -> Result<(Link, OwnedSemaphorePermit), FleetError> {
        let permit = self.calls.clone().acquire_owned().await.expect("never closed");
        if let Some(link) = self.kept() {
            return Ok((link, permit));
        }
        let link = self.connect().await?;
        let mut links = self.links.lock().expect("no holder panics");
        links.retain(Link::is_alive);
        links.push(link.clone());
        Ok((link, permit))
    }

    /// Lets go of idle connections.
    pub fn hang_up(&self) {
        self.links.lock().expect("no holder panics").clear();
    }

    fn kept(&self) -> Option<Link> {
        let mut links = self.links.lock().expect("no holder panics");
        links.retain(Link::is_alive);
        links.iter().find(|link| link.take()).cloned()
    }

    async fn connect(&self) -> Result<Link, FleetError> {
        let mut pause = BANNER_PAUSE;
        for _ in 1..BANNER_TRIES {
            match self.connect_once().await {
                Err(login::Trouble::Busy(_)) => tokio::time::sleep(pause).await,
                Err(login::Trouble::Other(e)) => return Err(e),
                Ok(link) => return Ok(link),
            }
            pause *= 2;
        }
        self.connect_once().await.map_err(|e| match e {
            login::Trouble::Busy(what) => self.route.unreachable(format!("{what} ({BANNER_TRIES} times)")),
            login::Trouble::Other(e) => e,
        })
    }

    async fn connect_once(&self) -> Result<Link, login::Trouble> {
        let _one_of_few = self.handshakes.acquire().await.expect("never closed");
        link::open(self.route.clone(), Trust::new(&self.broken)).await
    }
}

/// A word that every shell takes as it is.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}
