//! Commands of a machine's own on the daemon's side: power control, each within its limit, and the console, as long as
//! somebody listens.
//!
//! Whether a power command may be given is not known here: the caller holds the fence.

use super::FleetError;
use crate::config::{Console, Power};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

/// Of a command that has failed.
const LAST_WORDS: Duration = Duration::from_secs(1);
const CHUNK_BYTES: usize = 16 << 10;
/// A console command that ends (a BMC lets one client in, a session times out) is started again after this.
const CONSOLE_AGAIN: Duration = Duration::from_secs(2);
const CONSOLE_AGAIN_MAX: Duration = Duration::from_secs(60);
/// Chunks that wait to be taken; a listener who is behind holds the console back, not the memory.
const CHUNKS: usize = 64;

/// Off and on again.
pub async fn cycle(machine: &str, power: &Power) -> Result<(), FleetError> {
    if power.cycle.is_empty() {
        run(machine, &power.off, power.limit_s).await?;
        run(machine, &power.on, power.limit_s).await
    } else {
        run(machine, &power.cycle, power.limit_s).await
    }
}

async fn run(machine: &str, argv: &[String], limit_s: u32) -> Result<(), FleetError> {
    let failed = |what: String| FleetError::Power {
        machine: machine.into(),
        command: argv.join(" "),
        what,
    };
    let mut child = spawn(argv, Stdio::null(), Stdio::piped()).map_err(|e| failed(e.to_string()))?;
    let group = Group(child.id());
    let limit = Duration::from_secs(limit_s.into());
    let Ok(ended) = tokio::time::timeout(limit, child.wait()).await else {
        return Err(failed(format!("no end after {limit_s} s")));
    };
    // What it left running on purpose (an emulator that is the machine) goes on, and may hold its stderr for ever.
    group.spare();
    let status = ended.map_err(|e| failed(e.to_string()))?;
    if status.success() {
        return Ok(());
    }
    let mut said = Vec::new();
    if let Some(mut stderr) = child.stderr.take() {
        let _ = tokio::time::timeout(LAST_WORDS, stderr.read_buf(&mut said)).await;
    }
    let said = String::from_utf8_lossy(&said).trim().to_string();
    Err(failed(format!("{status}: {said}")))
}

fn spawn(argv: &[String], stdout: Stdio, stderr: Stdio) -> std::io::Result<Child> {
    let (program, arguments) = argv.split_first().ok_or(std::io::ErrorKind::InvalidInput)?;
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(stderr)
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
}

/// The children of a command that is broken off end with it.
struct Group(Option<u32>);

impl Group {
    fn spare(mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let leader = self
            .0
            .and_then(|pid| rustix::process::Pid::from_raw(pid.cast_signed()));
        if let Some(leader) = leader {
            let _ = rustix::process::kill_process_group(leader, rustix::process::Signal::KILL);
        }
    }
}

/// A machine's console while this value lives.
pub struct Listening {
    pub chunks: mpsc::Receiver<String>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub fn listen(machine: &str, console: &Console) -> Listening {
    let (to, chunks) = mpsc::channel(CHUNKS);
    let (machine, argv) = (machine.to_string(), console.command.clone());
    let task = tokio::spawn(async move {
        let mut pause = CONSOLE_AGAIN;
        loop {
            match hear(&argv, &to).await {
                Ok(0) => pause = (pause * 2).min(CONSOLE_AGAIN_MAX),
                Ok(_) => pause = CONSOLE_AGAIN,
                Err(error) => {
                    tracing::warn!(machine, "no console: {}: {error}", argv.join(" "));
                    pause = (pause * 2).min(CONSOLE_AGAIN_MAX);
                }
            }
            if to.is_closed() {
                return;
            }
            tokio::time::sleep(pause).await;
        }
    });
    Listening { chunks, task }
}

/// Until the command ends or nobody listens; how many bytes it said.
async fn hear(argv: &[String], to: &mpsc::Sender<String>) -> std::io::Result<usize> {
    let mut child = spawn(argv, Stdio::piped(), Stdio::null())?;
    let _group = Group(child.id());
    let mut stdout = child.stdout.take().expect("was piped");
    let mut heard = 0;
    let mut bytes = Vec::new();
    loop {
        if stdout.read_buf(&mut bytes).await? == 0 {
            return Ok(heard);
        }
        heard += bytes.len();
        if to.send(taken(&mut bytes)).await.is_err() {
            return Ok(heard);
        }
        bytes.reserve(CHUNK_BYTES);
    }
}

/// As text; a character that is not whole yet waits for its rest.
fn taken(bytes: &mut Vec<u8>) -> String {
    let whole = match std::str::from_utf8(bytes) {
        Err(e) if e.error_len().is_none() => e.valid_up_to(),
        Ok(_) | Err(_) => bytes.len(),
    };
    let rest = bytes.split_off(whole);
    let text = String::from_utf8_lossy(bytes).into_owned();
    *bytes = rest;
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(script: &str) -> Vec<String> {
        ["sh", "-c", script].map(String::from).to_vec()
    }

    #[test]
    fn a_character_cut_in_two_is_one() {
        let mut bytes = "µ".as_bytes()[..1].to_vec();
        assert_eq!(taken(&mut bytes), "");
        bytes.extend(&"µs".as_bytes()[1..]);
        assert_eq!(taken(&mut bytes), "µs");
        bytes.extend(b"a\xffb");
        assert_eq!(taken(&mut bytes), "a\u{fffd}b");
    }

    #[tokio::test]
    async fn a_command_that_fails_or_hangs_is_told_and_leaves_nothing_running() {
        let mut power = Power {
            on: vec![],
            off: vec![],
            cycle: words("echo no BMC >&2; exit 3"),
            status: vec![],
            limit_s: 1,
        };
        let failed = cycle("m", &power).await.unwrap_err().to_string();
        assert!(failed.contains("no BMC"), "{failed}");
        let folder = tempfile::tempdir().unwrap();
        let pid = folder.path().join("pid");
        power.cycle = words(&format!("sleep 1000 & echo $! > {}; wait", pid.display()));
        let failed = cycle("m", &power).await.unwrap_err().to_string();
        assert!(failed.contains("no end after 1 s"), "{failed}");
        let pid = std::fs::read_to_string(pid).unwrap();
        let runs = || {
            let state = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
            !state.is_empty() && !state.contains(") Z ")
        };
        // The signal was sent; when the kernel acts on it is its own affair.
        let gone = async {
            while runs() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), gone)
            .await
            .expect("the script's children end with it");
    }

    #[tokio::test]
    async fn a_console_is_heard_until_nobody_listens() {
        let mut listening = listen(
            "m",
            &Console {
                command: words("echo Linux; exec sleep 1000"),
            },
        );
        assert_eq!(listening.chunks.recv().await.unwrap(), "Linux\n");
    }
}
