//! A machine whose boots are played: a folder tells the agent which kernel runs, and programs of the names that the
//! agent runs (`kexec`, `reboot`, `grub-reboot`, …) end every process of the machine and begin its next boot, hook and
//! all.

use crate::agent::Agent;
use crate::wait;
use protocol::*;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

pub const HOME: &str = "6.1.0-home";
pub const TEST: &str = "6.1.0-test";

const SCRIPT: &str = include_str!("../data/played.sh");

pub struct Machine {
    pub agent: Agent,
    pub folder: PathBuf,
    _dir: tempfile::TempDir,
}

impl Machine {
    pub fn new() -> Machine {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().to_path_buf();
        for path in [
            "proc/sys/kernel/random",
            "sys/kernel",
            "sys/fs/pstore",
            "dev",
            "boot",
        ] {
            fs::create_dir_all(folder.join("system-off").join(path)).unwrap();
        }
        std::os::unix::fs::symlink(folder.join("system-off"), folder.join("system")).unwrap();
        for path in ["bin", "boot", "modules"] {
            fs::create_dir(folder.join(path)).unwrap();
        }
        let machine = Machine {
            agent: Agent {
                program: crate::agent::PROGRAM.into(),
                root: folder.join("root"),
                _dir: None,
                envs: vec![
                    (
                        "PERFBISECT_PLAYED_SYSTEM".into(),
                        folder.join("system").display().to_string(),
                    ),
                    (
                        "PATH".into(),
                        format!(
                            "{}:{}",
                            folder.join("bin").display(),
                            std::env::var("PATH").unwrap()
                        ),
                    ),
                ],
            },
            folder,
            _dir: dir,
        };
        for name in [
            "kexec",
            "reboot",
            "power-cycle",
            "crash",
            "off",
            "grub-reboot",
            "grub-editenv",
        ] {
            machine.program(name);
        }
        machine.write("fate", "good");
        machine.write("home", HOME);
        machine.write("next_entry", "");
        machine.write("system/proc/uptime", "20.00 10.00\n");
        // The first boot: an administrator has put the agent and its hook there.
        fs::create_dir(machine.folder.join("root")).unwrap();
        std::os::unix::fs::symlink(crate::agent::PROGRAM, machine.folder.join("root/resume")).unwrap();
        machine.run("power-cycle");
        machine.until("the boot hook", || {
            machine
                .agent
                .ask::<Probe>(&["probe"], b"")
                .boot
                .contains_key("resumed")
        });
        machine
    }

    fn program(&self, name: &str) {
        let path = self.folder.join("bin").join(name);
        let text = format!(
            "#!/bin/bash\nM={}\nset -- {name} \"$@\"\n{SCRIPT}",
            self.folder.display()
        );
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.folder.join(name), text).unwrap();
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder.join(name)).unwrap_or_default()
    }

    pub fn has(&self, name: &str) -> bool {
        self.folder.join(name).exists()
    }

    /// As somebody from outside would: power control.
    pub fn run(&self, program: &str) {
        let mut command = Command::new(self.folder.join("bin").join(program));
        command.envs(self.agent.envs.iter().map(|(k, v)| (k, v)));
        let status = command.stdin(Stdio::null()).status().unwrap();
        assert!(status.success());
    }

    pub fn until(&self, what: &str, done: impl Fn() -> bool) {
        wait::until(what, || done().then_some(()));
    }

    /// All lines of an order, over as many calls of `follow` as the boots take: a call may be killed with the machine.
    pub fn carry(&self, id: &str) -> Vec<Line> {
        let mut all: Vec<Line> = Vec::new();
        wait::until("the order's end", || {
            let next = all.len() as u64;
            let output = self.agent.call(&["follow", id, "--from", &next.to_string()], b"");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let lines = text.lines().filter_map(|l| serde_json::from_str::<Line>(l).ok());
            all.extend(lines.filter(|l| l.event != Event::Heartbeat));
            let ended = matches!(all.last().map(|l| &l.event), Some(Event::Report(_)));
            let away = output.status.code() == Some(2) && text.contains("\"away\"");
            assert!(ended || away || output.status.code().is_none(), "{output:?}");
            ended.then_some(())
        });
        all
    }

    pub fn boots(&self) -> Vec<String> {
        self.read("boots").lines().map(String::from).collect()
    }

    pub fn trip(&self) -> Trip {
        Trip {
            append: "quiet".into(),
            root: None,
            modules_dir: self.folder.join("modules").display().to_string(),
            initramfs: vec![],
            ready: vec![],
            reboot: vec!["reboot".into()],
            shutdown_limit_s: 30,
            firmware_limit_s: 30,
            boot_limit_s: 30,
        }
    }

    pub fn kexec(&self) -> Boot {
        Boot::Kexec(Kexec {
            program: "kexec".into(),
            load_options: vec![],
            execute: vec!["kexec".into(), "-e".into()],
            trip: self.trip(),
        })
    }

    pub fn grub(&self) -> Boot {
        let dir = self.folder.join("boot").display().to_string();
        let (seen_as, entry) = ("/boot/perfbisect".into(), "perfbisect".into());
        let loader = Loader::Grub { dir, seen_as, entry };
        Boot::Oneshot(Oneshot {
            loader,
            trip: self.trip(),
        })
    }

    /// A kernel with one module, on the machine already.
    pub fn order(&self, id: &str, boot: Boot, bench: Bench) -> Order {
        let (kernel, modules) = (self.agent.put(b"a kernel"), self.agent.put(&self.modules()));
        let file = |role: &str, sha256| ImageFile {
            role: role.into(),
            sha256,
            bytes: 8,
        };
        let image = ImageManifest {
            kind: ImageKind::Kernel,
            files: vec![file("kernel", kernel), file("modules", modules)],
            release: TEST.into(),
            ..crate::agent::image()
        };
        crate::agent::order(
            id,
            1,
            Work::Measure(Measure {
                image,
                boot,
                bench,
                conditions: Default::default(),
            }),
        )
    }

    fn modules(&self) -> Vec<u8> {
        let at = format!("lib/modules/{TEST}");
        let staging = self.folder.join("staging");
        fs::create_dir_all(staging.join(&at)).unwrap();
        fs::write(staging.join(&at).join("a.ko"), b"module").unwrap();
        let tar = Command::new("tar")
            .arg("-C")
            .arg(&staging)
            .args(["-cf", "-", "lib"])
            .output()
            .unwrap();
        tar.stdout
    }

    /// Home, nothing left over, and ready for the next order.
    pub fn assert_home_and_clean(&self) {
        assert_eq!(self.boots().last().unwrap(), HOME);
        assert_eq!(fs::read_dir(self.folder.join("modules")).unwrap().count(), 0);
        assert_eq!(fs::read_dir(self.folder.join("boot")).unwrap().count(), 0);
        assert_eq!(self.read("next_entry"), "");
        let probe: Probe = self.agent.ask(&["probe"], b"");
        assert!(probe.orders.iter().all(|o| !o.running), "{probe:?}");
        assert!(!probe.boot.contains_key("test_kernel_of"));
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Its processes go with it.
        self.run("off");
    }
}
