//! What a measurement's numbers may depend on, as the machine (or the guest) says it. A small kernel lacks
//! most of it, and says so.

use crate::held::{ABSENT, chosen};
use crate::view::View;
use crate::{sha, system};
use protocol::Proof;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

fn text(path: &str) -> Option<String> {
    View::here().text(path)
}

/// `prefix` keeps the guest's facts apart from its host's.
pub fn facts(prefix: &str) -> BTreeMap<String, String> {
    facts_of(&View::here(), prefix, &[])
}

/// `disks` are those that the benchmark's file systems lie on. What a system has no file for is absent, by that word.
pub fn facts_of(view: &View, prefix: &str, disks: &[String]) -> BTreeMap<String, String> {
    const CPU: &str = "/sys/devices/system/cpu";
    let mut facts = BTreeMap::new();
    let mut add = |name: &str, value: Option<String>| {
        let value = value.unwrap_or_else(|| ABSENT.into());
        facts.insert(format!("{prefix}{name}"), value);
    };
    let text = |path: &str| view.text(path);
    let choice = |path: &str| view.text(path).map(|t| chosen(&t).to_string());
    let cpuinfo = text("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|l| l.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_string())
    };
    let processors = cpuinfo.lines().filter(|l| l.starts_with("processor")).count();
    add("cpu", field("model name"));
    add("microcode", field("microcode"));
    add("cpus", Some(processors.to_string()));
    add("cpus_allowed", allowed(view));
    add("clocksource", clocksource_of(view));
    add(
        "governor",
        each(view, &format!("{CPU}/cpufreq"), "policy", "scaling_governor"),
    );
    add(
        "frequency_driver",
        each(view, &format!("{CPU}/cpufreq"), "policy", "scaling_driver"),
    );
    add("turbo", turbo(view));
    add("idle_states", idle(view));
    add("smt", text(&format!("{CPU}/smt/control")));
    add("mitigations", mitigations(view));
    add(
        "pmu",
        text("/sys/bus/event_source/devices/cpu/type").map(|_| "cpu".into()),
    );
    add("loadavg", text("/proc/loadavg"));
    let memory = text("/proc/meminfo").and_then(|m| Some(m.lines().next()?.to_string()));
    add("memory", memory);
    add("thp", choice("/sys/kernel/mm/transparent_hugepage/enabled"));
    add("thp_defrag", choice("/sys/kernel/mm/transparent_hugepage/defrag"));
    for name in ["numa_balancing", "nmi_watchdog", "randomize_va_space"] {
        add(name, text(&format!("/proc/sys/kernel/{name}")));
    }
    for name in [
        "swappiness",
        "dirty_ratio",
        "dirty_background_ratio",
        "dirty_bytes",
        "dirty_background_bytes",
        "dirty_expire_centisecs",
        "dirty_writeback_centisecs",
    ] {
        add(name, text(&format!("/proc/sys/vm/{name}")));
    }
    // A disk's name changes from boot to boot; its place among the workload's disks does not.
    for (at, disk) in disks.iter().enumerate() {
        let of = |file: &str| format!("/sys/class/block/{disk}/{file}");
        add(&format!("disk{at}.scheduler"), choice(&of("queue/scheduler")));
        add(&format!("disk{at}.queue_depth"), text(&of("device/queue_depth")));
        add(&format!("disk{at}.nr_requests"), text(&of("queue/nr_requests")));
        add(
            &format!("disk{at}.read_ahead_kib"),
            text(&of("queue/read_ahead_kb")),
        );
        add(&format!("disk{at}.write_cache"), text(&of("queue/write_cache")));
    }
    facts
}

/// The same everywhere, or each that there is.
fn each(view: &View, folder: &str, begins: &str, file: &str) -> Option<String> {
    let names = view.names(folder);
    let of_one = |name: &String| view.text(&format!("{folder}/{name}/{file}"));
    let values: BTreeSet<String> = names
        .iter()
        .filter(|n| n.starts_with(begins))
        .filter_map(of_one)
        .collect();
    (!values.is_empty()).then(|| values.into_iter().collect::<Vec<_>>().join(", "))
}

fn turbo(view: &View) -> Option<String> {
    let off = view
        .text("/sys/devices/system/cpu/intel_pstate/no_turbo")
        .map(|t| t != "0");
    let off = off.or_else(|| {
        view.text("/sys/devices/system/cpu/cpufreq/boost")
            .map(|t| t == "0")
    })?;
    Some(if off { "off" } else { "on" }.into())
}

/// Name and exit latency of the states that the first CPU may use.
fn idle(view: &View) -> Option<String> {
    let folder = "/sys/devices/system/cpu/cpu0/cpuidle";
    let of = |state: &String, file: &str| view.text(&format!("{folder}/{state}/{file}"));
    let used = |state: &String| {
        let used = of(state, "disable").is_none_or(|d| d == "0");
        used.then(|| Some(format!("{} {} us", of(state, "name")?, of(state, "latency")?)))
            .flatten()
    };
    let states = view.names(folder);
    let states: Vec<String> = states.iter().filter_map(used).collect();
    (!states.is_empty()).then(|| states.join(", "))
}

/// Those that cost something; what does not concern this CPU is left out.
fn mitigations(view: &View) -> Option<String> {
    let folder = "/sys/devices/system/cpu/vulnerabilities";
    let names = view.names(folder);
    let of_one = |name: &String| {
        let says = view.text(&format!("{folder}/{name}"))?;
        (says != "Not affected").then(|| format!("{name}: {says}"))
    };
    let known = !names.is_empty();
    known.then(|| names.iter().filter_map(of_one).collect::<Vec<_>>().join("; "))
}

fn allowed(view: &View) -> Option<String> {
    let status = view.text("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|l| l.strip_prefix("Cpus_allowed_list:"))?;
    Some(line.trim().to_string())
}

pub fn clocksource() -> Option<String> {
    clocksource_of(&View::here())
}

fn clocksource_of(view: &View) -> Option<String> {
    view.text("/sys/devices/system/clocksource/clocksource0/current_clocksource")
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
