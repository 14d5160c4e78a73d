//! Waiting for something that sends no event of its own: a file, a socket, a row.
//!
//! The one place of the tests that may pause (`tidy` sees to that), because only a polled condition ends the
//! wait: a pause never stands in for it.

use std::time::{Duration, Instant};

/// Between two looks. Short against anything a test waits for, long against the cost of a look.
const POLL: Duration = Duration::from_millis(25);

/// Looks until `look` gives a value, and returns it; panics with `what` when `limit` has passed without one.
pub fn until<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(
            began.elapsed() < limit,
            "waited {} s in vain for {what}",
            limit.as_secs()
        );
        std::thread::sleep(POLL);
    }
}

/// The same for asynchronous tests.
pub async fn until_async<T>(what: &str, limit: Duration, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(
            began.elapsed() < limit,
            "waited {} s in vain for {what}",
            limit.as_secs()
        );
        tokio::time::sleep(POLL).await;
    }
}
