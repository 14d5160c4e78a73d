//! Runs one command with a time limit and takes its output, whatever its children do with the pipes.

use crate::process;
use protocol::{Exit, OUTPUT_LIMIT_BYTES};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Looked for the end this often where the kernel has no pidfd (before 5.3).
const LOOK_WITHOUT_PIDFD: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub struct Ended {
    pub exit: Exit,
    pub stdout: String,
    pub stderr: String,
    pub wall_s: f64,
}

impl Ended {
    pub fn succeeded(&self) -> bool {
        self.exit == Exit::Status(0)
    }

    pub fn how(&self) -> String {
        match self.exit {
            Exit::Status(code) => format!("exit status {code}"),
            Exit::Signal(signal) => format!("killed by signal {signal}"),
            Exit::TimedOut => format!("ended by its limit after {:.0} s", self.wall_s),
        }
    }
}

/// Runs until the command itself ends; what it left running in the background goes on (a set-up may start a server).
/// At the limit its whole tree is killed. `hear` is given the output as it comes.
pub fn run(command: &mut Command, limit: Duration, hear: &mut dyn FnMut(&[u8])) -> io::Result<Ended> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let start = Instant::now();
    let mut child = command.spawn()?;
    let pidfd = Pid::from_raw(child.id() as i32).and_then(|p| pidfd_open(p, PidfdFlags::empty()).ok());
    let mut stdout = Taken::new(child.stdout.take().map(OwnedFd::from))?;
    let mut stderr = Taken::new(child.stderr.take().map(OwnedFd::from))?;
    let (mut status, mut wall_s) = (None, 0.0);
    while status.is_none() {
        let left = limit.saturating_sub(start.elapsed());
        if left.is_zero() {
            wall_s = start.elapsed().as_secs_f64();
            end(&mut child);
            break;
        }
        wait(&[&stdout.pipe, &stderr.pipe, &pidfd], left)?;
        stdout.take(hear)?;
        stderr.take(hear)?;
        status = child.try_wait()?;
        wall_s = start.elapsed().as_secs_f64();
    }
    // What is in the pipes still; their other ends may be held open by background processes.
    stdout.take(hear)?;
    stderr.take(hear)?;
    Ok(Ended {
        exit: exit(status),
        stdout: stdout.text(),
        stderr: stderr.text(),
        wall_s,
    })
}

fn wait(pipes: &[&Option<OwnedFd>], left: Duration) -> io::Result<()> {
    let mut fds: Vec<PollFd<'_>> = pipes
        .iter()
        .filter_map(|f| f.as_ref())
        .map(|f| PollFd::new(f, PollFlags::IN))
        .collect();
    let has_pidfd = pipes.last().is_some_and(|f| f.is_some());
    let longest = if has_pidfd {
        left
    } else {
        left.min(LOOK_WITHOUT_PIDFD)
    };
    let timeout = Timespec {
        tv_sec: longest.as_secs().min(i64::MAX as u64) as i64,
        tv_nsec: longest.subsec_nanos().max(1).into(),
    };
    match poll(&mut fds, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

fn exit(status: Option<ExitStatus>) -> Exit {
    match status {
        None => Exit::TimedOut,
        Some(status) => match (status.code(), status.signal()) {
            (Some(code), _) => Exit::Status(code),
            (None, signal) => Exit::Signal(signal.unwrap_or(0)),
        },
    }
}

/// Kills the command with everything below it.
fn end(child: &mut Child) {
    let pid = child.id() as i32;
    process::end_tree(pid, None);
    if let Some(group) = Pid::from_raw(pid) {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    let _ = child.wait();
}

/// One pipe's content, up to the limit.
struct Taken {
    pipe: Option<OwnedFd>,
    content: Vec<u8>,
    dropped: u64,
}

impl Taken {
    fn new(pipe: Option<OwnedFd>) -> io::Result<Taken> {
        if let Some(pipe) = &pipe {
            rustix::io::ioctl_fionbio(pipe.as_fd(), true)?;
        }
        Ok(Taken {
            pipe,
            content: Vec::new(),
            dropped: 0,
        })
    }

    fn take(&mut self, hear: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        let mut buffer = [0; 1 << 14];
        while let Some(pipe) = self.pipe.take() {
            let mut file = std::fs::File::from(pipe);
            match file.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(n) => {
                    hear(&buffer[..n]);
                    let room = OUTPUT_LIMIT_BYTES.saturating_sub(self.content.len());
                    self.content.extend_from_slice(&buffer[..n.min(room)]);
                    self.dropped += n.saturating_sub(room) as u64;
                    self.pipe = Some(file.into());
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.pipe = Some(file.into());
                    return Ok(());
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => self.pipe = Some(file.into()),
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn text(self) -> String {
        let mut text = String::from_utf8_lossy(&self.content).into_owned();
        if self.dropped > 0 {
            text.push_str(&format!("\n[{} more bytes were cut]\n", self.dropped));
        }
        text
    }
}
