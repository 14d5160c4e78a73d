//! Real block devices: loop devices of files that the test owns. What the kernel itself says no to, and what lies on a
//! device, shows only here.

use crate::loop_device::LoopDevice;
use protocol::Scratch;
use runner::scratch::claim;
use runner::trouble::Trouble;
use runner::view::View;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

const BYTES: u64 = 16 << 20;

fn run(program: &str, arguments: &[&str]) -> String {
    let said = Command::new(program).args(arguments).output();
    let said = said.unwrap_or_else(|e| panic!("{program}: {e}"));
    assert!(said.status.success(), "{program} {arguments:?}: {said:?}");
    String::from_utf8(said.stdout).unwrap().trim().to_string()
}

struct Loop {
    device: LoopDevice,
    dir: tempfile::TempDir,
}

impl Loop {
    /// None where this machine lets nobody make one.
    fn new() -> Option<Loop> {
        LoopDevice::allowed().then(|| {
            let dir = tempfile::tempdir().unwrap();
            let device = LoopDevice::new(dir.path().join("disk"), BYTES);
            Loop { device, dir }
        })
    }

    fn wanted(&self) -> Scratch {
        self.device.scratch("data")
    }

    fn claim(&self) -> Result<PathBuf, String> {
        let claimed = claim(&View::here(), &self.wanted());
        claimed.map(|d| d.node).map_err(|Trouble(what)| what)
    }

    fn lay(&self, at: u64, bytes: &[u8]) {
        let mut file = File::options().write(true).open(&self.device.node).unwrap();
        file.seek(SeekFrom::Start(at)).unwrap();
        file.write_all(bytes).unwrap();
        file.sync_all().unwrap();
    }

    #[track_caller]
    fn refused(&self, reason: &str) {
        let why = self.claim().expect_err("it would have been written over");
        assert!(why.contains(reason), "{why}");
        assert!(why.starts_with("scratch device `data` is refused: "), "{why}");
    }
}

#[test]
fn a_free_loop_device_is_given_and_an_old_file_system_on_it_is_no_hindrance() {
    let Some(own) = Loop::new() else { return };
    assert_eq!(own.claim().unwrap(), Path::new(&own.device.node));
    run("mke2fs", &["-q", "-t", "ext4", &own.device.node]);
    assert_eq!(own.claim().unwrap(), Path::new(&own.device.node));
}

#[test]
fn mounted_bound_and_in_another_namespace() {
    let Some(own) = Loop::new() else { return };
    run("mke2fs", &["-q", "-t", "ext2", &own.device.node]);
    let at = own.dir.path().join("at");
    fs::create_dir(&at).unwrap();
    let at = at.to_str().unwrap();
    run("mount", &[&own.device.node, at]);
    own.refused(&format!("is mounted at {at}"));
    run("umount", &[at]);
    assert!(own.claim().is_ok());

    // Only the shell's own namespace has it; the shell waits for a word on its stdin.
    let script = format!("mount {} {at} && echo mounted && read word", own.device.node);
    let mut shell = Command::new("unshare")
        .args(["--mount", "sh", "-c", &script])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut word = [0; 8];
    std::io::Read::read_exact(shell.stdout.as_mut().unwrap(), &mut word).unwrap();
    own.refused(&format!("is mounted at {at}"));
    drop(shell.stdin.take());
    shell.wait().unwrap();
}

#[test]
fn swap_device_mapper_and_a_loop_over_it() {
    let Some(own) = Loop::new() else { return };
    let over = run("losetup", &["--find", "--show", &own.device.node]);
    own.refused("is behind the loop device");
    run("losetup", &["--detach", &over]);
    assert!(own.claim().is_ok());

    let name = format!("perfbisect-test-{}", std::process::id());
    let table = format!("0 {} linear {} 0", BYTES / 512, own.device.node);
    let mapped = Command::new("dmsetup")
        .args(["create", &name, "--table", &table])
        .output();
    match mapped {
        Ok(said) if said.status.success() => {
            own.refused("is a part of dm-");
            run("dmsetup", &["remove", "--retry", &name]);
        }
        other => eprintln!("device mapper was not tried: {other:?}"),
    }

    run("mkswap", &[&own.device.node]);
    own.refused("holds swap space");
    match Command::new("swapon").arg(&own.device.node).output() {
        Ok(said) if said.status.success() => {
            own.refused("is swap space");
            run("swapoff", &[&own.device.node]);
        }
        other => eprintln!("swap was not tried: {other:?}"),
    }
}

#[test]
fn held_by_the_kernel_without_a_trace_in_any_file() {
    let Some(own) = Loop::new() else { return };
    let exclusive = rustix::fs::open(
        &own.device.node,
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::EXCL,
        rustix::fs::Mode::empty(),
    )
    .unwrap();
    // Of the process itself the open file would tell; a view without /proc stands for a claim that only the kernel
    // knows (a second device of a file system).
    let view = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/sys", view.path().join("sys")).unwrap();
    std::os::unix::fs::symlink("/dev", view.path().join("dev")).unwrap();
    let claimed = claim(&View::at(view.path()), &own.wanted());
    let why = claimed.map(|d| d.node).expect_err("it is held").0;
    assert!(why.contains("the kernel gives it to nobody else"), "{why}");
    drop(exclusive);
    assert!(claim(&View::at(view.path()), &own.wanted()).is_ok());
}

#[test]
fn parts_of_something_larger_that_sleeps() {
    let Some(own) = Loop::new() else { return };
    let raid = b"\xfc\x4e\x2b\xa9";
    let cases: [(u64, &[u8], &str); 9] = [
        (512, b"EFI PART", "a partition table"),
        (BYTES - 512, b"EFI PART", "the copy of a partition table"),
        (512, b"LABELONE", "an LVM physical volume"),
        (0, b"LUKS\xba\xbe", "an encrypted volume"),
        (4086, b"SWAPSPACE2", "swap space"),
        (0, raid, "a member of a RAID (md 1.1)"),
        (4096, raid, "a member of a RAID (md 1.2)"),
        (BYTES - 8192, raid, "a member of a RAID (md 0.90 or 1.0)"),
        (BYTES - 65536, raid, "a member of a RAID (md 0.90 or 1.0)"),
    ];
    for (at, magic, whose) in cases {
        own.lay(at, magic);
        own.refused(whose);
        own.lay(at, &vec![0; magic.len()]);
        assert!(own.claim().is_ok(), "{whose} is gone again");
    }
}

#[test]
fn a_file_behind_a_loop_device_that_was_put_in_another_ones_place() {
    let Some(own) = Loop::new() else { return };
    fs::rename(&own.device.file, own.dir.path().join("moved")).unwrap();
    File::create(&own.device.file).unwrap().set_len(BYTES).unwrap();
    own.refused("no block device of this machine has the backing_file");
}
