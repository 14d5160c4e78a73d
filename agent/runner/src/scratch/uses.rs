//! Who uses a device, as the system's files tell: each use with its place, so that a person can end it.

use super::Device;
use crate::view::{Number, View};
use std::collections::BTreeSet;

pub struct Used {
    pub what: String,
    /// It may be over in a moment by itself.
    pub passes: bool,
}

pub fn of(view: &View, device: &Device) -> Option<Used> {
    let lasting = mounts(view, device)
        .or_else(|| swaps(view, device))
        .or_else(|| holders(view, device))
        .or_else(|| loops(view, device))
        .or_else(|| fstab(view, device))
        .or_else(|| hibernation(view, device));
    match lasting {
        Some(what) => Some(Used { what, passes: false }),
        None => open(view, device).map(|what| Used { what, passes: true }),
    }
}

impl Device {
    fn member(&self, number: Number) -> Option<&str> {
        let member = self.family.iter().find(|(_, n)| *n == number)?;
        Some(&member.0)
    }
}

/// In every mount namespace that a process lives in: a container's mounts are not seen from here otherwise.
fn mounts(view: &View, device: &Device) -> Option<String> {
    let mut seen = BTreeSet::new();
    for pid in pids(view) {
        let namespace = std::fs::read_link(view.path(&format!("/proc/{pid}/ns/mnt"))).ok();
        if namespace.is_some() && !seen.insert(namespace) {
            continue;
        }
        let table = view.text(&format!("/proc/{pid}/mountinfo")).unwrap_or_default();
        for line in table.lines() {
            let fields: Vec<&str> = line.split(' ').collect();
            let source = fields
                .iter()
                .position(|f| *f == "-")
                .and_then(|at| fields.get(at + 2));
            // Some file systems (btrfs) have a number of their own; then the source tells.
            let by_number = fields.get(2).and_then(|f| Number::parse(f));
            let by_source = source.and_then(|s| view.number_of(&unescaped(s)));
            for number in [by_number, by_source].into_iter().flatten() {
                if let (Some(member), Some(at)) = (device.member(number), fields.get(4)) {
                    return Some(format!(
                        "{member} is mounted at {} (process {pid} sees it)",
                        unescaped(at)
                    ));
                }
            }
        }
    }
    None
}

/// The kernel writes spaces in paths as `\040`.
fn unescaped(field: &str) -> String {
    field
        .replace("\\040", " ")
        .replace("\\011", "\t")
        .replace("\\134", "\\")
}

fn pids(view: &View) -> Vec<u32> {
    let names = view.names("/proc");
    names.iter().filter_map(|n| n.parse().ok()).collect()
}

fn swaps(view: &View, device: &Device) -> Option<String> {
    let table = view.text("/proc/swaps")?;
    for line in table.lines().skip(1) {
        let path = unescaped(line.split_whitespace().next()?);
        if let Some(member) = view.number_of(&path).and_then(|n| device.member(n)) {
            return Some(format!("{member} is swap space ({path})"));
        }
    }
    None
}

/// Device mapper, md and bcache put themselves here.
fn holders(view: &View, device: &Device) -> Option<String> {
    for (member, _) in &device.family {
        let holders = view.names(&format!("/sys/class/block/{member}/holders"));
        if !holders.is_empty() {
            return Some(format!("{member} is a part of {}", holders.join(", ")));
        }
    }
    None
}

fn loops(view: &View, device: &Device) -> Option<String> {
    for name in view.names("/sys/class/block") {
        let Some(behind) = view.text(&format!("/sys/class/block/{name}/loop/backing_file")) else {
            continue;
        };
        if let Some(member) = view.number_of(&behind).and_then(|n| device.member(n)) {
            return Some(format!("{member} is behind the loop device {name}"));
        }
    }
    None
}

/// Not mounted now, but the next boot wants it.
fn fstab(view: &View, device: &Device) -> Option<String> {
    let table = view.text("/etc/fstab")?;
    for line in table.lines().map(str::trim).filter(|l| !l.starts_with('#')) {
        let Some(what) = line.split_whitespace().next() else {
            continue;
        };
        let path = match what.split_once('=') {
            Some(("UUID", id)) => format!("/dev/disk/by-uuid/{}", id.trim_matches('"')),
            Some(("LABEL", id)) => format!("/dev/disk/by-label/{}", id.trim_matches('"')),
            Some(("PARTUUID", id)) => format!("/dev/disk/by-partuuid/{}", id.trim_matches('"')),
            Some(("PARTLABEL", id)) => format!("/dev/disk/by-partlabel/{}", id.trim_matches('"')),
            Some(_) | None => what.to_string(),
        };
        if let Some(member) = view.number_of(&path).and_then(|n| device.member(n)) {
            return Some(format!("{member} stands in /etc/fstab as {what}"));
        }
    }
    None
}

fn hibernation(view: &View, device: &Device) -> Option<String> {
    let number = Number::parse(&view.text("/sys/power/resume")?)?;
    let member = device.member(number)?;
    Some(format!("{member} is where this machine hibernates to"))
}

/// A virtual machine that has it as its disk claims nothing from the kernel.
fn open(view: &View, device: &Device) -> Option<String> {
    for pid in pids(view) {
        for fd in view.names(&format!("/proc/{pid}/fd")) {
            let path = format!("/proc/{pid}/fd/{fd}");
            // Only devices are looked at: a file of a dead file server would keep us for ever.
            let leads_to_a_device =
                std::fs::read_link(view.path(&path)).is_ok_and(|to| to.to_string_lossy().contains("/dev/"));
            let number = leads_to_a_device.then(|| view.number_of(&path)).flatten();
            if let Some(member) = number.and_then(|n| device.member(n)) {
                let name = view.text(&format!("/proc/{pid}/comm")).unwrap_or_default();
                return Some(format!("{member} is open in process {pid} ({name})"));
            }
        }
    }
    None
}
