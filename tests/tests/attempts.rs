//! How attempts end, against real Postgres: once, by evidence, and with the retries that each trouble deserves.

use coordinator::store::attempts::{LogKind, LogLine};
use coordinator::store::facts::{Ending, Finished};
use coordinator::store::jobs::Want;
use lab::records::*;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_ends_once_whoever_brings_its_report() {
    let store = store().await;
    let id = bisection(&store, &["m1"]).await;
    build(&store, id, "m1", GOOD, &[want(GOOD, "m1", 0)]).await;
    let attempt = grant(&store, id, "m1", "c1").await.unwrap();
    let before = version(&store, id).await;
    let report = json!({"measured": {}});
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..10 {
        let (store, report) = (store.clone(), report.clone());
        tasks.spawn(async move {
            store
                .finish(attempt, &format!("c{n}"), Some(&report), &measured(GOOD, 40.0))
                .await
                .unwrap()
        });
    }
    let finished = tasks.join_all().await;
    assert_eq!(
        finished.iter().filter(|f| **f == Finished::Recorded).count(),
        1,
        "{finished:?}"
    );
    assert_eq!(
        finished.iter().filter(|f| **f == Finished::Evidence).count(),
        9,
        "{finished:?}"
    );
    for table in ["observations", "boots", "samples"] {
        let sql: &'static str = match table {
            "observations" => "select count(*) from observations",
            "boots" => "select count(*) from boots",
            _ => "select count(*) from samples",
        };
        assert_eq!(count(&store, sql).await, 1, "{table}");
    }
    assert_eq!(version(&store, id).await, before + 1);
    assert!(
        store.renew(attempt, "c1").await.unwrap().is_none(),
        "an ended attempt has no lease"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn trouble_is_believed_from_the_carrier_alone_and_retried_then_lost() {
    let store = store().await;
    let id = bisection(&store, &["m1"]).await;
    build(&store, id, "m1", GOOD, &[want(GOOD, "m1", 0)]).await;
    let trouble = Ending::Trouble {
        what: "no qemu".into(),
    };
    for n in 1..=3 {
        let attempt = grant(&store, id, "m1", "c1").await.expect("it is wanted again");
        assert_eq!(
            store.finish(attempt, "c2", None, &trouble).await.unwrap(),
            Finished::NotOurs
        );
        assert_eq!(
            store.finish(attempt, "c1", None, &trouble).await.unwrap(),
            Finished::Recorded
        );
        assert_eq!(
            store.finish(attempt, "c1", None, &trouble).await.unwrap(),
            Finished::Evidence
        );
        pauses_with(&store, id, i64::from(n == 3)).await;
    }
    assert_eq!(only_outcome(&store).await, json!("lost"));
    assert_eq!(
        count(&store, "select count(*) from boots").await,
        0,
        "trouble is no boot"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_report_counts_while_its_job_has_no_outcome() {
    let store = store().await;
    let id = bisection(&store, &["m1"]).await;
    build(&store, id, "m1", GOOD, &[want(GOOD, "m1", 0)]).await;
    let first = grant(&store, id, "m1", "c1").await.unwrap();
    let gone = Ending::Gone {
        what: "nothing was heard".into(),
    };
    assert_eq!(
        store.finish(first, "c1", None, &gone).await.unwrap(),
        Finished::Recorded
    );
    sqlx::query("update jobs set not_before = now()")
        .execute(&store.pool)
        .await
        .unwrap();
    let second = grant(&store, id, "m1", "c1").await.unwrap();

    // The machine comes back with the first one's report, while the second attempt runs.
    let report = json!({"measured": {}});
    assert_eq!(
        store
            .finish(first, "c1", Some(&report), &measured(GOOD, 40.0))
            .await
            .unwrap(),
        Finished::Recorded
    );
    assert!(
        store.renew(second, "c1").await.unwrap().unwrap().cancel_asked,
        "the second one is of no use now"
    );
    assert_eq!(
        store
            .finish(second, "c1", Some(&report), &measured(GOOD, 41.0))
            .await
            .unwrap(),
        Finished::Evidence
    );
    assert_eq!(count(&store, "select count(*) from observations").await, 1);
    assert_eq!(count(&store, "select count(*) from samples").await, 1);
    assert_eq!(
        store
            .finish(first, "c1", Some(&report), &measured(GOOD, 42.0))
            .await
            .unwrap(),
        Finished::Evidence
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_boot_is_a_fact_at_once_and_the_planner_may_ask_for_another() {
    let store = store().await;
    let id = bisection(&store, &["m1"]).await;
    let report = json!({"boot_failed": {}});
    build(&store, id, "m1", BAD, &[want(BAD, "m1", 0)]).await;
    for replicate in 0..3 {
        assert!(decide(&store, id, &[want(BAD, "m1", replicate)], &[]).await || replicate == 0);
        let attempt = grant(&store, id, "m1", "c1")
            .await
            .expect("what the planner asks for is done");
        let failed = Ending::BootFailed {
            boot: boot(BAD, Some(json!({"fault": "panic", "excerpt": "…"}))),
        };
        let finished = store.finish(attempt, "c1", Some(&report), &failed).await.unwrap();
        assert_eq!(finished, Finished::Recorded);
        let sql = "select count(*) from observations where outcome = '\"boot_failed\"'";
        assert_eq!(count(&store, sql).await, i64::from(replicate) + 1);
        assert_eq!(
            grant(&store, id, "m1", "c1").await,
            None,
            "nothing is tried behind the planner's back"
        );
    }
    let sql = "select count(distinct number) from boots where outcome = 'failed'";
    assert_eq!(count(&store, sql).await, 3, "boots of an image are numbered");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kernel_that_does_not_build_settles_every_job_that_waits_for_it() {
    let store = store().await;
    let id = bisection(&store, &["m1", "m2"]).await;
    let wants = [want(BAD, "m1", 0), want(BAD, "m2", 0), want(GOOD, "m1", 0)];
    assert!(decide(&store, id, &wants, &[wish(BAD, true)]).await);
    let attempt = grant(&store, id, "m1", "c1").await.unwrap();
    let failed = Ending::BuildFailed {
        failure: json!({"class": "compile", "excerpt": "error"}),
        wall_s: 2.0,
    };
    store
        .finish(attempt, "c1", Some(&json!({"build_failed": {}})), &failed)
        .await
        .unwrap();
    let before = version(&store, id).await;
    assert!(store.settle_unbuildable().await.unwrap());
    assert!(!store.settle_unbuildable().await.unwrap(), "once");
    let sql = "select count(*) from observations where outcome = '\"build_failed\"'";
    assert_eq!(count(&store, sql).await, 2);
    assert_eq!(version(&store, id).await, before + 1);
    assert_eq!(
        count(&store, "select count(*) from jobs where state = 'wanted'").await,
        1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn three_lost_jobs_in_a_row_set_a_machine_aside() {
    let store = store().await;
    let id = bisection(&store, &["m1", "m2"]).await;
    let wants: Vec<Want> = (0..3).map(|n| want(GOOD, "m1", n)).collect();
    build(&store, id, "m2", GOOD, &wants).await;
    for lost in 1..=3 {
        sqlx::query("update jobs set failures = 2")
            .execute(&store.pool)
            .await
            .unwrap();
        let attempt = grant(&store, id, "m1", "c1").await.expect("still trusted");
        store
            .finish(
                attempt,
                "c1",
                None,
                &Ending::Trouble {
                    what: "no answer".into(),
                },
            )
            .await
            .unwrap();
        let aside = store.quarantine_losers().await.unwrap();
        assert_eq!(aside.len(), usize::from(lost == 3));
        assert!(decide(&store, id, &wants, &[]).await);
    }
    assert!(store.free_machines(&["m1".into()]).await.unwrap().is_empty());
    let m1 = store
        .machines_for(id)
        .await
        .unwrap()
        .into_iter()
        .find(|m| m.name == "m1")
        .unwrap();
    assert!(m1.quarantined);
    assert!(store.unquarantine("m1").await.unwrap());
    assert_eq!(store.free_machines(&["m1".into()]).await.unwrap(), ["m1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_are_kept_once_whatever_bytes_they_hold() {
    let store = store().await;
    let id = bisection(&store, &["m1"]).await;
    build(&store, id, "m1", GOOD, &[want(GOOD, "m1", 0)]).await;
    let attempt = grant(&store, id, "m1", "c1").await.unwrap();
    let line = |n: i64, text: &str| LogLine {
        n,
        kind: LogKind::Console,
        text: text.into(),
        at: chrono::Utc::now(),
    };
    store
        .keep_lines(attempt, &[line(0, "a\0b"), line(1, "c")], 2, Some("boot"))
        .await
        .unwrap();
    store
        .keep_lines(attempt, &[line(1, "c"), line(2, "d")], 3, None)
        .await
        .unwrap();
    let texts: Vec<String> = sqlx::query_scalar("select text from logs order by n")
        .fetch_all(&store.pool)
        .await
        .unwrap();
    assert_eq!(texts, ["a\u{fffd}b", "c", "d"]);
    assert_eq!(store.carried(attempt).await.unwrap().unwrap().seen_lines, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_database_goes_on_above_the_token_a_machine_has_seen() {
    let store = store().await;
    let id = bisection(&store, &["m1"]).await;
    build(&store, id, "m1", GOOD, &[want(GOOD, "m1", 0)]).await;
    store.store_probe("m1", &json!({"token": 41})).await.unwrap();
    grant(&store, id, "m1", "c1")
        .await
        .expect("the job's image is there");
    assert_eq!(count(&store, "select max(token) from attempts").await, 42);
    store.store_probe("m1", &json!({"token": 7})).await.unwrap();
    assert_eq!(
        count(&store, "select token from machines where name = 'm1'").await,
        42,
        "it never falls"
    );
}
