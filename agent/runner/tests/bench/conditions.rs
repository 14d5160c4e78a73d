//! File systems made for a benchmark alone, on a loop device that the test owns.

use crate::agent::*;
use crate::loop_device::LoopDevice;
use protocol::*;
use std::process::Command;

const BYTES: u64 = 32 << 20;

struct Disk {
    device: LoopDevice,
    _dir: tempfile::TempDir,
}

impl Disk {
    /// None where this machine lets nobody make one.
    fn new() -> Option<Disk> {
        LoopDevice::allowed().then(|| {
            let dir = tempfile::tempdir().unwrap();
            Disk {
                device: LoopDevice::new(dir.path().join("disk"), BYTES),
                _dir: dir,
            }
        })
    }

    fn scratch(&self) -> Scratch {
        self.device.scratch("data")
    }
}

fn file_system(kind: &str, anew: Anew) -> FileSystem {
    FileSystem {
        at: "mnt".into(),
        device: Some("data".into()),
        kind: kind.into(),
        mkfs_options: words(&["-q"]),
        mount_options: "noatime".into(),
        anew,
        trim: true,
    }
}

fn perform(agent: &Agent, id: &str, bench: Bench, scratch: Vec<Scratch>) -> Vec<Line> {
    let mut work = none(bench);
    if let Work::Measure(measure) = &mut work {
        measure.conditions.scratch = scratch;
    }
    agent.start(&order(id, 1, work));
    agent.follow(id, 0)
}

fn outputs(lines: &[Line]) -> Vec<String> {
    let run = |l: &Line| match &l.event {
        Event::Run(run) => Some(run.stdout.trim().to_string()),
        _ => None,
    };
    lines.iter().filter_map(run).collect()
}

/// What is there at a run's begin: the type of the mounted file system, and what earlier runs left.
fn look() -> Vec<String> {
    shell(
        "stat -f -c %T mnt; ls mnt | grep -v lost+found | tr '\\n' ' '; touch mnt/run.$(ls mnt | grep -c run)",
    )
}

#[test]
fn made_anew_for_each_run_or_only_mounted_again() {
    let Some(disk) = Disk::new() else { return };
    for (anew, wanted) in [
        (
            Anew::Run,
            ["ext2/ext3\nready", "ext2/ext3\nready", "ext2/ext3\nready"],
        ),
        (
            Anew::Boot,
            [
                "ext2/ext3\nready",
                "ext2/ext3\nready run.0",
                "ext2/ext3\nready run.0 run.1",
            ],
        ),
    ] {
        let agent = Agent::new();
        let mut bench = bench(look());
        bench.file_systems = vec![file_system("ext4", anew)];
        bench.prepare = vec![shell("touch mnt/ready")];
        (bench.runs, bench.drop_caches) = (3, true);
        let seen = perform(&agent, "anew", bench, vec![disk.scratch()]);
        let Report::Measured(measured) = report(&seen) else {
            panic!("{seen:?}")
        };
        assert_eq!(outputs(&seen), wanted, "{anew:?}");
        assert!(
            measured.environment.contains_key("disk0.read_ahead_kib"),
            "{measured:?}"
        );
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(
            !mounts.contains(&disk.device.node),
            "nobody else sees it, and it is gone"
        );
    }
}

#[test]
fn what_is_mounted_elsewhere_is_left_alone() {
    let Some(disk) = Disk::new() else { return };
    let made = Command::new("mke2fs")
        .args(["-q", "-t", "ext2", &disk.device.node])
        .status()
        .unwrap();
    assert!(made.success());
    let at = tempfile::tempdir().unwrap();
    assert!(
        Command::new("mount")
            .arg(&disk.device.node)
            .arg(at.path())
            .status()
            .unwrap()
            .success()
    );
    std::fs::write(at.path().join("precious"), "yes").unwrap();
    let agent = Agent::new();
    let mut bench = bench(look());
    bench.file_systems = vec![file_system("ext4", Anew::Run)];
    let seen = perform(&agent, "elsewhere", bench, vec![disk.scratch()]);
    let kept = std::fs::read_to_string(at.path().join("precious"));
    assert!(Command::new("umount").arg(at.path()).status().unwrap().success());
    assert_eq!(kept.unwrap(), "yes");
    let Report::Trouble { what } = report(&seen) else {
        panic!("{seen:?}")
    };
    assert!(
        what.contains("`data` is refused") && what.contains("is mounted at"),
        "{what}"
    );
}

#[test]
fn a_device_that_no_file_gives_away_and_a_file_system_that_the_kernel_has_not() {
    let Some(disk) = Disk::new() else { return };
    let agent = Agent::new();
    let mut unnamed = bench(look());
    unnamed.file_systems = vec![file_system("ext4", Anew::Run)];
    let seen = perform(&agent, "unnamed", unnamed, vec![]);
    let Report::Trouble { what } = report(&seen) else {
        panic!("{seen:?}")
    };
    assert!(what.contains("scratch device `data`"), "{what}");

    let mut memory = bench(look());
    memory.file_systems = vec![FileSystem {
        kind: "tmpfs".into(),
        mount_options: "size=1m".into(),
        ..file_system("tmpfs", Anew::Run)
    }];
    memory.runs = 2;
    let seen = perform(&agent, "tmpfs", memory, vec![disk.scratch()]);
    assert!(matches!(report(&seen), Report::Measured(_)), "{seen:?}");
    assert_eq!(outputs(&seen), ["tmpfs", "tmpfs"]);

    let mut strange = bench(look());
    let script = agent.put(b"#!/bin/sh\nexit 0\n");
    strange.files = [("mkfs.nosuchfs".into(), script)].into();
    strange.file_systems = vec![file_system("nosuchfs", Anew::Run)];
    let seen = perform(&agent, "strange", strange, vec![disk.scratch()]);
    let Report::BenchmarkFailed(failed) = report(&seen) else {
        panic!("{seen:?}")
    };
    assert!(failed.what.contains("nosuchfs cannot be mounted"), "{failed:?}");
}
