//! The detached worker: carries out one order, within its deadline, and writes the report.

use crate::process::{self, Identity};
use crate::root::Root;
use crate::spool::{Spool, Writer};
use crate::trouble::{Because, Trouble, Unable};
use crate::{build, journey, measure};
use protocol::{Event, Phase, Report, Work};
use std::fs;
use std::io::Write;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What the parts of a work need of it.
pub struct Ctx {
    pub root: Root,
    pub order: String,
    pub out: Arc<Writer>,
    pub start: Instant,
    /// Scratch space that goes away with the order.
    pub work: PathBuf,
}

impl Ctx {
    pub fn phase(&self, phase: Phase, limit_s: u32) {
        self.out.say(Event::Phase { phase, limit_s });
    }

    pub fn log(&self, text: impl Into<String>) {
        self.out.say(Event::Log { text: text.into() });
    }

    pub fn elapsed_s(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }
}

pub fn main(root: &Root, id: &str) -> Result<ExitCode, Unable> {
    let spool = Spool::find(root, id).ok_or_else(|| Unable::refused("unknown_order", id))?;
    rustix::process::setsid().because(|| "cannot have a session of its own".into())?;
    // Daemonised grandchildren stay below us and can be found.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .because(|| "cannot become a sub-reaper".into())?;
    let order = spool.order()?;
    let out = Arc::new(Writer::open(&spool)?);
    let work = spool.work();
    let _ = fs::remove_dir_all(&work);
    fs::create_dir(&work).because(|| format!("cannot create {}", work.display()))?;
    spool.set_worker(&Identity::of_self().because(|| "cannot read /proc/self/stat".into())?)?;
    detach()?;

    let start = Instant::now();
    let ctx = Ctx {
        root: root.clone(),
        order: order.id.clone(),
        out: out.clone(),
        start,
        work,
    };
    let limit = Duration::from_secs(order.deadline_s.into());
    guard_deadline(out.clone(), spool.clone(), limit);
    let performed = std::panic::catch_unwind(AssertUnwindSafe(|| match &order.work {
        Work::Build(order) => build::build(&ctx, order),
        Work::Measure(order) => measure::measure(&ctx, order),
    }));
    let report = match performed {
        Ok(Ok(report)) => report,
        Ok(Err(Trouble(what))) => Report::Trouble { what },
        Err(_) => {
            let said = fs::read_to_string(spool.dir.join("worker.err")).unwrap_or_default();
            Report::Trouble {
                what: format!("the agent failed (a bug): {}", said.trim()),
            }
        }
    };
    end(&out, &spool, report);
    Ok(ExitCode::SUCCESS)
}

/// The caller of `start` waits for this word and for the pipe's end.
fn detach() -> Result<(), Trouble> {
    let mut stdout = std::io::stdout().lock();
    stdout
        .write_all(b"ready\n")
        .and_then(|()| stdout.flush())
        .because(|| "the caller is gone".into())?;
    let null = fs::File::options()
        .write(true)
        .open("/dev/null")
        .because(|| "cannot open /dev/null".into())?;
    rustix::stdio::dup2_stdout(&null).because(|| "cannot let go of stdout".into())
}

/// Ends the order by itself, whatever hangs: nobody may be there to cancel it.
fn guard_deadline(out: Arc<Writer>, spool: Spool, limit: Duration) {
    std::thread::spawn(move || {
        std::thread::sleep(limit);
        let what = format!("the order's deadline of {} s passed", limit.as_secs());
        end(&out, &spool, Report::Trouble { what });
        std::process::exit(0);
    });
}

/// Closes the spool first, so that what dies now does not write a report of its own.
fn end(out: &Writer, spool: &Spool, report: Report) {
    if !out.close() {
        // The other thread is ending the order and then the process.
        loop {
            std::thread::park();
        }
    }
    let gone = process::end_tree(std::process::id() as i32, Some(&spool.id));
    journey::unstage(spool);
    let report = if gone {
        report
    } else {
        Report::Trouble {
            what: "a process of this order cannot be killed; the machine needs a look".into(),
        }
    };
    if let Err(e) = out.report(report) {
        eprintln!("{e}");
        std::process::exit(1);
    }
}
