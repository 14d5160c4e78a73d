//! The mind: from a history and a record of facts to the next step, or to a conclusion.
//!
//! Pure: no clock, no I/O, no async, no randomness that is not seeded by an argument. The daemon, the
//! simulator and `perfbisect plan` all call [`plan()`] and nothing else decides.
//!
//! What this crate must *not* know: databases, git, ssh, how a benchmark's output looks, how a plan is
//! written as JSON (each edge maps these types to a format of its own).

pub mod assign;
pub mod commit;
pub mod conclusion;
pub mod history;
pub mod job;
pub mod kernel;
pub mod observation;
pub mod plan;
pub mod policy;

pub use commit::{CommitId, MachineId};
pub use conclusion::{Check, CheckResult, Checked, Conclusion, Status};
pub use history::{Commit, History, HistoryError};
pub use job::Job;
pub use kernel::Kernel;
pub use observation::{
    Image, Machine, Observation, Outcome, Override, OverrideVerdict, Record, RecordError, Value,
};
pub use plan::{
    Effect, Noise, OtherMetric, PLANNER_VERSION, Plan, Remaining, Step, Suspect, Verdict, VerdictLine, plan,
};
pub use policy::{Confirm, Costs, Limits, LookFor, Metric, MinEffect, Policy};
