//! In the test kernel: prove which kernel it is, run the benchmark under what is left of the order's deadline, write
//! the last word down, go home. And the hook of every boot, which finds out in which kernel it is.

use super::{Journey, Leg, hook_seen_path, loader, order_of_this_boot, restart, watchdog};
use crate::measure::here;
use crate::process::{self, Identity};
use crate::root::{Root, write_atomically};
use crate::spool::{Spool, Writer};
use crate::trouble::{Because, Trouble, Unable};
use crate::worker::Ctx;
use crate::{environment, system};
use protocol::{Boot, BootFailed, ImageKind, Measure, Order, Phase, Report, Trip, Work};
use std::convert::Infallible;
use std::fs::{self, File};
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Until the machine has settled, or says that it does not: then it is measured all the same, as every other kernel.
const READY_LIMIT_S: u64 = 300;
/// Where no order says how long the machine may take to go down.
const NOBODYS_SHUTDOWN_LIMIT_S: u32 = 60;

/// Run at every boot, in whatever kernel.
pub fn resume(root: &Root) -> Result<ExitCode, Unable> {
    let Some(id) = order_of_this_boot() else {
        let seen = process::boot_id();
        write_atomically(&hook_seen_path(root), seen.as_bytes())?;
        for spool in Spool::all(root) {
            spool.settle()?;
        }
        return Ok(ExitCode::SUCCESS);
    };
    let known = Spool::find(root, &id).and_then(|spool| {
        let (journey, order) = (Journey::read(&spool)?, spool.order().ok()?);
        let Work::Measure(measure) = order.work.clone() else {
            return None;
        };
        let trip = measure.boot.trip()?.clone();
        Some((spool, journey, order, measure, trip))
    });
    let Some((spool, journey, order, measure, trip)) = known else {
        // A test kernel that nobody asks for any more: whatever restarts this machine is right.
        eprintln!("perfbisect: order {id} is not known here; going home");
        restart(&["reboot".to_string()], NOBODYS_SHUTDOWN_LIMIT_S);
        return Ok(ExitCode::SUCCESS);
    };
    let lock = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(spool.dir.join("resume.lock"));
    let lock = lock.because(|| "cannot open the spool's lock".into())?;
    if lock.try_lock().is_err() {
        return Ok(ExitCode::SUCCESS); // Somebody is at it.
    }
    match visit(root, spool, journey, &order, &measure, trip)? {}
}

fn visit(
    root: &Root,
    spool: Spool,
    mut journey: Journey,
    order: &Order,
    measure: &Measure,
    trip: Trip,
) -> Result<Infallible, Trouble> {
    let boot_id = process::boot_id();
    if let Boot::Oneshot(oneshot) = &measure.boot {
        // A loader that cannot clear it (grubenv on LVM, RAID, btrfs) would boot this kernel again.
        loader::disarm(&oneshot.loader);
    }
    let early = match &journey.leg {
        _ if spool.has_ended() => None,
        Leg::Leaving { .. } => None,
        Leg::Staging => Some(trouble(
            "the test kernel was booted before the machine was to leave",
        )),
        Leg::There { boot_id: seen } if *seen == boot_id => Some(trouble(
            "the agent was killed in the test kernel before it reported",
        )),
        Leg::There { .. } => Some(Report::BootFailed(BootFailed {
            fault: "reset".into(),
            excerpt: "the test kernel restarted in mid-benchmark, and came up once more".into(),
            phase: Phase::Bench,
        })),
        Leg::Returning { report, .. } => Some(report.clone()),
    };
    let way = Way {
        spool: spool.clone(),
        boot_id: boot_id.clone(),
        trip,
    };
    if spool.has_ended() || early.is_some() {
        way.home(&mut journey, early.unwrap_or(Report::Cancelled));
    }
    journey.leg = Leg::There { boot_id };
    journey.write(&spool)?;
    spool.set_worker(&Identity::of_self().because(|| "cannot read /proc/self/stat".into())?)?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .because(|| "cannot become a sub-reaper".into())?;
    let guarded = watchdog::start();
    let out = Arc::new(Writer::open(&spool)?);
    let way = Arc::new(way);
    let left = Duration::from_secs(journey.left_s.saturating_sub(system::uptime_s()));
    {
        let (way, out, mut journey, id) = (way.clone(), out.clone(), journey.clone(), order.id.clone());
        std::thread::spawn(move || {
            std::thread::sleep(left);
            if out.close() {
                process::end_tree(std::process::id() as i32, Some(&id));
                way.home(
                    &mut journey,
                    trouble("the order's deadline passed in the test kernel"),
                );
            }
        });
    }
    let work = spool.work();
    let _ = fs::remove_dir_all(&work);
    let ctx = Ctx {
        root: root.clone(),
        order: order.id.clone(),
        out: out.clone(),
        start: Instant::now(),
        work,
    };
    if !guarded {
        ctx.log("no hardware watchdog: a kernel that hangs here needs power control\n");
    }
    let performed =
        std::panic::catch_unwind(AssertUnwindSafe(|| benchmark(&ctx, &journey, measure, &way.trip)));
    let report = match performed {
        Ok(Ok(report)) => report,
        Ok(Err(Trouble(what))) => Report::Trouble { what },
        Err(_) => trouble("the agent failed (a bug)"),
    };
    ctx.phase(
        Phase::Shutdown,
        way.trip.shutdown_limit_s + way.trip.firmware_limit_s + way.trip.boot_limit_s,
    );
    if out.close() {
        process::end_tree(std::process::id() as i32, Some(&order.id));
        way.home(&mut journey, report);
    }
    // The other thread has closed the order and takes the machine home.
    loop {
        std::thread::park();
    }
}

fn trouble(what: &str) -> Report {
    Report::Trouble { what: what.into() }
}

fn benchmark(ctx: &Ctx, journey: &Journey, order: &Measure, trip: &Trip) -> Result<Report, Trouble> {
    ctx.phase(Phase::Proof, READY_LIMIT_S as u32);
    let proof = environment::proof();
    let up_s = system::uptime_s();
    if let Some(what) = wrong(journey, &proof) {
        return Ok(wrong_kernel(what));
    }
    fs::create_dir_all(&ctx.work).because(|| format!("cannot create {}", ctx.work.display()))?;
    if !trip.ready.is_empty()
        && let Err(Trouble(what)) = super::run(&trip.ready, READY_LIMIT_S, &[])
    {
        ctx.log(format!("not settled: {what}\n"));
    }
    if environment::clocksource().is_some_and(|c| c.ends_with("jiffies")) {
        return Err(Trouble(
            "the clock fell back to jiffies, so times are worth nothing".into(),
        ));
    }
    let mut order = order.clone();
    if order.image.kind == ImageKind::Kernel {
        order.image.files.clear(); // A program's lie beside the benchmark; a kernel's have had their use.
    }
    let mut report = here::measure(ctx, &order)?;
    let after = environment::proof();
    if after.boot_id != proof.boot_id {
        return Err(Trouble("the boot id changed during the benchmark".into()));
    }
    if let Some(what) = wrong(journey, &after) {
        return Ok(wrong_kernel(what));
    }
    if let Report::Measured(measured) = &mut report {
        measured.seconds.insert("boot".into(), up_s as f64);
        measured
            .environment
            .insert("tainted_before".into(), proof.tainted);
        measured.environment.insert("tainted_after".into(), after.tainted);
    }
    Ok(report)
}

fn wrong_kernel(excerpt: String) -> Report {
    Report::BootFailed(BootFailed {
        fault: "wrong_kernel".into(),
        excerpt,
        phase: Phase::Proof,
    })
}

fn wrong(journey: &Journey, proof: &protocol::Proof) -> Option<String> {
    let differs = |what: &str, wanted: &str, runs: &str| {
        (!wanted.is_empty() && wanted != runs)
            .then(|| format!("the {what} wanted is {wanted}, that of the kernel that runs is {runs:?}"))
    };
    differs("build id", &journey.build_id, &proof.build_id)
        .or_else(|| differs("release", &journey.release, &proof.release))
}

/// The way home.
struct Way {
    spool: Spool,
    boot_id: String,
    trip: Trip,
}

impl Way {
    /// The last word is on disk before anything else happens.
    fn home(&self, journey: &mut Journey, report: Report) -> ! {
        journey.leg = Leg::Returning {
            boot_id: self.boot_id.clone(),
            since_s: system::uptime_s(),
            report,
        };
        if let Err(Trouble(what)) = journey.write(&self.spool) {
            // A full disk: home, where the end is told by what is there.
            eprintln!("perfbisect: {what}");
        }
        std::thread::sleep(super::depart::FAREWELL);
        restart(&self.trip.reboot, self.trip.shutdown_limit_s);
        std::process::exit(1)
    }
}

/// A cancelled order in its test kernel: its worker is dead; the machine goes home.
pub fn abandon(spool: &Spool) -> Result<(), Trouble> {
    let (Some(mut journey), order) = (Journey::read(spool), spool.order()?) else {
        return Ok(());
    };
    let Some(trip) = order.trip() else {
        return Ok(());
    };
    journey.leg = Leg::Returning {
        boot_id: process::boot_id(),
        since_s: system::uptime_s(),
        report: Report::Cancelled,
    };
    journey.write(spool)?;
    rustix::fs::sync();
    super::run(&trip.reboot, trip.shutdown_limit_s.into(), &[]).map(drop)
}
