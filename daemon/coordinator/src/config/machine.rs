//! A machine: how it is reached, what it does, how it boots.

use super::boot::{BootMethod, check_boot};
use super::is_name;
use super::lane::check_held;
use super::tree::default_arch;
use anyhow::ensure;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
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
    /// Settings that are the same in every measurement, name to value; the agent's `held` knows them.
    #[serde(default)]
    pub held: BTreeMap<String, String>,
    /// Disks that workloads may make anew. Nothing else is ever written over.
    #[serde(default)]
    pub scratch: Vec<Scratch>,
    #[serde(default)]
    pub disturbed: Disturbed,
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

/// A disk that is given away, named by what it says of itself: one of `serial`, `wwid`, `dm_uuid`, `backing_file`.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Scratch {
    /// What workloads call it.
    pub name: String,
    /// `lsblk -o NAME,SERIAL`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wwid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dm_uuid: Option<String>,
    /// The file behind a loop device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backing_file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<u32>,
    /// `blockdev --getsize64`: serial numbers of cheap enclosures repeat.
    pub bytes: u64,
}

impl Scratch {
    pub fn told(&self) -> Option<protocol::Scratch> {
        use protocol::DeviceId;
        let ids = [
            self.serial.clone().map(DeviceId::Serial),
            self.wwid.clone().map(DeviceId::Wwid),
            self.dm_uuid.clone().map(DeviceId::DmUuid),
            self.backing_file.clone().map(DeviceId::BackingFile),
        ];
        let mut ids = ids.into_iter().flatten();
        let (id, None) = (ids.next()?, ids.next()) else {
            return None;
        };
        Some(protocol::Scratch {
            name: self.name.clone(),
            id,
            partition: self.partition,
            bytes: self.bytes,
        })
    }
}

/// From when on something beside a run makes it worth nothing. Facts are recorded whatever is said here.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Disturbed {
    /// Per cent of the CPUs' time that the hypervisor gave to others.
    pub steal_pct: f64,
    pub foreign_io_mib_per_s: f64,
    pub clock_step_s: f64,
    /// CPUs slowed down because of heat or power.
    pub throttling: bool,
    /// Somebody with a terminal on the machine.
    pub logins: bool,
}

impl Default for Disturbed {
    fn default() -> Disturbed {
        Disturbed {
            // A twentieth of the time is more than the losses that are looked for, and less than a neighbour takes.
            steal_pct: 5.0,
            // The journal of an idle system writes some KiB a second.
            foreign_io_mib_per_s: 1.0,
            // More than ntpd slews in a run of minutes (500 ppm), less than any step that it makes (128 ms).
            clock_step_s: 0.1,
            throttling: true,
            // Whoever tries this at his own desk is logged in; a lab says so.
            logins: false,
        }
    }
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
    check_held(machine)?;
    let mut names = BTreeSet::new();
    for scratch in &machine.scratch {
        check_scratch(scratch)?;
        ensure!(
            names.insert(&scratch.name),
            "two [[scratch]] are called `{}`",
            scratch.name
        );
    }
    check_boot(&machine.boot)
}

fn check_scratch(scratch: &Scratch) -> anyhow::Result<()> {
    let name = &scratch.name;
    ensure!(
        is_name(name),
        "scratch name = \"{name}\": letters, digits, `-`, `_` and `.`"
    );
    let ids = [
        &scratch.serial,
        &scratch.wwid,
        &scratch.dm_uuid,
        &scratch.backing_file,
    ];
    let given: Vec<&String> = ids.into_iter().flatten().collect();
    ensure!(
        given.len() == 1 && !given[0].trim().is_empty(),
        "scratch `{name}` needs exactly one of serial, wwid, dm_uuid, backing_file; a path like /dev/sdb is none: it \
         means another disk after the next boot"
    );
    ensure!(scratch.bytes > 0, "scratch `{name}`: bytes = 0");
    ensure!(
        scratch.partition != Some(0),
        "scratch `{name}`: partitions are counted from 1"
    );
    Ok(())
}
