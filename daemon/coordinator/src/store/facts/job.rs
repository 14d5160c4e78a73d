//! The end of an attempt at a job: its boot and sample, and the job's one outcome or its next attempt.

use super::{BootFact, Drop, Ending, Finished, Row, Sample, barred, end_attempt, pause_s};
use crate::store::jobs::short_key;
use crate::store::machines::{lost_one, proved_well};
use crate::store::{Result, say, storable, storable_json};
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

/// Attempts of a job that may end by the lab's trouble before it is `lost`.
const JOB_TROUBLES_LIMIT: i32 = 3;
/// Boots of a job that may be dropped before it is `lost`: a disturbance is shorter than a machine's trouble, so it is
/// given more tries.
const JOB_DROPS_LIMIT: i64 = 5;
/// After a dropped boot, so that a short disturbance is over.
const DROP_PAUSE_S: f64 = 30.0;

pub(super) struct JobRow {
    id: Uuid,
    bisection: Uuid,
    kernel_key: String,
    lane: i32,
    done: bool,
    failures: i32,
    case_digest: String,
}

pub(super) async fn lock_job(db: &mut PgConnection, job: Uuid) -> Result<JobRow> {
    let j = sqlx::query!(
        r#"select j.id, j.bisection_id, j.kernel_key, j.lane, j.state = 'done' as "done!", j.failures, b.case_digest
           from jobs j join bisections b on b.id = j.bisection_id where j.id = $1 for no key update of j"#,
        job
    )
    .fetch_one(db)
    .await?;
    Ok(JobRow {
        id: j.id,
        bisection: j.bisection_id,
        kernel_key: j.kernel_key,
        lane: j.lane,
        done: j.done,
        failures: j.failures,
        case_digest: j.case_digest,
    })
}

pub(super) async fn finish_job(
    db: &mut PgConnection,
    row: &Row,
    job: &JobRow,
    report: Option<&Value>,
    ending: &Ending,
) -> Result<Finished> {
    if let Some(no) = barred(row, ending) {
        return Ok(no);
    }
    end_attempt(db, row, report, ending).await?;
    if job.done {
        return Ok(Finished::Evidence);
    }
    let on = format!("{} on {}", short_key(&job.kernel_key), row.machine);
    match ending {
        Ending::Measured {
            boot,
            sample,
            outcome,
            first_run_s,
            said,
        } => {
            let boot = keep_boot(db, row, job, boot).await?;
            keep_sample(db, boot, job, sample).await?;
            proved_well(db, &row.machine).await?;
            observe(db, row, job, outcome, Some(boot), *first_run_s).await?;
            say(db, job.bisection, "measured", &format!("{on}: {said}")).await?;
        }
        // The kernel's failures are facts at once; whether one is tried again is the planner's to say.
        Ending::BootFailed { boot } => {
            let fault = boot
                .fault
                .as_ref()
                .and_then(|f| f["fault"].as_str())
                .unwrap_or("no boot")
                .to_string();
            let kept = keep_boot(db, row, job, boot).await?;
            proved_well(db, &row.machine).await?;
            observe(db, row, job, &Value::from("boot_failed"), Some(kept), 0.0).await?;
            say(
                db,
                job.bisection,
                "failed",
                &format!("{on} did not boot ({fault})"),
            )
            .await?;
        }
        Ending::BenchmarkFailed { boot, sample, what } => {
            let kept = keep_boot(db, row, job, boot).await?;
            if let Some(sample) = sample {
                keep_sample(db, kept, job, sample).await?;
            }
            proved_well(db, &row.machine).await?;
            observe(db, row, job, &Value::from("benchmark_failed"), Some(kept), 0.0).await?;
            say(
                db,
                job.bisection,
                "failed",
                &format!("{on}: the benchmark failed: {what}"),
            )
            .await?;
        }
        Ending::Trouble { what } | Ending::Gone { what } => {
            sqlx::query!("update jobs set failures = failures + 1 where id = $1", job.id)
                .execute(&mut *db)
                .await?;
            if job.failures + 1 >= JOB_TROUBLES_LIMIT {
                observe(db, row, job, &Value::from("lost"), None, 0.0).await?;
                lost_one(db, &row.machine).await?;
                say(
                    db,
                    job.bisection,
                    "lost",
                    &format!("{on}: given up, the lab's trouble: {what}"),
                )
                .await?;
            } else {
                again(db, job, pause_s(job.failures)).await?;
                say(
                    db,
                    job.bisection,
                    "trouble",
                    &format!("{on}: {what}; trying again"),
                )
                .await?;
            }
        }
        Ending::Dropped(drop) => {
            let dropped = keep_drop(db, row, job, drop).await?;
            let Drop { what, .. } = drop;
            if dropped >= JOB_DROPS_LIMIT {
                observe(db, row, job, &Value::from("lost"), None, 0.0).await?;
                let text = format!("{on}: given up after {dropped} dropped boots: {what}");
                say(db, job.bisection, "lost", &text).await?;
            } else {
                again(db, job, DROP_PAUSE_S).await?;
                let text = format!("{on}: the boot is dropped: {what}; trying again");
                say(db, job.bisection, "dropped", &text).await?;
            }
        }
        Ending::Cancelled => {
            sqlx::query!(
                "update jobs set state = 'cancelled', ended_at = now() where id = $1",
                job.id
            )
            .execute(&mut *db)
            .await?;
            raise(db, job.bisection).await?;
        }
        Ending::Built { .. } | Ending::BuildFailed { .. } | Ending::Tried { .. } => {
            sqlx::query!("update jobs set failures = failures + 1 where id = $1", job.id)
                .execute(&mut *db)
                .await?;
            again(db, job, pause_s(job.failures)).await?;
            say(
                db,
                job.bisection,
                "trouble",
                &format!("{on}: answered an order to measure with something else"),
            )
            .await?;
        }
    }
    Ok(Finished::Recorded)
}

/// Another attempt, if its search still wants it.
async fn again(db: &mut PgConnection, job: &JobRow, pause_s: f64) -> Result<()> {
    sqlx::query!(
        "update jobs j set state = case when b.state = 'open' then 'wanted' else 'cancelled' end,
                ended_at = case when b.state = 'open' then null else now() end,
                not_before = now() + make_interval(secs => $2)
         from bisections b where b.id = j.bisection_id and j.id = $1",
        job.id,
        pause_s
    )
    .execute(db)
    .await?;
    Ok(())
}

async fn raise(db: &mut PgConnection, bisection: Uuid) -> Result<()> {
    sqlx::query!(
        "update bisections set record_version = record_version + 1 where id = $1",
        bisection
    )
    .execute(db)
    .await?;
    Ok(())
}

async fn keep_boot(db: &mut PgConnection, row: &Row, job: &JobRow, boot: &BootFact) -> Result<Uuid> {
    // The machine's row is locked, so numbers of its boots are given out one at a time.
    let id = sqlx::query_scalar!(
        r#"insert into boots (id, attempt_id, image_id, machine, lane, number, started_at, boot_id, outcome, fault,
                              proof, environment, seconds)
           select $1, $2, $3, $4, $5,
                  (select coalesce(max(number) + 1, 0) from boots where image_id = $3 and machine = $4 and lane = $5),
                  a.started_at, $6, case when $7::jsonb is null then 'booted' else 'failed' end, $7, $8, $9, $10
           from attempts a where a.id = $2
           returning id"#,
        Uuid::now_v7(),
        row.id,
        boot.image_id,
        row.machine,
        job.lane,
        storable(&boot.boot_id),
        boot.fault.clone().map(storable_json),
        boot.proof.clone().map(storable_json),
        object(&boot.environment),
        object(&boot.seconds)
    )
    .fetch_one(db)
    .await?;
    Ok(id)
}

/// How many boots of this job were dropped by now.
async fn keep_drop(db: &mut PgConnection, row: &Row, job: &JobRow, drop: &Drop) -> Result<i64> {
    sqlx::query!(
        "insert into drops (attempt_id, bisection_id, job_id, kernel_key, kernel, machine, lane, replicate, reason,
                            what, environment)
         select $1, j.bisection_id, j.id, j.kernel_key, j.kernel, $3, j.lane, j.replicate, $4, $5, $6
         from jobs j where j.id = $2",
        row.id,
        job.id,
        row.machine,
        drop.reason,
        storable(&drop.what),
        object(&drop.environment)
    )
    .execute(&mut *db)
    .await?;
    let dropped = sqlx::query_scalar!(r#"select count(*) as "n!" from drops where job_id = $1"#, job.id)
        .fetch_one(db)
        .await?;
    Ok(dropped)
}

fn object(value: &Value) -> Value {
    if value.is_object() {
        storable_json(value.clone())
    } else {
        Value::Object(Default::default())
    }
}

async fn keep_sample(db: &mut PgConnection, boot: Uuid, job: &JobRow, sample: &Sample) -> Result<()> {
    sqlx::query!(
        "insert into samples (boot_id, case_digest, parser_version, values, raw) values ($1, $2, $3, $4, $5)",
        boot,
        job.case_digest,
        sample.parser_version,
        sample.values,
        storable_json(sample.raw.clone())
    )
    .execute(db)
    .await?;
    Ok(())
}

/// The one outcome of a job. Another attempt of it that still runs has nothing more to say.
async fn observe(
    db: &mut PgConnection,
    row: &Row,
    job: &JobRow,
    outcome: &Value,
    boot: Option<Uuid>,
    first_run_s: f64,
) -> Result<()> {
    sqlx::query!(
        "insert into observations (bisection_id, job_id, kernel_key, kernel, machine, lane, replicate, outcome,
                                   boot_id, observed_at)
         select j.bisection_id, j.id, j.kernel_key, j.kernel, j.machine, j.lane, j.replicate, $3, $4,
                a.started_at + make_interval(secs => $5)
         from jobs j, attempts a where j.id = $1 and a.id = $2",
        job.id,
        row.id,
        outcome,
        boot,
        first_run_s
    )
    .execute(&mut *db)
    .await?;
    sqlx::query!(
        "update jobs set state = 'done', ended_at = now() where id = $1",
        job.id
    )
    .execute(&mut *db)
    .await?;
    sqlx::query!(
        "update attempts set cancel_asked = true where job_id = $1 and state = 'held'",
        job.id
    )
    .execute(&mut *db)
    .await?;
    raise(db, job.bisection).await
}
