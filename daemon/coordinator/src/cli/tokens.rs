//! `perfbisect tokens`: makes, lists and revokes the tokens by which a daemon knows people and programs.

use super::client::{self, Answer, Client, Server, printable, text};
use serde_json::{Value, json};
use std::process::ExitCode;

#[derive(clap::Subcommand)]
pub enum Command {
    Create(CreateArgs),
    List(ListArgs),
    Revoke(RevokeArgs),
}

/// Make a token. It is printed once; the daemon keeps its digest only. Exit codes: 0 made, 1 failed, 2 refused.
#[derive(clap::Args)]
pub struct CreateArgs {
    #[command(flatten)]
    server: Server,
    /// Who or what will use it: the name in the log of actions.
    name: String,
    /// viewer reads; submitter submits and cancels too; operator looks after machines too; admin makes tokens too.
    #[arg(long, value_parser = ["viewer", "submitter", "operator", "admin"])]
    role: String,
    /// Days until it ends by itself; left out, it holds until it is revoked.
    #[arg(long, value_name = "DAYS")]
    lifetime_days: Option<u32>,
}

/// List tokens, without their secrets, the newest first.
#[derive(clap::Args)]
pub struct ListArgs {
    #[command(flatten)]
    server: Server,
}

/// Revoke a token; browsers that logged in with it are out at once. Exit codes: 0 done, 1 not found or failed.
#[derive(clap::Args)]
pub struct RevokeArgs {
    #[command(flatten)]
    server: Server,
    /// Its id, as `perfbisect tokens list` shows it.
    #[arg(value_parser = client::name)]
    id: String,
}

pub async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Create(args) => create(args).await,
        Command::List(args) => list(args).await,
        Command::Revoke(args) => revoke(args).await,
    }
}

async fn create(args: CreateArgs) -> anyhow::Result<ExitCode> {
    let body = json!({ "name": args.name, "role": args.role, "lifetime_days": args.lifetime_days });
    let answer = Client::new(&args.server)?
        .post("/api/v1/tokens", Some(&body))
        .await?;
    said(&args.server, answer, |made| {
        eprintln!(
            "token {} ({}), shown only now:",
            text(made, "/id"),
            text(made, "/role")
        );
        println!("{}", text(made, "/token"));
    })
}

async fn list(args: ListArgs) -> anyhow::Result<ExitCode> {
    let answer = Client::new(&args.server)?.get("/api/v1/tokens").await?;
    said(&args.server, answer, |all| {
        for token in all["tokens"].as_array().into_iter().flatten() {
            let standing = match (text(token, "/revoked_at"), text(token, "/expires_at")) {
                ("", "") => "holds".to_string(),
                ("", until) => format!("until {until}"),
                (at, _) => format!("revoked {at}"),
            };
            let name = printable(text(token, "/name"));
            println!(
                "{}  {:<9}  {standing}  {name}",
                text(token, "/id"),
                text(token, "/role")
            );
        }
    })
}

async fn revoke(args: RevokeArgs) -> anyhow::Result<ExitCode> {
    let path = format!("/api/v1/tokens/{}/revoke", args.id);
    let answer = Client::new(&args.server)?.post(&path, None).await?;
    said(&args.server, answer, |token| {
        println!("{} is revoked", printable(text(token, "/name")));
    })
}

fn said(server: &Server, answer: Answer, words: impl FnOnce(&Value)) -> anyhow::Result<ExitCode> {
    match answer {
        Answer::Refused(status, problem) => Ok(client::refused(server, status, &problem)),
        Answer::Ok(_, value) => {
            match server.json {
                true => println!("{value}"),
                false => words(&value),
            }
            Ok(ExitCode::from(client::DONE))
        }
    }
}
