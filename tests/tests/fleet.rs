//! The real agent, as a child and over real sshd, and what happens when the way to it is broken.

use coordinator::config::{Address, BootMethod, BuildRecipe, Machine, Role, Ssh, Tree};
use coordinator::fleet::{Fleet, FleetError, Limits, PackStream, Supplies, TreeSupply};
use coordinator::images::Images;
use coordinator::tree::Trees;
use lab::git_repository::{Draft, Repository};
use lab::sshd::{Network, Sshd};
use lab::{binaries, wait};
use protocol::{
    Bench, Boot, Build, CommandBuild, Event, ImageKind, ImageManifest, Line, Measure, Order, Recipe, Report,
    Work,
};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Anything that is waited for in here is there long before this.
const PATIENCE: Duration = Duration::from_secs(60);

fn machine(name: &str, address: Address, work_dir: PathBuf, ssh: Option<Ssh>) -> Machine {
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
        grace_s: 10,
    }
}

fn by_ssh(name: &str, sshd: &Sshd) -> Machine {
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

fn fleet_of(machines: Vec<Machine>, limits: Limits) -> Fleet {
    let machines = machines.into_iter().map(|m| (m.name.clone(), m)).collect();
    Fleet::with_limits(&machines, &binaries::agent(), limits).unwrap()
}

/// Heartbeats come every 5 s, so this is the shortest silence that means anything.
fn impatient() -> Limits {
    Limits {
        silence: Duration::from_secs(7),
        back_off: Duration::from_millis(50),
        ..Limits::default()
    }
}

/// A benchmark whose every run waits for a word, so that the test says how far it gets.
struct Gate {
    path: PathBuf,
    fifo: std::fs::File,
}

impl Gate {
    fn new(folder: &Path) -> Gate {
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

    fn open(&mut self, runs: usize) {
        (0..runs).for_each(|_| self.fifo.write_all(b"go\n").unwrap());
    }

    fn runs_done(&self) -> usize {
        std::fs::read_to_string(self.path.with_extension("done"))
            .unwrap_or_default()
            .lines()
            .count()
    }

    fn order(&self, runs: u32) -> Order {
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
fn fresh_id() -> String {
    uuid::Uuid::new_v4().to_string()
}

fn measure(id: &str, token: u64, command: Vec<String>, runs: u32, files: BTreeMap<String, String>) -> Order {
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
    };
    let work = Work::Measure(Measure {
        image,
        boot: Boot::None,
        bench,
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
struct Carried {
    lines: mpsc::Receiver<Line>,
    seen: Vec<Line>,
    task: tokio::task::JoinHandle<Result<Report, FleetError>>,
}

impl Carried {
    fn start(fleet: &Fleet, machine: &str, order: Order, supplies: Supplies, from: u64) -> Carried {
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
    async fn runs(&mut self, count: usize) {
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
    async fn end(mut self) -> (Report, Vec<Line>) {
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
fn assert_whole(lines: &[Line], from: u64) {
    let numbers: Vec<u64> = lines.iter().map(|line| line.n).collect();
    let wanted: Vec<u64> = (from..from + numbers.len() as u64).collect();
    assert_eq!(numbers, wanted);
    assert!(matches!(lines.last().unwrap().event, Event::Report(_)));
}

#[tokio::test]
async fn an_order_is_carried_the_same_way_to_a_child_and_over_ssh() {
    let sshd = Sshd::start();
    let local = machine("here", Address::Local, sshd.folder().join("here"), None);
    let fleet = fleet_of(vec![local, by_ssh("there", &sshd)], Limits::default());
    let began = Instant::now();
    let probe = fleet.probe("there").await.unwrap();
    let agent_bytes = std::fs::metadata(binaries::agent()).unwrap().len();
    println!(
        "first probe with the upload of {agent_bytes} bytes: {:?}",
        began.elapsed()
    );
    assert_eq!(probe.agent_sha256, fleet.agent_sha256());
    let place = sshd
        .folder()
        .join("there/agent")
        .join(fleet.agent_sha256())
        .join("perfbisect-agent");
    let installed = std::fs::metadata(&place).unwrap();
    assert_eq!(
        std::fs::read_dir(place.parent().unwrap()).unwrap().count(),
        1,
        "no temporary file is left"
    );

    let payload: Vec<u8> = (0..20_000_000u32)
        .map(|n| (n.wrapping_mul(2654435761) >> 13) as u8)
        .collect();
    let source = sshd.folder().join("payload");
    std::fs::write(&source, &payload).unwrap();
    let images = Images::open(sshd.folder()).await.unwrap();
    let sha256 = images.put_bytes(payload).await.unwrap();
    for name in ["here", "there"] {
        let files = BTreeMap::from([("data/payload".to_string(), sha256.clone())]);
        let id = fresh_id();
        let order = measure(
            &id,
            1,
            vec!["wc".into(), "-c".into(), "data/payload".into()],
            2,
            files,
        );
        let supplies = || Supplies {
            tree: None,
            files: vec![(sha256.clone(), source.clone())],
        };
        let began = Instant::now();
        let (report, lines) = Carried::start(&fleet, name, order.clone(), supplies(), 0)
            .end()
            .await;
        println!("{name}: carried with 20 MB of supplies in {:?}", began.elapsed());
        assert_whole(&lines, 0);
        assert!(matches!(report, Report::Measured(_)), "{report:?}");
        let said: Vec<&str> = lines
            .iter()
            .filter_map(|line| match &line.event {
                Event::Run(run) => Some(run.stdout.trim()),
                _ => None,
            })
            .collect();
        assert_eq!(said, ["20000000 data/payload"; 2]);

        // Adopted after its end, from the middle on.
        let began = Instant::now();
        let (again, rest) = Carried::start(&fleet, name, order, supplies(), 2).end().await;
        println!("{name}: adopted in {:?}", began.elapsed());
        assert_eq!(again, report);
        assert_eq!(rest, lines[2..]);

        let began = Instant::now();
        images.remove(&sha256).await.unwrap();
        let incoming = fleet.get_file(name, &sha256).await.unwrap();
        assert_eq!(images.put(&sha256, incoming).await.unwrap(), 20_000_000);
        println!(
            "{name}: 20 MB fetched into the image store in {:?}",
            began.elapsed()
        );
        let missing = fleet.get_file(name, &"0".repeat(64)).await.unwrap();
        let error = images.put(&"0".repeat(64), missing).await.unwrap_err();
        assert!(error.to_string().contains("get-file"), "{error}");

        let stale = fleet
            .carry(
                name,
                &measure(&fresh_id(), 0, vec!["true".into()], 1, BTreeMap::new()),
                Supplies::default(),
                0,
                mpsc::channel(1).0,
            )
            .await;
        assert!(
            matches!(&stale, Err(FleetError::Refused { refusal, .. }) if refusal.kind == "old_token"),
            "{stale:?}"
        );
        let began = Instant::now();
        for _ in 0..10 {
            assert!(!fleet.cancel(name, &id).await.unwrap().was_running);
        }
        println!("{name}: a call takes {:?}", began.elapsed() / 10);
        fleet.erase(name, &id).await.unwrap();
        assert!(fleet.probe(name).await.unwrap().orders.is_empty());
    }
    // A second daemon finds the agent there and leaves it alone.
    let second = fleet_of(vec![by_ssh("there", &sshd)], Limits::default());
    second.probe("there").await.unwrap();
    let now = std::fs::metadata(&place).unwrap();
    assert_eq!(now.modified().unwrap(), installed.modified().unwrap());
    // A damaged one is replaced.
    std::fs::write(&place, "#!/bin/sh\nexit 3\n").unwrap();
    let third = fleet_of(vec![by_ssh("there", &sshd)], Limits::default());
    assert_eq!(
        third.probe("there").await.unwrap().agent_sha256,
        fleet.agent_sha256()
    );
    assert!(matches!(
        third.probe("nowhere").await,
        Err(FleetError::UnknownMachine { .. })
    ));
}

#[tokio::test]
async fn a_killed_connection_costs_no_line_and_no_run() {
    let sshd = Sshd::start();
    let fleet = fleet_of(vec![by_ssh("m", &sshd)], impatient());
    let mut gate = Gate::new(sshd.folder());
    let mut carried = Carried::start(&fleet, "m", gate.order(12), Supplies::default(), 0);
    for round in 1..=3 {
        gate.open(2);
        carried.runs(4 * round - 2).await;
        assert!(sshd.kill_sessions() > 0);
        // The machine works on while nobody listens.
        gate.open(2);
        wait::until_async("the runs of an unheard agent", PATIENCE, async || {
            (gate.runs_done() >= 4 * round).then_some(())
        })
        .await;
        carried.runs(4 * round).await;
    }
    let (report, lines) = carried.end().await;
    assert!(matches!(report, Report::Measured(_)), "{report:?}");
    assert_whole(&lines, 0);
    assert_eq!(gate.runs_done(), 12, "no run was repeated");
}

#[tokio::test]
async fn a_frozen_sshd_is_noticed_by_its_silence() {
    let sshd = Sshd::start();
    let fleet = fleet_of(vec![by_ssh("m", &sshd)], impatient());
    let mut gate = Gate::new(sshd.folder());
    let mut carried = Carried::start(&fleet, "m", gate.order(3), Supplies::default(), 0);
    gate.open(1);
    carried.runs(1).await;
    assert!(sshd.freeze_sessions() > 0);
    let began = Instant::now();
    gate.open(2);
    let (report, lines) = carried.end().await;
    println!("frozen sshd: noticed and gone on after {:?}", began.elapsed());
    assert!(
        began.elapsed() >= Duration::from_secs(6),
        "it was not the silence that was noticed"
    );
    assert!(matches!(report, Report::Measured(_)), "{report:?}");
    assert_whole(&lines, 0);
}

#[tokio::test]
async fn a_healthy_and_quiet_machine_is_not_given_up() {
    let sshd = Sshd::start();
    let fleet = fleet_of(vec![by_ssh("m", &sshd)], impatient());
    let mut gate = Gate::new(sshd.folder());
    let mut carried = Carried::start(&fleet, "m", gate.order(2), Supplies::default(), 0);
    gate.open(1);
    carried.runs(1).await;
    let before = sshd.log().matches("Accepted publickey").count();
    // Twice the silence limit, in which nothing comes but heartbeats: quiet is what is tested.
    let quiet = tokio::time::timeout(Duration::from_secs(14), carried.lines.recv()).await;
    assert!(quiet.is_err(), "{quiet:?}");
    gate.open(1);
    let (_, lines) = carried.end().await;
    assert_whole(&lines, 0);
    assert_eq!(
        sshd.log().matches("Accepted publickey").count(),
        before,
        "it never connected again"
    );
}

#[test]
fn a_cut_line_is_noticed_and_followed_again_when_it_is_whole() {
    let network = Network::start(1);
    network.inside(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let sshd = &network.sshds[0];
            let fleet = fleet_of(vec![by_ssh("m", sshd)], impatient());
            let mut gate = Gate::new(sshd.folder());
            let mut carried = Carried::start(&fleet, "m", gate.order(6), Supplies::default(), 0);
            gate.open(2);
            carried.runs(2).await;
            let began = Instant::now();
            network.cut(0);
            gate.open(2);
            wait::until_async("a new connection to be tried", PATIENCE, async || {
                is_connecting(22).then_some(())
            })
            .await;
            println!("cut line: noticed after {:?}", began.elapsed());
            assert_eq!(gate.runs_done(), 4, "the machine worked on");
            network.heal();
            gate.open(2);
            let (report, lines) = carried.end().await;
            assert!(matches!(report, Report::Measured(_)), "{report:?}");
            assert_whole(&lines, 0);
            assert_eq!(gate.runs_done(), 6);
        });
    });
}

/// Whether some socket of this network waits for the other side to answer its first packet.
fn is_connecting(port: u16) -> bool {
    let table = std::fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
    let remote = format!(":{port:04X}");
    table.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.len() > 3 && words[2].ends_with(&remote) && words[3] == "02"
    })
}

#[tokio::test]
async fn a_machine_out_of_reach_is_given_up_in_time_and_by_name() {
    let sshd = Sshd::start();
    let gone = by_ssh("gone", &sshd);
    let Address::Ssh { user, host, .. } = gone.address.clone() else {
        unreachable!()
    };
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let gone = Machine {
        address: Address::Ssh {
            user,
            host,
            port: free,
        },
        ..gone
    };
    let limits = Limits {
        give_up: Duration::from_secs(1),
        back_off: Duration::from_millis(50),
        ..Limits::default()
    };
    let fleet = fleet_of(vec![gone], limits);
    let order = measure(&fresh_id(), 1, vec!["true".into()], 1, BTreeMap::new());
    let error = fleet
        .carry("gone", &order, Supplies::default(), 0, mpsc::channel(1).0)
        .await
        .unwrap_err();
    assert!(matches!(error, FleetError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("`gone` cannot be reached"), "{error}");
}

#[tokio::test]
async fn a_wrong_key_of_either_side_is_refused_with_its_own_words() {
    let sshd = Sshd::start();
    let with = |host_key: &str, key_file: PathBuf| {
        let ssh = Ssh {
            host_key: host_key.into(),
            key_file: Some(key_file),
        };
        fleet_of(
            vec![Machine {
                ssh: Some(ssh),
                ..by_ssh("m", &sshd)
            }],
            Limits::default(),
        )
    };
    let error = with(&sshd.strange_key(), sshd.key_file())
        .probe("m")
        .await
        .unwrap_err();
    assert!(
        matches!(&error, FleetError::HostKey { pinned, shown, .. } if pinned != shown && shown.contains("SHA256:")),
        "{error}"
    );
    assert!(
        !sshd.log().contains("Accepted publickey"),
        "no key was offered to a stranger"
    );

    let error = with(&sshd.host_key(), sshd.strange_key_file())
        .probe("m")
        .await
        .unwrap_err();
    assert!(
        matches!(&error, FleetError::Auth { what, .. } if what.contains("authorized_keys")),
        "{error}"
    );
    let error = with(&sshd.host_key(), sshd.folder().join("none"))
        .probe("m")
        .await
        .unwrap_err();
    assert!(
        matches!(&error, FleetError::Auth { what, .. } if what.contains("cannot be read")),
        "{error}"
    );

    // A key of a type the server does not have.
    let rsa = std::process::Command::new("ssh-keygen")
        .args(["-q", "-t", "ecdsa", "-N", "", "-f"])
        .arg(sshd.folder().join("other"))
        .output()
        .unwrap();
    assert!(rsa.status.success());
    let other = std::fs::read_to_string(sshd.folder().join("other.pub")).unwrap();
    let error = with(&other, sshd.key_file()).probe("m").await.unwrap_err();
    assert!(matches!(&error, FleetError::HostKey { .. }), "{error}");
    let machines = BTreeMap::from([(
        "m".to_string(),
        Machine {
            ssh: Some(Ssh {
                host_key: "ssh-rsa AAAA".into(),
                key_file: None,
            }),
            ..by_ssh("m", &sshd)
        },
    )]);
    assert!(matches!(
        Fleet::new(&machines, &binaries::agent()),
        Err(FleetError::PinnedKey { .. })
    ));
}

#[tokio::test]
async fn many_machines_behind_one_sshd_all_get_in() {
    let sshd = Sshd::start();
    // More at once than sshd takes before it begins to drop connections; they share one folder and one agent.
    let names: Vec<String> = (0..24).map(|n| format!("m{n}")).collect();
    let machines = names.iter().map(|name| Machine {
        work_dir: sshd.folder().join("all"),
        ..by_ssh(name, &sshd)
    });
    let fleet = fleet_of(machines.collect(), Limits::default());
    let began = Instant::now();
    let probes = names.iter().map(|name| {
        let (fleet, name) = (fleet.clone(), name.clone());
        tokio::spawn(async move { fleet.probe(&name).await })
    });
    for probe in probes.collect::<Vec<_>>() {
        probe.await.unwrap().unwrap();
    }
    println!("{} machines probed in {:?}", names.len(), began.elapsed());
    assert_eq!(
        std::fs::read_dir(sshd.folder().join("all/agent").join(fleet.agent_sha256()))
            .unwrap()
            .count(),
        1
    );
}

#[tokio::test]
async fn trees_are_supplied_thin_and_whole_where_the_base_is_damaged() {
    let sshd = Sshd::start();
    let fleet = fleet_of(vec![by_ssh("m", &sshd)], Limits::default());
    let mut source = Repository::new(&sshd.folder().join("source.git"));
    let big: String = (0..20_000).map(|n| format!("{}\n", n * 7919 % 20011)).collect();
    let draft = |number: usize| {
        let mut draft = Draft::new(number, &number.checked_sub(1).into_iter().collect::<Vec<_>>());
        draft.files.insert("version".into(), format!("{number}\n"));
        if number == 0 {
            draft.files.insert("big".into(), big.clone());
        }
        draft
    };
    source.add(&(0..3).map(draft).collect::<Vec<_>>());
    source.branch("main", 2);
    let recipe = BuildRecipe::Command {
        command: vec![],
        artefacts: vec![],
        arch: "x86_64".into(),
    };
    let tree = Tree {
        url: source.folder.display().to_string(),
        build: recipe,
        build_limit_s: 60,
    };
    let trees = Trees::open(sshd.folder(), &BTreeMap::from([("t".to_string(), tree)]))
        .await
        .unwrap();
    trees.fetch("t").await.unwrap();
    let mut bases = Vec::new();
    for number in 0..3 {
        let kernel = bisect::Kernel::plain(bisect::CommitId::new(&source.ids[number]));
        let oid = trees.compose("t", &kernel).await.unwrap();
        if number == 2 {
            // What the machine believes to have is gone: its marks stay, its objects do not.
            std::fs::remove_dir_all(sshd.folder().join("m/objects.git/objects/pack")).unwrap();
        }
        let build = Build {
            tree: oid.clone(),
            slot: "slot".into(),
            recipe: Recipe::Command(CommandBuild {
                command: vec![
                    "sh".into(),
                    "-c".into(),
                    "cat version big > $PERFBISECT_OUT/both".into(),
                ],
                artefacts: vec!["both".into()],
                arch: "x86_64".into(),
            }),
            limit_s: 60,
        };
        let order = Order {
            id: fresh_id(),
            version: protocol::VERSION,
            token: 1 + number as u64,
            deadline_s: 60,
            work: Work::Build(build),
        };
        let (packer, packed) = (trees.clone(), oid.clone());
        let supply = TreeSupply {
            oid: oid.clone(),
            bases: bases.clone(),
            pack: Box::new(move |have| {
                let (trees, oid) = (packer.clone(), packed.clone());
                Box::pin(async move {
                    let pack = trees.pack("t", &oid, &have).await.map_err(|e| e.to_string())?;
                    Ok(Box::pin(pack) as PackStream)
                })
            }),
        };
        let supplies = Supplies {
            tree: Some(supply),
            files: vec![],
        };
        let (report, lines) = Carried::start(&fleet, "m", order, supplies, 0).end().await;
        assert_whole(&lines, 0);
        let Report::Built(built) = report else {
            panic!("{report:?}")
        };
        let images = Images::open(sshd.folder()).await.unwrap();
        let file = &built.manifest.files[0];
        images
            .put(&file.sha256, fleet.get_file("m", &file.sha256).await.unwrap())
            .await
            .unwrap();
        assert_eq!(
            images.get(&file.sha256).await.unwrap(),
            format!("{number}\n{big}").as_bytes()
        );
        bases.push(oid);
    }
}

#[tokio::test]
async fn a_cancelled_order_ends_and_says_so() {
    let sshd = Sshd::start();
    let fleet = fleet_of(vec![by_ssh("m", &sshd)], Limits::default());
    let mut gate = Gate::new(sshd.folder());
    let order = gate.order(5);
    let id = order.id.clone();
    let mut carried = Carried::start(&fleet, "m", order, Supplies::default(), 0);
    gate.open(1);
    carried.runs(1).await;
    assert!(fleet.cancel("m", &id).await.unwrap().was_running);
    let (report, lines) = carried.end().await;
    assert_eq!(report, Report::Cancelled);
    assert_whole(&lines, 0);
}
