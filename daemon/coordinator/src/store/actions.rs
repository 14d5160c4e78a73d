//! What somebody did, or tried to do: written before it is carried out, so that nothing is done unseen.

use super::{Result, Store, storable};
use chrono::{DateTime, Utc};
use uuid::Uuid;

pub struct NewAction<'a> {
    pub actor: &'a str,
    pub token_id: Option<Uuid>,
    pub role: &'a str,
    pub method: &'a str,
    pub path: &'a str,
    pub request_id: &'a str,
}

#[derive(Clone, Debug)]
pub struct ActionView {
    pub id: i64,
    pub at: DateTime<Utc>,
    pub actor: String,
    pub token_id: Option<Uuid>,
    pub role: String,
    pub method: String,
    pub path: String,
    pub request_id: String,
    pub status: Option<i32>,
}

impl Store {
    pub async fn begin_action(&self, new: &NewAction<'_>) -> Result<i64> {
        let id = sqlx::query_scalar!(
            "insert into actions (actor, token_id, role, method, path, request_id)
             values ($1, $2, $3, $4, $5, $6) returning id",
            storable(new.actor),
            new.token_id,
            new.role,
            new.method,
            storable(new.path),
            storable(new.request_id),
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(id)
    }

    pub async fn end_action(&self, id: i64, status: u16) -> Result<()> {
        sqlx::query!(
            "update actions set status = $2 where id = $1",
            id,
            i32::from(status)
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// The newest first, below the id `before`.
    pub async fn actions(&self, before: Option<i64>, limit: i64) -> Result<Vec<ActionView>> {
        let actions = sqlx::query_as!(
            ActionView,
            "select id, at, actor, token_id, role, method, path, request_id, status from actions
             where ($1::bigint is null or id < $1) order by id desc limit $2",
            before,
            limit
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(actions)
    }
}
