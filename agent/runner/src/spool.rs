//! The spool: an order's life as numbered lines in a file that outlives the worker, the connection and the daemon.
//!
//! `spool/<order>/` holds `order.json`, `worker.json` (who works), `events.ndjson` and `work/` (scratch). Only the
//! worker appends; once it is dead, whoever notices appends the missing report, exactly once, under the lock.

use crate::journey::{self, Journey, Whereabouts};
use crate::process::Identity;
use crate::root::{Root, lock, write_atomically};
use crate::trouble::{Because, Trouble};
use protocol::{Event, Line, Order, OrderState, Report};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

/// A report's line is looked for in so many bytes at the end; reports are far smaller.
const TAIL_BYTES: u64 = 256 << 10;

#[derive(Clone, Debug)]
pub struct Spool {
    pub id: String,
    pub dir: PathBuf,
    root: PathBuf,
}

/// What a spool's state is, judged from disk and `/proc`.
#[derive(Clone, PartialEq, Debug)]
#[expect(clippy::large_enum_variant, reason = "one order at a time is looked at")]
pub enum Life {
    /// The order is on disk, no worker ever said it began.
    Accepted,
    Running(Identity),
    /// The worker is gone and left no report.
    Orphaned(Identity),
    /// On its way to a test kernel or home: nobody works, and all is well.
    Away,
    Ended(Report),
}

impl Spool {
    pub fn find(root: &Root, id: &str) -> Option<Spool> {
        let dir = root.spool(id);
        dir.join("order.json").exists().then(|| Spool {
            id: id.into(),
            dir,
            root: root.dir.clone(),
        })
    }

    pub fn all(root: &Root) -> Vec<Spool> {
        let Ok(entries) = fs::read_dir(root.dir.join("spool")) else {
            return Vec::new();
        };
        let mut found: Vec<Spool> = entries
            .filter_map(|e| e.ok()?.file_name().into_string().ok())
            .filter(|name| !name.starts_with('.'))
            .filter_map(|name| Spool::find(root, &name))
            .collect();
        found.sort_by(|a, b| a.id.cmp(&b.id));
        found
    }

    /// Appears as a whole or not at all.
    pub fn create(root: &Root, order: &Order) -> Result<Spool, Trouble> {
        let dir = root.spool(&order.id);
        let temporary = root.dir.join("spool").join(format!(".{}.new", order.id));
        let _ = fs::remove_dir_all(&temporary);
        let make = || -> Result<(), Trouble> {
            fs::create_dir(&temporary).because(|| format!("cannot create {}", temporary.display()))?;
            let text = serde_json::to_vec(order).because(|| "cannot write the order".into())?;
            write_atomically(&temporary.join("order.json"), &text)?;
            File::create(temporary.join("events.ndjson"))
                .because(|| "cannot create the spool's events".into())?;
            fs::rename(&temporary, &dir).because(|| format!("cannot create {}", dir.display()))?;
            crate::root::sync_parent(&dir).because(|| "cannot sync the spool folder".into())
        };
        make()?;
        Ok(Spool {
            id: order.id.clone(),
            dir,
            root: root.dir.clone(),
        })
    }

    pub fn order(&self) -> Result<Order, Trouble> {
        let path = self.dir.join("order.json");
        let text = fs::read(&path).because(|| format!("cannot read {}", path.display()))?;
        serde_json::from_slice(&text).because(|| format!("{} is not an order", path.display()))
    }

    pub fn events(&self) -> PathBuf {
        self.dir.join("events.ndjson")
    }

    /// Scratch space of the worker, removed when the order ends.
    pub fn work(&self) -> PathBuf {
        self.dir.join("work")
    }

    pub fn set_worker(&self, worker: &Identity) -> Result<(), Trouble> {
        let text = serde_json::to_vec(worker).because(|| "cannot write the worker's identity".into())?;
        write_atomically(&self.dir.join("worker.json"), &text)
    }

    fn worker(&self) -> Option<Identity> {
        serde_json::from_slice(&fs::read(self.dir.join("worker.json")).ok()?).ok()
    }

    pub fn life(&self) -> Life {
        // Asked before the report is read: a worker that ends in between is then seen with its report.
        let worker = self.worker();
        let alive = worker.as_ref().is_some_and(Identity::is_alive);
        if let Some(Line {
            event: Event::Report(report),
            ..
        }) = last_line(&self.events())
        {
            return Life::Ended(report);
        }
        match worker {
            None => Life::Accepted,
            Some(worker) => match self.whereabouts(alive) {
                None | Some(Whereabouts::Here) if alive => Life::Running(worker),
                None | Some(Whereabouts::Here) => Life::Orphaned(worker),
                Some(_) => Life::Away,
            },
        }
    }

    /// Of an order that travels.
    fn whereabouts(&self, at_work: bool) -> Option<Whereabouts> {
        let journey = Journey::read(self)?;
        let order = self.order().ok()?;
        let trip = order.trip()?;
        Some(journey.whereabouts(&self.id, trip, at_work))
    }

    pub fn has_ended(&self) -> bool {
        matches!(
            last_line(&self.events()),
            Some(Line {
                event: Event::Report(_),
                ..
            })
        )
    }

    /// As `life`, but what a dead worker left is cleared away and reported first.
    pub fn settle(&self) -> Result<Life, Trouble> {
        let worker = match self.life() {
            Life::Orphaned(worker) => worker,
            Life::Away => {
                self.settle_journey()?;
                return Ok(self.life());
            }
            other @ (Life::Accepted | Life::Running(_) | Life::Ended(_)) => return Ok(other),
        };
        let what = if worker.same_boot() {
            "the agent's worker was killed before it reported".to_string()
        } else {
            "the machine restarted while the order ran".to_string()
        };
        crate::process::end_worker(&worker, &self.id);
        journey::unstage(self);
        self.conclude(Report::Trouble { what })?;
        Ok(self.life())
    }

    fn settle_journey(&self) -> Result<(), Trouble> {
        let at_work = self.worker().is_some_and(|w| w.is_alive());
        match self.whereabouts(at_work) {
            Some(whereabouts @ (Whereabouts::BackHome | Whereabouts::Stuck)) => {
                journey::settle(self, whereabouts)
            }
            Some(Whereabouts::Stranded) => journey::take_up(&self.root),
            Some(Whereabouts::Here | Whereabouts::Away) | None => Ok(()),
        }
    }

    pub fn state(&self) -> Result<OrderState, Trouble> {
        let running = match self.settle()? {
            Life::Running(_) | Life::Away => true,
            Life::Accepted | Life::Orphaned(_) | Life::Ended(_) => false,
        };
        Ok(OrderState {
            id: self.id.clone(),
            running,
        })
    }

    /// Appends the report of a worker that is dead. False when there is one already.
    pub fn conclude(&self, report: Report) -> Result<bool, Trouble> {
        let _held = lock(&self.dir.join("lock"))?;
        let path = self.events();
        let (next, length) = match last_line(&path) {
            Some(Line {
                event: Event::Report(_),
                ..
            }) => return Ok(false),
            _ => extent(&path),
        };
        let _ = fs::remove_dir_all(self.work());
        let append = || -> std::io::Result<()> {
            let mut file = OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .open(&path)?;
            // A torn last line is dropped.
            file.set_len(length)?;
            file.seek(SeekFrom::End(0))?;
            file.write_all(&line(next, Event::Report(report))?)?;
            file.sync_all()
        };
        append().because(|| format!("cannot end {}", path.display()))?;
        Ok(true)
    }
}

fn now_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_millis() as u64)
}

pub fn line(n: u64, event: Event) -> std::io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec(&Line {
        n,
        at_ms: now_ms(),
        event,
    })?;
    text.push(b'\n');
    Ok(text)
}

fn last_line(path: &Path) -> Option<Line> {
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))
        .ok()?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail).ok()?;
    let whole = &tail[..=tail.iter().rposition(|b| *b == b'\n')?];
    let start = whole[..whole.len() - 1]
        .iter()
        .rposition(|b| *b == b'\n')
        .map_or(0, |at| at + 1);
    serde_json::from_slice(&whole[start..]).ok()
}

/// The next line's number and the length in bytes of the lines that are whole.
fn extent(path: &Path) -> (u64, u64) {
    let content = fs::read(path).unwrap_or_default();
    let (mut next, mut length) = (0, 0);
    for text in content.split_inclusive(|b| *b == b'\n') {
        match serde_json::from_slice::<Line>(text) {
            Ok(line) if text.ends_with(b"\n") && line.n == next => {
                next += 1;
                length += text.len() as u64;
            }
            Ok(_) | Err(_) => break,
        }
    }
    (next, length)
}

/// The worker's end of a spool.
pub struct Writer {
    spool: Spool,
    inner: Mutex<Inner>,
}

struct Inner {
    file: File,
    next: u64,
    /// Nothing more is taken: the report is written, or about to be by the deadline.
    closed: bool,
}

impl Writer {
    pub fn open(spool: &Spool) -> Result<Writer, Trouble> {
        let path = spool.events();
        let (next, length) = extent(&path);
        let open = || -> std::io::Result<File> {
            let file = OpenOptions::new().append(true).open(&path)?;
            file.set_len(length)?;
            Ok(file)
        };
        let file = open().because(|| format!("cannot open {}", path.display()))?;
        Ok(Writer {
            spool: spool.clone(),
            inner: Mutex::new(Inner {
                file,
                next,
                closed: false,
            }),
        })
    }

    /// Facts that cannot be had again (runs) are on disk when this returns; the console's flow is not waited for.
    pub fn say(&self, event: Event) {
        let durable = matches!(event, Event::Run(_));
        let mut inner = self.inner.lock().unwrap_or_else(|e| e.into_inner());
        if inner.closed {
            return;
        }
        let written = line(inner.next, event).and_then(|text| inner.file.write_all(&text));
        match written {
            Ok(()) => inner.next += 1,
            // A full disk: the order cannot go on in a way anybody would hear of.
            Err(e) => {
                eprintln!("cannot write the spool: {e}");
                std::process::exit(1);
            }
        }
        if durable {
            let _ = inner.file.sync_data();
        }
    }

    /// From here on only the one who called this writes: its report. False when somebody else was first.
    pub fn close(&self) -> bool {
        let mut inner = self.inner.lock().unwrap_or_else(|e| e.into_inner());
        !std::mem::replace(&mut inner.closed, true)
    }

    pub fn report(&self, report: Report) -> Result<bool, Trouble> {
        self.spool.conclude(report)
    }
}
