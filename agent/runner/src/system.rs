//! Where the running kernel tells about itself.
//!
//! A journey's tests play a machine's boots without a machine: they keep a folder with the few files of `/proc`, `/sys`
//! and `/dev` that tell one boot from another, and name it in the environment. What this must *not* know: anything of
//! orders and journeys.

use std::path::{Path, PathBuf};

const PLAYED: &str = "PERFBISECT_PLAYED_SYSTEM";

/// True where the boots are played: then nothing may restart the machine that plays them.
pub fn is_played() -> bool {
    std::env::var_os(PLAYED).is_some()
}

/// `path` as the running kernel shows it.
pub fn path(path: &str) -> PathBuf {
    match std::env::var_os(PLAYED) {
        Some(folder) => Path::new(&folder).join(path.trim_start_matches('/')),
        None => path.into(),
    }
}

pub fn command_line() -> String {
    let text = std::fs::read_to_string(path("/proc/cmdline")).unwrap_or_default();
    text.trim().to_string()
}

/// Seconds since this kernel began; counts on while the wall clock is set.
pub fn uptime_s() -> u64 {
    let text = std::fs::read_to_string(path("/proc/uptime")).unwrap_or_default();
    text.split('.').next().and_then(|s| s.parse().ok()).unwrap_or(0)
}
