//! One QEMU process: its command line, its console as it comes, its certain end.

use crate::measure::cpio::{Archive, init_program};
use crate::measure::frames::Errand;
use crate::measure::here::check_inside;
use crate::measure::ticks;
use crate::process;
use crate::trouble::{Because, Trouble};
use crate::worker::Ctx;
use protocol::{Measure, Qemu};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How the kernel is accelerated in one boot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Engine {
    Kvm,
    Tcg { icount: bool },
}

pub struct Machine {
    child: Child,
    console: ChildStdout,
    errors: PathBuf,
    pub started: Instant,
}

/// What the console had to say within a wait.
pub enum Heard {
    Nothing,
    Bytes(Vec<u8>),
    /// QEMU let go of it.
    Closed,
}

pub fn initramfs(ctx: &Ctx, order: &Measure, marker: &str) -> Result<PathBuf, Trouble> {
    let exe = std::env::current_exe().because(|| "cannot find the agent's own path".into())?;
    let errand = Errand {
        marker: marker.into(),
        bench: order.bench.clone(),
    };
    let errand = serde_json::to_vec(&errand).because(|| "cannot write the errand".into())?;
    let mut archive = Archive::default();
    for name in ["bench", "dev", "proc", "sys", "tmp"] {
        archive.directory(name);
    }
    // The kernel opens this one for init before anything is mounted; Rust wants the other.
    archive.device("dev/console", 5, 1);
    archive.device("dev/null", 1, 3);
    archive.program("init", &init_program(&exe)?);
    archive.program("perfbisect.json", &errand);
    for (name, sha256) in &order.bench.files {
        check_inside(name)?;
        let content =
            fs::read(ctx.root.file(sha256)).because(|| format!("{name} ({sha256}) was not put here"))?;
        archive.program(&format!("bench/{name}"), &content);
    }
    let path = ctx.work.join("initramfs.cpio");
    fs::write(&path, archive.finish()).because(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// `tsc_khz` is the host's.
pub fn command_line(boot: &Qemu, arch: &str, engine: Engine, tsc_khz: Option<u64>) -> String {
    let mut words = vec!["console=ttyS0".to_string(), "reboot=t".into(), "panic=-1".into()];
    match engine {
        // The APIC timer's calibration would wait for ticks that take for ever when instructions are the clock.
        Engine::Tcg { icount: true } => words.push("noapictimer".into()),
        Engine::Tcg { icount: false } if arch == "x86_64" && !boot.append.contains("tsc_early_khz") => {
            // Nor may its watchdog, which compares it with ticks that a busy host delivers late, take it away.
            words.extend(tsc_khz.map(|khz| format!("tsc_early_khz={khz} tsc=reliable")));
        }
        Engine::Tcg { icount: false } | Engine::Kvm => {}
    }
    words.push(boot.append.trim().to_string());
    words.join(" ").trim().to_string()
}

impl Machine {
    pub fn start(
        ctx: &Ctx,
        program: &Path,
        boot: &Qemu,
        arch: &str,
        engine: Engine,
        kernel: &Path,
        initramfs: &Path,
    ) -> Result<Machine, Trouble> {
        let errors = ctx.work.join("qemu.err");
        let file = File::create(&errors).because(|| format!("cannot create {}", errors.display()))?;
        let mut qemu = Command::new(program);
        qemu.args(["-M", &boot.machine, "-m", &boot.memory_mib.to_string()]);
        qemu.args([
            "-display",
            "none",
            "-monitor",
            "none",
            "-nodefaults",
            "-no-reboot",
            "-serial",
            "stdio",
        ]);
        match engine {
            Engine::Kvm => qemu.args(["-accel", "kvm", "-cpu", "host", "-smp", &boot.cpus.to_string()]),
            Engine::Tcg { icount: false } => qemu.args(["-accel", "tcg", "-smp", &boot.cpus.to_string()]),
            Engine::Tcg { icount: true } => qemu.args([
                "-accel",
                "tcg",
                "-icount",
                "shift=0,sleep=off,align=off",
                "-smp",
                "1",
            ]),
        };
        qemu.arg("-kernel").arg(kernel).arg("-initrd").arg(initramfs);
        qemu.arg("-append")
            .arg(command_line(boot, arch, engine, ticks::host_khz(&ctx.root)));
        qemu.args(&boot.extra_args);
        qemu.stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(file)
            .process_group(0)
            .current_dir(&ctx.work);
        let mut child = qemu
            .spawn()
            .because(|| format!("cannot run {}", program.display()))?;
        let console = child
            .stdout
            .take()
            .ok_or_else(|| Trouble("qemu has no stdout".into()))?;
        Ok(Machine {
            child,
            console,
            errors,
            started: Instant::now(),
        })
    }

    pub fn hear(&mut self, at_most: Duration) -> Result<Heard, Trouble> {
        let wait = Timespec {
            tv_sec: at_most.as_secs() as i64,
            tv_nsec: at_most.subsec_nanos().into(),
        };
        let mut fds = [PollFd::new(&self.console, PollFlags::IN)];
        match poll(&mut fds, Some(&wait)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(Heard::Nothing),
            Ok(_) => {}
            Err(e) => return Err(Trouble(format!("cannot wait for the console: {e}"))),
        }
        let mut buffer = vec![0; 1 << 14];
        match self
            .console
            .read(&mut buffer)
            .because(|| "cannot read the console".into())?
        {
            0 => Ok(Heard::Closed),
            n => {
                buffer.truncate(n);
                Ok(Heard::Bytes(buffer))
            }
        }
    }

    /// What QEMU itself said so far.
    pub fn errors(&self) -> String {
        fs::read_to_string(&self.errors)
            .unwrap_or_default()
            .trim()
            .to_string()
    }

    /// Ends it if it has not ended; its status, and what it said on stderr.
    pub fn end(mut self) -> (Option<ExitStatus>, String) {
        let status = self.reap();
        (
            status,
            fs::read_to_string(&self.errors)
                .unwrap_or_default()
                .trim()
                .to_string(),
        )
    }

    /// After the console was closed QEMU is about to end by itself; its own status is worth a moment.
    pub fn wait_for_end(&mut self, at_most: Duration) {
        let start = Instant::now();
        while start.elapsed() < at_most && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn reap(&mut self) -> Option<ExitStatus> {
        if let Ok(Some(status)) = self.child.try_wait() {
            return Some(status);
        }
        process::end_tree(self.child.id() as i32, None);
        let _ = self.child.kill();
        let _ = self.child.wait();
        None
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.reap();
    }
}
