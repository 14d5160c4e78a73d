//! The agent on a machine: at a path named by its hash, so that no running order has it replaced.

use super::call::Feed;
use super::{Fleet, FleetError, Reach, Reached};
use protocol::Probe;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

pub struct AgentFile {
    pub path: PathBuf,
    pub sha256: String,
}

impl AgentFile {
    pub fn read(path: &Path) -> Result<AgentFile, FleetError> {
        let bytes = std::fs::read(path).map_err(|e| FleetError::NoAgent {
            path: path.into(),
            what: e.to_string(),
        })?;
        let sha256 = Sha256::digest(&bytes)
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        Ok(AgentFile {
            path: path.into(),
            sha256,
        })
    }
}

/// The agent's binary: the configured one, or `perfbisect-agent` beside the daemon.
pub fn agent_file(configured: Option<&Path>) -> PathBuf {
    let beside = || Some(std::env::current_exe().ok()?.with_file_name("perfbisect-agent"));
    configured
        .map(Path::to_path_buf)
        .or_else(beside)
        .unwrap_or_else(|| "perfbisect-agent".into())
}

/// Where the agent is on that machine; puts it there if it is not.
pub async fn ensure(fleet: &Fleet, reached: &Reached) -> Result<PathBuf, FleetError> {
    let agent = &fleet.inner.agent;
    let Reach::Ssh(ssh) = &reached.reach else {
        return Ok(agent.path.clone());
    };
    let place = reached
        .work_dir
        .join("agent")
        .join(&agent.sha256)
        .join("perfbisect-agent");
    let mut installed = ssh.installed.lock().await;
    if !*installed {
        if !is_agent(fleet, reached, &place).await? {
            install(fleet, reached, ssh, &place).await?;
        }
        *installed = true;
    }
    Ok(place)
}

/// Has the next call look again whether the agent is there.
pub async fn forget(reached: &Reached) {
    if let Reach::Ssh(ssh) = &reached.reach {
        *ssh.installed.lock().await = false;
    }
}

async fn install(
    fleet: &Fleet,
    reached: &Reached,
    ssh: &super::ssh::Ssh,
    place: &Path,
) -> Result<(), FleetError> {
    let temporary = place.with_file_name(format!("incoming-{}", uuid::Uuid::new_v4()));
    tracing::info!(machine = reached.name, path = %place.display(), "installing the agent");
    ssh.upload(&fleet.inner.agent.path, &temporary).await?;
    if !is_agent(fleet, reached, &temporary).await? {
        ssh.remove(&temporary).await?;
        let what = "what arrived does not run there, or is not what was sent; is the machine of the agent's architecture, and may files in work_dir be run (no `noexec`)?";
        let path = temporary.to_string_lossy().into_owned();
        return Err(FleetError::Install {
            machine: reached.name.clone(),
            path,
            what: what.into(),
        });
    }
    // Neither step leaves the path without an agent, and a good one that another daemon has put there meanwhile
    // stays: it may be running.
    let (from, to) = (temporary.to_string_lossy(), place.to_string_lossy());
    let limit = fleet.inner.limits.answer;
    let run = async |argv: &[&str]| -> Result<(), FleetError> {
        let call = ssh.call("install", argv, Feed::Nothing, limit).await?;
        call.answer(&reached.name)
            .await?
            .done(&reached.name, "install")
            .map(drop)
    };
    match run(&["ln", "--", &from, &to]).await {
        Ok(()) => ssh.remove(&temporary).await,
        Err(FleetError::Agent { .. }) if is_agent(fleet, reached, place).await? => {
            ssh.remove(&temporary).await
        }
        Err(FleetError::Agent { .. }) => run(&["mv", "-f", "--", &from, &to]).await,
        Err(e) => Err(e),
    }
}

/// Whether the file there runs and is the very agent we have: it says the hash of its own binary.
async fn is_agent(fleet: &Fleet, reached: &Reached, place: &Path) -> Result<bool, FleetError> {
    let limit = fleet.inner.limits.answer;
    let call = fleet
        .run(reached, place, &["probe"], Feed::Nothing, limit)
        .await?;
    match call
        .answer(&reached.name)
        .await?
        .parse::<Probe>(&reached.name, "probe")
    {
        Ok(probe) => Ok(probe.agent_sha256 == fleet.inner.agent.sha256),
        // Not there (127), not to be run (126), or something else altogether.
        Err(FleetError::Agent { .. } | FleetError::Protocol { .. } | FleetError::Refused { .. }) => Ok(false),
        Err(e) => Err(e),
    }
}
