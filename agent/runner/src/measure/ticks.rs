//! The rate of the time stamp counter, for guests under plain TCG: theirs is the host's, and a kernel that measures it
//! on a busy host gives up and falls back to jiffies, with which nothing short can be timed.

use crate::process;
use crate::root::{Root, write_atomically};
use std::time::{Duration, Instant};

/// Between the two readings; with a reading's uncertainty below a microsecond the rate is right to some millionths.
const APART: Duration = Duration::from_millis(250);
/// The reading with the least time around it is the one nobody interrupted.
const TRIES: usize = 200;

/// In kHz; measured once per boot of the host, so that every guest is told the same. None where there is no such counter.
pub fn host_khz(root: &Root) -> Option<u64> {
    let memory = root.dir.join(format!("tsc-{}", process::boot_id()));
    if let Some(known) = std::fs::read_to_string(&memory)
        .ok()
        .and_then(|t| t.trim().parse().ok())
    {
        return Some(known);
    }
    let (first, then) = reading()?;
    std::thread::sleep(APART);
    let (second, now) = reading()?;
    let khz = second.checked_sub(first)? as f64 / now.duration_since(then).as_secs_f64() / 1e3;
    let khz = khz.round() as u64;
    let _ = write_atomically(&memory, khz.to_string().as_bytes());
    Some(khz)
}

#[cfg(target_arch = "x86_64")]
fn reading() -> Option<(u64, Instant)> {
    let attempt = || {
        let before = Instant::now();
        // SAFETY: every x86_64 has this instruction; it reads a counter and nothing else.
        let ticks = unsafe { std::arch::x86_64::_rdtsc() };
        let took = before.elapsed();
        (took, ticks, before + took / 2)
    };
    (0..TRIES)
        .map(|_| attempt())
        .min_by_key(|(took, ..)| *took)
        .map(|(_, ticks, at)| (ticks, at))
}

#[cfg(not(target_arch = "x86_64"))]
fn reading() -> Option<(u64, Instant)> {
    None
}
