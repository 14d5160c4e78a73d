//! Which compiler really builds: the binary behind names, links and wrappers, by digest.

use crate::probe::{version, which};
use crate::sha;
use crate::trouble::{Because, Trouble};
use sha2::{Digest, Sha256};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

pub struct Compiler {
    /// First line of `--version`.
    pub version: String,
    /// Over the driver and, where it names one, the compiler proper (`cc1`): a package upgrade changes either.
    pub digest: String,
}

impl Compiler {
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
