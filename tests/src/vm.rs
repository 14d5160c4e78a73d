//! A test machine of its own: a virtual machine with a Debian disk, reached only over SSH, with a power button (QMP) and
//! a serial console. Its home kernel is Debian's, started by firmware's stand-in (`-kernel`) at every reset.
//!
//! It is set up as an administrator would: `deploy/machine/install` in its file system. It knows nothing of orders.

use crate::binaries::{self, cache_dir};
use crate::wait;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Debian's packages of the machine. Made once, with a mirror of Debian's at hand.
const PACKAGES: &str = "openssh-server,kexec-tools,iproute2,init,udev,kmod,procps,ifupdown,linux-image-cloud-amd64,initramfs-tools";
/// The machine's time is that of its instructions, so its numbers repeat on a host that is busy with other things. The
/// kernel must not wait for ticks of a timer that then never come soon.
const CLOCK: [&str; 2] = ["-icount", "shift=0,sleep=on"];
const COMMAND_LINE: &str = "root=/dev/vda rw console=ttyS0 net.ifnames=0 loglevel=6 noapictimer";
/// A power button: `qmp SOCKET COMMAND`.
const QMP: &str = r#"
import json, socket, sys
client = socket.socket(socket.AF_UNIX)
client.connect(sys.argv[1])
lines = client.makefile("rw")
lines.readline()
for command in ("qmp_capabilities", sys.argv[2]):
    lines.write(json.dumps({"execute": command}) + "\n")
    lines.flush()
    while not {"return", "error"} & set(json.loads(lines.readline())):
        pass
"#;
/// On a host that is shared by others.
const BOOT_LIMIT: Duration = Duration::from_secs(900);

pub struct Vm {
    folder: PathBuf,
    qemu: Child,
    pub port: u16,
}

impl Vm {
    /// Made and booted in `folder`, home, with its boot hook run.
    pub fn start(folder: &Path) -> Vm {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let port = listener.local_addr().expect("it is bound").port();
        drop(listener);
        make(folder);
        std::fs::write(folder.join("qmp.py"), QMP).expect("writable");
        let at = |name: &str| folder.join(name).display().to_string();
        let mut qemu = Command::new("setpriv");
        qemu.args([
            "--pdeathsig",
            "KILL",
            "--",
            "qemu-system-x86_64",
            "-M",
            "q35",
            "-accel",
            "tcg",
        ]);
        qemu.args(CLOCK)
            .args(["-smp", "1", "-m", "512", "-nodefaults", "-display", "none"]);
        qemu.args([
            "-kernel",
            &at("vmlinuz"),
            "-initrd",
            &at("initrd"),
            "-append",
            COMMAND_LINE,
        ]);
        qemu.args([
            "-drive",
            &format!("file={},if=virtio,format=raw,cache=unsafe", at("disk")),
        ]);
        qemu.args([
            "-nic",
            &format!("user,model=virtio-net-pci,hostfwd=tcp:127.0.0.1:{port}-:22"),
        ]);
        qemu.args(["-qmp", &format!("unix:{},server,nowait", at("qmp"))]);
        qemu.args(["-serial", &format!("file:{}", at("console"))]);
        qemu.args(["-device", "i6300esb", "-action", "watchdog=reset"]);
        let errors = std::fs::File::create(folder.join("qemu.err")).expect("writable");
        let quiet = qemu.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
        let vm = Vm {
            qemu: quiet
                .spawn()
                .expect("setpriv and qemu-system-x86_64 are installed"),
            folder: folder.into(),
            port,
        };
        wait::until("the machine's first boot", BOOT_LIMIT, || {
            vm.ssh(&["test", "-e", "/var/lib/perfbisect/home.json"])
                .then_some(())
        });
        vm
    }

    /// Whether a command succeeded there.
    pub fn ssh(&self, words: &[&str]) -> bool {
        let mut ssh = Command::new("ssh");
        ssh.args(["-q", "-p", &self.port.to_string(), "-i"])
            .arg(self.folder.join("user"));
        ssh.args([
            "-o",
            "StrictHostKeyChecking=no",
            "-o",
            "UserKnownHostsFile=/dev/null",
        ]);
        ssh.args(["-o", "BatchMode=yes", "-o", "ConnectTimeout=20", "root@127.0.0.1"])
            .args(words);
        let quiet = ssh
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        quiet.status().is_ok_and(|s| s.success())
    }

    /// Its file for the daemon; `boot` are the lines of `[boot]` and below.
    pub fn machine_file(&self, name: &str, boot: &str) -> String {
        let at = |name: &str| self.folder.join(name).display().to_string();
        let host_key = std::fs::read_to_string(at("host.pub")).expect("ssh-keygen wrote it");
        format!(
            "name = {name:?}\naddress = \"root@127.0.0.1:{}\"\nroles = [\"measure\"]\nwork_dir = \"/var/lib/perfbisect\"\n\
             [ssh]\nhost_key = {:?}\nkey_file = {:?}\n\
             [power]\ncycle = [\"python3\", {:?}, {:?}, \"system_reset\"]\n\
             [console]\ncommand = [\"tail\", \"-n\", \"0\", \"-F\", {:?}]\n\
             [boot]\n{boot}\n",
            self.port,
            host_key.trim(),
            at("user"),
            at("qmp.py"),
            at("qmp"),
            at("console"),
        )
    }

    pub fn console(&self) -> String {
        let bytes = std::fs::read(self.folder.join("console")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
        if std::thread::panicking() {
            let console = self.console();
            let lines: Vec<&str> = console.lines().collect();
            eprintln!(
                "the machine's last words:\n{}",
                lines[lines.len().saturating_sub(40)..].join("\n")
            );
        }
    }
}

/// Disk, home kernel and keys.
fn make(folder: &Path) {
    let base = base();
    let at = |name: &str| folder.join(name).display().to_string();
    for name in ["host", "user"] {
        run(
            "ssh-keygen",
            &["-q", "-t", "ed25519", "-N", "", "-C", name, "-f", &at(name)],
        );
    }
    let project = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let root = at("root");
    std::fs::create_dir(&root).expect("writable");
    run("tar", &["-xf", &base.display().to_string(), "-C", &root]);
    let script = format!(
        r#"set -e
cd {root}
cp {host} etc/ssh/ssh_host_ed25519_key; cp {host}.pub etc/ssh/ssh_host_ed25519_key.pub
rm -f etc/ssh/ssh_host_rsa_key* etc/ssh/ssh_host_ecdsa_key*
echo 'UseDNS no' >> etc/ssh/sshd_config
mkdir -m 700 -p root/.ssh; cp {user}.pub root/.ssh/authorized_keys
echo rack1 > etc/hostname; echo '127.0.0.1 localhost rack1' > etc/hosts; : > etc/resolv.conf
echo '/dev/vda / ext4 defaults 0 1' > etc/fstab
printf 'auto lo\niface lo inet loopback\nallow-hotplug eth0\niface eth0 inet static\naddress 10.0.2.15/24\ngateway 10.0.2.2\n' > etc/network/interfaces
for unit in apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer \
    dpkg-db-backup.timer serial-getty@ttyS0.service getty@tty1.service getty.target remote-fs.target ifupdown-pre.service; do
    ln -sf /dev/null etc/systemd/system/$unit
done
cp -r {project}/deploy/machine tmp/machine; cp {agent} tmp/agent
chroot . /tmp/machine/install /tmp/agent
rm -r tmp/machine tmp/agent
cp boot/vmlinuz-* {folder}/vmlinuz; cp boot/initrd.img-* {folder}/initrd
mke2fs -q -t ext4 -L root -d . {folder}/disk 1500M
rm -r {root}"#,
        host = at("host"),
        user = at("user"),
        agent = binaries::agent().display(),
        folder = folder.display(),
    );
    run("sh", &["-c", &script]);
}

/// The packages' files, with an initramfs of little more than disk and file system.
fn base() -> PathBuf {
    let base = cache_dir("vm").join("debian.tar");
    if base.is_file() {
        return base;
    }
    let making = base.with_extension(format!("{}.tar", std::process::id()));
    let include = format!("--include={PACKAGES}");
    let small = r#"--customize-hook=
        sed -i 's/^MODULES=.*/MODULES=list/' "$1/etc/initramfs-tools/initramfs.conf"
        printf 'virtio_pci\nvirtio_blk\next4\n' >> "$1/etc/initramfs-tools/modules"
        chroot "$1" update-initramfs -u"#;
    let small = small.replacen("=\n", "=", 1);
    run(
        "mmdebstrap",
        &[
            "-q",
            "--variant=minbase",
            &include,
            &small,
            "bookworm",
            &making.display().to_string(),
        ],
    );
    std::fs::rename(making, &base).expect("beside each other");
    base
}

fn run(program: &str, args: &[&str]) {
    let output = Command::new(program)
        .args(args)
        .output()
        .unwrap_or_else(|e| panic!("{program}: {e}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {said}");
}
