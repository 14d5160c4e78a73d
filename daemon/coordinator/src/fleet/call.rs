//! One call of the agent, the same for both ways to it: bytes in, bytes out, an end.

use super::FleetError;
use bytes::Bytes;
use protocol::Refusal;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::{mpsc, oneshot};

/// Size of the pieces that stdin is sent in: the quickest of those measured.
pub const PIECE_BYTES: usize = 256 << 10;

/// Pieces on their way between the parts of a call: bounds its memory, and holds a fast side back.
pub const PIECES: usize = 4;

/// An answer longer than this is none of the protocol's.
const ANSWER_BYTES: usize = 16 << 20;

/// So much of stderr is kept, for messages.
pub const STDERR_BYTES: usize = 16 << 10;

/// What goes to stdin.
pub enum Feed {
    Nothing,
    Bytes(Bytes),
    Stream(Pin<Box<dyn AsyncRead + Send>>),
}

impl Feed {
    pub fn json(value: &impl Serialize) -> Feed {
        let text = serde_json::to_vec(value).expect("our own types are representable as JSON");
        Feed::Bytes(text.into())
    }

    /// The same once more, if it can be had.
    pub fn again(&self) -> Option<Feed> {
        match self {
            Feed::Nothing => Some(Feed::Nothing),
            Feed::Bytes(bytes) => Some(Feed::Bytes(bytes.clone())),
            Feed::Stream(_) => None,
        }
    }

    /// Reads it piece by piece into a bounded queue; `wake` is called after each.
    pub fn pump(self, wake: impl Fn() + Send + 'static) -> mpsc::Receiver<FeedPart> {
        let (tx, rx) = mpsc::channel(PIECES);
        tokio::spawn(async move {
            match self {
                Feed::Nothing => {}
                Feed::Bytes(bytes) => {
                    let _ = tx.send(FeedPart::Piece(bytes)).await;
                }
                Feed::Stream(mut stream) => loop {
                    let mut piece = Vec::with_capacity(PIECE_BYTES);
                    let part = match read_full(&mut stream, &mut piece).await {
                        Ok(()) if piece.is_empty() => break,
                        Ok(()) => FeedPart::Piece(piece.into()),
                        Err(e) => FeedPart::Broken(e.to_string()),
                    };
                    let broken = matches!(part, FeedPart::Broken(_));
                    let gone = tx.send(part).await.is_err();
                    wake();
                    if broken || gone {
                        return;
                    }
                },
            }
            let _ = tx.send(FeedPart::End).await;
            wake();
        });
        rx
    }
}

async fn read_full(stream: &mut (impl AsyncRead + Unpin), piece: &mut Vec<u8>) -> std::io::Result<()> {
    while piece.len() < PIECE_BYTES {
        let room = (PIECE_BYTES - piece.len()) as u64;
        if (&mut *stream).take(room).read_buf(piece).await? == 0 {
            break;
        }
    }
    Ok(())
}

/// An end that was not said is no end: a feed that breaks off must not look complete.
pub enum FeedPart {
    Piece(Bytes),
    End,
    Broken(String),
}

/// How the program ended, as far as that is certain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ended {
    Status(i32),
    Signal(String),
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Ended::Status(status) => write!(f, "status {status}"),
            Ended::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}

#[derive(Debug)]
pub struct CallEnd {
    pub ended: Ended,
    pub stderr: String,
}

/// Why a call has no end that is known.
#[derive(Debug)]
pub enum Broken {
    /// The connection or the child is gone.
    Dropped(String),
    /// No byte moved for so long.
    Stalled(Duration),
    /// What was to be sent could not be read.
    Feed(String),
}

/// A call that runs. Dropped, it is broken off: the way to the agent is cut, what the agent started goes on.
pub struct Call {
    pub verb: String,
    pub address: String,
    pub stdout: mpsc::Receiver<Bytes>,
    pub end: oneshot::Receiver<Result<CallEnd, Broken>>,
    /// Tells the other side that this call was dropped.
    pub _cut: Cut,
}

/// Runs its action when dropped.
pub struct Cut(pub Option<Box<dyn FnOnce() + Send + Sync>>);

impl Drop for Cut {
    fn drop(&mut self) {
        if let Some(action) = self.0.take() {
            action();
        }
    }
}

impl Call {
    /// All of stdout, and the end.
    pub async fn answer(mut self, machine: &str) -> Result<Answer, FleetError> {
        let mut stdout = Vec::new();
        while let Some(chunk) = self.stdout.recv().await {
            if stdout.len() + chunk.len() > ANSWER_BYTES {
                let what = format!("more than {ANSWER_BYTES} bytes");
                return Err(FleetError::Protocol {
                    machine: machine.into(),
                    verb: self.verb,
                    what,
                });
            }
            stdout.extend_from_slice(&chunk);
        }
        let end = self.end(machine).await?;
        Ok(Answer { stdout, end })
    }

    pub async fn end(&mut self, machine: &str) -> Result<CallEnd, FleetError> {
        let end = (&mut self.end).await;
        self.translate(machine, end)
    }

    /// Like `end`, for a stream whose bytes count only if all went well.
    pub fn poll_success(&mut self, machine: &str, cx: &mut Context<'_>) -> Poll<Result<(), FleetError>> {
        let end = ready!(Pin::new(&mut self.end).poll(cx));
        let end = self.translate(machine, end)?;
        Poll::Ready(
            Answer {
                stdout: Vec::new(),
                end,
            }
            .done(machine, &self.verb)
            .map(drop),
        )
    }

    fn translate(
        &self,
        machine: &str,
        end: Result<Result<CallEnd, Broken>, oneshot::error::RecvError>,
    ) -> Result<CallEnd, FleetError> {
        let unreachable = |what: String| FleetError::Unreachable {
            machine: machine.into(),
            address: self.address.clone(),
            what: format!("{what} (during `{}`)", self.verb),
        };
        match end {
            Ok(Ok(end)) => Ok(end),
            Ok(Err(Broken::Dropped(what))) => Err(unreachable(format!("the connection was lost: {what}"))),
            Ok(Err(Broken::Stalled(limit))) => Err(unreachable(format!(
                "no sign of life for {} s",
                limit.as_secs_f64()
            ))),
            Ok(Err(Broken::Feed(what))) => Err(FleetError::Supply {
                machine: machine.into(),
                what,
            }),
            Err(_) => Err(unreachable("the connection was closed".into())),
        }
    }
}

/// A call that has ended by itself.
#[derive(Debug)]
pub struct Answer {
    pub stdout: Vec<u8>,
    pub end: CallEnd,
}

impl Answer {
    /// Stdout of a call that was carried out.
    pub fn done(self, machine: &str, verb: &str) -> Result<Vec<u8>, FleetError> {
        let (machine, verb) = (machine.to_string(), verb.to_string());
        match self.end.ended {
            Ended::Status(0) => Ok(self.stdout),
            Ended::Status(2) => Err(match serde_json::from_slice::<Refusal>(&self.stdout) {
                Ok(refusal) => FleetError::Refused {
                    machine,
                    verb,
                    refusal,
                },
                // A stream's refusal went where its bytes go, or this is no agent at all.
                Err(_) => FleetError::Agent {
                    machine,
                    verb,
                    end: "status 2".into(),
                    stderr: self.end.stderr,
                },
            }),
            other => Err(FleetError::Agent {
                machine,
                verb,
                end: other.to_string(),
                stderr: self.end.stderr,
            }),
        }
    }

    pub fn parse<T: DeserializeOwned>(self, machine: &str, verb: &str) -> Result<T, FleetError> {
        let stdout = self.done(machine, verb)?;
        serde_json::from_slice(&stdout).map_err(|e| FleetError::Protocol {
            machine: machine.into(),
            verb: verb.into(),
            what: format!("{e}: {:.200}", String::from_utf8_lossy(&stdout)),
        })
    }
}
