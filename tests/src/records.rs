//! Rows for tests of the store: requests, wishes, endings, and the few steps that lead to a held attempt.

use crate::postgres::Postgres;
use bisect::{CommitId, Kernel};
use coordinator::case::{Definition, kernel_key};
use coordinator::plan_json::kernel_to_json;
use coordinator::store::attempts::{Grant, Target};
use coordinator::store::bisections::Ruling;
use coordinator::store::builds::Wish;
use coordinator::store::facts::{BootFact, Ending, Finished, NewImage, Sample};
use coordinator::store::jobs::Want;
use coordinator::store::machines::Configured;
use coordinator::store::record::Decision;
use coordinator::store::{Store, Submission, Submitted};
use serde_json::{Value, json};
use uuid::Uuid;

pub const GOOD: &str = "1111111111111111111111111111111111111111";
pub const BAD: &str = "2222222222222222222222222222222222222222";

pub async fn store() -> Store {
    Store::connect(&Postgres::shared().database()).await.unwrap()
}

pub fn submission(machines: &[&str]) -> Submission {
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

pub fn configured(name: &str, settings: &str) -> Configured {
    Configured {
        name: name.into(),
        lane: Definition::of("boot", &json!({"settings": settings})),
    }
}

pub fn kernel(commit: &str) -> Kernel {
    Kernel::plain(CommitId::new(commit))
}

pub fn want(commit: &str, machine: &str, replicate: i32) -> Want {
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

pub fn wish(commit: &str, urgent: bool) -> Wish {
    let kernel = kernel(commit);
    Wish {
        kernel_key: kernel_key(&kernel),
        kernel: kernel_to_json(&kernel),
        urgent,
    }
}

pub async fn version(store: &Store, id: Uuid) -> i64 {
    sqlx::query_scalar("select record_version from bisections where id = $1")
        .bind(id)
        .fetch_one(&store.pool)
        .await
        .unwrap()
}

pub async fn count(store: &Store, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(&store.pool).await.unwrap()
}

/// A decision at the record's present version.
pub async fn decide(store: &Store, id: Uuid, wants: &[Want], wishes: &[Wish]) -> bool {
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
pub async fn bisection(store: &Store, machines: &[&str]) -> Uuid {
    let all: Vec<Configured> = machines.iter().map(|m| configured(m, "a")).collect();
    store.sync_machines(&all).await.unwrap();
    let submission = submission(machines);
    let Submitted::Created(id, _) = store.submit(&submission).await.unwrap() else {
        panic!("it is the first")
    };
    store.fix_compiler(id, "").await.unwrap();
    id
}

pub fn image(name: &str) -> NewImage {
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

pub fn built(name: &str) -> Ending {
    Ending::Built {
        image: image(name),
        wall_s: 1.0,
        config_changes: Vec::new(),
    }
}

pub fn boot(name: &str, fault: Option<Value>) -> BootFact {
    BootFact {
        image_id: image(name).id,
        fault,
        ..BootFact::default()
    }
}

pub fn measured(name: &str, value: f64) -> Ending {
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
pub async fn grant(store: &Store, id: Uuid, machine: &str, carrier: &str) -> Option<Uuid> {
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
pub async fn build(store: &Store, id: Uuid, machine: &str, commit: &str, wants: &[Want]) {
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

/// The job of machine `m1` was tried, and waits; so many outcomes are told by now. Its waiting is then over.
pub async fn pauses_with(store: &Store, id: Uuid, observations: i64) {
    assert_eq!(
        count(store, "select count(*) from observations").await,
        observations
    );
    assert!(grant(store, id, "m1", "c1").await.is_none(), "it pauses");
    sqlx::query("update jobs set not_before = now()")
        .execute(&store.pool)
        .await
        .unwrap();
}

/// The outcome of the one observation that there is.
pub async fn only_outcome(store: &Store) -> Value {
    sqlx::query_scalar("select outcome from observations")
        .fetch_one(&store.pool)
        .await
        .unwrap()
}
