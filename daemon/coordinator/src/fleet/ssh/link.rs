//! One connection and its thread.
//!
//! The thread owns socket, session and channel. Login and file transfers block, within limits; calls run in a
//! non-blocking loop that reads both streams in turn, writes stdin and watches the time. It never drops a session
//! whose socket is open: that would wait for the peer.

use super::Route;
use super::login::{LoggedIn, Trouble, log_in};
use super::upload::{FileTrouble, UploadJob};
use crate::fleet::call::{Broken, CallEnd, Ended, FeedPart, STDERR_BYTES};
use bytes::Bytes;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use ssh2::{BlockDirections, Channel, ErrorCode, Session};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, mpsc as std_mpsc};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

/// A connection without a call is kept so long.
const IDLE: Duration = Duration::from_secs(60);

/// How often an idle connection is looked at, and the longest sleep in a call.
const TICK: Duration = Duration::from_secs(1);

/// Seconds between the keep-alives that are our own.
const KEEPALIVE_S: u32 = 5;

/// Opening a channel, starting a program, closing: answers of sshd itself.
const STEP: Duration = Duration::from_secs(15);

const READ_BYTES: usize = 64 << 10;
const WRITE_BYTES: usize = 256 << 10;

const EAGAIN: i32 = -37;

pub enum Job {
    Call(CallJob),
    Upload(UploadJob),
}

pub struct CallJob {
    pub command: String,
    pub feed: mpsc::Receiver<FeedPart>,
    pub stdout: mpsc::Sender<Bytes>,
    pub end: oneshot::Sender<Result<CallEnd, Broken>>,
    pub stall: Duration,
}

/// Wakes a connection's thread from its sleep.
pub struct Wake(OwnedFd);

impl Wake {
    pub fn ring(&self) {
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}

/// How many connections to a machine have broken. One that breaks says something about its idle sisters, which
/// would find it out for themselves only when they are used.
#[derive(Clone)]
pub struct Trust {
    broken: Arc<AtomicU64>,
    at_birth: u64,
}

impl Trust {
    pub fn new(broken: &Arc<AtomicU64>) -> Trust {
        Trust {
            broken: broken.clone(),
            at_birth: broken.load(Ordering::Acquire),
        }
    }

    fn holds(&self) -> bool {
        self.broken.load(Ordering::Acquire) == self.at_birth
    }

    fn broke(&self) {
        self.broken.fetch_add(1, Ordering::AcqRel);
    }
}

const FREE: u8 = 0;
const TAKEN: u8 = 1;
const DEAD: u8 = 2;

/// The way to a connection's thread. The thread ends when the last of these is gone.
#[derive(Clone)]
pub struct Link {
    pub wake: Arc<Wake>,
    state: Arc<AtomicU8>,
    trust: Trust,
    mailbox: std_mpsc::SyncSender<(Job, OwnedSemaphorePermit)>,
}

impl Link {
    pub fn is_alive(&self) -> bool {
        self.state.load(Ordering::Acquire) != DEAD && self.trust.holds()
    }

    /// Takes it for one job, if it is free.
    pub fn take(&self) -> bool {
        self.state
            .compare_exchange(FREE, TAKEN, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    pub fn give(&self, job: Job, permit: OwnedSemaphorePermit) -> Result<(), ()> {
        self.mailbox.try_send((job, permit)).map_err(drop)
    }
}

/// Logs in, on a new thread; the connection comes back taken.
pub async fn open(route: Arc<Route>, trust: Trust) -> Result<Link, Trouble> {
    let broken = |e: io::Error| Trouble::Other(route.unreachable(e.to_string()));
    let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).map_err(|e| broken(e.into()))?;
    let wake = Arc::new(Wake(wake));
    let state = Arc::new(AtomicU8::new(TAKEN));
    let (mailbox, jobs) = std_mpsc::sync_channel(1);
    let (ready_tx, ready) = oneshot::channel();
    let link = Link {
        wake: wake.clone(),
        state: state.clone(),
        trust: trust.clone(),
        mailbox,
    };
    let thread_route = route.clone();
    std::thread::Builder::new()
        .name(format!("ssh {}", route.machine))
        .spawn(move || {
            let logged_in = match log_in(&thread_route) {
                Ok(logged_in) => logged_in,
                Err(trouble) => {
                    state.store(DEAD, Ordering::Release);
                    let _ = ready_tx.send(Err(trouble));
                    return;
                }
            };
            let mut connection = Connection::new(thread_route, logged_in, wake, state, trust);
            if ready_tx.send(Ok(())).is_ok() {
                connection.serve(&jobs);
            }
            connection.state.store(DEAD, Ordering::Release);
        })
        .map_err(broken)?;
    match ready.await {
        Ok(outcome) => outcome.map(|()| link),
        Err(_) => Err(Trouble::Other(route.unreachable("its thread ended"))),
    }
}

struct Connection {
    route: Arc<Route>,
    session: Session,
    socket: TcpStream,
    wake: Arc<Wake>,
    state: Arc<AtomicU8>,
    trust: Trust,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.session.set_blocking(false);
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

impl Connection {
    fn new(
        route: Arc<Route>,
        logged_in: LoggedIn,
        wake: Arc<Wake>,
        state: Arc<AtomicU8>,
        trust: Trust,
    ) -> Connection {
        let LoggedIn { session, socket } = logged_in;
        session.set_keepalive(true, KEEPALIVE_S);
        session.set_blocking(false);
        Connection {
            route,
            session,
            socket,
            wake,
            state,
            trust,
        }
    }

    fn serve(&mut self, jobs: &std_mpsc::Receiver<(Job, OwnedSemaphorePermit)>) {
        let mut idle_since = Instant::now();
        while self.state.load(Ordering::Acquire) != DEAD {
            match jobs.recv_timeout(TICK) {
                Ok((job, permit)) => {
                    self.perform(job, permit);
                    idle_since = Instant::now();
                }
                Err(std_mpsc::RecvTimeoutError::Disconnected) => return,
                Err(std_mpsc::RecvTimeoutError::Timeout) => {
                    let over = idle_since.elapsed() > IDLE || self.hung_up() || self.keep_alive().is_err();
                    if over {
                        // Whoever takes it at this very moment is served, and finds out.
                        let _ = self
                            .state
                            .compare_exchange(FREE, DEAD, Ordering::AcqRel, Ordering::Acquire);
                    }
                }
            }
        }
    }

    fn perform(&mut self, job: Job, permit: OwnedSemaphorePermit) {
        match job {
            Job::Call(mut job) => {
                let end = self.call(&mut job);
                if let Err(e) = &end {
                    tracing::debug!(machine = self.route.machine, "connection given up: {e:?}");
                }
                self.release(end.is_ok(), permit);
                // First the end, then the end of stdout: a reader of both finds both.
                let _ = job.end.send(end);
                drop(job.stdout);
            }
            Job::Upload(job) => {
                self.session.set_blocking(true);
                self.session.set_timeout(self.route.limit.as_millis() as u32);
                let (outcome, done) = job.perform(&self.session);
                self.session.set_blocking(false);
                self.release(!matches!(outcome, Err(FileTrouble::Way(_))), permit);
                let _ = done.send(outcome);
            }
        }
    }

    /// Free for the next job before this one's end is known, so that a caller who goes on at once finds it.
    fn release(&self, usable: bool, permit: OwnedSemaphorePermit) {
        if !usable {
            let _ = self.socket.shutdown(Shutdown::Both);
            self.trust.broke();
        }
        self.state
            .store(if usable { FREE } else { DEAD }, Ordering::Release);
        drop(permit);
    }

    fn call(&mut self, job: &mut CallJob) -> Result<CallEnd, Broken> {
        let mut channel = self.patiently(|session| session.channel_session())?;
        let started = self.patiently(|_| channel.exec(&job.command));
        let end = started
            .and_then(|()| self.attend(&mut channel, job))
            .and_then(|stderr| {
                let ended = self.close(&mut channel)?;
                Ok(CallEnd { ended, stderr })
            });
        if end.is_err() {
            let _ = self.socket.shutdown(Shutdown::Both);
        }
        end
    }

    /// Moves bytes until the program has closed its output. Returns the beginning of stderr.
    fn attend(&mut self, channel: &mut Channel, job: &mut CallJob) -> Result<String, Broken> {
        let mut buffer = vec![0u8; READ_BYTES];
        let mut stderr = Vec::new();
        let mut stdin = Stdin::Open(Bytes::new());
        let mut moved = Instant::now();
        loop {
            let mut busy = false;
            if let Some(n) = self.read(channel, 0, &mut buffer)? {
                busy = true;
                // Waits while the reader is slow; sshd holds the program back meanwhile.
                if job
                    .stdout
                    .blocking_send(Bytes::copy_from_slice(&buffer[..n]))
                    .is_err()
                {
                    return Err(Broken::Dropped("nobody reads".into()));
                }
            }
            if let Some(n) = self.read(channel, 1, &mut buffer)? {
                busy = true;
                let room = STDERR_BYTES - stderr.len();
                stderr.extend_from_slice(&buffer[..n.min(room)]);
            }
            busy |= self.feed(channel, &mut stdin, job)?;
            if channel.eof() {
                return Ok(String::from_utf8_lossy(&stderr).trim().to_string());
            }
            // Reading one stream takes in what came for the other, too: then the socket has nothing more to say.
            if busy || channel.read_window().available > 0 {
                moved = Instant::now();
                continue;
            }
            if job.end.is_closed() {
                return Err(Broken::Dropped("the call was dropped".into()));
            }
            if moved.elapsed() > job.stall {
                return Err(Broken::Stalled(job.stall));
            }
            self.keep_alive()?;
            let left = job
                .stall
                .saturating_sub(moved.elapsed())
                .max(Duration::from_millis(1));
            self.sleep(left.min(TICK), self.session.block_directions());
        }
    }

    /// Some bytes of a stream, or none for now.
    fn read(
        &mut self,
        channel: &mut Channel,
        stream: i32,
        buffer: &mut [u8],
    ) -> Result<Option<usize>, Broken> {
        match self.finished(|| channel.stream(stream).read(buffer))? {
            Some(0) | None => Ok(None),
            some => Ok(some),
        }
    }

    /// Writes what is there to be written; true if something was.
    fn feed(&mut self, channel: &mut Channel, stdin: &mut Stdin, job: &mut CallJob) -> Result<bool, Broken> {
        let Stdin::Open(piece) = stdin else {
            return Ok(false);
        };
        if piece.is_empty() {
            match job.feed.try_recv() {
                Ok(FeedPart::Piece(next)) => *piece = next,
                Ok(FeedPart::Broken(what)) => return Err(Broken::Feed(what)),
                Ok(FeedPart::End) => {
                    self.patiently(|_| channel.send_eof())?;
                    *stdin = Stdin::Closed;
                    return Ok(true);
                }
                Err(mpsc::error::TryRecvError::Empty) => return Ok(false),
                Err(mpsc::error::TryRecvError::Disconnected) => {
                    return Err(Broken::Feed("it broke off".into()));
                }
            }
        }
        let length = piece.len().min(WRITE_BYTES);
        let outcome = self.finished(|| channel.write(&piece[..length]));
        match outcome {
            Ok(Some(n)) => {
                let _ = piece.split_to(n);
                Ok(n > 0)
            }
            Ok(None) => Ok(false),
            // The program reads no further; why, its end tells. A dead connection shows when it is read.
            Err(_) => {
                *stdin = Stdin::Closed;
                Ok(true)
            }
        }
    }

    /// Runs an operation on a stream once, or, when part of a packet was sent, until the rest is: libssh2 takes
    /// no other operation in between.
    fn finished(&self, mut operation: impl FnMut() -> io::Result<usize>) -> Result<Option<usize>, Broken> {
        let until = Instant::now() + STEP;
        loop {
            match operation() {
                Ok(n) => return Ok(Some(n)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => match self.session.block_directions() {
                    BlockDirections::Outbound | BlockDirections::Both if Instant::now() < until => {
                        self.sleep(TICK, BlockDirections::Outbound);
                    }
                    BlockDirections::Outbound | BlockDirections::Both => {
                        return Err(Broken::Dropped("it takes no more data".into()));
                    }
                    BlockDirections::None | BlockDirections::Inbound => return Ok(None),
                },
                Err(e) => return Err(Broken::Dropped(e.to_string())),
            }
        }
    }

    /// Repeats an operation of sshd's own until it is done.
    fn patiently<T>(
        &self,
        mut operation: impl FnMut(&Session) -> Result<T, ssh2::Error>,
    ) -> Result<T, Broken> {
        let until = Instant::now() + STEP;
        loop {
            match operation(&self.session) {
                Err(e) if e.code() == ErrorCode::Session(EAGAIN) => {
                    if Instant::now() >= until {
                        return Err(Broken::Stalled(STEP));
                    }
                    self.sleep(TICK, self.session.block_directions());
                }
                Err(e) => return Err(Broken::Dropped(e.to_string())),
                Ok(done) => return Ok(done),
            }
        }
    }

    /// Certain only when both sides have closed: a connection that dies before has status 0 and no signal, too.
    fn close(&mut self, channel: &mut Channel) -> Result<Ended, Broken> {
        self.patiently(|_| channel.close())?;
        self.patiently(|_| channel.wait_close())?;
        let told = |e: ssh2::Error| Broken::Dropped(e.to_string());
        match channel.exit_signal().map_err(told)?.exit_signal {
            Some(signal) => Ok(Ended::Signal(signal)),
            None => Ok(Ended::Status(channel.exit_status().map_err(told)?)),
        }
    }

    fn keep_alive(&self) -> Result<(), Broken> {
        self.patiently(|session| session.keepalive_send()).map(drop)
    }

    /// Until the socket is ready, someone rings, or the time is over.
    fn sleep(&self, limit: Duration, directions: BlockDirections) {
        let events = match directions {
            BlockDirections::Outbound => PollFlags::OUT,
            BlockDirections::Both => PollFlags::IN | PollFlags::OUT,
            BlockDirections::Inbound | BlockDirections::None => PollFlags::IN,
        };
        let limit = Timespec {
            tv_sec: limit.as_secs() as i64,
            tv_nsec: limit.subsec_nanos().into(),
        };
        let mut fds = [
            PollFd::new(&self.socket, events),
            PollFd::new(&self.wake.0, PollFlags::IN),
        ];
        let _ = poll(&mut fds, Some(&limit));
        self.wake.clear();
    }

    /// The peer has closed, and nothing it said is left to read.
    fn hung_up(&self) -> bool {
        let mut byte = [0u8; 1];
        let _ = self.socket.set_nonblocking(true);
        match self.socket.peek(&mut byte) {
            Ok(n) => n == 0,
            Err(e) => e.kind() != ErrorKind::WouldBlock,
        }
    }
}

enum Stdin {
    /// The rest of the piece that is being written.
    Open(Bytes),
    Closed,
}
