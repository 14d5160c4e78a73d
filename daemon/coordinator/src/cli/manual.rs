//! `perfbisect completion` and `perfbisect man`: what shells and `man` want to know of the commands.

use clap_complete::Shell;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Print a completion script: `perfbisect completion bash > ~/.local/share/bash-completion/completions/perfbisect`.
#[derive(clap::Args)]
pub struct CompletionArgs {
    shell: Shell,
}

/// Write the manual pages, one for each command, into a folder: `perfbisect man ~/.local/share/man/man1`.
#[derive(clap::Args)]
pub struct ManArgs {
    folder: PathBuf,
}

pub fn completion(args: CompletionArgs, mut command: clap::Command) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "perfbisect", &mut script);
    match std::io::stdout().write_all(&script) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        // The reader went away: there is nobody left to print for.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(error) => Err(error.into()),
    }
}

pub fn man(args: ManArgs, command: clap::Command) -> anyhow::Result<ExitCode> {
    std::fs::create_dir_all(&args.folder)?;
    clap_mangen::generate_to(command, &args.folder)?;
    Ok(ExitCode::SUCCESS)
}
