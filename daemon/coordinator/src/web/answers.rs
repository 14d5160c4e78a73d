//! What the API answers, field by field: names are stable, units stand last in them.
//!
//! The same types write the answers and describe them, so that the description cannot say something else.

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

#[derive(Serialize, ToSchema)]
pub struct Bisections {
    pub bisections: Vec<Summary>,
    /// Give it as `before` for the next page; null on the last one.
    pub next_before: Option<i64>,
}

/// One end of the range: as typed, and as resolved when it was submitted.
#[derive(Serialize, ToSchema)]
pub struct End {
    pub revision: String,
    pub commit: String,
}

#[derive(Serialize, ToSchema)]
pub struct Counts {
    /// Distinct kernels that have an outcome.
    pub kernels: i64,
    /// Boots that yielded numbers.
    pub boots: i64,
    pub builds: i64,
    /// Attempts that are carried now.
    pub working: i64,
}

#[derive(Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BisectionState {
    Open,
    Concluded,
    Cancelled,
}

impl BisectionState {
    pub const ALL: [(&'static str, BisectionState); 3] = [
        ("open", BisectionState::Open),
        ("concluded", BisectionState::Concluded),
        ("cancelled", BisectionState::Cancelled),
    ];
}

#[derive(Serialize, ToSchema)]
pub struct Summary {
    pub id: Uuid,
    /// What people say: bisection 12.
    pub number: i64,
    pub url: String,
    pub page: String,
    #[schema(value_type = BisectionState)]
    pub state: String,
    /// How it was concluded.
    pub status: Option<String>,
    /// Where it stands, in words.
    pub sentence: String,
    pub tree: String,
    pub good: End,
    pub bad: End,
    pub workload: Option<Value>,
    pub metric: Option<Value>,
    pub machines: Vec<String>,
    pub priority: i32,
    pub created_at: DateTime<Utc>,
    pub ended_at: Option<DateTime<Utc>>,
    pub suspects_left: Option<u32>,
    pub first_bad: Vec<String>,
    pub counts: Counts,
}

/// Everything of one: what was asked, how it was resolved, the latest plan, the conclusion.
#[derive(Serialize, ToSchema)]
pub struct Detail {
    #[serde(flatten)]
    pub summary: Summary,
    pub first_parent: bool,
    /// The body as accepted.
    #[schema(value_type = Object)]
    pub request: Value,
    /// What runs, as it was configured when it was submitted.
    #[schema(value_type = Object)]
    pub case: Value,
    #[schema(value_type = Object)]
    pub policy: Value,
    /// Raised by every new fact.
    pub record_version: i64,
    pub planned_version: i64,
    pub planned_at: Option<DateTime<Utc>>,
    /// Step, suspects with their probabilities, effect, and the reason.
    pub plan: Value,
    pub conclusion: Value,
}

#[derive(Serialize, ToSchema)]
pub struct Samples {
    pub samples: Vec<Sample>,
    /// Give it as `after` for the next page; null on the last one.
    pub next_after: Option<String>,
}

/// The outcome of one job.
#[derive(Serialize, ToSchema)]
pub struct Sample {
    pub id: i64,
    #[schema(value_type = Object)]
    pub kernel: Value,
    pub machine: String,
    pub lane: i32,
    pub replicate: i32,
    pub outcome: Value,
    pub observed_at: DateTime<Utc>,
    pub boot_id: Option<Uuid>,
    pub attempt_id: Option<Uuid>,
    /// Why the build or the boot failed, with an excerpt.
    pub failure: Value,
}

#[derive(Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    Wanted,
    Held,
    Done,
    Cancelled,
}

impl JobState {
    pub const ALL: [(&'static str, JobState); 4] = [
        ("wanted", JobState::Wanted),
        ("held", JobState::Held),
        ("done", JobState::Done),
        ("cancelled", JobState::Cancelled),
    ];
}

#[derive(Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AttemptState {
    Held,
    Done,
}

impl AttemptState {
    pub const ALL: [(&'static str, AttemptState); 2] =
        [("held", AttemptState::Held), ("done", AttemptState::Done)];
}

#[derive(Serialize, ToSchema)]
pub struct Jobs {
    pub jobs: Vec<Job>,
    /// Give it as `after` for the next page; null on the last one.
    pub next_after: Option<String>,
}

#[derive(Serialize, ToSchema)]
pub struct Job {
    pub id: Uuid,
    #[schema(value_type = Object)]
    pub kernel: Value,
    pub machine: String,
    pub lane: i32,
    pub replicate: i32,
    pub runs: i32,
    #[schema(value_type = JobState)]
    pub state: String,
    pub failures: i32,
    pub created_at: DateTime<Utc>,
    pub ended_at: Option<DateTime<Utc>>,
    pub attempt: Option<JobAttempt>,
}

#[derive(Serialize, ToSchema)]
pub struct JobAttempt {
    pub id: Uuid,
    pub phase: Option<String>,
    pub trouble: Option<String>,
}

#[derive(Serialize, ToSchema)]
pub struct Attempts {
    pub attempts: Vec<Attempt>,
    /// Give it as `after` for the next page; null on the last one.
    pub next_after: Option<String>,
}

/// One try at a build or a job, from the grant of the machine to the stored outcome.
#[derive(Serialize, ToSchema)]
pub struct Attempt {
    pub id: Uuid,
    /// build or measure.
    pub kind: &'static str,
    #[schema(value_type = Object)]
    pub kernel: Value,
    pub machine: String,
    #[schema(value_type = AttemptState)]
    pub state: String,
    pub ended_by: Option<String>,
    pub trouble: Option<String>,
    pub started_at: DateTime<Utc>,
    pub ended_at: Option<DateTime<Utc>>,
    pub wall_s: Option<f64>,
}

#[derive(Serialize, ToSchema)]
pub struct Decisions {
    pub decisions: Vec<Decision>,
    /// Give it as `after` for the next page; null on the last one.
    pub next_after: Option<String>,
}

/// A plan that was carried out, with the versions it rests on.
#[derive(Serialize, ToSchema)]
pub struct Decision {
    pub id: i64,
    pub record_version: i64,
    pub planner_version: i32,
    pub made_at: DateTime<Utc>,
    #[schema(value_type = Object)]
    pub plan: Value,
}

#[derive(Serialize, ToSchema)]
pub struct Machines {
    pub machines: Vec<Machine>,
}

/// As configured; what follows `roles` is null until the daemon has seen it.
#[derive(Serialize, ToSchema)]
pub struct Machine {
    pub name: String,
    pub arch: String,
    pub pools: Vec<String>,
    #[schema(value_type = Vec<String>)]
    pub roles: Value,
    /// idle, quarantined or retired.
    pub state: Option<String>,
    pub reason: Option<String>,
    pub lane: Option<i32>,
    pub admission: Value,
    pub probed_at: Option<DateTime<Utc>>,
    pub probe: Value,
    pub work: Option<Work>,
}

/// What a machine does now, and for which bisection.
#[derive(Serialize, ToSchema)]
pub struct Work {
    pub attempt: Option<Uuid>,
    pub bisection: Option<i64>,
    pub kernel: Option<String>,
    pub building: Option<bool>,
    pub trial: Option<String>,
    pub replicate: Option<i32>,
    pub phase: Option<String>,
    pub started_at: Option<DateTime<Utc>>,
    pub deadline_at: Option<DateTime<Utc>>,
}

#[derive(Serialize, ToSchema)]
pub struct Admitted {
    pub name: String,
}

#[derive(Serialize, ToSchema)]
pub struct Workloads {
    pub workloads: Vec<Workload>,
}

#[derive(Serialize, ToSchema)]
pub struct Workload {
    pub name: String,
    pub description: String,
    /// Parameter to its choices, the first one the default.
    #[schema(value_type = Object)]
    pub parameters: Value,
    #[schema(value_type = Vec<Object>)]
    pub metrics: Value,
    pub warmup_runs: u32,
    pub run_limit_s: u32,
}

#[derive(Serialize, ToSchema)]
pub struct Trees {
    pub trees: Vec<Tree>,
}

#[derive(Serialize, ToSchema)]
pub struct Tree {
    pub name: String,
    /// Branches and tags, the newest first.
    pub refs: Vec<String>,
}

/// One event of a stream, as its reader hands it out.
#[derive(Serialize, ToSchema)]
pub struct Event {
    /// For `Last-Event-ID`.
    pub id: String,
    /// JSON: `id`, `bisection`, `kind`, `text`, `at`.
    pub data: String,
}

#[derive(Serialize, ToSchema)]
pub struct Tokens {
    pub tokens: Vec<Token>,
}

/// A token without its secret.
#[derive(Serialize, ToSchema)]
pub struct Token {
    pub id: Uuid,
    pub name: String,
    pub role: String,
    pub created_by: String,
    pub created_at: DateTime<Utc>,
    pub expires_at: Option<DateTime<Utc>>,
    /// Within a minute.
    pub used_at: Option<DateTime<Utc>>,
    pub revoked_at: Option<DateTime<Utc>>,
}

#[derive(Serialize, ToSchema)]
pub struct MadeToken {
    #[serde(flatten)]
    pub about: Token,
    /// The secret: shown here and never again.
    pub token: String,
}

#[derive(Serialize, ToSchema)]
pub struct Actions {
    pub actions: Vec<Action>,
    /// Give it as `before` for the next page; null on the last one.
    pub next_before: Option<i64>,
}

/// A request that changed something, or was refused to.
#[derive(Serialize, ToSchema)]
pub struct Action {
    pub id: i64,
    pub at: DateTime<Utc>,
    pub actor: String,
    pub token_id: Option<Uuid>,
    pub role: String,
    pub method: String,
    pub path: String,
    pub request_id: String,
    /// Of the answer; null where the daemon ended before it.
    pub status: Option<i32>,
}

#[derive(Serialize, ToSchema)]
pub struct Me {
    pub actor: String,
    pub role: Option<String>,
}
