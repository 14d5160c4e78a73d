//! Watches a kernel's console for signs of its death. Small on purpose: the console is kept, and the daemon's parsers
//! read it again with more patience.

use std::collections::VecDeque;

const PANIC: &str = "Kernel panic - not syncing";

/// A panic with one of these is about what the kernel was given to run.
const NO_INIT: [&str; 4] = [
    "No working init found",
    "Unable to mount root fs",
    "Requested init",
    "No init found",
];

const OOPS: [&str; 9] = [
    "Oops: ",
    "BUG: unable to handle",
    "BUG: kernel NULL pointer dereference",
    "kernel BUG at ",
    "general protection fault",
    "Unable to handle kernel ",
    "divide error: ",
    "stack segment: ",
    "Internal error: ",
];

/// The emulator's or hypervisor's own failure, not the kernel's.
const HOST: [&str; 4] = [
    "KVM internal error",
    "qemu: fatal:",
    "error: kvm run failed",
    "kvm_run: Bad address",
];

const LINES_BEFORE: usize = 12;
const LINES_AFTER: usize = 60;
const EXCERPT_BYTES: usize = 4096;
/// A line without end is cut here.
const LINE_BYTES: usize = 4096;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fault {
    Oops,
    /// A second banner: the kernel began anew.
    Reset,
    Panic,
    /// A panic that the rest of its line explains.
    NoInit,
    /// To be blamed on the lab.
    Host,
}

impl Fault {
    pub fn name(self) -> &'static str {
        match self {
            Fault::Oops => "oops",
            Fault::Reset => "reset",
            Fault::NoInit => "no_init",
            Fault::Panic => "panic",
            Fault::Host => "host",
        }
    }
}

#[derive(Default)]
pub struct Watch {
    line: Vec<u8>,
    recent: VecDeque<String>,
    /// From some lines before the first fault on.
    evidence: Vec<String>,
    pub fault: Option<Fault>,
    pub banners: u32,
    /// The line at hand was judged already, incomplete.
    judged: Option<Fault>,
}

impl Watch {
    pub fn take(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if *byte == b'\n' {
                let line = clean(&std::mem::take(&mut self.line));
                self.judge(&line);
                self.judged = None;
                self.keep(line);
            } else if self.line.len() < LINE_BYTES {
                self.line.push(*byte);
            }
        }
        // A panic's line may be the last the machine ever says.
        let line = clean(&self.line);
        if line.contains(PANIC) || HOST.iter().any(|p| line.contains(p)) {
            self.judge(&line);
        }
    }

    /// Text that is all the emulator's own.
    pub fn blames_host(text: &str) -> bool {
        HOST.iter().any(|p| text.contains(p))
    }

    fn judge(&mut self, line: &str) {
        let Some(fault) = self.fault_in(line) else { return };
        if self.judged == Some(fault) {
            return;
        }
        self.judged = Some(fault);
        if self.fault.is_none() {
            self.evidence = self
                .recent
                .iter()
                .rev()
                .take(LINES_BEFORE)
                .rev()
                .cloned()
                .collect();
        }
        // An oops that ends in a panic is a panic.
        self.fault = self.fault.max(Some(fault));
    }

    fn fault_in(&mut self, line: &str) -> Option<Fault> {
        let has = |patterns: &[&str]| patterns.iter().any(|p| line.contains(p));
        if line.contains(PANIC) {
            return Some(if has(&NO_INIT) {
                Fault::NoInit
            } else {
                Fault::Panic
            });
        }
        if has(&HOST) {
            return Some(Fault::Host);
        }
        if has(&OOPS) {
            return Some(Fault::Oops);
        }
        // Firmware's last words may stand on the same line.
        if line.starts_with("Linux version ") || line.contains("] Linux version ") {
            self.banners += 1;
            return (self.banners > 1).then_some(Fault::Reset);
        }
        None
    }

    fn keep(&mut self, line: String) {
        if self.fault.is_some() && self.evidence.len() < LINES_BEFORE + LINES_AFTER {
            self.evidence.push(line.clone());
        }
        self.recent.push_back(line);
        if self.recent.len() > LINES_BEFORE + LINES_AFTER {
            self.recent.pop_front();
        }
    }

    /// The lines that show the fault, else the last ones.
    pub fn excerpt(&self) -> String {
        let last = clean(&self.line);
        let mut lines: Vec<&str> = match self.fault {
            Some(_) => self.evidence.iter().map(String::as_str).collect(),
            None => self
                .recent
                .iter()
                .rev()
                .take(30)
                .rev()
                .map(String::as_str)
                .collect(),
        };
        if !last.is_empty() {
            lines.push(&last);
        }
        let mut text = String::new();
        for line in lines.into_iter().filter(|l| !l.is_empty()) {
            if text.len() + line.len() > EXCERPT_BYTES {
                break;
            }
            text.push_str(line);
            text.push('\n');
        }
        text
    }
}

/// A line as a person sees it: no escape sequences, no control characters.
fn clean(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let mut out = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c == '\x1b' {
            if chars.next_if_eq(&'[').is_some() {
                while chars.next_if(|c| !c.is_ascii_alphabetic()).is_some() {}
            }
            chars.next();
        } else if c == '\t' || !c.is_control() {
            out.push(c);
        }
    }
    out
}
