//! Where a benchmark stands: its file systems, made and mounted for it alone, and the page cache.
//!
//! They are mounted in a mount namespace of their own, so that they go away with the last process of the order,
//! whatever ends it, and nobody else meets them.

use crate::command::{self, Ended};
use crate::scratch::{self, Device};
use crate::trouble::{Because, Trouble};
use crate::view::View;
use protocol::{Anew, BenchmarkFailed, FileSystem, Scratch};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount};
use rustix::thread::UnshareFlags;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// mkfs of a large rotating disk takes minutes.
const MKFS_LIMIT: Duration = Duration::from_secs(1800);
/// A mount may have to replay a journal.
const MOUNT_LIMIT: Duration = Duration::from_secs(300);

/// Whose fault it is that there is no number.
#[derive(Debug)]
pub enum Failure {
    Benchmark(BenchmarkFailed),
    Lab(Trouble),
}

impl From<Trouble> for Failure {
    fn from(trouble: Trouble) -> Failure {
        Failure::Lab(trouble)
    }
}

impl From<BenchmarkFailed> for Failure {
    fn from(failed: BenchmarkFailed) -> Failure {
        Failure::Benchmark(failed)
    }
}

pub struct Stand<'a> {
    view: View,
    file_systems: &'a [FileSystem],
    scratch: &'a [Scratch],
    directory: &'a Path,
    mounted: Vec<PathBuf>,
    made: bool,
}

impl<'a> Stand<'a> {
    pub fn new(
        file_systems: &'a [FileSystem],
        scratch: &'a [Scratch],
        directory: &'a Path,
    ) -> Result<Stand<'a>, Trouble> {
        // The init of a guest is alone there.
        if !file_systems.is_empty() && std::process::id() != 1 {
            alone()?;
        }
        Ok(Stand {
            view: View::here(),
            file_systems,
            scratch,
            directory,
            mounted: Vec::new(),
            made: false,
        })
    }

    /// The disks that the benchmark's file systems lie on, as the kernel calls them in this boot.
    pub fn disks(&self) -> Result<Vec<String>, Trouble> {
        let mut disks = Vec::new();
        for file_system in self.file_systems {
            if let Some(wanted) = self.wanted(file_system)? {
                let device = scratch::find(&self.view, wanted).map_err(Trouble)?;
                disks.push(device.disk);
            }
        }
        disks.sort();
        disks.dedup();
        Ok(disks)
    }

    fn wanted(&self, file_system: &FileSystem) -> Result<Option<&'a Scratch>, Trouble> {
        let Some(name) = file_system
            .device
            .as_ref()
            .filter(|_| file_system.kind != "tmpfs")
        else {
            return Ok(None);
        };
        let found = self.scratch.iter().find(|s| s.name == *name);
        found.map(Some).ok_or_else(|| {
            Trouble(format!(
                "the workload wants the scratch device `{name}`; the machine's file names none of that name"
            ))
        })
    }

    /// Before each run: clean, mounted afresh, and for the first time before the set-up.
    pub fn prepare(&mut self) -> Result<(), Failure> {
        self.clear()?;
        for file_system in self.file_systems {
            let at = self.directory.join(&file_system.at);
            fs::create_dir_all(&at).because(|| format!("cannot create {}", at.display()))?;
            let device = match self.wanted(file_system)? {
                Some(wanted) => Some(self.device(file_system, wanted)?),
                None => None,
            };
            self.mount(file_system, device.as_deref(), &at)?;
            self.mounted.push(at.clone());
            if file_system.trim {
                let mut fstrim = Command::new("fstrim");
                // A disk that cannot be trimmed is in the same state each time as it is.
                let _ = command::run(fstrim.arg(&at), MOUNT_LIMIT, &mut |_| {});
            }
        }
        self.made = true;
        Ok(())
    }

    /// The guard is asked every time, also where the device is only mounted again.
    fn device(&self, file_system: &FileSystem, wanted: &Scratch) -> Result<PathBuf, Trouble> {
        let Device { node, .. } = scratch::claim(&self.view, wanted)?;
        if !self.made || file_system.anew == Anew::Run {
            let program = format!("mkfs.{}", file_system.kind);
            let path = self.directory.join(&program);
            let mut mkfs = Command::new(if path.is_file() {
                path
            } else {
                program.clone().into()
            });
            // These refuse to write over an old file system, which on a scratch device is there each time but the first.
            if ["xfs", "btrfs", "f2fs"].contains(&file_system.kind.as_str()) {
                mkfs.arg("-f");
            }
            mkfs.args(&file_system.mkfs_options).arg(&node);
            done(&mut mkfs, MKFS_LIMIT, &program)?;
        }
        Ok(node)
    }

    fn mount(&self, file_system: &FileSystem, device: Option<&Path>, at: &Path) -> Result<(), Failure> {
        let FileSystem {
            kind, mount_options, ..
        } = file_system;
        let Some(device) = device else {
            let options = std::ffi::CString::new(mount_options.as_str()).unwrap_or_default();
            let mounted = mount(kind, at, kind, MountFlags::empty(), Some(options.as_c_str()));
            return mounted.map_err(|e| not_mounted(kind, &e.to_string()).into());
        };
        let mut program = Command::new("mount");
        program.args(["-t", kind]);
        if !mount_options.is_empty() {
            program.args(["-o", mount_options]);
        }
        program.arg(device).arg(at);
        // A kernel that cannot mount a sound file system has failed, not the lab.
        done(&mut program, MOUNT_LIMIT, "mount").map_err(|Trouble(what)| not_mounted(kind, &what).into())
    }

    pub fn clear(&mut self) -> Result<(), Trouble> {
        while let Some(at) = self.mounted.pop() {
            unmount(&at, UnmountFlags::empty()).because(|| {
                format!(
                    "cannot unmount {} (is something of the benchmark still running?)",
                    at.display()
                )
            })?;
        }
        Ok(())
    }
}

fn not_mounted(kind: &str, what: &str) -> BenchmarkFailed {
    BenchmarkFailed {
        what: format!("{kind} cannot be mounted: {what}"),
        excerpt: String::new(),
    }
}

fn done(program: &mut Command, limit: Duration, name: &str) -> Result<(), Trouble> {
    let ended: Ended = command::run(program, limit, &mut |_| {}).because(|| format!("cannot run {name}"))?;
    if ended.succeeded() {
        return Ok(());
    }
    let said = format!("{}{}", ended.stdout, ended.stderr);
    Err(Trouble(format!("{name}: {}: {}", ended.how(), said.trim())))
}

/// This thread and what it starts see their mounts, nobody else does.
fn alone() -> Result<(), Trouble> {
    // SAFETY: no other namespace than that of mounts is left, and no file descriptor changes.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }
        .because(|| "no mount namespace of its own (is the agent root?)".into())?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).because(|| "cannot keep its mounts to itself".into())
}

/// Nothing of the run before is in memory.
pub fn drop_caches(view: &View) -> Result<(), Trouble> {
    rustix::fs::sync();
    let path = view.path("/proc/sys/vm/drop_caches");
    fs::write(&path, "3").because(|| format!("cannot drop caches by {}", path.display()))
}
