//! Trials of a machine in its lane, before it serves. What a trial means is not known here, only which were passed.

use super::attempts::{LEASE_S, raise_token};
use super::facts::{Ending, Finished};
use super::machines::raise_all_on;
use super::{Result, Store, ring, storable, storable_json};
use serde_json::{Value, json};
use sqlx::PgConnection;
use uuid::Uuid;

/// A machine in its present lane.
#[derive(Clone, Debug)]
pub struct Lane {
    pub number: i32,
    pub method: Value,
    /// `{tries: [{trial, passed, what, seconds, at}], facts}`.
    pub admission: Option<Value>,
}

impl Store {
    pub async fn lane_of(&self, machine: &str) -> Result<Option<Lane>> {
        let lane = sqlx::query_as!(
            Lane,
            "select l.number, l.description as method, l.admission from machines m
             join lanes l on l.machine = m.name and l.number = m.lane where m.name = $1",
            machine
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(lane)
    }

    /// None where another coordinator was quicker.
    pub async fn grant_trial(
        &self,
        machine: &str,
        lane: i32,
        trial: &str,
        deadline_s: f64,
        carrier: &str,
    ) -> Result<Option<Uuid>> {
        let mut tx = self.pool.begin().await?;
        let Some(token) = raise_token(&mut tx, machine, Some(lane)).await? else {
            return Ok(None);
        };
        let attempt = Uuid::now_v7();
        sqlx::query!(
            "insert into attempts (id, trial, lane, machine, token, state, carrier, carried_until, deadline_at)
             values ($1, $2, $3, $4, $5, 'held', $6, now() + make_interval(secs => $7),
                     now() + make_interval(secs => $8))",
            attempt,
            trial,
            lane,
            machine,
            token,
            carrier,
            LEASE_S,
            deadline_s
        )
        .execute(&mut *tx)
        .await?;
        ring(&mut tx).await?;
        tx.commit().await?;
        Ok(Some(attempt))
    }

    /// Tried anew from the start, out of quarantine. False where no such machine serves.
    pub async fn admit_again(&self, machine: &str) -> Result<bool> {
        let mut tx = self.pool.begin().await?;
        raise_all_on(&mut tx, machine).await?;
        let known = sqlx::query!(
            "update machines set state = 'idle', reason = null, lost_in_a_row = 0, updated_at = now()
             where name = $1 and state <> 'retired'",
            machine
        )
        .execute(&mut *tx)
        .await?
        .rows_affected();
        sqlx::query!(
            "update lanes l set admission = null from machines m
             where m.name = $1 and l.machine = m.name and l.number = m.lane",
            machine
        )
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(known > 0)
    }
}

/// The end of a trial, once: a line of its lane's admission.
pub(super) async fn finish_trial(
    db: &mut PgConnection,
    attempt: Uuid,
    carrier: &str,
    report: Option<&Value>,
    ending: &Ending,
) -> Result<Finished> {
    let (passed, what, by) = match ending {
        Ending::Tried { passed, what } => (*passed, what.clone(), "report"),
        Ending::Trouble { what } => (false, what.clone(), "trouble"),
        Ending::Gone { what } => (false, what.clone(), "gone"),
        Ending::Cancelled => (false, "cancelled".into(), "cancel"),
        Ending::Built { .. }
        | Ending::BuildFailed { .. }
        | Ending::Measured { .. }
        | Ending::BootFailed { .. }
        | Ending::Dropped(_)
        | Ending::BenchmarkFailed { .. } => (false, "it was taken for something else".into(), "trouble"),
    };
    let ended = sqlx::query!(
        r#"update attempts set state = 'done', ended_at = now(), ended_by = $3, report = $4, carried_until = null,
                  phase = null, trouble = case when $5 then null else $6 end
           where id = $1 and state = 'held' and carrier = $2
           returning machine, lane as "lane!", trial as "trial!",
                     extract(epoch from now() - started_at)::float8 as "seconds!""#,
        attempt,
        carrier,
        by,
        report.cloned().map(storable_json),
        passed,
        storable(&what)
    )
    .fetch_optional(&mut *db)
    .await?;
    let Some(ended) = ended else {
        return Ok(Finished::NotOurs);
    };
    let line = json!({"trial": ended.trial, "passed": passed, "what": storable(&what), "seconds": ended.seconds.round()});
    sqlx::query!(
        r#"update lanes l set admission = jsonb_build_object(
               'tries', coalesce(l.admission->'tries', '[]') || ($3::jsonb || jsonb_build_object('at', now())),
               'facts', coalesce(m.probe->'boot', '{}'))
           from machines m where l.machine = $1 and l.number = $2 and m.name = l.machine"#,
        ended.machine,
        ended.lane,
        line
    )
    .execute(db)
    .await?;
    Ok(Finished::Recorded)
}
