//! Processes as `/proc` shows them: who is alive, who descends from whom, and how a whole tree of them is ended.

use crate::system;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fs;
use std::time::{Duration, Instant};

/// In the environment of everything an order starts; finds those whose parents were killed from outside.
pub const MARK: &str = "PERFBISECT_ORDER";

/// For so long a killed process may stay (uninterruptible sleep) before we say that it cannot be ended.
const KILL_LIMIT: Duration = Duration::from_secs(20);

/// A process that can be told from a later one with the same number, also after the machine restarted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Identity {
    pub pid: i32,
    pub start_ticks: u64,
    pub boot_id: String,
}

impl Identity {
    pub fn of_self() -> std::io::Result<Identity> {
        let pid = std::process::id() as i32;
        let stat = stat(pid).ok_or_else(|| std::io::Error::other("no /proc/self/stat"))?;
        Ok(Identity {
            pid,
            start_ticks: stat.start_ticks,
            boot_id: boot_id(),
        })
    }

    pub fn is_alive(&self) -> bool {
        self.same_boot()
            && stat(self.pid)
                .is_some_and(|s| s.start_ticks == self.start_ticks && !matches!(s.state, 'Z' | 'X'))
    }

    pub fn same_boot(&self) -> bool {
        self.boot_id == boot_id()
    }
}

pub fn boot_id() -> String {
    fs::read_to_string(system::path("/proc/sys/kernel/random/boot_id"))
        .unwrap_or_default()
        .trim()
        .to_string()
}

#[derive(Clone, Debug)]
pub struct Stat {
    pub pid: i32,
    pub parent: i32,
    pub state: char,
    pub start_ticks: u64,
}

pub fn stat(pid: i32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may itself hold spaces and parentheses.
    let mut fields = text[text.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    let start_ticks = fields.nth(17)?.parse().ok()?;
    Some(Stat {
        pid,
        parent,
        state,
        start_ticks,
    })
}

fn all() -> Vec<Stat> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|e| stat(e.ok()?.file_name().to_str()?.parse().ok()?))
        .collect()
}

fn has_mark(pid: i32, mark: &[u8]) -> bool {
    fs::read(format!("/proc/{pid}/environ")).is_ok_and(|e| e.split(|b| *b == 0).any(|v| v == mark))
}

/// Those below `root`, and those that carry the order's mark; never `root` nor the caller itself.
fn members(root: i32, order: Option<&str>) -> Vec<Stat> {
    let all = all();
    let mut inside = HashSet::from([root]);
    loop {
        let before = inside.len();
        inside.extend(
            all.iter()
                .filter(|s| inside.contains(&s.parent))
                .map(|s| s.pid)
                .collect::<Vec<_>>(),
        );
        if inside.len() == before {
            break;
        }
    }
    let mark = order.map(|id| format!("{MARK}={id}").into_bytes());
    let own = std::process::id() as i32;
    all.into_iter()
        .filter(|s| s.pid != root && s.pid != own && s.state != 'X')
        .filter(|s| inside.contains(&s.pid) || mark.as_ref().is_some_and(|m| has_mark(s.pid, m)))
        .collect()
}

/// Ends everything below `root` (a sub-reaper, so that nothing escapes by losing its parent) and everything that
/// carries the order's mark. Zombies that are the caller's own orphans are reaped. True when all are gone.
pub fn end_tree(root: i32, order: Option<&str>) -> bool {
    let own = std::process::id() as i32;
    let start = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        let living: Vec<Stat> = members(root, order)
            .into_iter()
            .filter(|s| {
                if s.state == 'Z' && s.parent == own {
                    let _ = Pid::from_raw(s.pid).map(|p| waitpid(Some(p), WaitOptions::NOHANG));
                }
                s.state != 'Z'
            })
            .collect();
        if living.is_empty() {
            return true;
        }
        if start.elapsed() > KILL_LIMIT {
            return false;
        }
        for member in living {
            kill(member.pid);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

pub fn kill(pid: i32) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Stops a worker and its tree from outside: frozen first, so that it neither sees its children die nor starts others.
pub fn end_worker(worker: &Identity, order: &str) -> bool {
    if worker.is_alive() {
        if let Some(pid) = Pid::from_raw(worker.pid) {
            let _ = kill_process(pid, Signal::STOP);
        }
        end_tree(worker.pid, Some(order));
        kill(worker.pid);
        let start = Instant::now();
        while worker.is_alive() {
            if start.elapsed() > KILL_LIMIT {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    // Whoever it left behind has init as a parent now, but still the mark.
    if worker.same_boot() {
        end_tree(-1, Some(order))
    } else {
        true
    }
}
