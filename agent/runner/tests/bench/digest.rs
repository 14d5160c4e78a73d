//! Which binaries are the same, on small ones made like a kernel's parts.

use runner::build::digest;
use std::path::{Path, PathBuf};
use std::process::Command;

const CONFIG: &str = "CONFIG_DEBUG_BUGVERBOSE=y\nCONFIG_GENERIC_BUG_RELATIVE_POINTERS=y\n";

struct Parts<'a> {
    release: &'a str,
    /// As a comment would shift it.
    line: u32,
    value: u32,
    build_id: &'a str,
    callee: &'a str,
}

const PLAIN: Parts<'_> = Parts {
    release: "6.1.0-pb01",
    line: 10,
    value: 1,
    build_id: "0x01",
    callee: "first",
};

fn source(parts: &Parts<'_>) -> String {
    let Parts {
        release,
        line,
        value,
        callee,
        ..
    } = parts;
    format!(
        r#"
const char banner[] = "Linux version {release} (a@b) #1";
const char again[] = "{release}";
struct bug {{ int address, file; unsigned short line, flags; }} __attribute__((packed));
__attribute__((section("__bug_table"), used)) static struct bug bugs[] = {{ {{ 1, 2, {line}, 3 }}, {{ 4, 5, {line}, 6 }} }};
int first(void), second(void);
int _start(void) {{ return {callee}() + {value}; }}
"#
    )
}

fn gcc(dir: &Path, arguments: &[&str]) {
    let status = Command::new("gcc")
        .current_dir(dir)
        .args(["-O1", "-g", "-ffreestanding", "-nostdlib"])
        .args(arguments)
        .status();
    assert!(status.unwrap().success());
}

/// A linked image and a module of these parts.
fn make(dir: &Path, parts: &Parts<'_>) -> (Vec<u8>, PathBuf) {
    let padding = "// a comment\n".repeat(parts.line as usize);
    std::fs::write(dir.join("a.c"), padding + &source(parts)).unwrap();
    std::fs::write(
        dir.join("b.c"),
        "int first(void) { return 1; }\nint second(void) { return 1; }\n",
    )
    .unwrap();
    gcc(
        dir,
        &[
            "-static",
            &format!("-Wl,--build-id={}", parts.build_id),
            "a.c",
            "b.c",
            "-o",
            "vmlinux",
        ],
    );
    gcc(dir, &["-c", "a.c", "-o", "m.ko"]);
    (std::fs::read(dir.join("vmlinux")).unwrap(), dir.join("m.ko"))
}

fn digest_of(parts: &Parts<'_>, config: &str) -> (String, String) {
    let dir = tempfile::tempdir().unwrap();
    let (vmlinux, module) = make(dir.path(), parts);
    let alone = digest::of(&vmlinux, &[], parts.release, config).unwrap();
    (
        alone,
        digest::of(&vmlinux, &[module], parts.release, config).unwrap(),
    )
}

#[test]
fn release_notes_and_bug_lines_make_no_difference() {
    let plain = digest_of(&PLAIN, CONFIG);
    assert_eq!(
        digest_of(
            &Parts {
                release: "6.1.0-pb02",
                ..PLAIN
            },
            CONFIG
        ),
        plain
    );
    assert_eq!(digest_of(&Parts { line: 900, ..PLAIN }, CONFIG), plain);
    let id = format!("0x{}", "ab".repeat(20));
    let other = format!("0x{}", "cd".repeat(20));
    let with_id = digest_of(
        &Parts {
            build_id: &id,
            ..PLAIN
        },
        CONFIG,
    );
    assert_eq!(
        digest_of(
            &Parts {
                build_id: &other,
                ..PLAIN
            },
            CONFIG
        ),
        with_id
    );
}

#[test]
fn code_and_what_modules_call_make_one() {
    let plain = digest_of(&PLAIN, CONFIG);
    let value = digest_of(&Parts { value: 2, ..PLAIN }, CONFIG);
    assert_ne!(value.0, plain.0);
    let callee = digest_of(
        &Parts {
            callee: "second",
            ..PLAIN
        },
        CONFIG,
    );
    assert_ne!(callee.0, plain.0);
    assert_ne!(callee.1, plain.1);
    // Where the table's layout is not known its lines are not blanked.
    assert_ne!(
        digest_of(&Parts { line: 900, ..PLAIN }, "").0,
        digest_of(&PLAIN, "").0
    );
}

/// The same code in a module whose unlinked bytes are equal but for where a call goes.
#[test]
fn a_modules_relocations_count() {
    let dir = tempfile::tempdir().unwrap();
    let (vmlinux, module) = make(dir.path(), &PLAIN);
    let plain = digest::of(&vmlinux, &[module], PLAIN.release, CONFIG).unwrap();
    let (_, module) = make(
        dir.path(),
        &Parts {
            callee: "second",
            ..PLAIN
        },
    );
    assert_ne!(
        digest::of(&vmlinux, &[module], PLAIN.release, CONFIG).unwrap(),
        plain
    );
}
