//! Ways to fool the guard of scratch devices: on file trees, and on this machine's own loop devices.

mod on_files;
mod on_loops;
