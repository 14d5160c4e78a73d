//! Measuring on the machine itself.

use crate::agent::*;
use protocol::*;

fn runs(lines: &[Line]) -> Vec<Run> {
    lines
        .iter()
        .filter_map(|l| {
            if let Event::Run(r) = &l.event {
                Some(r.clone())
            } else {
                None
            }
        })
        .collect()
}

fn perform(agent: &Agent, id: &str, bench: Bench) -> Vec<Line> {
    let order = order(id, 1, none(bench));
    agent.start(&order);
    agent.follow(id, 0)
}

#[test]
fn runs_come_with_their_output_and_the_proof_of_the_kernel() {
    let agent = Agent::new();
    let script = agent.put(b"#!/bin/sh\necho \"$WORD $(cat data/input)\"; echo err >&2\n");
    let data = agent.put(b"42\n");
    let mut bench = bench(words(&["job.sh"]));
    bench.files = [("job.sh".into(), script), ("data/input".into(), data)].into();
    bench.environment = [("WORD".into(), "answer".into())].into();
    bench.setup = vec![shell("echo ready > state")];
    bench.teardown = vec![shell("grep ready state")];
    (bench.warmup_runs, bench.runs) = (1, 2);
    let seen = perform(&agent, "none-runs", bench);
    let Report::Measured(measured) = report(&seen) else {
        panic!("{seen:?}")
    };
    assert_eq!(measured.proof.release, runner::environment::release());
    assert!(!measured.proof.boot_id.is_empty());
    assert!(measured.seconds["bench"] > 0.0);
    assert!(measured.environment.contains_key("loadavg"));
    let runs = runs(&seen);
    assert_eq!(
        runs.iter().map(|r| r.warmup).collect::<Vec<_>>(),
        [true, false, false]
    );
    for run in runs {
        assert_eq!(
            (run.stdout.as_str(), run.stderr.as_str()),
            ("answer 42\n", "err\n")
        );
        assert_eq!(run.exit, Exit::Status(0));
    }
}

#[test]
fn a_run_over_its_limit_is_a_result_and_its_children_end() {
    let agent = Agent::new();
    let mut bench = bench(shell("echo partial; sh -c 'sleep 500 & wait'"));
    (bench.run_limit_s, bench.runs) = (1, 3);
    let seen = perform(&agent, "none-limit", bench);
    assert!(matches!(report(&seen), Report::Measured(_)), "{seen:?}");
    let runs = runs(&seen);
    assert_eq!(runs.len(), 1, "'at least this slow' is not asked again");
    assert_eq!(
        (runs[0].exit, runs[0].stdout.as_str()),
        (Exit::TimedOut, "partial\n")
    );
    assert!(runs[0].wall_s >= 1.0);
}

#[test]
fn failures_say_which_step_and_show_its_output() {
    let agent = Agent::new();
    let seen = perform(&agent, "none-fail", bench(shell("echo no such device; exit 3")));
    let Report::BenchmarkFailed(failed) = report(&seen) else {
        panic!("{seen:?}")
    };
    assert!(failed.what.contains("exit status 3"), "{failed:?}");
    assert_eq!(failed.excerpt, "no such device\n");
    assert_eq!(runs(&seen)[0].exit, Exit::Status(3));

    let mut bench = bench(words(&["true"]));
    bench.setup = vec![words(&["no-such-program-here"])];
    let order = order("none-setup", 2, none(bench));
    agent.start(&order);
    let seen = agent.follow(&order.id, 0);
    let Report::BenchmarkFailed(failed) = report(&seen) else {
        panic!("{seen:?}")
    };
    assert!(failed.what.contains("no-such-program-here"), "{failed:?}");
}

#[test]
fn every_micro_benchmark_prints_what_perf_bench_prints() {
    for name in runner::micro::NAMES {
        let output = std::process::Command::new(PROGRAM)
            .args(["micro", name, "--loops", "20"])
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success(),
            "{name}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(text.contains("Total time: "), "{name}: {text}");
        let value = |unit: &str| -> f64 {
            let line = text.lines().find(|l| l.ends_with(unit)).unwrap();
            line.split_whitespace().next().unwrap().parse().unwrap()
        };
        assert!(
            value("usecs/op") > 0.0 && value("ops/sec") > 0.0,
            "{name}: {text}"
        );
    }
}

#[test]
fn files_are_verified_and_come_back() {
    let agent = Agent::new();
    let content: Vec<u8> = (0..200_000u32).flat_map(u32::to_le_bytes).collect();
    let name = agent.put(&content);
    assert_eq!(agent.call(&["get-file", &name], b"").stdout, content);
    let wrong = "0".repeat(64);
    assert_eq!(agent.refusal(&["put-file", &wrong], b"abc"), "corrupt");
    assert_eq!(agent.refusal(&["get-file", &wrong], b""), "unknown_file");
    let asked = Names {
        files: vec![name.clone(), wrong],
        trees: vec!["1".repeat(40)],
    };
    let had: Names = agent.ask(&["have"], &serde_json::to_vec(&asked).unwrap());
    assert_eq!(
        had,
        Names {
            files: vec![name],
            trees: vec![]
        }
    );
    let left = std::fs::read_dir(agent.root().join("files")).unwrap().count();
    assert_eq!(left, 1, "a refused file leaves nothing");
}
