//! Boots that are dropped for what surrounds them, in the store; and held settings from a machine's file to the page.

use coordinator::store::facts::{Drop, Ending, Finished};
use lab::daemon::Setup;
use lab::records::*;
use lab::user_tree::UserTree;
use serde_json::json;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(480);

fn dropped(reason: &'static str) -> Ending {
    Ending::Dropped(Drop {
        reason,
        what: "somebody was logged in: ann pts/0".into(),
        environment: json!({"governor": "powersave"}),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_boot_is_no_observation_is_tried_again_and_at_the_limit_lost() {
    let store = store().await;
    let id = bisection(&store, &["m1"]).await;
    build(&store, id, "m1", GOOD, &[want(GOOD, "m1", 0)]).await;
    let report = json!({"measured": {}});
    for n in 1..=5 {
        let attempt = grant(&store, id, "m1", "c1").await.expect("it is wanted again");
        let reason = if n % 2 == 0 { "disturbed" } else { "environment" };
        let done = store
            .finish(attempt, "c1", Some(&report), &dropped(reason))
            .await
            .unwrap();
        assert_eq!(done, Finished::Recorded);
        let again = store
            .finish(attempt, "c1", Some(&report), &dropped(reason))
            .await
            .unwrap();
        assert_eq!(again, Finished::Evidence);
        pauses_with(&store, id, i64::from(n == 5)).await;
    }
    assert_eq!(only_outcome(&store).await, json!("lost"));
    assert_eq!(count(&store, "select count(*) from boots").await, 0);
    let drops = store.view_drops(id).await.unwrap();
    assert_eq!(drops.len(), 5);
    assert_eq!(drops[0].environment, json!({"governor": "powersave"}));
    assert_eq!((drops[1].reason.as_str(), drops[1].replicate), ("disturbed", 0));
    let lost_in_a_row = count(&store, "select lost_in_a_row::bigint from machines").await;
    assert_eq!(
        lost_in_a_row, 0,
        "a neighbour's noise is not the machine's sickness"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_boot_is_held_against_the_earlier_ones_of_its_search() {
    let store = store().await;
    let id = bisection(&store, &["m1"]).await;
    let wants = [want(GOOD, "m1", 0), want(GOOD, "m1", 1)];
    build(&store, id, "m1", GOOD, &wants).await;
    let first = grant(&store, id, "m1", "c1").await.unwrap();
    assert!(store.earlier_environments(first).await.unwrap().is_empty());
    let mut ending = measured(GOOD, 40.0);
    if let Ending::Measured { boot, .. } = &mut ending {
        boot.environment = json!({"governor": "performance"});
    }
    store
        .finish(first, "c1", Some(&json!({"measured": {}})), &ending)
        .await
        .unwrap();
    assert!(
        decide(&store, id, &wants[1..], &[]).await,
        "the planner saw it and wants the other one still"
    );
    let second = grant(&store, id, "m1", "c1").await.unwrap();
    let earlier = store.earlier_environments(second).await.unwrap();
    assert_eq!(earlier, [(image(GOOD).id, json!({"governor": "performance"}))]);
    let seen = store.view_surroundings(id).await.unwrap();
    assert_eq!((seen.len(), seen[0].image_id.clone()), (1, image(GOOD).id));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_machines_file_holds_is_recorded_with_every_boot_and_shown() {
    let folder = tempfile::tempdir().unwrap();
    let tree = UserTree::new(folder.path(), 8, 5, 0.0);
    let mut setup = Setup::new(folder.path());
    setup
        .trees
        .push(("steps".into(), tree.repository.clone(), UserTree::recipe().into()));
    setup.workloads.push(UserTree::workload().into());
    let work_dir = folder.path().join("agents/here");
    setup.machines.push(format!(
        "name = \"here\"\naddress = \"local\"\nwork_dir = {work_dir:?}\nheld = {{ cpus = \"0\" }}\n[boot]\nmethod = \"none\"\n\
         [disturbed]\nsteal_pct = 100\nforeign_io_mib_per_s = 1e9\n"
    ));
    let daemon = setup.start(0).await;
    let id = daemon
        .submit(&json!({
            "tree": "steps", "good": tree.commits[0], "bad": tree.commits.last().unwrap(), "workload": "steps",
            "metric": "ops", "min_effect_pct": 5.0, "machine": "here",
        }))
        .await;
    let ended = daemon.concluded(&id, LIMIT).await;
    assert_eq!(
        ended["conclusion"]["first_bad"],
        json!([tree.first_bad]),
        "{ended:#}"
    );

    let seen = daemon.get(&format!("/api/v1/bisections/{id}/environment")).await;
    let machine = &seen["machines"][0];
    assert_eq!(machine["machine"], "here");
    assert_eq!(machine["same"]["held.cpus"], "0", "{seen:#}");
    assert_eq!(machine["same"]["cpus_allowed"], "0", "{seen:#}");
    assert!(machine["boots"].as_u64().unwrap() > 3, "{seen:#}");
    assert_eq!(seen["dropped_more_often"], json!([]));
    let page = lab::daemon::http()
        .get(format!("{}/bisections/{id}", daemon.url))
        .send()
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    assert!(
        page.contains("Surroundings") && page.contains("held.cpus"),
        "{page}"
    );
}
