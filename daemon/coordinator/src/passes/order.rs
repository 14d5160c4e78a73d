//! From what is stored to what an agent is told: orders, supplies, deadlines, lanes.

mod lane;

use crate::case::{Case, Definition, RecipeDef, localversion};
use crate::config::{FileSystemDef, Lane, Machine};
use crate::fleet::{Supplies, TreeSupply};
use crate::passes::Passes;
use crate::plan_json::kernel_from_json;
use crate::store::attempts::{Carried, CarriedWork};
use crate::store::machines::Configured;
use crate::tree::TreeError;
use anyhow::{Context, anyhow};
use lane::boot;
use protocol::{
    Bench, Boot, Build, CommandBuild, Conditions, FileSystem, ImageManifest, Kbuild, Measure, Order, Recipe,
    Work,
};

/// Set-up and tear-down commands have no limit of their own; each may take as long as a run, and at least this.
const STEP_LIMIT_S: u64 = 60;
/// Firmware, proof and shutdown, which have small limits of their own in the agent.
const BOOT_EXTRAS_S: u64 = 60;
/// Moving a tree or an image to the machine comes before the agent's own time starts.
const TRANSFER_S: f64 = 900.0;
/// Function alignment of layout variant 1; each further one doubles it.
const FIRST_ALIGNMENT: u32 = 64;

/// Why there is no order.
#[derive(Debug, thiserror::Error)]
pub enum NoOrder {
    /// The kernel's own doing: a revert that does not apply.
    #[error("{0}")]
    Kernel(String),
    #[error("{0:#}")]
    Lab(#[from] anyhow::Error),
}

/// What the numbers of a machine depend on besides the image.
pub fn configured(machine: &Machine) -> Configured {
    Configured {
        name: machine.name.clone(),
        lane: Definition::of("boot", &Lane::of(machine)),
    }
}

fn measure_s(boot: &Boot, bench: &Bench) -> u64 {
    let boot_s = match boot {
        Boot::Qemu(qemu) => u64::from(qemu.boot_limit_s) + BOOT_EXTRAS_S,
        Boot::None => BOOT_EXTRAS_S,
        Boot::Kexec(_) | Boot::Oneshot(_) | Boot::Commands(_) => {
            boot.trip().map_or(0, trip_s) + BOOT_EXTRAS_S
        }
    };
    let step_s = u64::from(bench.run_limit_s).max(STEP_LIMIT_S);
    let steps = (bench.setup.len() + bench.teardown.len()) as u64;
    let runs = u64::from(bench.warmup_runs) + u64::from(bench.runs);
    let before_each = (bench.prepare.len() + bench.file_systems.len()) as u64 * step_s;
    boot_s + steps * step_s + runs * (u64::from(bench.run_limit_s) + before_each)
}

/// There and home again; the agent itself counts only the time in which a kernel runs.
pub fn trip_s(trip: &protocol::Trip) -> u64 {
    2 * u64::from(trip.shutdown_limit_s + trip.firmware_limit_s + trip.boot_limit_s)
}

/// Can this machine make kernels of the recipe's architecture? Cross compilers are not assumed.
pub fn builds_for(machine: &Machine, recipe: &RecipeDef) -> bool {
    let (RecipeDef::Kbuild { arch, .. } | RecipeDef::Command { arch, .. }) = recipe;
    match (arch.as_str(), machine.arch.as_str()) {
        ("um", _) => true,
        ("x86" | "i386", "x86_64") => true,
        ("arm64", "aarch64") | ("aarch64", "arm64") => true,
        (arch, has) => arch == has,
    }
}

/// Seconds after which an attempt's agent must have given up by itself, its supplies' way included.
pub fn build_deadline_s(machine: &Machine, recipe: &RecipeDef) -> f64 {
    let (RecipeDef::Kbuild { limit_s, .. } | RecipeDef::Command { limit_s, .. }) = recipe;
    f64::from(*limit_s) + f64::from(machine.grace_s) + TRANSFER_S
}

/// The same of a measurement.
pub fn measure_deadline_s(machine: &Machine, lane: &Lane, case: &Case, runs: u32) -> f64 {
    let boot = boot(&lane.boot());
    // Three power cycles bring a machine home later than its agent alone would.
    let own = measure_s(&boot, &bench(case, runs)) + 2 * boot.trip().map_or(0, trip_s);
    own as f64 + f64::from(machine.grace_s) + TRANSFER_S
}

pub fn trial_deadline_s(machine: &Machine, lane: &Lane) -> f64 {
    let way_s = 4 * boot(&lane.boot()).trip().map_or(0, trip_s);
    (way_s + BOOT_EXTRAS_S) as f64 + f64::from(machine.grace_s) + TRANSFER_S
}

/// The home kernel with an init that fails at once, where it is to fail.
fn trial_boot(machine: &Machine, lane: &Lane, trial: &str) -> Boot {
    let mut lane = lane.boot();
    if let Some(trip) = lane.trip_mut()
        && trial != "good"
    {
        let init = machine.work_dir.join("resume");
        trip.append = format!("{} init={} perfbisect_trial={trial}", trip.append, init.display());
    }
    boot(&lane)
}

/// The order of an attempt; the same whoever makes it, so an adopted attempt goes on under it.
pub async fn order(p: &Passes, machine: &Machine, carried: &Carried) -> Result<(Order, Supplies), NoOrder> {
    let (work, supplies, own_s) = match &carried.work {
        CarriedWork::Build {
            tree,
            kernel,
            recipe,
            recipe_digest,
            cc_digest,
            ..
        } => {
            let kernel = kernel_from_json(kernel, "builds.kernel").map_err(|e| anyhow!("{e}"))?;
            let recipe: RecipeDef = read("recipe", recipe)?;
            let oid = match p.trees.compose(tree, &kernel).await {
                Ok(oid) => oid,
                Err(e @ (TreeError::Conflict { .. } | TreeError::RevertsRoot { .. })) => {
                    return Err(NoOrder::Kernel(e.to_string()));
                }
                Err(e) => return Err(NoOrder::Lab(e.into())),
            };
            let (RecipeDef::Kbuild { limit_s, .. } | RecipeDef::Command { limit_s, .. }) = &recipe;
            let build = Build {
                tree: oid.clone(),
                slot: format!("{tree}-{}", &recipe_digest[..12]),
                limit_s: *limit_s,
                recipe: told(&recipe, &kernel, recipe_digest, cc_digest),
            };
            let bases = bases(p, tree, recipe_digest).await?;
            let supplies = Supplies {
                tree: Some(tree_supply(p, tree, oid, bases)),
                files: Vec::new(),
            };
            (Work::Build(build), supplies, u64::from(*limit_s))
        }
        CarriedWork::Measure {
            runs,
            manifest,
            case,
            lane,
            ..
        } => {
            let image: ImageManifest = read("image", manifest)?;
            let case: Case = read("case", case)?;
            let lane: Lane = read("lane", lane)?;
            let runs = u32::try_from(*runs).unwrap_or(1);
            let mut files = Vec::new();
            for sha256 in image.files.iter().map(|f| &f.sha256).chain(case.files.values()) {
                files.push((
                    sha256.clone(),
                    p.images.path(sha256).map_err(anyhow::Error::from)?,
                ));
            }
            let (boot, mut bench) = (boot(&lane.boot()), bench(&case, runs));
            let (held, in_guest) = lane.held();
            // The workload's own word on a setting goes first.
            for (name, value) in in_guest {
                bench.held.entry(name).or_insert(value);
            }
            let scratch = lane.scratch.iter().filter_map(|s| s.told()).collect();
            let own_s = measure_s(&boot, &bench);
            let measure = Measure {
                image,
                boot,
                bench,
                conditions: Conditions { held, scratch },
            };
            (Work::Measure(measure), Supplies { tree: None, files }, own_s)
        }
        CarriedWork::Trial { trial, lane } => {
            let boot = trial_boot(machine, &read("lane", lane)?, trial);
            let measure = lane::home_kernel(&machine.arch, boot);
            let own_s = measure_s(&measure.boot, &measure.bench);
            (Work::Measure(measure), Supplies::default(), own_s)
        }
    };
    let order = Order {
        id: carried.id.to_string(),
        version: protocol::VERSION,
        token: carried.token.cast_unsigned(),
        deadline_s: u32::try_from(own_s + u64::from(machine.grace_s)).unwrap_or(u32::MAX),
        work,
    };
    Ok((order, supplies))
}

pub fn read<T: serde::de::DeserializeOwned>(what: &str, stored: &serde_json::Value) -> anyhow::Result<T> {
    T::deserialize(stored).with_context(|| format!("stored {what} cannot be read by this version"))
}

fn told(recipe: &RecipeDef, kernel: &bisect::Kernel, recipe_digest: &str, cc_digest: &str) -> Recipe {
    match recipe.clone() {
        RecipeDef::Kbuild {
            arch,
            base_target,
            base_config,
            fragment,
            forced,
            cc,
            targets,
            image,
            jobs,
            limit_s: _,
        } => Recipe::Kbuild(Kbuild {
            arch,
            base_target,
            base_config,
            fragment,
            forced,
            cc,
            cc_digest: (!cc_digest.is_empty()).then(|| cc_digest.to_string()),
            localversion: localversion(kernel, recipe_digest),
            kcflags: match kernel.layout {
                0 => String::new(),
                n => format!("-falign-functions={}", FIRST_ALIGNMENT << (n - 1).min(6)),
            },
            targets,
            image,
            jobs,
        }),
        RecipeDef::Command {
            command,
            artefacts,
            arch,
            limit_s: _,
        } => Recipe::Command(CommandBuild {
            command,
            artefacts,
            arch,
        }),
    }
}

/// Trees of recent builds: one of them is likely on the machine, and then the pack is thin.
async fn bases(p: &Passes, tree: &str, recipe_digest: &str) -> anyhow::Result<Vec<String>> {
    let mut bases = Vec::new();
    for kernel in p.store.recent_builds(tree, recipe_digest).await? {
        let kernel = kernel_from_json(&kernel, "builds.kernel").map_err(|e| anyhow!("{e}"))?;
        bases.extend(p.trees.compose(tree, &kernel).await.ok());
    }
    Ok(bases)
}

fn tree_supply(p: &Passes, tree: &str, oid: String, bases: Vec<String>) -> TreeSupply {
    let (trees, tree, wanted) = (p.trees.clone(), tree.to_string(), oid.clone());
    TreeSupply {
        oid,
        bases,
        pack: Box::new(move |have| {
            let (trees, tree, wanted) = (trees.clone(), tree.clone(), wanted.clone());
            Box::pin(async move {
                let pack = trees
                    .pack(&tree, &wanted, &have)
                    .await
                    .map_err(|e| e.to_string())?;
                Ok(Box::pin(pack) as crate::fleet::PackStream)
            })
        }),
    }
}

/// What a case is to the agent that performs it.
pub fn bench(case: &Case, runs: u32) -> Bench {
    Bench {
        setup: case.setup.clone(),
        command: case.command.clone(),
        teardown: case.teardown.clone(),
        warmup_runs: case.warmup_runs,
        runs,
        run_limit_s: case.run_limit_s,
        files: case.files.clone(),
        environment: case.environment.clone(),
        held: case.held.clone(),
        file_systems: case.file_systems.iter().map(file_system).collect(),
        prepare: case.prepare.clone(),
        drop_caches: case.drop_caches,
    }
}

fn file_system(def: &FileSystemDef) -> FileSystem {
    let FileSystemDef {
        at,
        device,
        kind,
        mkfs_options,
        mount_options,
        anew,
        trim,
    } = def.clone();
    FileSystem {
        at,
        device,
        kind,
        mkfs_options,
        mount_options,
        anew,
        trim,
    }
}
