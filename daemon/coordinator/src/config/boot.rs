//! How a machine boots a kernel. What it says is part of a lane: a change opens a new one.

use anyhow::ensure;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(tag = "method", rename_all = "snake_case", deny_unknown_fields)]
pub enum BootMethod {
    Qemu {
        #[serde(default = "default_qemu")]
        program: String,
        #[serde(default = "default_qemu_machine")]
        machine: String,
        #[serde(default = "default_accel")]
        accel: protocol::Accel,
        #[serde(default)]
        icount: bool,
        #[serde(default = "default_memory_mib")]
        memory_mib: u32,
        #[serde(default = "default_cpus")]
        cpus: u32,
        #[serde(default)]
        append: String,
        #[serde(default)]
        extra_args: Vec<String>,
        #[serde(default = "default_boot_limit_s")]
        boot_limit_s: u32,
        #[serde(default = "default_silence_limit_s")]
        silence_limit_s: u32,
    },
    None,
    Kexec {
        #[serde(default = "default_kexec")]
        program: String,
        #[serde(default)]
        load_options: Vec<String>,
        #[serde(default = "default_execute")]
        execute: Vec<String>,
        #[serde(default)]
        trip: Trip,
    },
    /// GRUB: a menu entry of that name which says `source <seen_as>/entry.cfg`.
    Grub {
        #[serde(default = "default_grub_dir")]
        dir: String,
        /// `dir` as GRUB sees it: without `/boot` where that is a file system of its own.
        #[serde(default = "default_grub_dir")]
        seen_as: String,
        #[serde(default = "default_entry")]
        entry: String,
        #[serde(default)]
        trip: Trip,
    },
    SystemdBoot {
        #[serde(default = "default_esp")]
        esp: String,
        #[serde(default)]
        trip: Trip,
    },
    Commands {
        arm: Vec<String>,
        #[serde(default = "default_reboot")]
        go: Vec<String>,
        #[serde(default)]
        disarm: Vec<String>,
        #[serde(default)]
        trip: Trip,
    },
}

/// How a machine leaves its home kernel and comes back; see `protocol::Trip`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Trip {
    pub append: String,
    pub root: Option<String>,
    pub modules_dir: String,
    pub initramfs: Vec<String>,
    pub ready: Vec<String>,
    pub reboot: Vec<String>,
    pub shutdown_limit_s: u32,
    pub firmware_limit_s: u32,
    pub boot_limit_s: u32,
}

impl Default for Trip {
    fn default() -> Trip {
        Trip {
            append: String::new(),
            root: None,
            modules_dir: "/lib/modules".into(),
            initramfs: Vec::new(),
            ready: Vec::new(),
            reboot: default_reboot(),
            shutdown_limit_s: 120,
            // Servers take 5 to 20 minutes from reset to boot loader.
            firmware_limit_s: 1200,
            boot_limit_s: 300,
        }
    }
}

impl BootMethod {
    /// None where a kernel is booted in a guest, or not at all.
    pub fn trip(&self) -> Option<&Trip> {
        match self {
            BootMethod::Qemu { .. } | BootMethod::None => None,
            BootMethod::Kexec { trip, .. }
            | BootMethod::Grub { trip, .. }
            | BootMethod::SystemdBoot { trip, .. }
            | BootMethod::Commands { trip, .. } => Some(trip),
        }
    }

    pub fn trip_mut(&mut self) -> Option<&mut Trip> {
        match self {
            BootMethod::Qemu { .. } | BootMethod::None => None,
            BootMethod::Kexec { trip, .. }
            | BootMethod::Grub { trip, .. }
            | BootMethod::SystemdBoot { trip, .. }
            | BootMethod::Commands { trip, .. } => Some(trip),
        }
    }

    /// What is added to the kernel's command line; None where no kernel is booted.
    pub fn append_mut(&mut self) -> Option<&mut String> {
        match self {
            BootMethod::Qemu { append, .. } => Some(append),
            BootMethod::None => None,
            BootMethod::Kexec { trip, .. }
            | BootMethod::Grub { trip, .. }
            | BootMethod::SystemdBoot { trip, .. }
            | BootMethod::Commands { trip, .. } => Some(&mut trip.append),
        }
    }

    /// For people.
    pub fn word(&self) -> Option<&'static str> {
        match self {
            BootMethod::Qemu { .. } => Some("qemu"),
            BootMethod::None => None,
            BootMethod::Kexec { .. } => Some("kexec"),
            BootMethod::Grub { .. } => Some("one-shot GRUB entry"),
            BootMethod::SystemdBoot { .. } => Some("one-shot systemd-boot entry"),
            BootMethod::Commands { .. } => Some("its own boot commands"),
        }
    }
}

fn default_qemu() -> String {
    "qemu-system-x86_64".into()
}
fn default_qemu_machine() -> String {
    "microvm,rtc=on,isa-serial=on".into()
}
fn default_accel() -> protocol::Accel {
    protocol::Accel::Auto
}
fn default_memory_mib() -> u32 {
    128
}
fn default_cpus() -> u32 {
    1
}
fn default_boot_limit_s() -> u32 {
    120
}
fn default_silence_limit_s() -> u32 {
    60
}

fn default_kexec() -> String {
    "kexec".into()
}
fn default_execute() -> Vec<String> {
    vec!["kexec".into(), "-e".into()]
}
fn default_reboot() -> Vec<String> {
    vec!["reboot".into()]
}
fn default_grub_dir() -> String {
    "/boot/perfbisect".into()
}
fn default_entry() -> String {
    "perfbisect".into()
}
fn default_esp() -> String {
    "/boot/efi".into()
}

pub(super) fn check_boot(boot: &BootMethod) -> anyhow::Result<()> {
    if let BootMethod::Qemu {
        icount: true,
        cpus,
        accel,
        ..
    } = boot
    {
        ensure!(
            *cpus == 1,
            "boot.icount counts instructions of one CPU: set cpus = 1"
        );
        ensure!(
            *accel == protocol::Accel::Tcg,
            "boot.icount needs accel = \"tcg\""
        );
    }
    if let BootMethod::Commands { arm, .. } = boot {
        ensure!(
            !arm.is_empty(),
            "boot.arm is empty: it makes the next boot the test kernel's"
        );
    }
    if let Some(trip) = boot.trip() {
        ensure!(
            !trip.reboot.is_empty(),
            "boot.trip.reboot is empty: it takes the machine home"
        );
        ensure!(
            trip.modules_dir.starts_with('/'),
            "boot.trip.modules_dir = \"{}\" is no absolute path",
            trip.modules_dir
        );
    }
    Ok(())
}
