//! `git bisect log`, read and written: a search that git began goes on here, and one of ours goes on in git.
//!
//! Text only: what the revisions name is for the caller to find out. What git's own reader skips (comments) is
//! skipped here too.

use std::fmt::Write;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    Old,
    New,
    Skip,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mark {
    pub state: State,
    pub revision: String,
}

/// The words for the two sides: `good` and `bad` unless others were chosen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Terms {
    pub old: String,
    pub new: String,
}

impl Default for Terms {
    fn default() -> Self {
        Terms {
            old: "good".into(),
            new: "bad".into(),
        }
    }
}

impl Terms {
    /// git refuses words that are its own commands, and so do we: its log could not be replayed.
    pub fn new(old: &str, new: &str) -> Result<Terms, String> {
        const TAKEN: [&str; 9] = [
            "help",
            "start",
            "skip",
            "next",
            "reset",
            "visualize",
            "view",
            "replay",
            "terms",
        ];
        let swapped = [old, new] == ["bad", "good"] || [old, new] == ["new", "old"];
        for word in [old, new] {
            let fits = !word.is_empty()
                && word
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
            if !fits || word.starts_with('-') || TAKEN.contains(&word) || ["log", "run"].contains(&word) {
                return Err(format!("`{word}` cannot be a term: git bisect refuses it"));
            }
        }
        if old == new || swapped {
            return Err(format!("the terms {old} and {new} would be taken for each other"));
        }
        Ok(Terms {
            old: old.into(),
            new: new.into(),
        })
    }

    fn state(&self, word: &str) -> Option<State> {
        match word {
            "skip" => Some(State::Skip),
            w if w == self.old => Some(State::Old),
            w if w == self.new => Some(State::New),
            // The usual words are understood beside those chosen only where nothing was chosen.
            "good" | "old" if *self == Terms::default() => Some(State::Old),
            "bad" | "new" if *self == Terms::default() => Some(State::New),
            _ => None,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BisectLog {
    pub terms: Terms,
    pub first_parent: bool,
    pub paths: Vec<String>,
    /// In the order in which they were made.
    pub marks: Vec<Mark>,
}

impl BisectLog {
    pub fn read(text: &str) -> Result<BisectLog, String> {
        let mut log = BisectLog::default();
        // What git says before a command about the commits in it: there `HEAD` has its id.
        let mut ids: Vec<String> = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                ids.extend(commented(line));
                continue;
            }
            let at = |what: String| format!("line {}: {what}", number + 1);
            let words = words(line).map_err(at)?;
            let rest = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                ["git", "bisect", ..] => &words[2..],
                ["git-bisect", ..] => &words[1..],
                _ => return Err(at(format!("no line of a git bisect log: `{line}`"))),
            };
            match rest.split_first() {
                Some((word, args)) if word == "start" => log.start(args, &ids).map_err(at)?,
                Some((word, _)) if word == "terms" => {}
                Some((word, args)) => {
                    let state = log
                        .terms
                        .state(word)
                        .ok_or_else(|| at(format!("`{word}` is none of this search's words")))?;
                    log.marks.extend(args.iter().map(|revision| Mark {
                        state,
                        revision: revision.clone(),
                    }));
                }
                None => return Err(at("`git bisect` without a command".into())),
            }
            ids.clear();
        }
        Ok(log)
    }

    fn start(&mut self, args: &[String], ids: &[String]) -> Result<(), String> {
        *self = BisectLog::default();
        let (mut old, mut new) = (None, None);
        let mut revisions = Vec::new();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let (name, value) = match arg.split_once('=') {
                Some((name, value)) if name.starts_with("--") => (name, Some(value.to_owned())),
                _ => (arg.as_str(), None),
            };
            let mut term = || value.clone().or_else(|| args.next().cloned());
            match name {
                "--term-old" | "--term-good" => old = term(),
                "--term-new" | "--term-bad" => new = term(),
                "--first-parent" => self.first_parent = true,
                "--no-checkout" => {}
                "--" => {
                    self.paths = args.by_ref().cloned().collect();
                }
                option if option.starts_with("--") => return Err(format!("unknown option {option}")),
                revision => revisions.push(revision.to_owned()),
            }
        }
        let usual = Terms::default();
        self.terms = Terms {
            old: old.unwrap_or(usual.old),
            new: new.unwrap_or(usual.new),
        };
        if revisions.len() == ids.len() {
            revisions = ids.to_vec();
        }
        for (place, revision) in revisions.into_iter().enumerate() {
            let state = if place == 0 { State::New } else { State::Old };
            self.marks.push(Mark { state, revision });
        }
        Ok(())
    }

    /// As git writes it; `subject` tells what a comment shows of a commit.
    pub fn write(&self, subject: impl Fn(&str) -> String) -> String {
        let mut text = String::from("git bisect start");
        if self.terms != Terms::default() {
            let _ = write!(
                text,
                " {} {}",
                quoted(&format!("--term-old={}", self.terms.old)),
                quoted(&format!("--term-new={}", self.terms.new))
            );
        }
        if self.first_parent {
            text += " '--first-parent'";
        }
        if !self.paths.is_empty() {
            text += " '--'";
            self.paths.iter().for_each(|p| text += &format!(" {}", quoted(p)));
        }
        text.push('\n');
        for mark in &self.marks {
            let word = match mark.state {
                State::Old => self.terms.old.as_str(),
                State::New => self.terms.new.as_str(),
                State::Skip => "skip",
            };
            let revision = &mark.revision;
            let _ = writeln!(text, "# {word}: [{revision}] {}", subject(revision));
            let _ = writeln!(text, "git bisect {word} {revision}");
        }
        text
    }
}

/// The id in `# bad: [<id>] subject`.
fn commented(line: &str) -> Option<String> {
    let (id, _) = line.strip_prefix("# ")?.split_once(": [")?.1.split_once(']')?;
    let is_id = id.len() >= 40 && id.bytes().all(|b| b.is_ascii_hexdigit());
    is_id.then(|| id.to_owned())
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Words as a shell divides them, quotes taken off.
fn words(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            ' ' | '\t' => words.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next() {
                        Some('\'') => break,
                        Some(c) => word.push(c),
                        None => return Err("a quote without its end".into()),
                    }
                }
            }
            '\\' => word.get_or_insert_default().extend(chars.next()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let mark = |state, revision: &str| Mark {
            state,
            revision: revision.into(),
        };
        let log = BisectLog {
            terms: Terms::new("slow", "fast").expect("fine words"),
            first_parent: true,
            paths: vec!["it's here".into(), "fs".into()],
            marks: vec![
                mark(State::New, "b1"),
                mark(State::Old, "a1"),
                mark(State::Skip, "c1"),
            ],
        };
        assert_eq!(BisectLog::read(&log.write(|_| "subject".into())), Ok(log));
    }

    #[test]
    fn a_log_that_is_none_is_refused_with_its_line() {
        let refused = |text: &str| BisectLog::read(text).expect_err("must be refused");
        assert!(refused("git bisect start\ngit bisect slow a1").starts_with("line 2: `slow`"));
        assert!(refused("# x\nmake").starts_with("line 2: no line of"));
        assert!(refused("git bisect start 'a").starts_with("line 1: a quote"));
        assert!(
            Terms::new("bad", "good").is_err(),
            "swapped words would be misread"
        );
    }
}
