//! Debian's kernel source, shrunk and put into a git repository of one commit.

use crate::import::{git, run};
use crate::{Error, Result, fail};
use std::fs;
use std::io::{BufWriter, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const FILES: &str = include_str!("../files.txt");
const MACHINE_FILES: &str = include_str!("../files-machine.txt");

/// The repository with the shrunk source as its only commit, made once per tarball and list of files.
pub fn base(tarball: &Path, cache: &Path, for_machine: bool) -> Result<PathBuf> {
    let list = if for_machine {
        format!("{FILES}\n{MACHINE_FILES}")
    } else {
        FILES.to_string()
    };
    let at = |e: std::io::Error| Error(format!("{}: {e}", tarball.display()));
    let meta = fs::metadata(tarball).map_err(|_| {
        Error(format!(
            "{}: not there; `apt-get install linux-source-6.1` brings it",
            tarball.display()
        ))
    })?;
    fs::create_dir_all(cache).map_err(|e| Error(format!("{}: {e}", cache.display())))?;
    let key = fnv(format!("{} {} {list}", meta.len(), meta.mtime()).as_bytes());
    let base = cache.join(format!("linux-{key:016x}.git"));
    if base.is_dir() {
        return Ok(base);
    }
    // Made beside and renamed: a base that is there is whole.
    let making = cache.join(format!("making-{}", std::process::id()));
    let _ = fs::remove_dir_all(&making);
    fs::create_dir_all(making.join("files")).map_err(at)?;
    let made =
        extract(tarball, &making.join("files"), &list).and_then(|()| commit(&making.join("files"), &making));
    let moved = made.and_then(|repository| fs::rename(repository, &base).map_err(at));
    let _ = fs::remove_dir_all(&making);
    // Another process may have been first; then its base is as good.
    if base.is_dir() {
        Ok(base)
    } else {
        moved.map(|()| base)
    }
}

fn extract(tarball: &Path, into: &Path, list: &str) -> Result<()> {
    let mut tar = Command::new("tar");
    tar.arg("-xf").arg(tarball).arg("-C").arg(into).args([
        "--strip-components=1",
        "--anchored",
        "--wildcards",
    ]);
    for line in list
        .lines()
        .map(str::trim)
        .filter(|l| !l.is_empty() && !l.starts_with('#'))
    {
        match line.strip_prefix("**/") {
            Some(name) => tar
                .arg("--wildcards-match-slash")
                .arg(format!("linux-source-*/{name}")),
            None => tar
                .arg("--no-wildcards-match-slash")
                .arg(format!("linux-source-*/{line}")),
        };
    }
    // A name that a newer point release no longer has is no error here; the build says whether anything is missing.
    let output = tar.output().map_err(|e| Error(format!("tar: {e}")))?;
    if !into.join("Makefile").is_file() || !into.join("fs/pipe.c").is_file() {
        let why = String::from_utf8_lossy(&output.stderr);
        return fail(format!(
            "{}: no kernel source came out of it\n{why}",
            tarball.display()
        ));
    }
    Ok(())
}

/// A bare repository with `files` as its one commit, made by one stream: a pack and no loose objects.
fn commit(files: &Path, making: &Path) -> Result<PathBuf> {
    let repository = making.join("base.git");
    let io = |e: std::io::Error| Error(format!("{}: {e}", making.display()));
    run(git(making)
        .args(["init", "--quiet", "--bare", "--initial-branch=main"])
        .arg(&repository))?;
    let mut import = git(&repository)
        .args(["-c", "core.compression=1", "fast-import", "--quiet", "--depth=0"])
        .stdin(Stdio::piped())
        .spawn()
        .map_err(io)?;
    let mut stream = BufWriter::with_capacity(1 << 20, import.stdin.take().expect("piped above"));
    let message = "Linux: the source as the distribution ships it, shrunk\n";
    let who = "Kernel Tree <tree@example.org> 1767600000 +0000";
    write!(
        stream,
        "commit refs/heads/main\ncommitter {who}\ndata {}\n{message}",
        message.len()
    )
    .map_err(io)?;
    for path in paths(files).map_err(io)? {
        let (name, meta) = (
            path.strip_prefix(files).expect("walked below it"),
            fs::symlink_metadata(&path).map_err(io)?,
        );
        let (mode, data) = match meta.is_symlink() {
            true => (
                "120000",
                fs::read_link(&path)
                    .map_err(io)?
                    .into_os_string()
                    .into_encoded_bytes(),
            ),
            false if meta.permissions().mode() & 0o111 != 0 => ("100755", fs::read(&path).map_err(io)?),
            false => ("100644", fs::read(&path).map_err(io)?),
        };
        write!(
            stream,
            "M {mode} inline {}\ndata {}\n",
            name.display(),
            data.len()
        )
        .map_err(io)?;
        stream
            .write_all(&data)
            .and_then(|()| stream.write_all(b"\n"))
            .map_err(io)?;
    }
    drop(stream.into_inner().map_err(|e| io(e.into_error()))?);
    if !import.wait().map_err(io)?.success() {
        return fail("git fast-import refused the source: see its message above");
    }
    Ok(repository)
}

fn paths(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() && !path.is_symlink() {
            found.extend(paths(&path)?)
        } else {
            found.push(path)
        }
    }
    found.sort();
    Ok(found)
}

/// Names a cache entry; nothing depends on its strength.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| {
        (h ^ u64::from(*b)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
