//! How an attempt ends: its facts and what follows from them, in one transaction, once.
//!
//! Three troubles, three forms: the kernel's is an observation, the lab's a retry and at the limit `lost`, the
//! user's a cancelled job. Locks in the order of `attempts`.

mod build;
mod job;

use super::admission::finish_trial;
use super::{Result, Store, ring, storable, storable_json};
use build::finish_build;
use job::{finish_job, lock_job};
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

/// Seconds of pause after the first trouble of the lab; four times as long after each more.
const FIRST_PAUSE_S: f64 = 5.0;

#[derive(Clone, Debug)]
pub struct NewImage {
    pub id: String,
    pub kind: &'static str,
    pub arch: String,
    pub digest: String,
    pub build_id: String,
    pub release: String,
    pub manifest: Value,
}

#[derive(Clone, Debug, Default)]
pub struct BootFact {
    pub image_id: String,
    pub boot_id: String,
    /// `{fault, excerpt, phase}` where it failed.
    pub fault: Option<Value>,
    pub proof: Option<Value>,
    pub environment: Value,
    pub seconds: Value,
}

/// A boot that is dropped before its number was looked at.
#[derive(Clone, Debug)]
pub struct Drop {
    /// `environment` or `disturbed`.
    pub reason: &'static str,
    pub what: String,
    pub environment: Value,
}

#[derive(Clone, Debug)]
pub struct Sample {
    pub parser_version: i32,
    pub values: Value,
    pub raw: Value,
}

/// What an attempt ended with.
#[derive(Clone, Debug)]
pub enum Ending {
    Built {
        image: NewImage,
        wall_s: f64,
        config_changes: Vec<String>,
    },
    BuildFailed {
        failure: Value,
        wall_s: f64,
    },
    Measured {
        boot: BootFact,
        sample: Sample,
        outcome: Value,
        first_run_s: f64,
        said: String,
    },
    BootFailed {
        boot: BootFact,
    },
    BenchmarkFailed {
        boot: BootFact,
        sample: Option<Sample>,
        what: String,
    },
    /// The surroundings speak against it: kept as that, and tried again.
    Dropped(Drop),
    /// Of a trial before the machine serves.
    Tried {
        passed: bool,
        what: String,
    },
    /// The lab's, as the agent or the way to it says.
    Trouble {
        what: String,
    },
    /// Deadline past and no sign of the machine.
    Gone {
        what: String,
    },
    Cancelled,
}

impl Ending {
    fn ended_by(&self) -> &'static str {
        match self {
            Ending::Built { .. }
            | Ending::BuildFailed { .. }
            | Ending::Measured { .. }
            | Ending::BootFailed { .. }
            | Ending::BenchmarkFailed { .. }
            | Ending::Dropped(_)
            | Ending::Tried { .. } => "report",
            Ending::Trouble { .. } => "trouble",
            Ending::Gone { .. } => "gone",
            Ending::Cancelled => "cancel",
        }
    }

    fn trouble(&self) -> Option<String> {
        match self {
            Ending::Trouble { what } | Ending::Gone { what } => Some(storable(what)),
            Ending::Built { .. }
            | Ending::BuildFailed { .. }
            | Ending::Measured { .. }
            | Ending::BootFailed { .. }
            | Ending::BenchmarkFailed { .. }
            | Ending::Dropped(_)
            | Ending::Tried { .. }
            | Ending::Cancelled => None,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finished {
    /// The facts are in the record.
    Recorded,
    /// It had ended before, and what it yields was known or is no longer asked for: kept as evidence.
    Evidence,
    /// The lease was lost, so its holder decides about the lab's trouble.
    NotOurs,
}

/// An attempt's row while its end is written.
struct Row {
    id: Uuid,
    held: bool,
    ours: bool,
    machine: String,
    report_known: bool,
}

impl Store {
    /// Writes the end of an attempt. Idempotent: a second time it changes nothing. A report is a fact whoever
    /// brings it, also after the attempt was given up, as long as its job has no outcome; the lab's trouble is
    /// only believed from the carrier that holds the lease.
    pub async fn finish(
        &self,
        attempt: Uuid,
        carrier: &str,
        report: Option<&Value>,
        ending: &Ending,
    ) -> Result<Finished> {
        let mut tx = self.pool.begin().await?;
        let ids = sqlx::query!(
            "select a.job_id, a.build_id, a.machine as \"machine!\", j.bisection_id as \"bisection_id?\"
             from attempts a left join jobs j on j.id = a.job_id where a.id = $1",
            attempt
        )
        .fetch_one(&mut *tx)
        .await?;
        if let Some(bisection) = ids.bisection_id {
            sqlx::query!(
                "select id from bisections where id = $1 for no key update",
                bisection
            )
            .fetch_one(&mut *tx)
            .await?;
        }
        sqlx::query!(
            "select name from machines where name = $1 for no key update",
            ids.machine
        )
        .fetch_one(&mut *tx)
        .await?;
        let job = match ids.job_id {
            Some(job) => Some(lock_job(&mut tx, job).await?),
            None => None,
        };
        if let Some(build) = ids.build_id {
            sqlx::query!("select id from builds where id = $1 for no key update", build)
                .fetch_one(&mut *tx)
                .await?;
        }
        let a = sqlx::query!(
            r#"select state = 'held' as "held!", coalesce(carrier = $2, false) as "ours!",
                      report is not null as "report_known!"
               from attempts where id = $1 for no key update"#,
            attempt,
            carrier
        )
        .fetch_one(&mut *tx)
        .await?;
        let row = Row {
            id: attempt,
            held: a.held,
            ours: a.ours,
            machine: ids.machine,
            report_known: a.report_known,
        };
        let finished = match (&job, ids.build_id) {
            (Some(job), _) => finish_job(&mut tx, &row, job, report, ending).await?,
            (None, Some(build)) => finish_build(&mut tx, &row, build, report, ending).await?,
            (None, None) => finish_trial(&mut tx, attempt, carrier, report, ending).await?,
        };
        ring(&mut tx).await?;
        tx.commit().await?;
        Ok(finished)
    }
}

/// May this ending still say anything? `None`: yes.
fn barred(row: &Row, ending: &Ending) -> Option<Finished> {
    let by_report = ending.ended_by() == "report";
    if !row.held && (!by_report || row.report_known) {
        return Some(Finished::Evidence);
    }
    if row.held && !row.ours && matches!(ending, Ending::Trouble { .. } | Ending::Gone { .. }) {
        return Some(Finished::NotOurs);
    }
    None
}

async fn end_attempt(
    db: &mut PgConnection,
    row: &Row,
    report: Option<&Value>,
    ending: &Ending,
) -> Result<()> {
    let report = report.cloned().map(storable_json);
    sqlx::query!(
        "update attempts set state = 'done', ended_at = coalesce(ended_at, now()), ended_by = coalesce(ended_by, $2),
                trouble = coalesce(trouble, $3), report = coalesce(report, $4), carried_until = null, phase = null
         where id = $1",
        row.id,
        ending.ended_by(),
        ending.trouble(),
        report
    )
    .execute(db)
    .await?;
    Ok(())
}

fn pause_s(failures: i32) -> f64 {
    FIRST_PAUSE_S * 4f64.powi(failures.clamp(0, 5))
}
