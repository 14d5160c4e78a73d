//! A measurement in a guest: boot, proof, benchmark, proof, each with its limit, the console kept all along.

use crate::disturbance::{self, Counters};
use crate::environment;
use crate::held::{self, Holding};
use crate::measure::accel::{self, Choice};
use crate::measure::console::{Fault, Watch};
use crate::measure::frames::{Receiver, Said};
use crate::measure::machine::{Engine, Heard, Machine, initramfs};
use crate::probe::{version, which};
use crate::trouble::{Because, Trouble};
use crate::view::View;
use crate::worker::Ctx;
use protocol::{
    BenchmarkFailed, BootFailed, Event, ImageKind, Measure, Measured, Phase, Proof, Qemu, Report,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Console text is passed on in pieces no more often than this.
const CONSOLE_PAUSE: Duration = Duration::from_millis(250);
/// A kernel that never stops printing fills no disk.
const CONSOLE_BYTES: usize = 8 << 20;
/// After a panic its last lines still come; with `panic=-1` the guest then resets and QEMU ends.
const AFTER_PANIC: Duration = Duration::from_secs(2);
/// A guest's second is many of ours where instructions are its clock, or where the host is busy.
const SLOWER_COUNTED: u32 = 40;
const SLOWER: u32 = 4;
/// On top of every limit within the guest, before the host takes the kernel to hang.
const GRACE: Duration = Duration::from_secs(60);
/// QEMU's own words are looked at this often: after a failure of KVM it stays, with the guest stopped.
const LOOK_AT_ERRORS: Duration = Duration::from_secs(1);
/// A trial with KVM ends after this: hosts where it does not work hang as often as they fail.
const KVM_TRIAL_S: u32 = 20;

/// How a boot ended, before it is known whose fault that is.
#[expect(clippy::large_enum_variant, reason = "one boot at a time ends")]
enum Ending {
    Report(Report),
    Trouble(Trouble),
}

pub fn measure(ctx: &Ctx, order: &Measure, boot: &Qemu) -> Result<Report, Trouble> {
    let program =
        which(&boot.program).ok_or_else(|| Trouble(format!("{} is not installed", boot.program)))?;
    if order.image.kind != ImageKind::Kernel {
        return Err(Trouble("this image is no kernel; it cannot be booted".into()));
    }
    let kernel = order.image.files.iter().find(|f| f.role == "kernel");
    let kernel = kernel.ok_or_else(|| Trouble("this image has no file with the role kernel".into()))?;
    let kernel = ctx.root.file(&kernel.sha256);
    if !kernel.is_file() {
        return Err(Trouble(format!(
            "the kernel {} was not put here",
            kernel.display()
        )));
    }
    let holding = held::hold(&View::here(), &order.conditions.held, &[])?;
    let guest = |boot: &Qemu, engine| Guest::boot(ctx, order, boot, engine, &program, &kernel, &holding);
    match accel::choose(&ctx.root, boot, &program) {
        Choice::Settled(engine) => guest(boot, engine),
        Choice::TryKvm => {
            let limit = boot.boot_limit_s.min(KVM_TRIAL_S);
            let trial = Qemu {
                boot_limit_s: limit,
                silence_limit_s: limit,
                ..boot.clone()
            };
            match guest(&trial, Engine::Kvm) {
                Ok(report) if booted(&report) => {
                    accel::remember(&ctx.root, &program, Engine::Kvm)?;
                    return Ok(report);
                }
                Ok(_) | Err(_) => ctx.log("KVM did not boot this kernel; now without it\n"),
            }
            let engine = Engine::Tcg { icount: false };
            let report = guest(boot, engine)?;
            if booted(&report) {
                accel::remember(&ctx.root, &program, engine)?;
            }
            Ok(report)
        }
    }
}

/// Whether the guest's init was reached.
fn booted(report: &Report) -> bool {
    match report {
        Report::Measured(_) | Report::BenchmarkFailed(_) => true,
        Report::BootFailed(failed) => failed.phase != Phase::Boot,
        Report::Built(_) | Report::BuildFailed(_) | Report::Trouble { .. } | Report::Cancelled => false,
    }
}

struct Guest<'a> {
    ctx: &'a Ctx,
    order: &'a Measure,
    boot: &'a Qemu,
    engine: Engine,
    machine: Machine,
    receiver: Receiver,
    watch: Watch,
    pending: Vec<u8>,
    /// Bytes of the console so far.
    kept: usize,
    passed_on: Instant,
    last_byte: Instant,
    looked: Instant,
    phase: Phase,
    /// When the present phase, or run, is over its limit.
    due: Instant,
    boot_s: f64,
    hello: Option<Proof>,
    version: String,
    holding: &'a Holding,
    /// Of the host, when the first run began.
    before: Option<Counters>,
}

impl<'a> Guest<'a> {
    fn boot(
        ctx: &'a Ctx,
        order: &'a Measure,
        boot: &'a Qemu,
        engine: Engine,
        program: &Path,
        kernel: &Path,
        holding: &'a Holding,
    ) -> Result<Report, Trouble> {
        let marker = marker()?;
        let initramfs: PathBuf = initramfs(ctx, order, &marker)?;
        ctx.phase(Phase::Boot, boot.boot_limit_s);
        let machine = Machine::start(ctx, program, boot, &order.image.arch, engine, kernel, &initramfs)?;
        let now = Instant::now();
        let mut guest = Guest {
            ctx,
            order,
            boot,
            engine,
            machine,
            receiver: Receiver::new(&marker),
            watch: Watch::default(),
            pending: Vec::new(),
            kept: 0,
            passed_on: now,
            last_byte: now,
            looked: now,
            phase: Phase::Boot,
            due: now + Duration::from_secs(boot.boot_limit_s.into()),
            boot_s: 0.0,
            hello: None,
            // While the guest boots there is time for this.
            version: version(program),
            holding,
            before: None,
        };
        let ending = guest.listen();
        guest.pass_on();
        let (_, errors) = guest.machine.end();
        if !errors.is_empty() {
            ctx.log(format!("qemu: {errors}\n"));
        }
        match ending {
            Ending::Report(report) => Ok(report),
            Ending::Trouble(Trouble(what)) if errors.is_empty() => Err(Trouble(what)),
            Ending::Trouble(Trouble(what)) => Err(Trouble(format!("{what}: {errors}"))),
        }
    }

    fn listen(&mut self) -> Ending {
        loop {
            if let Some(ending) = self.over_limit() {
                return ending;
            }
            let heard = match self.machine.hear(self.wait()) {
                Ok(heard) => heard,
                Err(trouble) => return Ending::Trouble(trouble),
            };
            match heard {
                Heard::Nothing => {}
                Heard::Closed => return self.closed(),
                Heard::Bytes(bytes) => {
                    self.last_byte = Instant::now();
                    if let Some(ending) = self.take(&bytes) {
                        return ending;
                    }
                }
            }
            if self.passed_on.elapsed() >= CONSOLE_PAUSE {
                self.pass_on();
            }
        }
    }

    fn wait(&self) -> Duration {
        let silence = self.last_byte + Duration::from_secs(self.boot.silence_limit_s.into());
        let mut until = self.due;
        if self.phase == Phase::Boot {
            until = until.min(silence);
        }
        if !self.pending.is_empty() {
            until = until.min(self.passed_on + CONSOLE_PAUSE);
        }
        until
            .saturating_duration_since(Instant::now())
            .max(Duration::from_millis(1))
    }

    fn over_limit(&mut self) -> Option<Ending> {
        if self.looked.elapsed() >= LOOK_AT_ERRORS {
            self.looked = Instant::now();
            // Ours to append: `boot` adds what it was.
            if Watch::blames_host(&self.machine.errors()) {
                return Some(Ending::Trouble(Trouble("the emulator failed".into())));
            }
        }
        let silent = self.last_byte.elapsed() >= Duration::from_secs(self.boot.silence_limit_s.into());
        if self.phase == Phase::Boot && silent {
            return Some(self.failed("hang", &format!("no output for {} s", self.boot.silence_limit_s)));
        }
        if Instant::now() < self.due {
            return None;
        }
        Some(match (self.phase, self.watch.fault) {
            // The last lines of a panic have had their time.
            (_, Some(Fault::Panic | Fault::NoInit | Fault::Reset | Fault::Host)) => self.closed(),
            (Phase::Boot, _) => {
                self.failed("timeout", &format!("no init after {} s", self.boot.boot_limit_s))
            }
            (phase, _) => self.failed("hang", &format!("no end of {phase:?} within its limit")),
        })
    }

    fn take(&mut self, bytes: &[u8]) -> Option<Ending> {
        let text = self.receiver.take(bytes);
        let before = self.watch.fault;
        self.watch.take(&text);
        self.pending.extend(text);
        if self.watch.fault != before && matches!(self.watch.fault, Some(f) if f != Fault::Oops) {
            self.due = self.due.min(Instant::now() + AFTER_PANIC);
        }
        while let Some(said) = self.receiver.message() {
            if let Some(ending) = self.said(said) {
                return Some(ending);
            }
        }
        None
    }

    fn pass_on(&mut self) {
        self.passed_on = Instant::now();
        if !self.pending.is_empty() {
            let bytes = std::mem::take(&mut self.pending);
            let room = CONSOLE_BYTES.saturating_sub(self.kept);
            self.kept += bytes.len();
            let mut text = String::from_utf8_lossy(&bytes[..bytes.len().min(room)]).into_owned();
            if room > 0 && bytes.len() > room {
                text.push_str("\n[the console said more than is kept]\n");
            }
            if !text.is_empty() {
                self.ctx.out.say(Event::Console { text });
            }
        }
    }

    /// A limit within the guest, as long as it may take out here.
    fn allow(&mut self, guest_s: u32) {
        let slower = match self.engine {
            Engine::Tcg { icount: true } => SLOWER_COUNTED,
            Engine::Tcg { icount: false } | Engine::Kvm => SLOWER,
        };
        self.due = Instant::now() + Duration::from_secs(guest_s.into()) * slower + GRACE;
    }

    fn said(&mut self, said: Said) -> Option<Ending> {
        self.pass_on();
        match said {
            Said::Hello { proof, banner } => {
                self.boot_s = self.machine.started.elapsed().as_secs_f64();
                self.phase = Phase::Proof;
                self.ctx.phase(Phase::Proof, GRACE.as_secs() as u32);
                self.allow(0);
                self.ctx.log(format!("{banner}\n"));
                if let Some(ending) = self.wrong_kernel(&proof) {
                    return Some(ending);
                }
                self.hello = Some(proof);
            }
            Said::Phase(phase, limit_s) => {
                self.phase = phase;
                self.ctx.phase(phase, limit_s);
                self.allow(limit_s);
            }
            Said::RunBegins => {
                if self.before.is_none() {
                    self.before = Some(disturbance::now(&View::here(), &[]));
                }
                self.allow(self.order.bench.run_limit_s);
            }
            Said::Log(text) => self.ctx.log(text),
            Said::Run(mut run) => {
                // The guest's clock began when its kernel did.
                run.start_s = (self.ctx.elapsed_s() - run.wall_s).max(0.0);
                self.ctx.out.say(Event::Run(run));
                self.allow(self.order.bench.run_limit_s);
            }
            Said::Trouble(what) => return Some(Ending::Trouble(Trouble(what))),
            Said::BenchmarkFailed { failed, proof } => {
                return Some(
                    self.ended(&proof)
                        .unwrap_or_else(|| self.benchmark_failed(failed)),
                );
            }
            Said::End {
                seconds,
                proof,
                environment,
            } => {
                return Some(
                    self.ended(&proof)
                        .unwrap_or_else(|| self.measured(seconds, proof, environment)),
                );
            }
        }
        None
    }

    fn wrong_kernel(&mut self, proof: &Proof) -> Option<Ending> {
        let image = &self.order.image;
        let wrong = |what: &str, built: &str, runs: &str| {
            (!built.is_empty() && !runs.is_empty() && built != runs)
                .then(|| format!("the {what} of the image is {built}, of the kernel that runs {runs}"))
        };
        let what = wrong("build id", &image.build_id, &proof.build_id)
            .or_else(|| wrong("release", &image.release, &proof.release))?;
        Some(self.failed("wrong_kernel", &what))
    }

    /// The guest has said its last word: is it still the same kernel, in one piece?
    fn ended(&mut self, proof: &Proof) -> Option<Ending> {
        if let Some(ending) = self.wrong_kernel(proof) {
            return Some(ending);
        }
        if self
            .hello
            .as_ref()
            .is_some_and(|before| before.boot_id != proof.boot_id)
        {
            return Some(self.failed("reset", "the boot id changed during the benchmark"));
        }
        self.watch.fault.map(|fault| self.fault(fault))
    }

    fn benchmark_failed(&self, failed: BenchmarkFailed) -> Ending {
        Ending::Report(Report::BenchmarkFailed(failed))
    }

    fn measured(
        &self,
        mut seconds: BTreeMap<String, f64>,
        proof: Proof,
        mut environment: BTreeMap<String, String>,
    ) -> Ending {
        // `refined-jiffies` as well: either ticks a hundred times a second.
        if environment
            .get("guest.clocksource")
            .is_some_and(|c| c.ends_with("jiffies"))
        {
            let what = "the guest's clock fell back to jiffies, so its times are worth nothing; is the host overloaded?";
            return Ending::Trouble(Trouble(what.into()));
        }
        if let Err(trouble) = self.holding.check() {
            return Ending::Trouble(trouble);
        }
        environment.extend(environment::facts("host."));
        let held = self.holding.facts().iter();
        environment.extend(held.map(|(k, v)| (format!("host.{k}"), v.clone())));
        // Where instructions are the clock, nothing that happens on the host is in the numbers.
        let host_disturbance = match self.engine {
            Engine::Tcg { icount: true } => None,
            Engine::Tcg { icount: false } | Engine::Kvm => {
                let after = disturbance::now(&View::here(), &[]);
                self.before
                    .as_ref()
                    .map(|before| disturbance::between(before, &after))
            }
        };
        environment.insert("qemu".into(), self.version.clone());
        let engine = match self.engine {
            Engine::Kvm => "kvm",
            Engine::Tcg { icount: true } => "tcg icount",
            Engine::Tcg { icount: false } => "tcg",
        };
        environment.insert("accel".into(), engine.into());
        seconds.insert("boot".into(), self.boot_s);
        seconds.insert("qemu".into(), self.machine.started.elapsed().as_secs_f64());
        Ending::Report(Report::Measured(Measured {
            proof,
            environment,
            seconds,
            host_disturbance,
        }))
    }

    /// QEMU ended, or what it said means that nothing more will come.
    fn closed(&mut self) -> Ending {
        self.machine.wait_for_end(AFTER_PANIC);
        match self.watch.fault {
            Some(fault) => self.fault(fault),
            None if self.receiver.has_gap() => {
                Ending::Trouble(Trouble("console noise spoiled a part of the results".into()))
            }
            // Not one byte: qemu itself did not get as far as a kernel.
            None if self.phase == Phase::Boot && self.watch.excerpt().is_empty() => {
                Ending::Trouble(Trouble("qemu ended without a word of the kernel".into()))
            }
            None => self.failed("reset", "the guest ended without a message"),
        }
    }

    fn fault(&mut self, fault: Fault) -> Ending {
        match fault {
            Fault::Host => Ending::Trouble(Trouble(format!("the emulator failed: {}", self.watch.excerpt()))),
            Fault::Oops | Fault::Reset | Fault::NoInit | Fault::Panic => self.failed(fault.name(), ""),
        }
    }

    fn failed(&mut self, fault: &str, what: &str) -> Ending {
        self.pass_on();
        let mut excerpt = self.watch.excerpt();
        if !what.is_empty() {
            excerpt = format!("{what}\n{excerpt}");
        }
        Ending::Report(Report::BootFailed(BootFailed {
            fault: fault.into(),
            excerpt,
            phase: self.phase,
        }))
    }
}

/// What no kernel prints by chance and no other boot knows.
fn marker() -> Result<String, Trouble> {
    use std::io::Read;
    let mut bytes = [0; 8];
    let mut random = std::fs::File::open("/dev/urandom").because(|| "cannot open /dev/urandom".into())?;
    random
        .read_exact(&mut bytes)
        .because(|| "cannot read /dev/urandom".into())?;
    Ok(crate::sha::hex(&bytes))
}
