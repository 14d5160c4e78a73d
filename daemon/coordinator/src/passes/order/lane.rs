//! A lane's boot method as the agent is told it. A new field on either side does not compile until it is mapped.

use crate::config::BootMethod;
use crate::config::boot::Trip;
use protocol::{Bench, Boot, Commands, ImageKind, ImageManifest, Kexec, Loader, Measure, Oneshot, Qemu};

pub fn boot(lane: &BootMethod) -> Boot {
    match lane.clone() {
        BootMethod::Qemu {
            program,
            machine,
            accel,
            icount,
            memory_mib,
            cpus,
            append,
            extra_args,
            boot_limit_s,
            silence_limit_s,
        } => Boot::Qemu(Qemu {
            program,
            machine,
            accel,
            icount,
            memory_mib,
            cpus,
            append,
            extra_args,
            boot_limit_s,
            silence_limit_s,
        }),
        BootMethod::None => Boot::None,
        BootMethod::Kexec {
            program,
            load_options,
            execute,
            trip,
        } => Boot::Kexec(Kexec {
            program,
            load_options,
            execute,
            trip: told(trip),
        }),
        BootMethod::Grub {
            dir,
            seen_as,
            entry,
            trip,
        } => Boot::Oneshot(Oneshot {
            loader: Loader::Grub { dir, seen_as, entry },
            trip: told(trip),
        }),
        BootMethod::SystemdBoot { esp, trip } => Boot::Oneshot(Oneshot {
            loader: Loader::SystemdBoot { esp },
            trip: told(trip),
        }),
        BootMethod::Commands {
            arm,
            go,
            disarm,
            trip,
        } => Boot::Commands(Commands {
            arm,
            go,
            disarm,
            trip: told(trip),
        }),
    }
}

/// The machine's own kernel, booted by this way, with nothing to measure.
pub fn home_kernel(arch: &str, boot: Boot) -> Measure {
    let image = ImageManifest {
        kind: ImageKind::Kernel,
        arch: arch.into(),
        files: Vec::new(),
        build_id: String::new(),
        release: String::new(),
        digest: String::new(),
        compiler: String::new(),
        compiler_digest: String::new(),
    };
    Measure {
        image,
        boot,
        bench: Bench::default(),
        conditions: Default::default(),
    }
}

fn told(trip: Trip) -> protocol::Trip {
    let Trip {
        append,
        root,
        modules_dir,
        initramfs,
        ready,
        reboot,
        shutdown_limit_s,
        firmware_limit_s,
        boot_limit_s,
    } = trip;
    protocol::Trip {
        append,
        root,
        modules_dir,
        initramfs,
        ready,
        reboot,
        shutdown_limit_s,
        firmware_limit_s,
        boot_limit_s,
    }
}
