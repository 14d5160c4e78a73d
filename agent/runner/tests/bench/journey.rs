//! Journeys of a machine whose boots are played: whatever a test kernel does, the machine comes home, its disk is clean,
//! and the order ends once, with the truth.

use crate::agent::*;
use crate::played::{HOME, Machine, TEST};
use protocol::*;

fn quick() -> Bench {
    Bench {
        runs: 2,
        ..bench(shell("echo ran"))
    }
}

fn travel(machine: &Machine, id: &str, boot: Boot, bench: Bench) -> Report {
    machine.agent.start(&machine.order(id, boot, bench));
    let lines = machine.carry(id);
    let numbers: Vec<u64> = lines.iter().map(|l| l.n).collect();
    assert_eq!(numbers, (0..lines.len() as u64).collect::<Vec<_>>());
    machine.assert_home_and_clean();
    report(&lines).clone()
}

fn failed(report: Report) -> BootFailed {
    match report {
        Report::BootFailed(failed) => failed,
        other => panic!("not a failed boot: {other:?}"),
    }
}

fn trouble(report: Report) -> String {
    match report {
        Report::Trouble { what } => what,
        other => panic!("not the lab's trouble: {other:?}"),
    }
}

#[test]
fn a_kernel_is_measured_where_it_proves_itself_and_the_report_is_told_at_home() {
    let machine = Machine::new();
    let script = format!(
        "ls {} && cat {}",
        machine.trip().modules_dir,
        machine.folder.join("system/proc/cmdline").display()
    );
    let mut look = bench(shell(&script));
    look.runs = 2;
    for (id, boot) in [("j-kexec", machine.kexec()), ("j-grub", machine.grub())] {
        machine.agent.start(&machine.order(id, boot, look.clone()));
        let lines = machine.carry(id);
        let Report::Measured(measured) = report(&lines) else {
            panic!("{lines:?}")
        };
        assert_eq!(measured.proof.release, TEST);
        assert!(
            measured
                .proof
                .command_line
                .contains(&format!("perfbisect.order={id} quiet"))
        );
        let runs: Vec<&Run> = lines
            .iter()
            .filter_map(|l| match &l.event {
                Event::Run(run) => Some(run),
                _ => None,
            })
            .collect();
        assert_eq!(runs.len(), 2);
        assert!(
            runs[0].stdout.contains(TEST) && runs[0].stdout.contains("root=/dev/vda ro panic=10"),
            "{:?}",
            runs[0]
        );
        machine.assert_home_and_clean();
        assert!(machine.agent.call(&["erase", id], b"").status.success());
    }
    assert_eq!(machine.boots(), [HOME, TEST, HOME, TEST, HOME]);
}

#[test]
fn a_panic_is_told_with_the_last_words_that_the_firmware_kept() {
    let machine = Machine::new();
    machine.write("fate", "panic");
    machine.write(
        "system/sys/fs/pstore/older",
        "Kernel panic - not syncing: of another day\n",
    );
    let failed = failed(travel(&machine, "j-panic", machine.kexec(), quick()));
    assert_eq!((failed.fault.as_str(), failed.phase), ("panic", Phase::Boot));
    assert!(failed.excerpt.contains("not syncing: played") && !failed.excerpt.contains("another day"));
    assert!(
        !machine.has("system/sys/fs/pstore/dmesg-1"),
        "kept for the next crash to be blamed for"
    );
}

#[test]
fn a_kernel_that_hangs_keeps_the_machine_only_until_its_power_is_cycled() {
    let machine = Machine::new();
    machine.write("fate", "hang");
    machine
        .agent
        .start(&machine.order("j-hang", machine.kexec(), quick()));
    machine.until("the test kernel", || machine.boots().last().unwrap() == TEST);
    assert_eq!(machine.agent.refusal(&["follow", "j-hang"], b""), "away");
    assert_eq!(
        machine.agent.refusal(
            &["start"],
            &serde_json::to_vec(&order("j-other", 2, none(quick()))).unwrap()
        ),
        "busy"
    );
    assert_eq!(machine.agent.refusal(&["erase", "j-hang"], b""), "busy");
    machine.run("power-cycle");
    let failed = failed(report(&machine.carry("j-hang")).clone());
    assert_eq!((failed.fault.as_str(), failed.phase), ("reset", Phase::Boot));
    machine.assert_home_and_clean();
}

#[test]
fn a_restart_in_mid_benchmark_is_the_kernels_and_no_run_is_lost() {
    let machine = Machine::new();
    let crash = format!(
        "[ -e {0}/ran ] && {0}/bin/crash; touch {0}/ran; echo ran",
        machine.folder.display()
    );
    machine.agent.start(&machine.order(
        "j-crash",
        machine.kexec(),
        Bench {
            runs: 3,
            ..bench(shell(&crash))
        },
    ));
    let lines = machine.carry("j-crash");
    let failed = failed(report(&lines).clone());
    assert_eq!((failed.fault.as_str(), failed.phase), ("reset", Phase::Bench));
    assert_eq!(
        lines.iter().filter(|l| matches!(l.event, Event::Run(_))).count(),
        1
    );
    machine.assert_home_and_clean();
}

#[test]
fn another_kernel_than_the_one_wanted_is_never_measured() {
    let machine = Machine::new();
    machine.write("fate", "wrong");
    let failed = failed(travel(&machine, "j-wrong", machine.kexec(), quick()));
    assert_eq!(failed.fault, "wrong_kernel");
    assert!(failed.excerpt.contains("6.1.0-other"), "{failed:?}");
}

#[test]
fn what_the_lab_is_to_blame_for_is_its_trouble() {
    let machine = Machine::new();
    machine.write("refuse", "");
    let what = trouble(travel(&machine, "j-refused", machine.kexec(), quick()));
    assert!(what.contains("Operation not permitted"), "{what}");

    machine.write("ignore", "");
    let what = trouble(travel(&machine, "j-ignored", machine.grub(), quick()));
    assert!(what.contains("did not take the one-shot entry"), "{what}");
    std::fs::remove_file(machine.folder.join("ignore")).unwrap();

    // Somebody has upgraded the home kernel meanwhile: nothing that is measured now compares.
    machine.write("home", "6.1.0-upgraded");
    machine
        .agent
        .start(&machine.order("j-upgraded", machine.grub(), quick()));
    let what = trouble(report(&machine.carry("j-upgraded")).clone());
    assert!(what.contains("6.1.0-upgraded"), "{what}");

    std::fs::remove_file(machine.folder.join("root/home.json")).unwrap();
    machine
        .agent
        .start(&machine.order("j-no-hook", machine.grub(), quick()));
    let what = trouble(report(&machine.carry("j-no-hook")).clone());
    assert!(what.contains("boot hook"), "{what}");
}

#[test]
fn past_the_orders_deadline_the_test_kernel_goes_home_by_itself() {
    let machine = Machine::new();
    let mut order = machine.order(
        "j-late",
        machine.kexec(),
        Bench {
            run_limit_s: 1000,
            ..bench(shell("sleep 1000"))
        },
    );
    // The machine says it has been up for 20 s, which count.
    order.deadline_s = 23;
    machine.agent.start(&order);
    let what = trouble(report(&machine.carry("j-late")).clone());
    assert!(what.contains("deadline"), "{what}");
    machine.assert_home_and_clean();
}

#[test]
fn an_order_cancelled_in_its_test_kernel_takes_the_machine_home() {
    let machine = Machine::new();
    machine.agent.start(&machine.order(
        "j-cancel",
        machine.kexec(),
        Bench {
            run_limit_s: 1000,
            ..bench(shell("touch began; sleep 1000"))
        },
    ));
    machine.until("the benchmark", || {
        machine.has(&["root/spool/j-cancel/work", "bench/began"].join("/"))
    });
    // The call may die with the machine that it sends home.
    machine.agent.call(&["cancel", "j-cancel"], b"");
    assert_eq!(report(&machine.carry("j-cancel")), &Report::Cancelled);
    machine.assert_home_and_clean();
    assert_eq!(machine.boots(), [HOME, TEST, HOME]);
}

#[test]
fn an_agent_killed_in_the_test_kernel_is_taken_up_and_goes_home() {
    let machine = Machine::new();
    machine.agent.start(&machine.order(
        "j-killed",
        machine.kexec(),
        Bench {
            run_limit_s: 1000,
            ..bench(shell("touch began; sleep 1000"))
        },
    ));
    machine.until("the benchmark", || {
        machine.has(&["root/spool/j-killed/work", "bench/began"].join("/"))
    });
    runner::process::kill(machine.agent.worker("j-killed").pid);
    // Whoever asks finds it stranded, once user space has had its time to start.
    machine.write("system/proc/uptime", "1000.00 10.00\n");
    let what = trouble(report(&machine.carry("j-killed")).clone());
    assert!(what.contains("killed in the test kernel"), "{what}");
    machine.assert_home_and_clean();
}

#[test]
fn a_test_kernel_whose_order_nobody_knows_goes_home() {
    let machine = Machine::new();
    machine.write(
        "boot/entry.cfg",
        "linux /boot/perfbisect/kernel root=/dev/vda perfbisect.order=j-unknown\n",
    );
    machine.write("next_entry", "perfbisect\n");
    machine.run("reboot");
    machine.until("home", || machine.boots() == [HOME, TEST, HOME]);
}
