//! Invented labs: worlds whose truth is known, played through [`plan`](fn@crate::plan) until it concludes.
//!
//! The planner here is the daemon's; only the measuring is made up. A [`Setting`] says what kind of world (history,
//! changes, noise, machines, costs), a seed draws one, [`play`] plays it on a clock that only its own steps move,
//! and a [`Tally`] counts how often the answer was right, wrong or none, with exact intervals, and what it cost
//! beside what any search must cost ([`bound`]).
//!
//! What this part must *not* know: how the planner judges. It sees plans and answers jobs, as a lab does.

pub mod bound;
mod dice;
mod forecast;
mod lab;
mod noise;
mod real;
mod shape;
mod tally;
mod world;

pub use dice::Dice;
pub use forecast::{Forecast, one};
pub use lab::{Lab, Played, World, play, play_with};
pub use noise::{Boots, MODELS, Noise};
pub use shape::Shape;
pub use tally::{Answer, Tally, exact95};
pub use world::{Change, Drawn, Form, Setting, What};
