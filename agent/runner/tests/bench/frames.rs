//! What a guest says survives a noisy console, or is missed; it is never read wrong.

use runner::measure::frames::{Receiver, Said, base64, crc32, encode, unbase64};

const MARKER: &str = "0011223344556677";

fn log(n: u32) -> Said {
    Said::Log(format!(
        "message {n} {}",
        "text with \n lines and ~ signs ".repeat(40)
    ))
}

fn texts(receiver: &mut Receiver) -> Vec<String> {
    let mut texts = Vec::new();
    while let Some(said) = receiver.message() {
        match said {
            Said::Log(text) => texts.push(text),
            other => panic!("{other:?}"),
        }
    }
    texts
}

#[test]
fn messages_and_console_text_come_apart() {
    let mut console = String::from("[ 1.0] before\n");
    let mut wanted = Vec::new();
    for n in 0..5 {
        console.push_str(&encode(MARKER, n, &log(n)).replace('\n', "\r\n"));
        console.push_str(&format!("[ 2.{n}] between\n"));
        let Said::Log(text) = log(n) else { unreachable!() };
        wanted.push(text);
    }
    for piece in [1, 13, 4096] {
        let mut receiver = Receiver::new(MARKER);
        let mut text = Vec::new();
        for bytes in console.as_bytes().chunks(piece) {
            text.extend(receiver.take(bytes));
        }
        assert_eq!(texts(&mut receiver), wanted);
        let text = String::from_utf8(text).unwrap();
        assert!(
            !text.contains(MARKER) && text.starts_with("[ 1.0] before\n"),
            "{text}"
        );
        assert!(
            (0..5).all(|n| text.contains(&format!("[ 2.{n}] between\n"))),
            "{text}"
        );
    }
}

#[test]
fn noise_at_any_place_of_a_frame_is_repaired_by_the_repetition_and_never_believed() {
    let once: String = (0..3).map(|n| encode(MARKER, n, &log(n))).collect();
    let noise = "[    9.123456] random: a kernel message\n";
    let mut missed = 0;
    for at in (0..once.len()).step_by(17) {
        let noisy = format!("{}{noise}{}", &once[..at], &once[at..]);
        let mut receiver = Receiver::new(MARKER);
        receiver.take(noisy.as_bytes());
        let first = texts(&mut receiver);
        let wanted: Vec<String> = (0..3)
            .map(|n| match log(n) {
                Said::Log(t) => t,
                _ => unreachable!(),
            })
            .collect();
        assert_eq!(first, wanted[..first.len()], "noise at {at} changed a message");
        missed += usize::from(first.len() < 3);
        receiver.take(once.as_bytes());
        let all: Vec<String> = first.into_iter().chain(texts(&mut receiver)).collect();
        assert_eq!(all, wanted, "noise at {at}");
        assert!(!receiver.has_gap());
    }
    assert!(missed > 10, "the noise must have hit frames");
}

#[test]
fn another_boots_marker_is_mere_text() {
    let mut receiver = Receiver::new("ffffffffffffffff");
    let text = encode(MARKER, 0, &log(0));
    assert_eq!(receiver.take(text.as_bytes()), text.as_bytes());
    assert!(receiver.message().is_none());
}

#[test]
fn the_codes_are_the_known_ones() {
    assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    for (plain, coded) in [
        ("", ""),
        ("f", "Zg=="),
        ("fo", "Zm8="),
        ("foo", "Zm9v"),
        ("foobar", "Zm9vYmFy"),
    ] {
        assert_eq!(base64(plain.as_bytes()), coded);
        assert_eq!(unbase64(coded).unwrap(), plain.as_bytes());
    }
    let all: Vec<u8> = (0..=255).collect();
    assert_eq!(unbase64(&base64(&all)).unwrap(), all);
    assert!(unbase64("Zg=").is_none() && unbase64("Z===").is_none() && unbase64("Zm9*").is_none());
}
