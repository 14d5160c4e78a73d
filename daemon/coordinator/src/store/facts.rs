//! How an attempt ends: its facts and what follows from them, in one transaction, once.
//!
//! Three troubles, three forms: the kernel's is an observation, the lab's a retry and at the limit `lost`, the
//! user's a cancelled job. Locks in the order of `attempts`.

use super::builds::BUILD_TROUBLES_LIMIT;
use super::machines::{lost_one, proved_well};
use super::{Result, Store, ring, say, storable, storable_json};
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

/// Attempts of a job that may end by the lab's trouble before it is `lost`.
const JOB_TROUBLES_LIMIT: i32 = 3;
/// Failed boots in a row of an image that never booted before it counts as not booting: one may be an accident.
const FAILED_BOOTS_LIMIT: i64 = 2;
/// The same of an image that has booted: it can, so it is flaky, and a flaky boot says nothing about speed.
/// One that fails one time in three is called unbootable with 1 in 81.
const FAILED_BOOTS_LIMIT_FLAKY: i64 = 4;
/// Failed benchmarks in a row before the benchmark counts as not running on this kernel.
const FAILED_BENCHMARKS_LIMIT: i64 = 2;
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
            | Ending::BenchmarkFailed { .. } => "report",
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

struct JobRow {
    id: Uuid,
    bisection: Uuid,
    kernel_key: String,
    lane: i32,
    done: bool,
    failures: i32,
    case_digest: String,
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
            (None, None) => Finished::Evidence,
        };
        ring(&mut tx).await?;
        tx.commit().await?;
        Ok(finished)
    }
}

async fn lock_job(db: &mut PgConnection, job: Uuid) -> Result<JobRow> {
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

async fn finish_build(
    db: &mut PgConnection,
    row: &Row,
    build: Uuid,
    report: Option<&Value>,
    ending: &Ending,
) -> Result<Finished> {
    if let Some(no) = barred(row, ending) {
        return Ok(no);
    }
    end_attempt(db, row, report, ending).await?;
    let known = sqlx::query!(
        "select state, kernel_key, failures from builds where id = $1",
        build
    )
    .fetch_one(&mut *db)
    .await?;
    if known.state == "built" || known.state == "failed" {
        return Ok(Finished::Evidence);
    }
    let short = super::jobs::short_key(&known.kernel_key);
    let said = match ending {
        Ending::Built {
            image,
            wall_s,
            config_changes,
        } => {
            keep_image(db, image).await?;
            sqlx::query!(
                "update builds set state = 'built', image_id = $2, wall_s = $3, config_changes = $4, ended_at = now()
                 where id = $1",
                build,
                image.id,
                *wall_s,
                config_changes
            )
            .execute(&mut *db)
            .await?;
            proved_well(db, &row.machine).await?;
            Some((
                "built",
                format!("{short} built on {} in {wall_s:.1} s", row.machine),
            ))
        }
        Ending::BuildFailed { failure, wall_s } => {
            sqlx::query!(
                "update builds set state = 'failed', failure = $2, wall_s = $3, ended_at = now() where id = $1",
                build,
                storable_json(failure.clone()),
                *wall_s
            )
            .execute(&mut *db)
            .await?;
            proved_well(db, &row.machine).await?;
            None // settling the jobs that wait for it says so
        }
        Ending::Trouble { what } | Ending::Gone { what } => {
            let pause_s = pause_s(known.failures);
            sqlx::query!(
                "update builds set state = 'wanted', failures = failures + 1,
                        not_before = now() + make_interval(secs => $2)
                 where id = $1",
                build,
                pause_s
            )
            .execute(&mut *db)
            .await?;
            if known.failures + 1 >= BUILD_TROUBLES_LIMIT {
                lost_one(db, &row.machine).await?;
            }
            Some(("trouble", format!("building {short} on {}: {what}", row.machine)))
        }
        Ending::Cancelled => {
            sqlx::query!("update builds set state = 'wanted' where id = $1", build)
                .execute(&mut *db)
                .await?;
            None
        }
        Ending::Measured { .. } | Ending::BootFailed { .. } | Ending::BenchmarkFailed { .. } => {
            sqlx::query!(
                "update builds set state = 'wanted', failures = failures + 1 where id = $1",
                build
            )
            .execute(&mut *db)
            .await?;
            Some((
                "trouble",
                format!("{} answered an order to build with a measurement", row.machine),
            ))
        }
    };
    let wishers = sqlx::query_scalar!(
        "update bisections set record_version = record_version + 1
         where state = 'open' and id in (select bisection_id from wishes where build_id = $1) returning id",
        build
    )
    .fetch_all(&mut *db)
    .await?;
    if let Some((kind, text)) = said {
        for bisection in wishers {
            say(db, bisection, kind, &text).await?;
        }
    }
    Ok(Finished::Recorded)
}

async fn keep_image(db: &mut PgConnection, image: &NewImage) -> Result<()> {
    sqlx::query!(
        "insert into images (id, kind, arch, digest, build_id, release, manifest)
         values ($1, $2, $3, $4, $5, $6, $7) on conflict (id) do nothing",
        image.id,
        image.kind,
        image.arch,
        image.digest,
        image.build_id,
        image.release,
        image.manifest
    )
    .execute(db)
    .await?;
    Ok(())
}

async fn finish_job(
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
    let on = format!("{} on {}", super::jobs::short_key(&job.kernel_key), row.machine);
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
        Ending::BootFailed { boot } => {
            let fault = boot
                .fault
                .as_ref()
                .and_then(|f| f["fault"].as_str())
                .unwrap_or("no boot")
                .to_string();
            let kept = keep_boot(db, row, job, boot).await?;
            proved_well(db, &row.machine).await?;
            let failed = sqlx::query!(
                r#"select count(*) filter (where a.job_id = $2 and o.outcome = 'failed') as "here!",
                          coalesce(bool_or(o.outcome = 'booted'), false) as "booted!"
                   from boots o left join attempts a on a.id = o.attempt_id where o.image_id = $1"#,
                boot.image_id,
                job.id
            )
            .fetch_one(&mut *db)
            .await?;
            let limit = if failed.booted {
                FAILED_BOOTS_LIMIT_FLAKY
            } else {
                FAILED_BOOTS_LIMIT
            };
            if failed.here >= limit {
                observe(db, row, job, &Value::from("boot_failed"), Some(kept), 0.0).await?;
                say(
                    db,
                    job.bisection,
                    "failed",
                    &format!("{on} does not boot ({fault})"),
                )
                .await?;
            } else {
                again(db, job, 0.0).await?;
                say(
                    db,
                    job.bisection,
                    "retry",
                    &format!("{on} did not boot ({fault}), trying once more"),
                )
                .await?;
            }
        }
        Ending::BenchmarkFailed { boot, sample, what } => {
            let kept = keep_boot(db, row, job, boot).await?;
            if let Some(sample) = sample {
                keep_sample(db, kept, job, sample).await?;
            }
            proved_well(db, &row.machine).await?;
            let failed = sqlx::query_scalar!(
                r#"select count(*) as "n!" from attempts a join boots o on o.attempt_id = a.id
                   where a.job_id = $1 and a.ended_by = 'report' and o.outcome = 'booted'"#,
                job.id
            )
            .fetch_one(&mut *db)
            .await?;
            if failed >= FAILED_BENCHMARKS_LIMIT {
                observe(db, row, job, &Value::from("benchmark_failed"), Some(kept), 0.0).await?;
                say(
                    db,
                    job.bisection,
                    "failed",
                    &format!("{on}: the benchmark fails: {what}"),
                )
                .await?;
            } else {
                again(db, job, 0.0).await?;
                say(
                    db,
                    job.bisection,
                    "retry",
                    &format!("{on}: {what}; trying once more"),
                )
                .await?;
            }
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
        Ending::Cancelled => {
            sqlx::query!(
                "update jobs set state = 'cancelled', ended_at = now() where id = $1",
                job.id
            )
            .execute(&mut *db)
            .await?;
            raise(db, job.bisection).await?;
        }
        Ending::Built { .. } | Ending::BuildFailed { .. } => {
            sqlx::query!("update jobs set failures = failures + 1 where id = $1", job.id)
                .execute(&mut *db)
                .await?;
            again(db, job, pause_s(job.failures)).await?;
            say(
                db,
                job.bisection,
                "trouble",
                &format!("{on}: answered an order to measure with a build"),
            )
            .await?;
        }
    }
    Ok(Finished::Recorded)
}

fn pause_s(failures: i32) -> f64 {
    FIRST_PAUSE_S * 4f64.powi(failures.clamp(0, 5))
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
