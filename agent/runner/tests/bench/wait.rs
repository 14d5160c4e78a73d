//! The one place in here that waits: for what has no event of its own, looked at again and again, within a limit.

use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

/// Until `look` finds something.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < LIMIT, "waited in vain for {what}");
        std::thread::sleep(POLL);
    }
}
