//! The two ways in which the agent says no: a refusal of a call, and the lab's trouble within an order.

use protocol::Refusal;
use std::fmt;

/// The lab's failure: it becomes `Report::Trouble` and never counts against a kernel.
#[derive(Debug)]
pub struct Trouble(pub String);

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Says what was being done when something failed.
pub trait Because<T> {
    fn because(self, what: impl FnOnce() -> String) -> Result<T, Trouble>;
}

impl<T, E: fmt::Display> Because<T> for Result<T, E> {
    fn because(self, what: impl FnOnce() -> String) -> Result<T, Trouble> {
        self.map_err(|e| Trouble(format!("{}: {e}", what())))
    }
}

/// What ends a call early.
#[derive(Debug)]
pub enum Unable {
    /// Said on stdout as JSON; exit status 2.
    Refused(Refusal),
    /// Said on stderr; exit status 1.
    Broken(String),
}

impl Unable {
    pub fn refused(kind: &str, message: impl Into<String>) -> Self {
        Unable::Refused(Refusal {
            kind: kind.into(),
            message: message.into(),
        })
    }
}

impl From<Trouble> for Unable {
    fn from(t: Trouble) -> Self {
        Unable::Broken(t.0)
    }
}
