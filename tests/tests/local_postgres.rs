//! The private cluster: made, adopted, recovered, shared and stopped, with the system's own Postgres.

use coordinator::store::Store;
use coordinator::store::local::Cluster;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A state folder that the cluster's user can reach; what runs in it is stopped at the end.
struct State(tempfile::TempDir);

impl State {
    fn new() -> State {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        State(folder)
    }

    fn dir(&self) -> PathBuf {
        self.0.path().join("state")
    }
}

impl Drop for State {
    fn drop(&mut self) {
        if let Some(pid) = pid(&self.dir().join("pg/data")) {
            kill(pid, rustix::process::Signal::QUIT);
        }
    }
}

fn pid(data: &Path) -> Option<i32> {
    std::fs::read_to_string(data.join("postmaster.pid"))
        .ok()?
        .lines()
        .next()?
        .trim()
        .parse()
        .ok()
}

fn kill(pid: i32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    let _ = rustix::process::kill_process(pid, signal);
}

async fn start(dir: &Path) -> Cluster {
    let dir = dir.to_path_buf();
    tokio::task::spawn_blocking(move || Cluster::start(&dir, None))
        .await
        .unwrap()
        .expect("the cluster starts")
}

async fn stop(cluster: Cluster) {
    tokio::task::spawn_blocking(move || cluster.stop())
        .await
        .unwrap()
        .expect("the cluster stops");
}

/// A fact written through one connection.
async fn write_fact(cluster: &Cluster) {
    let store = Store::connect(&cluster.url()).await.unwrap();
    store.migrate().await.unwrap();
    sqlx::query("insert into definitions (digest, kind, body) values (repeat('a', 64), 'case', '{}')")
        .execute(&store.pool)
        .await
        .unwrap();
    store.pool.close().await;
}

async fn facts(cluster: &Cluster) -> i64 {
    let store = Store::connect(&cluster.url()).await.unwrap();
    let n = sqlx::query_scalar("select count(*) from definitions")
        .fetch_one(&store.pool)
        .await
        .unwrap();
    store.pool.close().await;
    n
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_adopted_recovered_and_stopped() {
    let state = State::new();
    let data = state.dir().join("pg/data");

    let first = start(&state.dir()).await;
    write_fact(&first).await;
    let postmaster = pid(&data).expect("it runs");
    assert!(
        !std::fs::read_to_string(data.join("postmaster.pid"))
            .unwrap()
            .contains("127.0.0.1")
    );
    assert_eq!(
        std::fs::metadata(state.dir().join("pg"))
            .unwrap()
            .permissions()
            .mode()
            & 0o777,
        0o700
    );

    // A daemon that is killed leaves it running; the next one adopts it.
    drop(first);
    let adopted = start(&state.dir()).await;
    assert_eq!(pid(&data), Some(postmaster), "the running one was adopted");
    assert_eq!(facts(&adopted).await, 1);

    // The machine's fault: the postmaster dies with its pid file in place.
    kill(postmaster, rustix::process::Signal::KILL);
    drop(adopted);
    let gone = format!("/proc/{postmaster}");
    let limit = std::time::Duration::from_secs(20);
    lab::wait::until("the killed postmaster is gone", limit, || {
        (!Path::new(&gone).exists()).then_some(())
    });
    let recovered = start(&state.dir()).await;
    assert_ne!(pid(&data), Some(postmaster));
    assert_eq!(facts(&recovered).await, 1, "what was committed is there");

    // Two daemons share it; the last one to leave stops it.
    let second = start(&state.dir()).await;
    stop(recovered).await;
    assert_eq!(facts(&second).await, 1, "runs on for the second daemon");
    stop(second).await;
    assert!(!data.join("postmaster.pid").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pid_file_whose_number_another_program_has_is_stale() {
    let state = State::new();
    let data = state.dir().join("pg/data");
    let cluster = start(&state.dir()).await;
    write_fact(&cluster).await;
    stop(cluster).await;
    std::fs::write(
        data.join("postmaster.pid"),
        format!("{}\n{}\n", std::process::id(), data.display()),
    )
    .unwrap();
    let again = start(&state.dir()).await;
    assert_eq!(facts(&again).await, 1);
    stop(again).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_too_long_for_a_socket_gets_another_socket_folder() {
    let state = State::new();
    let deep = state.dir().join("d".repeat(60)).join("e".repeat(60));
    let cluster = start(&deep).await;
    assert!(!cluster.url().contains("eeee"), "{}", cluster.url());
    write_fact(&cluster).await;
    assert_eq!(facts(&cluster).await, 1);
    stop(cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_of_another_version_is_refused_with_what_to_do() {
    let state = State::new();
    let cluster = start(&state.dir()).await;
    stop(cluster).await;
    std::fs::write(state.dir().join("pg/data/PG_VERSION"), "9\n").unwrap();
    let error = Cluster::start(&state.dir(), None).unwrap_err().to_string();
    assert!(
        error.contains("made by Postgres 9") && error.contains("apt install postgresql-9"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_binaries_are_named() {
    let state = State::new();
    let empty = tempfile::tempdir().unwrap();
    let error = format!(
        "{:#}",
        Cluster::start(&state.dir(), Some(empty.path())).unwrap_err()
    );
    assert!(error.contains("no initdb, pg_ctl and postgres there"), "{error}");
}

/// Root's own home is closed to the user Postgres must run as.
#[tokio::test(flavor = "multi_thread")]
async fn a_state_folder_closed_to_the_clusters_user_is_kept_elsewhere() {
    if !rustix::process::geteuid().is_root() {
        return; // Only root lends its cluster to another user.
    }
    let state = State::new();
    std::fs::create_dir_all(state.dir()).unwrap();
    std::fs::set_permissions(state.dir(), PermissionsExt::from_mode(0o700)).unwrap();
    let dir = state.dir().join("inner");
    let cluster = start(&dir).await;
    let data = cluster.data();
    assert!(data.starts_with("/var/lib"), "{}", data.display());
    write_fact(&cluster).await;
    stop(cluster).await;
    std::fs::remove_dir_all(data.parent().unwrap()).unwrap();
}
