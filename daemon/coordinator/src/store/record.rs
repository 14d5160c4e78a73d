//! Reads the record of one bisection, and writes a decision made from it.

use super::bisections::{Ruling, decide, still_at};
use super::builds::{Wish, replace_wishes};
use super::jobs::{Want, replace_wanted};
use super::{Result, Store};
use serde_json::Value;
use uuid::Uuid;

#[derive(Clone, Debug)]
pub struct Observed {
    pub id: i64,
    pub kernel: Value,
    pub machine: String,
    pub lane: i32,
    pub replicate: i32,
    pub at_s: f64,
    pub outcome: Value,
}

/// The user's latest word on a commit.
#[derive(Clone, Debug)]
pub struct Overridden {
    pub commit: String,
    pub verdict: String,
}

/// What a boot and a run took, of one sample.
#[derive(Clone, Copy, Debug)]
pub struct Spent {
    pub attempt_s: f64,
    pub runs_s: f64,
    pub runs: i64,
}

/// What a report says besides the plan.
#[derive(Clone, Debug)]
pub struct Account {
    pub good_rev: String,
    pub bad_rev: String,
    pub case: Value,
    /// Attempts that ended with a report.
    pub builds: i64,
    pub boots: i64,
    pub compiler: Option<String>,
}

#[derive(Clone, Debug)]
pub struct Decision<'a> {
    pub bisection: Uuid,
    /// The version of the record it was made from.
    pub version: i64,
    pub planner_version: u32,
    pub plan: Value,
    pub ruling: Ruling,
    pub wants: &'a [Want],
    pub wishes: &'a [Wish],
}

impl Store {
    pub async fn observations(&self, bisection: Uuid) -> Result<Vec<Observed>> {
        let rows = sqlx::query_as!(
            Observed,
            r#"select o.id, o.kernel, o.machine, o.lane, o.replicate, o.outcome,
                      extract(epoch from o.observed_at - b.created_at)::float8 as "at_s!"
               from observations o join bisections b on b.id = o.bisection_id
               where o.bisection_id = $1 order by o.id"#,
            bisection
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows)
    }

    pub async fn overrides(&self, bisection: Uuid) -> Result<Vec<Overridden>> {
        let rows = sqlx::query_as!(
            Overridden,
            r#"select commit_id as "commit", verdict
               from (select distinct on (commit_id) commit_id, verdict from overrides
                     where bisection_id = $1 order by commit_id, id desc) latest
               where verdict <> 'none' order by commit_id"#,
            bisection
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows)
    }

    /// What measured jobs of this bisection took.
    pub async fn spent(&self, bisection: Uuid) -> Result<Vec<Spent>> {
        let rows = sqlx::query_as!(
            Spent,
            r#"select extract(epoch from a.ended_at - a.started_at)::float8 as "attempt_s!",
                      coalesce(r.wall_s, 0) as "runs_s!", coalesce(r.n, 0) as "runs!"
               from observations o
               join boots t on t.id = o.boot_id and t.outcome = 'booted'
               join attempts a on a.id = t.attempt_id and a.ended_by = 'report'
               join samples s on s.boot_id = t.id
               cross join lateral (select sum((run->>'wall_s')::float8) as wall_s, count(*) as n
                                   from jsonb_array_elements(s.raw) run where not (run->>'warmup')::boolean) r
               where o.bisection_id = $1 order by o.id"#,
            bisection
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows)
    }

    pub async fn account(&self, bisection: Uuid) -> Result<Account> {
        let row = sqlx::query_as!(
            Account,
            r#"select b.good_rev, b.bad_rev, c.body as "case",
                      (select count(*) from attempts a
                       where a.bisection_id = b.id and a.build_id is not null and a.ended_by = 'report') as "builds!",
                      (select count(*) from boots t join attempts a on a.id = t.attempt_id
                       where a.bisection_id = b.id) as "boots!",
                      (select i.manifest->>'compiler' from observations o
                       join boots t on t.id = o.boot_id join images i on i.id = t.image_id
                       where o.bisection_id = b.id order by o.id desc limit 1) as compiler
               from bisections b join definitions c on c.digest = b.case_digest where b.id = $1"#,
            bisection
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(row)
    }

    /// Writes a decision with all that follows from it, if the record has not moved since: else nothing, and
    /// the plan is made again.
    pub async fn decide(&self, decision: &Decision<'_>) -> Result<bool> {
        let d = decision;
        let mut tx = self.pool.begin().await?;
        if !still_at(&mut tx, d.bisection, d.version).await? {
            return Ok(false);
        }
        if let Ruling::GoesOn { .. } = d.ruling {
            replace_wanted(&mut tx, d.bisection, d.wants).await?;
            replace_wishes(&mut tx, d.bisection, d.wishes).await?;
        }
        decide(
            &mut tx,
            d.bisection,
            d.version,
            d.planner_version,
            &d.plan,
            &d.ruling,
        )
        .await?;
        tx.commit().await?;
        Ok(true)
    }

    /// The user's word on a commit: a fact like the others.
    pub async fn override_commit(
        &self,
        bisection: Uuid,
        commit: &str,
        verdict: &str,
        author: &str,
    ) -> Result<bool> {
        let mut tx = self.pool.begin().await?;
        let open = sqlx::query!(
            "update bisections set record_version = record_version + 1 where id = $1 and state = 'open'",
            bisection
        )
        .execute(&mut *tx)
        .await?
        .rows_affected();
        if open == 0 {
            return Ok(false);
        }
        sqlx::query!(
            "insert into overrides (bisection_id, commit_id, verdict, author) values ($1, $2, $3, $4)",
            bisection,
            commit,
            verdict,
            author
        )
        .execute(&mut *tx)
        .await?;
        super::say(
            &mut tx,
            bisection,
            "override",
            &format!("{commit}: {verdict}, says {author}"),
        )
        .await?;
        tx.commit().await?;
        Ok(true)
    }
}
