//! Takes a finished kernel into the content store and says what it is.

use super::kbuild::Make;
use super::toolchain::Compiler;
use super::{Limit, digest};
use crate::trouble::{Because, Trouble};
use crate::worker::Ctx;
use crate::{content, environment};
use object::{Object, ObjectSection};
use protocol::{ImageFile, ImageKind, ImageManifest, Kbuild};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The inner `Err` is the build's failure: it succeeded but lacks what an image needs.
pub fn collect(
    ctx: &Ctx,
    recipe: &Kbuild,
    out: &Path,
    config: &str,
    compiler: &Compiler,
    make: &Make<'_>,
    limit: &Limit,
) -> Result<Result<ImageManifest, String>, Trouble> {
    let kernel = out.join(&recipe.image);
    if !kernel.is_file() {
        return Ok(Err(format!("the build succeeded but made no {}", recipe.image)));
    }
    let release_file = out.join("include/config/kernel.release");
    let release =
        fs::read_to_string(&release_file).because(|| format!("cannot read {}", release_file.display()))?;
    let release = release.trim().to_string();
    let vmlinux_file = out.join("vmlinux");
    let vmlinux = fs::read(&vmlinux_file).because(|| format!("cannot read {}", vmlinux_file.display()))?;
    let build_id = build_id(&vmlinux)?;
    let modules = modules(out, config)?;
    let digest = digest::of(&vmlinux, &modules, &release, config)?;
    drop(vmlinux);

    let mut files = Vec::new();
    let mut add = |role: &str, path: &Path| -> Result<(), Trouble> {
        let (sha256, bytes) = content::keep(&ctx.root, path)?;
        files.push(ImageFile {
            role: role.into(),
            sha256,
            bytes,
        });
        Ok(())
    };
    add("config", &out.join(".config"))?;
    add("kernel", &kernel)?;
    if !modules.is_empty() {
        let archive = match pack_modules(ctx, out, make, limit)? {
            Ok(archive) => archive,
            Err(what) => return Ok(Err(what)),
        };
        add("modules", &archive)?;
    }
    Ok(Ok(ImageManifest {
        kind: ImageKind::Kernel,
        arch: recipe.arch.clone(),
        files,
        build_id,
        release,
        digest,
        compiler: compiler.version.clone(),
        compiler_digest: compiler.digest.clone(),
    }))
}

fn build_id(vmlinux: &[u8]) -> Result<String, Trouble> {
    let file = object::File::parse(vmlinux).because(|| "vmlinux is no ELF file".into())?;
    for section in file.sections() {
        let name = section.name().unwrap_or_default();
        if name.starts_with(".note")
            && let Ok(notes) = section.data()
            && let Some(id) = environment::gnu_build_id(notes)
        {
            return Ok(id);
        }
    }
    // Without it there is no proof of which kernel runs but its release, which is unique as well.
    Ok(String::new())
}

/// The modules of this configuration; `modules.order` names objects in some versions, modules in others.
fn modules(out: &Path, config: &str) -> Result<Vec<PathBuf>, Trouble> {
    if super::config::options(config).get("CONFIG_MODULES") != Some(&"y") {
        return Ok(Vec::new());
    }
    let Ok(order) = fs::read_to_string(out.join("modules.order")) else {
        return Ok(Vec::new());
    };
    let named = order.lines().map(|l| out.join(l.trim()).with_extension("ko"));
    let mut modules: Vec<PathBuf> = named.filter(|p| p.is_file()).collect();
    modules.sort();
    Ok(modules)
}

fn pack_modules(
    ctx: &Ctx,
    out: &Path,
    make: &Make<'_>,
    limit: &Limit,
) -> Result<Result<PathBuf, String>, Trouble> {
    let staging = ctx.work.join("modules");
    let path = format!("INSTALL_MOD_PATH={}", staging.display());
    let made = make.run(out, &[&path, "INSTALL_MOD_STRIP=1", "modules_install"], limit)?;
    if !made.succeeded() {
        return Ok(Err(super::failure::excerpt(&made.output)));
    }
    // Links to source and build folders lead nowhere on another machine.
    let archive = ctx.work.join("modules.tar");
    let packed = Command::new("tar")
        .args([
            "--sort=name",
            "--mtime=@0",
            "--owner=0",
            "--group=0",
            "--numeric-owner",
        ])
        .args(["--exclude=*/build", "--exclude=*/source", "-cf"])
        .arg(&archive)
        .arg("-C")
        .arg(&staging)
        .arg("lib")
        .output()
        .because(|| "cannot run tar".into())?;
    if packed.status.success() {
        Ok(Ok(archive))
    } else {
        Err(Trouble(format!(
            "cannot pack the modules: {}",
            String::from_utf8_lossy(&packed.stderr).trim()
        )))
    }
}
