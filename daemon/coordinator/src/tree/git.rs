//! The git program, in an environment of its own.
//!
//! Nothing of the daemon's own environment may change what git does: no `GIT_DIR`, no user or system
//! configuration, no prompt that would wait for ever, no translated messages.

use super::TreeError;
use std::path::Path;
use std::process::Stdio;
use std::sync::Once;
use std::time::Duration;
use tokio::process::Command;

/// What git may still take from outside: how to find programs, keys and the way through a proxy.
const INHERITED: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "TMPDIR",
    "SSH_AUTH_SOCK",
    "http_proxy",
    "https_proxy",
    "HTTPS_PROXY",
    "all_proxy",
    "ALL_PROXY",
    "no_proxy",
    "NO_PROXY",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
];

/// `safe.directory` counts only in a configuration file, and only a file reaches the `git-upload-pack` that a
/// fetch from a local path starts. The paths are the administrator's, so their owner does not matter.
const CONFIG: &str = "[safe]\n\tdirectory = *\n[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n[core]\n\tlogAllRefUpdates = false\n[fetch]\n\twriteCommitGraph = false\n[advice]\n\tgraftFileDeprecated = false\n";

/// Where that file lies, beside the mirrors.
pub fn config_path(mirrors: &Path) -> std::path::PathBuf {
    mirrors.join("gitconfig")
}

pub async fn write_config(mirrors: &Path) -> std::io::Result<()> {
    tokio::fs::create_dir_all(mirrors).await?;
    tokio::fs::write(config_path(mirrors), CONFIG).await
}

/// Mirrors are ours because of where they are; they may belong to another user after a change of service user.
pub fn trust_mirrors_by_place() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: sets a global of libgit2 before any repository is opened by this room, once.
        let _ = unsafe { git2::opts::set_verify_owner_validation(false) };
    });
}

/// `git` in the repository at `folder`, which lies among the mirrors.
pub fn git(folder: &Path) -> Command {
    let mut command = Command::new("git");
    command.env_clear();
    for name in INHERITED {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    let mirrors = folder.parent().unwrap_or(folder);
    command
        .env("LC_ALL", "C")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", config_path(mirrors))
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_ASKPASS", "true")
        .env("SSH_ASKPASS", "true")
        .env("GIT_SSH_COMMAND", "ssh -o BatchMode=yes -o ConnectTimeout=15")
        .env("GIT_NO_REPLACE_OBJECTS", "1")
        .env("GIT_NO_LAZY_FETCH", "1")
        .env("GIT_DIR", folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// Standard output of a git call that must succeed within `limit`.
pub async fn output(folder: &Path, args: &[&str], limit: Duration) -> Result<String, TreeError> {
    let ended = run(folder, args, limit).await?;
    match ended.status.success() {
        true => Ok(String::from_utf8_lossy(&ended.stdout).into_owned()),
        false => Err(failure(folder, args, &String::from_utf8_lossy(&ended.stderr))),
    }
}

/// The same where a failure is an answer, too.
pub async fn run(folder: &Path, args: &[&str], limit: Duration) -> Result<std::process::Output, TreeError> {
    let mut command = git(folder);
    command.args(args);
    let ended = tokio::time::timeout(limit, command.output())
        .await
        .map_err(|_| failure(folder, args, &format!("not done after {} s", limit.as_secs())))?;
    ended.map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => {
            failure(folder, args, "the git program is not installed: apt install git")
        }
        _ => e.into(),
    })
}

pub fn failure(folder: &Path, args: &[&str], message: &str) -> TreeError {
    let what = args
        .iter()
        .find(|a| !a.starts_with('-') && !a.contains('='))
        .unwrap_or(&"")
        .to_string();
    TreeError::Git {
        what,
        folder: folder.into(),
        message: message.trim().into(),
    }
}
