//! The API against its own description, by somebody who knows nothing but that.

use crate::site::Site;
use coordinator::store::tokens::Role;
use lab::records::{GOOD, bisection, build, grant, measured, want};
use serde_json::json;
use std::process::Command;

/// Examples for an operation in each phase; the coverage phase adds those that follow from the description.
const EXAMPLES: &str = "40";

const MACHINE: &str = "
[[operations]]
include-operation-id = \"admit_machine\"
parameters = { name = \"m1\" }
";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "some minutes of requests, and schemathesis on PATH: tests/run lab"]
async fn schemathesis_finds_nothing() {
    let site = Site::with("[auth]\n").await;
    let admin = site.token(Role::Admin).await;
    // Something to read: a search with a build, a job that was measured and one that waits.
    let id = bisection(&site.store, &["m1"]).await;
    build(
        &site.store,
        id,
        "m1",
        GOOD,
        &[want(GOOD, "m1", 0), want(GOOD, "m1", 1)],
    )
    .await;
    let attempt = grant(&site.store, id, "m1", "c1").await.expect("a job is ready");
    let report = json!({"measured": {}});
    let done = site
        .store
        .finish(attempt, "c1", Some(&report), &measured(GOOD, 5.0))
        .await;
    done.expect("it is recorded");
    let (status, _) = site
        .call(&admin, "POST", "/api/v1/bisections", Some(&site.request()))
        .await;
    assert_eq!(status, 201);

    // Addresses that the tester makes up lead nowhere, and are tried; then those of what is there.
    let ours = include_str!("../../schemathesis.toml");
    let there = format!("parameters = {{ name = \"1\", id = \"{attempt}\" }}\n{ours}{MACHINE}");
    for config in [ours, &there] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("schemathesis.toml");
        std::fs::write(&file, config).expect("writable");
        let mut command = Command::new("schemathesis");
        command
            .current_dir(folder.path())
            .arg("--config-file")
            .arg(&file)
            .arg("run")
            .arg(format!("{}/api/v1/openapi.json", site.url))
            .args(["--header", &format!("Authorization: Bearer {admin}")])
            .args(["--checks", "all", "--max-examples", EXAMPLES, "--seed", "1"])
            .args(["--request-timeout", "30", "--generation-database", "none"])
            .env("NO_COLOR", "1");
        let ran = tokio::task::spawn_blocking(move || command.output()).await;
        let ran = ran.expect("it does not panic");
        let output =
            ran.expect("schemathesis is on PATH: `pip install schemathesis`, in an environment of its own");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success(),
            "{said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        println!("{said}");
    }
}
