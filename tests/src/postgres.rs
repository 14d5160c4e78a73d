//! A private Postgres cluster for one test process: made by `initdb`, reached over a unix socket, gone afterwards.
//!
//! It is stopped and removed by a watcher process that waits for the end of a pipe only this process holds. So it
//! goes away on drop, on a panic, and also when the test process is killed, which no destructor survives.
//! It knows nothing about what the tests store in it but the migrations.

use sqlx::migrate::Migrator;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

static MIGRATIONS: Migrator = sqlx::migrate!("../migrations");

/// The migrated database that every test's database is copied from.
const TEMPLATE: &str = "house_template";

/// Nothing in here is worth a disk's acknowledgement.
const SETTINGS: &str = "\
listen_addresses = ''
fsync = off
synchronous_commit = off
full_page_writes = off
autovacuum = off
shared_buffers = 32MB
max_connections = 200
";

/// Reads until its standard input ends, then stops the cluster and removes its folder. Signals meant for the tests'
/// terminal or process group must not reach it.
const WATCHER: &str =
    r#"trap '' INT TERM HUP; read -r _; "$1/pg_ctl" -D "$2/data" -m immediate stop; rm -rf "$2""#;

pub struct Postgres {
    folder: PathBuf,
    watcher: Child,
    databases: AtomicU32,
}

impl Postgres {
    /// A cluster of its own, with the migrated template in it. Panics with what to install when Postgres is missing.
    pub fn start() -> Postgres {
        let bin = binaries();
        let user = unprivileged_user();
        let folder = tempfile::Builder::new()
            .prefix("pb-pg-")
            .tempdir()
            .expect("a temporary folder")
            .keep();
        if let Some((uid, gid)) = user {
            chown(&folder, Some(uid), Some(gid)).expect("root may give its folder away");
        }
        // From here on the folder has a keeper, whatever happens to this process.
        let watcher = run_as(user, Command::new("sh"))
            .args(["-c", WATCHER, "watcher"])
            .args([&bin, &folder])
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("sh starts");
        let postgres = Postgres {
            folder: folder.clone(),
            watcher,
            databases: AtomicU32::new(0),
        };

        let data = folder.join("data");
        let initdb = [
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
            "-D",
        ];
        finish(
            run_as(user, Command::new(bin.join("initdb")))
                .args(initdb)
                .arg(&data)
                .current_dir("/"),
            &folder,
        );
        let settings = format!("{SETTINGS}unix_socket_directories = '{}'\n", folder.display());
        let conf = data.join("postgresql.conf");
        let text = std::fs::read_to_string(&conf).expect("initdb wrote postgresql.conf");
        std::fs::write(&conf, text + &settings).expect("postgresql.conf is ours");
        let mut start = run_as(user, Command::new(bin.join("pg_ctl")));
        start
            .args(["-w", "-t", "120", "start", "-l"])
            .arg(folder.join("log"))
            .arg("-D")
            .arg(&data);
        finish(start.current_dir("/"), &folder);

        postgres.admin(&format!("create database {TEMPLATE}"));
        let template = postgres.url(TEMPLATE);
        block_on(move || async move {
            let mut connection = PgConnection::connect(&template)
                .await
                .expect("the template answers");
            MIGRATIONS
                .run(&mut connection)
                .await
                .expect("the migrations apply");
            connection
                .close()
                .await
                .expect("the template must have no connection left when it is copied");
        });
        postgres
    }

    /// One cluster for all tests of this process. A static is never dropped: the watcher sees the process end.
    pub fn shared() -> &'static Postgres {
        static SHARED: LazyLock<Postgres> = LazyLock::new(Postgres::start);
        &SHARED
    }

    /// A fresh, migrated database; its URL.
    pub fn database(&self) -> String {
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.admin(&format!("create database {name} template {TEMPLATE}"));
        self.url(&name)
    }

    /// A fresh database without any table, for tests of the migrations themselves.
    pub fn empty_database(&self) -> String {
        let name = format!("empty_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.admin(&format!("create database {name}"));
        self.url(&name)
    }

    /// The folder of the cluster, with its socket and its `log`.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn url(&self, database: &str) -> String {
        format!(
            "postgres:///{database}?user=postgres&host={}",
            self.folder.display()
        )
    }

    fn admin(&self, sql: &str) {
        let (url, sql) = (self.url("postgres"), sql.to_string());
        block_on(move || async move {
            let mut connection = PgConnection::connect(&url).await.expect("the cluster answers");
            sqlx::raw_sql(AssertSqlSafe(sql))
                .execute(&mut connection)
                .await
                .expect("the statement is ours");
            connection.close().await.expect("an idle connection closes");
        });
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        drop(self.watcher.stdin.take());
        // Waits, so that a test that counts processes or folders afterwards sees none of ours.
        let _ = self.watcher.wait();
    }
}

/// Where `initdb` and `pg_ctl` are: Debian keeps them off PATH, a folder per major version.
fn binaries() -> PathBuf {
    let mut found: Vec<(u32, PathBuf)> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let major = path.file_name()?.to_str()?.parse().ok()?;
            path.join("bin/initdb")
                .is_file()
                .then(|| (major, path.join("bin")))
        })
        .collect();
    found.sort();
    found
        .pop()
        .map(|(_, bin)| bin)
        .expect("no Postgres under /usr/lib/postgresql: apt-get install postgresql")
}

/// `initdb` refuses root, so root lends its cluster to `postgres`, or to `nobody` where there is no such user.
fn unprivileged_user() -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let passwd = std::fs::read_to_string("/etc/passwd").expect("/etc/passwd is readable");
    let ids = |name: &str| {
        let mut fields = passwd
            .lines()
            .map(|l| l.split(':').collect::<Vec<_>>())
            .find(|f| f[0] == name)?
            .into_iter();
        Some((fields.nth(2)?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    Some(
        ids("postgres")
            .or_else(|| ids("nobody"))
            .expect("a user postgres or nobody"),
    )
}

fn run_as(user: Option<(u32, u32)>, mut command: Command) -> Command {
    if let Some((uid, gid)) = user {
        command.uid(uid).gid(gid);
    }
    command
}

fn finish(command: &mut Command, folder: &Path) {
    // A file, not a pipe: the started server would hold a pipe open for as long as it lives.
    let path = folder.join("setup.log");
    let log = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .expect("the folder is writable");
    let status = command
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a descriptor is left"))
        .stderr(log)
        .status()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = || std::fs::read_to_string(&path).unwrap_or_default();
    assert!(status.success(), "{command:?}: {status}\n{}", text());
}

/// On a thread and a runtime of its own, so that plain and asynchronous tests may both call it.
fn block_on<F: Future<Output = ()>>(work: impl FnOnce() -> F + Send + 'static) {
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime starts").block_on(work());
    };
    std::thread::spawn(run).join().expect("see the panic above");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::until;
    use std::time::Duration;

    fn count(url: String) -> i64 {
        let (send, receive) = std::sync::mpsc::channel();
        block_on(move || async move {
            let mut connection = PgConnection::connect(&url).await.expect("connects");
            let n: i64 = sqlx::query_scalar("select count(*) from bisections")
                .fetch_one(&mut connection)
                .await
                .unwrap();
            send.send(n).unwrap();
        });
        receive.recv().unwrap()
    }

    #[test]
    fn every_database_is_fresh_and_migrated_and_the_cluster_leaves_nothing() {
        let postgres = Postgres::start();
        let (one, other) = (postgres.database(), postgres.database());
        assert_ne!(one, other);
        assert_eq!(count(one), 0);
        let folder = postgres.folder().to_path_buf();
        drop(postgres);
        assert!(!folder.exists(), "{} is left", folder.display());
    }

    /// The watcher's promise: a killed test process leaves no cluster. The killed one is this test binary itself.
    #[test]
    fn a_killed_test_process_leaves_no_cluster() {
        let note = tempfile::NamedTempFile::new().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "--ignored",
                "--nocapture",
                "postgres::tests::start_and_wait_to_be_killed",
            ])
            .env("PB_TEST_NOTE", note.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let folder = until("the child's cluster", Duration::from_secs(120), || {
            let text = std::fs::read_to_string(note.path()).unwrap();
            text.strip_suffix('\n').map(PathBuf::from)
        });
        assert!(folder.join("data/postmaster.pid").exists());
        child.kill().unwrap();
        child.wait().unwrap();
        until("the cluster's end", Duration::from_secs(60), || {
            (!folder.exists()).then_some(())
        });
    }

    #[test]
    #[ignore = "the body of a_killed_test_process_leaves_no_cluster, never a test by itself"]
    fn start_and_wait_to_be_killed() {
        let Some(note) = std::env::var_os("PB_TEST_NOTE") else {
            return;
        };
        let postgres = Postgres::start();
        std::fs::write(note, format!("{}\n", postgres.folder().display())).unwrap();
        std::thread::park();
    }
}
