//! `follow`: reads a spool out, from a line on, as it grows, until its report.

use crate::root::Root;
use crate::spool::{Life, Spool, line};
use crate::trouble::{Because, Unable};
use protocol::{Event, HEARTBEAT_S, Line};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::mem::MaybeUninit;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How often a silent worker is looked at: a killed one leaves no other sign.
const LOOK: Duration = Duration::from_secs(1);

pub fn follow(root: &Root, id: &str, from: u64) -> Result<ExitCode, Unable> {
    let unknown = || Unable::refused("unknown_order", format!("no order {id} here"));
    let spool = Spool::find(root, id).ok_or_else(unknown)?;
    let watch = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)
        .because(|| "cannot watch the spool".into())?;
    inotify::add_watch(&watch, spool.events(), inotify::WatchFlags::MODIFY)
        .because(|| "cannot watch the spool".into())?;
    let file = File::open(spool.events()).because(|| "cannot open the spool".into())?;
    let mut reader = BufReader::new(file);
    let mut partial = Vec::new();
    let mut next = 0;
    let mut out = std::io::stdout();
    let mut spoke = Instant::now();
    let mut looked: Option<Instant> = None;
    loop {
        while reader
            .read_until(b'\n', &mut partial)
            .because(|| "cannot read the spool".into())?
            > 0
        {
            if !partial.ends_with(b"\n") {
                break;
            }
            let parsed: Line = serde_json::from_slice(&partial)
                .map_err(|e| Unable::refused("corrupt", format!("line {next} of order {id}: {e}")))?;
            let last = matches!(parsed.event, Event::Report(_));
            next = parsed.n + 1;
            // A report is said in any case: lines that were followed may have been lost by a crash of the machine.
            if parsed.n >= from || last {
                if out.write_all(&partial).and_then(|()| out.flush()).is_err() {
                    return Ok(ExitCode::SUCCESS);
                }
                spoke = Instant::now();
            }
            partial.clear();
            if last {
                return Ok(ExitCode::SUCCESS);
            }
        }
        // A machine that is about to go down must not leave a connection behind that only looks alive.
        if looked.is_none_or(|at| at.elapsed() >= LOOK) {
            looked = Some(Instant::now());
            match spool.settle()? {
                Life::Running(_) | Life::Ended(_) => {}
                Life::Away => {
                    let what = format!("order {id} is on its way to a test kernel or home");
                    return Err(Unable::refused("away", what));
                }
                // `start` died between order and worker: only another `start` helps.
                Life::Accepted | Life::Orphaned(_) if !spool.dir.exists() => return Err(unknown()),
                Life::Accepted | Life::Orphaned(_) => {}
            }
        }
        if spoke.elapsed() >= Duration::from_secs(HEARTBEAT_S) {
            let beat = line(next, Event::Heartbeat).because(|| "cannot write a heartbeat".into())?;
            if out.write_all(&beat).and_then(|()| out.flush()).is_err() {
                return Ok(ExitCode::SUCCESS);
            }
            spoke = Instant::now();
        }
        let wait = Timespec {
            tv_sec: LOOK.as_secs() as i64,
            tv_nsec: 0,
        };
        // Nothing is asked of stdout but whether its reader is gone.
        let mut fds = [
            PollFd::new(&watch, PollFlags::IN),
            PollFd::new(&out, PollFlags::empty()),
        ];
        let _ = poll(&mut fds, Some(&wait));
        if fds[1].revents().intersects(PollFlags::ERR | PollFlags::HUP) {
            return Ok(ExitCode::SUCCESS);
        }
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut news = inotify::Reader::new(&watch, &mut buffer);
        while news.next().is_ok() {}
    }
}
