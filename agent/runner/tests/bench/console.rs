//! The console watcher on consoles of real machines, whole and in pieces of any size.

use runner::measure::console::{Fault, Watch};

const PANIC: &[u8] = include_bytes!("../data/console-boot-test-panic.txt");
const NO_ROOT: &[u8] = include_bytes!("../data/console-noroot-panic.txt");
const HANG: &[u8] = include_bytes!("../data/console-silent-hang.txt");
const KVM: &[u8] = include_bytes!("../data/console-qemu-kvm-internal-error.txt");

fn watch(console: &[u8], piece: usize) -> Watch {
    let mut watch = Watch::default();
    for bytes in console.chunks(piece) {
        watch.take(bytes);
    }
    watch
}

#[test]
fn faults_are_seen_whatever_the_pieces() {
    for piece in [1, 7, 100, 1 << 20] {
        let seen = watch(PANIC, piece);
        assert_eq!((seen.fault, seen.banners), (Some(Fault::Panic), 1));
        let excerpt = seen.excerpt();
        assert!(
            excerpt.contains("Kernel panic - not syncing: sysrq triggered crash"),
            "{excerpt}"
        );
        assert!(
            excerpt.contains("Call Trace:") && excerpt.len() <= 4096,
            "{excerpt}"
        );
        assert_eq!(watch(NO_ROOT, piece).fault, Some(Fault::NoInit));
        let hang = watch(HANG, piece);
        assert_eq!((hang.fault, hang.banners), (None, 1));
        assert!(!hang.excerpt().is_empty());
        assert_eq!(watch(KVM, piece).fault, Some(Fault::Host));
    }
}

#[test]
fn a_second_banner_is_a_reset_and_escape_codes_hide_nothing() {
    let twice = [HANG, HANG].concat();
    assert_eq!(watch(&twice, 33).fault, Some(Fault::Reset));
    assert_eq!(
        watch(b"\x1b[1m[  1.0] Kernel pa\x1b[0mnic - not syncing: x", 3).fault,
        Some(Fault::Panic)
    );
    // A program that speaks of it is no kernel's banner.
    assert_eq!(
        watch(b"Linux version 6\nsee: Linux version 6 again\n", 5).fault,
        None
    );
}

#[test]
fn an_oops_that_ends_in_a_panic_is_a_panic_and_keeps_the_oops() {
    let text =
        b"[ 1.0] fine\n[ 2.0] BUG: kernel NULL pointer dereference, address: 0\n[ 2.0] Oops: 0000 [#1]\n";
    let mut seen = watch(text, 10);
    assert_eq!(seen.fault, Some(Fault::Oops));
    seen.take(b"[ 3.0] Kernel panic - not syncing: Fatal exception");
    assert_eq!(seen.fault, Some(Fault::Panic));
    let excerpt = seen.excerpt();
    assert!(
        excerpt.contains("NULL pointer") && excerpt.contains("Fatal exception"),
        "{excerpt}"
    );
    assert!(excerpt.contains("fine"), "some lines before it are kept");
}
