//! Files put on a machine by SFTP. Blocking, with the session's limit on each step.

use ssh2::{ErrorCode, OpenFlags, OpenType, Session, Sftp};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use tokio::sync::oneshot;

/// The quickest of the sizes measured.
const WRITE_BYTES: usize = 256 << 10;

const NO_SUCH_FILE: i32 = 2;

type Done = oneshot::Sender<Result<(), FileTrouble>>;

pub enum UploadJob {
    Put { from: PathBuf, to: PathBuf, done: Done },
    Remove { path: PathBuf, done: Done },
}

pub enum FileTrouble {
    /// The file here cannot be read.
    Here(String),
    /// The machine said no.
    There(String),
    /// The connection is gone.
    Way(String),
}

impl UploadJob {
    /// The outcome, and who waits for it.
    pub fn perform(self, session: &Session) -> (Result<(), FileTrouble>, Done) {
        match self {
            UploadJob::Put { from, to, done } => (put(session, &from, &to), done),
            UploadJob::Remove { path, done } => (remove(session, &path), done),
        }
    }
}

fn open(session: &Session) -> Result<Sftp, FileTrouble> {
    session.sftp().map_err(|e| trouble("opening SFTP", e))
}

fn put(session: &Session, from: &Path, to: &Path) -> Result<(), FileTrouble> {
    let mut file =
        std::fs::File::open(from).map_err(|e| FileTrouble::Here(format!("{}: {e}", from.display())))?;
    let sftp = open(session)?;
    make_folders(&sftp, to.parent().unwrap_or(to))?;
    let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCLUSIVE;
    let mut there = sftp
        .open_mode(to, flags, 0o755, OpenType::File)
        .map_err(|e| trouble("creating the file", e))?;
    let mut piece = vec![0u8; WRITE_BYTES];
    loop {
        let n = file
            .read(&mut piece)
            .map_err(|e| FileTrouble::Here(format!("{}: {e}", from.display())))?;
        if n == 0 {
            break;
        }
        there
            .write_all(&piece[..n])
            .map_err(|e| FileTrouble::Way(format!("sending the agent: {e}")))?;
    }
    // Not every server can; the hash is checked afterwards in any case.
    let _ = there.fsync();
    there.close().map_err(|e| trouble("closing the file", e))
}

fn remove(session: &Session, path: &Path) -> Result<(), FileTrouble> {
    open(session)?
        .unlink(path)
        .map_err(|e| trouble("removing the file", e))
}

fn make_folders(sftp: &Sftp, folder: &Path) -> Result<(), FileTrouble> {
    match sftp.stat(folder) {
        Ok(_) => return Ok(()),
        Err(e) if e.code() == ErrorCode::SFTP(NO_SUCH_FILE) => {}
        Err(e) => return Err(trouble("looking at the folder", e)),
    }
    if let Some(parent) = folder.parent() {
        make_folders(sftp, parent)?;
    }
    match sftp.mkdir(folder, 0o755) {
        Ok(()) => Ok(()),
        // Someone else may have been quicker.
        Err(_) if sftp.stat(folder).is_ok_and(|stat| stat.is_dir()) => Ok(()),
        Err(e) => Err(trouble(&format!("making the folder {}", folder.display()), e)),
    }
}

fn trouble(what: &str, e: ssh2::Error) -> FileTrouble {
    match e.code() {
        ErrorCode::SFTP(_) => FileTrouble::There(format!("{what}: {e}")),
        ErrorCode::Session(_) => FileTrouble::Way(format!("{what}: {e}")),
    }
}
