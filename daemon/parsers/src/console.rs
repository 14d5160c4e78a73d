//! What a kernel's console says, read as it comes: banner, panic, oops, lockups, and faults of the host.
//!
//! Fed with chunks cut anywhere, in the middle of a line or of an escape sequence. A dying machine's last line
//! often has no end: it is looked at as well ([`Scanner::finish`]), and the lines after a fault (its trace) are
//! kept for the excerpt.

use std::collections::VecDeque;

/// What a line means.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Sign {
    /// `Linux version …`: this kernel came up; a second one in a life means it rebooted.
    Banner {
        release: String,
    },
    Panic,
    /// A fault that kills a task, or more: null pointers, `kernel BUG at`, protection faults.
    Oops,
    SoftLockup,
    HardLockup,
    HungTask,
    RcuStall,
    OutOfMemory,
    /// `WARNING: …`: the kernel goes on, but its numbers deserve a look.
    Warning,
    /// The machine below the kernel failed: says nothing about the kernel.
    HostFault,
}

impl Sign {
    /// The kernel cannot be expected to finish its work.
    pub fn is_fatal(&self) -> bool {
        match self {
            Sign::Panic | Sign::Oops | Sign::SoftLockup | Sign::HardLockup | Sign::HungTask => true,
            Sign::RcuStall | Sign::OutOfMemory | Sign::HostFault => true,
            Sign::Banner { .. } | Sign::Warning => false,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    pub sign: Sign,
    /// The line, without escape sequences and time stamp.
    pub text: String,
}

/// A longer line is cut: a console that prints no line end must not fill the memory.
const LINE_LIMIT_BYTES: usize = 4096;
/// Lines before the first fatal sign that its excerpt shows.
const EXCERPT_BEFORE: usize = 10;
/// Lines from it on.
const EXCERPT_AFTER: usize = 40;

/// Between chunks: where in an escape sequence the last one ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Escape {
    #[default]
    Text,
    /// After ESC.
    Began,
    /// After `ESC [`: parameters until a letter.
    Control,
    /// After `ESC ]`, `ESC P`, `ESC _`, `ESC ^`: a string until BEL or `ESC \`.
    Words,
    WordsEnd,
    /// After `ESC (` and the like: one more character.
    Charset,
}

#[derive(Clone, Debug, Default)]
pub struct Scanner {
    escape: Escape,
    line: String,
    /// The last lines, until a fatal sign is met; then those before it and after it.
    excerpt: VecDeque<String>,
    after: Option<usize>,
}

impl Scanner {
    pub fn new() -> Scanner {
        Scanner::default()
    }

    /// Takes the next piece of console text; returns what its complete lines mean.
    pub fn push(&mut self, chunk: &str) -> Vec<Finding> {
        let mut findings = Vec::new();
        for c in chunk.chars() {
            if let Some(c) = self.plain(c) {
                match c {
                    '\n' => findings.extend(self.end_line()),
                    // Consoles end lines with \r\n and \r\r\n; a progress display goes back with a single \r.
                    '\r' | '\0' => {}
                    c if self.line.len() < LINE_LIMIT_BYTES => self.line.push(c),
                    _ => {}
                }
            }
        }
        findings
    }

    /// The console is at its end: what its last line means, which may have been cut off.
    pub fn finish(&mut self) -> Vec<Finding> {
        if self.line.is_empty() {
            Vec::new()
        } else {
            self.end_line().into_iter().collect()
        }
    }

    /// The lines around the first fatal sign, or the last ones if there was none.
    pub fn excerpt(&self) -> String {
        let mut text = self
            .excerpt
            .iter()
            .fold(String::new(), |text, line| text + line + "\n");
        text.push_str(&self.line);
        text.truncate(text.trim_end().len());
        text
    }

    fn plain(&mut self, c: char) -> Option<char> {
        let (next, plain) = match (self.escape, c) {
            // A line end ends any sequence: garbage must not swallow the console's rest.
            (_, '\n') => (Escape::Text, Some(c)),
            (Escape::Words, '\x1b') => (Escape::WordsEnd, None),
            (_, '\x1b') => (Escape::Began, None),
            (Escape::Text, _) => (Escape::Text, Some(c)),
            (Escape::Began, '[') => (Escape::Control, None),
            (Escape::Began, ']' | 'P' | '_' | '^') => (Escape::Words, None),
            (Escape::Began, '(' | ')' | '*' | '+' | '#' | '%' | ' ') => (Escape::Charset, None),
            (Escape::Began | Escape::Charset | Escape::WordsEnd, _) => (Escape::Text, None),
            (Escape::Control, '@'..='~') => (Escape::Text, None),
            (Escape::Control, _) => (Escape::Control, None),
            (Escape::Words, '\x07') => (Escape::Text, None),
            (Escape::Words, _) => (Escape::Words, None),
        };
        self.escape = next;
        plain
    }

    fn end_line(&mut self) -> Option<Finding> {
        let line = std::mem::take(&mut self.line);
        let finding = read_line(&line);
        match &mut self.after {
            Some(left) => {
                if *left > 0 {
                    *left -= 1;
                    self.excerpt.push_back(line);
                }
            }
            None => {
                let fatal = finding.as_ref().is_some_and(|f| f.sign.is_fatal());
                self.excerpt.push_back(line);
                let keep = if fatal { EXCERPT_BEFORE + 1 } else { EXCERPT_AFTER };
                while self.excerpt.len() > keep {
                    self.excerpt.pop_front();
                }
                self.after = fatal.then_some(EXCERPT_AFTER);
            }
        }
        finding
    }
}

/// What one line means, if anything. A sign has to stand where the kernel puts it, at the start of the message:
/// a program that prints `Kernel panic` somewhere in a sentence is no panic.
fn read_line(line: &str) -> Option<Finding> {
    // The banner may follow a half-written line of the firmware.
    if let Some(at) = line.find("Linux version ") {
        let release = line[at..].split_whitespace().nth(2).unwrap_or("").to_string();
        if release.starts_with(|c: char| c.is_ascii_digit()) {
            return Some(Finding {
                sign: Sign::Banner { release },
                text: line[at..].trim_end().to_string(),
            });
        }
    }
    if line.contains("KVM internal error") || line.starts_with("KVM: entry failed") {
        return Some(Finding {
            sign: Sign::HostFault,
            text: line.trim().to_string(),
        });
    }
    let text = without_time(line);
    let starts = |prefixes: &[&str]| prefixes.iter().any(|p| text.starts_with(p));
    let sign = if starts(&["Kernel panic - not syncing"]) {
        Sign::Panic
    } else if starts(&[
        "watchdog: BUG: soft lockup",
        "BUG: soft lockup",
        "NMI watchdog: BUG: soft lockup",
    ]) {
        Sign::SoftLockup
    } else if starts(&[
        "watchdog: Watchdog detected hard LOCKUP",
        "NMI watchdog: Watchdog detected hard LOCKUP",
    ]) || starts(&["Watchdog detected hard LOCKUP", "watchdog: CPU"])
        && text.contains("hard LOCKUP")
    {
        Sign::HardLockup
    } else if starts(&["INFO: task "]) && text.contains(" blocked for more than ") {
        Sign::HungTask
    } else if starts(&["rcu: INFO: rcu", "INFO: rcu"]) && text.contains("stall") {
        Sign::RcuStall
    } else if starts(&["Out of memory: Kill", "Memory cgroup out of memory: Kill"]) {
        Sign::OutOfMemory
    } else if starts(&OOPSES) {
        Sign::Oops
    } else if starts(&["WARNING: "]) {
        Sign::Warning
    } else if text.starts_with("qemu-system-") && (text.contains("fatal:") || text.contains(": Could not ")) {
        Sign::HostFault
    } else {
        return None;
    };
    Some(Finding {
        sign,
        text: text.trim_end().to_string(),
    })
}

const OOPSES: [&str; 11] = [
    "BUG: unable to handle",
    "BUG: kernel NULL pointer dereference",
    "BUG: Bad ",
    "BUG: scheduling while atomic",
    "BUG: KASAN: ",
    "Oops: ",
    "Oops[#",
    "kernel BUG at ",
    "general protection fault",
    "Unable to handle kernel ",
    "Internal error: ",
];

/// Without `[    2.593969] `, also with the caller's `[    T1] ` behind it.
fn without_time(line: &str) -> &str {
    let mut rest = line.trim_start();
    // `<4>[ … ]`: a raw level, when the console is read through /dev/kmsg.
    if let Some(level) = rest.strip_prefix('<').and_then(|r| r.split_once('>'))
        && level.0.bytes().all(|b| b.is_ascii_digit())
    {
        rest = level.1;
    }
    while let Some((stamp, after)) = rest.strip_prefix('[').and_then(|r| r.split_once(']')) {
        let stamp = stamp.trim();
        let is_time = !stamp.is_empty() && stamp.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let is_caller = stamp.len() > 1
            && stamp.starts_with(['T', 'C'])
            && stamp[1..].bytes().all(|b| b.is_ascii_digit());
        if !is_time && !is_caller {
            break;
        }
        rest = after.trim_start();
    }
    rest
}
