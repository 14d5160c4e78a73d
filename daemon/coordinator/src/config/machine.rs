//! A machine: how it is reached, what it does, how it boots.

use super::boot::{BootMethod, check_boot};
use super::is_name;
use super::tree::default_arch;
use anyhow::ensure;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A machine that boots and measures, builds, or both. It holds one order at a time.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    pub name: String,
    pub address: Address,
    #[serde(default = "default_roles")]
    pub roles: Vec<Role>,
    #[serde(default)]
    pub pools: Vec<String>,
    #[serde(default = "default_arch")]
    pub arch: String,
    /// The agent's folder on the machine.
    pub work_dir: PathBuf,
    pub boot: BootMethod,
    pub ssh: Option<Ssh>,
    /// Run by the daemon. Without it a machine that hangs stays away until somebody walks there.
    pub power: Option<Power>,
    pub console: Option<Console>,
    /// Seconds added to an order's own limits before the agent gives up by itself.
    #[serde(default = "default_grace_s")]
    pub grace_s: u32,
}

fn default_roles() -> Vec<Role> {
    vec![Role::Build, Role::Measure]
}
fn default_grace_s() -> u32 {
    120
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    Build,
    Measure,
}

/// `local`, or `user@host` or `user@host:port`.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "String")]
pub enum Address {
    Local,
    Ssh { user: String, host: String, port: u16 },
}

impl TryFrom<String> for Address {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text == "local" {
            return Ok(Address::Local);
        }
        let wrong = || format!("`{text}` is no address: write `local`, `user@host` or `user@host:port`");
        let (user, rest) = text.split_once('@').ok_or_else(wrong)?;
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) => (host, port.parse().map_err(|_| wrong())?),
            None => (rest, 22),
        };
        if user.is_empty() || host.is_empty() {
            return Err(wrong());
        }
        Ok(Address::Ssh {
            user: user.into(),
            host: host.into(),
            port,
        })
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ssh {
    /// The pinned host key, as in a public key file: `ssh-ed25519 AAAA…`.
    pub host_key: String,
    /// Private key file; without it the ssh-agent at SSH_AUTH_SOCK is asked. No passwords.
    pub key_file: Option<PathBuf>,
}

/// Commands of the machine's power control (ipmitool, a PDU's, a hypervisor's), argv each.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Power {
    #[serde(default)]
    pub on: Vec<String>,
    #[serde(default)]
    pub off: Vec<String>,
    /// Off and on again; without it, `off` and then `on`.
    #[serde(default)]
    pub cycle: Vec<String>,
    /// Says on or off; for people.
    #[serde(default)]
    pub status: Vec<String>,
    #[serde(default = "default_power_limit_s")]
    pub limit_s: u32,
}

fn default_power_limit_s() -> u32 {
    60
}

/// A command whose output is the machine's console as it comes (`ipmitool sol activate`, `console`, `socat`).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Console {
    pub command: Vec<String>,
}

pub(super) fn check_machine(machine: &Machine) -> anyhow::Result<()> {
    ensure!(
        is_name(&machine.name),
        "name = \"{}\": letters, digits, `-`, `_` and `.`",
        machine.name
    );
    ensure!(
        !machine.roles.is_empty(),
        "roles is empty: write [\"build\", \"measure\"] or one of them"
    );
    let remote = matches!(machine.address, Address::Ssh { .. });
    ensure!(
        !remote || machine.ssh.is_some(),
        "a machine reached over SSH needs [ssh] with its host_key"
    );
    ensure!(
        remote || machine.boot.trip().is_none(),
        "this daemon's own machine cannot be booted into a test kernel: it would take the daemon with it"
    );
    if let Some(power) = &machine.power {
        ensure!(
            !power.cycle.is_empty() || !(power.on.is_empty() || power.off.is_empty()),
            "[power] needs cycle, or on and off"
        );
    }
    if let Some(console) = &machine.console {
        ensure!(!console.command.is_empty(), "[console] needs a command");
    }
    check_boot(&machine.boot)
}
