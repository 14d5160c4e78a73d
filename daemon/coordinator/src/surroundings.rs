//! What a boot's number depends on besides its image, and what went on beside its runs: when they speak against it.
//!
//! Pure: facts of boots in, words out. It is asked before a number is looked at, and must not know any number.
//!
//! A difference between two boots of one image is the lab's. Between two images it may be the very change that is
//! looked for (a kernel's default of huge pages, a mitigation), so there only what no kernel chooses counts.

use crate::config::Disturbed;
use protocol::Disturbance;
use std::collections::{BTreeMap, BTreeSet};

pub type Facts = BTreeMap<String, String>;

/// An earlier boot of the same search on the same machine and lane.
#[derive(Clone, Debug)]
pub struct Earlier {
    pub image_id: String,
    pub facts: Facts,
}

/// Which differences of a fact speak against a boot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Weight {
    /// None: it is another one in each boot.
    Passing,
    /// Those between boots of one image.
    Image,
    /// All.
    Machine,
}

/// Of the machine under a guest, these matter to the guest.
const OF_A_HOST: [&str; 12] = [
    "cpu",
    "microcode",
    "cpus",
    "cpus_allowed",
    "clocksource",
    "governor",
    "turbo",
    "idle_states",
    "smt",
    "thp",
    "numa_balancing",
    "mitigations",
];
/// Memory that a kernel keeps to itself differs a little from kernel to kernel.
const MEMORY_TOLERANCE: f64 = 0.02;

fn weight(name: &str, facts: &Facts) -> Weight {
    if let Some(name) = name.strip_prefix("host.") {
        let counted = facts.get("accel").is_some_and(|a| a == "tcg icount");
        let matters = OF_A_HOST.contains(&name) || name.starts_with("held.");
        // Where instructions are the clock the host is not in the numbers.
        return if matters && !counted {
            Weight::Machine
        } else {
            Weight::Passing
        };
    }
    match name.strip_prefix("guest.").unwrap_or(name) {
        "loadavg" | "tainted_before" | "tainted_after" => Weight::Passing,
        "cpu" | "microcode" | "memory" | "smt" | "turbo" | "cpus_allowed" | "qemu" | "accel" => {
            Weight::Machine
        }
        _ => Weight::Image,
    }
}

fn differ(name: &str, a: &str, b: &str) -> bool {
    if name.rsplit('.').next() == Some("memory")
        && let (Some(a), Some(b)) = (first_number(a), first_number(b))
    {
        return (a - b).abs() > MEMORY_TOLERANCE * a.max(b);
    }
    a != b
}

fn first_number(text: &str) -> Option<f64> {
    text.split_whitespace().find_map(|w| w.parse().ok())
}

/// Why a boot may not stand beside those before it. `kernels` is false where the images are no kernels: then all that
/// differs is the machine's.
pub fn refusal(image_id: &str, facts: &Facts, earlier: &[Earlier], kernels: bool) -> Option<String> {
    for (name, is) in facts {
        let counts = weight(name, facts);
        for boot in earlier {
            let Some(was) = boot.facts.get(name) else {
                continue;
            };
            let same_image = boot.image_id == image_id;
            let matters = match counts {
                Weight::Passing => false,
                Weight::Image => same_image || !kernels,
                Weight::Machine => true,
            };
            if matters && differ(name, was, is) {
                let of = if same_image {
                    "an earlier boot of this kernel"
                } else {
                    "earlier boots"
                };
                return Some(format!(
                    "{name} was `{was}` in {of} here and is `{is}` now: set it back, or hold it in the machine's file"
                ));
            }
        }
    }
    None
}

/// A fact that is not the same in all boots of a search on one lane: value to how many boots have it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    pub fact: String,
    pub values: BTreeMap<String, usize>,
}

pub fn differences<'a>(boots: impl Iterator<Item = &'a Facts> + Clone) -> Vec<Difference> {
    let names: BTreeSet<&String> = boots
        .clone()
        .flat_map(|facts| facts.keys().filter(|n| weight(n, facts) != Weight::Passing))
        .collect();
    let mut found = Vec::new();
    for name in names {
        let mut values: BTreeMap<String, usize> = BTreeMap::new();
        for value in boots.clone().filter_map(|facts| facts.get(name)) {
            // What differs by no more than may be is one value.
            let known = values.keys().find(|k| !differ(name, k, value)).cloned();
            *values.entry(known.unwrap_or_else(|| value.clone())).or_default() += 1;
        }
        if values.len() > 1 {
            found.push(Difference {
                fact: name.clone(),
                values,
            });
        }
    }
    found
}

/// Less than this, of time or bytes, is one tick of a counter.
const LEAST_STEAL_S: f64 = 0.1;
const LEAST_IO_MIB: f64 = 8.0;

/// What disturbed a run, if anything did. `of_a_host`: of the machine under a guest, whose disks and wall clock are
/// not the guest's.
pub fn disturbed(limits: &Disturbed, seen: &Disturbance, of_a_host: bool) -> Option<String> {
    let time_s = seen.wall_s * f64::from(seen.cpus.max(1));
    if let Some(steal_s) = seen.steal_s
        && steal_s >= LEAST_STEAL_S
        && steal_s * 100.0 > limits.steal_pct * time_s
    {
        return Some(format!(
            "the hypervisor took {:.0} % of the CPUs' time",
            steal_s * 100.0 / time_s
        ));
    }
    if let Some(times) = seen.throttled.filter(|n| *n > 0 && limits.throttling) {
        return Some(format!(
            "CPUs were slowed down {times} times because of heat or power"
        ));
    }
    if limits.logins && !seen.logins.is_empty() {
        return Some(format!("somebody was logged in: {}", seen.logins.join(", ")));
    }
    if of_a_host {
        return None;
    }
    if let Some(mib) = seen.foreign_io_mib
        && mib >= LEAST_IO_MIB
        && mib > limits.foreign_io_mib_per_s * seen.wall_s
    {
        return Some(format!("other disks moved {mib:.0} MiB"));
    }
    (seen.clock_step_s.abs() > limits.clock_step_s)
        .then(|| format!("the clock was set by {:+.3} s", seen.clock_step_s))
}

/// How many boots of a kernel were dropped, of all that it had.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dropped {
    pub kernel: String,
    pub dropped: u64,
    pub boots: u64,
}

/// As improbable as this, by chance alone and over all kernels, it is a finding.
const FINDING_P: f64 = 0.01;
const FINDING_DROPS: u64 = 3;

/// Kernels whose boots are dropped more often than the others': a kernel that disturbs itself (throttles, writes to
/// disks on its own) hides behind drops otherwise.
pub fn dropped_more_often(kernels: &[Dropped]) -> Vec<&Dropped> {
    let all: u64 = kernels.iter().map(|k| k.boots).sum();
    let dropped: u64 = kernels.iter().map(|k| k.dropped).sum();
    let is_finding = |k: &&Dropped| {
        k.dropped >= FINDING_DROPS
            && tail(k.dropped, k.boots, dropped, all) * (kernels.len() as f64) < FINDING_P
    };
    kernels.iter().filter(is_finding).collect()
}

/// Of `all` boots `dropped` were; the probability that at least `k` of `n` of them are, had they fallen by chance.
fn tail(k: u64, n: u64, dropped: u64, all: u64) -> f64 {
    let ln_choose = |n: u64, k: u64| -> f64 {
        (0..k)
            .map(|i| ((n - i) as f64).ln() - ((i + 1) as f64).ln())
            .sum()
    };
    let whole = ln_choose(all, n);
    (k..=n.min(dropped))
        .filter(|i| n - i <= all - dropped)
        .map(|i| (ln_choose(dropped, i) + ln_choose(all - dropped, n - i) - whole).exp())
        .sum()
}

#[cfg(test)]
mod tests;
