//! The lab: real Postgres, real sshd, real kernels and a simulated world for the tests.
//!
//! Nothing here imitates what can be had: a cluster is initdb's, a kernel is built, a daemon is the binary.
//! It may use the coordinator's library; nothing of the product may use the lab.

pub mod binaries;
pub mod daemon;
pub mod git_repository;
pub mod kernel_tree;
pub mod level_repository;
pub mod mirrored;
pub mod orders;
pub mod played;
pub mod postgres;
pub mod real_shape;
pub mod receiver;
pub mod records;
pub mod simlab;
pub mod smtp;
pub mod sshd;
pub mod user_tree;
pub mod vm;
pub mod wait;
