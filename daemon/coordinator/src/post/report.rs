//! What a conclusion says to people (a mail) and to programs (a webhook body), from one plain struct.
//!
//! Pure text. Every ending has its own honest form: what was found, how sure that is, what was checked, and what
//! could not be said. A reader who stops after the first paragraph knows the result.

mod json;
mod letter;
mod subject;
mod tables;
mod words;

use bisect::{CommitId, Conclusion, Metric, MinEffect, Plan};
use chrono::{DateTime, Utc};
use std::collections::BTreeMap;

/// All that a report is made of.
#[derive(Clone, PartialEq, Debug)]
pub struct Evidence {
    /// What people say: "bisection 12".
    pub number: i64,
    pub id: uuid::Uuid,
    /// The bisection's page.
    pub url: String,
    pub tree: String,
    pub good: End,
    pub bad: End,
    /// Commits that could have been the first bad one.
    pub candidates: usize,
    pub workload: String,
    pub parameters: BTreeMap<String, String>,
    pub command: Vec<String>,
    pub metric: Metric,
    pub min_effect: MinEffect,
    /// Asked for.
    pub confidence: f64,
    /// One line each, beginning with the name: `m1 (qemu, x86_64)`.
    pub machines: Vec<String>,
    /// First line of `cc --version`, where known.
    pub compiler: Option<String>,
    /// Whatever is known of the commits that the plan and the conclusion name; the others are shown by id.
    pub commits: BTreeMap<CommitId, CommitText>,
    /// The last plan: levels, noise, verdicts. None where the search was cancelled before its first.
    pub plan: Option<Plan>,
    pub ending: Ending,
    pub spent: Spent,
    pub ended_at: DateTime<Utc>,
}

/// An end of the range, as typed and as resolved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct End {
    pub rev: String,
    pub commit: CommitId,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommitText {
    pub subject: String,
    /// `Name <address>`.
    pub author: String,
    pub date: Option<DateTime<Utc>>,
}

#[expect(clippy::large_enum_variant, reason = "there is one of it per report")]
#[derive(Clone, PartialEq, Debug)]
pub enum Ending {
    Concluded(Conclusion),
    Cancelled,
}

/// What the search cost.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Spent {
    pub builds: u32,
    pub boots: u32,
    pub time_s: f64,
}

/// A report in all its forms.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    pub subject: String,
    /// Plain text, 72 columns, for a mail.
    pub text: String,
    /// JSON, for a webhook.
    pub json: String,
}

pub fn render(evidence: &Evidence) -> Report {
    Report {
        subject: subject::subject(evidence),
        text: letter::text(evidence),
        json: json::body(evidence).to_string(),
    }
}
