//! What daemon and agent say to each other: JSON values over a pipe or an SSH channel, a line each.
//!
//! The agent is a program, not a service. The daemon runs it with one of these verbs:
//!
//! | call | stdin | stdout | effect |
//! |---|---|---|---|
//! | `probe` | – | one [`Probe`] | what this machine is and which orders it holds |
//! | `start` | one [`Order`] | one [`Started`] | detaches; does nothing if the order is known; refuses an old token |
//! | `follow ID --from N` | – | [`Line`]s from number N, a heartbeat every 5 s, ending with the report | works after the end, too |
//! | `cancel ID` | – | one [`Cancelled`] | stops the order's processes, cleans up, writes a `Cancelled` report |
//! | `erase ID` | – | – | removes the spool, after the daemon's commit |
//! | `have` | one [`Names`] | one [`Names`]: those it has | which files and trees need no transfer |
//! | `put-file SHA256` | the bytes | one [`Stored`] | verified, renamed into the content store |
//! | `get-file SHA256` | – | the bytes | |
//! | `resume` | – | – | at every boot of the machine: ends or goes on with a journey (see [`Trip`]) |
//! | `put-tree TREE` | a pack, thin against trees it has | one [`Stored`] | indexed into the object store, tree verified |
//!
//! Exit status 0 means the call was carried out; 2 means it was refused, with one [`Refusal`] on stdout.
//! Unknown fields are ignored by both sides, so that a version may add some; [`VERSION`] is raised when a
//! meaning changes, and the daemon also reads the version before it.

mod bench;
mod conditions;

pub use bench::*;
pub use conditions::*;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of this protocol.
pub const VERSION: u32 = 1;

/// Seconds between heartbeats on an idle `follow`.
pub const HEARTBEAT_S: u64 = 5;

/// One piece of work for an agent; its id is the attempt's id.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Order {
    pub id: String,
    pub version: u32,
    /// Fencing token: rises with every attempt on this machine; the agent refuses one below the highest it has seen.
    pub token: u64,
    /// The agent gives up by itself after so many seconds and leaves the machine clean.
    pub deadline_s: u32,
    pub work: Work,
}

impl Order {
    /// The trip that it sends its machine on, if it sends it on one.
    pub fn trip(&self) -> Option<&Trip> {
        match &self.work {
            Work::Measure(measure) => measure.boot.trip(),
            Work::Build(_) => None,
        }
    }
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "one order at a time is held")]
pub enum Work {
    Build(Build),
    Measure(Measure),
}

/// Make an image out of a tree that was put before.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Build {
    /// Git tree object to build; the agent has it (`put-tree`).
    pub tree: String,
    /// Name of the work directory that is kept between builds, so that kbuild stays incremental.
    pub slot: String,
    pub recipe: Recipe,
    pub limit_s: u32,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Recipe {
    Kbuild(Kbuild),
    Command(CommandBuild),
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Kbuild {
    /// The kernel's word: `x86_64`, `um`, …
    pub arch: String,
    /// A make target (`tinyconfig`, `defconfig`) or, where `base_config` is given, unused.
    pub base_target: String,
    /// A whole `.config`, copied afresh before `olddefconfig`.
    pub base_config: Option<String>,
    /// Lines merged over the base by the tree's own `merge_config.sh`.
    pub fragment: String,
    /// Lines that must hold after `olddefconfig`, else the build fails with class `config`.
    pub forced: Vec<String>,
    pub cc: String,
    /// SHA-256 of the compiler that builds this search; another one is the lab's trouble, not the kernel's.
    pub cc_digest: Option<String>,
    /// `LOCALVERSION`: unique and of fixed length for every kernel.
    pub localversion: String,
    /// Appended to `KCFLAGS` (other function alignment).
    pub kcflags: String,
    /// Make targets, e.g. `["bzImage"]` or `["bzImage", "modules"]`.
    pub targets: Vec<String>,
    /// Path of the bootable file under `O=`, e.g. `arch/x86/boot/bzImage`.
    pub image: String,
    pub jobs: u32,
}

/// A build for trees that are no kernels.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CommandBuild {
    /// Run with the tree as working directory and `PERFBISECT_OUT` as the directory for results.
    pub command: Vec<String>,
    /// Files under `PERFBISECT_OUT` that make up the image.
    pub artefacts: Vec<String>,
    pub arch: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ImageKind {
    Kernel,
    Userspace,
}

/// A file of an image in the content store.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ImageFile {
    /// `kernel`, `config`, `modules`, `initramfs`, or an artefact's name.
    pub role: String,
    pub sha256: String,
    pub bytes: u64,
}

/// What was built; the image's id is the SHA-256 of this manifest's canonical JSON.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ImageManifest {
    pub kind: ImageKind,
    pub arch: String,
    pub files: Vec<ImageFile>,
    /// GNU build id of vmlinux, hex: proves which image runs. Empty for user space.
    pub build_id: String,
    /// `uname -r` of the kernel. Empty for user space.
    pub release: String,
    /// SHA-256 over loaded sections with release strings, notes and bug-table lines masked: equal means same binary.
    pub digest: String,
    /// `cc --version`'s first line and the compiler's SHA-256.
    pub compiler: String,
    pub compiler_digest: String,
}

/// Boot an image and run a benchmark in it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Measure {
    pub image: ImageManifest,
    pub boot: Boot,
    pub bench: Bench,
    #[serde(default)]
    pub conditions: Conditions,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Boot {
    /// A QEMU guest on the agent's machine; the guest's init is the agent itself.
    Qemu(Qemu),
    /// No boot: the benchmark runs on the agent's machine, with the image's files in its working directory.
    None,
    /// The machine itself, by kexec from its home kernel; home again through firmware and boot loader.
    Kexec(Kexec),
    /// The machine itself, by an entry that the boot loader takes once.
    Oneshot(Oneshot),
    /// The machine itself, by commands of its owner.
    Commands(Commands),
}

impl Boot {
    /// What it takes to leave the home kernel and to come back; None where the machine stays in it.
    pub fn trip(&self) -> Option<&Trip> {
        match self {
            Boot::Qemu(_) | Boot::None => None,
            Boot::Kexec(Kexec { trip, .. })
            | Boot::Oneshot(Oneshot { trip, .. })
            | Boot::Commands(Commands { trip, .. }) => Some(trip),
        }
    }
}

/// How the machine leaves its home kernel (the known good one, the boot loader's default) and comes back. The agent
/// says a phase before each leg: `Boot` (or `Firmware`, where the way leads through it) on the way out, `Shutdown` on
/// the way home; `follow` is then refused as `away` until the machine is up again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Trip {
    /// Appended to the test kernel's command line, after all that the agent says itself.
    pub append: String,
    /// `root=…` of the test kernel where it is not the home kernel's.
    pub root: Option<String>,
    /// Where modules are unpacked: `/lib/modules`.
    pub modules_dir: String,
    /// Makes an initramfs in the home kernel where the image has none; `{release}` and `{out}` are replaced.
    pub initramfs: Vec<String>,
    /// Run in the test kernel before the benchmark; its end means that the machine has settled.
    pub ready: Vec<String>,
    /// Restarts the machine through firmware and boot loader.
    pub reboot: Vec<String>,
    /// From the word to leave until the old kernel is gone.
    pub shutdown_limit_s: u32,
    /// From there until a kernel speaks, where the way leads through firmware.
    pub firmware_limit_s: u32,
    /// From a kernel's first word until the agent runs in it.
    pub boot_limit_s: u32,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Kexec {
    pub program: String,
    /// Given to `kexec -l`: `["-s"]` on machines with secure boot, `["-c"]` for the old system call.
    pub load_options: Vec<String>,
    /// Jumps into the loaded kernel: `["kexec", "-e"]`.
    pub execute: Vec<String>,
    pub trip: Trip,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Oneshot {
    pub loader: Loader,
    pub trip: Trip,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loader {
    /// `entry` is a menu entry that says `source <seen_as>/entry.cfg`; kernel, initramfs and that file are put into
    /// `dir`, which GRUB sees as `seen_as`.
    Grub {
        dir: String,
        seen_as: String,
        entry: String,
    },
    /// Files go to `<esp>/perfbisect`, the entry to `<esp>/loader/entries`.
    SystemdBoot { esp: String },
}

/// argv each, run with `PERFBISECT_ORDER`, `PERFBISECT_KERNEL`, `PERFBISECT_INITRAMFS` and `PERFBISECT_COMMAND_LINE`
/// in their environment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Commands {
    /// Makes the next boot, and only that one, boot the kernel.
    pub arm: Vec<String>,
    /// Leaves the home kernel.
    pub go: Vec<String>,
    /// In the home kernel again, whatever happened.
    pub disarm: Vec<String>,
    pub trip: Trip,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Qemu {
    /// `qemu-system-x86_64` or a path.
    pub program: String,
    /// `microvm,rtc=on,isa-serial=on`, `q35`, …
    pub machine: String,
    pub accel: Accel,
    /// Guest time counts instructions: repeatable numbers, one CPU only, TCG only.
    pub icount: bool,
    pub memory_mib: u32,
    pub cpus: u32,
    /// Appended to the kernel command line.
    pub append: String,
    pub extra_args: Vec<String>,
    /// From start to the guest's init.
    pub boot_limit_s: u32,
    /// No byte on the console for so long while booting is a hang.
    pub silence_limit_s: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Accel {
    Tcg,
    Kvm,
    /// KVM where a probe boot with it works within its limit, else TCG.
    Auto,
}

/// One line of a spool, numbered from 0 without gaps.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Line {
    pub n: u64,
    /// Unix milliseconds on the agent's clock.
    pub at_ms: u64,
    pub event: Event,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A phase began; each has its own limit.
    Phase { phase: Phase, limit_s: u32 },
    /// Console text as it came, control sequences and all (lossy UTF-8).
    Console { text: String },
    /// Build or set-up output worth keeping.
    Log { text: String },
    /// One run of the benchmark ended (warm-ups too, `warmup: true`).
    Run(Run),
    /// Sent by `follow` when nothing else is to say; not in the spool, `n` is that of the next line.
    Heartbeat,
    /// The last line of every spool.
    Report(Report),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    Checkout,
    Configure,
    Compile,
    Collect,
    Firmware,
    Boot,
    Proof,
    Setup,
    Bench,
    Teardown,
    Shutdown,
}

/// How an order ended. Three troubles, three forms: the kernel's (`…Failed`), the lab's (`Trouble`), the user's
/// (`Cancelled`).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    Built(Built),
    BuildFailed(BuildFailed),
    Measured(Measured),
    BootFailed(BootFailed),
    BenchmarkFailed(BenchmarkFailed),
    /// The lab's failure: no disk space, no qemu, wrong compiler, deadline without a sign of the kernel's fault.
    Trouble {
        what: String,
    },
    Cancelled,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Built {
    pub manifest: ImageManifest,
    pub wall_s: f64,
    /// Options of the base or fragment that `olddefconfig` dropped or changed: `CONFIG_X: wanted y, is not set`.
    pub config_changes: Vec<String>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct BuildFailed {
    /// `config`, `compile`, `link`, `timeout`, `other`.
    pub class: String,
    /// The lines that matter.
    pub excerpt: String,
    pub wall_s: f64,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Measured {
    pub proof: Proof,
    pub environment: BTreeMap<String, String>,
    /// Phase name to seconds.
    pub seconds: BTreeMap<String, f64>,
    /// What went on on the host of a guest while its runs lasted.
    #[serde(default)]
    pub host_disturbance: Option<Disturbance>,
}

/// Which kernel ran, asked before the runs and again after them.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Proof {
    pub build_id: String,
    pub release: String,
    pub boot_id: String,
    pub command_line: String,
    pub tainted: String,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct BootFailed {
    /// `panic`, `oops`, `hang`, `wrong_kernel`, `reset`, `no_init`, `timeout`.
    pub fault: String,
    /// The console lines that show it.
    pub excerpt: String,
    /// Before the guest's init spoke, or in mid-benchmark.
    pub phase: Phase,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct BenchmarkFailed {
    pub what: String,
    pub excerpt: String,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Probe {
    pub version: u32,
    pub agent_sha256: String,
    pub boot_id: String,
    pub hostname: String,
    pub arch: String,
    pub cpus: u32,
    pub memory_mib: u64,
    pub release: String,
    /// Program to version line (`cc`, `make`, `qemu-system-x86_64`, `ccache`), absent where not installed.
    pub programs: BTreeMap<String, String>,
    /// `cc` to SHA-256 of the compiler binary.
    pub compiler_digests: BTreeMap<String, String>,
    pub kvm: bool,
    pub disk_free_mib: u64,
    /// Highest fencing token seen here: a daemon whose record is younger than the machine goes on above it.
    #[serde(default)]
    pub token: u64,
    /// What booting strange kernels here depends on: `resumed` (the boot hook ran in this boot), `lockdown`,
    /// `secure_boot`, `kexec`, `watchdog`, `boot_free_mib`; absent where it cannot be told.
    #[serde(default)]
    pub boot: BTreeMap<String, String>,
    /// Orders with a spool here.
    pub orders: Vec<OrderState>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OrderState {
    pub id: String,
    pub running: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Started {
    /// False where the order was known already.
    pub fresh: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Cancelled {
    /// False where it had ended before, or was never known.
    pub was_running: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Stored {
    pub bytes: u64,
}

/// Names of files (`sha256`) or trees (git ids).
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Names {
    pub files: Vec<String>,
    pub trees: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Refusal {
    /// `old_token`, `unknown_order`, `version`, `busy`, `no_space`, `corrupt`, `unknown_file`, `away` (the machine is
    /// on its way to or from a test kernel: ask again soon).
    pub kind: String,
    pub message: String,
}
