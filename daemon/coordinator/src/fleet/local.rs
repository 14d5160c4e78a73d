//! The agent as a child process of the daemon, for a machine that is this one.

use super::FleetError;
use super::call::{Broken, Call, CallEnd, Cut, Ended, Feed, FeedPart, PIECES, STDERR_BYTES};
use bytes::Bytes;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::{mpsc, oneshot};

const READ_BYTES: usize = 64 << 10;

pub fn call(
    machine: &str,
    verb: &str,
    argv: &[&str],
    feed: Feed,
    stall: Duration,
) -> Result<Call, FleetError> {
    let mut command = Command::new(argv[0]);
    command
        .args(&argv[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let child = command.spawn().map_err(|e| FleetError::Agent {
        machine: machine.into(),
        verb: verb.into(),
        end: "no start".into(),
        stderr: format!("{}: {e}", argv[0]),
    })?;
    let (stdout_tx, stdout) = mpsc::channel(PIECES);
    let (end_tx, end) = oneshot::channel();
    let feed = feed.pump(|| ());
    let task = tokio::spawn(async move {
        let moved = Moved(Mutex::new(Instant::now()));
        let ended = tokio::select! {
            ended = attend(child, feed, stdout_tx, &moved) => ended,
            () = moved.stalled(stall) => Err(Broken::Stalled(stall)),
        };
        let _ = end_tx.send(ended);
    });
    let abort = task.abort_handle();
    let cut = Cut(Some(Box::new(move || abort.abort())));
    Ok(Call {
        verb: verb.into(),
        address: String::new(),
        stdout,
        end,
        _cut: cut,
    })
}

/// When the last byte moved.
struct Moved(Mutex<Instant>);

impl Moved {
    fn now(&self) {
        *self.0.lock().expect("no holder panics") = Instant::now();
    }

    async fn stalled(&self, limit: Duration) {
        loop {
            let since = self.0.lock().expect("no holder panics").elapsed();
            match limit.checked_sub(since) {
                Some(left) => tokio::time::sleep(left.max(Duration::from_millis(1))).await,
                None => return,
            }
        }
    }
}

async fn attend(
    mut child: Child,
    feed: mpsc::Receiver<FeedPart>,
    stdout_tx: mpsc::Sender<Bytes>,
    moved: &Moved,
) -> Result<CallEnd, Broken> {
    let stdin = child.stdin.take().expect("was piped");
    let stdout = child.stdout.take().expect("was piped");
    let stderr = child.stderr.take().expect("was piped");
    let out = async {
        let read = read_out(stdout, &stdout_tx, moved).await;
        // The reader waits for this end before it asks for the status.
        drop(stdout_tx);
        read
    };
    // What is left to feed does not matter once the program has closed its stdout: it has ended or refused.
    let both = async { tokio::join!(out, read_err(stderr)) };
    tokio::pin!(both);
    let (read, text) = tokio::select! {
        ended = &mut both => ended,
        fed = write_in(stdin, feed, moved) => {
            fed?;
            both.await
        }
    };
    read.map_err(|e| Broken::Dropped(e.to_string()))?;
    let status = child.wait().await.map_err(|e| Broken::Dropped(e.to_string()))?;
    Ok(CallEnd {
        ended: ended(status),
        stderr: text,
    })
}

fn ended(status: ExitStatus) -> Ended {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ended::Status(code),
        (None, signal) => Ended::Signal(signal.unwrap_or_default().to_string()),
    }
}

async fn write_in(
    mut stdin: ChildStdin,
    mut feed: mpsc::Receiver<FeedPart>,
    moved: &Moved,
) -> Result<(), Broken> {
    while let Some(part) = feed.recv().await {
        match part {
            // A program that reads no further has its reasons, and says them by its end.
            FeedPart::Piece(piece) => match stdin.write_all(&piece).await {
                Ok(()) => moved.now(),
                Err(_) => return Ok(()),
            },
            FeedPart::End => return Ok(()),
            FeedPart::Broken(what) => return Err(Broken::Feed(what)),
        }
    }
    Err(Broken::Feed("it broke off".into()))
}

async fn read_out(
    mut stdout: impl AsyncRead + Unpin,
    to: &mpsc::Sender<Bytes>,
    moved: &Moved,
) -> std::io::Result<()> {
    loop {
        let mut chunk = Vec::with_capacity(READ_BYTES);
        if stdout.read_buf(&mut chunk).await? == 0 {
            return Ok(());
        }
        if to.send(chunk.into()).await.is_err() {
            return Err(std::io::Error::other("nobody reads"));
        }
        moved.now();
    }
}

/// The beginning is kept, the rest read and dropped, so that the program never waits for us.
async fn read_err(mut stderr: impl AsyncRead + Unpin) -> String {
    let (mut kept, mut chunk) = (Vec::new(), vec![0; 4096]);
    while let Ok(n @ 1..) = stderr.read(&mut chunk).await {
        let room = STDERR_BYTES - kept.len();
        kept.extend_from_slice(&chunk[..n.min(room)]);
    }
    String::from_utf8_lossy(&kept).trim().to_string()
}
