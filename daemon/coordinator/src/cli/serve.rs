//! `perfbisect serve`: wires the rooms together and stops them cleanly.

use crate::config::Config;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    /// The main configuration file.
    #[arg(
        long,
        env = "PERFBISECT_CONFIG",
        default_value = "/etc/perfbisect/perfbisect.toml"
    )]
    config: PathBuf,
    /// Log lines as JSON.
    #[arg(long)]
    log_json: bool,
}

pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let config = Config::load(&args.config)?;
    log_to_stderr(args.log_json);
    tracing::info!(config = %config.path.display(), "starting");
    Ok(ExitCode::SUCCESS)
}

/// `RUST_LOG` chooses what is logged; without it, what an operator wants to read.
fn log_to_stderr(json: bool) {
    use tracing_subscriber::{EnvFilter, fmt};
    let filter = EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| EnvFilter::new("info,sqlx=warn,tower_http=warn"));
    let builder = fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match json {
        true => builder.json().init(),
        false => builder.with_target(false).init(),
    }
}
