//! What an administrator writes: one main file, a file per machine, a file per workload.
//!
//! Who may define commands that run on test machines: these files alone, never a request. Everything a search
//! depends on is copied into the store by digest when it is submitted, so editing a file never changes a
//! running search. Relative paths are relative to the file that names them.

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

/// The main file, `perfbisect.toml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// Everything the daemon keeps: mirrors, images, its private Postgres.
    pub state_dir: PathBuf,
    /// Loopback only until accounts exist.
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

/// A git repository the daemon keeps a mirror of, and how its commits are built.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tree {
    /// Anything `git fetch` takes: a path or a URL.
    pub url: String,
    pub build: BuildRecipe,
    #[serde(default = "default_build_limit_s")]
    pub build_limit_s: u32,
}

fn default_build_limit_s() -> u32 {
    3600
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum BuildRecipe {
    Kbuild {
        #[serde(default = "default_arch")]
        arch: String,
        #[serde(default = "default_base_target")]
        base_target: String,
        /// A whole `.config` to start from instead of `base_target`.
        base_config: Option<PathBuf>,
        /// Lines merged over the base.
        fragment: Option<PathBuf>,
        /// Lines that must hold after `olddefconfig`.
        #[serde(default)]
        forced: Vec<String>,
        #[serde(default = "default_cc")]
        cc: String,
        #[serde(default = "default_targets")]
        targets: Vec<String>,
        #[serde(default = "default_image")]
        image: String,
        /// 0: as many as the builder has CPUs.
        #[serde(default)]
        jobs: u32,
    },
    Command {
        command: Vec<String>,
        artefacts: Vec<String>,
        #[serde(default = "default_arch")]
        arch: String,
    },
}

fn default_arch() -> String {
    "x86_64".into()
}
fn default_base_target() -> String {
    "tinyconfig".into()
}
fn default_cc() -> String {
    "gcc".into()
}
fn default_targets() -> Vec<String> {
    vec!["bzImage".into()]
}
fn default_image() -> String {
    "arch/x86/boot/bzImage".into()
}

/// A machine that boots and measures, builds, or both. It holds one order at a time.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    pub name: String,
    pub address: Address,
    #[serde(default = "default_roles")]
    pub roles: Vec<Role>,
    #[serde(default)]
    pub pools: Vec<String>,
    #[serde(default = "default_arch")]
    pub arch: String,
    /// The agent's folder on the machine.
    pub work_dir: PathBuf,
    pub boot: BootMethod,
    pub ssh: Option<Ssh>,
    /// Seconds added to an order's own limits before the agent gives up by itself.
    #[serde(default = "default_grace_s")]
    pub grace_s: u32,
}

fn default_roles() -> Vec<Role> {
    vec![Role::Build, Role::Measure]
}
fn default_grace_s() -> u32 {
    120
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    Build,
    Measure,
}

/// `local`, or `user@host` or `user@host:port`.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "String")]
pub enum Address {
    Local,
    Ssh { user: String, host: String, port: u16 },
}

impl TryFrom<String> for Address {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text == "local" {
            return Ok(Address::Local);
        }
        let wrong = || format!("`{text}` is no address: write `local`, `user@host` or `user@host:port`");
        let (user, rest) = text.split_once('@').ok_or_else(wrong)?;
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) => (host, port.parse().map_err(|_| wrong())?),
            None => (rest, 22),
        };
        if user.is_empty() || host.is_empty() {
            return Err(wrong());
        }
        Ok(Address::Ssh {
            user: user.into(),
            host: host.into(),
            port,
        })
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ssh {
    /// The pinned host key, as in a public key file: `ssh-ed25519 AAAA…`.
    pub host_key: String,
    /// Private key file; without it the ssh-agent at SSH_AUTH_SOCK is asked. No passwords.
    pub key_file: Option<PathBuf>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(tag = "method", rename_all = "snake_case", deny_unknown_fields)]
pub enum BootMethod {
    Qemu {
        #[serde(default = "default_qemu")]
        program: String,
        #[serde(default = "default_qemu_machine")]
        machine: String,
        #[serde(default = "default_accel")]
        accel: protocol::Accel,
        #[serde(default)]
        icount: bool,
        #[serde(default = "default_memory_mib")]
        memory_mib: u32,
        #[serde(default = "default_cpus")]
        cpus: u32,
        #[serde(default)]
        append: String,
        #[serde(default)]
        extra_args: Vec<String>,
        #[serde(default = "default_boot_limit_s")]
        boot_limit_s: u32,
        #[serde(default = "default_silence_limit_s")]
        silence_limit_s: u32,
    },
    None,
}

fn default_qemu() -> String {
    "qemu-system-x86_64".into()
}
fn default_qemu_machine() -> String {
    "microvm,rtc=on,isa-serial=on".into()
}
fn default_accel() -> protocol::Accel {
    protocol::Accel::Auto
}
fn default_memory_mib() -> u32 {
    128
}
fn default_cpus() -> u32 {
    1
}
fn default_boot_limit_s() -> u32 {
    120
}
fn default_silence_limit_s() -> u32 {
    60
}

/// A benchmark with set-up, command, parser and metrics.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    pub name: String,
    #[serde(default)]
    pub description: String,
    /// Parameter to its choices, the first one the default; `{name}` in the commands stands for the choice.
    #[serde(default)]
    pub parameters: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    pub setup: Vec<Vec<String>>,
    pub command: Vec<String>,
    #[serde(default)]
    pub teardown: Vec<Vec<String>>,
    /// Local files put beside the command, by name.
    #[serde(default)]
    pub files: BTreeMap<String, PathBuf>,
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    pub parser: ParserChoice,
    pub metrics: Vec<MetricDef>,
    #[serde(default)]
    pub warmup_runs: u32,
    #[serde(default = "default_run_limit_s")]
    pub run_limit_s: u32,
    /// A run cut off at the limit says 'at least this slow' for this metric (a time to complete), else nothing.
    pub timeout_means: Option<String>,
}

fn default_run_limit_s() -> u32 {
    600
}

/// Which of `parsers` reads the output, with what it needs to know.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(tag = "name", rename_all = "snake_case", deny_unknown_fields)]
pub enum ParserChoice {
    Fio,
    Tiotest,
    Tiobench,
    Dbench,
    Hackbench,
    PerfBench,
    /// Metric name to a regular expression whose first group is the number.
    Regex {
        patterns: BTreeMap<String, String>,
    },
    /// Metric name to a JSON path such as `$.jobs[0].read.iops`.
    JsonPath {
        paths: BTreeMap<String, String>,
    },
}

impl ParserChoice {
    pub fn parser(&self) -> Result<parsers::Parser, parsers::BadParser> {
        Ok(match self {
            ParserChoice::Fio => parsers::Parser::Fio,
            ParserChoice::Tiotest => parsers::Parser::Tiotest,
            ParserChoice::Tiobench => parsers::Parser::Tiobench,
            ParserChoice::Dbench => parsers::Parser::Dbench,
            ParserChoice::Hackbench => parsers::Parser::Hackbench,
            ParserChoice::PerfBench => parsers::Parser::PerfBench,
            ParserChoice::Regex { patterns } => parsers::Parser::regex(patterns)?,
            ParserChoice::JsonPath { paths } => parsers::Parser::json_path(paths)?,
        })
    }
}

#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct MetricDef {
    pub name: String,
    pub unit: String,
    pub higher_is_better: bool,
    #[serde(default)]
    pub may_be_zero: bool,
}

impl MetricDef {
    pub fn wanted(&self) -> parsers::Wanted {
        let MetricDef { name, unit, higher_is_better: _, may_be_zero } = self;
        parsers::Wanted { name: name.clone(), unit: unit.clone(), may_be_zero: *may_be_zero }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mail {
    pub from: String,
    pub smtp_host: String,
    #[serde(default = "default_smtp_port")]
    pub smtp_port: u16,
    #[serde(default)]
    pub tls: Tls,
    /// Certificate (PEM) of a private authority that the server's own is checked against, besides the public ones.
    pub ca_file: Option<PathBuf>,
    pub user: Option<String>,
    pub password_file: Option<PathBuf>,
}

fn default_smtp_port() -> u16 {
    25
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tls {
    /// Plain text: for a relay on this machine.
    #[default]
    None,
    Starttls,
    Implicit,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Webhook {
    /// Holds the signing secret, `whsec_` and base64, as Standard Webhooks has it.
    pub secret_file: PathBuf,
    /// Receivers on loopback or private addresses are refused unless this is set.
    #[serde(default)]
    pub allow_private_addresses: bool,
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
            mail.password_file.iter_mut().chain(&mut mail.ca_file).for_each(|p| rebase(&base, p));
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
        ensure!(
            is_loopback(self.file.listen.ip()),
            "listen = \"{}\": until there are accounts the daemon listens on loopback only (127.0.0.0/8 or [::1]); \
             put a proxy with authentication in front of it",
            self.file.listen
        );
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

fn is_loopback(ip: IpAddr) -> bool {
    ip.is_loopback()
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 64
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
        && !text.starts_with(['.', '-'])
}

fn check_machine(machine: &Machine) -> anyhow::Result<()> {
    ensure!(
        is_name(&machine.name),
        "name = \"{}\": letters, digits, `-`, `_` and `.`",
        machine.name
    );
    ensure!(
        !machine.roles.is_empty(),
        "roles is empty: write [\"build\", \"measure\"] or one of them"
    );
    let remote = matches!(machine.address, Address::Ssh { .. });
    ensure!(
        !remote || machine.ssh.is_some(),
        "a machine reached over SSH needs [ssh] with its host_key"
    );
    if let BootMethod::Qemu {
        icount: true,
        cpus,
        accel,
        ..
    } = &machine.boot
    {
        ensure!(
            *cpus == 1,
            "boot.icount counts instructions of one CPU: set cpus = 1"
        );
        ensure!(
            *accel == protocol::Accel::Tcg,
            "boot.icount needs accel = \"tcg\""
        );
    }
    Ok(())
}

fn check_workload(workload: &Workload) -> anyhow::Result<()> {
    ensure!(
        is_name(&workload.name),
        "name = \"{}\": letters, digits, `-`, `_` and `.`",
        workload.name
    );
    ensure!(!workload.command.is_empty(), "command is empty");
    ensure!(
        !workload.metrics.is_empty(),
        "no [[metrics]]: say at least which number is judged"
    );
    ensure!(workload.run_limit_s > 0, "run_limit_s is 0");
    for (name, choices) in &workload.parameters {
        ensure!(!choices.is_empty(), "parameters.{name} has no choice");
    }
    for (name, path) in &workload.files {
        ensure!(path.is_file(), "files.{name}: {} is no file", path.display());
    }
    workload.parser.parser().context("parser")?;
    if let Some(metric) = &workload.timeout_means {
        let known = workload.metrics.iter().any(|m| &m.name == metric);
        ensure!(known, "timeout_means = \"{metric}\" is none of the metrics");
    }
    Ok(())
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
