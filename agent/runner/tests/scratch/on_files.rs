//! A machine as its files show it, with one thing wrong at a time.

use protocol::{DeviceId, Scratch};
use runner::scratch::examine;
use runner::view::View;
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

const BYTES: u64 = 8 << 30;

/// `vda` holds the system, `vdb` and its partition `vdc1` are scratch. Numbers are those of real disks; nothing here
/// opens them.
struct Machine {
    dir: tempfile::TempDir,
}

impl Machine {
    fn new() -> Machine {
        let machine = Machine {
            dir: tempfile::tempdir().unwrap(),
        };
        machine.disk("vda", 0, BYTES, "SYSTEM");
        machine.disk("vdb", 16, BYTES, "SCRATCH-1");
        machine.disk("vdc", 32, BYTES * 2, "SCRATCH-2");
        machine.partition("vda", 1, 1);
        machine.partition("vdc", 1, 33);
        machine.write("proc/swaps", "Filename Type Size Used Priority\n");
        machine.write(
            "proc/1/mountinfo",
            "25 1 252:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\n",
        );
        machine.write("etc/fstab", "# system\n/dev/vda1 / ext4 defaults 0 1\n");
        machine.write("sys/power/resume", "0:0\n");
        machine
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn disk(&self, name: &str, minor: u32, bytes: u64, serial: &str) {
        self.block(&format!("sys/class/block/{name}"), name, minor, bytes);
        self.write(&format!("sys/class/block/{name}/serial"), &format!("{serial}\n"));
    }

    fn block(&self, at: &str, name: &str, minor: u32, bytes: u64) {
        self.write(&format!("{at}/dev"), &format!("252:{minor}\n"));
        self.write(&format!("{at}/size"), &format!("{}\n", bytes / 512));
        self.write(&format!("{at}/ro"), "0\n");
        fs::create_dir_all(self.path(&format!("{at}/holders"))).unwrap();
        self.node(&format!("dev/{name}"), minor);
    }

    /// As in sysfs, it is found below its disk and beside it.
    fn partition(&self, disk: &str, number: u32, minor: u32) {
        let name = format!("{disk}{number}");
        let at = format!("sys/class/block/{disk}/{name}");
        self.block(&at, &name, minor, BYTES);
        self.write(&format!("{at}/partition"), &format!("{number}\n"));
        symlink(self.path(&at), self.path(&format!("sys/class/block/{name}"))).unwrap();
    }

    fn node(&self, path: &str, minor: u32) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&path);
        mknodat(
            CWD,
            &path,
            FileType::BlockDevice,
            Mode::from_raw_mode(0o600),
            makedev(252, minor),
        )
        .unwrap();
    }

    fn link(&self, path: &str, to: &Path) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&path);
        symlink(to, path).unwrap();
    }

    fn mounted(&self, process: u32, line: &str) {
        self.write(&format!("proc/{process}/mountinfo"), &format!("{line}\n"));
    }

    fn examine(&self, wanted: &Scratch) -> Result<String, String> {
        examine(&View::at(self.dir.path()), wanted).map(|d| d.kernel_name)
    }
}

fn disk() -> Scratch {
    Scratch {
        name: "data".into(),
        id: DeviceId::Serial("SCRATCH-1".into()),
        partition: None,
        bytes: BYTES,
    }
}

fn partition() -> Scratch {
    Scratch {
        id: DeviceId::Serial("SCRATCH-2".into()),
        partition: Some(1),
        ..disk()
    }
}

/// Device nodes are made by root only; whoever else runs the tests is told so.
fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: needs root");
    }
    root
}

#[test]
fn a_free_device_is_found_under_whatever_name_it_has() {
    if !is_root() {
        return;
    }
    let machine = Machine::new();
    assert_eq!(machine.examine(&disk()).unwrap(), "vdb");
    assert_eq!(machine.examine(&partition()).unwrap(), "vdc1");

    // After a boot that counted the disks the other way round.
    machine.write("sys/class/block/vda/serial", "SCRATCH-1\n");
    machine.write("sys/class/block/vdb/serial", "SYSTEM\n");
    fs::remove_dir_all(machine.path("sys/class/block/vda/vda1")).unwrap();
    fs::remove_file(machine.path("sys/class/block/vda1")).unwrap();
    machine.mounted(1, "25 1 252:16 / / rw - ext4 /dev/vdb rw");
    machine.write("etc/fstab", "");
    assert_eq!(machine.examine(&disk()).unwrap(), "vda");
}

#[test]
fn every_kind_of_id_is_read_where_the_kernel_writes_it() {
    if !is_root() {
        return;
    }
    let machine = Machine::new();
    machine.write("sys/class/block/vdb/wwid", "eui.0025385b71b00001\n");
    machine.write("sys/class/block/vdb/dm/uuid", "LVM-abc\n");
    machine.write("sys/class/block/vdb/loop/backing_file", "/srv/image\n");
    let by = |id| machine.examine(&Scratch { id, ..disk() });
    assert_eq!(by(DeviceId::Wwid("eui.0025385b71b00001".into())).unwrap(), "vdb");
    assert_eq!(by(DeviceId::DmUuid("LVM-abc".into())).unwrap(), "vdb");
    assert_eq!(by(DeviceId::BackingFile("/srv/image".into())).unwrap(), "vdb");
    fs::remove_file(machine.path("sys/class/block/vdb/serial")).unwrap();
    let page = machine.path("sys/class/block/vdb/device/vpd_pg80");
    fs::create_dir_all(page.parent().unwrap()).unwrap();
    fs::write(page, b"\x00\x80\x00\x09SCRATCH-1").unwrap();
    assert_eq!(machine.examine(&disk()).unwrap(), "vdb");
}

/// (how, who is wanted, what is done to the machine, what the refusal must say)
type Trick = (&'static str, fn() -> Scratch, fn(&Machine), &'static str);

const TRICKS: [Trick; 27] = [
    (
        "wrong serial",
        || Scratch {
            id: DeviceId::Serial("SCRATCH-9".into()),
            ..disk()
        },
        |_| {},
        "no block device of this machine has the serial SCRATCH-9",
    ),
    (
        "a serial of nothing",
        || Scratch {
            id: DeviceId::Serial(" ".into()),
            ..disk()
        },
        |m| m.write("sys/class/block/vdb/serial", "\n"),
        "no block device",
    ),
    (
        "half a serial",
        || Scratch {
            id: DeviceId::Serial("SCRATCH".into()),
            ..disk()
        },
        |_| {},
        "no block device",
    ),
    (
        "the serial as another kind of id",
        || Scratch {
            id: DeviceId::Wwid("SCRATCH-1".into()),
            ..disk()
        },
        |_| {},
        "no block device",
    ),
    (
        "two disks with one serial",
        disk,
        |m| m.write("sys/class/block/vda/serial", "SCRATCH-1\n"),
        "vda, vdb all have",
    ),
    (
        "another disk in the same enclosure",
        disk,
        |m| m.write("sys/class/block/vdb/size", "999\n"),
        "vdb has 511488 bytes, the machine's file says 8589934592",
    ),
    (
        "a disk that lost its medium",
        disk,
        |m| m.write("sys/class/block/vdb/size", "0\n"),
        "vdb has 0 bytes",
    ),
    (
        "a disk that somebody partitioned",
        disk,
        |m| m.partition("vdb", 1, 17),
        "vdb has partitions (vdb1)",
    ),
    (
        "a partition that is gone",
        || Scratch {
            partition: Some(2),
            ..partition()
        },
        |_| {},
        "vdc has no partition 2",
    ),
    (
        "a partition of another size",
        partition,
        |m| m.write("sys/class/block/vdc/vdc1/size", "2048\n"),
        "vdc1 has 1048576 bytes",
    ),
    (
        "write protection",
        disk,
        |m| m.write("sys/class/block/vdb/ro", "1\n"),
        "vdb is read-only",
    ),
    (
        "no node",
        disk,
        |m| fs::remove_file(m.path("dev/vdb")).unwrap(),
        "/dev/vdb: No such file",
    ),
    (
        "a link to the system's disk",
        disk,
        |m| m.link("dev/vdb", Path::new("vda")),
        "is a link",
    ),
    (
        "a file in the node's place",
        disk,
        |m| {
            fs::remove_file(m.path("dev/vdb")).unwrap();
            m.write("dev/vdb", "");
        },
        "is no block device",
    ),
    (
        "a node that was made before the disks were counted anew",
        disk,
        |m| m.node("dev/vdb", 0),
        "is device 252:0, vdb is 252:16",
    ),
    (
        "mounted",
        disk,
        |m| m.mounted(1, "30 25 252:16 / /home rw - ext4 /dev/vdb rw"),
        "vdb is mounted at /home",
    ),
    (
        "mounted at a path with a space",
        disk,
        |m| m.mounted(1, "30 25 252:16 / /my\\040data rw - ext4 /dev/vdb rw"),
        "mounted at /my data",
    ),
    (
        "a bind mount of a folder of it",
        disk,
        |m| m.mounted(1, "31 25 252:16 /sub /srv/www rw - ext4 none rw"),
        "vdb is mounted at /srv/www",
    ),
    (
        "mounted in a container only",
        disk,
        |m| m.mounted(77, "9 1 252:16 / /data rw - xfs /dev/vdb rw"),
        "mounted at /data (process 77 sees it)",
    ),
    (
        "a file system with a number of its own",
        disk,
        |m| m.mounted(1, "30 25 0:44 / /pool rw - btrfs /dev/vdb rw"),
        "vdb is mounted at /pool",
    ),
    (
        "a partition of a disk that is mounted whole",
        partition,
        |m| m.mounted(1, "30 25 252:32 / /old rw - ext4 /dev/vdc rw"),
        "vdc is mounted at /old",
    ),
    (
        "swap space by another name",
        disk,
        |m| {
            m.link("dev/disk/by-id/swap", Path::new("../../vdb"));
            m.write(
                "proc/swaps",
                "Filename Type Size\n/dev/disk/by-id/swap partition 1\n",
            );
        },
        "vdb is swap space",
    ),
    (
        "a part of a volume group",
        disk,
        |m| m.write("sys/class/block/vdb/holders/dm-0/x", ""),
        "vdb is a part of dm-0",
    ),
    (
        "a partition of a disk that is a RAID's",
        partition,
        |m| m.write("sys/class/block/vdc/holders/md0/x", ""),
        "vdc is a part of md0",
    ),
    (
        "behind a loop device",
        disk,
        |m| m.write("sys/class/block/loop3/loop/backing_file", "/dev/vdb\n"),
        "vdb is behind the loop device loop3",
    ),
    (
        "wanted by the next boot",
        disk,
        |m| {
            m.link("dev/disk/by-uuid/ab-12", Path::new("../../vdb"));
            m.write("etc/fstab", "UUID=ab-12 /home ext4 noauto 0 2\n");
        },
        "stands in /etc/fstab as UUID=ab-12",
    ),
    (
        "where the machine hibernates to",
        disk,
        |m| m.write("sys/power/resume", "252:16\n"),
        "hibernates",
    ),
];

#[test]
fn each_trick_is_refused_with_its_reason() {
    if !is_root() {
        return;
    }
    for (how, wanted, trick, reason) in TRICKS {
        let machine = Machine::new();
        let wanted = wanted();
        trick(&machine);
        match machine.examine(&wanted) {
            Ok(name) => panic!("{how}: {name} would have been written over"),
            Err(why) => assert!(why.contains(reason), "{how}: {why}"),
        }
    }
}

#[test]
fn a_disk_that_a_virtual_machine_has_open_is_refused() {
    if !is_root() {
        return;
    }
    let machine = Machine::new();
    machine.write("proc/4242/comm", "qemu-system-x86\n");
    machine.link("proc/4242/fd/9", &machine.path("dev/vdb"));
    let why = machine.examine(&disk()).unwrap_err();
    assert!(
        why.contains("vdb is open in process 4242 (qemu-system-x86)"),
        "{why}"
    );
}
