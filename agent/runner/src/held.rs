//! Settings of the system that numbers depend on: set before a measurement, read back, looked at again after it, put
//! back at the end. A setting that this system does not have is recorded as absent; one that it has and does not take
//! is the lab's trouble, since a number measured without it would be compared with others that were measured with it.
//!
//! | name | value | |
//! |---|---|---|
//! | `governor` | `performance` | of every CPU frequency policy |
//! | `turbo`, `smt` | `on`, `off` | |
//! | `idle_latency_us` | `10` | idle states that take longer to leave are disabled |
//! | `thp`, `thp_defrag` | `never` | transparent huge pages |
//! | `numa_balancing`, `swappiness`, `nmi_watchdog`, `aslr` | a number | |
//! | `dirty_bytes`, `dirty_background_bytes`, `dirty_ratio`, `dirty_background_ratio`, `dirty_expire_centisecs`, `dirty_writeback_centisecs` | a number | |
//! | `scheduler`, `queue_depth`, `nr_requests`, `read_ahead_kib`, `wbt_latency_us` | | of the disks of scratch devices in use |
//! | `cpus` | `0-3,6` | that the benchmark may run on |
//! | `mitigations`, `memory` | `off`, `4G` | words of the kernel's command line, `mitigations=` and `mem=`: only looked at |

use crate::trouble::{Because, Trouble};
use crate::view::View;
use rustix::thread::CpuSet;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

pub const ABSENT: &str = "absent";

enum How {
    File(&'static str),
    /// A file in each of the folders whose names begin so.
    Each(&'static str, &'static str, &'static str),
    /// Of each disk in use, below its folder in sysfs.
    Disk(&'static str),
    Turbo,
    IdleLatency,
    Cpus,
    CommandLine(&'static str),
}

fn how(name: &str) -> Option<How> {
    Some(match name {
        "governor" => How::Each("/sys/devices/system/cpu/cpufreq", "policy", "scaling_governor"),
        "turbo" => How::Turbo,
        "smt" => How::File("/sys/devices/system/cpu/smt/control"),
        "idle_latency_us" => How::IdleLatency,
        "thp" => How::File("/sys/kernel/mm/transparent_hugepage/enabled"),
        "thp_defrag" => How::File("/sys/kernel/mm/transparent_hugepage/defrag"),
        "numa_balancing" => How::File("/proc/sys/kernel/numa_balancing"),
        "nmi_watchdog" => How::File("/proc/sys/kernel/nmi_watchdog"),
        "aslr" => How::File("/proc/sys/kernel/randomize_va_space"),
        "swappiness" => How::File("/proc/sys/vm/swappiness"),
        "dirty_bytes" => How::File("/proc/sys/vm/dirty_bytes"),
        "dirty_background_bytes" => How::File("/proc/sys/vm/dirty_background_bytes"),
        "dirty_ratio" => How::File("/proc/sys/vm/dirty_ratio"),
        "dirty_background_ratio" => How::File("/proc/sys/vm/dirty_background_ratio"),
        "dirty_expire_centisecs" => How::File("/proc/sys/vm/dirty_expire_centisecs"),
        "dirty_writeback_centisecs" => How::File("/proc/sys/vm/dirty_writeback_centisecs"),
        "scheduler" => How::Disk("queue/scheduler"),
        "queue_depth" => How::Disk("device/queue_depth"),
        "nr_requests" => How::Disk("queue/nr_requests"),
        "read_ahead_kib" => How::Disk("queue/read_ahead_kb"),
        "wbt_latency_us" => How::Disk("queue/wbt_lat_usec"),
        "cpus" => How::Cpus,
        "mitigations" => How::CommandLine("mitigations="),
        "memory" => How::CommandLine("mem="),
        _ => return None,
    })
}

/// One file that is to hold one value.
struct Kept {
    setting: String,
    path: String,
    value: String,
    before: String,
    /// What the kernel set to nought when this was set, and its value from before.
    partner: Option<(String, String)>,
}

/// Of each pair one is in force and the other reads as 0, which is not taken back when it is written.
const PARTNERS: [(&str, &str); 4] = [
    ("/proc/sys/vm/dirty_bytes", "/proc/sys/vm/dirty_ratio"),
    ("/proc/sys/vm/dirty_ratio", "/proc/sys/vm/dirty_bytes"),
    (
        "/proc/sys/vm/dirty_background_bytes",
        "/proc/sys/vm/dirty_background_ratio",
    ),
    (
        "/proc/sys/vm/dirty_background_ratio",
        "/proc/sys/vm/dirty_background_bytes",
    ),
];

/// Settings as long as they are held; put back when dropped.
pub struct Holding {
    view: View,
    kept: Vec<Kept>,
    cpus: Option<CpuSet>,
    facts: BTreeMap<String, String>,
}

/// `disks` are those of the scratch devices in use, as the kernel calls them in this boot.
pub fn hold(view: &View, wanted: &BTreeMap<String, String>, disks: &[String]) -> Result<Holding, Trouble> {
    let mut holding = Holding {
        view: view.clone(),
        kept: Vec::new(),
        cpus: None,
        facts: BTreeMap::new(),
    };
    for (name, value) in wanted {
        let Some(how) = how(name) else {
            return Err(Trouble(format!("held: this agent knows no setting `{name}`")));
        };
        let is = match how {
            How::Cpus => {
                holding.bind(value)?;
                true
            }
            How::CommandLine(word) => {
                holding.said(name, word, value)?;
                true
            }
            How::File(_) | How::Each(..) | How::Disk(_) | How::Turbo | How::IdleLatency => {
                let files = files(view, &how, value, disks)?;
                for (path, value) in &files {
                    holding.set(name, path, value)?;
                }
                !files.is_empty()
            }
        };
        let fact = if is { value.as_str() } else { ABSENT };
        holding.facts.insert(format!("held.{name}"), fact.into());
    }
    Ok(holding)
}

/// Which files hold a setting, and what each must say; none where the system does not have it.
fn files(view: &View, how: &How, value: &str, disks: &[String]) -> Result<Vec<(String, String)>, Trouble> {
    let there = |path: String, value: &str| view.path(&path).is_file().then(|| (path, value.to_string()));
    Ok(match how {
        How::File(path) => there(path.to_string(), value).into_iter().collect(),
        How::Each(folder, begins, file) => view
            .names(folder)
            .iter()
            .filter(|name| name.starts_with(begins))
            .filter_map(|name| there(format!("{folder}/{name}/{file}"), value))
            .collect(),
        How::Disk(file) => disks
            .iter()
            .filter_map(|disk| there(format!("/sys/class/block/{disk}/{file}"), value))
            .collect(),
        How::Turbo => {
            let (intel, other) = match value {
                "on" => ("0", "1"),
                "off" => ("1", "0"),
                _ => return Err(Trouble(format!("held: turbo = {value}: on or off"))),
            };
            there("/sys/devices/system/cpu/intel_pstate/no_turbo".into(), intel)
                .or_else(|| there("/sys/devices/system/cpu/cpufreq/boost".into(), other))
                .into_iter()
                .collect()
        }
        How::IdleLatency => {
            let most: u64 = value
                .parse()
                .because(|| format!("held: idle_latency_us = {value}"))?;
            idle_states(view)
                .into_iter()
                .filter_map(|state| {
                    let latency: u64 = view.text(&format!("{state}/latency"))?.parse().ok()?;
                    there(format!("{state}/disable"), if latency > most { "1" } else { "0" })
                })
                .collect()
        }
        How::Cpus | How::CommandLine(_) => Vec::new(),
    })
}

pub fn idle_states(view: &View) -> Vec<String> {
    let mut states = Vec::new();
    for cpu in cpus(view) {
        let folder = format!("/sys/devices/system/cpu/{cpu}/cpuidle");
        states.extend(
            view.names(&folder)
                .iter()
                .map(|state| format!("{folder}/{state}")),
        );
    }
    states
}

/// `cpu0`, `cpu1`, …
pub fn cpus(view: &View) -> Vec<String> {
    let mut names = view.names("/sys/devices/system/cpu");
    names.retain(|n| n.strip_prefix("cpu").is_some_and(|n| n.parse::<u32>().is_ok()));
    names
}

/// Of `always [madvise] never`, the word in brackets; else the whole.
pub fn chosen(text: &str) -> &str {
    let inner = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inner.map_or(text, |(inner, _)| inner).trim()
}

impl Holding {
    fn set(&mut self, setting: &str, path: &str, value: &str) -> Result<(), Trouble> {
        let before = self.view.text(path).unwrap_or_default();
        let before = chosen(&before).to_string();
        let partner = PARTNERS
            .iter()
            .find(|(one, _)| *one == path)
            .and_then(|(_, other)| {
                let value = self.view.text(other).filter(|v| v != "0")?;
                Some(((*other).to_string(), value))
            });
        if before != value {
            let written = fs::write(self.view.path(path), value);
            let is = self.view.text(path).unwrap_or_default();
            if chosen(&is) != value {
                let why = written.err().map_or(String::new(), |e| format!(" ({e})"));
                let offered = path
                    .rsplit_once('/')
                    .and_then(|(folder, _)| self.view.text(&format!("{folder}/scaling_available_governors")));
                let offered = offered.map_or(String::new(), |o| format!("; offered: {o}"));
                return Err(Trouble(format!(
                    "{setting} = {value} cannot be held: {path} says `{is}`{why}{offered}"
                )));
            }
        }
        self.kept.push(Kept {
            setting: setting.into(),
            path: path.into(),
            value: value.into(),
            before,
            partner,
        });
        Ok(())
    }

    /// Everything started from here on runs on these.
    fn bind(&mut self, list: &str) -> Result<(), Trouble> {
        let mut set = CpuSet::new();
        for cpu in cpu_list(list)? {
            set.set(cpu);
        }
        let before = rustix::thread::sched_getaffinity(None).because(|| "cannot read the CPU set".into())?;
        rustix::thread::sched_setaffinity(None, &set).because(|| format!("cpus = {list} cannot be held"))?;
        let is = rustix::thread::sched_getaffinity(None).because(|| "cannot read the CPU set".into())?;
        if is != set {
            return Err(Trouble(format!(
                "cpus = {list} cannot be held: not all of them are online"
            )));
        }
        self.cpus = Some(before);
        Ok(())
    }

    fn said(&self, setting: &str, word: &str, value: &str) -> Result<(), Trouble> {
        let line = self.view.text("/proc/cmdline").unwrap_or_default();
        // The last one counts.
        let is = line
            .split_whitespace()
            .filter_map(|w| w.strip_prefix(word))
            .next_back();
        if is == Some(value) {
            return Ok(());
        }
        Err(Trouble(format!(
            "{setting} = {value} is not held: the kernel's command line says {}",
            is.map_or(format!("no {word}"), |is| format!("{word}{is}"))
        )))
    }

    /// What was held, and what is absent here.
    pub fn facts(&self) -> &BTreeMap<String, String> {
        &self.facts
    }

    /// Does all of it still stand, now that the runs are over?
    pub fn check(&self) -> Result<(), Trouble> {
        for kept in &self.kept {
            let is = self.view.text(&kept.path).unwrap_or_default();
            if chosen(&is) != kept.value {
                return Err(Trouble(format!(
                    "{} = {} was changed during the benchmark: {} says `{is}`",
                    kept.setting, kept.value, kept.path
                )));
            }
        }
        Ok(())
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        // Backwards, so that a file set twice has its first value again; what refuses is as good as it gets.
        for kept in self.kept.iter().rev().filter(|k| k.value != k.before) {
            let (path, value) = match &kept.partner {
                Some((path, value)) => (path, value),
                None => (&kept.path, &kept.before),
            };
            let path: PathBuf = self.view.path(path);
            let _ = fs::write(path, value);
        }
        if let Some(cpus) = &self.cpus {
            let _ = rustix::thread::sched_setaffinity(None, cpus);
        }
    }
}

/// `0-3,6`.
pub fn cpu_list(text: &str) -> Result<Vec<usize>, Trouble> {
    let wrong = || Trouble(format!("cpus = {text}: write it as 0-3,6"));
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: usize = first.trim().parse().map_err(|_| wrong())?;
        let last: usize = last.trim().parse().map_err(|_| wrong())?;
        if first > last || last >= CpuSet::MAX_CPU {
            return Err(wrong());
        }
        cpus.extend(first..=last);
    }
    Ok(cpus)
}
