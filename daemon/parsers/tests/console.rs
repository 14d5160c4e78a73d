//! The console scanner on real consoles, cut into chunks anywhere.

use parsers::console::{Finding, Scanner, Sign};
use proptest::prelude::*;
use std::path::Path;

fn data(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name);
    let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    String::from_utf8_lossy(&bytes).into_owned()
}

fn scan<'a>(chunks: impl IntoIterator<Item = &'a str>) -> (Vec<Finding>, String) {
    let mut scanner = Scanner::new();
    let mut findings: Vec<Finding> = chunks.into_iter().flat_map(|chunk| scanner.push(chunk)).collect();
    findings.extend(scanner.finish());
    (findings, scanner.excerpt())
}

fn signs(findings: &[Finding]) -> Vec<Sign> {
    findings.iter().map(|f| f.sign.clone()).collect()
}

fn banner() -> Sign {
    Sign::Banner {
        release: "6.1.0-57-cloud-amd64".into(),
    }
}

#[test]
fn a_whole_life_has_its_banner_and_its_panic() {
    let text = data("console-boot-test-panic.txt");
    let (findings, excerpt) = scan([text.as_str()]);
    assert_eq!(signs(&findings), [banner(), Sign::Panic]);
    assert_eq!(
        findings[1].text,
        "Kernel panic - not syncing: sysrq triggered crash"
    );
    assert!(
        excerpt.contains("sysrq: Trigger a crash"),
        "what came before: {excerpt}"
    );
    assert!(
        excerpt.contains("sysrq_handle_crash+0x16/0x20"),
        "the trace, which comes later: {excerpt}"
    );
    assert!(!excerpt.contains('\x1b') && !excerpt.contains('\r'));
}

#[test]
fn no_root_is_a_panic_and_silence_is_nothing() {
    let (findings, excerpt) = scan([data("console-noroot-panic.txt").as_str()]);
    assert_eq!(signs(&findings), [banner(), Sign::Panic]);
    assert!(excerpt.contains("Cannot open root device"));
    let (findings, excerpt) = scan([data("console-silent-hang.txt").as_str()]);
    assert_eq!(signs(&findings), [banner()]);
    assert!(excerpt.contains("now spinning silently"));
}

#[test]
fn a_fault_of_the_host_is_not_the_kernels() {
    let (findings, _) = scan([data("console-qemu-kvm-internal-error.txt").as_str()]);
    assert_eq!(signs(&findings), [Sign::HostFault]);
}

#[test]
fn lines_as_kernels_print_them() {
    let cases: [(&str, Option<Sign>); 16] = [
        (
            "[   28.1] watchdog: BUG: soft lockup - CPU#0 stuck for 22s! [sh:70]",
            Some(Sign::SoftLockup),
        ),
        (
            "[   28.1][    T1] BUG: kernel NULL pointer dereference, address: 0000000000000008",
            Some(Sign::Oops),
        ),
        (
            "<1>[   28.1] BUG: unable to handle page fault for address: ffffc900",
            Some(Sign::Oops),
        ),
        (
            "[  246.2] INFO: task jbd2/vda-8:181 blocked for more than 120 seconds.",
            Some(Sign::HungTask),
        ),
        (
            "[   60.0] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
            Some(Sign::RcuStall),
        ),
        (
            "[    1.0] NMI watchdog: Watchdog detected hard LOCKUP on cpu 1",
            Some(Sign::HardLockup),
        ),
        (
            "[    1.0] watchdog: CPU1: Watchdog detected hard LOCKUP on cpu 2",
            Some(Sign::HardLockup),
        ),
        (
            "[    1.0] Out of memory: Killed process 77 (fio)",
            Some(Sign::OutOfMemory),
        ),
        (
            "[    1.0] WARNING: CPU: 0 PID: 1 at kernel/sched/core.c:12 x+0x1/0x2",
            Some(Sign::Warning),
        ),
        ("[    1.0] kernel BUG at mm/slub.c:379!", Some(Sign::Oops)),
        ("[    1.0] Oops: 0002 [#1] PREEMPT SMP PTI", Some(Sign::Oops)),
        (
            "Kernel panic - not syncing: Attempted to kill init! exitcode=0x0000000b",
            Some(Sign::Panic),
        ),
        ("test 12: waits for a Kernel panic - not syncing", None),
        ("[    1.0] Linux version of the docs", None),
        ("[    1.0] random: crng init done", None),
        ("", None),
    ];
    for (line, sign) in cases {
        let (findings, _) = scan([line, "\n"]);
        assert_eq!(signs(&findings), Vec::from_iter(sign), "{line}");
    }
}

#[test]
fn a_last_line_without_end_counts_and_escapes_do_not() {
    let (findings, _) = scan(["[ 1.0] Kernel pa", "nic - not syncing: x"]);
    assert_eq!(signs(&findings), [Sign::Panic]);
    let coloured = "\x1b]0;title\x07\x1b[1;31m[    1.0]\x1b[0m \x1b(BKernel panic - not syncing: x\r\r\n";
    assert_eq!(signs(&scan([coloured]).0), [Sign::Panic]);
    let unended = "\x1b]0;a title that never ends\nKernel panic - not syncing: x\n";
    assert_eq!(signs(&scan([unended]).0), [Sign::Panic]);
}

#[test]
fn a_line_without_end_does_not_fill_the_memory() {
    let mut scanner = Scanner::new();
    (0..1000).for_each(|_| drop(scanner.push(&"x".repeat(10_000))));
    assert!(scanner.excerpt().len() < 10_000);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn chunk_borders_do_not_matter(cuts in proptest::collection::vec(0.0f64..1.0, 0..40)) {
        let text = data("console-boot-test-panic.txt");
        let mut places: Vec<usize> = cuts.iter().map(|c| (text.len() as f64 * c) as usize).collect();
        places.retain(|p| text.is_char_boundary(*p));
        places.sort_unstable();
        let mut chunks = Vec::new();
        let mut rest = 0;
        for place in places {
            chunks.push(&text[rest..place]);
            rest = place;
        }
        chunks.push(&text[rest..]);
        prop_assert_eq!(scan(chunks), scan([text.as_str()]));
    }

    #[test]
    fn noise_never_panics(text in "[\\x00-\\x7f]{0,300}") {
        scan([text.as_str()]);
    }
}
