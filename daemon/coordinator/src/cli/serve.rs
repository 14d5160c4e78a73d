//! `perfbisect serve`: wires the rooms together and stops them cleanly.

use crate::config::Config;
use crate::fleet::Fleet;
use crate::images::Images;
use crate::passes::Passes;
use crate::post::Post;
use crate::secret::Secret;
use crate::store::tokens::{NewToken, Role};
use crate::store::{Store, local::Cluster};
use crate::tree::Trees;
use crate::web::{self, WebState};
use anyhow::{Context, bail};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Where a package puts the agent for this architecture.
const INSTALLED_AGENT: &str = "/usr/lib/perfbisect/perfbisect-agent";

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
    log_to_stderr(args.log_json);
    let config = Arc::new(Config::load(&args.config)?);
    // Both reqwest and lettre ask rustls for its one provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let state_dir = &config.file.state_dir;
    std::fs::create_dir_all(state_dir).with_context(|| format!("state_dir: {}", state_dir.display()))?;
    let listener = tokio::net::TcpListener::bind(config.file.listen)
        .await
        .with_context(|| format!("listen = \"{}\": is another daemon running?", config.file.listen))?;

    let (store, cluster) = open_store(&config).await?;
    greet(&config, &store).await?;
    let ran = serve(listener, config, store).await;
    if let Some(cluster) = cluster {
        tokio::task::spawn_blocking(|| cluster.stop()).await??;
    }
    ran?;
    tracing::info!("stopped");
    Ok(ExitCode::SUCCESS)
}

async fn open_store(config: &Config) -> anyhow::Result<(Store, Option<Cluster>)> {
    let (url, cluster) = match &config.file.database_url {
        Some(url) => (url.clone(), None),
        None => {
            let (state_dir, bin_dir) = (
                config.file.state_dir.clone(),
                config.file.postgres_bin_dir.clone(),
            );
            let start = move || Cluster::start(&state_dir, bin_dir.as_deref());
            let cluster = tokio::task::spawn_blocking(start).await??;
            (cluster.url(), Some(cluster))
        }
    };
    let store = Store::connect(&url)
        .await
        .context("database_url: Postgres cannot be reached")?;
    store
        .migrate()
        .await
        .context("the database's schema cannot be brought up to date")?;
    Ok((store, cluster))
}

/// A daemon that asks for tokens must be given a first one by itself: printed once, to standard output, not to the log.
async fn greet(config: &Config, store: &Store) -> anyhow::Result<()> {
    if config.file.auth.is_none() {
        return Ok(());
    }
    let secret = Secret::draw()?;
    let first = NewToken {
        name: "first admin".into(),
        role: Role::Admin,
        secret: secret.digest(),
        created_by: "the first start".into(),
        lifetime_days: None,
    };
    if store.create_first_token(&first).await? {
        println!(
            "The first admin token, shown only now: {}\nMake others with it: PERFBISECT_TOKEN=… perfbisect tokens create",
            secret.text()
        );
    }
    Ok(())
}

/// Runs passes and pages until a signal to stop, or until one of them breaks.
async fn serve(listener: tokio::net::TcpListener, config: Arc<Config>, store: Store) -> anyhow::Result<()> {
    let trees = Trees::open(&config.file.state_dir, &config.file.trees).await?;
    let images = Images::open(&config.file.state_dir).await?;
    let fleet = Fleet::new(&config.machines, &agent_binary(config.file.agent.as_deref())?)?;
    let post = Arc::new(Post::open(&config)?);

    for tree in trees.names() {
        tokio::spawn(fetch(trees.clone(), tree));
    }
    let stop = CancellationToken::new();
    let passes = Passes::new(
        store.clone(),
        trees.clone(),
        fleet,
        images.clone(),
        post,
        config.clone(),
    );
    let pages = WebState {
        store,
        trees,
        images,
        config,
        shutdown: stop.clone(),
    };
    let mut passes = std::pin::pin!(passes.run(stop.clone()));
    let mut pages = tokio::spawn(web::serve(listener, pages));

    tokio::select! {
        () = asked_to_stop()? => tracing::info!("stopping; attempts go on at their machines"),
        ended = &mut passes => { ended?; bail!("the passes ended by themselves") }
        ended = &mut pages => { ended??; bail!("the pages ended by themselves") }
    }
    stop.cancel();
    let (passes, pages) = tokio::join!(passes, pages);
    passes?;
    pages?
}

/// Beside the start: a mirror that is behind still serves what it has, and a revision it lacks is fetched when asked.
async fn fetch(trees: Trees, tree: String) {
    if let Err(error) = trees.fetch(&tree).await {
        tracing::warn!(tree, "cannot be fetched now: {error}");
    }
}

/// SIGINT from a terminal, SIGTERM from systemd.
fn asked_to_stop() -> anyhow::Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
    })
}

/// The configured agent, or the one beside this program, or the installed one.
fn agent_binary(configured: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(path) = configured {
        return match path.is_file() {
            true => Ok(path.to_path_buf()),
            false => bail!("agent = \"{}\" is no file", path.display()),
        };
    }
    let beside = std::env::current_exe()?.with_file_name("perfbisect-agent");
    let candidates = [beside, PathBuf::from(INSTALLED_AGENT)];
    candidates.iter().find(|p| p.is_file()).cloned().with_context(|| {
        let tried: Vec<String> = candidates.iter().map(|p| p.display().to_string()).collect();
        format!(
            "no agent binary at {}: build it, or name it by `agent = …`",
            tried.join(" or ")
        )
    })
}

/// `RUST_LOG` chooses what is logged; without it, what an operator wants to read.
fn log_to_stderr(json: bool) {
    use tracing_subscriber::{EnvFilter, fmt};
    let quiet = "info,sqlx=warn,tower_http=warn";
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(quiet));
    let builder = fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    match json {
        true => builder.json().init(),
        false => builder.with_target(false).init(),
    }
}
