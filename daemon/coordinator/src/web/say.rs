//! How numbers, times and names are written for people. Pure; nothing here decides anything.

use chrono::{DateTime, Utc};

/// What git prints by default for a kernel-sized tree.
const SHORT_ID: usize = 12;

pub fn short(commit: &str) -> &str {
    let hex = commit.len() >= 40 && commit.bytes().all(|b| b.is_ascii_hexdigit());
    if hex { &commit[..SHORT_ID] } else { commit }
}

/// Text that names commits by their full ids, with the short ones in their place.
pub fn short_ids(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_hexdigit()) {
        let run = &rest[start..];
        let end = run.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(run.len());
        out.push_str(&rest[..start]);
        out.push_str(short(&run[..end]));
        rest = &run[end..];
    }
    out.push_str(rest);
    out
}

/// The rest of a kernel's key after its commit: ` + revert of 3f2a…`, ` + layout 1`, or nothing.
pub fn variant(kernel_key: &str) -> String {
    let mut parts = kernel_key.split('+');
    parts.next();
    let said = parts.map(|part| match part.split_once('=') {
        Some(("revert", commit)) => format!(" + revert of {}", short(commit)),
        Some((what, value)) => format!(" + {what} {value}"),
        None => format!(" + {part}"),
    });
    said.collect()
}

pub fn commit_of(kernel_key: &str) -> &str {
    kernel_key.split('+').next().unwrap_or(kernel_key)
}

/// Four significant digits, without an exponent where people would not write one.
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return "–".into();
    }
    let size = value.abs();
    if size != 0.0 && !(1e-4..1e12).contains(&size) {
        return minus(format!("{value:.3e}"));
    }
    let digits = if size == 0.0 {
        0
    } else {
        size.log10().floor() as i32
    };
    let decimals = (3 - digits).clamp(0, 8) as usize;
    minus(group(&format!("{value:.decimals$}")))
}

/// `12345.6` to `12 345.6`, with a thin space that never breaks.
fn group(text: &str) -> String {
    let (sign, rest) = text.strip_prefix('-').map_or(("", text), |rest| ("-", rest));
    let (whole, fraction) = rest.split_once('.').map_or((rest, None), |(w, f)| (w, Some(f)));
    let mut out = String::from(sign);
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && whole.len() > 4 && (whole.len() - i).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    if let Some(fraction) = fraction {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

fn minus(text: String) -> String {
    text.replace('-', "−")
}

/// A change in per cent, with its sign: `−5.9 %`.
pub fn change(pct: f64) -> String {
    let decimals = if pct.abs() >= 99.95 { 0 } else { 1 };
    minus(format!("{pct:+.decimals$}\u{202f}%"))
}

/// A share or probability: `41 %`, `0.4 %`, `< 0.1 %`, and never a `100 %` that is not one.
pub fn share(p: f64) -> String {
    let pct = p * 100.0;
    match pct {
        _ if !pct.is_finite() => "–".into(),
        0.0 => "0\u{202f}%".into(),
        _ if pct < 0.1 => "<\u{202f}0.1\u{202f}%".into(),
        _ if pct < 9.95 => format!("{pct:.1}\u{202f}%"),
        _ if pct > 99.9 && p < 1.0 => ">\u{202f}99.9\u{202f}%".into(),
        _ if pct > 99.0 => format!("{pct:.1}\u{202f}%"),
        _ => format!("{pct:.0}\u{202f}%"),
    }
}

/// `48 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`.
pub fn duration(seconds: f64) -> String {
    if !seconds.is_finite() {
        return "–".into();
    }
    let s = seconds.max(0.0).round() as u64;
    let two = |big: u64, unit: &str, small: u64, unit_small: &str| match small {
        0 => format!("{big}\u{a0}{unit}"),
        _ => format!("{big}\u{a0}{unit} {small}\u{a0}{unit_small}"),
    };
    match s {
        0..60 => format!("{s}\u{a0}s"),
        60..3600 => two(s / 60, "min", if s < 600 { s % 60 } else { 0 }, "s"),
        3600..86400 => two(s / 3600, "h", s % 3600 / 60, "min"),
        _ => two(s / 86400, "d", s % 86400 / 3600, "h"),
    }
}

pub fn time(at: DateTime<Utc>) -> String {
    at.format("%-d %b %Y, %H:%M:%S UTC").to_string()
}

pub fn count(n: i64, one: &str, many: &str) -> String {
    if n == 1 {
        format!("1 {one}")
    } else {
        format!("{n} {many}")
    }
}

/// Console text as it came, without its control sequences: what a terminal would have left on the screen.
pub fn plain_console(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => match chars.next() {
                Some('[') => {
                    for c in chars.by_ref() {
                        if ('\u{40}'..='\u{7e}').contains(&c) {
                            break;
                        }
                    }
                }
                Some(']') => {
                    for c in chars.by_ref() {
                        if c == '\u{7}' || c == '\u{1b}' {
                            break;
                        }
                    }
                }
                _ => {}
            },
            '\r' => {}
            '\n' | '\t' => out.push(c),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// The last `lines` lines.
pub fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.trim_end_matches('\n').lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        let cases = [
            (0.0, "0.000"),
            (1234.5, "1234"),
            (12345.6, "12\u{202f}346"),
            (0.01234, "0.01234"),
            (-5.5, "−5.500"),
        ];
        for (value, said) in cases {
            assert_eq!(number(value), said, "{value}");
        }
        assert_eq!(change(-5.94), "−5.9\u{202f}%");
        assert_eq!(share(0.9999), ">\u{202f}99.9\u{202f}%");
        assert_eq!(share(0.414), "41\u{202f}%");
        assert_eq!(duration(200.0), "3\u{a0}min 20\u{a0}s");
        assert_eq!(duration(7500.0), "2\u{a0}h 5\u{a0}min");
    }

    #[test]
    fn console_loses_its_control_sequences_only() {
        assert_eq!(
            plain_console("\u{1b}[32mok\u{1b}[0m\r\n[    0.1] x\u{0}"),
            "ok\n[    0.1] x\u{fffd}"
        );
        assert_eq!(plain_console("\u{1b}]0;title\u{7}a\u{1b}"), "a");
        assert_eq!(tail("a\nb\nc\n", 2), "b\nc");
    }

    #[test]
    fn only_whole_ids_are_cut() {
        let id = "7023a2b23d4878f590bf8b1118a329df57629478";
        assert_eq!(
            short_ids(&format!("{id} parts 52 : 48, bad é {id}.")),
            "7023a2b23d48 parts 52 : 48, bad é 7023a2b23d48."
        );
        assert_eq!(short_ids("c30 halves the suspects"), "c30 halves the suspects");
    }

    #[test]
    fn variants_are_named() {
        assert_eq!(variant("abc+revert=c9+layout=1"), " + revert of c9 + layout 1");
        assert_eq!(commit_of("abc+layout=1"), "abc");
        assert_eq!(variant("abc"), "");
    }
}
