//! `probe`: what this machine is and which orders it holds.

use crate::root::Root;
use crate::spool::Spool;
use crate::trouble::{Because, Unable};
use crate::{build, journey, process, sha};
use protocol::{Probe, VERSION};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PROGRAMS: [&str; 9] = [
    "cc",
    "gcc",
    "clang",
    "make",
    "git",
    "ld",
    "ccache",
    "qemu-system-x86_64",
    "qemu-system-aarch64",
];

pub fn probe(root: &Root) -> Result<Probe, Unable> {
    let exe = std::env::current_exe().because(|| "cannot find the agent's own path".into())?;
    let uname = rustix::system::uname();
    let info = rustix::system::sysinfo();
    let mut programs = BTreeMap::new();
    let mut compiler_digests = BTreeMap::new();
    for name in PROGRAMS {
        let Some(path) = which(name) else { continue };
        programs.insert(name.to_string(), version(&path));
        if matches!(name, "cc" | "gcc" | "clang")
            && let Ok(compiler) = build::toolchain::Compiler::find_known(root, name)
        {
            compiler_digests.insert(name.to_string(), compiler.digest);
        }
    }
    let mut orders = Vec::new();
    for spool in Spool::all(root) {
        orders.push(spool.state()?);
    }
    Ok(Probe {
        version: VERSION,
        token: root.token()?,
        agent_sha256: sha::of_file(&exe).because(|| "cannot read the agent's own file".into())?,
        boot_id: process::boot_id(),
        hostname: uname.nodename().to_string_lossy().into_owned(),
        arch: uname.machine().to_string_lossy().into_owned(),
        cpus: cpus(),
        memory_mib: info.totalram.saturating_mul(info.mem_unit.into()) >> 20,
        release: uname.release().to_string_lossy().into_owned(),
        programs,
        compiler_digests,
        // That it opens says little: whether it runs kernels is found out by booting one.
        kvm: fs::File::options()
            .read(true)
            .write(true)
            .open("/dev/kvm")
            .is_ok(),
        disk_free_mib: root.free_mib(),
        boot: journey::facts(root),
        orders,
    })
}

pub fn cpus() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u32)
}

/// A program by name along PATH, or a path as it is.
pub fn which(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Path::new(name).is_file().then(|| name.into());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|d| d.join(name))
        .find(|p| is_executable(p))
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

pub fn version(program: &Path) -> String {
    let said = Command::new(program)
        .arg("--version")
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output();
    said.ok()
        .and_then(|o| {
            String::from_utf8_lossy(&o.stdout)
                .lines()
                .next()
                .map(str::to_string)
        })
        .unwrap_or_default()
}
