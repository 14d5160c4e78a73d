//! The commands of `perfbisect`. Each has a file of its own; this one is their table of contents.

pub mod cancel;
pub mod client;
pub mod compare;
pub mod config_check;
pub mod display;
pub mod list;
pub mod log;
pub mod machine;
pub mod machines;
pub mod manual;
pub mod midpoints;
pub mod plan;
pub mod preview;
pub mod run;
pub mod serve;
pub mod show;
pub mod simulate;
pub mod submit;
pub mod tokens;
pub mod watch;
pub mod workloads;

use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;

/// Finds the commit that made a kernel slower, unattended, and says how sure it is.
#[derive(Parser)]
#[command(name = "perfbisect", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the coordinator: HTTP, passes, pages.
    Serve(serve::Args),
    Run(Box<run::Args>),
    Preview(Box<preview::Args>),
    Submit(Box<submit::Args>),
    List(list::Args),
    Show(show::Args),
    Watch(watch::Args),
    Log(log::Args),
    Cancel(cancel::Args),
    Machines(machines::Args),
    Workloads(workloads::Args),
    /// Judge records offline: one JSON object a line in, one a line out.
    Plan,
    Compare(compare::Args),
    Simulate(Box<simulate::Args>),
    Midpoints(midpoints::Args),
    /// Test machines.
    Machine {
        #[command(subcommand)]
        command: MachineCommand,
    },
    /// Who may use a daemon that asks for tokens.
    Tokens {
        #[command(subcommand)]
        command: tokens::Command,
    },
    /// Look at the configuration.
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    Completion(manual::CompletionArgs),
    Man(manual::ManArgs),
}

#[derive(Subcommand)]
enum MachineCommand {
    Admit(machine::Args),
}

#[derive(Subcommand)]
enum ConfigCommand {
    /// Read every configuration file and say what is wrong, with file and key.
    Check(config_check::Args),
}

/// Parses the command line and carries it out. Exit codes: 0 done, 1 failed, 2 wrong usage.
pub fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("perfbisect: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Serve(args) => block_on(serve::run(args)),
        Command::Submit(args) => block_on(submit::run(*args)),
        Command::List(args) => block_on(list::run(args)),
        Command::Show(args) => block_on(show::run(args)),
        Command::Watch(args) => block_on(watch::run(args)),
        Command::Cancel(args) => block_on(cancel::run(args)),
        Command::Machine {
            command: MachineCommand::Admit(args),
        } => block_on(machine::admit(args)),
        Command::Tokens { command } => block_on(tokens::run(command)),
        Command::Run(args) => block_on(run::run(*args)),
        Command::Log(args) => block_on(log::run(args)),
        Command::Machines(args) => block_on(machines::run(args)),
        Command::Workloads(args) => block_on(workloads::run(args)),
        Command::Preview(args) => preview::run(*args),
        Command::Completion(args) => manual::completion(args, Cli::command()),
        Command::Man(args) => manual::man(args, Cli::command()),
        Command::Plan => plan::run(),
        Command::Compare(args) => compare::run(args),
        Command::Simulate(args) => simulate::run(*args),
        Command::Midpoints(args) => midpoints::run(args),
        Command::Config {
            command: ConfigCommand::Check(args),
        } => config_check::run(args),
    }
}

/// A runtime for the commands that need one; those that don't (`plan`, `config check`) start none.
fn block_on<F: Future<Output = anyhow::Result<ExitCode>>>(future: F) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(future)
}
