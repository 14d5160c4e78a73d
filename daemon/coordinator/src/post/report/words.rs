//! How commits, numbers and times are written, and how lines are broken.

use super::Evidence;
use bisect::{CommitId, MinEffect};

/// Columns of a mail: what a kernel list reads without wrapping.
pub const COLUMNS: usize = 72;
/// Characters of an id that are shown: what `Fixes:` tags have.
const ID_CHARS: usize = 12;

/// Commit subjects, revisions and author names come from outside: one line, nothing a terminal obeys.
pub fn clean(text: &str) -> String {
    let plain: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Cut to so many characters, with dots where something is missing.
pub fn cut(text: &str, chars: usize) -> String {
    if text.chars().count() <= chars {
        return text.to_string();
    }
    let kept: String = text.chars().take(chars.saturating_sub(3)).collect();
    format!("{}...", kept.trim_end())
}

pub fn short(commit: &CommitId) -> String {
    commit.as_str().chars().take(ID_CHARS).collect()
}

/// Filled lines of at most [`COLUMNS`]; a longer word (an address of a page) has a line of its own.
pub fn wrap(text: &str, first: &str, rest: &str) -> String {
    let mut out = String::new();
    let mut line = first.to_string();
    let mut empty = true;
    for word in text.split_whitespace() {
        if !empty && line.chars().count() + 1 + word.chars().count() > COLUMNS {
            out += line.trim_end();
            out.push('\n');
            line = rest.to_string();
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line += word;
        empty = false;
    }
    out += line.trim_end();
    out.push('\n');
    out
}

/// Five significant digits, no exponent.
pub fn figure(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let before_point = value.abs().log10().floor() as i32 + 1;
    let decimals = (5 - before_point).clamp(0, 9) as usize;
    format!("{value:.decimals$}")
}

/// A probability, never rounded up to certainty.
pub fn probability(p: f64) -> String {
    match p * 100.0 {
        percent if percent > 99.9 => "more than 99.9 %".into(),
        percent if percent >= 99.0 => format!("{:.1} %", (percent * 10.0).floor() / 10.0),
        percent if percent < 0.1 => "less than 0.1 %".into(),
        percent if percent < 10.0 => format!("{percent:.1} %"),
        percent => format!("{percent:.0} %"),
    }
}

pub fn duration(seconds: f64) -> String {
    let s = if seconds.is_finite() {
        seconds.max(0.0).round() as u64
    } else {
        0
    };
    match s {
        0..60 => format!("{s} s"),
        60..3600 => format!("{} min {:02} s", s / 60, s % 60),
        3600..86400 => format!("{} h {:02} min", s / 3600, s % 3600 / 60),
        _ => format!("{} d {} h", s / 86400, s % 86400 / 3600),
    }
}

/// `1 boot`, `7 boots`, `2 losses`.
pub fn count(n: usize, one: &str) -> String {
    let ending = match n {
        1 => "",
        _ if one.ends_with('s') => "es",
        _ => "s",
    };
    format!("{n} {one}{ending}")
}

/// How changes of this metric are given: per cent, or its own unit where it may be zero.
pub struct Scale<'a> {
    unit: &'a str,
    relative: bool,
    pub higher_is_better: bool,
}

impl Scale<'_> {
    pub fn of(evidence: &Evidence) -> Scale<'_> {
        Scale {
            unit: &evidence.metric.unit,
            relative: !evidence.metric.may_be_zero,
            higher_is_better: evidence.metric.higher_is_better,
        }
    }

    /// Without a sign.
    pub fn size(&self, change: f64) -> String {
        if self.relative {
            let size = change.abs();
            let decimals = if size < 1.0 { 2 } else { 1 };
            format!("{size:.decimals$} %")
        } else {
            format!("{} {}", figure(change.abs()), self.unit)
        }
    }

    pub fn signed(&self, change: f64) -> String {
        let sign = if change < 0.0 { '-' } else { '+' };
        format!("{sign}{}", self.size(change))
    }

    /// `3.8 to 6.0 %` for a loss between them, smaller size first.
    pub fn interval(&self, ends: (f64, f64)) -> String {
        let (a, b) = ends;
        if a.signum() != b.signum() {
            return format!("{} to {}", self.signed(a.min(b)), self.signed(a.max(b)));
        }
        let (small, large) = (a.abs().min(b.abs()), a.abs().max(b.abs()));
        let sizes = (self.size(small), self.size(large));
        let unit = if self.relative { " %" } else { self.unit };
        format!("{} to {}", sizes.0.trim_end_matches(unit).trim_end(), sizes.1)
    }

    /// `-6.0 to -3.8 %`: as the number changes.
    pub fn signed_interval(&self, ends: (f64, f64)) -> String {
        let (low, high) = (self.signed(ends.0.min(ends.1)), self.signed(ends.0.max(ends.1)));
        let unit = if self.relative { "%" } else { self.unit };
        format!("{} to {high}", low.trim_end_matches(unit).trim_end())
    }

    /// Is this change of the number a change for the worse?
    pub fn is_loss(&self, change: f64) -> bool {
        (change < 0.0) == self.higher_is_better
    }

    pub fn smallest(&self, effect: MinEffect) -> String {
        match effect {
            MinEffect::Pct(pct) => format!("{pct} %"),
            MinEffect::Abs(size) => format!("{size} {}", self.unit),
        }
    }
}

/// `costs 4.9 % of ops_per_s`, `adds 4.9 % to usecs_per_op`, for a loss; a gain is worded as one.
pub fn effect_phrase(scale: &Scale<'_>, metric: &str, change: Option<f64>) -> String {
    let Some(change) = change else {
        return format!("makes {metric} worse");
    };
    let size = scale.size(change);
    match (scale.is_loss(change), scale.higher_is_better) {
        (true, true) => format!("costs {size} of {metric}"),
        (true, false) => format!("adds {size} to {metric}"),
        (false, true) => format!("gains {size} of {metric}"),
        (false, false) => format!("takes {size} off {metric}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certainty_is_never_claimed() {
        let cases = [
            (1.0, "more than 99.9 %"),
            (0.9996, "more than 99.9 %"),
            (0.9989, "99.8 %"),
            (0.5, "50 %"),
        ];
        cases
            .iter()
            .for_each(|(p, text)| assert_eq!(&probability(*p), text));
        assert_eq!(probability(0.0), "less than 0.1 %");
    }

    #[test]
    fn figures_have_five_digits() {
        let cases = [
            (194165.4, "194165"),
            (2556.93, "2556.9"),
            (5.15026, "5.1503"),
            (0.170727, "0.17073"),
        ];
        cases.iter().for_each(|(v, text)| assert_eq!(&figure(*v), text));
        assert_eq!(figure(0.0), "0");
        assert_eq!(figure(f64::NAN), "NaN");
    }

    #[test]
    fn lines_are_filled_and_long_words_stand_alone() {
        let url = format!("http://x/{}", "y".repeat(90));
        let text = wrap(&format!("{} {url} end", "word ".repeat(20)), "* ", "  ");
        assert!(
            text.lines()
                .all(|l| l.chars().count() <= COLUMNS || l.trim() == url),
            "{text}"
        );
        assert!(text.lines().skip(1).all(|l| l.starts_with("  ")));
        assert_eq!(text.split_whitespace().count(), 23);
    }

    #[test]
    fn nothing_from_outside_breaks_a_line_or_a_terminal() {
        assert_eq!(clean("a\r\nBcc: x\x1b[2J\u{9b}  b"), "a Bcc: x [2J b");
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdefg", 6), "abc...");
    }
}
