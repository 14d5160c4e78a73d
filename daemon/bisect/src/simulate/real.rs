//! Boots that were really measured, as deviations from their median on the log scale.

pub const BOOTS: &[&[f64]] = &[&[0.0]];
