//! The agent as the daemon sees it: a program, called verb by verb, with a folder of its own.

mod agent;
mod conditions;
mod console;
mod cpio;
mod digest;
mod frames;
mod held;
mod journey;
mod life;
#[path = "../loop_device/mod.rs"]
mod loop_device;
mod none;
mod played;
mod trees;
mod wait;
