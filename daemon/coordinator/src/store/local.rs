//! The private Postgres cluster that a daemon without `database_url` keeps for itself.
//!
//! It is made by the system's own binaries in the state folder, listens on a unix socket in a folder that only
//! its user may enter, and outlives a killed daemon: the next one adopts it. Several daemons on one state
//! folder share it; the last to leave cleanly stops it.
//!
//! What this module must *not* know: what is stored in the cluster.

mod binaries;
mod place;

use anyhow::{Context, bail, ensure};
use binaries::Binaries;
use place::{Owner, Place};
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Recovery after a crash replays at most a checkpoint's worth of log; minutes would mean a sick disk.
const START_LIMIT: Duration = Duration::from_secs(120);
/// Backends of a killed postmaster leave within moments; until then their shared memory bars a new one.
const ORPHANS_LIMIT: Duration = Duration::from_secs(15);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A running cluster. Dropped without [`Cluster::stop`], as in a crash, it runs on.
#[derive(Debug)]
pub struct Cluster {
    place: Place,
    binaries: Binaries,
    socket_dir: PathBuf,
    /// Held shared by every daemon that uses the cluster.
    users: File,
}

impl Cluster {
    /// Makes, starts or adopts the cluster of this state folder. Blocks; seconds the first time.
    pub fn start(state_dir: &Path, bin_dir: Option<&Path>) -> anyhow::Result<Cluster> {
        let owner = Owner::choose(state_dir)?;
        let place = Place::find(state_dir, &owner)?;
        let _one_at_a_time = locked(&place.home.join("lock"))?;
        let binaries = Binaries::find(bin_dir, place.made_by()?)?;
        if place.made_by()?.is_none() {
            init(&place, &binaries)?;
        }
        let socket_dir = match running(&place)? {
            Some(pid) => {
                let socket_dir = wait_ready(&place, pid)?;
                tracing::info!(
                    "private Postgres in {} is running already (pid {pid})",
                    place.data().display()
                );
                socket_dir
            }
            None => launch(&place, &binaries)?,
        };
        let users = open_lock(&place.home.join("users"))?;
        users
            .lock_shared()
            .with_context(|| format!("{}: cannot be locked", place.home.join("users").display()))?;
        Ok(Cluster {
            place,
            binaries,
            socket_dir,
            users,
        })
    }

    pub fn url(&self) -> String {
        format!(
            "postgres:///postgres?user=perfbisect&host={}",
            percent(&self.socket_dir)
        )
    }

    /// Where it keeps its data.
    pub fn data(&self) -> PathBuf {
        self.place.data()
    }

    /// A clean end: stops the cluster unless another daemon still uses it.
    pub fn stop(self) -> anyhow::Result<()> {
        let _one_at_a_time = locked(&self.place.home.join("lock"))?;
        self.users
            .unlock()
            .context("the private Postgres' list of users cannot be left")?;
        if self.users.try_lock().is_err() {
            tracing::info!("private Postgres runs on: another daemon uses it");
            return Ok(());
        }
        let mut stop = self.place.owner.command(&self.binaries.dir.join("pg_ctl"));
        stop.arg("-D")
            .arg(self.place.data())
            .args(["-m", "fast", "-w", "-t", "60", "stop"]);
        carried_out(&mut stop, &self.place)
    }
}

/// Made aside and renamed, so that a folder `data` is always a whole cluster.
fn init(place: &Place, binaries: &Binaries) -> anyhow::Result<()> {
    let aside = place.home.join("data.new");
    if aside.exists() {
        std::fs::remove_dir_all(&aside).with_context(|| format!("{}: cannot be removed", aside.display()))?;
    }
    tracing::info!(
        "making a private Postgres {} cluster in {}",
        binaries.major,
        place.data().display()
    );
    let mut initdb = place.owner.command(&binaries.dir.join("initdb"));
    initdb
        .args([
            "-U",
            "perfbisect",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "-D",
        ])
        .arg(&aside);
    carried_out(&mut initdb, place)?;
    let conf = aside.join("postgresql.conf");
    let text = std::fs::read_to_string(&conf).with_context(|| conf.display().to_string())?;
    std::fs::write(&conf, text + "\ninclude_if_exists = 'perfbisect.conf'\n")
        .with_context(|| conf.display().to_string())?;
    std::fs::rename(&aside, place.data()).with_context(|| format!("{}: cannot be renamed", aside.display()))
}

fn launch(place: &Place, binaries: &Binaries) -> anyhow::Result<PathBuf> {
    let socket_dir = place.socket_dir()?;
    let quoted = socket_dir.display().to_string().replace('\'', "''");
    let settings = format!(
        "# Written by perfbisect at every start.\nlisten_addresses = ''\nunix_socket_directories = '{quoted}'\n\
         unix_socket_permissions = 0700\nmax_connections = 100\n"
    );
    let conf = place.data().join("perfbisect.conf");
    std::fs::write(&conf, settings).with_context(|| conf.display().to_string())?;
    place.owner.give(&conf)?;
    let since = Instant::now();
    loop {
        let mut start = place.owner.command(&binaries.dir.join("pg_ctl"));
        start
            .arg("-D")
            .arg(place.data())
            .arg("-l")
            .arg(place.home.join("log"));
        start
            .args(["-w", "-t"])
            .arg(START_LIMIT.as_secs().to_string())
            .arg("start");
        match carried_out(&mut start, place) {
            Ok(()) => return Ok(socket_dir),
            Err(_) if orphans(place) && since.elapsed() < ORPHANS_LIMIT => {
                std::thread::sleep(LOOK_AGAIN * 10)
            }
            Err(error) => return Err(error),
        }
    }
}

/// Why the last start failed, as the log's end has it: backends of a killed postmaster are still there.
fn orphans(place: &Place) -> bool {
    log_tail(place).contains("is still in use")
}

/// The postmaster's pid, if it lives. A stale pid file, also one whose number another program has by now, is
/// removed.
fn running(place: &Place) -> anyhow::Result<Option<u32>> {
    let file = place.data().join("postmaster.pid");
    let text = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e).with_context(|| file.display().to_string()),
    };
    let pid: Option<u32> = text.lines().next().and_then(|line| line.trim().parse().ok());
    if let Some(pid) = pid {
        // A postmaster works in its data folder.
        let works_in = std::fs::read_link(format!("/proc/{pid}/cwd"));
        let data = place
            .data()
            .canonicalize()
            .with_context(|| place.data().display().to_string())?;
        match works_in {
            Ok(folder) if folder == data => return Ok(Some(pid)),
            Ok(_) => {}
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => {
                return Err(e).with_context(|| {
                    format!(
                        "{}: process {pid} belongs to another user; stop that Postgres first",
                        file.display()
                    )
                });
            }
        }
    }
    tracing::info!("private Postgres was not stopped cleanly; it recovers by itself now");
    std::fs::remove_file(&file).with_context(|| format!("{}: cannot be removed", file.display()))?;
    Ok(None)
}

/// Waits until a running postmaster accepts connections; where, its pid file says (line 5), and whether (line 8).
fn wait_ready(place: &Place, pid: u32) -> anyhow::Result<PathBuf> {
    let file = place.data().join("postmaster.pid");
    let since = Instant::now();
    loop {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        if let (Some(dir), Some(&"ready")) = (lines.get(4).filter(|dir| !dir.is_empty()), lines.get(7)) {
            return Ok(PathBuf::from(dir));
        }
        ensure!(
            since.elapsed() < START_LIMIT,
            "private Postgres (pid {pid}) in {} does not get ready in {} s; its log: {}",
            place.data().display(),
            START_LIMIT.as_secs(),
            place.home.join("log").display()
        );
        std::thread::sleep(LOOK_AGAIN);
    }
}

fn carried_out(command: &mut Command, place: &Place) -> anyhow::Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let done = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{program} cannot be started"))?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    bail!(
        "{program} failed ({}): {}\n{}",
        done.status,
        said.trim(),
        log_tail(place)
    )
}

fn log_tail(place: &Place) -> String {
    let text = std::fs::read(place.home.join("log")).unwrap_or_default();
    let text = String::from_utf8_lossy(&text[text.len().saturating_sub(2000)..]).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(8)..].join("\n")
}

fn open_lock(path: &Path) -> anyhow::Result<File> {
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(path)
        .with_context(|| format!("{}: cannot be opened", path.display()))
}

/// Held until dropped.
fn locked(path: &Path) -> anyhow::Result<File> {
    let file = open_lock(path)?;
    file.lock()
        .with_context(|| format!("{}: cannot be locked", path.display()))?;
    Ok(file)
}

fn percent(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_./~".contains(&b);
    let one = |b: &u8| {
        if plain(*b) {
            char::from(*b).to_string()
        } else {
            format!("%{b:02X}")
        }
    };
    path.as_os_str().as_bytes().iter().map(one).collect()
}
