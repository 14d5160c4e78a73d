//! The guard before anything is written over: which device a scratch name means, and that nobody else has it.
//!
//! A machine's file names scratch devices by what they say of themselves (serial number, wwid) and by their size. The
//! device is looked for each time anew, right before it is made anew, so that a disk that got another name since the
//! last boot is found, and one that took its name is not. Everything that could speak against it is a refusal with its
//! reason; the last word is the kernel's, which opens a device for one owner only.
//!
//! What this must *not* know: file systems, mounts of our own, workloads.

mod signature;
mod uses;

use crate::trouble::{Because, Trouble};
use crate::view::{Number, View};
use protocol::{DeviceId, Scratch};
use rustix::fs::{Mode, OFlags};
use std::fs::{self, File};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;
use std::time::{Duration, Instant};

const SECTOR_BYTES: u64 = 512;
/// Whoever looks at new block devices (udev) opens them for a moment after each change.
const LOOKERS_LEAVE_WITHIN: Duration = Duration::from_secs(10);

/// A device that is what was wanted, and that nobody uses.
#[derive(Clone, Debug)]
pub struct Device {
    /// As the kernel calls it in this boot: `vdb`, `sdc3`.
    pub kernel_name: String,
    /// Of its disk, for queue settings: the same where it is no partition.
    pub disk: String,
    pub node: PathBuf,
    pub number: Number,
    /// With it, all devices that share bytes with it: its partitions, or the disk it is a part of.
    family: Vec<(String, Number)>,
}

/// May this device be written over now? Its node, or why not. Asked before every write, never remembered.
pub fn claim(view: &View, wanted: &Scratch) -> Result<Device, Trouble> {
    let refused = |what: String| Trouble(format!("scratch device `{}` is refused: {what}", wanted.name));
    let start = Instant::now();
    let device = loop {
        let device = find(view, wanted).map_err(refused)?;
        match uses::of(view, &device) {
            None => break device,
            Some(used) if used.passes && start.elapsed() < LOOKERS_LEAVE_WITHIN => {
                std::thread::sleep(Duration::from_millis(100));
            }
            Some(used) => return Err(refused(used.what)),
        }
    };
    exclusively(&device, wanted.bytes).map_err(refused)?;
    Ok(device)
}

/// All that files tell: `claim` without the kernel's own word.
pub fn examine(view: &View, wanted: &Scratch) -> Result<Device, String> {
    let device = find(view, wanted)?;
    match uses::of(view, &device) {
        None => Ok(device),
        Some(used) => Err(used.what),
    }
}

/// Which device this is in this boot. Two that say the same are none.
pub fn find(view: &View, wanted: &Scratch) -> Result<Device, String> {
    let disks: Vec<String> = view
        .names("/sys/class/block")
        .into_iter()
        .filter(|name| view.text(&format!("/sys/class/block/{name}/partition")).is_none())
        .collect();
    let found: Vec<&String> = disks.iter().filter(|disk| is(view, disk, &wanted.id)).collect();
    let disk = match found.as_slice() {
        [disk] => (*disk).clone(),
        [] => return Err(format!("no block device of this machine has the {}", wanted.id)),
        several => {
            let names: Vec<&str> = several.iter().map(|d| d.as_str()).collect();
            return Err(format!("{} all have the {}", names.join(", "), wanted.id));
        }
    };
    let partitions: Vec<String> = view
        .names(&format!("/sys/class/block/{disk}"))
        .into_iter()
        .filter(|name| {
            view.text(&format!("/sys/class/block/{disk}/{name}/partition"))
                .is_some()
        })
        .collect();
    let name = match wanted.partition {
        None if partitions.is_empty() => disk.clone(),
        None => {
            return Err(format!(
                "{disk} has partitions ({}): name one of them, or wipe the disk by hand",
                partitions.join(", ")
            ));
        }
        Some(wanted) => {
            let is_it = |name: &&String| {
                let number = view.text(&format!("/sys/class/block/{disk}/{name}/partition"));
                number.and_then(|n| n.parse().ok()) == Some(wanted)
            };
            let Some(name) = partitions.iter().find(is_it) else {
                return Err(format!("{disk} has no partition {wanted}"));
            };
            name.clone()
        }
    };
    let number = number(view, &name)?;
    let mut family = vec![(name.clone(), number)];
    if name != disk {
        family.push((disk.clone(), self::number(view, &disk)?));
    }
    let sectors: Option<u64> = view
        .text(&format!("/sys/class/block/{name}/size"))
        .and_then(|s| s.parse().ok());
    let bytes = sectors.map(|s| s.saturating_mul(SECTOR_BYTES));
    if bytes != Some(wanted.bytes) {
        let is = bytes.map_or("unknown".into(), |b| b.to_string());
        return Err(format!(
            "{name} has {is} bytes, the machine's file says {}",
            wanted.bytes
        ));
    }
    if view
        .text(&format!("/sys/class/block/{name}/ro"))
        .is_some_and(|ro| ro != "0")
    {
        return Err(format!("{name} is read-only"));
    }
    let node = node(view, &name, number)?;
    Ok(Device {
        kernel_name: name,
        disk,
        node,
        number,
        family,
    })
}

fn number(view: &View, name: &str) -> Result<Number, String> {
    let text = view.text(&format!("/sys/class/block/{name}/dev"));
    text.and_then(|t| Number::parse(&t))
        .ok_or_else(|| format!("the kernel gives no device number of {name}"))
}

/// The node must be the kernel's device itself: a link or a stale node leads to who knows what.
fn node(view: &View, name: &str, number: Number) -> Result<PathBuf, String> {
    let path = view.path(&format!("/dev/{}", name.replace('!', "/")));
    let shown = path.display();
    let meta = fs::symlink_metadata(&path).map_err(|e| format!("{shown}: {e}"))?;
    if meta.file_type().is_symlink() {
        return Err(format!("{shown} is a link, not the device itself"));
    }
    if !meta.file_type().is_block_device() {
        return Err(format!("{shown} is no block device"));
    }
    let (is, wanted) = (Number::of(meta.rdev()), number);
    if is != wanted {
        return Err(format!(
            "{shown} is device {}:{}, {name} is {}:{}",
            is.major, is.minor, wanted.major, wanted.minor
        ));
    }
    Ok(path)
}

fn is(view: &View, disk: &str, id: &DeviceId) -> bool {
    let of = |file: &str| view.text(&format!("/sys/class/block/{disk}/{file}"));
    let says = |wanted: &str, files: &[&str]| {
        !wanted.trim().is_empty() && files.iter().any(|f| of(f).as_deref() == Some(wanted.trim()))
    };
    match id {
        DeviceId::Serial(serial) => {
            says(serial, &["serial", "device/serial"])
                || scsi_serial(view, disk).as_deref() == Some(serial.trim())
        }
        DeviceId::Wwid(wwid) => says(wwid, &["wwid", "device/wwid"]),
        DeviceId::DmUuid(uuid) => says(uuid, &["dm/uuid"]),
        DeviceId::BackingFile(file) => says(file, &["loop/backing_file"]),
    }
}

/// Page 0x80 of a SCSI device: four bytes, the last two its length, then the serial number.
fn scsi_serial(view: &View, disk: &str) -> Option<String> {
    let page = fs::read(view.path(&format!("/sys/class/block/{disk}/device/vpd_pg80"))).ok()?;
    let length = usize::from(u16::from_be_bytes([*page.get(2)?, *page.get(3)?]));
    let text = String::from_utf8_lossy(page.get(4..4 + length)?)
        .trim()
        .to_string();
    (!text.is_empty()).then_some(text)
}

/// A device that the kernel gives to us alone is mounted nowhere, in no namespace, and a part of nothing: also where
/// no file tells (the second device of a btrfs). And what lies on it belongs to nobody who only sleeps.
fn exclusively(device: &Device, bytes: u64) -> Result<(), String> {
    let shown = device.node.display();
    let fd = rustix::fs::open(
        &device.node,
        OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW,
        Mode::empty(),
    );
    let fd = match fd {
        Ok(fd) => fd,
        Err(rustix::io::Errno::BUSY) => {
            return Err(format!("{shown} is in use: the kernel gives it to nobody else"));
        }
        Err(e) => return Err(format!("{shown} cannot be opened: {e}")),
    };
    let mut file = File::from(fd);
    let meta = file.metadata().map_err(|e| format!("{shown}: {e}"))?;
    if Number::of(meta.rdev()) != device.number {
        return Err(format!("{shown} became another device while it was looked at"));
    }
    let length = file.seek(SeekFrom::End(0)).map_err(|e| format!("{shown}: {e}"))?;
    if length != bytes {
        return Err(format!(
            "{shown} has {length} bytes, the machine's file says {bytes}"
        ));
    }
    match signature::of_somebody(&mut file, length).because(|| format!("cannot read {shown}")) {
        Ok(None) => Ok(()),
        Ok(Some(whose)) => Err(format!(
            "{shown} holds {whose}: if that is nobody's any more, `wipefs -a {shown}` by hand"
        )),
        Err(Trouble(what)) => Err(what),
    }
}
