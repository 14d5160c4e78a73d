//! A measurement without a boot: the benchmark runs on the agent's machine, beside the image's files.

use crate::bench::{self, News, Place};
use crate::environment;
use crate::trouble::{Because, Trouble};
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
    let environment = environment::facts("");
    let agent = std::env::current_exe().because(|| "cannot find the agent's own path".into())?;
    let place = Place {
        directory: &directory,
        agent,
        start: ctx.start,
    };
    let performed = bench::perform(&order.bench, &place, &mut |news| match news {
        News::Phase(phase, limit_s) => ctx.phase(phase, limit_s),
        News::Log(text) => ctx.log(text),
        News::RunBegins => {}
        News::Run(run) => ctx.out.say(Event::Run(run)),
    });
    match performed {
        Err(failed) => Ok(Report::BenchmarkFailed(failed)),
        Ok(seconds) => {
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
            }))
        }
    }
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
