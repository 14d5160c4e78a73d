//! Reads `history.txt`: what commits say and the edits they make; and applies an edit to a file's text.

use crate::{Result, fail};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Innocent,
    /// Comments only: compiles to the same binary.
    Comment,
    /// Nothing that is compiled.
    Docs,
    Loss,
    Break,
    MendBreak,
    Panic,
    MendPanic,
    Hang,
    MendHang,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Draft {
    pub kind: Kind,
    pub name: String,
    pub subject: String,
    pub body: String,
    pub edits: Vec<Edit>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Edit {
    pub file: String,
    pub change: Change,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Change {
    Replace { old: String, new: String },
    Rename { old: String, new: String },
    Create { text: String },
}

/// The shipped history.
pub fn drafts() -> Result<Vec<Draft>> {
    read(include_str!("../history.txt"))
}

pub fn read(text: &str) -> Result<Vec<Draft>> {
    let mut drafts = Vec::new();
    for block in blocks(text, "= ") {
        let (head, rest) = block.split_once('\n').unwrap_or((block, ""));
        let mut words = head.split(' ');
        let kind = match words.next().unwrap_or("") {
            "innocent" => Kind::Innocent,
            "comment" => Kind::Comment,
            "docs" => Kind::Docs,
            "loss" => Kind::Loss,
            "break" => Kind::Break,
            "mend-break" => Kind::MendBreak,
            "panic" => Kind::Panic,
            "mend-panic" => Kind::MendPanic,
            "hang" => Kind::Hang,
            "mend-hang" => Kind::MendHang,
            other => return fail(format!("history.txt: `= {other}` is no kind of commit")),
        };
        let name = words.next().unwrap_or("").to_string();
        let message = rest.split("\n> ").next().unwrap_or("").trim_end();
        let (subject, body) = message.split_once("\n\n").unwrap_or((message, ""));
        let edits = blocks(rest, "> ")
            .into_iter()
            .map(edit)
            .collect::<Result<Vec<_>>>()?;
        if subject.is_empty() || subject.contains('\n') || edits.is_empty() {
            return fail(format!(
                "history.txt: `= {head}` needs a subject of one line and an edit"
            ));
        }
        drafts.push(Draft {
            kind,
            name,
            subject: subject.into(),
            body: body.trim_end().into(),
            edits,
        });
    }
    Ok(drafts)
}

fn edit(block: &str) -> Result<Edit> {
    let (head, text) = block.split_once('\n').unwrap_or((block, ""));
    let Some((file, how)) = head.split_once(' ') else {
        return fail(format!("history.txt: `> {head}`"));
    };
    let change = match (how, text.split_once("---\n")) {
        ("replace", Some((old, new))) => Change::Replace {
            old: old.into(),
            new: new.into(),
        },
        ("rename", Some((old, new))) => Change::Rename {
            old: old.trim().into(),
            new: new.trim().into(),
        },
        ("create", None) => Change::Create { text: text.into() },
        _ => return fail(format!("history.txt: `> {head}` is no edit")),
    };
    Ok(Edit {
        file: file.into(),
        change,
    })
}

/// Pieces of `text` that begin with a line starting with `mark`. One empty line at a piece's end is the layout's;
/// those before it belong to the edit.
fn blocks<'a>(text: &'a str, mark: &str) -> Vec<&'a str> {
    let starts: Vec<usize> = text
        .match_indices(mark)
        .map(|(at, _)| at)
        .filter(|&at| at == 0 || text[..at].ends_with('\n'))
        .collect();
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    let piece = |(start, end): (usize, usize)| {
        let piece = &text[start + mark.len()..end];
        if piece.ends_with("\n\n") {
            &piece[..piece.len() - 1]
        } else {
            piece
        }
    };
    starts.iter().copied().zip(ends).map(piece).collect()
}

impl Edit {
    /// The file's text after the edit. `before` is `None` where there is no such file yet.
    pub fn apply(&self, before: Option<&str>, rounds: u32) -> Result<String> {
        let absent = || crate::Error(format!("{}: no such file in this kernel source", self.file));
        match &self.change {
            Change::Create { text } if before.is_none() => Ok(text.clone()),
            Change::Create { .. } => fail(format!("{}: already in this kernel source", self.file)),
            Change::Replace { old, new } => {
                let before = before.ok_or_else(absent)?;
                match before.matches(old.as_str()).count() {
                    1 => Ok(before.replacen(old.as_str(), &new.replace("@ROUNDS@", &rounds.to_string()), 1)),
                    n => fail(format!("{}: found {n} times instead of once:\n{old}", self.file)),
                }
            }
            Change::Rename { old, new } => {
                let before = before.ok_or_else(absent)?;
                let after = rename(before, old, new);
                if after == before {
                    fail(format!("{}: no word `{old}`", self.file))
                } else {
                    Ok(after)
                }
            }
        }
    }
}

fn rename(text: &str, old: &str, new: &str) -> String {
    let part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let mut result = String::with_capacity(text.len());
    let mut done = 0;
    for (at, _) in text.match_indices(old) {
        if !part(text[..at].chars().next_back()) && !part(text[at + old.len()..].chars().next()) {
            result.push_str(&text[done..at]);
            result.push_str(new);
            done = at + old.len();
        }
    }
    result + &text[done..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_history_reads_and_pairs_harm_with_its_mending() {
        let drafts = drafts().unwrap();
        for (harm, mend) in [(Kind::Break, Kind::MendBreak), (Kind::Panic, Kind::MendPanic)] {
            let names = |kind| {
                drafts
                    .iter()
                    .filter(move |d| d.kind == kind)
                    .map(|d| &d.name)
                    .collect::<Vec<_>>()
            };
            assert_eq!(names(harm), names(mend));
            assert!(names(harm).len() >= 2);
        }
        let harmless = |d: &&Draft| matches!(d.kind, Kind::Innocent | Kind::Comment | Kind::Docs);
        assert!(drafts.iter().filter(harmless).count() >= 36);
    }

    #[test]
    fn rounds_of_a_loss_are_never_unrolled() {
        let lines: Vec<&str> = include_str!("../history.txt")
            .lines()
            .filter(|l| !l.starts_with("# "))
            .collect();
        let loops: Vec<usize> = (0..lines.len())
            .filter(|&i| lines[i].contains("@ROUNDS@"))
            .collect();
        assert!(loops.len() >= 4);
        for at in loops {
            assert_eq!(lines[at - 1], "#pragma GCC unroll 1", "before {}", lines[at]);
        }
    }

    #[test]
    fn an_anchor_must_stand_exactly_once() {
        let drafts = read("= innocent x\nA subject\n\nWords.\n\n> a.c replace\nold\n---\nnew\n").unwrap();
        assert_eq!(
            (drafts[0].subject.as_str(), drafts[0].body.as_str()),
            ("A subject", "Words.")
        );
        let edit = &drafts[0].edits[0];
        assert_eq!(edit.apply(Some("a\nold\nb\n"), 0).unwrap(), "a\nnew\nb\n");
        assert!(edit.apply(Some("nothing\n"), 0).is_err());
        assert!(edit.apply(Some("old\nold\n"), 0).is_err());
        assert!(edit.apply(None, 0).is_err());
    }

    #[test]
    fn renaming_takes_whole_words_only() {
        assert_eq!(
            rename("first firsts _first (first)", "first", "one"),
            "one firsts _first (one)"
        );
    }
}
