//! passes

pub mod deliver;
