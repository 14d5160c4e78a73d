//! Sends what is owed: leases notices that are due, sends them, records how it went.

use crate::post::{Letter, NotSent, Post};
use crate::store::notices::{LEASE_S, Notice, Tried};
use crate::store::{Channel, Result, Store};
use std::time::Duration;
use tracing::{info, warn};

/// Leased and sent at the same time: a receiver that hangs holds up few others, and for a bounded time.
const AT_ONCE: i64 = 8;
/// For one sending, all in all, so that it ends within its lease.
const SEND_LIMIT: Duration = Duration::from_secs(40);
const _: () = assert!(SEND_LIMIT.as_secs() < LEASE_S as u64);

/// Sends all that is due; returns how many were sent. A notice whose sending succeeded and whose row could not be
/// marked is sent again later, under the same id.
pub async fn deliver_once(store: &Store, post: &Post) -> Result<usize> {
    let mut sent = 0;
    loop {
        // Ends: every try moves the notice's next one into the future.
        let notices = store.lease_notices(AT_ONCE).await?;
        if notices.is_empty() {
            return Ok(sent);
        }
        let sendings = notices.into_iter().map(|notice| async move {
            let tried = send(post, &notice).await;
            store.mark_notice(&notice, &tried).await?;
            Ok(matches!(tried, Tried::Sent))
        });
        let results: Vec<Result<bool>> = futures_util::future::join_all(sendings).await;
        for result in results {
            sent += usize::from(result?);
        }
    }
}

async fn send(post: &Post, notice: &Notice) -> Tried {
    let letter = Letter {
        id: notice.id,
        address: notice.recipient.address.clone(),
        subject: notice.subject.clone(),
        body: notice.body.clone(),
    };
    let sending = async {
        match notice.recipient.channel {
            Channel::Mail => post.mail(&letter).await,
            Channel::Webhook => post.webhook(&letter).await,
        }
    };
    let limit = || NotSent::Later(format!("no answer within {} s", SEND_LIMIT.as_secs()));
    let result = tokio::time::timeout(SEND_LIMIT, sending)
        .await
        .unwrap_or_else(|_| Err(limit()));
    let (bisection, id, to) = (notice.bisection, notice.id, &notice.recipient.address);
    match result {
        Ok(()) => {
            info!(%bisection, notice = %id, "told {to}");
            Tried::Sent
        }
        Err(NotSent::Later(error)) => {
            warn!(%bisection, notice = %id, tries = notice.tries, "{to} could not be told yet: {error}");
            Tried::Later(error)
        }
        Err(NotSent::Never(error)) => {
            warn!(%bisection, notice = %id, "{to} cannot be told: {error}");
            Tried::Never(error)
        }
    }
}
