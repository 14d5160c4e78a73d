//! What a measurement holds still, and what it may make anew.

use serde::{Deserialize, Serialize};

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
