//! The store against real Postgres: what must hold when several coordinators do the same at the same moment.

use coordinator::store::attempts::{Grant, Target};
use coordinator::store::bisections::Ruling;
use coordinator::store::facts::Ending;
use coordinator::store::jobs::Want;
use coordinator::store::record::Decision;
use coordinator::store::{Bell, CancelOutcome, Channel, Recipient, Store, Submitted};
use lab::postgres::Postgres;
use lab::records::*;
use serde_json::json;
use std::collections::BTreeSet;
use uuid::Uuid;

#[tokio::test(flavor = "multi_thread")]
async fn equal_requests_at_the_same_moment_are_one_bisection_with_all_recipients() {
    let store = store().await;
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..20 {
        let store = store.clone();
        tasks.spawn(async move {
            let mut submission = submission(&["m1"]);
            let address = format!("p{n}@example.org");
            submission.recipients = vec![Recipient {
                channel: Channel::Mail,
                address,
            }];
            store.submit(&submission).await.unwrap()
        });
    }
    let submitted = tasks.join_all().await;
    let created = submitted
        .iter()
        .filter(|s| matches!(s, Submitted::Created(..)))
        .count();
    assert_eq!(created, 1);
    let ids: BTreeSet<Uuid> = submitted
        .iter()
        .map(|s| match s {
            Submitted::Created(id, _) | Submitted::Joined(id, _) => *id,
        })
        .collect();
    assert_eq!(ids.len(), 1);
    assert_eq!(count(&store, "select count(*) from recipients").await, 20);

    // Once it has ended, an equal request is a new one.
    let id = *ids.first().unwrap();
    assert_eq!(store.cancel(id).await.unwrap(), CancelOutcome::Cancelled);
    assert_eq!(
        store.cancel(id).await.unwrap(),
        CancelOutcome::Ended("cancelled".into())
    );
    assert_eq!(
        store.cancel(Uuid::now_v7()).await.unwrap(),
        CancelOutcome::Unknown
    );
    assert!(matches!(
        store.submit(&submission(&["m1"])).await.unwrap(),
        Submitted::Created(..)
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn thirty_coordinators_grant_twenty_machines_once_each() {
    let store = store().await;
    let names: Vec<String> = (0..20).map(|n| format!("m{n:02}")).collect();
    let refs: Vec<&str> = names.iter().map(String::as_str).collect();
    let id = bisection(&store, &refs).await;
    let wants: Vec<Want> = names.iter().map(|m| want(GOOD, m, 0)).collect();
    build(&store, id, "m00", GOOD, &wants).await;

    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..30 {
        let (store, names) = (store.clone(), names.clone());
        tasks.spawn(async move {
            let carrier = format!("c{n}");
            let mut granted = Vec::new();
            for machine in store.free_machines(&names).await.unwrap() {
                for claim in store.job_claims(&machine).await.unwrap() {
                    let target = Target::Job(claim.job_id);
                    let grant = Grant {
                        machine: &machine,
                        target,
                        bisection: id,
                        deadline_s: 60.0,
                        carrier: &carrier,
                    };
                    granted.extend(store.grant(&grant).await.unwrap());
                }
            }
            granted
        });
    }
    let granted: Vec<Uuid> = tasks.join_all().await.into_iter().flatten().collect();
    assert_eq!(granted.len(), 20);
    assert_eq!(granted.iter().collect::<BTreeSet<_>>().len(), 20);
    assert_eq!(
        count(
            &store,
            "select count(distinct machine) from attempts where state = 'held'"
        )
        .await,
        20
    );
    assert_eq!(
        count(&store, "select count(*) from jobs where state = 'held'").await,
        20
    );
    // Tokens rise: the machine that built has given out two.
    assert_eq!(
        count(&store, "select token from machines where name = 'm00'").await,
        2
    );

    // Every lease lapses; thirty adopt, each attempt is adopted once.
    sqlx::query("update attempts set carried_until = now() - interval '1 s' where state = 'held'")
        .execute(&store.pool)
        .await
        .unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..30 {
        let (store, names) = (store.clone(), names.clone());
        tasks.spawn(async move { store.adopt(&format!("d{n}"), &names).await.unwrap() });
    }
    let adopted: Vec<Uuid> = tasks.join_all().await.into_iter().flatten().collect();
    assert_eq!(adopted.len(), 20);
    assert_eq!(adopted.iter().collect::<BTreeSet<_>>().len(), 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_made_from_an_older_record_is_void() {
    let store = store().await;
    let id = bisection(&store, &["m1"]).await;
    let mut tasks = tokio::task::JoinSet::new();
    let at = version(&store, id).await;
    for _ in 0..10 {
        let store = store.clone();
        tasks.spawn(async move {
            let decision = Decision {
                bisection: id,
                version: at,
                planner_version: 1,
                plan: json!({}),
                ruling: Ruling::GoesOn { wake_s: Some(3600.0) },
                wants: &[want(GOOD, "m1", 0)],
                wishes: &[wish(GOOD, true), wish(BAD, false)],
            };
            store.decide(&decision).await.unwrap()
        });
    }
    let decided = tasks.join_all().await;
    assert_eq!(
        decided.iter().filter(|d| **d).count(),
        1,
        "one of ten equal decisions is carried out"
    );
    assert_eq!(count(&store, "select count(*) from decisions").await, 1);
    assert_eq!(count(&store, "select count(*) from jobs").await, 1);
    assert_eq!(count(&store, "select count(*) from builds").await, 2);
    assert!(store.due().await.unwrap().is_empty());

    assert!(store.override_commit(id, GOOD, "skip", "me").await.unwrap());
    let stale = Decision {
        bisection: id,
        version: at,
        planner_version: 1,
        plan: json!({}),
        ruling: Ruling::GoesOn { wake_s: None },
        wants: &[],
        wishes: &[],
    };
    assert!(!store.decide(&stale).await.unwrap());
    assert_eq!(store.due().await.unwrap(), [id]);
    assert!(
        store.build_claims().await.unwrap().is_empty(),
        "wishes of a stale plan are not carried out"
    );

    // A limit that passes is news.
    assert!(decide(&store, id, &[], &[]).await);
    assert!(store.due().await.unwrap().is_empty());
    sqlx::query("update bisections set wake_at = now()")
        .execute(&store.pool)
        .await
        .unwrap();
    assert_eq!(store.due().await.unwrap(), [id]);
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelling_stops_what_runs_and_keeps_the_facts() {
    let store = store().await;
    let id = bisection(&store, &["m1", "m2"]).await;
    let wants = [want(GOOD, "m1", 0), want(GOOD, "m2", 0)];
    build(&store, id, "m1", GOOD, &wants).await;
    let held = grant(&store, id, "m1", "c1").await.unwrap();
    assert_eq!(store.cancel(id).await.unwrap(), CancelOutcome::Cancelled);
    assert!(store.renew(held, "c1").await.unwrap().unwrap().cancel_asked);
    assert!(
        grant(&store, id, "m2", "c1").await.is_none(),
        "wanted jobs are gone"
    );
    store
        .finish(held, "c1", Some(&json!("cancelled")), &Ending::Cancelled)
        .await
        .unwrap();
    assert_eq!(
        count(&store, "select count(*) from jobs where state = 'cancelled'").await,
        2
    );
    assert_eq!(
        count(&store, "select count(*) from images").await,
        1,
        "facts stay"
    );
    assert_eq!(
        store.free_machines(&["m1".into(), "m2".into()]).await.unwrap(),
        ["m1", "m2"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_machine_opens_a_lane_and_a_missing_one_retires() {
    let store = store().await;
    let id = bisection(&store, &["m1", "m2"]).await;
    let before = version(&store, id).await;
    store
        .sync_machines(&[configured("m1", "a"), configured("m2", "a")])
        .await
        .unwrap();
    assert_eq!(version(&store, id).await, before, "nothing changed");
    store.sync_machines(&[configured("m1", "b")]).await.unwrap();
    assert_eq!(version(&store, id).await, before + 1);
    let machines = store.machines_for(id).await.unwrap();
    assert_eq!(
        machines
            .iter()
            .map(|m| (m.name.as_str(), m.lane))
            .collect::<Vec<_>>(),
        [("m1", 2)]
    );
    store
        .sync_machines(&[configured("m1", "b"), configured("m2", "a")])
        .await
        .unwrap();
    let machines = store.machines_for(id).await.unwrap();
    assert_eq!(
        machines
            .iter()
            .map(|m| (m.name.as_str(), m.lane))
            .collect::<Vec<_>>(),
        [("m1", 2), ("m2", 1)]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bell_rings_across_connections_and_outlives_them() {
    let url = Postgres::shared().database();
    let (here, there) = (
        Store::connect(&url).await.unwrap(),
        Store::connect(&url).await.unwrap(),
    );
    let limit = std::time::Duration::from_secs(20);
    let mut bell = here.listen();
    heard(&there, &mut bell).await;
    sqlx::query("select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and query ilike 'listen%'")
        .execute(&there.pool)
        .await
        .unwrap();
    tokio::time::timeout(limit, bell.rung())
        .await
        .expect("the end of a gap rings by itself");
    heard(&there, &mut bell).await;
}

/// Rings until it is heard: when the other side begins to listen is not known here.
async fn heard(there: &Store, bell: &mut Bell) {
    lab::wait::until_async(
        "a ring from another connection",
        std::time::Duration::from_secs(20),
        async || {
            there.notify().await.unwrap();
            tokio::time::timeout(std::time::Duration::from_millis(500), bell.rung())
                .await
                .ok()
        },
    )
    .await
}
