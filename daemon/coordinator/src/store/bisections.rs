//! A bisection's row: submitted, joined, planned, concluded or cancelled. Each change of state is one function.

use super::notices::{Words, owe};
use super::{Result, Store, keep, ring, say};
use crate::case::{Definition, sha256_hex};
use serde_json::{Value, json};
use uuid::Uuid;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Channel {
    Mail,
    Webhook,
}

impl Channel {
    pub fn word(self) -> &'static str {
        match self {
            Channel::Mail => "mail",
            Channel::Webhook => "webhook",
        }
    }
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Recipient {
    pub channel: Channel,
    pub address: String,
}

/// A request that was checked against the tree and the configuration.
#[derive(Clone, Debug)]
pub struct Submission {
    /// Chosen by the caller, so that the commits can be pinned before the row exists.
    pub id: Uuid,
    pub tree: String,
    /// As typed.
    pub good_rev: String,
    pub bad_rev: String,
    pub good_commit: String,
    pub bad_commit: String,
    pub first_parent: bool,
    pub case: Definition,
    pub recipe: Definition,
    pub policy: Definition,
    /// Names of configured machines.
    pub machines: Vec<String>,
    pub priority: i32,
    pub recipients: Vec<Recipient>,
    /// The body as accepted.
    pub request: Value,
}

impl Submission {
    /// Two open requests of one digest are the same request: range as resolved, case, recipe, policy, machines.
    pub fn request_digest(&self) -> String {
        let mut machines = self.machines.clone();
        machines.sort();
        machines.dedup();
        let named = json!([
            self.tree,
            self.good_commit,
            self.bad_commit,
            self.first_parent,
            self.case.digest,
            self.recipe.digest,
            self.policy.digest,
            machines,
        ]);
        sha256_hex(named.to_string().as_bytes())
    }
}

/// The id and the number people say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Submitted {
    Created(Uuid, i64),
    /// An equal request is open already: its recipients now include the new ones.
    Joined(Uuid, i64),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CancelOutcome {
    Cancelled,
    /// It had ended before, as this state says.
    Ended(String),
    Unknown,
}

/// An open bisection as `drive` needs it.
#[derive(Clone, Debug)]
pub struct Open {
    pub id: Uuid,
    pub number: i64,
    pub tree: String,
    pub good_commit: String,
    pub bad_commit: String,
    pub first_parent: bool,
    pub recipe_digest: String,
    pub recipe: Value,
    pub policy: Value,
    pub cc_digest: Option<String>,
    pub machines: Vec<String>,
    pub version: i64,
    pub now_s: f64,
}

/// What a decision changes in the bisection itself.
#[derive(Clone, Debug)]
pub enum Ruling {
    /// Goes on; plan again after so many seconds since submission even if no fact comes.
    GoesOn { wake_s: Option<f64> },
    /// Ends; everybody who asked is owed these words, in the same transaction.
    Concluded {
        conclusion: Value,
        said: String,
        words: Words,
    },
}

impl Store {
    /// Stores the request, or joins an equal open one. Safe against two equal requests at the same moment:
    /// the unique index lets one in, the other then finds it.
    pub async fn submit(&self, s: &Submission) -> Result<Submitted> {
        // Between a conflict and the look-up the equal request may end; then this one is simply the next.
        loop {
            if let Some(submitted) = self.submit_or_join(s).await? {
                return Ok(submitted);
            }
        }
    }

    async fn submit_or_join(&self, s: &Submission) -> Result<Option<Submitted>> {
        let mut tx = self.pool.begin().await?;
        for definition in [&s.case, &s.recipe, &s.policy] {
            keep(&mut tx, definition).await?;
        }
        let digest = s.request_digest();
        let created = sqlx::query_scalar!(
            "insert into bisections (id, tree, good_rev, bad_rev, good_commit, bad_commit, first_parent,
                                     case_digest, recipe_digest, policy_digest, machines, priority, request,
                                     request_digest, state)
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, 'open')
             on conflict (request_digest) where state = 'open' do nothing
             returning number",
            s.id,
            s.tree,
            s.good_rev,
            s.bad_rev,
            s.good_commit,
            s.bad_commit,
            s.first_parent,
            s.case.digest,
            s.recipe.digest,
            s.policy.digest,
            &s.machines,
            s.priority,
            s.request,
            digest,
        )
        .fetch_optional(&mut *tx)
        .await?;
        let submitted = match created {
            Some(number) => Submitted::Created(s.id, number),
            None => {
                let open = sqlx::query!(
                    "select id, number from bisections where request_digest = $1 and state = 'open' for no key update",
                    digest
                )
                .fetch_optional(&mut *tx)
                .await?;
                match open {
                    Some(open) => Submitted::Joined(open.id, open.number),
                    None => return Ok(None),
                }
            }
        };
        let (Submitted::Created(id, _) | Submitted::Joined(id, _)) = submitted;
        for r in &s.recipients {
            sqlx::query!(
                "insert into recipients (bisection_id, channel, address) values ($1, $2, $3) on conflict do nothing",
                id,
                r.channel.word(),
                r.address
            )
            .execute(&mut *tx)
            .await?;
        }
        match submitted {
            Submitted::Created(..) => {
                let text = format!("{}..{} in {}", s.good_rev, s.bad_rev, s.tree);
                say(&mut tx, id, "submitted", &text).await?;
            }
            Submitted::Joined(..) => say(&mut tx, id, "joined", "an equal request joined").await?,
        }
        tx.commit().await?;
        Ok(Some(submitted))
    }

    /// Ends a bisection by the user's word: wishes and wanted jobs go, what runs for it alone is stopped on its
    /// machine by whoever carries it, facts stay, nobody is told by mail.
    pub async fn cancel(&self, id: Uuid) -> Result<CancelOutcome> {
        let mut tx = self.pool.begin().await?;
        let state = sqlx::query_scalar!("select state from bisections where id = $1 for no key update", id)
            .fetch_optional(&mut *tx)
            .await?;
        match state.as_deref() {
            None => return Ok(CancelOutcome::Unknown),
            Some("open") => {}
            Some(ended) => return Ok(CancelOutcome::Ended(ended.to_string())),
        }
        sqlx::query!(
            "update bisections set state = 'cancelled', ended_at = now(), wake_at = null where id = $1",
            id
        )
        .execute(&mut *tx)
        .await?;
        drop_wants(&mut tx, id).await?;
        say(&mut tx, id, "cancelled", "cancelled; what was measured is kept").await?;
        tx.commit().await?;
        Ok(CancelOutcome::Cancelled)
    }

    /// Open bisections that have news or whose limit is due, the longest waiting first.
    pub async fn due(&self) -> Result<Vec<Uuid>> {
        // A limit that passes is a fact like another: it raises the version once.
        sqlx::query!(
            "update bisections set record_version = record_version + 1, wake_at = null
             where state = 'open' and wake_at <= now()"
        )
        .execute(&self.pool)
        .await?;
        let due = sqlx::query_scalar!(
            "select id from bisections where state = 'open' and record_version > planned_version order by number"
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(due)
    }

    /// `None` where it is not open (any more).
    pub async fn open(&self, id: Uuid) -> Result<Option<Open>> {
        let row = sqlx::query_as!(
            Open,
            r#"select b.id, b.number, b.tree, b.good_commit, b.bad_commit, b.first_parent, b.recipe_digest,
                      r.body as recipe, p.body as policy, b.cc_digest, b.machines, b.record_version as version,
                      extract(epoch from now() - b.created_at)::float8 as "now_s!"
               from bisections b
               join definitions r on r.digest = b.recipe_digest
               join definitions p on p.digest = b.policy_digest
               where b.id = $1 and b.state = 'open'"#,
            id
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(row)
    }

    /// Fixes the compiler of a search, once.
    pub async fn fix_compiler(&self, id: Uuid, cc_digest: &str) -> Result<String> {
        let fixed = sqlx::query_scalar!(
            r#"update bisections set cc_digest = coalesce(cc_digest, $2) where id = $1 returning cc_digest as "cc!""#,
            id,
            cc_digest
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(fixed)
    }

    /// Bisections that ended so many days ago and whose commits are still pinned.
    pub async fn to_unpin(&self, tree: &str, days: i32) -> Result<Vec<Uuid>> {
        let ids = sqlx::query_scalar!(
            "select id from bisections
             where tree = $1 and state <> 'open' and pinned and ended_at < now() - make_interval(days => $2)
             limit 100",
            tree,
            days
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(ids)
    }

    pub async fn unpinned(&self, id: Uuid) -> Result<()> {
        sqlx::query!("update bisections set pinned = false where id = $1", id)
            .execute(&self.pool)
            .await?;
        Ok(())
    }
}

/// Locks the bisection if its record still is at `version`; a decision made from an older one is void.
pub(crate) async fn still_at(db: &mut sqlx::PgConnection, id: Uuid, version: i64) -> Result<bool> {
    let standing = sqlx::query_scalar!(
        "select record_version from bisections
         where id = $1 and state = 'open' and planned_version < record_version for no key update",
        id
    )
    .fetch_optional(db)
    .await?;
    Ok(standing == Some(version))
}

/// Writes a decision and what it rules.
pub(crate) async fn decide(
    db: &mut sqlx::PgConnection,
    id: Uuid,
    version: i64,
    planner_version: u32,
    plan: &Value,
    ruling: &Ruling,
) -> Result<()> {
    sqlx::query!(
        "insert into decisions (bisection_id, record_version, planner_version, plan) values ($1, $2, $3, $4)",
        id,
        version,
        planner_version.cast_signed(),
        plan
    )
    .execute(&mut *db)
    .await?;
    match ruling {
        Ruling::GoesOn { wake_s } => {
            sqlx::query!(
                "update bisections set planned_version = $2,
                        wake_at = created_at + make_interval(secs => $3::float8)
                 where id = $1",
                id,
                version,
                *wake_s
            )
            .execute(&mut *db)
            .await?;
            ring(db).await
        }
        Ruling::Concluded {
            conclusion,
            said,
            words,
        } => {
            sqlx::query!(
                "update bisections set planned_version = $2, state = 'concluded', ended_at = now(), wake_at = null,
                        conclusion = $3
                 where id = $1",
                id,
                version,
                conclusion
            )
            .execute(&mut *db)
            .await?;
            drop_wants(db, id).await?;
            owe(db, id, words).await?;
            say(db, id, "concluded", said).await
        }
    }
}

/// An ended bisection wants nothing any more. Jobs first, attempts after: a grant that commits between the two
/// is seen by the second statement.
async fn drop_wants(db: &mut sqlx::PgConnection, id: Uuid) -> Result<()> {
    sqlx::query!(
        "update jobs set state = 'cancelled', ended_at = now() where bisection_id = $1 and state = 'wanted'",
        id
    )
    .execute(&mut *db)
    .await?;
    sqlx::query!("delete from wishes where bisection_id = $1", id)
        .execute(&mut *db)
        .await?;
    sqlx::query!(
        "update attempts a set cancel_asked = true
         where a.state = 'held'
           and (a.job_id in (select id from jobs where bisection_id = $1)
                or (a.bisection_id = $1 and a.build_id is not null
                    and not exists (select 1 from wishes w where w.build_id = a.build_id)))",
        id
    )
    .execute(&mut *db)
    .await?;
    Ok(())
}
