//! Jobs: what a bisection wants measured, and which of it a machine could do now.

use super::{Result, Store};
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

/// A job a plan asks for.
#[derive(Clone, Debug)]
pub struct Want {
    pub kernel_key: String,
    pub kernel: Value,
    pub machine: String,
    pub lane: i32,
    pub replicate: i32,
    pub runs: i32,
}

/// A job that is being carried.
#[derive(Clone, Debug)]
pub struct Pending {
    pub kernel: Value,
    pub machine: String,
    pub lane: i32,
    pub replicate: i32,
    pub runs: i32,
}

/// A wanted job whose image is there: the first one of its bisection on a machine.
#[derive(Clone, Debug)]
pub struct JobClaim {
    pub bisection_id: Uuid,
    pub job_id: Uuid,
    pub priority: i32,
    pub waited_s: f64,
    pub runs: i32,
    pub case: Value,
    pub lane: Value,
}

/// As people say a kernel: the first 12 characters of its commit, and its variants.
pub fn short_key(kernel_key: &str) -> String {
    let (commit, variants) = match kernel_key.find('+') {
        Some(at) => kernel_key.split_at(at),
        None => (kernel_key, ""),
    };
    format!("{}{variants}", commit.get(..12).unwrap_or(commit))
}

impl Store {
    pub async fn pending(&self, bisection: Uuid) -> Result<Vec<Pending>> {
        let rows = sqlx::query_as!(
            Pending,
            "select kernel, machine, lane, replicate, runs from jobs
             where bisection_id = $1 and state = 'held' order by id",
            bisection
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows)
    }

    /// What this machine could measure now, one job a bisection. A bisection with news is left out: its wishes
    /// may be stale until it is planned again.
    pub async fn job_claims(&self, machine: &str) -> Result<Vec<JobClaim>> {
        let rows = sqlx::query_as!(
            JobClaim,
            r#"select distinct on (j.bisection_id) j.bisection_id, j.id as job_id, b.priority, j.runs,
                      c.body as "case", l.description as lane,
                      extract(epoch from now() - b.granted_at)::float8 as "waited_s!"
               from jobs j
               join bisections b on b.id = j.bisection_id and b.state = 'open'
                                    and b.planned_version = b.record_version
               join machines m on m.name = j.machine and m.lane = j.lane
               join lanes l on l.machine = m.name and l.number = m.lane
               join builds k on k.tree = b.tree and k.kernel_key = j.kernel_key and k.recipe_digest = b.recipe_digest
                                and k.cc_digest = coalesce(b.cc_digest, '') and k.state = 'built'
               join definitions c on c.digest = b.case_digest
               where j.machine = $1 and j.state = 'wanted' and j.not_before <= now()
               order by j.bisection_id, j.place, j.replicate"#,
            machine
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows)
    }

    /// Does anybody wait for this machine, even if the image is not there yet?
    pub async fn wanted_on(&self, machine: &str) -> Result<bool> {
        let wanted = sqlx::query_scalar!(
            r#"select exists (select 1 from jobs j join bisections b on b.id = j.bisection_id and b.state = 'open'
                              where j.machine = $1 and j.state = 'wanted') as "wanted!""#,
            machine
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(wanted)
    }
}

/// Replaces the wanted jobs of a bisection by these. A job that is held or done stays as it is.
pub(crate) async fn replace_wanted(db: &mut PgConnection, bisection: Uuid, wants: &[Want]) -> Result<()> {
    sqlx::query!(
        "update jobs set state = 'cancelled', ended_at = now() where bisection_id = $1 and state = 'wanted'",
        bisection
    )
    .execute(&mut *db)
    .await?;
    for (place, want) in wants.iter().enumerate() {
        sqlx::query!(
            "insert into jobs (id, bisection_id, kernel_key, kernel, machine, lane, replicate, runs, state, place)
             values ($1, $2, $3, $4, $5, $6, $7, $8, 'wanted', $9)
             on conflict (bisection_id, kernel_key, machine, lane, replicate)
             do update set state = 'wanted', runs = excluded.runs, place = excluded.place, ended_at = null
             where jobs.state = 'cancelled'",
            Uuid::now_v7(),
            bisection,
            want.kernel_key,
            want.kernel,
            want.machine,
            want.lane,
            want.replicate,
            want.runs,
            i32::try_from(place).unwrap_or(i32::MAX)
        )
        .execute(&mut *db)
        .await?;
    }
    Ok(())
}
