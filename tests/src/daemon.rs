//! The real `perfbisect serve`, started, killed and started again by a test, and spoken to over HTTP.

use crate::wait::until_async;
use crate::{binaries, postgres::Postgres};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The pages say what is wrong with it; a machine under load takes its time.
const START_LIMIT: Duration = Duration::from_secs(90);

/// What is written to a configuration folder before a daemon is started on it.
pub struct Setup {
    pub folder: PathBuf,
    /// `None`: the daemon's private Postgres.
    pub database_url: Option<String>,
    /// Name, repository, and the `build = …` line.
    pub trees: Vec<(String, PathBuf, String)>,
    /// Whole machine files.
    pub machines: Vec<String>,
    /// Whole workload files.
    pub workloads: Vec<String>,
    /// Further sections of the main file: `[mail]`, `[webhook]`.
    pub more: String,
}

impl Setup {
    /// A folder of the test's own, a fresh database of the process's cluster, nothing else yet.
    pub fn new(folder: &Path) -> Setup {
        Setup {
            folder: folder.to_path_buf(),
            database_url: Some(Postgres::shared().database()),
            trees: Vec::new(),
            machines: Vec::new(),
            workloads: Vec::new(),
            more: String::new(),
        }
    }

    /// This machine as `name`, with `boot` as the `[boot]` section's lines.
    pub fn local_machine(&mut self, name: &str, boot: &str) {
        let work_dir = self.folder.join("agents").join(name);
        self.machines.push(format!(
            "name = {name:?}\naddress = \"local\"\nwork_dir = {work_dir:?}\n[boot]\n{boot}\n"
        ));
    }

    /// Writes `perfbisect-N.toml` for a coordinator on the `nth` port; all share machines, workloads and database.
    fn write(&self, nth: usize, listen: SocketAddr) -> PathBuf {
        for (folder, files) in [("machines", &self.machines), ("workloads", &self.workloads)] {
            std::fs::create_dir_all(self.folder.join(folder)).expect("the test's folder is writable");
            for (number, text) in files.iter().enumerate() {
                std::fs::write(self.folder.join(folder).join(format!("{number}.toml")), text)
                    .expect("writable");
            }
        }
        let state = self.folder.join("state");
        let agent = binaries::agent();
        let mut text = format!("state_dir = {state:?}\nlisten = \"{listen}\"\nagent = {agent:?}\n");
        if let Some(url) = &self.database_url {
            writeln!(text, "database_url = {url:?}").expect("a string takes all");
        }
        for (name, url, build) in &self.trees {
            writeln!(text, "[trees.{name}]\nurl = {url:?}\n{build}").expect("a string takes all");
        }
        text.push_str(&self.more);
        let path = self.folder.join(format!("perfbisect-{nth}.toml"));
        std::fs::write(&path, text).expect("writable");
        path
    }

    /// Starts the `nth` coordinator on a port that was free just now, and waits until it is healthy.
    pub async fn start(&self, nth: usize) -> Daemon {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let listen = listener.local_addr().expect("it is bound");
        drop(listener);
        let config = self.write(nth, listen);
        let mut daemon = Daemon {
            config,
            url: format!("http://{listen}"),
            log: self.folder.join(format!("perfbisect-{nth}.log")),
            inside: Vec::new(),
            child: None,
            http: http(),
        };
        daemon.start().await;
        daemon
    }
}

pub struct Daemon {
    pub url: String,
    pub config: PathBuf,
    /// Its standard error, of all its lives.
    pub log: PathBuf,
    /// Words before the command: `ip netns exec …`.
    pub inside: Vec<String>,
    child: Option<Child>,
    http: reqwest::Client,
}

/// A client that never waits for ever; TLS is there for reqwest's sake, everything here is loopback.
pub fn http() -> reqwest::Client {
    // The second caller's provider is the first one's: nothing to report.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .timeout(Duration::from_secs(60))
        .no_proxy()
        .build()
        .expect("a client builds")
}

impl Daemon {
    /// Starts it (again) and waits until it answers that it is healthy.
    pub async fn start(&mut self) {
        assert!(self.child.is_none(), "it runs already");
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.log)
            .expect("writable");
        // setpriv lets the daemon die with the test's thread, so that a killed test run leaves none behind.
        let command = ["setpriv", "--pdeathsig", "KILL", "--"].map(String::from);
        let words: Vec<String> = self.inside.iter().cloned().chain(command).collect();
        let child = Command::new(&words[0])
            .args(&words[1..])
            .arg(binaries::daemon())
            .args(["serve", "--config"])
            .arg(&self.config)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a descriptor is left"))
            .stderr(log)
            .spawn()
            .expect("setpriv and the daemon start");
        self.child = Some(child);
        let healthz = format!("{}/healthz", self.url);
        until_async("the daemon to be healthy", START_LIMIT, async || {
            if let Some(status) = self
                .child
                .as_mut()
                .and_then(|c| c.try_wait().expect("it is our child"))
            {
                panic!("the daemon ended by itself, {status}:\n{}", self.log_tail());
            }
            let answer = self.http.get(&healthz).send().await.ok()?;
            answer.status().is_success().then_some(())
        })
        .await;
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    /// SIGKILL: it gets to finish nothing.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().expect("it is our child");
        child.wait().expect("it is our child");
    }

    /// SIGTERM, and its exit status.
    pub fn stop(&mut self) -> std::process::ExitStatus {
        let mut child = self.child.take().expect("it runs");
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it is our child");
        crate::wait::until("the daemon's clean stop", Duration::from_secs(60), || {
            child.try_wait().expect("it is our child")
        })
    }

    pub fn log_tail(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }

    pub async fn get(&self, path: &str) -> Value {
        let answer = self
            .http
            .get(format!("{}{path}", self.url))
            .send()
            .await
            .expect("the daemon answers");
        let status = answer.status();
        let text = answer.text().await.expect("the whole answer comes");
        assert!(status.is_success(), "GET {path}: {status}\n{text}");
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("GET {path}: {e}\n{text}"))
    }

    /// Status and body of a POST.
    pub async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let url = format!("{}{path}", self.url);
        let answer = self
            .http
            .post(url)
            .json(body)
            .send()
            .await
            .expect("the daemon answers");
        let status = answer.status().as_u16();
        let text = answer.text().await.expect("the whole answer comes");
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    /// Submits a bisection; its id.
    pub async fn submit(&self, body: &Value) -> String {
        let (status, answer) = self.post("/api/v1/bisections", body).await;
        assert_eq!(status, 201, "{answer:#}");
        answer["id"]
            .as_str()
            .unwrap_or_else(|| panic!("no id in {answer:#}"))
            .to_string()
    }

    /// The bisection once it is no longer open.
    pub async fn concluded(&self, id: &str, limit: Duration) -> Value {
        let path = format!("/api/v1/bisections/{id}");
        until_async(
            &format!("the conclusion of {id}; {}", self.log.display()),
            limit,
            async || {
                // Between two lives nobody answers; that is what these tests are about.
                let answer = self.http.get(format!("{}{path}", self.url)).send().await.ok()?;
                let found: Value = answer.json().await.ok()?;
                (found["state"] != "open").then_some(found)
            },
        )
        .await
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            eprintln!(
                "the daemon's last words ({}):\n{}",
                self.log.display(),
                self.log_tail()
            );
        }
    }
}

/// That a bisection ended with this commit as the first bad one.
pub fn assert_found(found: &Value, first_bad: &str) {
    let conclusion = &found["conclusion"];
    assert_eq!(conclusion["status"], "culprit_found", "{conclusion:#}");
    assert_eq!(conclusion["first_bad"], json!([first_bad]), "{conclusion:#}");
}
