//! The simulated lab: scenarios of what a lab does to a bisection, played against the offline door.
//!
//! Only the world is invented (values, clock, failures); the mind behind the door is the product's. A scenario is
//! data (`data/scenarios.json`), the value of every run is exact by the rule that stands beside it.

pub mod draw;
pub mod play;
pub mod scenario;
pub mod world;

pub use play::{Ending, play};
pub use scenario::{Scenario, scenarios};
