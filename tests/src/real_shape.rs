//! The shape of a real merge-heavy history: that of git itself, as `data/dags/git.dag.gz`.
//!
//! One line per commit, parents before children; the numbers on a line are the distances back to its parents.

use std::process::Command;

/// Some releases of git by their place in the shape.
pub const V2_0: usize = 36_429;
pub const V2_30: usize = 61_474;
pub const V2_45: usize = 73_045;

/// Parents of every commit, by place.
pub fn git() -> Vec<Vec<usize>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/data/dags/git.dag.gz");
    let output = Command::new("gzip")
        .args(["-dc", path])
        .output()
        .expect("gzip is installed");
    assert!(
        output.status.success(),
        "{path}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).expect("numbers and spaces");
    let back = |line: &str, at: usize| -> Vec<usize> {
        line.split_whitespace()
            .map(|n| at - n.parse::<usize>().expect("a distance"))
            .collect()
    };
    text.lines()
        .enumerate()
        .map(|(at, line)| back(line, at))
        .collect()
}
