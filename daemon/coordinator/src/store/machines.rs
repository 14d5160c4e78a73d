//! Machines as the record knows them: their lane, their state, what a probe found.

use super::{Result, Store, ring};
use crate::case::Definition;
use serde_json::Value;
use uuid::Uuid;

/// A configured machine, as far as the record cares.
#[derive(Clone, Debug)]
pub struct Configured {
    pub name: String,
    /// Boot method and held settings: what its numbers depend on besides the image.
    pub lane: Definition,
}

/// A machine of a search, in its current lane.
#[derive(Clone, Debug)]
pub struct Seen {
    pub name: String,
    pub lane: i32,
    pub quarantined: bool,
    /// It holds a job of this very bisection. Work for others does not count: the wish waits its turn.
    pub busy: bool,
}

/// Lost jobs in a row after which a machine is not trusted any more: one or two can be a power cut or a cable,
/// and each stands for several attempts with growing pauses.
const LOST_IN_A_ROW_LIMIT: i32 = 3;

/// The mind's name of a machine: a changed machine is another one.
pub fn machine_id(name: &str, lane: i32) -> String {
    if lane == 1 {
        name.to_string()
    } else {
        format!("{name}#{lane}")
    }
}

/// The other way round.
pub fn machine_of(id: &str) -> Option<(&str, i32)> {
    match id.rsplit_once('#') {
        None => Some((id, 1)),
        Some((name, lane)) => Some((name, lane.parse().ok().filter(|lane| *lane > 1)?)),
    }
}

/// A machine's row, locked. Dropped or lifted, it is free again.
pub struct Fence {
    tx: sqlx::Transaction<'static, sqlx::Postgres>,
}

impl Fence {
    pub async fn lift(self) -> Result<()> {
        Ok(self.tx.commit().await?)
    }
}

impl Store {
    /// Brings the record in line with the configuration: new machines, machines whose settings changed (a new
    /// lane, whose level is measured anew), machines that are configured no more (retired, facts stay).
    pub async fn sync_machines(&self, configured: &[Configured]) -> Result<()> {
        let mut tx = self.pool.begin().await?;
        // Locks go in one order everywhere: bisections, machines, jobs and builds, attempts.
        sqlx::query!("select id from bisections where state = 'open' order by id for no key update")
            .fetch_all(&mut *tx)
            .await?;
        let mut changed = false;
        for m in configured {
            super::keep(&mut tx, &m.lane).await?;
            let fresh = sqlx::query!(
                "insert into machines (name, lane_digest, state) values ($1, $2, 'idle') on conflict do nothing",
                m.name,
                m.lane.digest
            )
            .execute(&mut *tx)
            .await?
            .rows_affected();
            let row = sqlx::query!(
                "select lane, lane_digest, state from machines where name = $1 for no key update",
                m.name
            )
            .fetch_one(&mut *tx)
            .await?;
            let opened = if row.lane_digest == m.lane.digest {
                row.lane
            } else {
                row.lane + 1
            };
            let back = row.state == "retired";
            if fresh == 0 && opened == row.lane && !back {
                continue;
            }
            changed = true;
            sqlx::query!(
                "update machines set lane = $2, lane_digest = $3, updated_at = now(),
                        state = case when state = 'retired' then 'idle' else state end
                 where name = $1",
                m.name,
                opened,
                m.lane.digest
            )
            .execute(&mut *tx)
            .await?;
            sqlx::query!(
                "insert into lanes (machine, number, digest, description) values ($1, $2, $3, $4)
                 on conflict do nothing",
                m.name,
                opened,
                m.lane.digest,
                m.lane.body
            )
            .execute(&mut *tx)
            .await?;
        }
        let names: Vec<String> = configured.iter().map(|m| m.name.clone()).collect();
        let retired = sqlx::query!(
            "update machines set state = 'retired', reason = null, updated_at = now()
             where state <> 'retired' and not (name = any($1))",
            &names
        )
        .execute(&mut *tx)
        .await?
        .rows_affected();
        if changed || retired > 0 {
            // Which machines there are is part of what a plan is made from.
            sqlx::query!("update bisections set record_version = record_version + 1 where state = 'open'")
                .execute(&mut *tx)
                .await?;
            ring(&mut tx).await?;
        }
        tx.commit().await?;
        Ok(())
    }

    /// The machines a bisection may use, retired ones left out.
    pub async fn machines_for(&self, bisection: Uuid) -> Result<Vec<Seen>> {
        let rows = sqlx::query_as!(
            Seen,
            r#"select m.name, m.lane, m.state = 'quarantined' as "quarantined!",
                      exists (select 1 from attempts a join jobs j on j.id = a.job_id
                              where a.machine = m.name and a.state = 'held' and j.bisection_id = $1) as "busy!"
               from machines m join bisections b on m.name = any(b.machines)
               where b.id = $1 and m.state <> 'retired' order by m.name"#,
            bisection
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows)
    }

    /// The machine's token goes on above the highest it has seen: a new database must not be fenced off for ever.
    pub async fn store_probe(&self, machine: &str, probe: &Value) -> Result<()> {
        let first = sqlx::query_scalar!(
            r#"update machines m set probe = $2::jsonb, probed_at = now(),
                      token = greatest(m.token, coalesce(($2::jsonb->>'token')::bigint, 0))
               from (select name, probe from machines where name = $1 for no key update) old
               where m.name = old.name returning old.probe is null as "first!""#,
            machine,
            probe
        )
        .fetch_optional(&self.pool)
        .await?;
        if first == Some(true) {
            self.notify().await?;
        }
        Ok(())
    }

    /// The latest probe of each of these machines that was ever probed.
    pub async fn probes(&self, machines: &[String]) -> Result<Vec<(String, Value)>> {
        let rows = sqlx::query!(
            r#"select name, probe as "probe!" from machines where name = any($1) and probe is not null order by name"#,
            machines
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows.into_iter().map(|r| (r.name, r.probe)).collect())
    }

    /// Idle machines not probed for `older_s` seconds. Marks them, so that one coordinator asks each.
    pub async fn take_unprobed(&self, machines: &[String], older_s: f64) -> Result<Vec<String>> {
        let rows = sqlx::query_scalar!(
            "update machines set probed_at = now()
             where name in (select name from machines m
                            where name = any($1) and state <> 'retired'
                              and (probed_at is null or probed_at < now() - make_interval(secs => $2))
                              and not exists (select 1 from attempts a where a.machine = m.name and a.state = 'held')
                            for no key update skip locked)
             returning name",
            machines,
            older_s
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows)
    }

    /// It did not answer: to be asked by the next sweep.
    pub async fn probe_again(&self, machine: &str) -> Result<()> {
        sqlx::query!("update machines set probed_at = null where name = $1", machine)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// While this stands nobody else is given the machine, ends its attempt, or holds another fence. None where the
    /// lease does not hold: then nothing may be done to the machine.
    pub async fn fence(&self, attempt: Uuid, carrier: &str) -> Result<Option<Fence>> {
        let mut tx = self.pool.begin().await?;
        sqlx::query!(
            "select name from machines where name = (select machine from attempts where id = $1) for no key update",
            attempt
        )
        .fetch_one(&mut *tx)
        .await?;
        let holds = sqlx::query_scalar!(
            r#"select exists (select 1 from attempts where id = $1 and carrier = $2 and state = 'held'
                              and carried_until > clock_timestamp()) as "holds!""#,
            attempt,
            carrier
        )
        .fetch_one(&mut *tx)
        .await?;
        Ok(holds.then_some(Fence { tx }))
    }

    /// Given nothing any more, until an administrator's word.
    pub async fn quarantine(&self, machine: &str, reason: &str) -> Result<()> {
        let mut tx = self.pool.begin().await?;
        raise_all_on(&mut tx, machine).await?;
        sqlx::query!(
            "update machines set state = 'quarantined', reason = $2, updated_at = now()
             where name = $1 and state = 'idle'",
            machine,
            super::storable(reason)
        )
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(())
    }

    /// Back to work, by an administrator's word.
    pub async fn unquarantine(&self, machine: &str) -> Result<bool> {
        let mut tx = self.pool.begin().await?;
        raise_all_on(&mut tx, machine).await?;
        let back = sqlx::query!(
            "update machines set state = 'idle', reason = null, lost_in_a_row = 0, updated_at = now()
             where name = $1 and state = 'quarantined'",
            machine
        )
        .execute(&mut *tx)
        .await?
        .rows_affected();
        tx.commit().await?;
        Ok(back > 0)
    }

    /// A machine that lost too many jobs in a row is given nothing any more; its searches plan without it.
    pub async fn quarantine_losers(&self) -> Result<Vec<String>> {
        let losers = sqlx::query_scalar!(
            "select name from machines where state = 'idle' and lost_in_a_row >= $1",
            LOST_IN_A_ROW_LIMIT
        )
        .fetch_all(&self.pool)
        .await?;
        for machine in &losers {
            let mut tx = self.pool.begin().await?;
            raise_all_on(&mut tx, machine).await?;
            sqlx::query!(
                "update machines set state = 'quarantined', updated_at = now(),
                        reason = lost_in_a_row || ' jobs in a row were lost there'
                 where name = $1 and state = 'idle'",
                machine
            )
            .execute(&mut *tx)
            .await?;
            tx.commit().await?;
        }
        Ok(losers)
    }
}

/// The machine did what it was told.
pub(crate) async fn proved_well(db: &mut sqlx::PgConnection, machine: &str) -> Result<()> {
    sqlx::query!(
        "update machines set lost_in_a_row = 0 where name = $1 and lost_in_a_row > 0",
        machine
    )
    .execute(db)
    .await?;
    Ok(())
}

/// One more job lost there.
pub(crate) async fn lost_one(db: &mut sqlx::PgConnection, machine: &str) -> Result<()> {
    sqlx::query!(
        "update machines set lost_in_a_row = lost_in_a_row + 1 where name = $1",
        machine
    )
    .execute(db)
    .await?;
    Ok(())
}

pub(super) async fn raise_all_on(db: &mut sqlx::PgConnection, machine: &str) -> Result<()> {
    sqlx::query!(
        "update bisections set record_version = record_version + 1 where state = 'open' and $1 = any(machines)",
        machine
    )
    .execute(&mut *db)
    .await?;
    ring(db).await
}
