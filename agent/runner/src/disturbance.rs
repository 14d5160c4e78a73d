//! What goes on beside a run: counters before and after it. Facts only; whether they disturbed, the daemon says, and
//! before anybody has looked at the run's number.

use crate::held::cpus;
use crate::view::{Number, View};
use protocol::Disturbance;
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Of `/proc/stat`, on every machine that this agent runs on.
const TICKS_A_SECOND: f64 = 100.0;
const SECTORS_A_MIB: f64 = 2048.0;
/// A record of `utmp`: type, process, line of 32 bytes, id, user of 32 bytes, …
const UTMP_BYTES: usize = 384;
const USER_PROCESS: i16 = 7;

/// The counters at one moment.
#[derive(Clone, Debug)]
pub struct Counters {
    pub monotonic_s: f64,
    /// Wall clock less monotonic clock: moves when the clock is set.
    pub offset_s: f64,
    pub steal_ticks: Option<u64>,
    pub throttled: Option<u64>,
    pub logins: Vec<String>,
    /// Disk to sectors that it moved; those of the benchmark are left out.
    pub sectors: Option<BTreeMap<String, u64>>,
    pub cpus: u32,
}

/// `own` are the benchmark's disks.
pub fn now(view: &View, own: &[String]) -> Counters {
    let seconds = |t: rustix::time::Timespec| t.tv_sec as f64 + t.tv_nsec as f64 / 1e9;
    let monotonic_s = seconds(clock_gettime(ClockId::Monotonic));
    Counters {
        monotonic_s,
        offset_s: seconds(clock_gettime(ClockId::Realtime)) - monotonic_s,
        steal_ticks: steal(view),
        throttled: throttled(view),
        logins: logins(view),
        sectors: sectors(view, own),
        cpus: u32::try_from(cpus(view).len()).unwrap_or(1).max(1),
    }
}

pub fn between(before: &Counters, after: &Counters) -> Disturbance {
    let rise = |a: Option<u64>, b: Option<u64>| Some(b?.saturating_sub(a?));
    let foreign = before.sectors.as_ref().zip(after.sectors.as_ref()).map(|(a, b)| {
        let moved = |(disk, n): (&String, &u64)| n.saturating_sub(*a.get(disk).unwrap_or(n));
        b.iter().map(moved).sum::<u64>() as f64 / SECTORS_A_MIB
    });
    let mut logins = before.logins.clone();
    logins.extend(after.logins.iter().cloned());
    logins.sort();
    logins.dedup();
    Disturbance {
        wall_s: after.monotonic_s - before.monotonic_s,
        cpus: after.cpus,
        steal_s: rise(before.steal_ticks, after.steal_ticks).map(|t| t as f64 / TICKS_A_SECOND),
        throttled: rise(before.throttled, after.throttled),
        logins,
        foreign_io_mib: foreign,
        clock_step_s: after.offset_s - before.offset_s,
    }
}

/// The eighth number of the first line; kernels before 2.6.11 have none.
fn steal(view: &View) -> Option<u64> {
    let stat = view.text("/proc/stat")?;
    let line = stat.lines().find(|l| l.starts_with("cpu "))?;
    line.split_whitespace().nth(8)?.parse().ok()
}

fn throttled(view: &View) -> Option<u64> {
    let mut sum = None;
    for cpu in cpus(view) {
        for counter in ["core_throttle_count", "package_throttle_count"] {
            let path = format!("/sys/devices/system/cpu/{cpu}/thermal_throttle/{counter}");
            let count: Option<u64> = view.text(&path).and_then(|t| t.parse().ok());
            sum = count.map(|c| c + sum.unwrap_or(0)).or(sum);
        }
    }
    sum
}

fn logins(view: &View) -> Vec<String> {
    let Ok(utmp) = std::fs::read(view.path("/var/run/utmp")) else {
        return Vec::new();
    };
    let word = |bytes: &[u8]| {
        let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    };
    utmp.chunks_exact(UTMP_BYTES)
        .filter(|r| i16::from_ne_bytes([r[0], r[1]]) == USER_PROCESS)
        .map(|r| format!("{} {}", word(&r[44..76]), word(&r[8..40])))
        .collect()
}

/// Whole disks that are hardware, or look like it from a guest.
fn sectors(view: &View, own: &[String]) -> Option<BTreeMap<String, u64>> {
    let stats = view.text("/proc/diskstats")?;
    let mut sectors = BTreeMap::new();
    for line in stats.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, _, name, _, _, read, _, _, _, written, ..] = fields.as_slice() else {
            continue;
        };
        let made_of_others = ["loop", "ram", "zram", "dm-", "md"]
            .iter()
            .any(|p| name.starts_with(p));
        let is_part = view.path(&format!("/sys/class/block/{name}/partition")).exists();
        if made_of_others || is_part || own.iter().any(|o| o == name) {
            continue;
        }
        let (read, written) = (read.parse().unwrap_or(0), written.parse().unwrap_or(0));
        sectors.insert((*name).to_string(), u64::saturating_add(read, written));
    }
    Some(sectors)
}

/// The disk that a folder lies on: a benchmark without a scratch device works there.
pub fn disk_of(view: &View, folder: &Path) -> Option<String> {
    let number = Number::of(std::fs::metadata(folder).ok()?.dev());
    let folder = format!("/sys/dev/block/{}:{}", number.major, number.minor);
    let path = std::fs::canonicalize(view.path(&folder)).ok()?;
    let disk = if path.join("partition").exists() {
        path.parent()?
    } else {
        &path
    };
    Some(disk.file_name()?.to_string_lossy().into_owned())
}
