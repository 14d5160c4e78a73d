//! What booting strange kernels on this machine depends on, as the home kernel says it. Read, never judged: that is the
//! daemon's affair.

use crate::probe::which;
use crate::root::Root;
use crate::system;
use std::collections::BTreeMap;
use std::fs;

/// Of the EFI variable: four bytes of attributes, then 1 where it is on.
const SECURE_BOOT: &str = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";

pub fn facts(root: &Root) -> BTreeMap<String, String> {
    let read = |path: &str| Some(fs::read_to_string(system::path(path)).ok()?.trim().to_string());
    let mut facts = BTreeMap::new();
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            facts.insert(name.to_string(), value);
        }
    };
    add("resumed", super::hook_ran(root).then(|| "yes".into()));
    add("test_kernel_of", super::order_of_this_boot());
    add("command_line", Some(system::command_line()));
    let lockdown = read("/sys/kernel/security/lockdown");
    add(
        "lockdown",
        lockdown.and_then(|l| Some(l.split_once('[')?.1.split_once(']')?.0.to_string())),
    );
    let secure = fs::read(system::path(SECURE_BOOT)).ok();
    add(
        "secure_boot",
        secure.map(|bytes| if bytes.last() == Some(&1) { "on" } else { "off" }.into()),
    );
    let kexec = match (
        which("kexec"),
        read("/proc/sys/kernel/kexec_load_disabled").as_deref(),
    ) {
        (None, _) => "not installed",
        (_, Some("1")) => "forbidden by kexec_load_disabled",
        (_, Some(_)) => "allowed",
        (_, None) => "not in this kernel",
    };
    add("kexec", Some(kexec.into()));
    add(
        "watchdog",
        system::path("/dev/watchdog").exists().then(|| "yes".into()),
    );
    add(
        "pstore",
        fs::read_dir(system::path("/sys/fs/pstore"))
            .is_ok()
            .then(|| "yes".into()),
    );
    let boot = rustix::fs::statvfs(system::path("/boot").as_path()).ok();
    add(
        "boot_free_mib",
        boot.map(|s| (s.f_bavail.saturating_mul(s.f_frsize) >> 20).to_string()),
    );
    facts
}
