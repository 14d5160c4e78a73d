//! The configuration that is shipped as an example is one that works, each line of it.

use coordinator::case::{Case, RecipeDef};
use coordinator::config::{BootMethod, Config, File, Lane};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

fn example() -> PathBuf {
    project().join("config/perfbisect.example.toml")
}

#[test]
fn the_example_loads_as_it_is() {
    let config = Config::load(&example()).unwrap();
    RecipeDef::new(&config.file.trees["linux"]).unwrap();
    assert_eq!(config.machines_of("local").len(), 1);
    assert_eq!(config.machines_of("any").len(), 1);
}

/// A setting is commented out as `#name = …`, prose as `# …`: without the marks, all of it has to be valid too.
#[test]
fn what_the_examples_comment_out_is_valid_too() {
    let whole = |path: PathBuf| -> String {
        let text = std::fs::read_to_string(path).unwrap();
        let bare = |l: &str| {
            l.strip_prefix('#')
                .filter(|rest| !rest.starts_with(' '))
                .unwrap_or(l)
                .to_string()
        };
        text.lines().map(|l| bare(l) + "\n").collect()
    };
    let file: File = toml::from_str(&whole(example())).unwrap();
    let File {
        state_dir: _,
        listen,
        base_url,
        database_url,
        postgres_bin_dir,
        agent,
        trees,
        ..
    } = &file;
    assert_eq!(listen.port(), 8642);
    assert!(base_url.is_some() && database_url.is_some() && postgres_bin_dir.is_some() && agent.is_some());
    assert_eq!(trees["linux"].build_limit_s, 3600);
    assert!(file.mail.unwrap().ca_file.is_some() && !file.webhook.unwrap().allow_private_addresses);
    let machine: coordinator::config::Machine =
        toml::from_str(&whole(project().join("config/machines/local.toml"))).unwrap();
    assert!(machine.ssh.is_some());
    let rack = std::fs::read_to_string(project().join("config/machines/rack.toml.example")).unwrap();
    let rack: coordinator::config::Machine = toml::from_str(&rack).unwrap();
    assert!(rack.boot.trip().is_some_and(|trip| trip.firmware_limit_s == 1200));
}

/// Every choice of every parameter makes a case, and no `{name}` is left in its commands but the agent's.
#[test]
fn every_case_can_be_made() {
    let config = Config::load(&example()).unwrap();
    assert!(config.workloads.len() >= 6);
    for workload in config.workloads.values() {
        let mut choices = vec![BTreeMap::new()];
        for (name, values) in &workload.parameters {
            choices.extend(values.iter().map(|v| BTreeMap::from([(name.clone(), v.clone())])));
        }
        for chosen in choices {
            let (case, _) = Case::new(workload, &chosen).unwrap();
            let held: Vec<String> = case.held.values().cloned().collect();
            let words = case
                .setup
                .iter()
                .chain(&case.prepare)
                .chain([&case.command, &held])
                .chain(&case.teardown)
                .flatten();
            for word in words {
                assert!(
                    !word.replace("{agent}", "").contains('{'),
                    "{}: `{word}`",
                    workload.name
                );
            }
        }
    }
}

/// The metrics are such as the parser finds in a real output, under that name and in that unit.
#[test]
fn every_metric_is_found_in_a_real_output() {
    let config = Config::load(&example()).unwrap();
    for workload in config.workloads.values() {
        let fixture = match workload.name.as_str() {
            "pipe" | "pread" | "perf-sched-pipe" | "syscall" | "metadata" => "perf-bench-sched-pipe.txt",
            "fio-randread" | "fio-seqread" | "fio-jbod" => "fio-guest.json",
            "tiotest-fs" => "tiotest-terse-T.txt",
            "stress-ng" => "stress-ng-metrics.txt",
            "dd-writeback" => "dd-parallel.txt",
            "writeout" => "time-p.txt",
            "tiobench" => "tiobench.pl-numruns1.txt",
            "dbench" | "dbench-fs" => "dbench-t5-2.txt",
            "hackbench" => "hackbench-pipe.txt",
            "sysbench-cpu" => "sysbench-cpu.txt",
            "cyclictest" => "cyclictest.json",
            other => panic!("workload {other}: name an output of it here"),
        };
        let mut output =
            std::fs::read_to_string(project().join("daemon/parsers/tests/data").join(fixture)).unwrap();
        if workload.name == "tiobench" {
            // The workload asks for one number of threads, the recorded run for two.
            let of_one = |l: &&str| !l.contains("4096    2  ");
            output = output.lines().filter(of_one).map(|l| format!("{l}\n")).collect();
        }
        let (case, _) = Case::new(workload, &BTreeMap::new()).unwrap();
        let metrics = case.parser().unwrap().parse(&output, "").unwrap();
        let values =
            parsers::judge(&metrics, &case.wanted()).unwrap_or_else(|e| panic!("{}: {e:?}", workload.name));
        assert_eq!(values.len(), workload.metrics.len());
        for metric in &workload.metrics {
            let hint = metrics[&metric.name].higher_is_better;
            assert!(
                hint.is_none_or(|h| h == metric.higher_is_better),
                "{}: direction",
                metric.name
            );
        }
    }
}

/// People and programs write these names down: they are the same for ever.
#[test]
fn a_case_has_a_stable_name() {
    let config = Config::load(&example()).unwrap();
    let chosen = BTreeMap::from([
        ("writers".to_string(), "2".to_string()),
        ("fs".into(), "ext3".into()),
    ]);
    let (case, _) = Case::new(&config.workloads["dd-writeback"], &chosen).unwrap();
    assert_eq!(
        case.name(),
        "dd-writeback:block=4k,blocks=262144,dirty_background_bytes=52428800,dirty_bytes=104857600,fs=ext3,\
         journal_mb=128,writers=2"
    );
    assert_eq!(case.file_systems[0].kind, "ext3");
    assert_eq!(case.file_systems[0].mkfs_options, ["-q", "-J", "size=128"]);
    assert_eq!(case.held["dirty_bytes"], "104857600");
    let (case, _) = Case::new(&config.workloads["pipe"], &BTreeMap::new()).unwrap();
    assert_eq!(case.name(), "pipe:loops=2000");
}

/// A case from before there were file systems and held settings keeps its digest; so does a lane that only boots.
#[test]
fn what_was_stored_before_is_read_and_keeps_its_name() {
    let config = Config::load(&example()).unwrap();
    let (case, _) = Case::new(&config.workloads["pipe"], &BTreeMap::new()).unwrap();
    let written = serde_json::to_value(&case).unwrap();
    for newer in ["file_systems", "prepare", "held", "drop_caches"] {
        assert!(written.get(newer).is_none(), "{newer}");
    }
    assert_eq!(serde_json::from_value::<Case>(written).unwrap(), case);

    let mut machine = config.machines["local"].clone();
    let boot = serde_json::to_value(&machine.boot).unwrap();
    assert_eq!(serde_json::to_value(Lane::of(&machine)).unwrap(), boot);
    let read: Lane = serde_json::from_value(boot.clone()).unwrap();
    assert!(read.held.is_empty() && read.scratch.is_empty());
    machine.held.insert("memory".into(), "64M".into());
    machine.held.insert("governor".into(), "performance".into());
    let whole = serde_json::to_value(Lane::of(&machine)).unwrap();
    assert_ne!(whole, boot, "what is held is a part of the lane");
    let lane: Lane = serde_json::from_value(whole).unwrap();
    let (held, in_guest) = lane.held();
    assert_eq!(held.keys().collect::<Vec<_>>(), ["governor"]);
    assert_eq!(in_guest["memory"], "64M");
    let BootMethod::Qemu { append, .. } = lane.boot() else {
        panic!("it is a guest's")
    };
    assert_eq!(append, "mem=64M");
}

#[test]
fn a_scratch_disk_is_named_by_itself_alone() {
    let config = Config::load(&example()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let check = |scratch: &str| {
        let main = format!(
            "state_dir = \"state\"\nworkloads_dir = {:?}\nmachines_dir = \"machines\"\n",
            config.file.workloads_dir
        );
        std::fs::write(folder.path().join("perfbisect.toml"), main).unwrap();
        std::fs::create_dir_all(folder.path().join("machines")).unwrap();
        let machine = format!(
            "name = \"m\"\naddress = \"local\"\nwork_dir = \"w\"\n{scratch}\n[boot]\nmethod = \"none\"\n"
        );
        std::fs::write(folder.path().join("machines/m.toml"), machine).unwrap();
        Config::load(&folder.path().join("perfbisect.toml")).map_err(|e| format!("{e:#}"))
    };
    let fine = check("scratch = [{ name = \"data\", serial = \"S1\", bytes = 4096 }]").unwrap();
    let told = fine.machines["m"].scratch[0].told().unwrap();
    assert_eq!(told.id, protocol::DeviceId::Serial("S1".into()));
    // (what is written, what is said about it)
    let wrong = [
        (
            "scratch = [{ name = \"data\", bytes = 4096 }]",
            "exactly one of serial",
        ),
        (
            "scratch = [{ name = \"data\", serial = \"S\", wwid = \"W\", bytes = 1 }]",
            "exactly one of serial",
        ),
        (
            "scratch = [{ name = \"data\", serial = \" \", bytes = 1 }]",
            "exactly one of serial",
        ),
        (
            "scratch = [{ name = \"data\", device = \"/dev/sdb\", bytes = 1 }]",
            "unknown field `device`",
        ),
        (
            "scratch = [{ name = \"data\", serial = \"S\" }]",
            "missing field `bytes`",
        ),
        (
            "scratch = [{ name = \"data\", serial = \"S\", partition = 0, bytes = 1 }]",
            "counted from 1",
        ),
        (
            "scratch = [{ name = \"a\", serial = \"S\", bytes = 1 }, { name = \"a\", serial = \"T\", bytes = 1 }]",
            "two [[scratch]]",
        ),
        ("held = { mitigations = \"off\" }", "boots no kernel"),
    ];
    for (written, said) in wrong {
        let why = check(written).unwrap_err();
        assert!(why.contains(said), "{written}: {why}");
    }
}
