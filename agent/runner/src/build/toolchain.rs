//! Which compiler really builds: the binary behind names, links and wrappers, by digest.

use crate::probe::{version, which};
use crate::root::{Root, write_atomically};
use crate::sha;
use crate::trouble::{Because, Trouble};
use sha2::{Digest, Sha256};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

pub struct Compiler {
    /// First line of `--version`.
    pub version: String,
    /// Over the driver and, where it names one, the compiler proper (`cc1`): a package upgrade changes either.
    pub digest: String,
}

impl Compiler {
    /// As `find`, but files that did not change since are not read again (`cc1` has some 30 MB).
    pub fn find_known(root: &Root, name: &str) -> Result<Compiler, Trouble> {
        let Some(found) = which(name) else {
            return Compiler::find(name);
        };
        let path = fs::canonicalize(&found).because(|| format!("cannot resolve {}", found.display()))?;
        let proper = compiler_proper(&path);
        let identity = |p: &PathBuf| {
            let m = fs::metadata(p).ok()?;
            Some((
                p.clone(),
                m.ino(),
                m.len(),
                m.mtime(),
                m.mtime_nsec(),
                m.ctime(),
                m.ctime_nsec(),
            ))
        };
        let seen = format!("{:?} {:?}", identity(&path), proper.as_ref().and_then(identity));
        let memory = root.dir.join("compilers");
        fs::create_dir_all(&memory).because(|| format!("cannot create {}", memory.display()))?;
        let memory = memory.join(sha::of_bytes(seen.as_bytes()));
        if let Ok(text) = fs::read_to_string(&memory)
            && let Some((digest, version)) = text.split_once(' ')
        {
            return Ok(Compiler {
                version: version.into(),
                digest: digest.into(),
            });
        }
        let compiler = Compiler::find(name)?;
        write_atomically(
            &memory,
            format!("{} {}", compiler.digest, compiler.version).as_bytes(),
        )?;
        Ok(compiler)
    }

    pub fn find(name: &str) -> Result<Compiler, Trouble> {
        let found = which(name).ok_or_else(|| Trouble(format!("the compiler {name} is not installed")))?;
        let mut path = fs::canonicalize(&found).because(|| format!("cannot resolve {}", found.display()))?;
        // A masquerade link (`/usr/lib/ccache/gcc`) resolves to ccache itself: the next one on PATH is meant.
        if path.file_name().is_some_and(|n| n == "ccache") {
            path = behind_ccache(name)?;
        }
        let driver = sha::of_file(&path).because(|| format!("cannot read {}", path.display()))?;
        let mut hash = Sha256::new();
        hash.update(driver.as_bytes());
        if let Some(proper) = compiler_proper(&path) {
            let digest = sha::of_file(&proper).because(|| format!("cannot read {}", proper.display()))?;
            hash.update(digest.as_bytes());
        }
        Ok(Compiler {
            version: version(&path),
            digest: sha::hex(&hash.finalize()),
        })
    }
}

fn behind_ccache(name: &str) -> Result<PathBuf, Trouble> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .filter_map(|d| fs::canonicalize(d.join(name)).ok())
        .find(|p| p.is_file() && p.file_name().is_some_and(|n| n != "ccache"))
        .ok_or_else(|| Trouble(format!("only ccache answers to {name}, no compiler")))
}

/// gcc's driver is a thin program; `cc1` does the work. clang names no other.
fn compiler_proper(driver: &PathBuf) -> Option<PathBuf> {
    let said = Command::new(driver)
        .arg("-print-prog-name=cc1")
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let path = PathBuf::from(String::from_utf8_lossy(&said.stdout).trim());
    (path.is_absolute() && path.is_file()).then_some(path)
}
