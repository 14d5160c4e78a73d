//! A measurement without a boot: the benchmark runs on the agent's machine, beside the image's files.

use crate::bench::{self, News, Performed, Place};
use crate::environment;
use crate::held;
use crate::stand::Failure;
use crate::trouble::{Because, Trouble};
use crate::view::View;
use crate::worker::Ctx;
use protocol::{Event, Measure, Measured, Report};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path};

pub fn measure(ctx: &Ctx, order: &Measure) -> Result<Report, Trouble> {
    let directory = ctx.work.join("bench");
    fs::create_dir(&directory).because(|| format!("cannot create {}", directory.display()))?;
    let image = order.image.files.iter().map(|f| (&f.role, &f.sha256));
    for (name, sha256) in image.chain(&order.bench.files) {
        place_file(&ctx.root.file(sha256), &directory, name)?;
    }
    let before = environment::proof();
    let view = View::here();
    let holding = held::hold(&view, &order.conditions.held, &scratch_disks(&view, order))?;
    let agent = std::env::current_exe().because(|| "cannot find the agent's own path".into())?;
    let place = Place {
        directory: &directory,
        agent,
        start: ctx.start,
        scratch: &order.conditions.scratch,
    };
    let performed = bench::perform(&order.bench, &place, &mut |news| match news {
        News::Phase(phase, limit_s) => ctx.phase(phase, limit_s),
        News::Log(text) => ctx.log(text),
        News::RunBegins => {}
        News::Run(run) => ctx.out.say(Event::Run(run)),
    });
    match performed {
        Err(Failure::Benchmark(failed)) => Ok(Report::BenchmarkFailed(failed)),
        Err(Failure::Lab(trouble)) => Err(trouble),
        Ok(Performed {
            seconds,
            mut environment,
        }) => {
            holding.check()?;
            for (name, value) in holding.facts() {
                // The workload's own word on a setting is the later one.
                environment.entry(name.clone()).or_insert(value.clone());
            }
            let proof = environment::proof();
            if proof.boot_id != before.boot_id || proof.release != before.release {
                return Err(Trouble(
                    "the machine's kernel changed during the benchmark".into(),
                ));
            }
            Ok(Report::Measured(Measured {
                proof,
                environment,
                seconds,
                host_disturbance: None,
            }))
        }
    }
}

/// Those of them that are there; which the workload uses it will see for itself.
pub fn scratch_disks(view: &View, order: &Measure) -> Vec<String> {
    let found = |s| Some(crate::scratch::find(view, s).ok()?.disk);
    order.conditions.scratch.iter().filter_map(found).collect()
}

/// Copied, not linked: a benchmark may write to it.
pub fn place_file(from: &Path, directory: &Path, name: &str) -> Result<(), Trouble> {
    check_inside(name)?;
    let to = directory.join(name);
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent).because(|| format!("cannot create {}", parent.display()))?;
    }
    fs::copy(from, &to).because(|| format!("cannot place {name} (was {} put?)", from.display()))?;
    fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).because(|| format!("cannot place {name}"))
}

/// A file's name may have folders but leads nowhere else.
pub fn check_inside(name: &str) -> Result<(), Trouble> {
    let inside = !name.is_empty()
        && Path::new(name)
            .components()
            .all(|c| matches!(c, Component::Normal(_)));
    if inside {
        Ok(())
    } else {
        Err(Trouble(format!(
            "{name:?} is no path below the working directory"
        )))
    }
}
