//! A test machine whose boots are played, behind a real sshd: see `agent/runner/tests/data/played.sh`. Its kexec takes
//! a moment, its kernels fail as the test says, and its power button is a program.

use crate::binaries;
use crate::sshd::Sshd;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::{Command, Stdio};

const SCRIPT: &str = include_str!("../../agent/runner/tests/data/played.sh");
const HOME: &str = "6.1.0-home";

pub struct Played {
    pub sshd: Sshd,
    folder: tempfile::TempDir,
}

impl Played {
    /// At home, its boot hook run.
    pub fn start() -> Played {
        let folder = tempfile::Builder::new()
            .prefix("pb-played-")
            .tempdir()
            .expect("a temporary folder");
        let at = |name: &str| folder.path().join(name);
        for path in [
            "proc/sys/kernel/random",
            "sys/kernel",
            "sys/fs/pstore",
            "dev",
            "boot",
        ] {
            fs::create_dir_all(at("system-off").join(path)).expect("writable");
        }
        for path in ["bin", "boot", "modules", "root"] {
            fs::create_dir(at(path)).expect("writable");
        }
        symlink(at("system-off"), at("system")).expect("writable");
        symlink(binaries::agent(), at("root/resume")).expect("writable");
        for name in ["kexec", "reboot", "power-cycle", "off"] {
            let text = format!(
                "#!/bin/bash\nM={}\nset -- {name} \"$@\"\n{SCRIPT}",
                folder.path().display()
            );
            fs::write(at("bin").join(name), text).expect("writable");
            fs::set_permissions(at("bin").join(name), fs::Permissions::from_mode(0o755)).expect("ours");
        }
        for (name, text) in [
            ("fate", "good\n"),
            ("home", HOME),
            ("next_entry", ""),
            ("system/proc/uptime", "20.00 10.00\n"),
            ("system/boot/vmlinuz-6.1.0-home", "a kernel"),
        ] {
            fs::write(at(name), text).expect("writable");
        }
        let environment = format!(
            "PERFBISECT_PLAYED_SYSTEM={} PATH={}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            at("system").display(),
            at("bin").display()
        );
        let played = Played {
            sshd: Sshd::start_with(&environment),
            folder,
        };
        played.run("power-cycle");
        played
    }

    fn run(&self, program: &str) {
        let mut command = Command::new(self.path("bin").join(program));
        let status = command.stdin(Stdio::null()).status().expect("bash is installed");
        assert!(status.success(), "{program}: {status}");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What the next boots of test kernels come to, a word each; the last one stays.
    pub fn fate(&self, words: &str) {
        // Renamed into place: a boot may be reading it.
        fs::write(self.path("fate.new"), words.replace(' ', "\n") + "\n").expect("writable");
        fs::rename(self.path("fate.new"), self.path("fate")).expect("writable");
    }

    /// From now on its power button does nothing, or works again.
    pub fn dead(&self, dead: bool) {
        match dead {
            true => fs::write(self.path("dead"), "").expect("writable"),
            false => {
                fs::remove_file(self.path("dead")).expect("it was dead");
                self.run("power-cycle");
            }
        }
    }

    /// What the boots of test kernels came to so far.
    pub fn fates(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path("fates")).unwrap_or_default();
        text.lines().map(String::from).collect()
    }

    /// Its file for the daemon.
    pub fn machine_file(&self, name: &str) -> String {
        format!(
            "name = {name:?}\naddress = {:?}\nroles = [\"measure\"]\npools = [\"lab\"]\nwork_dir = {:?}\n\
             [ssh]\nhost_key = {:?}\nkey_file = {:?}\n\
             [power]\ncycle = [{:?}]\nlimit_s = 5\n\
             [boot]\nmethod = \"kexec\"\n\
             [boot.trip]\nmodules_dir = {:?}\nshutdown_limit_s = 3\nfirmware_limit_s = 3\nboot_limit_s = 3\n",
            self.sshd.address(),
            self.path("root"),
            self.sshd.host_key(),
            self.sshd.key_file(),
            self.path("bin/power-cycle"),
            self.path("modules"),
        )
    }
}

impl Drop for Played {
    fn drop(&mut self) {
        self.run("off");
    }
}
