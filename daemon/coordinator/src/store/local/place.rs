//! Whose the cluster is, and where it can be.
//!
//! Postgres refuses to run as root, so root lends the cluster to a user without rights; that user must be able
//! to reach its folder.

use crate::case::sha256_hex;
use anyhow::{Context, bail, ensure};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A socket's whole path has room for 107 bytes; its name in the folder takes 15.
const SOCKET_DIR_BYTES: usize = 90;

/// `None`: whoever runs the daemon.
#[derive(Clone, Debug)]
pub(super) struct Owner(Option<(u32, u32, String)>);

impl Owner {
    pub fn choose(state_dir: &Path) -> anyhow::Result<Owner> {
        if !rustix::process::geteuid().is_root() {
            return Ok(Owner(None));
        }
        // A cluster that an ordinary user made stays theirs when root starts the daemon.
        if let Ok(data) = state_dir.join("pg/data").metadata()
            && data.uid() != 0
        {
            return Ok(Owner(Some((
                data.uid(),
                data.gid(),
                format!("user {}", data.uid()),
            ))));
        }
        let passwd = std::fs::read_to_string("/etc/passwd").context("/etc/passwd")?;
        let entry = |name: &str| {
            passwd.lines().find_map(|line| {
                let fields: Vec<&str> = line.split(':').collect();
                (fields.first() == Some(&name)).then_some(())?;
                Some((
                    fields.get(2)?.parse().ok()?,
                    fields.get(3)?.parse().ok()?,
                    name.to_string(),
                ))
            })
        };
        match entry("postgres").or_else(|| entry("nobody")) {
            Some(user) => Ok(Owner(Some(user))),
            None => {
                bail!("Postgres does not run as root, and /etc/passwd has neither `postgres` nor `nobody`")
            }
        }
    }

    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        // The daemon's working directory may be closed to this user.
        command.current_dir("/").env("LC_ALL", "C").env_remove("PGDATA");
        if let Some((uid, gid, _)) = &self.0 {
            command.uid(*uid).gid(*gid);
        }
        command
    }

    pub fn give(&self, path: &Path) -> anyhow::Result<()> {
        if let Some((uid, gid, name)) = &self.0 {
            chown(path, Some(*uid), Some(*gid))
                .with_context(|| format!("{}: cannot be given to {name}", path.display()))?;
        }
        Ok(())
    }

    fn uid(&self) -> u32 {
        match &self.0 {
            Some((uid, ..)) => *uid,
            None => rustix::process::geteuid().as_raw(),
        }
    }

    /// The first folder on the way to `path` that this user cannot pass.
    fn barred_at(&self, path: &Path) -> Option<PathBuf> {
        let (uid, gid, _) = self.0.as_ref()?;
        let closed = |folder: &&Path| match folder.metadata() {
            Err(_) => true,
            Ok(m) if m.uid() == *uid => m.mode() & 0o100 == 0,
            Ok(m) if m.gid() == *gid => m.mode() & 0o010 == 0,
            Ok(m) => m.mode() & 0o001 == 0,
        };
        let ancestors: Vec<&Path> = path.ancestors().collect();
        ancestors.into_iter().rev().find(closed).map(Path::to_path_buf)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Place {
    /// Holds `data`, `run` (the socket), `log`, `lock` and `users`.
    pub home: PathBuf,
    pub owner: Owner,
    /// Distinguishes this state folder from others, in places that several share.
    hash: String,
}

impl Place {
    pub fn find(state_dir: &Path, owner: &Owner) -> anyhow::Result<Place> {
        std::fs::create_dir_all(state_dir)
            .with_context(|| format!("{}: cannot be made", state_dir.display()))?;
        let state_dir = state_dir
            .canonicalize()
            .with_context(|| state_dir.display().to_string())?;
        let hash = sha256_hex(state_dir.as_os_str().as_bytes())[..12].to_string();
        let within = state_dir.join("pg");
        let home = match owner.barred_at(&state_dir) {
            None => within,
            Some(folder) => {
                ensure!(
                    !within.join("data/PG_VERSION").exists(),
                    "{} holds a cluster, but its user cannot pass {}: chmod o+x {1}",
                    within.display(),
                    folder.display()
                );
                let outside = Path::new("/var/lib").join(format!("perfbisect-{hash}"));
                tracing::warn!(
                    "{} is closed to the user Postgres runs as, so its cluster is in {}",
                    folder.display(),
                    outside.display()
                );
                outside
            }
        };
        private_folder(&home, owner)?;
        Ok(Place {
            home,
            owner: owner.clone(),
            hash,
        })
    }

    pub fn data(&self) -> PathBuf {
        self.home.join("data")
    }

    /// The major version that made the cluster, if there is one.
    pub fn made_by(&self) -> anyhow::Result<Option<u32>> {
        let file = self.data().join("PG_VERSION");
        match std::fs::read_to_string(&file) {
            Ok(text) => {
                let major = text.trim().split('.').next().and_then(|major| major.parse().ok());
                Ok(Some(major.with_context(|| {
                    format!("{}: `{}` is no version", file.display(), text.trim())
                })?))
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e).with_context(|| file.display().to_string()),
        }
    }

    /// In the home, or, where that path is too long for a socket, in a folder of stable name elsewhere.
    pub fn socket_dir(&self) -> anyhow::Result<PathBuf> {
        let within = self.home.join("run");
        if within.as_os_str().len() <= SOCKET_DIR_BYTES {
            private_folder(&within, &self.owner)?;
            return Ok(within);
        }
        let name = format!("perfbisect-{}", self.hash);
        let mut tried = Vec::new();
        for base in [PathBuf::from("/run"), std::env::temp_dir()] {
            let folder = base.join(&name);
            match private_folder(&folder, &self.owner) {
                Ok(()) => {
                    tracing::info!(
                        "{} is too long for a socket: it is in {}",
                        within.display(),
                        folder.display()
                    );
                    return Ok(folder);
                }
                Err(error) => tried.push(format!("{error:#}")),
            }
        }
        bail!(
            "{} is too long for a socket, and there is no other place: {}",
            within.display(),
            tried.join("; ")
        )
    }
}

/// Ours, closed to all others; a folder of that name that is somebody else's is refused.
fn private_folder(folder: &Path, owner: &Owner) -> anyhow::Result<()> {
    match std::fs::DirBuilder::new().mode(0o700).create(folder) {
        Ok(()) => owner.give(folder),
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
            let found = folder
                .symlink_metadata()
                .with_context(|| folder.display().to_string())?;
            ensure!(found.is_dir(), "{} is no folder", folder.display());
            let root_left_it = rustix::process::geteuid().is_root() && found.uid() == 0;
            ensure!(
                found.uid() == owner.uid() || root_left_it,
                "{} belongs to user {}, not to the one Postgres runs as",
                folder.display(),
                found.uid()
            );
            owner.give(folder)?;
            std::fs::set_permissions(folder, PermissionsExt::from_mode(0o700))
                .with_context(|| format!("{}: cannot be closed to others", folder.display()))
        }
        Err(e) => Err(e).with_context(|| format!("{}: cannot be made", folder.display())),
    }
}
