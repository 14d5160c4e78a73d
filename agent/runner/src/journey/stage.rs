//! Puts the test kernel's files where its boot needs them, and takes them away again: the disk never fills with old
//! kernels.

use super::Journey;
use crate::root::Root;
use crate::spool::Spool;
use crate::trouble::{Because, Trouble};
use crate::worker::Ctx;
use protocol::{ImageKind, ImageManifest, Trip};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Left free on a file system that kernels are put on.
const MARGIN_MIB: u64 = 16;
/// Making an initramfs takes a minute on a small machine; under load ten.
const INITRAMFS_LIMIT_S: u64 = 600;

/// The order's kernel as files at home.
pub struct Files {
    pub kernel: PathBuf,
    pub initramfs: Option<PathBuf>,
}

/// An image that is no kernel, or has no files, boots the home kernel itself: programs in a boot of their own, and the
/// trials of a machine before it serves.
pub fn boots_home(image: &ImageManifest) -> bool {
    image.kind == ImageKind::Userspace || image.files.is_empty()
}

/// Modules are unpacked and an initramfs made or taken. Everything outside the spool is in the journey's list before
/// it is made.
pub fn stage(
    ctx: &Ctx,
    spool: &Spool,
    journey: &mut Journey,
    image: &ImageManifest,
    trip: &Trip,
) -> Result<Files, Trouble> {
    if boots_home(image) {
        let release = &journey.home.release;
        return Ok(Files {
            kernel: home_kernel(release)?,
            initramfs: home_initramfs(release),
        });
    }
    let Some(kernel) = file(&ctx.root, image, "kernel")? else {
        return Err(Trouble("this image has no file with the role kernel".into()));
    };
    if let Some(modules) = file(&ctx.root, image, "modules")? {
        let release = &journey.release;
        let plain = !release.is_empty() && !release.contains('/') && !release.starts_with('.');
        if !plain {
            return Err(Trouble(format!(
                "{release:?} cannot be the name of a modules folder"
            )));
        }
        let folder = Path::new(&trip.modules_dir).join(release);
        if folder.exists() {
            return Err(Trouble(format!(
                "{} is there already and was not put there by this order",
                folder.display()
            )));
        }
        room(Path::new(&trip.modules_dir), bytes(&modules)?)?;
        journey.staged.push(folder);
        journey.write(spool)?;
        unpack(&modules, &trip.modules_dir)?;
    }
    let initramfs = match file(&ctx.root, image, "initramfs")? {
        Some(initramfs) => Some(initramfs),
        None if trip.initramfs.is_empty() => None,
        None => Some(make_initramfs(spool, &journey.release, &trip.initramfs)?),
    };
    Ok(Files { kernel, initramfs })
}

fn file(root: &Root, image: &ImageManifest, role: &str) -> Result<Option<PathBuf>, Trouble> {
    let Some(file) = image.files.iter().find(|f| f.role == role) else {
        return Ok(None);
    };
    let path = root.file(&file.sha256);
    if path.is_file() {
        Ok(Some(path))
    } else {
        Err(Trouble(format!("the {role} {} was not put here", file.sha256)))
    }
}

fn home_kernel(release: &str) -> Result<PathBuf, Trouble> {
    let places = [
        format!("/boot/vmlinuz-{release}"),
        format!("/lib/modules/{release}/vmlinuz"),
    ];
    let found = places
        .iter()
        .map(|p| crate::system::path(p))
        .find(|p| p.is_file());
    found.ok_or_else(|| {
        Trouble(format!(
            "the home kernel's own file is at none of {}: put or link it there",
            places.join(", ")
        ))
    })
}

/// Where distributions put it; a kernel may do without.
fn home_initramfs(release: &str) -> Option<PathBuf> {
    let places = [
        format!("/boot/initrd.img-{release}"),
        format!("/boot/initramfs-{release}.img"),
        format!("/boot/initrd-{release}"),
    ];
    places
        .iter()
        .map(|p| crate::system::path(p))
        .find(|p| p.is_file())
}

fn unpack(archive: &Path, into: &str) -> Result<(), Trouble> {
    let said = Command::new("tar")
        .args(["--no-same-owner", "--strip-components=2", "-xf"])
        .arg(archive)
        .args(["-C", into, "lib/modules"])
        .output()
        .because(|| "cannot run tar".into())?;
    if said.status.success() {
        return Ok(());
    }
    let what = String::from_utf8_lossy(&said.stderr).trim().to_string();
    Err(Trouble(format!("cannot unpack the modules into {into}: {what}")))
}

fn make_initramfs(spool: &Spool, release: &str, argv: &[String]) -> Result<PathBuf, Trouble> {
    let out = spool.dir.join("initramfs");
    let path = out.display().to_string();
    let argv: Vec<String> = argv
        .iter()
        .map(|w| w.replace("{release}", release).replace("{out}", &path))
        .collect();
    super::run(&argv, INITRAMFS_LIMIT_S, &[])?;
    match out.is_file() {
        true => Ok(out),
        false => Err(Trouble(format!("{} made no {path}", argv.join(" ")))),
    }
}

fn bytes(path: &Path) -> Result<u64, Trouble> {
    Ok(fs::metadata(path)
        .because(|| format!("cannot look at {}", path.display()))?
        .len())
}

pub fn room(folder: &Path, bytes: u64) -> Result<(), Trouble> {
    let fs = rustix::fs::statvfs(folder).because(|| format!("cannot look at {}", folder.display()))?;
    let (free, needed) = (
        fs.f_bavail.saturating_mul(fs.f_frsize) >> 20,
        (bytes >> 20) + MARGIN_MIB,
    );
    if free < needed {
        return Err(Trouble(format!(
            "{free} MiB free at {}, {needed} MiB needed",
            folder.display()
        )));
    }
    Ok(())
}

/// Copies a file to where the boot loader finds it, and has it on disk.
pub fn place(from: &Path, to: &Path) -> Result<(), Trouble> {
    let copy = || -> std::io::Result<()> {
        fs::copy(from, to)?;
        fs::File::open(to)?.sync_all()?;
        crate::root::sync_parent(to)
    };
    copy().because(|| format!("cannot place {}", to.display()))
}

/// Takes everything away that the journey put outside its spool.
pub fn remove(staged: &[PathBuf]) {
    for path in staged {
        let removed = match path.is_dir() {
            true => fs::remove_dir_all(path),
            false => fs::remove_file(path),
        };
        match removed {
            Ok(()) => {}
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => eprintln!("cannot remove {}: {e}", path.display()),
        }
    }
}
