//! How often somebody may try to log in.
//!
//! Tokens cannot be guessed; this keeps those who try from making work, and makes a stolen half of one useless.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// More than slips of the hand.
const FAILURES: u32 = 10;
const WINDOW: Duration = Duration::from_secs(60);
/// Addresses remembered at a time. Who has more of them than this makes all strangers wait.
const ADDRESSES: usize = 10_000;

/// Failures by address, since when they are counted.
#[derive(Default)]
pub struct Logins(Mutex<BTreeMap<IpAddr, (Instant, u32)>>);

impl Logins {
    /// How long to wait, if one must.
    pub fn wait(&self, from: IpAddr, now: Instant) -> Option<Duration> {
        let counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let left = |since: Instant| WINDOW.checked_sub(now.duration_since(since));
        match counted.get(&from) {
            Some((since, failures)) if *failures >= FAILURES => left(*since),
            Some(_) => None,
            None if counted.len() >= ADDRESSES => {
                counted.values().filter_map(|(since, _)| left(*since)).min()
            }
            None => None,
        }
    }

    pub fn failed(&self, from: IpAddr, now: Instant) {
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counted.retain(|_, (since, _)| now.duration_since(*since) < WINDOW);
        if counted.len() < ADDRESSES || counted.contains_key(&from) {
            counted.entry(from).or_insert((now, 0)).1 += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_fails_too_often_waits_and_others_do_not() {
        let (logins, now) = (Logins::default(), Instant::now());
        let [one, other] = [IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2])];
        for _ in 0..FAILURES {
            assert_eq!(logins.wait(one, now), None);
            logins.failed(one, now);
        }
        assert_eq!(logins.wait(one, now), Some(WINDOW));
        assert_eq!(logins.wait(other, now), None);
        let later = now + WINDOW;
        assert_eq!(logins.wait(one, later), Some(Duration::ZERO));
        assert_eq!(logins.wait(one, later + Duration::from_millis(1)), None);
        logins.failed(one, later + Duration::from_millis(1));
        assert_eq!(
            logins.wait(one, later + Duration::from_millis(2)),
            None,
            "counted anew"
        );
    }
}
