//! Built-in micro benchmarks: one system-call path each, small enough for a guest that counts instructions, printed as
//! `perf bench` prints, so that its parser reads them.

use crate::trouble::Unable;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::hint::black_box;
use std::process::ExitCode;
use std::time::Instant;

const DEFAULT_LOOPS: u64 = 2000;

type Body = Box<dyn FnMut() -> Result<(), Errno>>;

pub const NAMES: [&str; 14] = [
    "pipe",
    "pread",
    "pwrite",
    "getpid",
    "openclose",
    "stat",
    "fork",
    "exec",
    "mmap",
    "fault",
    "futex",
    "eventfd",
    "socketpair",
    "yield",
];

pub fn main(name: &str, rest: &[&str]) -> Result<ExitCode, Unable> {
    let wrong = || Unable::Broken("usage: perfbisect-agent micro NAME [--loops N]".into());
    let loops: u64 = match *rest {
        [] => DEFAULT_LOOPS,
        ["--loops", n] => n.parse().map_err(|_| wrong())?,
        _ => return Err(wrong()),
    };
    if loops == 0 {
        return Err(wrong());
    }
    let broken = |e: Errno| Unable::Broken(format!("micro {name}: {e}"));
    let Some(body) = body(name).map_err(broken)? else {
        return Err(Unable::Broken(format!(
            "no micro benchmark {name}; there are {}",
            NAMES.join(", ")
        )));
    };
    let nanoseconds = time(body, loops).map_err(broken)?;
    let seconds = nanoseconds as f64 / 1e9;
    let each = nanoseconds as f64 / 1e3 / loops as f64;
    println!("# Running micro/{name} benchmark...");
    println!("# Executed {loops} loops\n");
    println!("     Total time: {seconds:.6} [sec]\n");
    println!("     {each:>13.6} usecs/op");
    println!("     {:>13.0} ops/sec", 1e6 / each.max(1e-9));
    Ok(ExitCode::SUCCESS)
}

fn time(mut body: Body, loops: u64) -> Result<u128, Errno> {
    // Caches, page tables and lazily made objects of the first turns are no part of the steady cost.
    for _ in 0..(loops / 20).clamp(1, 100) {
        body()?;
    }
    let start = Instant::now();
    for _ in 0..loops {
        body()?;
    }
    Ok(start.elapsed().as_nanos())
}

fn body(name: &str) -> Result<Option<Body>, Errno> {
    let body: Body = match name {
        "pipe" => {
            let (read, write) = rustix::pipe::pipe()?;
            let (sent, mut got) = ([7; 64], [0; 64]);
            Box::new(move || {
                rustix::io::write(&write, &sent)?;
                rustix::io::read(&read, &mut got).map(drop)
            })
        }
        "socketpair" => {
            use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
            let (a, b) = socketpair(
                AddressFamily::UNIX,
                SocketType::STREAM,
                SocketFlags::CLOEXEC,
                None,
            )?;
            let (sent, mut got) = ([7; 64], [0; 64]);
            Box::new(move || {
                rustix::io::write(&a, &sent)?;
                rustix::io::read(&b, &mut got).map(drop)
            })
        }
        "eventfd" => {
            let fd = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)?;
            let mut got = [0; 8];
            Box::new(move || {
                rustix::io::write(&fd, &1u64.to_ne_bytes())?;
                rustix::io::read(&fd, &mut got).map(drop)
            })
        }
        "pread" => {
            let file = scratch()?;
            let mut got = [0; 1];
            Box::new(move || rustix::io::pread(&file, &mut got, 100).map(drop))
        }
        "pwrite" => {
            let file = scratch()?;
            Box::new(move || rustix::io::pwrite(&file, &[7; 4096], 0).map(drop))
        }
        "getpid" => Box::new(|| {
            black_box(rustix::process::getppid());
            Ok(())
        }),
        "yield" => Box::new(|| {
            rustix::thread::sched_yield();
            Ok(())
        }),
        "openclose" => {
            Box::new(|| rustix::fs::open("/proc/self/exe", OFlags::RDONLY, Mode::empty()).map(drop))
        }
        "stat" => Box::new(|| {
            rustix::fs::stat("/proc/self/exe").map(|s| {
                black_box(s);
            })
        }),
        "mmap" => Box::new(|| map(1 << 20, false)),
        "fault" => Box::new(|| map(1 << 16, true)),
        "futex" => {
            let word = std::sync::atomic::AtomicU32::new(0);
            Box::new(move || {
                rustix::thread::futex::wake(&word, rustix::thread::futex::Flags::PRIVATE, 1).map(drop)
            })
        }
        "fork" => Box::new(crate::guest::syscalls::fork_and_wait),
        "exec" => {
            let exe = std::env::current_exe().map_err(|_| Errno::NOENT)?;
            Box::new(move || {
                let mut command = std::process::Command::new(&exe);
                command.arg("--version").stdout(std::process::Stdio::null());
                command
                    .status()
                    .map(drop)
                    .map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))
            })
        }
        _ => return Ok(None),
    };
    Ok(Some(body))
}

/// A file of one page, in memory where the system has such a folder, without a name.
fn scratch() -> Result<File, Errno> {
    let file = rustix::fs::memfd_create("perfbisect", rustix::fs::MemfdFlags::CLOEXEC)?;
    rustix::io::pwrite(&file, &[1; 4096], 0)?;
    Ok(File::from(file))
}

fn map(bytes: usize, touch: bool) -> Result<(), Errno> {
    crate::guest::syscalls::map_and_unmap(bytes, touch)
}
