//! Our archive as the system's cpio reads it.

use runner::measure::cpio::{Archive, init_program};
use std::io::Write;
use std::process::{Command, Stdio};

fn cpio(arguments: &[&str], archive: &[u8]) -> Vec<u8> {
    let mut child = Command::new("cpio")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let bytes = archive.to_vec();
    let writer = std::thread::spawn(move || input.write_all(&bytes));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}

#[test]
fn the_systems_cpio_reads_the_archive_back() {
    let content: Vec<u8> = (0..10_001u32).map(|i| (i * 7) as u8).collect();
    let mut archive = Archive::default();
    archive.directory("dev");
    archive.device("dev/console", 5, 1);
    archive.program("init", &content);
    archive.program("bench/deep/er/x.sh", b"#!/bin/sh\n");
    archive.program("bench/deep/y", b"");
    let archive = archive.finish();
    let listing = String::from_utf8(cpio(&["-itv"], &archive)).unwrap();
    let names: Vec<_> = listing
        .lines()
        .map(|l| l.split_whitespace().last().unwrap())
        .collect();
    let all = [
        "dev",
        "dev/console",
        "init",
        "bench",
        "bench/deep",
        "bench/deep/er",
        "bench/deep/er/x.sh",
        "bench/deep/y",
    ];
    assert_eq!(names, all);
    assert!(
        listing.lines().nth(1).unwrap().starts_with("crw-------"),
        "{listing}"
    );
    assert!(
        listing.lines().nth(2).unwrap().starts_with("-rwxr-xr-x"),
        "{listing}"
    );
    assert_eq!(cpio(&["-i", "--to-stdout", "--quiet", "init"], &archive), content);
}

#[test]
fn an_agent_that_is_not_static_cannot_be_an_init() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("p.c");
    std::fs::write(
        &source,
        "#include <stdio.h>\nint main(void) { return puts(\"it runs\") < 0; }\n",
    )
    .unwrap();
    let compile = |mode: &str| {
        let program = dir.path().join(mode);
        let status = Command::new("gcc")
            .args(["-g", mode, "-o"])
            .arg(&program)
            .arg(&source)
            .status()
            .unwrap();
        assert!(status.success());
        program
    };
    let refused = init_program(&compile("-pie")).unwrap_err();
    assert!(refused.0.contains("crt-static"), "{refused}");

    // What is left out is no part of what runs.
    let whole = compile("-static");
    let small = init_program(&whole).unwrap();
    assert!((small.len() as u64) < std::fs::metadata(&whole).unwrap().len());
    let stripped = dir.path().join("stripped");
    std::fs::write(&stripped, small).unwrap();
    std::fs::set_permissions(&stripped, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    assert_eq!(Command::new(&stripped).output().unwrap().stdout, b"it runs\n");
}
