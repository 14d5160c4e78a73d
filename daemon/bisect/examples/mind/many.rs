//! Many trials over several threads; which thread plays which is nothing, a tally does not depend on the order.

use bisect::simulate::Tally;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Plays trials `0..trials`, each into a tally.
pub fn many(trials: usize, threads: usize, play: impl Fn(u64, &mut Tally) + Sync) -> Tally {
    let next = AtomicUsize::new(0);
    let all = Mutex::new(Tally::default());
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, trials.max(1)) {
            scope.spawn(|| {
                let mut own = Tally::default();
                loop {
                    let trial = next.fetch_add(1, Ordering::Relaxed);
                    if trial >= trials {
                        break;
                    }
                    play(trial as u64, &mut own);
                }
                all.lock().unwrap_or_else(PoisonError::into_inner).join(own);
            });
        }
    });
    all.into_inner().unwrap_or_else(PoisonError::into_inner)
}
