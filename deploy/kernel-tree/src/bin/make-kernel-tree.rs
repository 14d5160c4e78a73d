//! `make-kernel-tree --cache DIR [--seed N] [--loss-pct P] [--for guest|machine] [--source TARBALL]`: prints where the repository and the
//! truth about it are.

use kernel_tree::{Error, Result, Wish, fail, make};
use std::process::ExitCode;

const USAGE: &str = "usage: make-kernel-tree --cache DIR [--seed N] [--loss-pct P] [--for guest|machine] [--source TARBALL]

Makes a git repository of a shrunk Debian kernel source and some fifty commits drawn from the seed, one of which makes
pipes slower. Tags: v1.0 (good), v1.1 (bad). Prints `repository PATH`, `truth PATH` and `seed N`.";

fn main() -> ExitCode {
    match wish().and_then(|wish| Ok((make(&wish)?, wish.seed))) {
        Ok((made, seed)) => {
            println!(
                "repository {}\ntruth {}\nseed {seed}",
                made.repository.display(),
                made.truth.display()
            );
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("make-kernel-tree: {error}");
            ExitCode::FAILURE
        }
    }
}

fn wish() -> Result<Wish> {
    let mut cache = None;
    let mut wish = Wish {
        tarball: "/usr/src/linux-source-6.1.tar.xz".into(),
        cache: Default::default(),
        seed: std::time::UNIX_EPOCH
            .elapsed()
            .map_or(1, |d| d.as_nanos() as u64 % 1_000_000),
        loss_pct: None,
        for_machine: false,
    };
    let mut words = std::env::args().skip(1);
    while let Some(option) = words.next() {
        let Some(value) = words.next() else {
            return fail(USAGE);
        };
        let number = |e: &dyn std::fmt::Display| Error(format!("{option} {value}: {e}"));
        match option.as_str() {
            "--cache" => cache = Some(std::path::absolute(&value).map_err(|e| number(&e))?),
            "--seed" => wish.seed = value.parse().map_err(|e| number(&e))?,
            "--loss-pct" => wish.loss_pct = Some(value.parse().map_err(|e| number(&e))?),
            "--for" if value == "machine" => wish.for_machine = true,
            "--for" if value == "guest" => wish.for_machine = false,
            "--source" => wish.tarball = value.into(),
            _ => return fail(USAGE),
        }
    }
    if wish.loss_pct.is_some_and(|p| !(0.5..=5000.0).contains(&p)) {
        return fail("--loss-pct takes 0.5 to 5000");
    }
    wish.cache = cache.ok_or(Error(USAGE.into()))?;
    Ok(wish)
}
