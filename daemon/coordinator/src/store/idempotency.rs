//! Keys by which clients repeat a request safely: who claimed one, for which request, and what was answered.

use super::{Result, Store};

/// Longer than any request takes (`web::guard`): a claim without an answer this old is a dead daemon's.
const UNDER_WAY_S: f64 = 180.0;
/// Who repeats a request does so within a day.
const KEPT_S: f64 = 86_400.0;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    pub status: i32,
    pub content_type: String,
    pub location: Option<String>,
    pub body: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Claim {
    /// The caller carries the request out, then keeps its answer or drops the key.
    Ours,
    Answered(Answer),
    UnderWay,
    /// The key stands for another request.
    Other,
}

impl Store {
    pub async fn claim_key(&self, owner: &str, key: &str, request: &str) -> Result<Claim> {
        sqlx::query!(
            "delete from idempotency_keys
             where claimed_at < now() - make_interval(secs => case when status is null then $1::float8 else $2::float8 end)",
            UNDER_WAY_S,
            KEPT_S,
        )
        .execute(&self.pool)
        .await?;
        let claimed = sqlx::query!(
            "insert into idempotency_keys (owner, key, request_sha256) values ($1, $2, $3) on conflict do nothing",
            owner,
            key,
            request
        )
        .execute(&self.pool)
        .await?;
        if claimed.rows_affected() == 1 {
            return Ok(Claim::Ours);
        }
        let found = sqlx::query!(
            "select request_sha256, status, content_type, location, body from idempotency_keys
             where owner = $1 and key = $2",
            owner,
            key
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(match found {
            // Dropped between the two statements: whoever held it has just failed.
            None => Claim::UnderWay,
            Some(row) if row.request_sha256 != request => Claim::Other,
            Some(row) => match (row.status, row.content_type, row.body) {
                (Some(status), Some(content_type), Some(body)) => Claim::Answered(Answer {
                    status,
                    content_type,
                    location: row.location,
                    body,
                }),
                _ => Claim::UnderWay,
            },
        })
    }

    pub async fn keep_answer(&self, owner: &str, key: &str, answer: &Answer) -> Result<()> {
        sqlx::query!(
            "update idempotency_keys set status = $3, content_type = $4, location = $5, body = $6
             where owner = $1 and key = $2",
            owner,
            key,
            answer.status,
            answer.content_type,
            answer.location,
            answer.body,
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    pub async fn drop_key(&self, owner: &str, key: &str) -> Result<()> {
        sqlx::query!(
            "delete from idempotency_keys where owner = $1 and key = $2",
            owner,
            key
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }
}
