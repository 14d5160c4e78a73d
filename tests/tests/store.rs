//! The store against real Postgres: what must hold when several coordinators do the same at the same moment.

use bisect::{CommitId, Kernel};
use coordinator::case::{Definition, kernel_key};
use coordinator::plan_json::kernel_to_json;
use coordinator::store::attempts::{Grant, LogKind, LogLine, Target};
use coordinator::store::bisections::Ruling;
use coordinator::store::builds::Wish;
use coordinator::store::facts::{BootFact, Ending, Finished, NewImage, Sample};
use coordinator::store::jobs::Want;
use coordinator::store::machines::Configured;
use coordinator::store::record::Decision;
use coordinator::store::{CancelOutcome, Channel, Recipient, Store, Submission, Submitted};
use lab::postgres::Postgres;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use uuid::Uuid;

const GOOD: &str = "1111111111111111111111111111111111111111";
const BAD: &str = "2222222222222222222222222222222222222222";

async fn store() -> Store {
    Store::connect(&Postgres::shared().database()).await.unwrap()
}

fn submission(machines: &[&str]) -> Submission {
    Submission {
        id: Uuid::now_v7(),
        tree: "linux".into(),
        good_rev: "v1".into(),
        bad_rev: "v2".into(),
        good_commit: GOOD.into(),
        bad_commit: BAD.into(),
        first_parent: false,
        case: Definition::of("case", &json!({"workload": "w"})),
        recipe: Definition::of("recipe", &json!({"kind": "command"})),
        policy: Definition::of("policy", &json!({"confidence": 0.99})),
        machines: machines.iter().map(|m| m.to_string()).collect(),
        priority: 0,
        recipients: Vec::new(),
        request: json!({}),
    }
}

fn configured(name: &str, settings: &str) -> Configured {
    Configured {
        name: name.into(),
        lane: Definition::of("boot", &json!({"settings": settings})),
    }
}

fn kernel(commit: &str) -> Kernel {
    Kernel::plain(CommitId::new(commit))
}

fn want(commit: &str, machine: &str, replicate: i32) -> Want {
    let kernel = kernel(commit);
    Want {
        kernel_key: kernel_key(&kernel),
        kernel: kernel_to_json(&kernel),
        machine: machine.into(),
        lane: 1,
        replicate,
        runs: 3,
    }
}

fn wish(commit: &str, urgent: bool) -> Wish {
    let kernel = kernel(commit);
    Wish {
        kernel_key: kernel_key(&kernel),
        kernel: kernel_to_json(&kernel),
        urgent,
    }
}

async fn version(store: &Store, id: Uuid) -> i64 {
    sqlx::query_scalar("select record_version from bisections where id = $1")
        .bind(id)
        .fetch_one(&store.pool)
        .await
        .unwrap()
}

async fn count(store: &Store, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(&store.pool).await.unwrap()
}

/// A decision at the record's present version.
async fn decide(store: &Store, id: Uuid, wants: &[Want], wishes: &[Wish]) -> bool {
    let version = version(store, id).await;
    let ruling = Ruling::GoesOn { wake_s: None };
    let decision = Decision {
        bisection: id,
        version,
        planner_version: 1,
        plan: json!({}),
        ruling,
        wants,
        wishes,
    };
    store.decide(&decision).await.unwrap()
}

/// A bisection on these machines, with the compiler fixed.
async fn bisection(store: &Store, machines: &[&str]) -> Uuid {
    let all: Vec<Configured> = machines.iter().map(|m| configured(m, "a")).collect();
    store.sync_machines(&all).await.unwrap();
    let submission = submission(machines);
    let Submitted::Created(id, _) = store.submit(&submission).await.unwrap() else {
        panic!("it is the first")
    };
    store.fix_compiler(id, "").await.unwrap();
    id
}

fn image(name: &str) -> NewImage {
    NewImage {
        id: coordinator::case::sha256_hex(name.as_bytes()),
        kind: "userspace",
        arch: "x86_64".into(),
        digest: name.into(),
        build_id: String::new(),
        release: String::new(),
        manifest: json!({"compiler": "cc"}),
    }
}

fn built(name: &str) -> Ending {
    Ending::Built {
        image: image(name),
        wall_s: 1.0,
        config_changes: Vec::new(),
    }
}

fn boot(name: &str, fault: Option<Value>) -> BootFact {
    BootFact {
        image_id: image(name).id,
        fault,
        ..BootFact::default()
    }
}

fn measured(name: &str, value: f64) -> Ending {
    Ending::Measured {
        boot: boot(name, None),
        sample: Sample {
            parser_version: 1,
            values: json!({"m": [value]}),
            raw: json!([]),
        },
        outcome: json!({"measured": {"values": [value]}}),
        first_run_s: 0.5,
        said: format!("{value}"),
    }
}

/// Grants whatever `machine` could do for the bisection: a ready job, else a build.
async fn grant(store: &Store, id: Uuid, machine: &str, carrier: &str) -> Option<Uuid> {
    let job = store
        .job_claims(machine)
        .await
        .unwrap()
        .first()
        .map(|c| Target::Job(c.job_id));
    let build = store
        .build_claims()
        .await
        .unwrap()
        .first()
        .map(|c| Target::Build(c.build_id));
    let grant = Grant {
        machine,
        target: job.or(build)?,
        bisection: id,
        deadline_s: 60.0,
        carrier,
    };
    store.grant(&grant).await.unwrap()
}

/// Has `commit` built, so that its jobs can be granted.
async fn build(store: &Store, id: Uuid, machine: &str, commit: &str, wants: &[Want]) {
    assert!(decide(store, id, wants, &[wish(commit, true)]).await);
    let attempt = grant(store, id, machine, "c1")
        .await
        .expect("the build is granted");
    let done = store
        .finish(attempt, "c1", Some(&json!({"built": {}})), &built(commit))
        .await
        .unwrap();
    assert_eq!(done, Finished::Recorded);
    assert!(decide(store, id, wants, &[]).await);
}

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
        let observations = count(&store, "select count(*) from observations").await;
        assert_eq!(observations, i64::from(n == 3));
        assert!(grant(&store, id, "m1", "c1").await.is_none(), "it pauses");
        sqlx::query("update jobs set not_before = now()")
            .execute(&store.pool)
            .await
            .unwrap();
    }
    let outcome: Value = sqlx::query_scalar("select outcome from observations")
        .fetch_one(&store.pool)
        .await
        .unwrap();
    assert_eq!(outcome, json!("lost"));
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
async fn one_failed_boot_is_an_accident_and_an_image_that_booted_gets_more_tries() {
    let store = store().await;
    let id = bisection(&store, &["m1"]).await;
    let fails = |name| Ending::BootFailed {
        boot: boot(name, Some(json!({"fault": "panic", "excerpt": "…"}))),
    };
    let report = json!({"boot_failed": {}});

    // Never booted: two in a row.
    build(&store, id, "m1", BAD, &[want(BAD, "m1", 0)]).await;
    for observed in [0, 1] {
        let attempt = grant(&store, id, "m1", "c1").await.expect("one more try");
        store
            .finish(attempt, "c1", Some(&report), &fails(BAD))
            .await
            .unwrap();
        assert_eq!(count(&store, "select count(*) from observations").await, observed);
    }

    // Has booted: four in a row.
    build(&store, id, "m1", GOOD, &[want(GOOD, "m1", 0)]).await;
    let attempt = grant(&store, id, "m1", "c1").await.unwrap();
    store
        .finish(attempt, "c1", Some(&report), &measured(GOOD, 40.0))
        .await
        .unwrap();
    assert!(decide(&store, id, &[want(GOOD, "m1", 1)], &[]).await);
    for observed in [2, 2, 2, 3] {
        let attempt = grant(&store, id, "m1", "c1").await.expect("one more try");
        store
            .finish(attempt, "c1", Some(&report), &fails(GOOD))
            .await
            .unwrap();
        assert_eq!(count(&store, "select count(*) from observations").await, observed);
    }
    assert_eq!(
        count(&store, "select count(*) from boots where outcome = 'failed'").await,
        6,
        "each is a fact"
    );
    assert_eq!(
        count(&store, "select max(number)::bigint from boots").await,
        4,
        "boots of an image are numbered"
    );
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
async fn the_bell_rings_across_connections_and_outlives_them() {
    let url = Postgres::shared().database();
    let (here, there) = (
        Store::connect(&url).await.unwrap(),
        Store::connect(&url).await.unwrap(),
    );
    let limit = std::time::Duration::from_secs(20);
    let mut bell = here.listen();
    // The first ring says that it listens now.
    tokio::time::timeout(limit, bell.rung())
        .await
        .expect("it listens");
    there.notify().await.unwrap();
    tokio::time::timeout(limit, bell.rung())
        .await
        .expect("a ring from elsewhere");
    sqlx::query("select pg_terminate_backend(pid) from pg_stat_activity where query ilike 'listen%'")
        .execute(&there.pool)
        .await
        .unwrap();
    tokio::time::timeout(limit, bell.rung())
        .await
        .expect("the end of a gap rings by itself");
    there.notify().await.unwrap();
    tokio::time::timeout(limit, bell.rung())
        .await
        .expect("and it listens again");
}
