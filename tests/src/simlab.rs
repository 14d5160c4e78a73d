//! The simulated lab: scenarios of what a lab does to a bisection, played against the offline door.
//!
//! Only the world is invented (values, clock, failures); the mind behind the door is the product's. A scenario is
//! data (`data/scenarios.json`), the value of every run is exact by the rule that stands beside it; the product reads
//! the same file for `perfbisect simulate`.

pub mod play;

pub use play::{Ending, play};

use coordinator::cli::simulate::scenario::File;

/// Every scenario, and the test vectors beside them.
pub fn scenarios() -> File {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/data/scenarios.json");
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{path}: {e}"));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{path}: {e}"))
}
