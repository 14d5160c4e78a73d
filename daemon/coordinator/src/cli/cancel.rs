//! `perfbisect cancel`: ends a bisection; what was measured stays.

use super::client::{self, Answer, Client, Server};
use std::process::ExitCode;

/// Cancels one bisection. Exit codes: 0 cancelled, 1 not found or failed, 2 it had ended before.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    server: Server,
    /// Its number or id.
    #[arg(value_parser = client::name)]
    bisection: String,
}

pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let client = Client::new(&args.server)?;
    match client
        .post(&format!("/api/v1/bisections/{}/cancel", args.bisection), None)
        .await?
    {
        Answer::Refused(status, problem) => Ok(client::refused(&args.server, status, &problem)),
        Answer::Ok(_, bisection) => {
            match args.server.json {
                true => println!("{bisection}"),
                false => println!(
                    "bisection {} is cancelled; what was measured stays",
                    args.bisection
                ),
            }
            Ok(ExitCode::from(client::DONE))
        }
    }
}
