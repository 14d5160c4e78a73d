//! A job: boot and benchmark a kernel on a machine, once more.

use crate::{Kernel, MachineId};

/// `(kernel, machine, replicate)` is the identity of a job within a bisection.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Job {
    pub kernel: Kernel,
    pub machine: MachineId,
    pub replicate: u32,
    /// Runs of the benchmark wanted in that boot.
    pub runs: u32,
}
