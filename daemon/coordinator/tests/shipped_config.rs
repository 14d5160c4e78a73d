//! The configuration that is shipped as an example is one that works, each line of it.

use coordinator::case::{Case, RecipeDef};
use coordinator::config::{Config, File};
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
            let words = case
                .setup
                .iter()
                .chain([&case.command])
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
            "pipe" | "pread" => "perf-bench-sched-pipe.txt",
            "fio-randread" => "fio-guest.json",
            "tiobench" => "tiobench.pl-numruns1.txt",
            "dbench" => "dbench-t5-2.txt",
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
