//! Postgres: all SQL is here, in checked queries, in functions named for what they are for.
//!
//! The database is the only place where passes meet, and its `now()` the only clock of leases. Facts are
//! append-only. A function that writes several things that belong together is one transaction.
//!
//! What this room must *not* know: git, ssh, mail, HTTP, and what a plan means.

pub mod actions;
pub mod admission;
pub mod attempts;
pub mod bisections;
pub mod builds;
pub mod facts;
pub mod idempotency;
pub mod jobs;
pub mod local;
pub mod machines;
pub mod notices;
pub mod record;
pub mod surroundings;
pub mod tokens;
pub mod views;

pub use bisections::{CancelOutcome, Channel, Recipient, Submission, Submitted};

use crate::case::Definition;
use sqlx::postgres::{PgListener, PgPoolOptions};
use sqlx::{PgConnection, PgPool};
use std::time::Duration;
use tokio::sync::watch;
use uuid::Uuid;

/// Carriers, passes, pages and the bell together; a private cluster allows 100.
const CONNECTIONS: u32 = 24;
/// A statement that waits longer than this for a connection says so instead of hanging the pass.
const ACQUIRE_LIMIT: Duration = Duration::from_secs(20);

pub static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!("../../migrations");

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("database: {0}")]
    Database(#[from] sqlx::Error),
    #[error("database schema: {0}")]
    Migrate(#[from] sqlx::migrate::MigrateError),
    #[error("{table} {id} holds what this version cannot read: {what}")]
    Unreadable {
        table: &'static str,
        id: String,
        what: String,
    },
}

pub type Result<T> = std::result::Result<T, StoreError>;

#[derive(Clone, Debug)]
pub struct Store {
    pub pool: PgPool,
    bell: watch::Receiver<u64>,
}

impl Store {
    pub async fn connect(url: &str) -> Result<Store> {
        let pool = PgPoolOptions::new()
            .max_connections(CONNECTIONS)
            .acquire_timeout(ACQUIRE_LIMIT)
            .connect(url)
            .await?;
        Ok(Store::over(pool))
    }

    /// On a pool made elsewhere.
    pub fn over(pool: PgPool) -> Store {
        let (rings, bell) = watch::channel(0);
        tokio::spawn(hear(pool.clone(), rings));
        Store { pool, bell }
    }

    pub async fn migrate(&self) -> Result<()> {
        Ok(MIGRATOR.run(&self.pool).await?)
    }

    /// For health checks: does the database answer?
    pub async fn answers(&self) -> Result<()> {
        sqlx::query_scalar!("select 1").fetch_one(&self.pool).await?;
        Ok(())
    }

    /// Rings the bell of every coordinator: something may be new. Carries no data and may be lost.
    pub async fn notify(&self) -> Result<()> {
        ring(&mut *self.pool.acquire().await?).await
    }

    pub fn listen(&self) -> Bell {
        let mut rings = self.bell.clone();
        rings.mark_unchanged();
        Bell { rings }
    }
}

/// Wakes its holder when something may be new; many rings while nobody waits are one.
#[derive(Clone, Debug)]
pub struct Bell {
    rings: watch::Receiver<u64>,
}

impl Bell {
    /// Until the next ring. Pending for ever when the store is gone: a caller has a timer besides.
    pub async fn rung(&mut self) {
        if self.rings.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Rings when the surrounding transaction commits.
pub(crate) async fn ring(db: &mut PgConnection) -> Result<()> {
    sqlx::query!("select pg_notify('perfbisect', '')")
        .execute(db)
        .await?;
    Ok(())
}

/// One line for the people who follow a bisection; rings the bell.
pub(crate) async fn say(db: &mut PgConnection, bisection: Uuid, kind: &str, text: &str) -> Result<()> {
    let text = storable(text);
    sqlx::query!(
        "insert into events (bisection_id, kind, text) values ($1, $2, $3)",
        bisection,
        kind,
        text
    )
    .execute(&mut *db)
    .await?;
    ring(db).await
}

/// Keeps a definition under its digest; one that is there already is the same.
pub(crate) async fn keep(db: &mut PgConnection, definition: &Definition) -> Result<()> {
    sqlx::query!(
        "insert into definitions (digest, kind, body) values ($1, $2, $3) on conflict (digest) do nothing",
        definition.digest,
        definition.kind,
        definition.body,
    )
    .execute(db)
    .await?;
    Ok(())
}

/// Postgres keeps no NUL in text.
pub(crate) fn storable(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// The same for a JSON value, however deep.
pub(crate) fn storable_json(value: serde_json::Value) -> serde_json::Value {
    use serde_json::Value;
    match value {
        Value::String(text) => Value::String(storable(&text)),
        Value::Array(items) => Value::Array(items.into_iter().map(storable_json).collect()),
        Value::Object(fields) => Value::Object(
            fields
                .into_iter()
                .map(|(k, v)| (storable(&k), storable_json(v)))
                .collect(),
        ),
        plain @ (Value::Null | Value::Bool(_) | Value::Number(_)) => plain,
    }
}

/// Listens as long as anybody holds the store. Rings in a gap are lost, so the end of a gap rings by itself.
async fn hear(pool: PgPool, rings: watch::Sender<u64>) {
    const AGAIN: Duration = Duration::from_secs(1);
    let all_gone = rings.clone();
    let listen = async {
        loop {
            match listen_once(&pool, &rings).await {
                Err(sqlx::Error::PoolClosed) => return,
                Err(error) => {
                    tracing::warn!("the database's bell is silent, listening again in 1 s: {error}")
                }
                Ok(()) => {}
            }
            tokio::time::sleep(AGAIN).await;
        }
    };
    tokio::select! {
        () = listen => {}
        () = all_gone.closed() => {}
    }
}

async fn listen_once(pool: &PgPool, rings: &watch::Sender<u64>) -> std::result::Result<(), sqlx::Error> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.listen("perfbisect").await?;
    loop {
        rings.send_modify(|n| *n = n.wrapping_add(1));
        // None: the connection was lost and made anew; what rang meanwhile is unknown, so it rings now.
        listener.try_recv().await?;
        while listener.next_buffered().is_some() {}
    }
}
