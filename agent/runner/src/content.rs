//! The content store: files by their SHA-256, verified as they arrive.

use crate::root::{Root, check_hex, sync_parent};
use crate::trouble::{Because, Trouble, Unable};
use crate::{sha, trees};
use protocol::{Names, Stored};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

pub fn have(root: &Root, input: impl Read) -> Result<Names, Unable> {
    let asked: Names = serde_json::from_reader(input)
        .map_err(|e| Unable::refused("corrupt", format!("these are not names: {e}")))?;
    for file in &asked.files {
        check_hex("SHA-256", file, &[64])?;
    }
    for tree in &asked.trees {
        check_hex("tree", tree, &[40, 64])?;
    }
    Ok(Names {
        files: asked
            .files
            .into_iter()
            .filter(|f| root.file(f).exists())
            .collect(),
        trees: asked.trees.into_iter().filter(|t| trees::has(root, t)).collect(),
    })
}

pub fn put(root: &Root, sha256: &str, mut input: impl Read) -> Result<Stored, Unable> {
    let target = root.file(sha256);
    let temporary = root
        .dir
        .join("files")
        .join(format!(".{sha256}.{}", std::process::id()));
    let result = receive(&mut input, &temporary).map_err(|e| match e.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Unable::refused("no_space", format!("cannot store {sha256}: {e}"))
        }
        _ => Unable::Broken(format!("cannot store {sha256}: {e}")),
    });
    let (digest, bytes) = result.inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })?;
    if digest != sha256 {
        let _ = fs::remove_file(&temporary);
        let message = format!("what arrived for {sha256} is {digest} ({bytes} bytes)");
        return Err(Unable::refused("corrupt", message));
    }
    fs::rename(&temporary, &target).because(|| format!("cannot store {sha256}"))?;
    sync_parent(&target).because(|| format!("cannot store {sha256}"))?;
    Ok(Stored { bytes })
}

fn receive(input: &mut impl Read, path: &Path) -> io::Result<(String, u64)> {
    let mut file = File::create(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    let mut bytes = 0;
    loop {
        let n = input.read(&mut buffer)?;
        if n == 0 {
            break;
        }
        hash.update(&buffer[..n]);
        file.write_all(&buffer[..n])?;
        bytes += n as u64;
    }
    file.sync_all()?;
    Ok((sha::hex(&hash.finalize()), bytes))
}

pub fn get(root: &Root, sha256: &str, mut out: impl Write) -> Result<ExitCode, Unable> {
    let mut file = File::open(root.file(sha256))
        .map_err(|e| Unable::refused("unknown_file", format!("no file {sha256} here: {e}")))?;
    io::copy(&mut file, &mut out).because(|| format!("cannot send {sha256}"))?;
    out.flush().because(|| format!("cannot send {sha256}"))?;
    Ok(ExitCode::SUCCESS)
}

/// Takes a file of ours (a build's result) into the store.
pub fn keep(root: &Root, path: &Path) -> Result<(String, u64), Trouble> {
    let mut file = File::open(path).because(|| format!("cannot open {}", path.display()))?;
    let temporary = root
        .dir
        .join("files")
        .join(format!(".keep.{}", std::process::id()));
    let (digest, bytes) =
        receive(&mut file, &temporary).because(|| format!("cannot store {}", path.display()))?;
    fs::rename(&temporary, root.file(&digest)).because(|| format!("cannot store {}", path.display()))?;
    Ok((digest, bytes))
}

/// Files younger than this are needed by orders on their way here.
const KEEP_FOR: Duration = Duration::from_secs(24 * 3600);

/// Where space is short the files least recently put are given up; the daemon has them all and puts them again.
pub fn make_room(root: &Root, needed_mib: u64) -> Result<(), Trouble> {
    if root.free_mib() >= needed_mib {
        return Ok(());
    }
    let folder = root.dir.join("files");
    let entries = fs::read_dir(&folder).because(|| format!("cannot list {}", folder.display()))?;
    let mut old: Vec<_> = entries
        .filter_map(|e| Some((e.as_ref().ok()?.metadata().ok()?.modified().ok()?, e.ok()?.path())))
        .filter(|(put, _)| put.elapsed().is_ok_and(|age| age > KEEP_FOR))
        .collect();
    old.sort();
    for (_, path) in old {
        if root.free_mib() >= needed_mib {
            break;
        }
        fs::remove_file(&path).because(|| format!("cannot remove {}", path.display()))?;
    }
    Ok(())
}
