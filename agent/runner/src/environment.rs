//! What a measurement's numbers may depend on, as the machine (or the guest) says it. Everything is optional: a small
//! kernel lacks most of it.

use crate::{sha, system};
use protocol::Proof;
use std::collections::BTreeMap;
use std::fs;

fn text(path: &str) -> Option<String> {
    let text = fs::read_to_string(system::path(path)).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_string())
}

/// `prefix` keeps the guest's facts apart from its host's.
pub fn facts(prefix: &str) -> BTreeMap<String, String> {
    let mut facts = BTreeMap::new();
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            facts.insert(format!("{prefix}{name}"), value);
        }
    };
    let cpuinfo = text("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|l| l.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_string())
    };
    add("cpu", field("model name"));
    add("microcode", field("microcode"));
    add(
        "cpus",
        Some(
            cpuinfo
                .lines()
                .filter(|l| l.starts_with("processor"))
                .count()
                .to_string(),
        ),
    );
    add("clocksource", clocksource());
    add(
        "governor",
        text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
    );
    add("turbo_off", text("/sys/devices/system/cpu/intel_pstate/no_turbo"));
    add("smt", text("/sys/devices/system/cpu/smt/control"));
    add("loadavg", text("/proc/loadavg"));
    add(
        "memory",
        text("/proc/meminfo").and_then(|m| Some(m.lines().next()?.to_string())),
    );
    add("thp", text("/sys/kernel/mm/transparent_hugepage/enabled"));
    facts
}

pub fn clocksource() -> Option<String> {
    text("/sys/devices/system/clocksource/clocksource0/current_clocksource")
}

pub fn proof() -> Proof {
    Proof {
        build_id: fs::read(system::path("/sys/kernel/notes"))
            .ok()
            .and_then(|n| gnu_build_id(&n))
            .unwrap_or_default(),
        release: text("/proc/sys/kernel/osrelease").unwrap_or_else(release),
        boot_id: crate::process::boot_id(),
        command_line: text("/proc/cmdline").unwrap_or_default(),
        tainted: text("/proc/sys/kernel/tainted").unwrap_or_default(),
    }
}

pub fn release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// From ELF notes: the one of owner `GNU` and type 3.
pub fn gnu_build_id(notes: &[u8]) -> Option<String> {
    let mut rest = notes;
    while rest.len() >= 12 {
        let word = |at: usize| u32::from_ne_bytes([rest[at], rest[at + 1], rest[at + 2], rest[at + 3]]);
        let (owner_bytes, bytes, kind) = (word(0) as usize, word(4) as usize, word(8));
        let at = 12 + owner_bytes.next_multiple_of(4);
        let owner = rest.get(12..12 + owner_bytes)?;
        let content = rest.get(at..at.checked_add(bytes)?)?;
        if kind == 3 && owner.strip_suffix(b"\0") == Some(b"GNU") {
            return Some(sha::hex(content));
        }
        rest = rest.get(at + bytes.next_multiple_of(4)..)?;
    }
    None
}
