//! The main job, whole: a real kernel tree, kernels really built, booted and measured, a page that showed it happen,
//! a mail and a webhook at the end.

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use lab::daemon::{Setup, assert_found};
use lab::kernel_tree::{self, KernelTree};
use lab::smtp::Smtp;
use lab::wait::until_async;
use serde_json::{Value, json};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

/// Five minutes on an idle machine; ten times that on one that is shared.
const CONCLUSION_LIMIT: Duration = Duration::from_secs(3600);
/// Until the outbox tries again after a refused connection.
const NOTICE_LIMIT: Duration = Duration::from_secs(600);

const MACHINE: &str =
    "method = \"qemu\"\naccel = \"tcg\"\nicount = true\nboot_limit_s = 300\nsilence_limit_s = 200";

#[tokio::test(flavor = "multi_thread")]
async fn a_real_kernel_from_a_request_to_a_first_bad_commit() {
    let given = std::env::var("PB_TEST_SEED").ok().and_then(|s| s.parse().ok());
    let seed = given.unwrap_or_else(|| {
        SystemTime::UNIX_EPOCH
            .elapsed()
            .map_or(1, |d| d.as_nanos() as u64 % 1_000_000)
    });
    println!("PB_TEST_SEED={seed}");
    let tree = KernelTree::new(seed);
    let folder = tempfile::tempdir().unwrap();
    let (smtp_port, hook_port) = (free_port(), free_port());

    let mut setup = Setup::new(folder.path());
    setup
        .trees
        .push(("linux".into(), tree.repository.clone(), kernel_tree::recipe(0)));
    setup.local_machine("here", MACHINE);
    let workload = concat!(env!("CARGO_MANIFEST_DIR"), "/../config/workloads/pipe.toml");
    setup
        .workloads
        .push(std::fs::read_to_string(workload).expect("the workload is shipped"));
    std::fs::write(
        folder.path().join("secret"),
        "whsec_cGVyZmJpc2VjdC1sYWItc2VjcmV0LTEyMzQ1Ng==\n",
    )
    .unwrap();
    setup.more = format!(
        "[mail]\nfrom = \"perfbisect@lab.example.org\"\nsmtp_host = \"127.0.0.1\"\nsmtp_port = {smtp_port}\n\
         [webhook]\nsecret_file = \"secret\"\nallow_private_addresses = true\n"
    );
    let mut daemon = setup.start(0).await;
    let id = daemon
        .submit(&json!({
            "tree": "linux", "good": "v1.0", "bad": "v1.1", "workload": "pipe",
            "metric": "perf_bench.usecs_per_op", "min_effect_pct": 2.0, "machine": "here",
            "costs": { "build_s": 7, "boot_s": 2, "run_s": 0.3 },
            "recipients": [
                { "mail": "dev@lab.example.org" },
                { "webhook": format!("http://127.0.0.1:{hook_port}/hook") },
            ],
        }))
        .await;
    let detail = daemon.get(&format!("/api/v1/bisections/{id}")).await;
    let page = detail["page"].as_str().expect("the answer names its page");
    let browser = watch_page(page);

    let found = daemon.concluded(&id, CONCLUSION_LIMIT).await;
    let conclusion = &found["conclusion"];
    assert_found(&found, tree.first_bad());
    let effect = conclusion["effect_pct"]
        .as_f64()
        .expect("a culprit has an effect");
    assert!(
        (3.0..=8.0).contains(&effect),
        "planted were 3 to 8 %, found {effect}"
    );
    assert_facts(&setup, &tree).await;

    // Both receivers were down when the notices were written: they come up after the first try of each has failed.
    let pool = sqlx::PgPool::connect(setup.database_url.as_deref().expect("set above"))
        .await
        .unwrap();
    until_async("a failed first try of both notices", NOTICE_LIMIT, async || {
        let tried: i64 =
            sqlx::query_scalar("select count(*) from notices where tries > 0 and state = 'waiting'")
                .fetch_one(&pool)
                .await
                .expect("the test's own database");
        (tried == 2).then_some(())
    })
    .await;
    let smtp = Smtp::listen(smtp_port).await;
    let calls = receive(hook_port).await;
    until_async("both notices to be sent", NOTICE_LIMIT, async || {
        let sent: i64 = sqlx::query_scalar("select count(*) from notices where state = 'sent'")
            .fetch_one(&pool)
            .await
            .expect("the test's own database");
        (sent == 2).then_some(())
    })
    .await;
    let mails = smtp.inbox();
    assert_eq!(mails.len(), 1, "{mails:#?}");
    assert!(
        mails[0].data.contains(&tree.first_bad()[..12]),
        "{}",
        mails[0].data
    );
    let bodies = calls.lock().unwrap().clone();
    assert_eq!(bodies.len(), 1, "{bodies:#?}");
    assert!(
        bodies[0].to_string().contains(tree.first_bad()),
        "{:#}",
        bodies[0]
    );

    let seen = tokio::task::spawn_blocking(move || browser.wait_with_output().expect("it is our child"))
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&seen.stdout);
    assert!(
        seen.status.success(),
        "the browser did not see what it should: {said}"
    );
    assert!(
        said.contains(tree.first_bad()),
        "the page names another commit: {said}"
    );
    assert!(daemon.stop().success(), "{}", daemon.log_tail());
}

/// Whatever the search met on its way is recorded as what it was.
async fn assert_facts(setup: &Setup, tree: &KernelTree) {
    let pool = sqlx::PgPool::connect(setup.database_url.as_deref().expect("set above"))
        .await
        .unwrap();
    let built: Vec<(String, String)> = sqlx::query_as("select kernel_key, state from builds")
        .fetch_all(&pool)
        .await
        .unwrap();
    let broken = |commit: &String| tree.commits("does_not_run").contains(commit);
    for (commit, state) in &built {
        if tree.commits("breaks").contains(commit) {
            assert_eq!(state, "failed", "{commit} does not build");
        } else if !broken(commit) && state != "wanted" {
            assert_eq!(state, "built", "{commit} builds");
        }
    }
    let measured: Vec<(String, Value)> = sqlx::query_as("select kernel_key, outcome from observations")
        .fetch_all(&pool)
        .await
        .unwrap();
    assert!(
        measured.len() >= 6,
        "two ends and some of the middle were measured: {measured:?}"
    );
    for (commit, outcome) in &measured {
        assert_eq!(
            outcome.get("measured").is_some(),
            !broken(commit),
            "{commit}: {outcome}"
        );
    }
}

/// Chromium on the page, by the script that knows what it has to see; its screenshots are artefacts outside git.
fn watch_page(url: &str) -> Child {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    Command::new("node")
        .current_dir(folder.join("browser"))
        .args([
            "live.mjs",
            "--url",
            url,
            "--limit-s",
            &CONCLUSION_LIMIT.as_secs().to_string(),
            "--out",
        ])
        .arg(folder.join("artefacts/end-to-end"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("node is installed")
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .and_then(|l| l.local_addr())
        .expect("loopback has a free port")
        .port()
}

/// A receiver that accepts everything and keeps it.
async fn receive(port: u16) -> Arc<Mutex<Vec<Value>>> {
    type Calls = Arc<Mutex<Vec<Value>>>;
    async fn take(State(calls): State<Calls>, headers: HeaderMap, body: Bytes) -> StatusCode {
        assert!(headers.contains_key("webhook-signature"), "{headers:?}");
        calls
            .lock()
            .unwrap()
            .push(serde_json::from_slice(&body).expect("the body is JSON"));
        StatusCode::NO_CONTENT
    }
    let calls = Calls::default();
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port))
        .await
        .expect("it was free");
    let app = axum::Router::new().fallback(take).with_state(calls.clone());
    tokio::spawn(async move { axum::serve(listener, app).await });
    calls
}
