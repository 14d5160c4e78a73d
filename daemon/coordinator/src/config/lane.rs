//! What the numbers of a machine depend on besides the image: how it boots, what is held, which disks are its scratch. A
//! change opens a new lane, whose level is measured anew.

use super::boot::BootMethod;
use super::machine::{Machine, Scratch};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct Lane {
    pub boot: BootMethod,
    pub held: BTreeMap<String, String>,
    pub scratch: Vec<Scratch>,
}

/// A lane with nothing but its way to boot is written as that: such lanes are older than the rest, and stay the same.
#[derive(Clone, Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Whole {
        boot: BootMethod,
        held: BTreeMap<String, String>,
        scratch: Vec<Scratch>,
    },
    Boot(BootMethod),
}

impl From<Written> for Lane {
    fn from(written: Written) -> Lane {
        match written {
            Written::Whole { boot, held, scratch } => Lane { boot, held, scratch },
            Written::Boot(boot) => Lane {
                boot,
                held: BTreeMap::new(),
                scratch: Vec::new(),
            },
        }
    }
}

impl From<Lane> for Written {
    fn from(lane: Lane) -> Written {
        let Lane { boot, held, scratch } = lane;
        match held.is_empty() && scratch.is_empty() {
            true => Written::Boot(boot),
            false => Written::Whole { boot, held, scratch },
        }
    }
}

/// Held by words of the kernel's command line: setting and word.
const ON_THE_COMMAND_LINE: [(&str, &str); 2] = [("mitigations", "mitigations"), ("memory", "mem")];

impl Lane {
    pub fn of(machine: &Machine) -> Lane {
        Lane {
            boot: machine.boot.clone(),
            held: machine.held.clone(),
            scratch: machine.scratch.clone(),
        }
    }

    /// The way to boot, with what is held by words of the kernel's command line.
    pub fn boot(&self) -> BootMethod {
        let mut boot = self.boot.clone();
        for (setting, word) in ON_THE_COMMAND_LINE {
            if let (Some(value), Some(append)) = (self.held.get(setting), boot.append_mut()) {
                *append = format!("{append} {word}={value}").trim().to_string();
            }
        }
        boot
    }

    /// What is held on the agent's machine, and what in the guest that it boots.
    pub fn held(&self) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
        let in_guest = matches!(self.boot, BootMethod::Qemu { .. });
        let of_command_line = |name: &String| ON_THE_COMMAND_LINE.iter().any(|(s, _)| s == name);
        self.held
            .clone()
            .into_iter()
            .partition(|(name, _)| !(in_guest && of_command_line(name)))
    }
}

pub(super) fn check_held(machine: &Machine) -> anyhow::Result<()> {
    for (setting, _) in ON_THE_COMMAND_LINE {
        anyhow::ensure!(
            !machine.held.contains_key(setting) || !matches!(machine.boot, BootMethod::None),
            "held.{setting} is a word of a kernel's command line, and boot.method = \"none\" boots no kernel"
        );
    }
    Ok(())
}
