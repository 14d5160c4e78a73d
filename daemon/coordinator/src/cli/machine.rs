//! `perfbisect machine admit`: a machine is tried from the start before it serves again.

use super::client::{self, Answer, Client, Server};
use std::process::ExitCode;

/// Has a machine tried anew, out of quarantine: its own kernel is booted, panics and hangs, and must be home again each
/// time. Exit codes: 0 accepted, 1 not found or failed.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    server: Server,
    /// Its name.
    #[arg(value_parser = client::name)]
    machine: String,
}

pub async fn admit(args: Args) -> anyhow::Result<ExitCode> {
    let client = Client::new(&args.server)?;
    let path = format!("/api/v1/machines/{}/admit", args.machine);
    match client.post(&path, None).await? {
        Answer::Refused(status, problem) => Ok(client::refused(&args.server, status, &problem)),
        Answer::Ok(_, machine) => {
            match args.server.json {
                true => println!("{machine}"),
                false => println!(
                    "{} is tried before it serves; GET /api/v1/machines says how it went",
                    args.machine
                ),
            }
            Ok(ExitCode::from(client::DONE))
        }
    }
}
