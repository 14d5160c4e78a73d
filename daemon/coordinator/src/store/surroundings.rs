//! What boots of a bisection were surrounded by, and which were dropped for it.

use super::{Result, Store, StoreError};
use chrono::{DateTime, Utc};
use serde_json::Value;
use uuid::Uuid;

/// A boot that counts, with its environment.
#[derive(Clone, Debug)]
pub struct Surrounded {
    pub kernel_key: String,
    pub machine: String,
    pub lane: i32,
    pub replicate: i32,
    pub image_id: String,
    pub environment: Value,
}

#[derive(Clone, Debug)]
pub struct DropView {
    pub kernel_key: String,
    pub kernel: Value,
    pub machine: String,
    pub lane: i32,
    pub replicate: i32,
    pub reason: String,
    pub what: String,
    pub environment: Value,
    pub attempt_id: Uuid,
    pub dropped_at: DateTime<Utc>,
}

impl Store {
    /// The first boot of each image of a search where an attempt's job is measured, the earliest first.
    pub async fn earlier_environments(&self, attempt: Uuid) -> Result<Vec<(String, Value)>> {
        let rows = sqlx::query!(
            "select e.image_id, e.environment from attempts a join jobs j on j.id = a.job_id
             cross join lateral (
                select distinct on (t.image_id) t.image_id, t.environment, o.id
                from observations o join boots t on t.id = o.boot_id
                where o.bisection_id = j.bisection_id and o.machine = j.machine and o.lane = j.lane
                  and t.outcome = 'booted' and t.environment <> '{}'
                order by t.image_id, o.id) e
             where a.id = $1 order by e.id",
            attempt
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows.into_iter().map(|r| (r.image_id, r.environment)).collect())
    }

    pub async fn view_surroundings(&self, bisection: Uuid) -> Result<Vec<Surrounded>> {
        sqlx::query_as!(
            Surrounded,
            "select o.kernel_key, o.machine, o.lane, o.replicate, t.image_id, t.environment
             from observations o join boots t on t.id = o.boot_id
             where o.bisection_id = $1 and t.outcome = 'booted' order by o.id",
            bisection
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::from)
    }

    /// The newest first.
    pub async fn view_drops(&self, bisection: Uuid) -> Result<Vec<DropView>> {
        sqlx::query_as!(
            DropView,
            "select kernel_key, kernel, machine, lane, replicate, reason, what, environment, attempt_id, dropped_at
             from drops where bisection_id = $1 order by id desc",
            bisection
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::from)
    }
}
