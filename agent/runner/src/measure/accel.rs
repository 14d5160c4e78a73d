//! Which engine runs the guest. That `/dev/kvm` opens says nothing: there are hosts where it cannot run a stock kernel.
//! So KVM is tried with a kernel that is to be booted anyway, and what came of it is remembered until the host restarts
//! or QEMU changes.

use crate::measure::machine::Engine;
use crate::process;
use crate::root::{Root, write_atomically};
use crate::sha;
use crate::trouble::Trouble;
use protocol::{Accel, Qemu};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub enum Choice {
    Settled(Engine),
    /// Boot with KVM first; where that fails and TCG boots the same kernel, KVM is no use here.
    TryKvm,
}

pub fn choose(root: &Root, boot: &Qemu, program: &Path) -> Choice {
    let tcg = Engine::Tcg { icount: boot.icount };
    match boot.accel {
        Accel::Tcg => Choice::Settled(tcg),
        Accel::Kvm => Choice::Settled(Engine::Kvm),
        // Instructions are counted by TCG alone.
        Accel::Auto if boot.icount => Choice::Settled(tcg),
        Accel::Auto => match fs::read_to_string(memory(root, program)).as_deref() {
            Ok("kvm") => Choice::Settled(Engine::Kvm),
            Ok(_) => Choice::Settled(tcg),
            Err(_)
                if fs::File::options()
                    .read(true)
                    .write(true)
                    .open("/dev/kvm")
                    .is_ok() =>
            {
                Choice::TryKvm
            }
            Err(_) => Choice::Settled(tcg),
        },
    }
}

pub fn remember(root: &Root, program: &Path, engine: Engine) -> Result<(), Trouble> {
    let word = match engine {
        Engine::Kvm => "kvm",
        Engine::Tcg { .. } => "tcg",
    };
    write_atomically(&memory(root, program), word.as_bytes())
}

fn memory(root: &Root, program: &Path) -> PathBuf {
    let identity = fs::metadata(program).map(|m| (m.ino(), m.len(), m.mtime())).ok();
    let key = format!("{} {} {identity:?}", process::boot_id(), program.display());
    root.dir
        .join(format!("accel-{}", &sha::of_bytes(key.as_bytes())[..16]))
}
