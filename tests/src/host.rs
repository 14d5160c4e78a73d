//! A test machine of the network kind: an own network namespace with a real sshd in it, and a link that can be cut.
//!
//! It shares files and kernel with the test, so it suits tests of transport and failure, not of kernels. Making
//! namespaces takes root, or sudo without a password.

use crate::wait::until;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Ends what runs in the namespace, detached agents too, and removes it, once the test process is gone.
const WATCHER: &str = r#"trap '' INT TERM HUP; read -r _
for pid in $(ip netns pids "$1"); do kill -9 "$pid"; done; ip netns del "$1""#;

pub struct Host {
    namespace: String,
    pub address: String,
    /// What to pin.
    pub host_key: String,
    /// The private key that may log in.
    pub key_file: PathBuf,
    watcher: Child,
}

impl Host {
    /// A host reachable over a link of its own, with sshd answering.
    pub fn new(folder: &Path) -> Host {
        let id = uuid::Uuid::new_v4();
        let (tag, bytes) = (&id.simple().to_string()[..8], id.as_bytes());
        // 198.18.0.0/15 is set aside for testing networks; which part of it is drawn, so that runs do not meet.
        let subnet = format!("198.{}.{}.{}", 18 + (bytes[8] & 1), bytes[9], bytes[10] & 0xfc);
        let (base, last) = subnet.rsplit_once('.').expect("made with dots");
        let last: u8 = last.parse().expect("made from a byte");
        let (ours, theirs) = (format!("{base}.{}", last | 1), format!("{base}.{}", last | 2));
        let (namespace, outer, inner) = (format!("pb-{tag}"), format!("pbo-{tag}"), format!("pbi-{tag}"));

        run(&["ip", "netns", "add", &namespace]);
        let watcher = privileged(&["sh", "-c", WATCHER, "watcher", &namespace])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("sh starts");
        let host_dir = folder.join(format!("host-{tag}"));
        std::fs::create_dir_all(&host_dir).expect("the test's folder is writable");
        let host = Host {
            host_key: key(&host_dir.join("host_key")),
            key_file: host_dir.join("user_key"),
            address: theirs.clone(),
            namespace,
            watcher,
        };
        let user_key = key(&host.key_file);
        std::fs::write(host_dir.join("authorized"), user_key).expect("writable");

        run(&[
            "ip",
            "link",
            "add",
            &outer,
            "type",
            "veth",
            "peer",
            "name",
            &inner,
            "netns",
            &host.namespace,
        ]);
        run(&["ip", "addr", "add", &format!("{ours}/30"), "dev", &outer]);
        run(&["ip", "link", "set", &outer, "up"]);
        host.inside(&["ip", "addr", "add", &format!("{theirs}/30"), "dev", &inner]);
        host.inside(&["ip", "link", "set", "lo", "up"]);
        host.inside(&["ip", "link", "set", &inner, "up"]);

        let config = host_dir.join("sshd_config");
        let text = format!(
            "ListenAddress {theirs}:22\nHostKey {dir}/host_key\nAuthorizedKeysFile {dir}/authorized\nPidFile none\n\
             StrictModes no\nUsePAM no\nPermitRootLogin prohibit-password\nPasswordAuthentication no\n\
             MaxStartups 100\nMaxSessions 100\nUseDNS no\n",
            dir = host_dir.display()
        );
        std::fs::write(&config, text).expect("writable");
        run(&["mkdir", "-p", "/run/sshd"]);
        let config = config.to_str().expect("temporary paths are UTF-8");
        let log = host_dir.join("sshd.log");
        let log = log.to_str().expect("temporary paths are UTF-8");
        // Without -D it goes into the background by itself, into a session of its own.
        host.inside(&["/usr/sbin/sshd", "-f", config, "-E", log]);
        let socket: SocketAddr = format!("{theirs}:22").parse().expect("made above");
        until("sshd's answer", Duration::from_secs(60), || {
            TcpStream::connect_timeout(&socket, Duration::from_secs(1)).ok()
        });
        host
    }

    /// A machine file for the daemon; `rest` are further lines, `[boot]` among them.
    pub fn machine(&self, name: &str, work_dir: &Path, rest: &str) -> String {
        format!(
            "name = {name:?}\naddress = \"root@{}\"\nwork_dir = {work_dir:?}\n{rest}\n[ssh]\nhost_key = {:?}\n\
             key_file = {:?}\n",
            self.address, self.host_key, self.key_file
        )
    }

    /// Takes the far end of the link down: packets go nowhere, and nobody is told.
    pub fn cut(&self) {
        self.inside(&["ip", "link", "set", &self.far_end(), "down"]);
    }

    pub fn mend(&self) {
        self.inside(&["ip", "link", "set", &self.far_end(), "up"]);
    }

    fn far_end(&self) -> String {
        self.namespace.replacen("pb-", "pbi-", 1)
    }

    fn inside(&self, words: &[&str]) {
        run(&[&["ip", "netns", "exec", &self.namespace], words].concat());
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        drop(self.watcher.stdin.take());
        let _ = self.watcher.wait();
    }
}

/// Makes a key pair; the public half's text.
fn key(file: &Path) -> String {
    let status = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f"])
        .arg(file)
        .status();
    assert!(status.expect("ssh-keygen is installed").success());
    let text = std::fs::read_to_string(file.with_extension("pub")).expect("ssh-keygen wrote it");
    text.trim().to_string()
}

fn privileged(words: &[&str]) -> Command {
    let root = rustix::process::geteuid().is_root();
    let words = if root {
        words.to_vec()
    } else {
        [&["sudo", "-n"], words].concat()
    };
    let mut command = Command::new(words[0]);
    // sbin is not on everybody's PATH.
    let path = std::env::var("PATH").unwrap_or_default();
    command
        .args(&words[1..])
        .env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command
}

fn run(words: &[&str]) {
    let output = privileged(words)
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|e| panic!("{words:?}: {e}"));
    assert!(
        output.status.success(),
        "{words:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_link_answers_nothing_and_a_mended_one_does() {
        let folder = tempfile::tempdir().unwrap();
        let host = Host::new(folder.path());
        let socket: SocketAddr = format!("{}:22", host.address).parse().unwrap();
        let reach = |ms| {
            TcpStream::connect_timeout(&socket, Duration::from_millis(ms))
                .ok()
                .map(drop)
        };
        host.cut();
        assert!(reach(700).is_none());
        host.mend();
        until("the way back", Duration::from_secs(20), || reach(700));
        let namespace = host.namespace.clone();
        drop(host);
        let left = privileged(&["ip", "netns", "list"]).output().unwrap();
        assert!(!String::from_utf8_lossy(&left.stdout).contains(&namespace));
    }
}
