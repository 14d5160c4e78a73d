//! The page of a running bisection in a real Chromium: suspects fall and the conclusion appears without a reload.
//!
//! The search is real (daemon, agent, Postgres, a repository whose builds take no time); `browser/live.mjs` is the eye.
//! Its screenshots stay in `tests/artefacts` for people to look at.

use lab::daemon::Setup;
use lab::user_tree::UserTree;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::process::Command;

/// For the whole search, on a machine under load.
const LIMIT: Duration = Duration::from_secs(600);

#[tokio::test(flavor = "multi_thread")]
async fn suspects_fall_and_the_conclusion_appears_without_a_reload() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    assert!(
        here.join("browser/node_modules/playwright-core").is_dir(),
        "the browser's tools are missing: run `npm ci` in tests/browser"
    );
    let folder = tempfile::tempdir().expect("a temporary folder");
    // Slow enough that a browser is there while it searches.
    let tree = UserTree::new(folder.path(), 24, 15, 1.0);
    let mut setup = Setup::new(folder.path());
    setup
        .trees
        .push(("steps".into(), tree.repository.clone(), UserTree::recipe().into()));
    setup.local_machine("m1", "method = \"none\"");
    setup.workloads.push(UserTree::workload().into());
    let daemon = setup.start(0).await;
    let id = daemon
        .submit(&json!({
            "tree": "steps", "good": tree.commits[0], "bad": "main", "workload": "steps", "metric": "ops",
            "min_effect_pct": 3, "machine": "m1", "seed": 7,
        }))
        .await;

    let seen = watch(here, &format!("{}/bisections/{id}", daemon.url)).await;
    let bisection = daemon.concluded(&id, LIMIT).await;
    assert_eq!(
        bisection["conclusion"]["first_bad"],
        json!([tree.first_bad]),
        "{bisection:#}"
    );
    assert_eq!(
        seen["culprit"],
        json!(tree.first_bad),
        "the page names it: {seen:#}"
    );
    let suspects: Vec<u64> = seen["suspects"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(Value::as_u64)
        .collect();
    assert!(
        suspects.windows(2).any(|pair| pair[1] < pair[0]),
        "it was seen to fall: {suspects:?}"
    );
    assert_eq!(seen["navigations"], 1, "and never loaded again");
    for picture in seen["screenshots"].as_array().expect("a list") {
        let picture = here.join("browser").join(picture.as_str().expect("a path"));
        assert!(
            picture.metadata().is_ok_and(|m| m.len() > 10_000),
            "{}",
            picture.display()
        );
    }
}

/// What the browser saw; panics with what it complained of.
async fn watch(here: &Path, url: &str) -> Value {
    let out: PathBuf = here.join("artefacts/browser");
    let mut node = Command::new("node");
    node.current_dir(here.join("browser"))
        .args(["live.mjs", "--url", url, "--out"])
        .arg(&out)
        .args(["--limit-s", &LIMIT.as_secs().to_string()])
        .kill_on_drop(true);
    let output = tokio::time::timeout(LIMIT + LIMIT, node.output()).await;
    let output = output
        .expect("the browser comes to an end")
        .expect("node is installed");
    let said = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{complaint}");
    serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said}\n{complaint}"))
}
