//! Calls the real program.

use protocol::*;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_perfbisect-agent");

pub struct Agent {
    pub program: PathBuf,
    pub root: PathBuf,
    /// Removed with the agent; none where the root stays.
    pub _dir: Option<tempfile::TempDir>,
    pub envs: Vec<(String, String)>,
}

impl Agent {
    pub fn new() -> Agent {
        let dir = tempfile::tempdir().unwrap();
        Agent {
            program: PROGRAM.into(),
            root: dir.path().join("root"),
            _dir: Some(dir),
            envs: vec![],
        }
    }

    pub fn root(&self) -> PathBuf {
        self.root.clone()
    }

    pub fn command(&self, verb: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .arg("--root")
            .arg(self.root())
            .args(verb)
            .envs(self.envs.iter().map(|(k, v)| (k, v)))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub fn call(&self, verb: &[&str], input: &[u8]) -> Output {
        let mut child = self.command(verb).stdin(Stdio::piped()).spawn().unwrap();
        // A refusal may come before the input was read.
        let _ = child.stdin.take().unwrap().write_all(input);
        child.wait_with_output().unwrap()
    }

    pub fn ask<T: DeserializeOwned>(&self, verb: &[&str], input: &[u8]) -> T {
        let output = self.call(verb, input);
        assert_eq!(output.status.code(), Some(0), "{verb:?}: {output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    pub fn refusal(&self, verb: &[&str], input: &[u8]) -> String {
        let output = self.call(verb, input);
        assert_eq!(output.status.code(), Some(2), "{verb:?}: {output:?}");
        // Lines of an order may come before it.
        let last = output.stdout.trim_ascii_end().rsplit(|b| *b == b'\n').next();
        serde_json::from_slice::<Refusal>(last.unwrap()).unwrap().kind
    }

    pub fn start(&self, order: &Order) -> Started {
        self.ask(&["start"], &serde_json::to_vec(order).unwrap())
    }

    pub fn follow(&self, id: &str, from: u64) -> Vec<Line> {
        let output = self.call(&["follow", id, "--from", &from.to_string()], b"");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        lines(&output.stdout)
    }

    /// Follows until a line that `enough` likes; the connection is then cut.
    pub fn follow_until(&self, id: &str, enough: impl Fn(&Event) -> bool) -> Vec<Line> {
        let mut child: Child = self
            .command(&["follow", id])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let mut seen = Vec::new();
        for text in BufReader::new(child.stdout.take().unwrap()).lines() {
            let line: Line = serde_json::from_str(&text.unwrap()).unwrap();
            let done = enough(&line.event);
            seen.push(line);
            if done {
                break;
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        seen
    }

    pub fn put(&self, content: &[u8]) -> String {
        let name = runner::sha::of_bytes(content);
        let stored: Stored = self.ask(&["put-file", &name], content);
        assert_eq!(stored.bytes, content.len() as u64);
        name
    }

    pub fn worker(&self, id: &str) -> runner::process::Identity {
        let text = std::fs::read(self.root().join("spool").join(id).join("worker.json")).unwrap();
        serde_json::from_slice(&text).unwrap()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if self._dir.is_none() {
            return; // Whoever keeps the root ends its processes as well.
        }
        for order in self.ask::<Probe>(&["probe"], b"").orders {
            let _: Cancelled = self.ask(&["cancel", &order.id], b"");
        }
    }
}

pub fn lines(output: &[u8]) -> Vec<Line> {
    output
        .split(|b| *b == b'\n')
        .filter(|l| !l.is_empty())
        .map(|l| serde_json::from_slice(l).unwrap())
        .filter(|l: &Line| l.event != Event::Heartbeat)
        .collect()
}

pub fn report(lines: &[Line]) -> &Report {
    match lines.last() {
        Some(Line {
            event: Event::Report(report),
            ..
        }) => report,
        other => panic!("no report at the end: {other:?}"),
    }
}

pub fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|w| w.to_string()).collect()
}

pub fn shell(script: &str) -> Vec<String> {
    words(&["sh", "-c", script])
}

pub fn bench(command: Vec<String>) -> Bench {
    Bench {
        setup: vec![],
        command,
        teardown: vec![],
        warmup_runs: 0,
        runs: 1,
        run_limit_s: 60,
        files: BTreeMap::new(),
        environment: BTreeMap::new(),
        ..Bench::default()
    }
}

pub fn image() -> ImageManifest {
    ImageManifest {
        kind: ImageKind::Userspace,
        arch: "x86_64".into(),
        files: vec![],
        build_id: String::new(),
        release: String::new(),
        digest: String::new(),
        compiler: String::new(),
        compiler_digest: String::new(),
    }
}

pub fn order(id: &str, token: u64, work: Work) -> Order {
    Order {
        id: id.into(),
        version: VERSION,
        token,
        deadline_s: 120,
        work,
    }
}

pub fn none(bench: Bench) -> Work {
    Work::Measure(Measure {
        image: image(),
        boot: Boot::None,
        bench,
        conditions: Conditions::default(),
    })
}
