//! Real kernels, built and booted by the agent. Takes minutes, so it is asked for by name:
//! `cargo test -p perfbisect-agent --test kernel -- --ignored`. Needs Debian's linux-source-6.1, a compiler, QEMU.
//!
//! Source, builds and the static agent are kept in the target folder, source and builds in `PERFBISECT_KERNEL_LAB` where
//! that is set; a second run is quick.

#[path = "../bench/agent.rs"]
#[expect(dead_code, reason = "shared with the quick tests, which use more of it")]
mod agent;

use agent::*;
use protocol::*;
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

const ARCHIVE: &str = "/usr/src/linux-source-6.1.tar.xz";
const FRAGMENT: &str = include_str!("../data/x86-tiny.fragment");

fn run(command: &mut Command) -> String {
    let output = command.stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{command:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_string()
}

fn static_agent() -> PathBuf {
    if let Some(path) = std::env::var_os("PERFBISECT_STATIC_AGENT") {
        return path.into();
    }
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("static");
    run(Command::new(env!("CARGO"))
        .args([
            "build",
            "-q",
            "-p",
            "perfbisect-agent",
            "--target",
            "x86_64-unknown-linux-gnu",
            "--target-dir",
        ])
        .arg(&target)
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .current_dir(env!("CARGO_MANIFEST_DIR")));
    target.join("x86_64-unknown-linux-gnu/debug/perfbisect-agent")
}

struct Lab {
    agent: Agent,
    source: PathBuf,
    base: String,
    next: Cell<u64>,
}

impl Lab {
    fn open() -> Lab {
        let usual = || Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernel");
        let dir = std::env::var_os("PERFBISECT_KERNEL_LAB").map_or_else(usual, PathBuf::from);
        let source = dir.join("linux-source-6.1");
        if !source.join(".git/HEAD").exists() {
            std::fs::create_dir_all(&dir).unwrap();
            run(Command::new("tar").args(["xf", ARCHIVE]).current_dir(&dir));
            run(Command::new("git").args(["init", "-q"]).current_dir(&source));
        }
        let agent = Agent {
            program: static_agent(),
            root: dir.join("root"),
            _dir: None,
            envs: vec![],
        };
        // Tokens rise over all runs of this test.
        let token = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() * 1000;
        let mut lab = Lab {
            agent,
            source,
            base: String::new(),
            next: Cell::new(token),
        };
        lab.git(&["add", "-A", "-f", "."]);
        lab.base = lab.git(&["write-tree"]);
        lab
    }

    fn git(&self, arguments: &[&str]) -> String {
        run(Command::new("git").args(arguments).current_dir(&self.source))
    }

    /// The base with one text of one file replaced.
    fn tree(&self, path: &str, from: &str, to: &str) -> String {
        let file = self.source.join(path);
        let before = std::fs::read_to_string(&file).unwrap();
        assert!(before.contains(from), "{path} has no {from:?}");
        std::fs::write(&file, before.replacen(from, to, 1)).unwrap();
        self.git(&["add", "-f", path]);
        let tree = self.git(&["write-tree"]);
        std::fs::write(&file, before).unwrap();
        self.git(&["add", "-f", path]);
        tree
    }

    fn put(&self, tree: &str, without: Option<&str>) {
        let asked = serde_json::to_vec(&Names {
            files: vec![],
            trees: vec![tree.into()],
        })
        .unwrap();
        if !self.agent.ask::<Names>(&["have"], &asked).trees.is_empty() {
            return;
        }
        let mut pack = Command::new("git")
            .args(["pack-objects", "--revs", "--thin", "--stdout", "-q"])
            .current_dir(&self.source)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let wanted = without.map_or(format!("{tree}\n"), |w| format!("{tree}\n^{w}\n"));
        std::io::Write::write_all(&mut pack.stdin.take().unwrap(), wanted.as_bytes()).unwrap();
        let put = self
            .agent
            .command(&["put-tree", tree])
            .stdin(pack.stdout.take().unwrap())
            .output()
            .unwrap();
        assert!(pack.wait().unwrap().success());
        assert!(put.status.success(), "{put:?}");
    }

    fn order(&self, work: Work) -> Order {
        self.next.set(self.next.get() + 1);
        let token = self.next.get();
        Order {
            deadline_s: 7200,
            ..order(&format!("kernel-{token}"), token, work)
        }
    }

    fn perform(&self, work: Work) -> Vec<Line> {
        let order = self.order(work);
        self.agent.start(&order);
        let lines = self.agent.follow(&order.id, 0);
        assert!(self.agent.call(&["erase", &order.id], b"").status.success());
        lines
    }

    fn build_work(&self, tree: &str) -> Work {
        self.put(tree, (tree != self.base).then_some(&self.base));
        let recipe = Recipe::Kbuild(Kbuild {
            arch: "x86_64".into(),
            base_target: "tinyconfig".into(),
            base_config: None,
            fragment: FRAGMENT.into(),
            forced: words(&["CONFIG_64BIT=y", "CONFIG_PVH=y", "# CONFIG_MODULES is not set"]),
            cc: "gcc".into(),
            cc_digest: None,
            localversion: format!("-pb{}", &tree[..12]),
            kcflags: String::new(),
            targets: words(&["bzImage"]),
            image: "arch/x86/boot/bzImage".into(),
            jobs: 0,
        });
        Work::Build(Build {
            tree: tree.into(),
            slot: "s1".into(),
            recipe,
            limit_s: 7000,
        })
    }

    fn build(&self, tree: &str) -> Report {
        let lines = self.perform(self.build_work(tree));
        report(&lines).clone()
    }

    fn image(&self, tree: &str) -> ImageManifest {
        match self.build(tree) {
            Report::Built(built) => built.manifest,
            other => panic!("{other:?}"),
        }
    }

    fn boot(&self, image: &ImageManifest, accel: Accel, icount: bool) -> (Report, Vec<String>) {
        let boot = Boot::Qemu(Qemu {
            program: "qemu-system-x86_64".into(),
            machine: "microvm,rtc=on,isa-serial=on".into(),
            accel,
            icount,
            memory_mib: 128,
            cpus: 1,
            append: "quiet".into(),
            extra_args: vec![],
            boot_limit_s: 120,
            silence_limit_s: 100,
        });
        let mut bench = bench(words(&["{agent}", "micro", "pipe", "--loops", "1000"]));
        bench.runs = 3;
        let lines = self.perform(Work::Measure(Measure {
            image: image.clone(),
            boot,
            bench,
            conditions: Default::default(),
        }));
        let console = lines
            .iter()
            .filter(|l| matches!(l.event, Event::Console { .. }))
            .count();
        assert!(console > 0, "a banner at least");
        let runs = lines.iter().filter_map(|l| {
            if let Event::Run(r) = &l.event {
                Some(r.stdout.clone())
            } else {
                None
            }
        });
        (report(&lines).clone(), runs.collect())
    }
}

fn usecs(outputs: &[String]) -> f64 {
    let value = |o: &String| -> f64 {
        let line = o.lines().find(|l| l.ends_with("usecs/op")).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    };
    outputs.iter().map(value).sum::<f64>() / outputs.len() as f64
}

#[test]
#[ignore = "builds kernels: minutes"]
fn real_kernels_are_built_told_apart_booted_and_measured() {
    let lab = Lab::open();
    let base = lab.image(&lab.base);
    assert_eq!(base.build_id.len(), 40);
    assert!(base.release.ends_with(&lab.base[..12]), "{}", base.release);

    let comment = lab.tree(
        "fs/pipe.c",
        "#include <linux/mm.h>",
        "/* a comment\n * of\n * three lines */\n#include <linux/mm.h>",
    );
    let commented = lab.image(&comment);
    assert_eq!(commented.digest, base.digest, "a comment makes no other binary");
    assert_ne!(commented.build_id, base.build_id);

    let anchor = "ssize_t vfs_read(struct file *file, char __user *buf, size_t count, loff_t *pos)\n{\n\tssize_t ret;\n";
    let slower = lab.tree(
        "fs/read_write.c",
        anchor,
        &format!("{anchor}\tint i;\n\n\tfor (i = 0; i < 64; i++)\n\t\tbarrier();\n"),
    );
    let slow = lab.image(&slower);
    assert_ne!(slow.digest, base.digest);

    let level = |image: &ImageManifest| {
        let (report, outputs) = lab.boot(image, Accel::Tcg, true);
        let Report::Measured(measured) = report else {
            panic!("{report:?}")
        };
        assert_eq!(measured.proof.build_id, image.build_id);
        assert_eq!(measured.proof.release, image.release);
        usecs(&outputs)
    };
    let (first, second) = (level(&base), level(&base));
    assert!(
        (first / second - 1.0).abs() < 0.003,
        "counted instructions repeat: {first} {second}"
    );
    let rise = level(&slow) / first;
    assert!((1.01..1.20).contains(&rise), "64 rounds in a read show: {rise}");

    let swapped = ImageManifest {
        build_id: "0".repeat(40),
        ..base.clone()
    };
    let (report, _) = lab.boot(&swapped, Accel::Tcg, true);
    assert!(
        matches!(&report, Report::BootFailed(f) if f.fault == "wrong_kernel"),
        "{report:?}"
    );

    // KVM that works or not: the benchmark is run either way.
    let (report, _) = lab.boot(&base, Accel::Auto, false);
    assert!(matches!(report, Report::Measured(_)), "{report:?}");
}

#[test]
#[ignore = "builds kernels: minutes"]
fn kernels_that_do_not_build_or_boot_say_why_and_a_cancelled_build_leaves_nothing_wrong() {
    let lab = Lab::open();
    let anchor = "static noinline void __init kernel_init_freeable(void)\n{\n";
    let base = lab.image(&lab.base);

    let broken = lab.tree(
        "init/main.c",
        anchor,
        &format!("{anchor}\tint planted = nowhere_declared;\n"),
    );
    let Report::BuildFailed(failed) = lab.build(&broken) else {
        panic!("it built")
    };
    assert_eq!(failed.class, "compile");
    assert!(
        failed.excerpt.contains("'nowhere_declared' undeclared"),
        "{failed:?}"
    );

    let panics = lab.tree("init/main.c", anchor, &format!("{anchor}\tpanic(\"planted\");\n"));
    let (report, _) = lab.boot(&lab.image(&panics), Accel::Tcg, true);
    let Report::BootFailed(failed) = report else {
        panic!("{report:?}")
    };
    assert_eq!((failed.fault.as_str(), failed.phase), ("panic", Phase::Boot));
    assert!(
        failed.excerpt.contains("Kernel panic - not syncing: planted"),
        "{failed:?}"
    );

    // Killed in the middle of compiling: half-written objects must not pass for good ones.
    let order = lab.order(lab.build_work(&lab.base));
    lab.agent.start(&order);
    lab.agent.follow_until(
        &order.id,
        |e| matches!(e, Event::Log { text } if text.contains("  CC ")),
    );
    assert!(
        lab.agent
            .ask::<Cancelled>(&["cancel", &order.id], b"")
            .was_running
    );
    assert_eq!(lab.image(&lab.base).digest, base.digest);
}
