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
    #[arg(value_parser = name)]
    machine: String,
}

/// A name as configurations have them: it becomes part of the path that is asked.
fn name(text: &str) -> Result<String, String> {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"_.-".contains(&b);
    if text.len() <= 64 && text.bytes().all(fits) && text.bytes().any(|b| b != b'.') {
        Ok(text.to_owned())
    } else {
        Err("give a machine's name: `perfbisect machines` lists them".to_owned())
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_named_as_it_is_configured() {
        for named in ["box1", "lab-a.rack_2"] {
            assert_eq!(name(named).as_deref(), Ok(named));
        }
        for nothing in ["", "..", "a/b", "a b", "x?y"] {
            assert!(name(nothing).is_err(), "{nothing}");
        }
    }
}
