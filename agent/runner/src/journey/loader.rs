//! One-shot entries of boot loaders: how they are armed, whether they were taken, how they are cleared.
//!
//! The default entry is never touched.
//! GRUB: `grub-reboot` writes `next_entry` into grubenv, and GRUB clears it when it boots (GRUB manual, 'Simple
//! configuration handling'). systemd-boot: the EFI variable `LoaderEntryOneShot`, removed when it is taken
//! (systemd.io/BOOT_LOADER_INTERFACE).

use super::stage::{Files, place, room};
use super::{Journey, run};
use crate::spool::Spool;
use crate::system;
use crate::trouble::{Because, Trouble};
use protocol::Loader;
use std::fs;
use std::path::{Path, PathBuf};

const LIMIT_S: u64 = 60;
const ENTRY: &str = "perfbisect.conf";
/// The variable of the boot loader interface, under its vendor's id.
const ONE_SHOT: &str = "/sys/firmware/efi/efivars/LoaderEntryOneShot-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f";

/// Files first, the one-shot entry last: an entry that is armed can be booted.
pub fn arm(
    loader: &Loader,
    spool: &Spool,
    journey: &mut Journey,
    files: &Files,
    command_line: &str,
) -> Result<(), Trouble> {
    let folder = folder(loader);
    fs::create_dir_all(&folder).because(|| format!("cannot create {}", folder.display()))?;
    let (kernel, initramfs) = (folder.join("kernel"), folder.join("initramfs"));
    let entry = match loader {
        Loader::Grub { .. } => folder.join("entry.cfg"),
        Loader::SystemdBoot { esp } => Path::new(esp).join("loader/entries").join(ENTRY),
    };
    // What an order left behind whose spool is gone makes room first.
    super::stage::remove(&[kernel.clone(), initramfs.clone(), entry.clone()]);
    let mut bytes = 0;
    for path in [Some(&files.kernel), files.initramfs.as_ref()]
        .into_iter()
        .flatten()
    {
        bytes += fs::metadata(path).map_or(0, |m| m.len());
    }
    room(&folder, bytes)?;
    journey
        .staged
        .extend([kernel.clone(), initramfs.clone(), entry.clone()]);
    journey.write(spool)?;
    place(&files.kernel, &kernel)?;
    if let Some(from) = &files.initramfs {
        place(from, &initramfs)?;
    }
    let has_initramfs = files.initramfs.is_some();
    let text = match loader {
        Loader::Grub { seen_as, .. } => {
            let initrd = if has_initramfs {
                format!("initrd {seen_as}/initramfs\n")
            } else {
                String::new()
            };
            format!("linux {seen_as}/kernel {command_line}\n{initrd}")
        }
        Loader::SystemdBoot { .. } => {
            let initrd = if has_initramfs {
                "initrd /perfbisect/initramfs\n"
            } else {
                ""
            };
            format!("title perfbisect\nlinux /perfbisect/kernel\n{initrd}options {command_line}\n")
        }
    };
    crate::root::write_atomically(&entry, text.as_bytes())?;
    let words: &[&str] = match loader {
        Loader::Grub { entry, .. } => &["grub-reboot", entry],
        Loader::SystemdBoot { .. } => &["bootctl", "set-oneshot", ENTRY],
    };
    run(&argv(words), LIMIT_S, &[]).map(drop)
}

/// Whether the entry still waits: the loader did not take it at the last boot. None where that cannot be told.
pub fn still_armed(loader: &Loader) -> Option<bool> {
    match loader {
        Loader::Grub { entry, .. } => {
            let listed = run(&argv(&["grub-editenv", "list"]), LIMIT_S, &[]).ok()?;
            let next = listed.lines().find_map(|l| l.strip_prefix("next_entry="));
            Some(next.is_some_and(|next| next == entry))
        }
        Loader::SystemdBoot { .. } => Some(system::path(ONE_SHOT).exists()),
    }
}

/// So that no later restart of the machine takes it.
pub fn disarm(loader: &Loader) {
    if still_armed(loader) == Some(false) {
        return;
    }
    let words: &[&str] = match loader {
        Loader::Grub { .. } => &["grub-editenv", "-", "unset", "next_entry"],
        Loader::SystemdBoot { .. } => &["bootctl", "set-oneshot", ""],
    };
    if let Err(Trouble(what)) = run(&argv(words), LIMIT_S, &[]) {
        eprintln!("{what}");
    }
}

fn folder(loader: &Loader) -> PathBuf {
    match loader {
        Loader::Grub { dir, .. } => dir.into(),
        Loader::SystemdBoot { esp } => Path::new(esp).join("perfbisect"),
    }
}

fn argv(words: &[&str]) -> Vec<String> {
    words.iter().map(|w| w.to_string()).collect()
}
