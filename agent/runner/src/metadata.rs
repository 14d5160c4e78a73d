//! A built-in load of metadata: 40 % creations of files, 40 % appends, 20 % deletions, by several threads, each in a
//! folder of its own. The same operations in the same order in every run; printed as `perf bench` prints.

use crate::trouble::Unable;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

const USAGE: &str = "usage: perfbisect-agent metadata DIR [--threads N] [--operations N]";
const APPENDED_BYTES: usize = 4096;

pub fn main(folder: &str, rest: &[&str]) -> Result<ExitCode, Unable> {
    let wrong = || Unable::Broken(USAGE.into());
    let (mut threads, mut operations) = (4, 10_000);
    for pair in rest.chunks(2) {
        match *pair {
            ["--threads", n] => threads = n.parse().map_err(|_| wrong())?,
            ["--operations", n] => operations = n.parse().map_err(|_| wrong())?,
            _ => return Err(wrong()),
        }
    }
    if threads == 0 || operations == 0 {
        return Err(wrong());
    }
    let broken = |e: io::Error| Unable::Broken(format!("metadata in {folder}: {e}"));
    let folders: Vec<PathBuf> = (0..threads)
        .map(|n| Path::new(folder).join(format!("thread{n}")))
        .collect();
    for folder in &folders {
        fs::create_dir(folder).map_err(broken)?;
    }
    let start = Instant::now();
    let done: io::Result<()> = std::thread::scope(|scope| {
        let work = |(n, folder): (usize, &'_ PathBuf)| {
            let folder = folder.clone();
            scope.spawn(move || thread(&folder, n as u64, operations))
        };
        let threads: Vec<_> = folders.iter().enumerate().map(work).collect();
        for thread in threads {
            thread
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))?;
        }
        Ok(())
    });
    done.map_err(broken)?;
    let seconds = start.elapsed().as_secs_f64();
    let all = (operations * threads as u64) as f64;
    println!("# Running fs/metadata benchmark...");
    println!("# {threads} threads, {operations} operations each: 40 % create, 40 % append, 20 % delete\n");
    println!("     Total time: {seconds:.6} [sec]\n");
    println!("     {:>13.6} usecs/op", seconds * 1e6 / all);
    println!("     {:>13.0} ops/sec", all / seconds);
    Ok(ExitCode::SUCCESS)
}

fn thread(folder: &Path, seed: u64, operations: u64) -> io::Result<()> {
    let content = [b'x'; APPENDED_BYTES];
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    // Numbers of the files that are there.
    let mut files: Vec<u64> = Vec::new();
    let path = |n: u64| folder.join(n.to_string());
    for next in 0..operations {
        // xorshift64*: quick, and the same everywhere.
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        let random = state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16;
        let chosen = (random / 100) as usize;
        match random % 100 {
            40..80 if !files.is_empty() => {
                let n = files[chosen % files.len()];
                OpenOptions::new()
                    .append(true)
                    .open(path(n))?
                    .write_all(&content)?;
            }
            80.. if !files.is_empty() => {
                let n = files.swap_remove(chosen % files.len());
                fs::remove_file(path(n))?;
            }
            _ => {
                File::create_new(path(next))?;
                files.push(next);
            }
        }
    }
    Ok(())
}
