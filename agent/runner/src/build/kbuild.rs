//! A kernel, built out of tree by its own makefiles, incrementally where the slot was used before.

use super::config::{self, Configured};
use super::toolchain::Compiler;
use super::{Limit, collect, failure};
use crate::command;
use crate::probe::{cpus, which};
use crate::trouble::{Because, Trouble};
use crate::worker::Ctx;
use protocol::{Build, BuildFailed, Built, Event, Exit, Kbuild, Phase, Report};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

/// Output is passed on in pieces no more often than this.
const LOG_PAUSE: Duration = Duration::from_millis(250);

/// Of a build's output the end is searched for errors.
const OUTPUT_BYTES: usize = 8 << 20;

/// A make invocation's surroundings, the same for every call: a difference would build everything again.
pub struct Make<'a> {
    ctx: &'a Ctx,
    recipe: &'a Kbuild,
    pub slot: &'a Path,
    /// Where a compiler of the same name is in truth ccache; only for a slot that starts empty.
    ccache: Option<PathBuf>,
}

pub struct Made {
    pub exit: Exit,
    /// Both streams as they came.
    pub output: String,
}

impl Made {
    pub fn succeeded(&self) -> bool {
        self.exit == Exit::Status(0)
    }
}

impl Make<'_> {
    fn surroundings(&self, command: &mut Command) {
        command
            .current_dir(self.slot.join("src"))
            .env("LC_ALL", "C")
            // The kernel's makefile drops LC_ALL; a compiler's quotes shall be plain ones.
            .env("LANG", "C")
            .env_remove("LC_CTYPE")
            .env_remove("LC_MESSAGES")
            .env_remove("LANGUAGE")
            .env("KBUILD_BUILD_TIMESTAMP", "Thu Jan  1 00:00:00 UTC 1970")
            .env("KBUILD_BUILD_USER", "perfbisect")
            .env("KBUILD_BUILD_HOST", "perfbisect")
            .env("KBUILD_BUILD_VERSION", "1")
            .env_remove("MAKEFLAGS")
            .env_remove("MAKELEVEL")
            .env_remove("KCONFIG_CONFIG")
            .env_remove("KBUILD_OUTPUT");
        if let Some(links) = &self.ccache {
            let path = std::env::var_os("PATH").unwrap_or_default();
            let with =
                std::env::join_paths(std::iter::once(links.clone()).chain(std::env::split_paths(&path)));
            command
                .env("PATH", with.unwrap_or(path))
                .env("CCACHE_DIR", self.ctx.root.dir.join("ccache"))
                .env("CCACHE_BASEDIR", self.slot)
                .env("CCACHE_MAXSIZE", "5G")
                .env("CCACHE_NOCOMPRESS", "1")
                // One compiler run a miss instead of a preprocessor run first.
                .env("CCACHE_DEPEND", "1");
        }
    }

    pub fn run(&self, out: &Path, targets: &[&str], limit: &Limit) -> Result<Made, Trouble> {
        let jobs = if self.recipe.jobs == 0 {
            cpus()
        } else {
            self.recipe.jobs
        };
        let mut make = Command::new("make");
        self.surroundings(&mut make);
        make.arg(format!("O={}", out.display()))
            .arg(format!("ARCH={}", self.recipe.arch))
            .arg(format!("CC={}", self.recipe.cc))
            .arg(format!("LOCALVERSION={}", self.recipe.localversion))
            .arg(format!("-j{jobs}"));
        if !self.recipe.kcflags.is_empty() {
            make.arg(format!("KCFLAGS={}", self.recipe.kcflags));
        }
        make.args(targets);
        self.execute(make, limit)
    }

    /// The tree's own way to lay a fragment over `out/.config`.
    pub fn merge(&self, out: &Path, fragment: &Path, limit: &Limit) -> Result<Made, Trouble> {
        let mut merge = Command::new("sh");
        self.surroundings(&mut merge);
        merge
            .args(["scripts/kconfig/merge_config.sh", "-m", "-O"])
            .arg(out);
        merge.arg(out.join(".config")).arg(fragment);
        self.execute(merge, limit)
    }

    fn execute(&self, mut command: Command, limit: &Limit) -> Result<Made, Trouble> {
        let (mut output, mut pending, mut said) = (Vec::new(), Vec::new(), Instant::now());
        let ended = command::run(&mut command, limit.left(), &mut |bytes| {
            output.extend_from_slice(bytes);
            if output.len() > OUTPUT_BYTES {
                output.drain(..OUTPUT_BYTES / 2);
            }
            pending.extend_from_slice(bytes);
            if said.elapsed() >= LOG_PAUSE {
                said = Instant::now();
                self.pass_on(&mut pending);
            }
        })
        .because(|| format!("cannot run {}", command.get_program().to_string_lossy()))?;
        self.pass_on(&mut pending);
        let output = String::from_utf8_lossy(&output).into_owned();
        for sign in [
            "No space left on device",
            "Cannot allocate memory",
            "Killed signal terminated program",
        ] {
            if !ended.succeeded() && output.contains(sign) {
                return Err(Trouble(format!("the builder ran short while building: {sign}")));
            }
        }
        Ok(Made {
            exit: ended.exit,
            output,
        })
    }

    fn pass_on(&self, pending: &mut Vec<u8>) {
        if !pending.is_empty() {
            let text = String::from_utf8_lossy(&std::mem::take(pending)).into_owned();
            self.ctx.out.say(Event::Log { text });
        }
    }
}

pub fn build(
    ctx: &Ctx,
    order: &Build,
    recipe: &Kbuild,
    slot: &Path,
    limit: &Limit,
) -> Result<Report, Trouble> {
    let compiler = Compiler::find_known(&ctx.root, &recipe.cc)?;
    if let Some(wanted) = &recipe.cc_digest
        && *wanted != compiler.digest
    {
        let what = format!(
            "the compiler is {} ({}), this search is built by {wanted}",
            compiler.digest, compiler.version
        );
        return Err(Trouble(what));
    }
    let out = slot.join("out");
    fs::create_dir_all(&out).because(|| format!("cannot create {}", out.display()))?;
    recover(&out)?;
    let cold = !out.join("vmlinux").exists();
    let ccache = if cold {
        ccache_links(ctx, &recipe.cc)?
    } else {
        None
    };
    let make = Make {
        ctx,
        recipe,
        slot,
        ccache,
    };
    let failed = |class: &str, excerpt: String| {
        Ok(Report::BuildFailed(BuildFailed {
            class: class.into(),
            excerpt,
            wall_s: limit.wall_s(),
        }))
    };
    let failed_make = |made: Made, class: Option<&'static str>| {
        let class = match made.exit {
            Exit::TimedOut => "timeout",
            Exit::Status(_) | Exit::Signal(_) => class.unwrap_or_else(|| failure::class(&made.output)),
        };
        // Paths as the tree has them.
        let output = made.output.replace(&format!("{}/src/", slot.display()), "");
        failed(class, failure::excerpt(&output))
    };

    ctx.phase(Phase::Configure, order.limit_s);
    let config = match config::configure(&ctx.root, &order.tree, recipe, &compiler.digest, &make, limit)? {
        Configured::Failed(made) => return failed_make(made, Some("config")),
        Configured::Done { config, remembered } => {
            let how = if remembered {
                "its inputs are known: as olddefconfig made it before"
            } else {
                "made"
            };
            ctx.log(format!("configuration: {how}\n"));
            config
        }
    };
    let missing = config::changes(&recipe.forced.join("\n"), &config.text);
    if !missing.is_empty() {
        return failed(
            "config",
            format!("forced options do not hold:\n{}\n", missing.join("\n")),
        );
    }
    // An unchanged file keeps its time: a new one would have kbuild read the whole configuration again.
    let file = out.join(".config");
    if fs::read_to_string(&file).ok().as_deref() != Some(&config.text) {
        fs::write(&file, &config.text).because(|| format!("cannot write {}", file.display()))?;
    }

    ctx.phase(Phase::Compile, order.limit_s);
    let targets: Vec<&str> = recipe.targets.iter().map(String::as_str).collect();
    let mark = out.join(BUILDING);
    fs::write(&mark, b"").because(|| format!("cannot write {}", mark.display()))?;
    let made = make.run(&out, &targets, limit)?;
    if made.exit == Exit::TimedOut {
        recover(&out)?;
    } else {
        fs::remove_file(&mark).because(|| format!("cannot remove {}", mark.display()))?;
    }
    if !made.succeeded() {
        return failed_make(made, None);
    }
    // What make built is what we asked for only if it left the configuration alone.
    if fs::read_to_string(&file).ok().as_deref() != Some(&config.text) {
        return failed(
            "config",
            "the build asked for a configuration other than olddefconfig's".into(),
        );
    }
    ctx.phase(Phase::Collect, order.limit_s);
    match collect::collect(ctx, recipe, &out, &config.text, &compiler, &make, limit)? {
        Ok(manifest) => Ok(Report::Built(Built {
            manifest,
            wall_s: limit.wall_s(),
            config_changes: config.changes,
        })),
        Err(what) => failed("other", what),
    }
}

/// There while make runs; still there when it was killed.
const BUILDING: &str = ".perfbisect-building";

/// After a killed make: a half-written object is newer than its sources and would pass for a good one. Whatever that
/// make wrote is removed.
fn recover(out: &Path) -> Result<(), Trouble> {
    let mark = out.join(BUILDING);
    let Ok(begun) = fs::metadata(&mark).and_then(|m| m.modified()) else {
        return Ok(());
    };
    remove_since(out, begun)
        .because(|| format!("cannot clear what a killed build left in {}", out.display()))?;
    let _ = fs::remove_file(&mark);
    Ok(())
}

fn remove_since(dir: &Path, begun: SystemTime) -> std::io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let facts = entry.metadata()?;
        if facts.is_dir() {
            remove_since(&entry.path(), begun)?;
        } else if facts.modified()? >= begun
            && entry.file_name() != ".config"
            && entry.file_name() != BUILDING
        {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// A folder whose `gcc` is ccache: by a link and not by `CC="ccache gcc"`, which would differ from the later,
/// incremental calls and so build everything again.
fn ccache_links(ctx: &Ctx, cc: &str) -> Result<Option<PathBuf>, Trouble> {
    let Some(ccache) = which("ccache") else {
        return Ok(None);
    };
    if cc.contains(['/', ' ']) {
        return Ok(None);
    }
    let links = ctx.work.join("ccache");
    fs::create_dir_all(&links).because(|| format!("cannot create {}", links.display()))?;
    let link = links.join(cc);
    let _ = fs::remove_file(&link);
    std::os::unix::fs::symlink(&ccache, &link).because(|| format!("cannot link {}", link.display()))?;
    Ok(Some(links))
}
