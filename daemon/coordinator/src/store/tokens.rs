//! Tokens, and the browser sessions that were opened with them: who somebody is, and in which role.
//!
//! Only digests of secrets get here. What a role may do is for the web to say.

use super::{Result, Store, StoreError};
use chrono::{DateTime, Utc};
use uuid::Uuid;

/// The digest of a secret.
pub type Digest = [u8; 32];

/// Each role may do what the ones before it may.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Role {
    Viewer,
    Submitter,
    Operator,
    Admin,
}

impl Role {
    pub const ALL: [Role; 4] = [Role::Viewer, Role::Submitter, Role::Operator, Role::Admin];

    pub fn name(self) -> &'static str {
        match self {
            Role::Viewer => "viewer",
            Role::Submitter => "submitter",
            Role::Operator => "operator",
            Role::Admin => "admin",
        }
    }

    pub fn of(name: &str) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.name() == name)
    }
}

/// Somebody with a token that holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    pub token_id: Uuid,
    pub name: String,
    pub role: Role,
}

pub struct NewToken {
    pub name: String,
    pub role: Role,
    pub secret: Digest,
    pub created_by: String,
    pub lifetime_days: Option<i32>,
}

/// A token as people see it: all but its secret.
#[derive(Clone, Debug)]
pub struct TokenView {
    pub id: Uuid,
    pub name: String,
    pub role: String,
    pub created_by: String,
    pub created_at: DateTime<Utc>,
    pub expires_at: Option<DateTime<Utc>>,
    pub used_at: Option<DateTime<Utc>>,
    pub revoked_at: Option<DateTime<Utc>>,
}

fn holder(token_id: Uuid, name: String, role: &str) -> Result<Holder> {
    let known = Role::of(role).ok_or_else(|| StoreError::Unreadable {
        table: "tokens",
        id: token_id.to_string(),
        what: format!("role `{role}`"),
    })?;
    Ok(Holder {
        token_id,
        name,
        role: known,
    })
}

impl Store {
    pub async fn create_token(&self, new: &NewToken) -> Result<TokenView> {
        let token = sqlx::query_as!(
            TokenView,
            "insert into tokens (id, name, role, secret_sha256, created_by, expires_at)
             values ($1, $2, $3, $4, $5, now() + make_interval(days => $6))
             returning id, name, role, created_by, created_at, expires_at, used_at, revoked_at",
            Uuid::now_v7(),
            super::storable(&new.name),
            new.role.name(),
            &new.secret[..],
            new.created_by,
            new.lifetime_days,
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(token)
    }

    /// The very first token; false where there is one already. Coordinators that start together make one.
    pub async fn create_first_token(&self, new: &NewToken) -> Result<bool> {
        let mut tx = self.pool.begin().await?;
        sqlx::query!("lock table tokens in share row exclusive mode")
            .execute(&mut *tx)
            .await?;
        let made = sqlx::query!(
            "insert into tokens (id, name, role, secret_sha256, created_by)
             select $1, $2, $3, $4, $5 where not exists (select from tokens)",
            Uuid::now_v7(),
            new.name,
            new.role.name(),
            &new.secret[..],
            new.created_by,
        )
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(made.rows_affected() == 1)
    }

    /// The newest first.
    pub async fn tokens(&self) -> Result<Vec<TokenView>> {
        let tokens = sqlx::query_as!(
            TokenView,
            "select id, name, role, created_by, created_at, expires_at, used_at, revoked_at
             from tokens order by created_at desc, id desc"
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(tokens)
    }

    /// Its sessions end with it. `None`: there is no such token; revoking twice keeps the first time.
    pub async fn revoke_token(&self, id: Uuid) -> Result<Option<TokenView>> {
        let token = sqlx::query_as!(
            TokenView,
            "update tokens set revoked_at = coalesce(revoked_at, now()) where id = $1
             returning id, name, role, created_by, created_at, expires_at, used_at, revoked_at",
            id
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(token)
    }

    /// `None`: unknown, expired or revoked.
    pub async fn holder_of_token(&self, secret: &Digest) -> Result<Option<Holder>> {
        let found = sqlx::query!(
            r#"select id, name, role, used_at is null or used_at < now() - interval '1 minute' as "stale!"
               from tokens
               where secret_sha256 = $1 and revoked_at is null and (expires_at is null or expires_at > now())"#,
            &secret[..]
        )
        .fetch_optional(&self.pool)
        .await?;
        let Some(token) = found else { return Ok(None) };
        if token.stale {
            sqlx::query!("update tokens set used_at = now() where id = $1", token.id)
                .execute(&self.pool)
                .await?;
        }
        holder(token.id, token.name, &token.role).map(Some)
    }

    pub async fn open_session(&self, token_id: Uuid, secret: &Digest, lifetime_hours: i32) -> Result<()> {
        let mut tx = self.pool.begin().await?;
        sqlx::query!("delete from sessions where expires_at < now()")
            .execute(&mut *tx)
            .await?;
        sqlx::query!(
            "insert into sessions (secret_sha256, token_id, expires_at)
             values ($1, $2, now() + make_interval(hours => $3))",
            &secret[..],
            token_id,
            lifetime_hours,
        )
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(())
    }

    /// `None`: unknown, or it or its token has ended.
    pub async fn holder_of_session(&self, secret: &Digest) -> Result<Option<Holder>> {
        let found = sqlx::query!(
            "select t.id, t.name, t.role from sessions s join tokens t on t.id = s.token_id
             where s.secret_sha256 = $1 and s.expires_at > now()
               and t.revoked_at is null and (t.expires_at is null or t.expires_at > now())",
            &secret[..]
        )
        .fetch_optional(&self.pool)
        .await?;
        found.map(|t| holder(t.id, t.name, &t.role)).transpose()
    }

    pub async fn close_session(&self, secret: &Digest) -> Result<()> {
        sqlx::query!("delete from sessions where secret_sha256 = $1", &secret[..])
            .execute(&self.pool)
            .await?;
        Ok(())
    }
}
