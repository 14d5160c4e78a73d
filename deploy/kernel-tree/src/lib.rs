//! Makes a small, real kernel tree with a history to search: Debian's kernel source, shrunk to what a tiny
//! configuration needs, and some fifty commits drawn from a seed, one of which makes a system call slower.
//!
//! No kernel source is kept here: the names of files, and edits found by the text they replace. It knows nothing of
//! perfbisect; the truth it writes down is for whoever compares it with what a search found.

pub mod edit;
pub mod import;
pub mod random;
pub mod source;
pub mod story;

use std::fmt;
use std::path::PathBuf;

/// What went wrong, in words for the person who reads the last line of the script.
#[derive(Debug)]
pub struct Error(pub String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

pub type Result<T> = std::result::Result<T, Error>;

pub fn fail<T>(what: impl Into<String>) -> Result<T> {
    Err(Error(what.into()))
}

pub struct Wish {
    /// The source as the distribution ships it.
    pub tarball: PathBuf,
    /// Keeps the shrunk source and one repository per seed.
    pub cache: PathBuf,
    pub seed: u64,
    /// Loss of the pipe benchmark in per cent; drawn between 4 and 7 where it is not given.
    pub loss_pct: Option<f64>,
    /// For a machine of its own with disk and network: enough source for config/kernels/x86-lab.fragment, and one
    /// commit that hangs at boot.
    pub for_machine: bool,
}

/// A repository with the tags `v1.0` (good) and `v1.1` (bad).
#[derive(Clone, PartialEq, Debug)]
pub struct Made {
    pub repository: PathBuf,
    /// Lines of `word commit…`, see [`story::Story::truth`]. No search may read it.
    pub truth: PathBuf,
}

/// The tree for `wish`, made now or found in the cache.
pub fn make(wish: &Wish) -> Result<Made> {
    let base = source::base(&wish.tarball, &wish.cache, wish.for_machine)?;
    let story = story::Story::draw(wish.seed, wish.loss_pct, wish.for_machine)?;
    import::tree(&base, &story, &wish.cache)
}
