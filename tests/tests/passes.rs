//! The passes with everything real but the kernel: daemon, agent, store, git; the tree is a script.

use lab::daemon::{Daemon, Setup};
use lab::user_tree::UserTree;
use serde_json::{Value, json};
use sqlx::PgPool;
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(240);

fn setup(folder: &Path, tree: &UserTree, machines: &[&str]) -> Setup {
    let mut setup = Setup::new(folder);
    setup
        .trees
        .push(("steps".into(), tree.repository.clone(), UserTree::recipe().into()));
    setup.workloads.push(UserTree::workload().into());
    for machine in machines {
        let work_dir = folder.join("agents").join(machine);
        setup.machines.push(format!(
            "name = {machine:?}\naddress = \"local\"\npools = [\"lab\"]\nwork_dir = {work_dir:?}\n[boot]\nmethod = \"none\"\n"
        ));
    }
    setup
}

fn request(tree: &UserTree) -> Value {
    json!({
        "tree": "steps",
        "good": tree.commits[0],
        "bad": tree.commits.last().unwrap(),
        "workload": "steps",
        "metric": "ops",
        "min_effect_pct": 5.0,
        "pool": "lab",
    })
}

async fn database(setup: &Setup) -> PgPool {
    PgPool::connect(setup.database_url.as_ref().unwrap())
        .await
        .unwrap()
}

async fn number(db: &PgPool, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(db).await.unwrap()
}

async fn found(daemon: &Daemon, id: &str, tree: &UserTree) {
    let ended = daemon.concluded(id, LIMIT).await;
    assert_eq!(ended["conclusion"]["status"], "culprit_found", "{ended:#}");
    assert_eq!(
        ended["conclusion"]["first_bad"],
        json!([tree.first_bad]),
        "{ended:#}"
    );
}

/// What must hold in every record, however many daemons made it.
async fn sound(db: &PgPool) {
    let finished_twice =
        "select count(*) from (select job_id from observations group by job_id having count(*) > 1) t";
    assert_eq!(number(db, finished_twice).await, 0);
    let run_again = "select count(*) from attempts a join observations o on o.job_id = a.job_id
                     where a.started_at > o.created_at";
    assert_eq!(number(db, run_again).await, 0, "no finished job is run again");
    assert_eq!(
        number(db, "select count(*) from attempts where state = 'held'").await,
        0
    );
    let built_twice = "select count(*) from (select build_id from attempts where ended_by = 'report' and build_id is not null
                       group by build_id having count(*) > 1) t";
    assert_eq!(number(db, built_twice).await, 0, "no kernel is built twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_gets_its_next_order_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let tree = UserTree::new(folder.path(), 40, 23, 0.05);
    let setup = setup(folder.path(), &tree, &["m1"]);
    let mut daemon = setup.start(0).await;
    let id = daemon.submit(&request(&tree)).await;
    found(&daemon, &id, &tree).await;
    let db = database(&setup).await;
    sound(&db).await;
    // From the end of an attempt in the record to the grant of the next one.
    let gaps: Vec<f64> = sqlx::query_scalar(
        "select extract(epoch from gap)::float8 from (
            select started_at - lag(ended_at) over (order by started_at) as gap from attempts) t
         where gap is not null order by 1",
    )
    .fetch_all(&db)
    .await
    .unwrap();
    let median = gaps[gaps.len() / 2];
    println!(
        "{} attempts; gap between them: median {:.0} ms, most {:.0} ms",
        gaps.len() + 1,
        median * 1e3,
        gaps.last().unwrap() * 1e3
    );
    // By the bell, that is, and not by the passes' own clock of two seconds; a tenth of this on an idle machine.
    assert!(median < 0.8, "{median}");
    assert!(daemon.stop().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_coordinators_do_the_work_of_one() {
    let folder = tempfile::tempdir().unwrap();
    let tree = UserTree::new(folder.path(), 30, 11, 0.05);
    let setup = setup(folder.path(), &tree, &["m1", "m2"]);
    let first = setup.start(0).await;
    let second = setup.start(1).await;
    let id = first.submit(&request(&tree)).await;
    found(&second, &id, &tree).await;
    let db = database(&setup).await;
    sound(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_bisection_leaves_its_machine_free_and_clean() {
    let folder = tempfile::tempdir().unwrap();
    let tree = UserTree::new(folder.path(), 10, 4, 30.0);
    let setup = setup(folder.path(), &tree, &["m1"]);
    let daemon = setup.start(0).await;
    let id = daemon.submit(&request(&tree)).await;
    let db = database(&setup).await;
    lab::wait::until_async("a benchmark to run", LIMIT, async || {
        let sql =
            "select count(*) from attempts where state = 'held' and job_id is not null and phase = 'bench'";
        (number(&db, sql).await == 1).then_some(())
    })
    .await;
    let (status, _) = daemon
        .post(&format!("/api/v1/bisections/{id}/cancel"), &json!({}))
        .await;
    assert!(status < 300, "{status}");
    lab::wait::until_async("the attempt to end", Duration::from_secs(20), async || {
        (number(&db, "select count(*) from attempts where state = 'held'").await == 0).then_some(())
    })
    .await;
    assert_eq!(
        number(&db, "select count(*) from attempts where ended_by = 'cancel'").await,
        1
    );
    assert_eq!(number(&db, "select count(*) from observations").await, 0);
    assert_eq!(
        number(&db, "select count(*) from builds where state = 'built'").await,
        1,
        "facts stay"
    );
}

/// Killed again and again at moments of no meaning; the record ends the same, and nothing is done twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_daemon_goes_on_where_it_was() {
    let seed = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .subsec_nanos();
    println!("seed {seed}");
    let mut state = u64::from(seed) | 1;
    // So many more spool lines and events until the next kill.
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        i64::try_from(1 + state % 9).unwrap()
    };
    let folder = tempfile::tempdir().unwrap();
    let tree = UserTree::new(folder.path(), 30, 17, 0.5);
    let setup = setup(folder.path(), &tree, &["m1"]);
    let mut daemon = setup.start(0).await;
    let id = daemon.submit(&request(&tree)).await;
    let db = database(&setup).await;
    let mut kills = 0;
    let mut seen = 0;
    while kills < 8 {
        seen += next();
        let over = lab::wait::until_async("the record to grow, or the end", LIMIT, async || {
            let ended = number(&db, "select count(*) from bisections where state <> 'open'").await == 1;
            let grown = number(
                &db,
                "select (select count(*) from logs) + (select count(*) from events)",
            )
            .await;
            (ended || grown >= seen).then_some(ended)
        })
        .await;
        if over {
            break;
        }
        daemon.kill();
        kills += 1;
        daemon.start().await;
    }
    found(&daemon, &id, &tree).await;
    println!("killed {kills} times");
    assert!(kills >= 4, "it was over too soon to say anything");
    sound(&db).await;
    assert_eq!(
        number(
            &db,
            "select count(*) from attempts where ended_by in ('trouble', 'gone')"
        )
        .await,
        0
    );
}
