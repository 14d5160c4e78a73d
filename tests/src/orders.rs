//! Machines over real sshd, orders for them, and the lines of an order as they come.

use crate::binaries;
use crate::sshd::Sshd;
use coordinator::config::{Address, BootMethod, Machine, Role, Ssh};
use coordinator::fleet::{Fleet, FleetError, Limits, Supplies};
use protocol::{Bench, Boot, Event, ImageKind, ImageManifest, Line, Measure, Order, Report, Work};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::mpsc;

/// Anything that is waited for in here is there long before this.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn machine(name: &str, address: Address, work_dir: PathBuf, ssh: Option<Ssh>) -> Machine {
    let roles = vec![Role::Build, Role::Measure];
    let (arch, boot) = ("x86_64".into(), BootMethod::None);
    Machine {
        name: name.into(),
        address,
        roles,
        pools: vec![],
        arch,
        work_dir,
        boot,
        ssh,
        power: None,
        console: None,
        held: BTreeMap::new(),
        scratch: vec![],
        disturbed: Default::default(),
        grace_s: 10,
    }
}

pub fn by_ssh(name: &str, sshd: &Sshd) -> Machine {
    let ssh = Ssh {
        host_key: sshd.host_key(),
        key_file: Some(sshd.key_file()),
    };
    machine(
        name,
        Address::try_from(sshd.address()).unwrap(),
        sshd.folder().join(name),
        Some(ssh),
    )
}

pub fn fleet_of(machines: Vec<Machine>, limits: Limits) -> Fleet {
    let machines = machines.into_iter().map(|m| (m.name.clone(), m)).collect();
    Fleet::with_limits(&machines, &binaries::agent(), limits).unwrap()
}

/// Heartbeats come every 5 s, so this is the shortest silence that means anything.
pub fn impatient() -> Limits {
    Limits {
        silence: Duration::from_secs(7),
        back_off: Duration::from_millis(50),
        ..Limits::default()
    }
}

/// A benchmark whose every run waits for a word, so that the test says how far it gets.
pub struct Gate {
    path: PathBuf,
    fifo: std::fs::File,
}

impl Gate {
    pub fn new(folder: &Path) -> Gate {
        let path = folder.join("gate");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        // Open for both, so that neither side ever waits to open it.
        let fifo = std::fs::File::options()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        Gate { path, fifo }
    }

    pub fn open(&mut self, runs: usize) {
        (0..runs).for_each(|_| self.fifo.write_all(b"go\n").unwrap());
    }

    pub fn runs_done(&self) -> usize {
        std::fs::read_to_string(self.path.with_extension("done"))
            .unwrap_or_default()
            .lines()
            .count()
    }

    pub fn order(&self, runs: u32) -> Order {
        let gate = self.path.display();
        let script = format!("read word < {gate}; echo ran >> {gate}.done; echo $word");
        measure(
            &fresh_id(),
            1,
            vec!["sh".into(), "-c".into(), script],
            runs,
            BTreeMap::new(),
        )
    }
}

/// The agent finds an order's processes by its id, so no two orders of this machine may share one.
pub fn fresh_id() -> String {
    uuid::Uuid::new_v4().to_string()
}

pub fn measure(
    id: &str,
    token: u64,
    command: Vec<String>,
    runs: u32,
    files: BTreeMap<String, String>,
) -> Order {
    let image = ImageManifest {
        kind: ImageKind::Userspace,
        arch: "x86_64".into(),
        files: vec![],
        build_id: String::new(),
        release: String::new(),
        digest: String::new(),
        compiler: String::new(),
        compiler_digest: String::new(),
    };
    let bench = Bench {
        setup: vec![],
        command,
        teardown: vec![],
        warmup_runs: 0,
        runs,
        run_limit_s: 60,
        files,
        environment: BTreeMap::new(),
        ..Bench::default()
    };
    let work = Work::Measure(Measure {
        image,
        boot: Boot::None,
        bench,
        conditions: Default::default(),
    });
    Order {
        id: id.into(),
        version: protocol::VERSION,
        token,
        deadline_s: 120,
        work,
    }
}

/// A carried order, with its lines as they come.
pub struct Carried {
    pub lines: mpsc::Receiver<Line>,
    seen: Vec<Line>,
    task: tokio::task::JoinHandle<Result<Report, FleetError>>,
}

impl Carried {
    pub fn start(fleet: &Fleet, machine: &str, order: Order, supplies: Supplies, from: u64) -> Carried {
        let (tx, lines) = mpsc::channel(16);
        let (fleet, machine) = (fleet.clone(), machine.to_string());
        let task = tokio::spawn(async move { fleet.carry(&machine, &order, supplies, from, tx).await });
        Carried {
            lines,
            seen: Vec::new(),
            task,
        }
    }

    /// Until so many runs have been told.
    pub async fn runs(&mut self, count: usize) {
        while self
            .seen
            .iter()
            .filter(|line| matches!(line.event, Event::Run(_)))
            .count()
            < count
        {
            let line = tokio::time::timeout(PATIENCE, self.lines.recv())
                .await
                .expect("a line comes in time");
            match line {
                Some(line) => self.seen.push(line),
                None => panic!("ended early: {:?}", (&mut self.task).await.unwrap()),
            }
        }
    }

    /// The report, and all lines.
    pub async fn end(mut self) -> (Report, Vec<Line>) {
        let all = async {
            while let Some(line) = self.lines.recv().await {
                self.seen.push(line);
            }
        };
        tokio::time::timeout(PATIENCE, all)
            .await
            .expect("the order ends in time");
        (self.task.await.unwrap().unwrap(), self.seen)
    }
}

/// No line lost, none repeated, the report last.
pub fn assert_whole(lines: &[Line], from: u64) {
    let numbers: Vec<u64> = lines.iter().map(|line| line.n).collect();
    let wanted: Vec<u64> = (from..from + numbers.len() as u64).collect();
    assert_eq!(numbers, wanted);
    assert!(matches!(lines.last().unwrap().event, Event::Report(_)));
}
