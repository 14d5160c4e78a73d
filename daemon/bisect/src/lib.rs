//! The mind: from a history and a record of facts to the next step, or to a conclusion.
//!
//! Pure: no clock, no I/O, no async, no randomness that is not seeded by an argument. The daemon, the
//! simulator and `perfbisect plan` all call [`plan`](fn@plan) and nothing else decides.
//!
//! What this crate must *not* know: databases, git, ssh, how a benchmark's output looks, how a plan is
//! written as JSON (each edge maps these types to a format of its own).

pub mod assign;
mod bank;
mod belief;
mod classes;
pub mod commit;
pub mod compare;
pub mod conclusion;
mod confirm;
mod decide;
mod disagree;
mod ends;
mod facts;
pub mod history;
pub mod job;
pub mod kernel;
mod mass;
mod memo;
pub mod midpoint;
mod noise;
pub mod observation;
mod pivot;
pub mod plan;
pub mod policy;
mod prior;
mod report;
mod scale;
mod scan;
mod search;
pub mod segments;
mod select;
pub mod simulate;
mod span;
mod special;
mod stats;
mod summary;
mod switch;

pub use bank::MOST_FILTERS;
pub use commit::{CommitId, MachineId};
pub use conclusion::{Check, CheckResult, Checked, Conclusion, Status};
pub use decide::{Planner, plan};
pub use history::{Commit, History, HistoryError};
pub use job::Job;
pub use kernel::Kernel;
pub use observation::{
    Image, Machine, Observation, Outcome, Override, OverrideVerdict, Record, RecordError, Value,
};
pub use plan::{
    Effect, Noise, OtherMetric, PLANNER_VERSION, Plan, Remaining, Step, Suspect, Verdict, VerdictLine,
};
pub use policy::{Confirm, Costs, Limits, LookFor, Metric, MinEffect, Policy};
