//! What an administrator writes: one main file, a file per machine, a file per workload.
//!
//! Who may define commands that run on test machines: these files alone, never a request. Everything a search
//! depends on is copied into the store by digest when it is submitted, so editing a file never changes a
//! running search. Relative paths are relative to the file that names them.

pub mod auth;
pub mod boot;
pub mod lane;
pub mod machine;
pub mod notify;
pub mod tree;
pub mod workload;

pub use auth::Auth;
pub use boot::BootMethod;
pub use lane::Lane;
pub use machine::{Address, Console, Disturbed, Machine, Power, Role, Scratch, Ssh};
pub use notify::{Mail, Tls, Webhook};
pub use tree::{BuildRecipe, Tree};
pub use workload::{FileSystemDef, MetricDef, ParserChoice, Workload};

use anyhow::{Context, bail, ensure};
use machine::check_machine;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use workload::check_workload;

/// The main file, `perfbisect.toml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// Everything the daemon keeps: mirrors, images, its private Postgres.
    pub state_dir: PathBuf,
    /// Another address than loopback needs `[auth]`.
    #[serde(default = "default_listen")]
    pub listen: SocketAddr,
    /// How people reach the pages, for links in mails. Default `http://<listen>`.
    pub base_url: Option<String>,
    /// `postgres://…`; without it the daemon runs a private cluster from the system's binaries.
    pub database_url: Option<String>,
    /// Where pg_ctl and initdb are, if not on PATH or under /usr/lib/postgresql.
    pub postgres_bin_dir: Option<PathBuf>,
    /// Static agent binary for this architecture. Default: `perfbisect-agent` beside the daemon.
    pub agent: Option<PathBuf>,
    #[serde(default)]
    pub trees: BTreeMap<String, Tree>,
    #[serde(default = "default_machines_dir")]
    pub machines_dir: PathBuf,
    #[serde(default = "default_workloads_dir")]
    pub workloads_dir: PathBuf,
    pub auth: Option<Auth>,
    pub mail: Option<Mail>,
    pub webhook: Option<Webhook>,
}

fn default_listen() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 8642))
}
fn default_machines_dir() -> PathBuf {
    "machines".into()
}
fn default_workloads_dir() -> PathBuf {
    "workloads".into()
}

/// All files, read and checked.
#[derive(Clone, Debug)]
pub struct Config {
    pub path: PathBuf,
    pub file: File,
    pub machines: BTreeMap<String, Machine>,
    pub workloads: BTreeMap<String, Workload>,
}

impl Config {
    /// Reads the main file and the folders it names. Errors name the file and the key.
    pub fn load(path: &Path) -> anyhow::Result<Config> {
        let path = std::path::absolute(path)?;
        let base = path
            .parent()
            .context("the configuration file has no folder")?
            .to_path_buf();
        let mut file: File = read_toml(&path)?;
        rebase(&base, &mut file.state_dir);
        rebase(&base, &mut file.machines_dir);
        rebase(&base, &mut file.workloads_dir);
        for secret in [
            file.agent.as_mut(),
            file.postgres_bin_dir.as_mut(),
            file.webhook.as_mut().map(|w| &mut w.secret_file),
        ] {
            secret.into_iter().for_each(|p| rebase(&base, p));
        }
        if let Some(mail) = &mut file.mail {
            mail.password_file
                .iter_mut()
                .chain(&mut mail.ca_file)
                .for_each(|p| rebase(&base, p));
        }
        for tree in file.trees.values_mut() {
            if let BuildRecipe::Kbuild {
                base_config,
                fragment,
                ..
            } = &mut tree.build
            {
                base_config
                    .iter_mut()
                    .chain(fragment.iter_mut())
                    .for_each(|p| rebase(&base, p));
            }
        }
        let mut machines = BTreeMap::new();
        for (from, mut machine) in read_folder::<Machine>(&file.machines_dir)? {
            let key = machine.ssh.as_mut().and_then(|s| s.key_file.as_mut());
            key.into_iter().for_each(|p| rebase(&file.machines_dir, p));
            rebase(&file.machines_dir, &mut machine.work_dir);
            check_machine(&machine).with_context(|| from.display().to_string())?;
            if machines.insert(machine.name.clone(), machine).is_some() {
                bail!("{}: a second machine of this name", from.display());
            }
        }
        let mut workloads = BTreeMap::new();
        for (from, mut workload) in read_folder::<Workload>(&file.workloads_dir)? {
            workload
                .files
                .values_mut()
                .for_each(|p| rebase(&file.workloads_dir, p));
            check_workload(&workload).with_context(|| from.display().to_string())?;
            if workloads.insert(workload.name.clone(), workload).is_some() {
                bail!("{}: a second workload of this name", from.display());
            }
        }
        let config = Config {
            path,
            file,
            machines,
            workloads,
        };
        config
            .check()
            .with_context(|| config.path.display().to_string())?;
        Ok(config)
    }

    fn check(&self) -> anyhow::Result<()> {
        let listen = self.file.listen;
        ensure!(
            listen.ip().is_loopback() || self.file.auth.is_some(),
            "listen = \"{listen}\": without [auth] whoever reaches the daemon may do everything, so that it listens on \
             loopback only (127.0.0.0/8 or [::1]); add an [auth] section, and a proxy with TLS in front"
        );
        ensure!(
            !listen.ip().is_unspecified() || self.file.base_url.is_some(),
            "listen = \"{listen}\": with every address of this machine, base_url must say by which name people come"
        );
        if let Some(auth) = &self.file.auth {
            ensure!(auth.session_hours > 0, "auth.session_hours: must be at least 1");
        }
        for (name, tree) in &self.file.trees {
            ensure!(
                is_name(name),
                "trees.{name}: a name is made of letters, digits, `-`, `_` and `.`"
            );
            if let BuildRecipe::Kbuild {
                base_config,
                fragment,
                ..
            } = &tree.build
            {
                for path in base_config.iter().chain(fragment) {
                    ensure!(
                        path.is_file(),
                        "trees.{name}.build: {} is no file",
                        path.display()
                    );
                }
            }
        }
        Ok(())
    }

    pub fn base_url(&self) -> String {
        let url = self
            .file
            .base_url
            .clone()
            .unwrap_or_else(|| format!("http://{}", self.file.listen));
        url.trim_end_matches('/').to_string()
    }

    /// A machine's name, or a pool's: the machines it stands for.
    pub fn machines_of(&self, name: &str) -> Vec<&Machine> {
        let measures = |m: &&Machine| m.roles.contains(&Role::Measure);
        match self.machines.get(name) {
            Some(machine) => vec![machine].into_iter().filter(measures).collect(),
            None => {
                let in_pool = |m: &&Machine| m.pools.iter().any(|p| p == name);
                self.machines.values().filter(in_pool).filter(measures).collect()
            }
        }
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 64
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
        && !text.starts_with(['.', '-'])
}

fn rebase(base: &Path, path: &mut PathBuf) {
    if path.is_relative() {
        *path = base.join(&path);
    }
}

fn read_toml<T: serde::de::DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("{}: cannot be read", path.display()))?;
    toml::from_str(&text).map_err(|e| anyhow::anyhow!("{}: {e}", path.display()))
}

fn read_folder<T: serde::de::DeserializeOwned>(folder: &Path) -> anyhow::Result<Vec<(PathBuf, T)>> {
    let entries =
        std::fs::read_dir(folder).with_context(|| format!("{}: cannot be read", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries.map(|e| Ok(e?.path())).collect::<std::io::Result<_>>()?;
    paths.retain(|p| p.extension().is_some_and(|e| e == "toml"));
    paths.sort();
    paths
        .into_iter()
        .map(|p| Ok((p.clone(), read_toml(&p)?)))
        .collect()
}
