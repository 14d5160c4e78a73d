//! A block device that the test owns: a loop device of a sparse file.

use protocol::{DeviceId, Scratch};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

pub struct LoopDevice {
    pub node: String,
    pub file: PathBuf,
    bytes: u64,
}

impl LoopDevice {
    /// Whether this machine lets the test make one; told where it does not.
    pub fn allowed() -> bool {
        let root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
        let allowed = root && Path::new("/dev/loop-control").exists();
        if !allowed {
            eprintln!("skipped: needs root and loop devices");
        }
        allowed
    }

    pub fn new(file: PathBuf, bytes: u64) -> LoopDevice {
        File::create(&file).unwrap().set_len(bytes).unwrap();
        let said = Command::new("losetup")
            .args(["--find", "--show"])
            .arg(&file)
            .output()
            .unwrap();
        assert!(said.status.success(), "{said:?}");
        let node = String::from_utf8(said.stdout).unwrap().trim().to_string();
        LoopDevice { node, file, bytes }
    }

    /// How a machine's file would name it.
    pub fn scratch(&self, name: &str) -> Scratch {
        Scratch {
            name: name.into(),
            id: DeviceId::BackingFile(self.file.to_str().unwrap().into()),
            partition: None,
            bytes: self.bytes,
        }
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.node]).status();
    }
}
