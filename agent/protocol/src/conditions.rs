//! What a measurement holds still, and what it may make anew.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A block device that the machine's file gives away: whatever is on it is made anew. Named by what the device itself
/// says it is, never by a path: names change from boot to boot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Scratch {
    /// What workloads call it.
    pub name: String,
    pub id: DeviceId,
    /// A partition of that disk, by its number.
    #[serde(default)]
    pub partition: Option<u32>,
    /// Its exact size: serial numbers of cheap enclosures repeat.
    pub bytes: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceId {
    /// As `lsblk -o SERIAL` says.
    Serial(String),
    /// As `lsblk -o WWN` or the file `wwid` in sysfs says.
    Wwid(String),
    /// Of a device-mapper device: `LVM-…`.
    DmUuid(String),
    /// Of a loop device: the file behind it.
    BackingFile(String),
}

impl std::fmt::Display for DeviceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DeviceId::Serial(id) => write!(f, "serial {id}"),
            DeviceId::Wwid(id) => write!(f, "wwid {id}"),
            DeviceId::DmUuid(id) => write!(f, "dm_uuid {id}"),
            DeviceId::BackingFile(id) => write!(f, "backing_file {id}"),
        }
    }
}

/// What the machine's file says of the machine that the agent runs on.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Conditions {
    /// Settings, name to value; see the agent's `held`.
    #[serde(default)]
    pub held: BTreeMap<String, String>,
    #[serde(default)]
    pub scratch: Vec<Scratch>,
}

/// A file system for the benchmark alone.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FileSystem {
    /// Where it is mounted, below the benchmark's working directory.
    pub at: String,
    /// Name of a scratch device; None for one without a device.
    pub device: Option<String>,
    /// `ext4`, `xfs`, …: made by `mkfs.ext4`, mounted as `ext4`; `tmpfs` is not made.
    pub kind: String,
    pub mkfs_options: Vec<String>,
    /// As after `mount -o`.
    pub mount_options: String,
    pub anew: Anew,
    /// `fstrim` after it was mounted, so that a flash disk is in the same state each time.
    pub trim: bool,
}

/// When a file system is made anew; unmounted and mounted it is before each run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Anew {
    Boot,
    Run,
}

/// What went on beside a run: facts, judged by the daemon. None where the system does not tell.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Disturbance {
    pub wall_s: f64,
    pub cpus: u32,
    /// CPU time that the hypervisor gave to others, all CPUs together.
    pub steal_s: Option<f64>,
    /// Times that a CPU was slowed down because of heat or power.
    pub throttled: Option<u64>,
    /// Users with a terminal here: `root pts/0`.
    pub logins: Vec<String>,
    /// Moved by disks that are not the benchmark's.
    pub foreign_io_mib: Option<f64>,
    /// By so much the wall clock was set while the run lasted.
    pub clock_step_s: f64,
}
