//! A machine of its own under the whole daemon, its boots played: admitted first, searched with, brought home by power,
//! and given up when nothing brings it home. The same with real kernels is in the slow tier.

use lab::daemon::{Daemon, Setup};
use lab::played::Played;
use lab::user_tree::UserTree;
use lab::wait::until_async;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(600);

fn setup(folder: &Path, tree: &UserTree, machine: &Played) -> Setup {
    let mut setup = Setup::new(folder);
    setup
        .trees
        .push(("steps".into(), tree.repository.clone(), UserTree::recipe().into()));
    setup.workloads.push(UserTree::workload().into());
    let work_dir = folder.join("builder");
    setup.machines.push(format!(
        "name = \"builder\"\naddress = \"local\"\nroles = [\"build\"]\nwork_dir = {work_dir:?}\n[boot]\nmethod = \"none\"\n"
    ));
    setup.machines.push(machine.machine_file("rack1"));
    setup
}

fn request(tree: &UserTree) -> Value {
    json!({
        "tree": "steps", "good": tree.commits[0], "bad": tree.commits.last().unwrap(), "workload": "steps",
        "metric": "ops", "min_effect_pct": 5.0, "machine": "rack1",
    })
}

async fn rack(daemon: &Daemon) -> Value {
    let machines = daemon.get("/api/v1/machines").await;
    let all = machines["machines"].as_array().expect("a list");
    all.iter()
        .find(|m| m["name"] == "rack1")
        .expect("configured")
        .clone()
}

fn passed(rack: &Value) -> Vec<String> {
    let tries = rack["admission"]["tries"].as_array().cloned().unwrap_or_default();
    let of_it = tries.iter().filter(|t| t["passed"] == true);
    of_it
        .filter_map(|t| t["trial"].as_str().map(String::from))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_on_a_machine_of_its_own_survives_a_panic_and_a_hang() {
    let folder = tempfile::tempdir().unwrap();
    let machine = Played::start();
    let tree = UserTree::new(folder.path(), 8, 5, 0.0);
    let setup = setup(folder.path(), &tree, &machine);
    // After the trial of the good kernel: one boot is silent, one hangs, and the rest are well.
    machine.fate("good good silent good hang good");
    let daemon = setup.start(0).await;
    let id = daemon.submit(&request(&tree)).await;
    let ended = daemon.concluded(&id, LIMIT).await;
    let attempts = daemon.get(&format!("/api/v1/bisections/{id}/attempts")).await;
    assert_eq!(ended["conclusion"]["status"], "culprit_found", "{attempts:#}");
    assert_eq!(
        ended["conclusion"]["first_bad"],
        json!([tree.first_bad]),
        "{ended:#}"
    );
    let rack = rack(&daemon).await;
    assert_eq!(rack["state"], "idle", "{rack:#}");
    assert_eq!(passed(&rack), ["good", "panic", "hang"], "{rack:#}");
    let fates = machine.fates();
    assert!(
        fates.starts_with(&["good", "silent", "hang"].map(String::from)),
        "{fates:?}"
    );
    assert!(
        fates[3..].iter().any(|f| f == "silent") && fates[3..].iter().any(|f| f == "hang"),
        "{fates:?}"
    );
    // Neither was a verdict: a boot that fails once is booted again.
    let db = sqlx::PgPool::connect(setup.database_url.as_ref().unwrap())
        .await
        .unwrap();
    let failed: i64 =
        sqlx::query_scalar("select count(*) from observations where outcome = '\"boot_failed\"'")
            .fetch_one(&db)
            .await
            .unwrap();
    assert_eq!(failed, 0);
    let confirmed: i64 =
        sqlx::query_scalar("select count(*) from attempts where trouble like '%second boot%'")
            .fetch_one(&db)
            .await
            .unwrap();
    assert_eq!(confirmed, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_stays_away_is_quarantined_and_admitted_again_by_a_persons_word() {
    let folder = tempfile::tempdir().unwrap();
    let machine = Played::start();
    let tree = UserTree::new(folder.path(), 8, 5, 0.0);
    let setup = setup(folder.path(), &tree, &machine);
    let daemon = setup.start(0).await;
    until_async("admission", LIMIT, async || {
        (passed(&rack(&daemon).await).len() == 3).then_some(())
    })
    .await;

    machine.fate("hang");
    machine.dead(true);
    let id = daemon.submit(&request(&tree)).await;
    let away = until_async("quarantine", LIMIT, async || {
        let rack = rack(&daemon).await;
        (rack["state"] == "quarantined").then_some(rack)
    })
    .await;
    let reason = away["reason"].as_str().unwrap();
    assert!(
        reason.contains("did not come home") && reason.contains("3 power cycles"),
        "{reason}"
    );
    let db = sqlx::PgPool::connect(setup.database_url.as_ref().unwrap())
        .await
        .unwrap();
    let observed: i64 = sqlx::query_scalar("select count(*) from observations")
        .fetch_one(&db)
        .await
        .unwrap();
    assert_eq!(observed, 0, "the commit has no verdict from it");

    machine.fate("good");
    machine.dead(false);
    let (status, _) = daemon.post("/api/v1/machines/rack1/admit", &json!({})).await;
    assert_eq!(status, 200);
    let ended = daemon.concluded(&id, LIMIT).await;
    assert_eq!(
        ended["conclusion"]["first_bad"],
        json!([tree.first_bad]),
        "{ended:#}"
    );
    assert_eq!(passed(&rack(&daemon).await), ["good", "panic", "hang"]);
}
