//! The folder that holds all of the agent's state, and how files in it are changed safely.

use crate::trouble::{Because, Trouble, Unable};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug)]
pub struct Root {
    pub dir: PathBuf,
}

impl Root {
    pub fn open(dir: &Path) -> Result<Root, Trouble> {
        for part in ["spool", "files", "slots", "trees"] {
            let path = dir.join(part);
            fs::create_dir_all(&path).because(|| format!("cannot create {}", path.display()))?;
        }
        let dir = fs::canonicalize(dir).because(|| format!("cannot resolve {}", dir.display()))?;
        Ok(Root { dir })
    }

    /// One at a time changes tokens and starts orders; released when the value is dropped or the process dies.
    pub fn lock(&self) -> Result<File, Trouble> {
        lock(&self.dir.join("lock"))
    }

    pub fn spool(&self, id: &str) -> PathBuf {
        self.dir.join("spool").join(id)
    }

    pub fn file(&self, sha256: &str) -> PathBuf {
        self.dir.join("files").join(sha256)
    }

    pub fn slot(&self, slot: &str) -> PathBuf {
        self.dir.join("slots").join(slot)
    }

    pub fn objects(&self) -> PathBuf {
        self.dir.join("objects.git")
    }

    pub fn tree_mark(&self, tree: &str) -> PathBuf {
        self.dir.join("trees").join(tree)
    }

    pub fn token(&self) -> Result<u64, Trouble> {
        let path = self.dir.join("token");
        match fs::read_to_string(&path) {
            Ok(text) => text
                .trim()
                .parse()
                .because(|| format!("{} is not a number", path.display())),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(0),
            Err(e) => Err(Trouble(format!("cannot read {}: {e}", path.display()))),
        }
    }

    pub fn set_token(&self, token: u64) -> Result<(), Trouble> {
        write_atomically(&self.dir.join("token"), token.to_string().as_bytes())
    }

    pub fn free_mib(&self) -> u64 {
        rustix::fs::statvfs(&self.dir).map_or(0, |s| s.f_bavail.saturating_mul(s.f_frsize) >> 20)
    }
}

pub fn lock(path: &Path) -> Result<File, Trouble> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .because(|| format!("cannot open {}", path.display()))?;
    file.lock()
        .because(|| format!("cannot lock {}", path.display()))?;
    Ok(file)
}

/// After this the file has the old content or the new one, whatever happens.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), Trouble> {
    let temporary = path.with_extension(format!("{}.new", std::process::id()));
    let write = || -> std::io::Result<()> {
        let mut file = File::create(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        sync_parent(path)
    };
    write().because(|| format!("cannot write {}", path.display()))
}

pub fn sync_parent(path: &Path) -> std::io::Result<()> {
    match path.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

/// Order ids and slots become names of folders: nothing but letters, digits, `-`, `_` and inner dots.
pub fn check_name(what: &str, name: &str) -> Result<(), Unable> {
    let fine = !name.is_empty()
        && name.len() <= 100
        && !name.starts_with('.')
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    if fine {
        Ok(())
    } else {
        Err(Unable::refused(
            "corrupt",
            format!("{name:?} is not a valid {what}"),
        ))
    }
}

/// A SHA-256 or a git object id.
pub fn check_hex(what: &str, name: &str, lengths: &[usize]) -> Result<(), Unable> {
    let hex = name
        .bytes()
        .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    if hex && lengths.contains(&name.len()) {
        Ok(())
    } else {
        Err(Unable::refused(
            "corrupt",
            format!("{name:?} is not a {what} in lower-case hex"),
        ))
    }
}
