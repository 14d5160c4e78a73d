//! What a dead kernel left in pstore: the end of its log, if the firmware or a reserved piece of memory kept it.

use crate::measure::console::{Fault, Watch};
use crate::system;
use std::fs;

const PSTORE: &str = "/sys/fs/pstore";
/// Files of one crash are parts of some KiB each.
const PARTS: usize = 64;

/// Names that are there now.
pub fn names() -> Vec<String> {
    let Ok(entries) = fs::read_dir(system::path(PSTORE)) else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .filter_map(|e| e.ok()?.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

/// The fault and its lines, of what came since `before`; those files are then removed, which frees the firmware's
/// little memory for the next crash.
pub fn collect(before: &[String]) -> Option<(Option<Fault>, String)> {
    let mut watch = Watch::default();
    let mut any = false;
    for name in names().iter().filter(|n| !before.contains(n)).take(PARTS) {
        let path = system::path(PSTORE).join(name);
        if let Ok(content) = fs::read(&path) {
            any = true;
            watch.take(&content);
            watch.take(b"\n");
        }
        let _ = fs::remove_file(&path);
    }
    any.then(|| (watch.fault, watch.excerpt()))
}
