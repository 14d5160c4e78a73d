//! A build by the workload's own command, for trees that are no kernels.

use super::{Limit, failure};
use crate::trouble::{Because, Trouble};
use crate::worker::Ctx;
use crate::{command, content, sha};
use protocol::{
    Build, BuildFailed, Built, CommandBuild, Event, Exit, ImageFile, ImageKind, ImageManifest, Phase, Report,
};
use std::fs;
use std::path::{Component, Path};
use std::process::Command;

pub fn build(
    ctx: &Ctx,
    order: &Build,
    recipe: &CommandBuild,
    slot: &Path,
    limit: &Limit,
) -> Result<Report, Trouble> {
    let out = slot.join("out");
    // Nothing of another tree's build may pass for this one's.
    let _ = fs::remove_dir_all(&out);
    fs::create_dir_all(&out).because(|| format!("cannot create {}", out.display()))?;
    let (program, arguments) = recipe
        .command
        .split_first()
        .ok_or_else(|| Trouble("the recipe has an empty build command".into()))?;
    ctx.phase(Phase::Compile, order.limit_s);
    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir(slot.join("src"))
        .env("PERFBISECT_OUT", &out)
        .env("LC_ALL", "C")
        .env("SOURCE_DATE_EPOCH", "0");
    let ended = command::run(&mut command, limit.left(), &mut |_| {})
        .because(|| format!("cannot run the build command {program}"))?;
    let output = format!("{}{}", ended.stdout, ended.stderr);
    if !output.is_empty() {
        ctx.out.say(Event::Log { text: output.clone() });
    }
    if !ended.succeeded() {
        let class = match ended.exit {
            Exit::TimedOut => "timeout",
            Exit::Status(_) | Exit::Signal(_) => failure::class(&output),
        };
        let excerpt = failure::excerpt(&output);
        return Ok(Report::BuildFailed(BuildFailed {
            class: class.into(),
            excerpt,
            wall_s: limit.wall_s(),
        }));
    }
    ctx.phase(Phase::Collect, order.limit_s);
    let mut files = Vec::new();
    for artefact in &recipe.artefacts {
        if !Path::new(artefact)
            .components()
            .all(|c| matches!(c, Component::Normal(_)))
        {
            return Err(Trouble(format!(
                "the recipe's artefact {artefact:?} is no path below PERFBISECT_OUT"
            )));
        }
        let path = out.join(artefact);
        if !path.is_file() {
            let excerpt = format!("the build succeeded but made no {artefact}");
            let wall_s = limit.wall_s();
            return Ok(Report::BuildFailed(BuildFailed {
                class: "other".into(),
                excerpt,
                wall_s,
            }));
        }
        let (sha256, bytes) = content::keep(&ctx.root, &path)?;
        files.push(ImageFile {
            role: artefact.clone(),
            sha256,
            bytes,
        });
    }
    files.sort_by(|a, b| a.role.cmp(&b.role));
    let compiler = super::toolchain::Compiler::find("cc").ok();
    let listing: String = files
        .iter()
        .map(|f| format!("{} {}\n", f.sha256, f.role))
        .collect();
    let manifest = ImageManifest {
        kind: ImageKind::Userspace,
        arch: recipe.arch.clone(),
        files,
        build_id: String::new(),
        release: String::new(),
        digest: sha::of_bytes(listing.as_bytes()),
        compiler: compiler.as_ref().map_or_else(String::new, |c| c.version.clone()),
        compiler_digest: compiler.map_or_else(String::new, |c| c.digest),
    };
    Ok(Report::Built(Built {
        manifest,
        wall_s: limit.wall_s(),
        config_changes: Vec::new(),
    }))
}
