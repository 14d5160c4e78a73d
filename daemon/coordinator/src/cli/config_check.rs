//! `perfbisect config check`: reads what `serve` would read, and nothing else.

use crate::case::{Case, RecipeDef};
use crate::config::{Address, Config};
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
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let config = Config::load(&args.config)?;
    for (name, tree) in &config.file.trees {
        RecipeDef::new(tree)?;
        println!("tree      {name}: {}", tree.url);
    }
    for machine in config.machines.values() {
        let address = match &machine.address {
            Address::Local => "local".to_string(),
            Address::Ssh { user, host, port } => format!("{user}@{host}:{port}"),
        };
        println!("machine   {}: {address}", machine.name);
    }
    for workload in config.workloads.values() {
        Case::new(workload, &Default::default())?;
        let metrics: Vec<&str> = workload.metrics.iter().map(|m| m.name.as_str()).collect();
        println!("workload  {}: {}", workload.name, metrics.join(", "));
    }
    // Secrets are read and the way out is made, nothing is sent.
    crate::post::Post::open(&config)?;
    println!("{}: no mistake found", config.path.display());
    Ok(ExitCode::SUCCESS)
}
