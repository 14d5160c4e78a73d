//! Ways to fool the guard of scratch devices: on file trees, and on this machine's own loop devices.

#[path = "../loop_device/mod.rs"]
mod loop_device;
mod on_files;
mod on_loops;
