//! Which Postgres of this system to use.

use anyhow::{Context, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

const DEBIANS: &str = "/usr/lib/postgresql";

#[derive(Clone, Debug)]
pub(super) struct Binaries {
    pub dir: PathBuf,
    pub major: u32,
}

impl Binaries {
    /// The configured folder, else PATH, else the newest of the distribution. A cluster that exists already
    /// (`made_by` that major version) is only opened by binaries of its own version, wherever those are.
    pub fn find(configured: Option<&Path>, made_by: Option<u32>) -> anyhow::Result<Binaries> {
        let found = match configured {
            Some(dir) => vec![Self::at(dir)?.with_context(|| {
                format!(
                    "postgres_bin_dir = \"{}\": no initdb, pg_ctl and postgres there",
                    dir.display()
                )
            })?],
            None => Self::on_this_system()?,
        };
        let Some(first) = found.first() else {
            bail!(
                "no Postgres on this system: `apt install postgresql` (the daemon makes its own cluster with its \
                 programs), or set database_url to one that runs, or postgres_bin_dir to the folder of pg_ctl"
            );
        };
        let Some(made_by) = made_by else {
            return Ok(first.clone());
        };
        let of_age = found.iter().find(|b| b.major == made_by);
        of_age.cloned().with_context(|| {
            format!(
                "the private cluster was made by Postgres {made_by}, but {} has {}: `apt install postgresql-{made_by}` \
                 or set postgres_bin_dir; to change the version, dump it with pg_dump and load it into a new one",
                first.dir.display(),
                first.major
            )
        })
    }

    fn on_this_system() -> anyhow::Result<Vec<Binaries>> {
        let mut found = Vec::new();
        for dir in std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()) {
            // What is on PATH may be a link into the real folder, which has the other programs too.
            if let Ok(real) = dir.join("pg_ctl").canonicalize() {
                found.extend(real.parent().map(Self::at).transpose()?.flatten());
            }
        }
        let mut debians = Vec::new();
        for entry in std::fs::read_dir(DEBIANS).into_iter().flatten().flatten() {
            debians.extend(Self::at(&entry.path().join("bin"))?);
        }
        debians.sort_by_key(|b| std::cmp::Reverse(b.major));
        found.extend(debians);
        Ok(found)
    }

    fn at(dir: &Path) -> anyhow::Result<Option<Binaries>> {
        if !["initdb", "pg_ctl", "postgres"]
            .iter()
            .all(|program| dir.join(program).is_file())
        {
            return Ok(None);
        }
        let program = dir.join("postgres");
        let said = Command::new(&program)
            .arg("--version")
            .output()
            .with_context(|| format!("{} cannot be started", program.display()))?;
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        // `postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)`
        let version = said
            .split_whitespace()
            .find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
        let major = version.and_then(|v| v.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok());
        match major {
            Some(major) => Ok(Some(Binaries {
                dir: dir.to_path_buf(),
                major,
            })),
            None => bail!(
                "{} --version says `{}`: no version in it",
                program.display(),
                said.trim()
            ),
        }
    }
}
