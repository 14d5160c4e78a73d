//! A system as its files show it: `/proc`, `/sys`, `/dev`, `/etc`. What this machine lacks is read from file trees in
//! tests.

use crate::system;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// This system, or a folder with the files of one.
#[derive(Clone, Debug)]
pub struct View(PathBuf);

impl View {
    pub fn here() -> View {
        View(system::path("/"))
    }

    pub fn at(folder: &Path) -> View {
        View(folder.into())
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }

    pub fn text(&self, path: &str) -> Option<String> {
        let bytes = fs::read(self.path(path)).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
        (!text.is_empty()).then(|| text.to_string())
    }

    pub fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(path)).into_iter().flatten();
        let mut names: Vec<String> = entries
            .filter_map(|e| e.ok()?.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }

    /// Of a block device's file, whatever links lead to it.
    pub fn number_of(&self, path: &str) -> Option<Number> {
        let meta = fs::metadata(self.path(path)).ok()?;
        meta.file_type()
            .is_block_device()
            .then(|| Number::of(meta.rdev()))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Number {
    pub major: u32,
    pub minor: u32,
}

impl Number {
    pub fn of(device: u64) -> Number {
        Number {
            major: rustix::fs::major(device),
            minor: rustix::fs::minor(device),
        }
    }

    /// `8:16`.
    pub fn parse(text: &str) -> Option<Number> {
        let (major, minor) = text.trim().split_once(':')?;
        Some(Number {
            major: major.parse().ok()?,
            minor: minor.parse().ok()?,
        })
    }
}
