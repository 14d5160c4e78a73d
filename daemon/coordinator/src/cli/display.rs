//! Progress: in a terminal one line at the bottom that is written over; in a pipe, plain lines and nothing else.

use std::io::{IsTerminal, Write};

/// Where progress goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stream {
    Out,
    Err,
}

pub struct Display {
    stream: Stream,
    terminal: bool,
    color: bool,
    shown: bool,
}

/// How a word is set off in a terminal.
#[derive(Clone, Copy)]
pub enum Tint {
    Good,
    Bad,
    Dim,
    Strong,
}

impl Display {
    pub fn new(stream: Stream) -> Display {
        let terminal = match stream {
            Stream::Out => std::io::stdout().is_terminal(),
            Stream::Err => std::io::stderr().is_terminal(),
        };
        let dumb = std::env::var_os("TERM").is_none_or(|t| t == "dumb");
        Display {
            stream,
            terminal: terminal && !dumb,
            color: terminal && !dumb && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()),
            shown: false,
        }
    }

    pub fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// A line that stays.
    pub fn line(&mut self, text: &str) {
        self.clear();
        self.write(&format!("{text}\n"));
    }

    /// The line at the bottom; nothing in a pipe.
    pub fn status(&mut self, text: &str) {
        if !self.terminal {
            return;
        }
        let width = match self.stream {
            Stream::Out => rustix::termios::tcgetwinsize(std::io::stdout()),
            Stream::Err => rustix::termios::tcgetwinsize(std::io::stderr()),
        };
        // A terminal that does not tell its width says 0.
        let width = width.map_or(80, |size| usize::from(size.ws_col));
        let width = if width == 0 { 80 } else { width };
        let cut: String = text.chars().take(width.saturating_sub(1)).collect();
        self.write(&format!("\r\u{1b}[K{}", self.tint(&cut, Tint::Dim)));
        self.shown = true;
    }

    pub fn clear(&mut self) {
        if self.shown {
            self.write("\r\u{1b}[K");
            self.shown = false;
        }
    }

    pub fn tint(&self, text: &str, tint: Tint) -> String {
        let code = match tint {
            Tint::Good => "32",
            Tint::Bad => "31",
            Tint::Dim => "2",
            Tint::Strong => "1",
        };
        match self.color {
            true => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
            false => text.to_owned(),
        }
    }

    /// Characters of a text that take room: its tints do not.
    pub fn width(text: &str) -> usize {
        let mut inside = false;
        let takes_room = |c: &char| {
            let was_inside = inside;
            inside = (inside || *c == '\u{1b}') && *c != 'm';
            !was_inside && *c != '\u{1b}'
        };
        text.chars().filter(takes_room).count()
    }

    fn write(&self, text: &str) {
        match self.stream {
            Stream::Out => {
                let mut out = std::io::stdout().lock();
                let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
                // The reader went away: there is nobody left to tell.
                if written.is_err_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe) {
                    std::process::exit(0);
                }
            }
            Stream::Err => {
                let mut err = std::io::stderr().lock();
                // Progress that nobody sees hinders no search.
                let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
            }
        }
    }
}

/// `▕█████░░░░░▏`: how much of a whole is done.
pub fn bar(share: f64, width: usize) -> String {
    let done = (share.clamp(0.0, 1.0) * width as f64).round() as usize;
    format!("{}{}", "█".repeat(done), "░".repeat(width.saturating_sub(done)))
}

/// `48 s`, `12 min`, `3 h 20 min`.
pub fn duration(seconds: f64) -> String {
    let minutes = (seconds / 60.0).ceil() as u64;
    match minutes {
        0..=1 => format!("{seconds:.0} s"),
        2..60 => format!("{minutes} min"),
        _ => format!("{} h {} min", minutes / 60, minutes % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tints_take_no_room() {
        assert_eq!(Display::width("good"), 4);
        assert_eq!(Display::width("\u{1b}[32mgood\u{1b}[0m 5"), 6);
        assert_eq!(bar(0.5, 4), "██░░");
        assert_eq!(
            (duration(7.4), duration(700.0), duration(12_000.0)),
            ("7 s".into(), "12 min".into(), "3 h 20 min".into())
        );
    }
}
