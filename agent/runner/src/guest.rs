//! The agent as process 1 of a guest: mounts what there is, proves which kernel runs, performs the benchmark, says
//! everything over the console, and ends the machine.

pub mod syscalls;

use crate::bench::{self, Performed, Place};
use crate::environment;
use crate::measure::frames::{Errand, REPEAT_BYTES, Said, encode};
use crate::stand::Failure;
use crate::trouble::Trouble;
use rustix::mount::{MountFlags, mount};
use rustix::system::{RebootCommand, reboot};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::Instant;

/// Lets emergencies through and nothing else.
const QUIET: i32 = 1;
/// What a kernel begins with when its command line says nothing.
const USUAL_LEVEL: i32 = 7;

pub fn init() -> ! {
    // A panic of this program must not be taken for one of the kernel ("Attempted to kill init").
    let done = std::panic::catch_unwind(work);
    let problem = match done {
        Ok(Ok(())) => None,
        Ok(Err(what)) => Some(what),
        Err(_) => Some("the guest's init failed (a bug)".to_string()),
    };
    if let Some(what) = problem {
        // Without an errand there is no marker, hence no frame.
        println!("perfbisect: init: {what}");
    }
    let _ = std::io::stdout().flush();
    // `-no-reboot` makes the emulator end; power-off needs ACPI, which a small kernel lacks.
    let _ = reboot(RebootCommand::Restart);
    let _ = reboot(RebootCommand::PowerOff);
    loop {
        std::thread::park();
    }
}

fn work() -> Result<(), String> {
    let start = Instant::now();
    for (kind, at) in [
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("devtmpfs", "/dev"),
        ("tmpfs", "/tmp"),
    ] {
        // Each may be missing from a small kernel's configuration.
        let _ = mount(kind, at, kind, MountFlags::empty(), None);
    }
    let errand = fs::read("/perfbisect.json").map_err(|e| format!("no errand: {e}"))?;
    let errand: Errand = serde_json::from_slice(&errand).map_err(|e| format!("the errand is none: {e}"))?;
    let console = File::options()
        .write(true)
        .open("/dev/console")
        .map_err(|e| format!("no console: {e}"))?;
    let mut voice = Voice {
        console,
        marker: errand.marker,
        level: level(),
        next: 0,
        said: String::new(),
    };

    let banner = fs::read_to_string("/proc/version")
        .unwrap_or_default()
        .trim()
        .to_string();
    let proof = environment::proof();
    // The kernel kept its own banner to itself; who reads the console shall see one.
    if proof
        .command_line
        .split(' ')
        .any(|w| w == "quiet" || w.starts_with("loglevel="))
    {
        let _ = writeln!(voice.console, "{banner}");
    }
    voice.say(&Said::Hello { proof, banner });
    let place = Place {
        directory: Path::new("/bench"),
        agent: "/init".into(),
        start,
        scratch: &[],
    };
    let performed = bench::perform(&errand.bench, &place, &mut |news| voice.say(&news.into()));
    let proof = environment::proof();
    match performed {
        Ok(Performed { seconds, environment }) => {
            let prefixed = environment.into_iter().map(|(k, v)| (format!("guest.{k}"), v));
            voice.say(&Said::End {
                seconds,
                proof,
                environment: prefixed.collect(),
            });
        }
        Err(Failure::Benchmark(failed)) => voice.say(&Said::BenchmarkFailed { failed, proof }),
        Err(Failure::Lab(Trouble(what))) => voice.say(&Said::Trouble(what)),
    }
    voice.repeat();
    Ok(())
}

fn level() -> i32 {
    let text = fs::read_to_string("/proc/sys/kernel/printk").unwrap_or_default();
    text.split_whitespace()
        .next()
        .and_then(|w| w.parse().ok())
        .unwrap_or(USUAL_LEVEL)
}

struct Voice {
    console: File,
    marker: String,
    level: i32,
    next: u32,
    said: String,
}

impl Voice {
    fn say(&mut self, said: &Said) {
        let text = encode(&self.marker, self.next, said);
        self.next += 1;
        self.write(&text);
        if self.said.len() <= REPEAT_BYTES {
            self.said.push_str(&text);
        }
    }

    /// The kernel holds its tongue while a frame is on the wire, so that the two do not mix.
    fn write(&mut self, text: &str) {
        syscalls::set_console_level(QUIET);
        let _ = self.console.write_all(text.as_bytes());
        let _ = rustix::termios::tcdrain(&self.console);
        syscalls::set_console_level(self.level);
    }

    fn repeat(&mut self) {
        if self.said.len() <= REPEAT_BYTES {
            let text = std::mem::take(&mut self.said);
            self.write(&text);
        }
    }
}
