//! The real agent, as a child and over real sshd: installed, supplied, started, followed, cancelled.

use coordinator::config::{Address, BuildRecipe, Machine, Ssh, Tree};
use coordinator::fleet::{Fleet, FleetError, Limits, PackStream, Supplies, TreeSupply};
use coordinator::images::Images;
use coordinator::tree::Trees;
use lab::binaries;
use lab::git_repository::{Draft, Repository};
use lab::orders::{Carried, Gate, assert_whole, by_ssh, fleet_of, fresh_id, machine, measure};
use lab::sshd::Sshd;
use protocol::{Build, CommandBuild, Event, Order, Recipe, Report, Work};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;
use tokio::sync::mpsc;

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
