//! Read models: what the API and the pages show, in one query each.
//!
//! Rows become plain structs here and nothing else: no formatting, no opinions, no writes. The passes never read
//! these. Columns beside an outer join say themselves whether they may be null: what sqlx infers follows the query
//! plan, which follows the data.

use super::{Result, Store, StoreError};
use chrono::{DateTime, Utc};
use serde_json::Value;
use uuid::Uuid;

/// A bisection with what it froze at submission and the latest plan.
#[derive(Clone, Debug)]
pub struct BisectionView {
    pub id: Uuid,
    pub number: i64,
    pub tree: String,
    pub good_rev: String,
    pub bad_rev: String,
    pub good_commit: String,
    pub bad_commit: String,
    pub first_parent: bool,
    pub machines: Vec<String>,
    pub priority: i32,
    pub request: Value,
    /// `open`, `concluded`, `cancelled`.
    pub state: String,
    pub record_version: i64,
    pub planned_version: i64,
    pub created_at: DateTime<Utc>,
    pub ended_at: Option<DateTime<Utc>>,
    pub conclusion: Option<Value>,
    pub case: Value,
    pub policy: Value,
    pub plan: Option<Value>,
    pub planned_at: Option<DateTime<Utc>>,
    /// Boots that yielded numbers, and distinct kernels that have an outcome.
    pub boots: i64,
    pub kernels: i64,
    pub builds: i64,
    pub working: i64,
}

/// One outcome with what is known about why.
#[derive(Clone, Debug)]
pub struct SampleView {
    pub id: i64,
    pub kernel_key: String,
    pub kernel: Value,
    pub machine: String,
    pub lane: i32,
    pub replicate: i32,
    pub outcome: Value,
    pub observed_at: DateTime<Utc>,
    pub boot_id: Option<Uuid>,
    pub attempt_id: Option<Uuid>,
    /// `{class, excerpt}` of the build, or `{fault, excerpt, phase}` of the boot.
    pub failure: Option<Value>,
}

#[derive(Clone, Debug)]
pub struct JobView {
    pub id: Uuid,
    pub kernel_key: String,
    pub kernel: Value,
    pub machine: String,
    pub lane: i32,
    pub replicate: i32,
    pub runs: i32,
    pub state: String,
    pub failures: i32,
    pub created_at: DateTime<Utc>,
    pub ended_at: Option<DateTime<Utc>>,
    pub attempt_id: Option<Uuid>,
    pub phase: Option<String>,
    pub trouble: Option<String>,
}

/// One try at a build or a job: from the grant of the machine to the stored outcome.
#[derive(Clone, Debug)]
pub struct AttemptView {
    pub id: Uuid,
    pub building: bool,
    pub kernel: Value,
    pub machine: String,
    pub state: String,
    pub ended_by: Option<String>,
    pub trouble: Option<String>,
    pub started_at: DateTime<Utc>,
    pub ended_at: Option<DateTime<Utc>>,
}

/// A machine, and what it does at this moment for whom.
#[derive(Clone, Debug)]
pub struct MachineView {
    pub name: String,
    pub lane: i32,
    pub state: String,
    pub reason: Option<String>,
    pub probe: Option<Value>,
    pub probed_at: Option<DateTime<Utc>>,
    /// What the machine was tried with in its lane before it serves.
    pub admission: Option<Value>,
    pub trial: Option<String>,
    pub attempt_id: Option<Uuid>,
    pub phase: Option<String>,
    pub started_at: Option<DateTime<Utc>>,
    pub deadline_at: Option<DateTime<Utc>>,
    pub building: Option<bool>,
    pub kernel_key: Option<String>,
    pub replicate: Option<i32>,
    pub bisection: Option<i64>,
}

#[derive(Clone, Debug)]
pub struct DecisionView {
    pub id: i64,
    pub record_version: i64,
    pub planner_version: i32,
    pub made_at: DateTime<Utc>,
    pub plan: Value,
}

#[derive(Clone, Debug)]
pub struct EventView {
    pub id: i64,
    pub bisection_id: Uuid,
    pub number: i64,
    pub kind: String,
    pub text: String,
    pub at: DateTime<Utc>,
}

impl StoreError {
    /// The database does not answer, as against: it answered with a refusal.
    pub fn is_unreachable(&self) -> bool {
        use sqlx::Error::{Io, PoolClosed, PoolTimedOut};
        matches!(self, StoreError::Database(PoolTimedOut | PoolClosed | Io(_)))
    }
}

/// How a bisection is named in an address: by number, or by id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Name {
    Id(Uuid),
    Number(i64),
}

impl std::str::FromStr for Name {
    type Err = ();

    fn from_str(text: &str) -> std::result::Result<Name, ()> {
        match text.parse::<i64>() {
            Ok(number) if number > 0 => Ok(Name::Number(number)),
            Ok(_) => Err(()),
            Err(_) => text.parse().map(Name::Id).map_err(|_| ()),
        }
    }
}

/// One page of the list, the newest first.
#[derive(Clone, Debug, Default)]
pub struct ListFilter {
    pub state: Option<String>,
    pub tree: Option<String>,
    /// Only numbers below this one: where the page before ended.
    pub before: Option<i64>,
    pub limit: i64,
}

impl Store {
    pub async fn view_bisection(&self, name: Name) -> Result<Option<BisectionView>> {
        let (id, number) = match name {
            Name::Id(id) => (Some(id), None),
            Name::Number(number) => (None, Some(number)),
        };
        let found = self
            .view_where(
                id,
                number,
                &ListFilter {
                    limit: 1,
                    ..ListFilter::default()
                },
            )
            .await?;
        Ok(found.into_iter().next())
    }

    pub async fn view_bisections(&self, filter: &ListFilter) -> Result<Vec<BisectionView>> {
        self.view_where(None, None, filter).await
    }

    async fn view_where(
        &self,
        id: Option<Uuid>,
        number: Option<i64>,
        filter: &ListFilter,
    ) -> Result<Vec<BisectionView>> {
        sqlx::query_as!(
            BisectionView,
            r#"select b.id as "id!", b.number as "number!", b.tree as "tree!", b.good_rev as "good_rev!",
                      b.bad_rev as "bad_rev!", b.good_commit as "good_commit!", b.bad_commit as "bad_commit!",
                      b.first_parent as "first_parent!", b.machines as "machines!", b.priority as "priority!",
                      b.request as "request!", b.state as "state!", b.record_version as "record_version!",
                      b.planned_version as "planned_version!", b.created_at as "created_at!",
                      b.ended_at as "ended_at?", b.conclusion as "conclusion?", c.body as "case!", p.body as "policy!",
                      d.plan as "plan?", d.made_at as "planned_at?",
                      (select count(*) from observations o
                        where o.bisection_id = b.id and jsonb_typeof(o.outcome) = 'object') as "boots!",
                      (select count(distinct o.kernel_key) from observations o
                        where o.bisection_id = b.id) as "kernels!",
                      (select count(*) from attempts a where a.bisection_id = b.id and a.build_id is not null
                          and a.ended_by = 'report') as "builds!",
                      (select count(*) from attempts a where a.bisection_id = b.id
                          and a.state = 'held') as "working!"
                 from bisections b
                 join definitions c on c.digest = b.case_digest
                 join definitions p on p.digest = b.policy_digest
                 left join lateral (select plan, made_at from decisions d where d.bisection_id = b.id
                                    order by d.record_version desc limit 1) d on true
                where ($1::uuid is null or b.id = $1) and ($2::bigint is null or b.number = $2)
                  and ($3::text is null or b.state = $3) and ($4::text is null or b.tree = $4)
                  and ($5::bigint is null or b.number < $5)
                order by b.number desc limit $6"#,
            id,
            number,
            filter.state.as_deref(),
            filter.tree.as_deref(),
            filter.before,
            filter.limit,
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::from)
    }

    /// Every outcome of a bisection, in the order in which they were learnt.
    pub async fn view_samples(&self, bisection: Uuid) -> Result<Vec<SampleView>> {
        sqlx::query_as!(
            SampleView,
            r#"select o.id as "id!", o.kernel_key as "kernel_key!", o.kernel as "kernel!", o.machine as "machine!",
                      o.lane as "lane!", o.replicate as "replicate!", o.outcome as "outcome!",
                      o.observed_at as "observed_at!", o.boot_id as "boot_id?",
                      coalesce(
                        t.attempt_id,
                        (select a.id from attempts a where a.job_id = o.job_id
                          order by a.started_at desc limit 1),
                        (select a.id from attempts a where a.build_id = k.id
                          order by a.started_at desc limit 1)) as "attempt_id?",
                      case when o.outcome = '"build_failed"'::jsonb then k.failure else t.fault end as "failure?"
                 from observations o
                 join bisections b on b.id = o.bisection_id
                 left join boots t on t.id = o.boot_id
                 left join builds k on k.tree = b.tree and k.kernel_key = o.kernel_key
                       and k.recipe_digest = b.recipe_digest and k.cc_digest = coalesce(b.cc_digest, '')
                where o.bisection_id = $1
                order by o.id"#,
            bisection
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::from)
    }

    /// Every job a bisection ever wanted, with its latest attempt.
    pub async fn view_jobs(&self, bisection: Uuid) -> Result<Vec<JobView>> {
        sqlx::query_as!(
            JobView,
            r#"select j.id as "id!", j.kernel_key as "kernel_key!", j.kernel as "kernel!", j.machine as "machine!",
                      j.lane as "lane!", j.replicate as "replicate!", j.runs as "runs!", j.state as "state!",
                      j.failures as "failures!", j.created_at as "created_at!", j.ended_at as "ended_at?", a.id as "attempt_id?", a.phase as "phase?", a.trouble as "trouble?"
                 from jobs j
                 left join lateral (select id, phase, trouble from attempts a where a.job_id = j.id
                                    order by a.started_at desc limit 1) a on true
                where j.bisection_id = $1
                order by j.created_at, j.place, j.id"#,
            bisection
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::from)
    }

    pub async fn view_attempts(&self, bisection: Uuid) -> Result<Vec<AttemptView>> {
        sqlx::query_as!(
            AttemptView,
            r#"select a.id, a.build_id is not null as "building!", coalesce(b.kernel, j.kernel) as "kernel!", a.machine,
                      a.state, a.ended_by, a.trouble, a.started_at, a.ended_at
                 from attempts a
                 left join builds b on b.id = a.build_id
                 left join jobs j on j.id = a.job_id
                where a.bisection_id = $1 or j.bisection_id = $1
                order by a.started_at, a.id"#,
            bisection
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::from)
    }

    pub async fn view_machines(&self) -> Result<Vec<MachineView>> {
        sqlx::query_as!(
            MachineView,
            r#"select m.name as "name!", m.lane as "lane!", m.state as "state!", m.reason as "reason?",
                      m.probe as "probe?", m.probed_at as "probed_at?",
                      l.admission as "admission?", a.trial as "trial?", a.id as "attempt_id?", a.phase as "phase?", a.started_at as "started_at?",
                      a.deadline_at as "deadline_at?", a.build_id is not null as "building?",
                      coalesce(j.kernel_key, k.kernel_key) as "kernel_key?", j.replicate as "replicate?",
                      b.number as "bisection?"
                 from machines m
                 left join lanes l on l.machine = m.name and l.number = m.lane
                 left join attempts a on a.machine = m.name and a.state = 'held'
                 left join jobs j on j.id = a.job_id
                 left join builds k on k.id = a.build_id
                 left join bisections b on b.id = coalesce(j.bisection_id, a.bisection_id)
                order by m.name"#
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::from)
    }

    /// The log of decisions, the newest first.
    pub async fn view_decisions(&self, bisection: Uuid, limit: i64) -> Result<Vec<DecisionView>> {
        sqlx::query_as!(
            DecisionView,
            "select id, record_version, planner_version, made_at, plan from decisions
              where bisection_id = $1 order by record_version desc limit $2",
            bisection,
            limit
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::from)
    }

    /// Events after `after`, of one bisection or of all, the oldest first.
    pub async fn view_events(
        &self,
        bisection: Option<Uuid>,
        after: i64,
        limit: i64,
    ) -> Result<Vec<EventView>> {
        sqlx::query_as!(
            EventView,
            "select e.id, e.bisection_id, b.number, e.kind, e.text, e.at
               from events e join bisections b on b.id = e.bisection_id
              where ($1::uuid is null or e.bisection_id = $1) and e.id > $2
              order by e.id limit $3",
            bisection,
            after,
            limit
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::from)
    }

    /// The newest event's id, from where a new watcher starts.
    pub async fn view_last_event(&self, bisection: Option<Uuid>) -> Result<i64> {
        sqlx::query_scalar!(
            r#"select coalesce(max(id), 0) as "id!" from events where ($1::uuid is null or bisection_id = $1)"#,
            bisection
        )
        .fetch_one(&self.pool)
        .await
        .map_err(StoreError::from)
    }

    pub async fn view_attempt_exists(&self, attempt: Uuid) -> Result<bool> {
        sqlx::query_scalar!(
            r#"select exists(select from attempts where id = $1) as "it!""#,
            attempt
        )
        .fetch_one(&self.pool)
        .await
        .map_err(StoreError::from)
    }

    /// The last `limit` pieces of an attempt's console and build log, in order.
    pub async fn view_console(&self, attempt: Uuid, limit: i64) -> Result<Vec<String>> {
        sqlx::query_scalar!(
            r#"select text as "text!" from
                 (select arrived, text from logs where attempt_id = $1 and kind in ('console', 'log')
                   order by arrived desc limit $2) t
               order by arrived"#,
            attempt,
            limit
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::from)
    }

    /// `(metric, label, value)`: the lengths and counts that an administrator watches.
    pub async fn view_counts(&self) -> Result<Vec<(String, String, i64)>> {
        let rows = sqlx::query!(
            r#"select 'bisections' as "metric!", state as "label!", count(*) as "value!"
                 from bisections group by state
               union all select 'builds', state, count(*) from builds group by state
               union all select 'jobs', state, count(*) from jobs group by state
               union all select 'attempts', coalesce(ended_by, 'held'), count(*) from attempts group by ended_by
               union all select 'notices', state, count(*) from notices group by state
               union all select 'machines', state, count(*) from machines group by state
               union all select 'observations',
                        case when jsonb_typeof(outcome) = 'object' then 'measured' else outcome #>> '{}' end,
                        count(*) from observations group by 2"#
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows.into_iter().map(|r| (r.metric, r.label, r.value)).collect())
    }
}
