//! In the home kernel: files are placed, the next boot is armed, and the machine leaves.

use super::{Journey, Leg, ORDER_WORD, loader, order_of_this_boot, relics, run, stage};
use crate::environment;
use crate::spool::Spool;
use crate::system;
use crate::trouble::Trouble;
use crate::worker::Ctx;
use protocol::{Boot, Measure, Phase, Report, Trip};
use std::fs;
use std::path::Path;
use std::time::Duration;

const LOAD_LIMIT_S: u64 = 120;
/// How often a worker that waits for its end looks whether the time for that is over.
const LOOK: Duration = Duration::from_secs(1);
/// Whoever follows looks every second: told that the machine is away, they close their connection before the kernel
/// under it is gone, instead of waiting on a dead one.
pub(super) const FAREWELL: Duration = Duration::from_millis(1500);

/// A kernel that fails shall say so and let the machine go home by itself. A machine's own `append` comes later, and
/// of most of these the last one counts (Documentation/admin-guide/kernel-parameters.txt).
const GUARD: [&str; 5] = [
    "panic=10",
    "oops=panic",
    "softlockup_panic=1",
    "hung_task_panic=1",
    "nmi_watchdog=panic",
];

/// Comes back only where the machine did not leave.
pub fn depart(ctx: &Ctx, order: &Measure, trip: &Trip) -> Result<Report, Trouble> {
    let spool = Spool::find(&ctx.root, &ctx.order).ok_or_else(|| Trouble("the spool is gone".into()))?;
    if order_of_this_boot().is_some() {
        return Err(Trouble("the machine is in a test kernel, not at home".into()));
    }
    if !super::hook_ran(&ctx.root) {
        let hook = "the boot hook did not run in this boot, so nothing would bring the machine home: \
                    install deploy/machine's hook there and restart it once";
        return Err(Trouble(hook.into()));
    }
    let home = environment::proof();
    // What is no kernel is measured in a boot of its own as well: of the home kernel.
    let boots_home = stage::boots_home(&order.image);
    let mut journey = Journey {
        leg: Leg::Staging,
        release: if boots_home {
            home.release.clone()
        } else {
            order.image.release.clone()
        },
        build_id: if boots_home {
            home.build_id.clone()
        } else {
            order.image.build_id.clone()
        },
        home,
        staged: Vec::new(),
        relics: relics::names(),
        left_s: 0,
    };
    journey.write(&spool)?;
    super::point_hook(&ctx.root)?;
    let files = stage::stage(ctx, &spool, &mut journey, &order.image, trip)?;
    let line = command_line(&journey.home.command_line, &ctx.order, trip);
    ctx.log(format!("command line: {line}\n"));
    if let Boot::Kexec(kexec) = &order.boot {
        load(&kexec.program, &kexec.load_options, &files, &line)?;
    }

    let (phase, firmware_s) = match &order.boot {
        Boot::Kexec(_) => (Phase::Boot, 0),
        _ => (Phase::Firmware, trip.firmware_limit_s),
    };
    ctx.phase(phase, trip.shutdown_limit_s + firmware_s + trip.boot_limit_s);
    let order_deadline_s = spool.order()?.deadline_s;
    journey.left_s = u64::from(order_deadline_s).saturating_sub(ctx.start.elapsed().as_secs());
    journey.leg = Leg::Leaving {
        since_s: system::uptime_s(),
    };
    journey.write(&spool)?;
    std::thread::sleep(FAREWELL);
    let left =
        arm(ctx, &spool, &mut journey, &order.boot, &files, &line).and_then(|()| leave(&order.boot, trip));
    // Still here: the lab's trouble, at home.
    journey.leg = Leg::Staging;
    journey.write(&spool)?;
    match left {
        Err(trouble) => Err(trouble),
        Ok(()) => Err(Trouble(format!(
            "the machine did not leave its home kernel in {} s",
            trip.shutdown_limit_s
        ))),
    }
}

fn arm(
    ctx: &Ctx,
    spool: &Spool,
    journey: &mut Journey,
    boot: &Boot,
    files: &stage::Files,
    line: &str,
) -> Result<(), Trouble> {
    match boot {
        Boot::Oneshot(oneshot) => loader::arm(&oneshot.loader, spool, journey, files, line)?,
        Boot::Commands(commands) => {
            let path = |p: &Path| p.display().to_string();
            let extra = [
                ("PERFBISECT_ORDER", ctx.order.clone()),
                ("PERFBISECT_KERNEL", path(&files.kernel)),
                (
                    "PERFBISECT_INITRAMFS",
                    files.initramfs.as_deref().map(path).unwrap_or_default(),
                ),
                ("PERFBISECT_COMMAND_LINE", line.to_string()),
            ];
            run(&commands.arm, LOAD_LIMIT_S, &extra)?;
        }
        Boot::Kexec(_) | Boot::Qemu(_) | Boot::None => {}
    }
    Ok(())
}

fn leave(boot: &Boot, trip: &Trip) -> Result<(), Trouble> {
    let go = match boot {
        Boot::Kexec(kexec) => &kexec.execute,
        Boot::Commands(commands) => &commands.go,
        Boot::Oneshot(_) | Boot::Qemu(_) | Boot::None => &trip.reboot,
    };
    let since_s = system::uptime_s();
    rustix::fs::sync();
    run(go, trip.shutdown_limit_s.into(), &[])?;
    // The end of the machine's user space is the end of this process.
    while system::uptime_s() <= since_s + u64::from(trip.shutdown_limit_s) {
        std::thread::sleep(LOOK);
    }
    if matches!(boot, Boot::Oneshot(_)) && !system::is_played() {
        // A shutdown that hangs: what is armed is armed.
        rustix::fs::sync();
        let _ = rustix::system::reboot(rustix::system::RebootCommand::Restart);
    }
    Ok(())
}

fn load(program: &str, options: &[String], files: &stage::Files, line: &str) -> Result<(), Trouble> {
    let disabled = fs::read_to_string(system::path("/proc/sys/kernel/kexec_load_disabled"));
    if disabled.is_ok_and(|d| d.trim() == "1") {
        return Err(Trouble(
            "kernel.kexec_load_disabled is 1 in this boot: kexec is forbidden".into(),
        ));
    }
    let mut argv = vec![program.to_string(), "-l".into()];
    argv.extend(options.iter().cloned());
    argv.push(files.kernel.display().to_string());
    argv.extend(
        files
            .initramfs
            .as_ref()
            .map(|i| format!("--initrd={}", i.display())),
    );
    argv.push(format!("--command-line={line}"));
    run(&argv, LOAD_LIMIT_S, &[]).map(drop).map_err(|Trouble(what)| {
        let lockdown = fs::read_to_string(system::path("/sys/kernel/security/lockdown")).unwrap_or_default();
        let why = if lockdown.contains("[integrity]") || lockdown.contains("[confidentiality]") {
            " (lockdown is on: load_options = [\"-s\"] and signed kernels, or the boot loader's one-shot)"
        } else {
            ""
        };
        Trouble(format!("{what}{why}"))
    })
}

/// The home kernel's command line with what only concerned its own boot taken out, and the order's words added.
pub fn command_line(home: &str, order: &str, trip: &Trip) -> String {
    let dropped = |word: &str| {
        let name = word.split('=').next().unwrap_or_default();
        let own = matches!(name, "BOOT_IMAGE" | "initrd") || name.starts_with("perfbisect.");
        let guard = GUARD.iter().any(|g| g.split('=').next() == Some(name));
        own || guard || (name == "root" && trip.root.is_some())
    };
    let mut words: Vec<String> = home
        .split_whitespace()
        .filter(|w| !dropped(w))
        .map(String::from)
        .collect();
    words.extend(trip.root.iter().map(|root| format!("root={root}")));
    words.extend(GUARD.map(String::from));
    words.push(format!("{ORDER_WORD}{order}"));
    words.extend(trip.append.split_whitespace().map(String::from));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_kernel_gets_the_home_kernels_words_and_its_own() {
        let mut trip = Trip {
            append: "mitigations=off".into(),
            root: None,
            modules_dir: String::new(),
            initramfs: vec![],
            ready: vec![],
            reboot: vec![],
            shutdown_limit_s: 1,
            firmware_limit_s: 1,
            boot_limit_s: 1,
        };
        let home = "BOOT_IMAGE=/vmlinuz root=/dev/vda ro panic=0 perfbisect.order=old console=ttyS0";
        let guard = "panic=10 oops=panic softlockup_panic=1 hung_task_panic=1 nmi_watchdog=panic";
        let end = format!("{guard} perfbisect.order=new mitigations=off");
        assert_eq!(
            command_line(home, "new", &trip),
            format!("root=/dev/vda ro console=ttyS0 {end}")
        );
        trip.root = Some("/dev/vdb".into());
        assert_eq!(
            command_line(home, "new", &trip),
            format!("ro console=ttyS0 root=/dev/vdb {end}")
        );
    }
}
