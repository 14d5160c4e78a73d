//! Why a machine could not be used. Each is the lab's trouble, never the kernel's.

use protocol::Refusal;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    #[error("no machine `{machine}` is configured; there are: {known}")]
    UnknownMachine { machine: String, known: String },
    #[error("machine `{machine}` cannot be reached{at}: {what}", at = at(.address))]
    Unreachable {
        machine: String,
        address: String,
        what: String,
    },
    #[error(
        "machine `{machine}` at {address} shows another host key than the pinned one: it is not the machine it was, or someone stands between. Pinned: {pinned}; shown: {shown}. If the machine was set up anew, put its new key in ssh.host_key"
    )]
    HostKey {
        machine: String,
        address: String,
        pinned: String,
        shown: String,
    },
    #[error(
        "machine `{machine}`: ssh.host_key cannot be read: {what}. Copy a line of `ssh-keyscan {host}` without the host's name, after checking it"
    )]
    PinnedKey {
        machine: String,
        host: String,
        what: String,
    },
    #[error("machine `{machine}` does not let `{user}` in at {address}: {what}")]
    Auth {
        machine: String,
        user: String,
        address: String,
        what: String,
    },
    #[error("machine `{machine}` refused `{verb}` ({}): {}", .refusal.kind, .refusal.message)]
    Refused {
        machine: String,
        verb: String,
        refusal: Refusal,
    },
    #[error(
        "the agent on machine `{machine}` said something else than the protocol wants after `{verb}`: {what}"
    )]
    Protocol {
        machine: String,
        verb: String,
        what: String,
    },
    #[error("`{verb}` on machine `{machine}` ended with {end}: {stderr}")]
    Agent {
        machine: String,
        verb: String,
        end: String,
        stderr: String,
    },
    #[error("the agent could not be installed on machine `{machine}` at {path}: {what}")]
    Install {
        machine: String,
        path: String,
        what: String,
    },
    #[error("the agent binary {} cannot be read: {what}. Build it, or name it in the configuration: agent = \"…\"", .path.display())]
    NoAgent { path: PathBuf, what: String },
    /// What was to be sent could not be read here.
    #[error("cannot supply machine `{machine}`: {what}")]
    Supply { machine: String, what: String },
    #[error("power control of machine `{machine}` failed: `{command}`: {what}")]
    Power {
        machine: String,
        command: String,
        what: String,
    },
    #[error("the order on machine `{machine}` is no longer followed: nobody takes its lines")]
    Abandoned { machine: String },
}

fn at(address: &str) -> String {
    if address.is_empty() {
        String::new()
    } else {
        format!(" at {address}")
    }
}

impl FleetError {
    /// May go away by itself: worth another connection.
    pub fn is_passing(&self) -> bool {
        matches!(self, FleetError::Unreachable { .. })
    }

    /// The machine is between two kernels, as its order wants it.
    pub fn is_away(&self) -> bool {
        matches!(self, FleetError::Refused { refusal, .. } if refusal.kind == "away")
    }
}
