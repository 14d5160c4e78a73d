//! The agent: one small static program that builds trees, boots kernels and runs benchmarks for one order at a time.
//!
//! It is a program, not a service: every verb does its thing and ends; the work itself is a detached worker that
//! writes a spool, and survives whoever started it. It knows nothing of commits, bisections, metrics or verdicts.

pub mod bench;
pub mod build;
pub mod cancel;
pub mod cli;
pub mod command;
pub mod content;
pub mod disturbance;
pub mod environment;
pub mod follow;
pub mod guest;
pub mod held;
pub mod journey;
pub mod measure;
pub mod metadata;
pub mod micro;
pub mod probe;
pub mod process;
pub mod root;
pub mod scratch;
pub mod sha;
pub mod spool;
pub mod stand;
pub mod start;
pub mod system;
pub mod trees;
pub mod trouble;
pub mod view;
pub mod worker;
