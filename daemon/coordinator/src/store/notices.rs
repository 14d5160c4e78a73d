//! The outbox: one message owed to one recipient, written in the transaction of the conclusion it tells of.
//!
//! A notice is leased, sent, and marked. Whoever dies in between leaves a lease that lapses, and the notice is sent
//! again under the same id: at least once, and a second copy can be told by its id.

use super::{Channel, Recipient, Result, Store, StoreError, say, storable};
use sqlx::PgConnection;
use uuid::Uuid;

/// Longer than any one sending may take (`passes::deliver`), so that nobody sends what is being sent.
pub const LEASE_S: f64 = 60.0;
/// First wait after a failed try; each further one is twice as long.
const BACKOFF_FIRST_S: f64 = 15.0;
/// A receiver that comes back is served within the hour.
const BACKOFF_CAP_S: f64 = 3600.0;
/// About four days of trying: a long weekend without a mail server loses nothing.
pub const TRIES_LIMIT: i32 = 100;

/// A report in the forms that the channels carry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Words {
    pub subject: String,
    pub mail: String,
    pub webhook: String,
}

/// A notice that this caller alone may send, until its lease lapses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notice {
    pub id: Uuid,
    pub bisection: Uuid,
    pub recipient: Recipient,
    pub subject: String,
    pub body: String,
    /// This try included.
    pub tries: i32,
}

/// How a try went.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Tried {
    Sent,
    /// To be tried again, until the limit of tries.
    Later(String),
    /// Not to be tried again unless somebody asks for it (`resend`).
    Never(String),
}

/// Writes a notice for every recipient of the bisection, in the caller's transaction. A recipient that has one
/// already gets no second. Returns how many were written.
pub async fn owe(db: &mut PgConnection, bisection: Uuid, words: &Words) -> Result<u64> {
    let recipients = sqlx::query!(
        "select channel, address from recipients where bisection_id = $1 order by channel, address",
        bisection
    )
    .fetch_all(&mut *db)
    .await?;
    let mut written = 0;
    for recipient in recipients {
        let body = match channel(bisection, &recipient.channel)? {
            Channel::Mail => &words.mail,
            Channel::Webhook => &words.webhook,
        };
        let done = sqlx::query!(
            "insert into notices (id, bisection_id, channel, address, subject, body, state)
             values ($1, $2, $3, $4, $5, $6, 'waiting')
             on conflict (bisection_id, channel, address) do nothing",
            Uuid::now_v7(),
            bisection,
            recipient.channel,
            recipient.address,
            storable(&words.subject),
            storable(body),
        )
        .execute(&mut *db)
        .await?;
        written += done.rows_affected();
    }
    Ok(written)
}

impl Store {
    /// Leases at most `most` notices that are due, the longest waiting first, and counts the try: a notice that
    /// kills its sender is not sent for ever.
    pub async fn lease_notices(&self, most: i64) -> Result<Vec<Notice>> {
        let rows = sqlx::query!(
            "update notices set leased_until = now() + make_interval(secs => $2), tries = tries + 1
             where id in (select id from notices
                          where state = 'waiting' and next_try_at <= now()
                            and (leased_until is null or leased_until <= now())
                          order by next_try_at, id limit $1 for update skip locked)
             returning id, bisection_id, channel, address, subject, body, tries",
            most,
            LEASE_S
        )
        .fetch_all(&self.pool)
        .await?;
        let mut notices = Vec::new();
        for row in rows {
            let recipient = Recipient {
                channel: channel(row.id, &row.channel)?,
                address: row.address,
            };
            notices.push(Notice {
                id: row.id,
                bisection: row.bisection_id,
                recipient,
                subject: row.subject,
                body: row.body,
                tries: row.tries,
            });
        }
        notices.sort_by_key(|notice| notice.id);
        Ok(notices)
    }

    /// Records how a leased notice fared. One that was marked as sent meanwhile (our lease had lapsed) stays so.
    pub async fn mark_notice(&self, notice: &Notice, tried: &Tried) -> Result<()> {
        let mut tx = self.pool.begin().await?;
        let (state, error) = match tried {
            Tried::Sent => ("sent", None),
            Tried::Later(error) if notice.tries < TRIES_LIMIT => ("waiting", Some(storable(error))),
            Tried::Later(error) | Tried::Never(error) => ("failed", Some(storable(error))),
        };
        let changed = sqlx::query!(
            "update notices set state = $2, last_error = $3, leased_until = null,
                    next_try_at = now() + make_interval(secs => $4),
                    sent_at = case when $2 = 'sent' then now() end
             where id = $1 and state = 'waiting'",
            notice.id,
            state,
            error,
            backoff_s(notice.tries, notice.id),
        )
        .execute(&mut *tx)
        .await?;
        if changed.rows_affected() == 1 {
            let to = format!(
                "{} to {}",
                notice.recipient.channel.word(),
                notice.recipient.address
            );
            match (state, &error) {
                ("sent", _) => say(&mut tx, notice.bisection, "told", &to).await?,
                ("failed", Some(error)) => {
                    say(
                        &mut tx,
                        notice.bisection,
                        "not told",
                        &format!("{to}: given up: {error}"),
                    )
                    .await?;
                }
                // One line for a receiver that is down, not one a try.
                (_, Some(error)) if notice.tries == 1 => {
                    say(
                        &mut tx,
                        notice.bisection,
                        "not told",
                        &format!("{to}: will be tried again: {error}"),
                    )
                    .await?;
                }
                _ => {}
            }
        }
        Ok(tx.commit().await?)
    }

    /// Tries a notice that was given up once more, from the beginning. False where there is none such.
    pub async fn resend_notice(&self, id: Uuid) -> Result<bool> {
        let changed = sqlx::query!(
            "update notices set state = 'waiting', tries = 0, next_try_at = now(), leased_until = null
             where id = $1 and state = 'failed'",
            id
        )
        .execute(&self.pool)
        .await?;
        self.notify().await?;
        Ok(changed.rows_affected() == 1)
    }
}

/// Seconds until the next try: doubling up to a cap, and up to a quarter more by the notice's own id, so that the
/// many notices of one outage do not come back at the same moment.
fn backoff_s(tries: i32, id: Uuid) -> f64 {
    let doubled = BACKOFF_FIRST_S * 2f64.powi(tries.clamp(1, 30) - 1);
    let share = f64::from(id.as_bytes()[15]) / 255.0;
    doubled.min(BACKOFF_CAP_S) * (1.0 + share / 4.0)
}

fn channel(id: Uuid, word: &str) -> Result<Channel> {
    match word {
        "mail" => Ok(Channel::Mail),
        "webhook" => Ok(Channel::Webhook),
        other => Err(StoreError::Unreadable {
            table: "notices",
            id: id.to_string(),
            what: format!("channel `{other}`"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_an_hour_and_are_spread() {
        let (low, high) = (Uuid::from_u128(0), Uuid::from_u128(255));
        assert_eq!([1, 2, 3].map(|tries| backoff_s(tries, low)), [15.0, 30.0, 60.0]);
        assert_eq!([50, i32::MAX].map(|tries| backoff_s(tries, low)), [3600.0; 2]);
        assert_eq!(backoff_s(1, high), 18.75);
        let total_s: f64 = (1..TRIES_LIMIT).map(|tries| backoff_s(tries, low)).sum();
        assert!(total_s > 3.5 * 86400.0, "a long weekend: {total_s}");
    }
}
