//! Every shipped workload, run for real and small by the real agent on this host: file systems on loop devices, programs
//! as the distribution has them. What is not installed is named.

#[path = "../../agent/runner/tests/loop_device/mod.rs"]
mod loop_device;

use coordinator::case::Case;
use coordinator::config::{Config, Workload};
use coordinator::passes::order::bench;
use lab::binaries;
use loop_device::LoopDevice;
use protocol::*;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// The smallest that mkfs.xfs makes is 300 MB; the file is sparse.
const BYTES: u64 = 512 << 20;

/// The last choice of each parameter is the smallest, but for what names a kind: there all are tried.
fn choices(workload: &Workload) -> Vec<BTreeMap<String, String>> {
    const KINDS: [&str; 2] = ["fs", "engine"];
    let mut all = vec![BTreeMap::new()];
    for (name, values) in &workload.parameters {
        let tried = match KINDS.contains(&name.as_str()) {
            true => &values[..],
            false if name == "scheduler" => &values[..1],
            false => &values[values.len() - 1..],
        };
        let with = |chosen: &BTreeMap<String, String>| -> Vec<BTreeMap<String, String>> {
            let one = |value: &String| {
                let mut chosen = chosen.clone();
                chosen.insert(name.clone(), value.clone());
                chosen
            };
            tried.iter().map(one).collect()
        };
        all = all.iter().flat_map(with).collect();
    }
    all
}

fn missing(case: &Case) -> Option<String> {
    let programs = [&case.command]
        .into_iter()
        .chain(&case.setup)
        .filter_map(|argv| argv.first());
    let mut wanted: Vec<String> = programs.filter(|p| *p != "{agent}").cloned().collect();
    if case.command.first().is_some_and(|p| p == "sh") && case.workload == "cyclictest" {
        wanted.push("cyclictest".into());
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let there = |p: &String| path.split(':').any(|folder| Path::new(folder).join(p).is_file());
    wanted.into_iter().find(|p| !there(p))
}

fn agent(root: &Path, verb: &[&str], input: &[u8]) -> Vec<u8> {
    let mut child = Command::new(binaries::agent())
        .arg("--root")
        .arg(root)
        .args(verb)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let _ = child.stdin.take().unwrap().write_all(input);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{verb:?}: {output:?}");
    output.stdout
}

fn perform(root: &Path, id: &str, case: &Case, scratch: Vec<Scratch>) -> (Vec<Run>, Report) {
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
    let measure = Measure {
        image,
        boot: Boot::None,
        bench: bench(case, 2),
        conditions: Conditions {
            held: BTreeMap::new(),
            scratch,
        },
    };
    let order = Order {
        id: id.into(),
        version: protocol::VERSION,
        token: 1,
        deadline_s: 900,
        work: Work::Measure(measure),
    };
    agent(root, &["start"], &serde_json::to_vec(&order).unwrap());
    let (mut runs, mut report) = (Vec::new(), None);
    for line in agent(root, &["follow", id], b"")
        .split(|b| *b == b'\n')
        .filter(|l| !l.is_empty())
    {
        match serde_json::from_slice::<Line>(line).unwrap().event {
            Event::Run(run) if !run.warmup => runs.push(run),
            Event::Report(last) => report = Some(last),
            _ => {}
        }
    }
    (runs, report.expect("an order ends with a report"))
}

#[test]
#[ignore = "takes minutes, and root"]
fn every_shipped_workload_runs_and_gives_its_metrics() {
    let config = Config::load(Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../config/perfbisect.example.toml"
    )))
    .unwrap();
    let folder = tempfile::tempdir().unwrap();
    assert!(LoopDevice::allowed(), "root and loop devices are needed");
    let disks = [
        LoopDevice::new(folder.path().join("disk0"), BYTES),
        LoopDevice::new(folder.path().join("disk1"), BYTES),
    ];
    let (mut done, mut untried, mut wrong) = (0, Vec::new(), Vec::new());
    for workload in config.workloads.values() {
        for chosen in choices(workload) {
            let (case, _) = Case::new(workload, &chosen).unwrap();
            let name = case.name();
            if let Some(program) = missing(&case) {
                untried.push(format!("{}: no {program}", workload.name));
                continue;
            }
            let scratch = vec![disks[0].scratch("data"), disks[1].scratch("data2")];
            let root = folder.path().join("agent");
            let (runs, report) = perform(&root, &format!("w{done}-{}", wrong.len()), &case, scratch);
            let Report::Measured(measured) = &report else {
                wrong.push(format!("{name}: {report:?}"));
                continue;
            };
            let parser = case.parser().unwrap();
            let mut said = String::new();
            for run in &runs {
                let metrics = parser.parse(&run.stdout, &run.stderr);
                let metrics =
                    metrics.unwrap_or_else(|e| panic!("{name}: {e}\n{}\n{}", run.stdout, run.stderr));
                // stress-ng gives the metric of the stressor that was chosen, the others all of theirs.
                let found = case.metrics.iter().filter(|m| {
                    let judged = parsers::judge_one(&metrics, &m.wanted());
                    if let Ok(value) = &judged {
                        said.push_str(&format!(" {}={value}{}", m.name, m.unit));
                    }
                    judged.is_ok()
                });
                let found = found.count();
                if found == 0 || (found < case.metrics.len() && workload.name != "stress-ng") {
                    wrong.push(format!(
                        "{name}: {found} of {} metrics: {metrics:?}",
                        case.metrics.len()
                    ));
                }
            }
            assert_eq!(runs.len(), 2, "{name}");
            for setting in case.held.keys() {
                assert!(
                    measured.environment.contains_key(&format!("held.{setting}")),
                    "{name}: {setting}"
                );
            }
            println!("{name}:{said}");
            done += 1;
        }
    }
    untried.dedup();
    println!("{done} cases; not tried: {untried:?}");
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(done >= 20, "{done}");
}
