//! Real sshd: on loopback, or each on a host of its own in a network that can be cut.
//!
//! Each has its own keys, port and configuration and runs as the user of the tests. It knows nothing of agents.

use crate::wait;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const START_LIMIT: Duration = Duration::from_secs(20);

/// Waits for the end of a pipe that only the tests hold, so that sshd goes when they go, however that happens.
const WATCHER: &str = r#"trap '' INT TERM HUP; read -r _; kill -9 "$1""#;

pub struct Sshd {
    folder: tempfile::TempDir,
    watcher: Child,
    /// The process that listens; its children are the sessions.
    listener: Child,
    pub host: String,
    pub port: u16,
}

impl Sshd {
    /// On a free port of 127.0.0.1.
    pub fn start() -> Sshd {
        Sshd::start_with("")
    }

    /// What is run through it finds `environment` (`A=1 B=2`) set.
    pub fn start_with(environment: &str) -> Sshd {
        let free = TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
        let port = free.local_addr().expect("it is bound").port();
        drop(free);
        Sshd::start_at("127.0.0.1", port, None, environment)
    }

    fn start_at(host: &str, port: u16, namespace: Option<&str>, environment: &str) -> Sshd {
        let folder = tempfile::Builder::new()
            .prefix("pb-sshd-")
            .tempdir()
            .expect("a temporary folder");
        // OpenSSH's privilege separation wants this folder; the package makes it only when its service starts.
        let _ = std::fs::create_dir_all("/run/sshd");
        for name in ["host", "user", "stranger"] {
            keygen(&folder.path().join(name));
        }
        let at = |name: &str| folder.path().join(name).display().to_string();
        std::fs::copy(at("user.pub"), at("authorized_keys")).expect("the folder is writable");
        // Bash below sshd runs the user's start-up file unless it believes to be started by another shell: what is
        // in there must not take part in a test.
        let settings = format!(
            "ListenAddress {host}\nPort {port}\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\n\
             PidFile none\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\n\
             Subsystem sftp internal-sftp\nSetEnv SHLVL=2 {environment}\nLogLevel VERBOSE\nMaxStartups 10:30:100\n",
            at("host"),
            at("authorized_keys"),
        );
        std::fs::write(at("sshd_config"), settings).expect("the folder is writable");
        let mut command = match namespace {
            // It becomes the program, in the same process.
            Some(namespace) => {
                let mut ip = Command::new("ip");
                ip.args(["netns", "exec", namespace, "/usr/sbin/sshd"]);
                ip
            }
            None => Command::new("/usr/sbin/sshd"),
        };
        command
            .args(["-D", "-f", &at("sshd_config"), "-E", &at("log")])
            .process_group(0);
        let quiet = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let listener = quiet
            .spawn()
            .expect("sshd is installed: apt install openssh-server");
        let mut watcher = Command::new("sh");
        watcher
            .args(["-c", WATCHER, "watcher", &listener.id().to_string()])
            .process_group(0);
        let watcher = watcher
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("sh starts");
        let sshd = Sshd {
            folder,
            watcher,
            listener,
            host: host.into(),
            port,
        };
        wait::until("sshd to listen", START_LIMIT, || {
            sshd.log().contains("Server listening").then_some(())
        });
        sshd
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// As `ssh.host_key` wants it.
    pub fn host_key(&self) -> String {
        public_half(&self.folder.path().join("host.pub"))
    }

    /// The private key that is let in.
    pub fn key_file(&self) -> PathBuf {
        self.folder.path().join("user")
    }

    /// One that is not, and whose public half can serve as a wrong host key.
    pub fn strange_key_file(&self) -> PathBuf {
        self.folder.path().join("stranger")
    }

    pub fn strange_key(&self) -> String {
        public_half(&self.folder.path().join("stranger.pub"))
    }

    /// `user@host:port` of the user who runs the tests.
    pub fn address(&self) -> String {
        format!("{}@{}:{}", user(), self.host, self.port)
    }

    /// A folder that goes with this sshd.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Processes of connections that are open now.
    pub fn sessions(&self) -> Vec<i32> {
        children(self.listener.id() as i32)
    }

    /// Ends every open connection, as a crash of its process would. Returns how many there were.
    pub fn kill_sessions(&self) -> usize {
        let sessions = self.sessions();
        sessions
            .iter()
            .for_each(|pid| signal(*pid, rustix::process::Signal::KILL));
        sessions.len()
    }

    /// Stops the processes of open connections; the kernel goes on acknowledging what they are sent.
    pub fn freeze_sessions(&self) -> usize {
        let sessions = self.sessions();
        sessions
            .iter()
            .for_each(|pid| signal(*pid, rustix::process::Signal::STOP));
        sessions.len()
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        self.kill_sessions();
        let _ = self.listener.kill();
        let _ = self.listener.wait();
        drop(self.watcher.stdin.take());
        let _ = self.watcher.wait();
    }
}

fn signal(pid: i32, signal: rustix::process::Signal) {
    if let Some(pid) = rustix::process::Pid::from_raw(pid) {
        // It may have ended meanwhile.
        let _ = rustix::process::kill_process(pid, signal);
    }
}

fn children(parent: i32) -> Vec<i32> {
    let numbers = std::fs::read_dir("/proc").expect("there is a /proc").flatten();
    let pids = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let parent_of = |pid: i32| -> Option<i32> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    pids.filter(|pid| parent_of(*pid) == Some(parent)).collect()
}

fn keygen(path: &Path) {
    run(
        "ssh-keygen",
        &["-q", "-t", "ed25519", "-N", "", "-f", &path.display().to_string()],
    );
}

fn public_half(path: &Path) -> String {
    std::fs::read_to_string(path)
        .expect("ssh-keygen wrote it")
        .trim()
        .to_string()
}

fn user() -> String {
    run("id", &["-un"])
}

fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program)
        .args(args)
        .output()
        .unwrap_or_else(|e| panic!("{program}: {e}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {said}");
    String::from_utf8_lossy(&output.stdout).trim().to_string()
}

/// Hosts with an sshd each, on a bridge in a network namespace that is the daemon's side. Needs root.
pub struct Network {
    /// The namespace of bridge and daemon.
    pub name: String,
    hosts: Vec<String>,
    pub sshds: Vec<Sshd>,
}

/// Every network of this process has its own names and subnet.
static NETWORKS: AtomicU32 = AtomicU32::new(0);

impl Network {
    /// So many hosts, at most 200.
    pub fn start(count: usize) -> Network {
        remove_orphans();
        let process = std::process::id();
        let number = NETWORKS.fetch_add(1, Ordering::Relaxed);
        let name = format!("pb-{process}-{number}");
        // The subnet is not seen outside of the namespace, so it may be any.
        let address = |host: usize| format!("10.77.{}.{}", number % 250, host + 1);
        ip(&format!("netns add {name}"));
        let mut network = Network {
            name: name.clone(),
            hosts: Vec::new(),
            sshds: Vec::new(),
        };
        ip(&format!("-n {name} link set lo up"));
        ip(&format!("-n {name} link add lab type bridge"));
        ip(&format!("-n {name} addr add {}/24 dev lab", address(0)));
        ip(&format!("-n {name} link set lab up"));
        for host in 1..=count {
            let namespace = format!("{name}-h{host}");
            ip(&format!("netns add {namespace}"));
            network.hosts.push(namespace.clone());
            ip(&format!(
                "-n {name} link add h{host} type veth peer name eth0 netns {namespace}"
            ));
            ip(&format!("-n {name} link set h{host} master lab up"));
            ip(&format!("-n {namespace} link set lo up"));
            ip(&format!("-n {namespace} addr add {}/24 dev eth0", address(host)));
            ip(&format!("-n {namespace} link set eth0 up"));
            network
                .sshds
                .push(Sshd::start_at(&address(host), 22, Some(&namespace), ""));
        }
        network.nft("add table ip cut");
        network.nft("add chain ip cut in { type filter hook input priority 0; }");
        network.nft("add chain ip cut out { type filter hook output priority 0; }");
        network
    }

    /// From now on no packet goes either way; open connections hear nothing of it.
    pub fn cut(&self, host: usize) {
        let address = &self.sshds[host].host;
        self.nft(&format!("add rule ip cut in ip saddr {address} drop"));
        self.nft(&format!("add rule ip cut out ip daddr {address} drop"));
    }

    /// All hosts can be reached again.
    pub fn heal(&self) {
        self.nft("flush table ip cut");
    }

    /// Takes a host's cable out, or puts it back.
    pub fn plug(&self, host: usize, plugged: bool) {
        let state = if plugged { "up" } else { "down" };
        ip(&format!("-n {} link set h{} {state}", self.name, host + 1));
    }

    /// A program on the daemon's side of the network.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(program);
        command
    }

    /// Runs `test` on a thread that is on the daemon's side, as are the threads it starts.
    pub fn inside<T: Send>(&self, test: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let namespace =
                    std::fs::File::open(format!("/run/netns/{}", self.name)).expect("it was added");
                let kind = rustix::thread::LinkNameSpaceType::Network;
                rustix::thread::move_into_link_name_space(namespace.as_fd(), Some(kind)).expect("root may");
                test()
            });
            thread.join().unwrap_or_else(|e| std::panic::resume_unwind(e))
        })
    }

    fn nft(&self, rule: &str) {
        run("ip", &["netns", "exec", &self.name, "nft", rule]);
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.sshds.clear();
        for name in self.hosts.iter().chain([&self.name]) {
            let _ = Command::new("ip").args(["netns", "del", name]).output();
        }
    }
}

fn ip(words: &str) {
    run("ip", &words.split_whitespace().collect::<Vec<_>>());
}

/// Namespaces of test processes that were killed.
fn remove_orphans() {
    let entries = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    for name in entries.filter_map(|entry| entry.file_name().into_string().ok()) {
        let process = name.strip_prefix("pb-").and_then(|rest| rest.split('-').next());
        if process.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            let _ = Command::new("ip").args(["netns", "del", &name]).output();
        }
    }
}

/// Whether something accepts connections there.
pub fn listens(host: &str, port: u16) -> bool {
    TcpStream::connect((host, port)).is_ok()
}
