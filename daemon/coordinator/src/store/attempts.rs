//! Attempts: a machine is granted to a build or a job; somebody carries it under a short lease.
//!
//! Locks are taken in one order everywhere: bisections, machines, jobs and builds, attempts.

use super::{Result, Store, ring, say, storable};
use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

/// Seconds a carrier's lease lasts; it is renewed every third of it. Long enough that a busy coordinator keeps
/// its attempts, short enough that a dead one's are taken over while a guest still boots.
pub const LEASE_S: f64 = 6.0;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    Build(Uuid),
    Job(Uuid),
}

#[derive(Clone, Debug)]
pub struct Grant<'a> {
    pub machine: &'a str,
    pub target: Target,
    /// Whom it serves.
    pub bisection: Uuid,
    pub deadline_s: f64,
    /// The coordinator instance that carries it from now on.
    pub carrier: &'a str,
}

/// All that carrying an attempt needs to know.
#[derive(Clone, Debug)]
pub struct Carried {
    pub id: Uuid,
    pub token: i64,
    pub machine: String,
    pub bisection: Option<Uuid>,
    /// Spool lines stored so far.
    pub seen_lines: i64,
    pub cancel_asked: bool,
    pub age_s: f64,
    /// Positive once the agent must have given up by itself.
    pub overdue_s: f64,
    pub work: CarriedWork,
}

#[derive(Clone, Debug)]
pub enum CarriedWork {
    Build {
        tree: String,
        kernel: Value,
        kernel_key: String,
        recipe: Value,
        recipe_digest: String,
        cc_digest: String,
    },
    Measure {
        kernel_key: String,
        runs: i32,
        image_id: String,
        manifest: Value,
        case: Value,
        lane: Value,
        policy: Value,
    },
    /// `good`, `panic` or `hang`, with the machine's own kernel.
    Trial { trial: String, lane: Value },
}

/// The lease still stands; what its holder must know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Renewed {
    pub cancel_asked: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogKind {
    Console,
    Log,
    Run,
    Phase,
}

impl LogKind {
    fn word(self) -> &'static str {
        match self {
            LogKind::Console => "console",
            LogKind::Log => "log",
            LogKind::Run => "run",
            LogKind::Phase => "phase",
        }
    }
}

/// A spool line worth keeping.
#[derive(Clone, Debug)]
pub struct LogLine {
    pub n: i64,
    pub kind: LogKind,
    pub text: String,
    pub at: DateTime<Utc>,
}

impl Store {
    /// Of these machines, those that could be given work, in their order.
    pub async fn free_machines(&self, names: &[String]) -> Result<Vec<String>> {
        let rows = sqlx::query_scalar!(
            "select m.name from machines m
             where m.name = any($1) and m.state = 'idle'
               and not exists (select 1 from attempts a where a.machine = m.name and a.state = 'held')",
            names
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(names.iter().filter(|name| rows.contains(name)).cloned().collect())
    }

    /// Gives a machine to a build or a job. `None` where another coordinator was quicker, or where the wish is
    /// gone by now.
    pub async fn grant(&self, grant: &Grant<'_>) -> Result<Option<Uuid>> {
        let mut tx = self.pool.begin().await?;
        let Some(token) = raise_token(&mut tx, grant.machine, None).await? else {
            return Ok(None);
        };
        let taken = match grant.target {
            Target::Build(id) => {
                sqlx::query!(
                    "update builds set state = 'held' where id = $1 and state = 'wanted'",
                    id
                )
                .execute(&mut *tx)
                .await?
            }
            Target::Job(id) => {
                sqlx::query!(
                    "update jobs set state = 'held' where id = $1 and state = 'wanted'",
                    id
                )
                .execute(&mut *tx)
                .await?
            }
        };
        if taken.rows_affected() == 0 {
            return Ok(None);
        }
        let (build, job) = match grant.target {
            Target::Build(id) => (Some(id), None),
            Target::Job(id) => (None, Some(id)),
        };
        let attempt = Uuid::now_v7();
        sqlx::query!(
            "insert into attempts (id, build_id, job_id, bisection_id, machine, token, state, carrier, carried_until,
                                   deadline_at)
             values ($1, $2, $3, $4, $5, $6, 'held', $7, now() + make_interval(secs => $8),
                     now() + make_interval(secs => $9))",
            attempt,
            build,
            job,
            grant.bisection,
            grant.machine,
            token,
            grant.carrier,
            LEASE_S,
            grant.deadline_s
        )
        .execute(&mut *tx)
        .await?;
        ring(&mut tx).await?;
        tx.commit().await?;
        // Ageing counts from here. Apart, because bisections are locked before machines.
        sqlx::query!(
            "update bisections set granted_at = now() where id = $1",
            grant.bisection
        )
        .execute(&self.pool)
        .await?;
        Ok(Some(attempt))
    }

    /// Takes over attempts on these machines whose carrier has let its lease lapse.
    pub async fn adopt(&self, carrier: &str, machines: &[String]) -> Result<Vec<Uuid>> {
        let rows = sqlx::query_scalar!(
            "update attempts set carrier = $1, carried_until = now() + make_interval(secs => $3)
             where id in (select id from attempts
                          where state = 'held' and machine = any($2)
                            and (carried_until is null or carried_until < now())
                          order by id limit 64 for no key update skip locked)
             returning id",
            carrier,
            machines,
            LEASE_S
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows)
    }

    /// `None` where the lease was lost: somebody else carries it, or it has ended.
    pub async fn renew(&self, attempt: Uuid, carrier: &str) -> Result<Option<Renewed>> {
        let row = sqlx::query_as!(
            Renewed,
            "update attempts set carried_until = now() + make_interval(secs => $3)
             where id = $1 and carrier = $2 and state = 'held' returning cancel_asked",
            attempt,
            carrier,
            LEASE_S
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(row)
    }

    /// Lays an attempt down for `pause_s` seconds; whoever comes first then takes it up again.
    pub async fn release(&self, attempt: Uuid, carrier: &str, pause_s: f64) -> Result<()> {
        let laid = sqlx::query!(
            "update attempts set carrier = null, carried_until = now() + make_interval(secs => $3)
             where id = $1 and carrier = $2 and state = 'held'",
            attempt,
            carrier,
            pause_s
        )
        .execute(&self.pool)
        .await?
        .rows_affected();
        if laid > 0 && pause_s == 0.0 {
            self.notify().await?;
        }
        Ok(())
    }

    pub async fn carried(&self, attempt: Uuid) -> Result<Option<Carried>> {
        let head = sqlx::query!(
            r#"select token, machine, bisection_id, build_id, job_id, trial, lane, seen_lines, cancel_asked,
                      extract(epoch from now() - started_at)::float8 as "age_s!",
                      extract(epoch from now() - deadline_at)::float8 as "overdue_s!"
               from attempts where id = $1"#,
            attempt
        )
        .fetch_optional(&self.pool)
        .await?;
        let Some(head) = head else { return Ok(None) };
        let work = match (head.build_id, head.job_id, head.trial) {
            (None, None, Some(trial)) => {
                let lane = sqlx::query_scalar!(
                    "select description from lanes where machine = $1 and number = $2",
                    head.machine,
                    head.lane
                )
                .fetch_one(&self.pool)
                .await?;
                CarriedWork::Trial { trial, lane }
            }
            (Some(build), ..) => {
                let k = sqlx::query!(
                    "select k.tree, k.kernel, k.kernel_key, k.recipe_digest, k.cc_digest, r.body as recipe
                     from builds k join definitions r on r.digest = k.recipe_digest where k.id = $1",
                    build
                )
                .fetch_one(&self.pool)
                .await?;
                CarriedWork::Build {
                    tree: k.tree,
                    kernel: k.kernel,
                    kernel_key: k.kernel_key,
                    recipe: k.recipe,
                    recipe_digest: k.recipe_digest,
                    cc_digest: k.cc_digest,
                }
            }
            (None, job, _) => {
                let j = sqlx::query!(
                    r#"select j.kernel_key, j.runs, i.id as image_id, i.manifest, c.body as "case",
                              l.description as lane, p.body as policy
                       from jobs j
                       join bisections b on b.id = j.bisection_id
                       join builds k on k.tree = b.tree and k.kernel_key = j.kernel_key
                                        and k.recipe_digest = b.recipe_digest
                                        and k.cc_digest = coalesce(b.cc_digest, '')
                       join images i on i.id = k.image_id
                       join lanes l on l.machine = j.machine and l.number = j.lane
                       join definitions c on c.digest = b.case_digest
                       join definitions p on p.digest = b.policy_digest
                       where j.id = $1"#,
                    job
                )
                .fetch_one(&self.pool)
                .await?;
                CarriedWork::Measure {
                    kernel_key: j.kernel_key,
                    runs: j.runs,
                    image_id: j.image_id,
                    manifest: j.manifest,
                    case: j.case,
                    lane: j.lane,
                    policy: j.policy,
                }
            }
        };
        Ok(Some(Carried {
            id: attempt,
            token: head.token,
            machine: head.machine,
            bisection: head.bisection_id,
            seen_lines: head.seen_lines,
            cancel_asked: head.cancel_asked,
            age_s: head.age_s,
            overdue_s: head.overdue_s,
            work,
        }))
    }

    /// Keeps spool lines; those kept before are the same. `upto` is the number of the next line to ask for.
    pub async fn keep_lines(
        &self,
        attempt: Uuid,
        lines: &[LogLine],
        upto: i64,
        phase: Option<&str>,
    ) -> Result<()> {
        let n: Vec<i64> = lines.iter().map(|l| l.n).collect();
        let kinds: Vec<String> = lines.iter().map(|l| l.kind.word().to_string()).collect();
        let texts: Vec<String> = lines.iter().map(|l| storable(&l.text)).collect();
        let at: Vec<DateTime<Utc>> = lines.iter().map(|l| l.at).collect();
        let mut tx = self.pool.begin().await?;
        sqlx::query!(
            "insert into logs (attempt_id, n, kind, text, at)
             select $1, * from unnest($2::bigint[], $3::text[], $4::text[], $5::timestamptz[])
             on conflict do nothing",
            attempt,
            &n,
            &kinds,
            &texts,
            &at
        )
        .execute(&mut *tx)
        .await?;
        sqlx::query!(
            "update attempts set seen_lines = greatest(seen_lines, $2), phase = coalesce($3, phase) where id = $1",
            attempt,
            upto,
            phase
        )
        .execute(&mut *tx)
        .await?;
        ring(&mut tx).await?;
        tx.commit().await?;
        Ok(())
    }

    /// A piece of the machine's console, as the daemon heard it.
    pub async fn keep_console(&self, attempt: Uuid, text: &str) -> Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        let mut tx = self.pool.begin().await?;
        sqlx::query!(
            "insert into logs (attempt_id, source, n, kind, text, at)
             select $1, 'console', coalesce(max(n) + 1, 0), 'console', $2, now()
             from logs where attempt_id = $1 and source = 'console'",
            attempt,
            storable(text)
        )
        .execute(&mut *tx)
        .await?;
        ring(&mut tx).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Other attempts at the same job whose kernel did not boot.
    pub async fn boots_failed_before(&self, attempt: Uuid) -> Result<i64> {
        let count = sqlx::query_scalar!(
            r#"select count(*) as "count!" from attempts a join attempts b on b.job_id = a.job_id
               where a.id = $1 and b.id <> a.id and b.report ? 'boot_failed'"#,
            attempt
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(count)
    }

    /// The benchmark's runs in a spool, as JSON, in order.
    pub async fn runs_of(&self, attempt: Uuid) -> Result<Vec<String>> {
        let rows = sqlx::query_scalar!(
            "select text from logs where attempt_id = $1 and kind = 'run' order by n",
            attempt
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows)
    }

    /// For people.
    pub async fn say(&self, bisection: Uuid, kind: &str, text: &str) -> Result<()> {
        let mut tx = self.pool.begin().await?;
        say(&mut tx, bisection, kind, text).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Of these orders on a machine, those whose attempt has ended: their spools may be looked at a last time
    /// and erased. An id that is no attempt of ours is left alone.
    pub async fn ended_among(&self, orders: &[Uuid]) -> Result<Vec<Ended>> {
        let rows = sqlx::query_as!(
            Ended,
            r#"select id, report is not null as "reported!" from attempts where id = any($1) and state = 'done'"#,
            orders
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows)
    }

    /// Attempts that nobody can still be working on: `grace_s` past the time at which the agent gives up by itself.
    pub async fn overdue(&self, machines: &[String], grace_s: f64) -> Result<Vec<Uuid>> {
        let rows = sqlx::query_scalar!(
            "select id from attempts
             where state = 'held' and machine = any($1) and deadline_at + make_interval(secs => $2) < now()",
            machines,
            grace_s
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows)
    }
}

/// An order on a machine whose attempt has ended here.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    pub id: Uuid,
    /// Its report is in the record.
    pub reported: bool,
}

/// Takes a machine that is idle, in that lane where one is named, and holds nothing: its next fencing token. None where
/// it is not to be had, or another coordinator is at it.
pub(super) async fn raise_token(
    db: &mut PgConnection,
    machine: &str,
    lane: Option<i32>,
) -> Result<Option<i64>> {
    let token = sqlx::query_scalar!(
        r#"update machines set token = token + 1
           where name = (select name from machines m where m.name = $1 and m.state = 'idle'
                           and ($2::int is null or m.lane = $2)
                         for no key update skip locked)
             and not exists (select 1 from attempts a where a.machine = machines.name and a.state = 'held')
           returning token"#,
        machine,
        lane
    )
    .fetch_optional(db)
    .await?;
    Ok(token)
}
