//! Settings, facts and counters of machines that this one is not, on file trees.

use runner::disturbance::{between, now};
use runner::environment::facts_of;
use runner::held::{cpu_list, hold};
use runner::view::View;
use std::collections::BTreeMap;
use std::fs;

const CPU: &str = "sys/devices/system/cpu";

struct Tree(tempfile::TempDir);

impl Tree {
    fn server() -> Tree {
        let tree = Tree(tempfile::tempdir().unwrap());
        for cpu in 0..2 {
            tree.write(
                &format!("{CPU}/cpufreq/policy{cpu}/scaling_governor"),
                "powersave\n",
            );
            tree.write(
                &format!("{CPU}/cpufreq/policy{cpu}/scaling_driver"),
                "intel_pstate\n",
            );
            for (state, (name, latency)) in [("POLL", 0), ("C1", 2), ("C6", 133)].iter().enumerate() {
                let at = format!("{CPU}/cpu{cpu}/cpuidle/state{state}");
                tree.write(&format!("{at}/name"), &format!("{name}\n"));
                tree.write(&format!("{at}/latency"), &format!("{latency}\n"));
                tree.write(&format!("{at}/disable"), "0\n");
            }
            tree.write(
                &format!("{CPU}/cpu{cpu}/thermal_throttle/core_throttle_count"),
                "3\n",
            );
        }
        tree.write(&format!("{CPU}/intel_pstate/no_turbo"), "0\n");
        tree.write(&format!("{CPU}/smt/control"), "on\n");
        tree.write(&format!("{CPU}/vulnerabilities/meltdown"), "Not affected\n");
        tree.write(&format!("{CPU}/vulnerabilities/retbleed"), "Mitigation: IBRS\n");
        tree.write(
            "sys/kernel/mm/transparent_hugepage/enabled",
            "always [madvise] never\n",
        );
        tree.write("sys/class/block/sdb/queue/scheduler", "none [mq-deadline]\n");
        tree.write("sys/class/block/sdb/queue/read_ahead_kb", "128\n");
        tree.write("proc/sys/vm/dirty_bytes", "0\n");
        tree.write(
            "proc/cmdline",
            "root=/dev/sda1 mem=8G mitigations=auto mitigations=off\n",
        );
        tree.write(
            "proc/cpuinfo",
            "processor : 0\nmodel name : Xeon\nmicrocode : 0x2b\nprocessor : 1\n",
        );
        tree.write("proc/stat", "cpu  10 0 10 100 0 0 0 500 0 0\ncpu0 1 1\n");
        tree.write("proc/diskstats", "8 0 sda 1 0 2048 1 1 0 2048 1 0 1 1\n8 1 sda1 1 0 2048 1 1 0 2048 1 0 1 1\n8 16 sdb 1 0 0 1 1 0 0 1 0 1 1\n7 0 loop0 1 0 0 1 1 0 0 1 0 1 1\n");
        tree.write("sys/class/block/sda1/partition", "1\n");
        tree
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.0.path().join(path))
            .unwrap()
            .trim()
            .to_string()
    }

    fn view(&self) -> View {
        View::at(self.0.path())
    }
}

fn wanted(settings: &[(&str, &str)]) -> BTreeMap<String, String> {
    settings
        .iter()
        .map(|(k, v)| (k.to_string(), v.to_string()))
        .collect()
}

#[test]
fn settings_are_set_everywhere_and_put_back() {
    let tree = Tree::server();
    let settings = wanted(&[
        ("governor", "performance"),
        ("turbo", "off"),
        ("idle_latency_us", "10"),
        ("dirty_bytes", "104857600"),
        ("read_ahead_kib", "4096"),
        ("mitigations", "off"),
        ("memory", "8G"),
    ]);
    let holding = hold(&tree.view(), &settings, &["sdb".into()]).unwrap();
    assert_eq!(
        tree.text(&format!("{CPU}/cpufreq/policy0/scaling_governor")),
        "performance"
    );
    assert_eq!(
        tree.text(&format!("{CPU}/cpufreq/policy1/scaling_governor")),
        "performance"
    );
    assert_eq!(tree.text(&format!("{CPU}/intel_pstate/no_turbo")), "1");
    assert_eq!(tree.text(&format!("{CPU}/cpu1/cpuidle/state2/disable")), "1");
    assert_eq!(tree.text(&format!("{CPU}/cpu1/cpuidle/state1/disable")), "0");
    assert_eq!(tree.text("sys/class/block/sdb/queue/read_ahead_kb"), "4096");
    assert_eq!(holding.facts()["held.governor"], "performance");
    let facts = facts_of(&tree.view(), "", &["sdb".into()]);
    assert_eq!(
        (facts["governor"].as_str(), facts["turbo"].as_str()),
        ("performance", "off")
    );
    assert_eq!(facts["idle_states"], "POLL 0 us, C1 2 us");
    assert_eq!(facts["disk0.read_ahead_kib"], "4096");
    holding.check().unwrap();

    // Somebody's power daemon.
    tree.write(&format!("{CPU}/cpufreq/policy1/scaling_governor"), "ondemand\n");
    let why = holding.check().unwrap_err().0;
    assert!(
        why.contains("governor = performance was changed during the benchmark"),
        "{why}"
    );
    drop(holding);
    assert_eq!(
        tree.text(&format!("{CPU}/cpufreq/policy0/scaling_governor")),
        "powersave"
    );
    assert_eq!(tree.text(&format!("{CPU}/cpu1/cpuidle/state2/disable")), "0");
    assert_eq!(tree.text("proc/sys/vm/dirty_bytes"), "0");
}

#[test]
fn what_a_system_lacks_is_absent_and_what_it_refuses_is_trouble() {
    let tree = Tree(tempfile::tempdir().unwrap());
    let settings = wanted(&[
        ("governor", "performance"),
        ("turbo", "off"),
        ("thp", "never"),
        ("numa_balancing", "0"),
    ]);
    let holding = hold(&tree.view(), &settings, &[]).unwrap();
    assert!(
        holding.facts().values().all(|v| v == "absent"),
        "{:?}",
        holding.facts()
    );
    let facts = facts_of(&tree.view(), "guest.", &[]);
    for name in [
        "governor",
        "turbo",
        "idle_states",
        "smt",
        "thp",
        "numa_balancing",
        "pmu",
        "mitigations",
    ] {
        assert_eq!(facts[&format!("guest.{name}")], "absent", "{name}");
    }

    let tree = Tree::server();
    let refused = |settings: &[(&str, &str)]| {
        hold(&tree.view(), &wanted(settings), &[])
            .map(|_| ())
            .unwrap_err()
            .0
    };
    assert!(refused(&[("memory", "4G")]).contains("command line says mem=8G"));
    assert!(refused(&[("turbo", "maybe")]).contains("on or off"));
    assert!(refused(&[("colour", "blue")]).contains("no setting `colour`"));
    // A plain file takes anything; the kernel's own answers a choice with brackets.
    assert!(refused(&[("cpus", "3-1")]).contains("write it as 0-3,6"));
    // Only root is refused by nothing but a full device.
    let full = Tree::server();
    let governor = full
        .0
        .path()
        .join(format!("{CPU}/cpufreq/policy0/scaling_governor"));
    fs::remove_file(&governor).unwrap();
    std::os::unix::fs::symlink("/proc/self/comm", &governor).unwrap();
    fs::write(
        governor.with_file_name("scaling_available_governors"),
        "powersave schedutil\n",
    )
    .unwrap();
    let why = hold(
        &full.view(),
        &wanted(&[("governor", "a-name-longer-than-a-process-has")]),
        &[],
    );
    let why = why.map(|_| ()).unwrap_err().0;
    assert!(
        why.contains("cannot be held") && why.contains("offered: powersave schedutil"),
        "{why}"
    );
}

#[test]
fn the_facts_of_a_server() {
    let facts = facts_of(&Tree::server().view(), "", &["sdb".into()]);
    assert_eq!(facts["cpu"], "Xeon");
    assert_eq!(facts["cpus"], "2");
    assert_eq!(facts["microcode"], "0x2b");
    assert_eq!(facts["governor"], "powersave");
    assert_eq!(facts["frequency_driver"], "intel_pstate");
    assert_eq!(facts["mitigations"], "retbleed: Mitigation: IBRS");
    assert_eq!(facts["thp"], "madvise");
    assert_eq!(facts["disk0.scheduler"], "mq-deadline");
    assert_eq!(facts["disk0.queue_depth"], "absent");
}

#[test]
fn what_went_on_beside_a_run() {
    let tree = Tree::server();
    let before = now(&tree.view(), &["sdb".into()]);
    tree.write("proc/stat", "cpu  10 0 10 100 0 0 0 650 0 0\n");
    tree.write(&format!("{CPU}/cpu1/thermal_throttle/core_throttle_count"), "8\n");
    tree.write(
        "proc/diskstats",
        "8 0 sda 1 0 6144 1 1 0 2048 1 0 1 1\n8 16 sdb 1 0 99999 1 1 0 0 1 0 1 1\n",
    );
    let mut utmp = vec![0; 384 * 2];
    utmp[0] = 8; // A session that has ended.
    utmp[384] = 7;
    utmp[384 + 8..384 + 13].copy_from_slice(b"pts/0");
    utmp[384 + 44..384 + 47].copy_from_slice(b"ann");
    fs::create_dir_all(tree.0.path().join("var/run")).unwrap();
    fs::write(tree.0.path().join("var/run/utmp"), utmp).unwrap();
    let mut after = now(&tree.view(), &["sdb".into()]);
    after.offset_s += 3.0;
    let seen = between(&before, &after);
    assert_eq!(seen.steal_s, Some(1.5));
    assert_eq!(seen.throttled, Some(5));
    assert_eq!(
        seen.foreign_io_mib,
        Some(2.0),
        "neither the benchmark's disk nor a partition counts"
    );
    assert_eq!(seen.logins, ["ann pts/0"]);
    assert!((seen.clock_step_s - 3.0).abs() < 0.05, "{seen:?}");
    assert_eq!(seen.cpus, 2);

    let nothing = Tree(tempfile::tempdir().unwrap());
    let seen = between(&now(&nothing.view(), &[]), &now(&nothing.view(), &[]));
    assert_eq!(
        (seen.steal_s, seen.throttled, seen.foreign_io_mib),
        (None, None, None)
    );
    assert!(seen.logins.is_empty() && seen.clock_step_s.abs() < 0.01);
}

#[test]
fn lists_of_cpus() {
    assert_eq!(cpu_list("0-3,6").unwrap(), [0, 1, 2, 3, 6]);
    for wrong in ["", "a", "1-", "0-99999999", "-1"] {
        assert!(cpu_list(wrong).is_err(), "{wrong}");
    }
}
