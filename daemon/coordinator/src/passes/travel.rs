//! A machine that leaves its home kernel, watched by the one who carries its order: what its console says, how long it
//! may be silent, when its power is cycled, and what that tells of a boot that failed.
//!
//! Limits come from the machine's file and from the phases that the agent announces. Without a console a fault has no
//! name but `reset` or `hang`; without power control a machine that hangs stays away until its order's deadline.

use super::Passes;
use crate::config::boot::Trip;
use crate::config::{BootMethod, Machine};
use crate::fleet::power::{self, Listening};
use anyhow::Context;
use parsers::console::{Scanner, Sign};
use protocol::{BootFailed, Event, Phase, Report};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

/// How often silence is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// Without a heartbeat for so long a machine in its test kernel is taken to be dead. Heartbeats come every 5 s; a
/// machine under a heavy benchmark may be late, one whose kernel has hung is late for ever.
const SILENT: Duration = Duration::from_secs(60);
/// Power cycles for one order. One may come too early and meet the machine on its way home by itself; more than three
/// do not help.
const CYCLES: u32 = 3;
/// Console text is kept in pieces of about this size, or once a second.
const PIECE_BYTES: usize = 8 << 10;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Leg {
    Home,
    /// Between two kernels; it must be heard of by then.
    Way {
        due: Instant,
    },
    There,
}

/// What the carrier has to do.
#[derive(Debug)]
pub enum Turn {
    Console(String),
    Cycle,
    /// Nothing brings it home.
    Stranded(String),
}

pub struct Travel {
    machine: Machine,
    trip: Trip,
    leg: Leg,
    listening: Option<Listening>,
    scanner: Scanner,
    text: String,
    fault: Option<&'static str>,
    /// A kernel spoke since the machine left.
    banner: bool,
    /// A panic was seen: the machine is about to go home by itself.
    goes_home: bool,
    cycles: u32,
    last_words: String,
    cycling: Option<JoinHandle<anyhow::Result<()>>>,
    look_at: Instant,
}

/// None where the machine stays in its kernel. `taken_up`: the order was carried before; where the machine is must be
/// heard first.
pub fn watch(machine: &Machine, lane: &BootMethod, taken_up: bool) -> Option<Travel> {
    let trip = lane.trip()?.clone();
    let now = Instant::now();
    let leg = match taken_up {
        false => Leg::Home,
        true => Leg::Way {
            due: now + way(&trip),
        },
    };
    Some(Travel {
        listening: machine.console.as_ref().map(|c| power::listen(&machine.name, c)),
        machine: machine.clone(),
        trip,
        leg,
        scanner: Scanner::new(),
        text: String::new(),
        fault: None,
        banner: false,
        goes_home: false,
        cycles: 0,
        last_words: String::new(),
        cycling: None,
        look_at: now + LOOK,
    })
}

fn way(trip: &Trip) -> Duration {
    let s = trip.shutdown_limit_s + trip.firmware_limit_s + trip.boot_limit_s;
    Duration::from_secs(s.into())
}

impl Travel {
    /// The order's lines, as they come.
    pub fn line(&mut self, event: &Event) {
        let Event::Phase { phase, limit_s } = event else {
            return;
        };
        let due = Instant::now() + Duration::from_secs((*limit_s).into());
        match phase {
            Phase::Boot | Phase::Firmware => {
                self.leg = Leg::Way { due };
                self.scanner = Scanner::new();
                (self.fault, self.banner, self.goes_home) = (None, false, false);
            }
            Phase::Shutdown => self.leg = Leg::Way { due },
            Phase::Proof | Phase::Setup | Phase::Bench | Phase::Teardown => self.leg = Leg::There,
            Phase::Checkout | Phase::Configure | Phase::Compile | Phase::Collect => {}
        }
    }

    /// Until there is something to do. May be dropped and called again.
    pub async fn turn(&mut self, p: &Passes) -> anyhow::Result<Turn> {
        loop {
            tokio::select! {
                Some(text) = chunk(&mut self.listening) => {
                    self.console(&text);
                    if self.text.len() >= PIECE_BYTES {
                        return Ok(Turn::Console(std::mem::take(&mut self.text)));
                    }
                }
                cycled = ended(&mut self.cycling) => {
                    self.cycling = None;
                    match cycled {
                        Ok(()) => tracing::warn!(machine = self.machine.name, "its power was cycled"),
                        Err(error) => tracing::error!(machine = self.machine.name, "its power was not cycled: {error:#}"),
                    }
                }
                () = sleep_until(self.look_at) => {
                    self.look_at = Instant::now() + LOOK;
                    if !self.text.is_empty() {
                        return Ok(Turn::Console(std::mem::take(&mut self.text)));
                    }
                    if let Some(turn) = self.look(p.fleet.silent_for(&self.machine.name), Instant::now()) {
                        return Ok(turn);
                    }
                }
            }
        }
    }

    fn console(&mut self, text: &str) {
        for finding in self.scanner.push(text) {
            let fault = match finding.sign {
                Sign::Banner { .. } => {
                    self.banner = true;
                    continue;
                }
                Sign::Panic => "panic",
                Sign::Oops => "oops",
                Sign::SoftLockup | Sign::HardLockup | Sign::HungTask | Sign::RcuStall => "hang",
                Sign::OutOfMemory | Sign::Warning | Sign::HostFault => continue,
            };
            // A machine whose power was cut is at home; what its home kernel says is not the test kernel's.
            if self.leg != Leg::Home && self.cycles == 0 {
                self.goes_home |= fault == "panic";
                self.fault = match (self.fault, fault) {
                    (_, "panic") => Some("panic"),
                    (known, new) => known.or(Some(new)),
                };
            }
        }
        self.text.push_str(text);
    }

    fn look(&mut self, silent_for: Option<Duration>, now: Instant) -> Option<Turn> {
        let overdue = match self.leg {
            Leg::Way { due } => now >= due,
            Leg::There => silent_for.is_some_and(|silent| silent > SILENT),
            Leg::Home => silent_for.is_some_and(|silent| silent > SILENT + way(&self.trip)),
        };
        if !overdue {
            return None;
        }
        // A kernel that panicked restarts the machine itself.
        if std::mem::take(&mut self.goes_home) {
            self.leg = Leg::Way {
                due: now + way(&self.trip),
            };
            return None;
        }
        let power = self.machine.power.as_ref()?;
        if self.cycles == CYCLES {
            return Some(Turn::Stranded(format!("silent after {CYCLES} power cycles")));
        }
        if self.cycles == 0 {
            self.last_words = self.scanner.excerpt();
        }
        self.cycles += 1;
        self.leg = Leg::Way {
            due: now + way(&self.trip) + Duration::from_secs(2 * u64::from(power.limit_s)),
        };
        Some(Turn::Cycle)
    }

    /// Under the fence, aside: lines are taken meanwhile.
    pub fn cycle(&mut self, p: &Passes, attempt: Uuid) {
        let (p, machine) = (p.clone(), self.machine.clone());
        self.cycling = Some(tokio::spawn(async move {
            let power = machine.power.as_ref().context("no power control")?;
            let fence = p.store.fence(attempt, &p.instance).await?;
            let fence = fence.context("the lease was lost: another coordinator decides about it")?;
            let done = power::cycle(&machine.name, power).await;
            fence.lift().await?;
            Ok(done?)
        }));
    }

    /// What a failed boot was, with what was seen from outside.
    pub fn judge(&mut self, report: Report) -> Report {
        let Report::BootFailed(mut failed) = report else {
            return report;
        };
        self.scanner.finish();
        if failed.fault == "reset" {
            let unseen = self.machine.console.is_some() && !self.banner && failed.phase == Phase::Boot;
            match self.fault {
                Some(fault) => failed.fault = fault.into(),
                None if self.cycles > 0 && unseen => {
                    let what = "no kernel spoke on the console before the power was cycled: the firmware or the boot loader".into();
                    return Report::Trouble { what };
                }
                None if self.cycles > 0 => failed.fault = "hang".into(),
                None => {}
            }
        }
        let words = if self.last_words.is_empty() {
            self.scanner.excerpt()
        } else {
            self.last_words.clone()
        };
        if self.machine.console.is_some() && !words.is_empty() && self.fault.is_some() || self.cycles > 0 {
            failed.excerpt = format!("{}\n{words}", failed.excerpt).trim().to_string();
        }
        Report::BootFailed(BootFailed { ..failed })
    }

    /// What was not kept yet.
    pub fn rest(&mut self) -> String {
        std::mem::take(&mut self.text)
    }
}

async fn chunk(listening: &mut Option<Listening>) -> Option<String> {
    match listening {
        Some(listening) => listening.chunks.recv().await,
        None => std::future::pending().await,
    }
}

async fn ended(cycling: &mut Option<JoinHandle<anyhow::Result<()>>>) -> anyhow::Result<()> {
    match cycling {
        Some(handle) => handle.await.map_err(anyhow::Error::from).flatten(),
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(power: bool) -> Machine {
        let power = if power {
            "[power]\ncycle = [\"true\"]\nlimit_s = 0\n"
        } else {
            ""
        };
        let text = format!(
            "name = \"m\"\naddress = \"root@m\"\nwork_dir = \"/w\"\n{power}[console]\ncommand = [\"true\"]\n[boot]\nmethod = \"kexec\"\n"
        );
        toml::from_str(&text).unwrap()
    }

    fn watched(power: bool) -> Travel {
        let machine = machine(power);
        watch(
            &Machine {
                console: None,
                ..machine.clone()
            },
            &machine.boot,
            false,
        )
        .map(|t| Travel { machine, ..t })
        .unwrap()
    }

    fn failed(fault: &str) -> Report {
        Report::BootFailed(BootFailed {
            fault: fault.into(),
            excerpt: "it came home".into(),
            phase: Phase::Boot,
        })
    }

    fn fault(report: &Report) -> &str {
        match report {
            Report::BootFailed(failed) => &failed.fault,
            _ => "none",
        }
    }

    const OUT: Event = Event::Phase {
        phase: Phase::Boot,
        limit_s: 10,
    };

    #[tokio::test]
    async fn a_silent_boot_is_ended_by_power_and_three_times_in_vain_is_the_machines_fault() {
        let mut travel = watched(true);
        let mut now = Instant::now();
        assert!(travel.look(Some(Duration::ZERO), now).is_none());
        travel.line(&OUT);
        travel.console("Linux version 6.1.0-test (gcc)\n");
        assert!(travel.look(None, now + Duration::from_secs(9)).is_none());
        now += Duration::from_secs(11);
        for _ in 0..CYCLES {
            assert!(matches!(travel.look(None, now), Some(Turn::Cycle)));
            assert!(travel.look(None, now).is_none(), "it is given time to come home");
            now += way(&travel.trip) + Duration::from_secs(1);
        }
        assert!(matches!(travel.look(None, now), Some(Turn::Stranded(_))));
        assert_eq!(fault(&travel.judge(failed("reset"))), "hang");
    }

    #[tokio::test]
    async fn a_kernel_that_panicked_has_time_to_go_home_by_itself_and_gives_its_fault_a_name() {
        let mut travel = watched(true);
        let now = Instant::now();
        travel.line(&OUT);
        travel.console("Linux version 6.1.0-test (gcc)\n[ 1.0] Kernel panic - not sync");
        travel.console("ing: played\r\n");
        assert!(travel.look(None, now + Duration::from_secs(11)).is_none());
        assert!(travel.look(None, now + Duration::from_secs(13)).is_none());
        assert!(matches!(
            travel.look(None, now + Duration::from_secs(12) + way(&travel.trip)),
            Some(Turn::Cycle)
        ));
        let report = travel.judge(failed("reset"));
        assert_eq!(fault(&report), "panic");
        assert!(format!("{report:?}").contains("not syncing: played"));
    }

    #[tokio::test]
    async fn no_kernel_on_the_console_is_the_labs_trouble_and_without_power_a_silence_is_waited_out() {
        let mut travel = watched(true);
        travel.line(&OUT);
        assert!(matches!(
            travel.look(None, Instant::now() + Duration::from_secs(11)),
            Some(Turn::Cycle)
        ));
        assert!(matches!(travel.judge(failed("reset")), Report::Trouble { .. }));
        let mut travel = watched(false);
        travel.line(&Event::Phase {
            phase: Phase::Bench,
            limit_s: 10,
        });
        assert!(travel.look(Some(SILENT * 100), Instant::now()).is_none());
    }
}
