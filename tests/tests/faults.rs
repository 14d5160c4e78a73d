//! What must not change the answer: a daemon killed at any moment, a link that is cut, a second coordinator.
//!
//! The moments are drawn from a seed, which is printed: `PB_TEST_SEED=N` draws the same again.

use kernel_tree::random::Random;
use lab::daemon::{Daemon, Setup};
use lab::sshd::Network;
use lab::user_tree::UserTree;
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Long enough for a machine that builds kernels at the same time.
const CONCLUSION_LIMIT: Duration = Duration::from_secs(900);
const COMMITS: usize = 34;
const KILLS: usize = 20;
const CUTS: usize = 5;

fn seed() -> u64 {
    let given = std::env::var("PB_TEST_SEED").ok().and_then(|s| s.parse().ok());
    let now = || {
        SystemTime::UNIX_EPOCH
            .elapsed()
            .map_or(1, |d| d.as_nanos() as u64 % 1_000_000)
    };
    let seed = given.unwrap_or_else(now);
    println!("PB_TEST_SEED={seed}");
    seed
}

fn request(tree: &UserTree, machines: Value) -> Value {
    json!({
        "tree": "steps", "good": tree.commits[0], "bad": tree.commits[COMMITS - 1], "workload": "steps",
        "metric": "ops", "min_effect_pct": 3.0, "machine": machines,
        "costs": { "build_s": 1, "boot_s": 1, "run_s": 1 },
    })
}

fn setup(folder: &Path, tree: &UserTree) -> Setup {
    let mut setup = Setup::new(folder);
    setup
        .trees
        .push(("steps".into(), tree.repository.clone(), UserTree::recipe().into()));
    setup.workloads.push(UserTree::workload().into());
    setup
}

fn assert_found(found: &Value, tree: &UserTree) {
    let conclusion = &found["conclusion"];
    assert_eq!(conclusion["status"], "culprit_found", "{conclusion:#}");
    assert_eq!(conclusion["first_bad"], json!([tree.first_bad]), "{conclusion:#}");
}

/// Every finished job has one observation, no job or build had a second attempt, and the benchmark ran as often as that
/// says.
async fn assert_nothing_twice(setup: &Setup, tree: &UserTree) {
    let url = setup
        .database_url
        .as_deref()
        .expect("these tests bring their database");
    let pool = sqlx::PgPool::connect(url).await.expect("the test's own database");
    let count = async |what: &'static str, sql: &'static str| {
        let n: i64 = sqlx::query_scalar(sql)
            .fetch_one(&pool)
            .await
            .unwrap_or_else(|e| panic!("{what}: {e}"));
        n
    };
    let wrong = count(
        "observations per job",
        "select count(*) from jobs j where state = 'done' and \
         (select count(*) from observations o where o.job_id = j.id) <> 1",
    );
    assert_eq!(wrong.await, 0, "finished jobs without exactly one observation");
    let again = count(
        "attempts per job or build",
        "select count(*) from (select 1 from attempts group by job_id, build_id having count(*) > 1) a",
    );
    assert_eq!(
        again.await,
        0,
        "jobs or builds that were tried twice, though no machine was lost"
    );
    let finished = count(
        "runs of done jobs",
        "select coalesce(sum(runs), 0)::bigint from jobs where state = 'done'",
    )
    .await;
    let tried = count(
        "runs of tried jobs",
        "select coalesce(sum(runs), 0)::bigint from jobs j where exists (select from attempts a where a.job_id = j.id)",
    );
    let (ran, tried) = (tree.runs() as i64, tried.await);
    assert!(
        (finished..=tried).contains(&ran),
        "{ran} runs, {finished} in finished jobs, {tried} in tried ones"
    );
    assert!(finished > 0);
}

/// Lets the search go on for `limit`, or until it has ended; whether it has.
async fn ended_within(daemon: &Daemon, id: &str, limit: Duration) -> bool {
    tokio::time::timeout(limit, daemon.concluded(id, CONCLUSION_LIMIT))
        .await
        .is_ok()
}

#[test]
fn killed_twenty_times_and_cut_off_five_times_it_concludes_the_same() {
    let network = Network::start(1);
    network.inside(|| {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
        runtime.block_on(killed_and_cut_off(&network));
    });
}

async fn killed_and_cut_off(network: &Network) {
    let mut random = Random::new(seed());
    let folder = tempfile::tempdir().unwrap();
    let tree = UserTree::new(folder.path(), COMMITS, random.range(3, COMMITS - 3), 0.4);
    let mut setup = setup(folder.path(), &tree);
    setup.machines.push(ssh_machine(network, folder.path()));
    let mut daemon = setup.start(0).await;
    let id = daemon.submit(&request(&tree, json!("box"))).await;

    let mut faults: Vec<bool> = (0..KILLS + CUTS).map(|n| n < KILLS).collect();
    random.shuffle(&mut faults);
    for (nth, kill) in faults.into_iter().enumerate() {
        // Every other moment comes soon, while leases and connections of the last life still stand; the others leave
        // time to take up the work and go on.
        let ms = if nth % 2 == 0 {
            random.range(20, 1500)
        } else {
            random.range(3000, 8000)
        };
        let early = ended_within(&daemon, &id, Duration::from_millis(ms as u64)).await;
        assert!(
            !early,
            "concluded before fault {nth}: make the search longer, else this shows nothing"
        );
        if kill {
            daemon.kill();
            daemon.start().await;
        } else {
            network.cut(0);
            let ms = random.range(200, 6000) as u64;
            assert!(
                !ended_within(&daemon, &id, Duration::from_millis(ms)).await,
                "concluded over a cut link"
            );
            network.heal();
        }
    }
    let found = daemon.concluded(&id, CONCLUSION_LIMIT).await;
    assert_found(&found, &tree);
    assert_nothing_twice(&setup, &tree).await;
    assert!(daemon.stop().success(), "{}", daemon.log_tail());
}

/// The network's first host as the machine `box`, which needs no boot.
fn ssh_machine(network: &Network, folder: &Path) -> String {
    let sshd = &network.sshds[0];
    format!(
        "name = \"box\"\naddress = {:?}\nwork_dir = {:?}\nboot = {{ method = \"none\" }}\n\
         [ssh]\nhost_key = {:?}\nkey_file = {:?}\n",
        sshd.address(),
        folder.join("agent"),
        sshd.host_key(),
        sshd.key_file()
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn two_coordinators_on_one_postgres_do_the_work_of_one() {
    let mut random = Random::new(seed());
    let folder = tempfile::tempdir().unwrap();
    let tree = UserTree::new(folder.path(), COMMITS, random.range(3, COMMITS - 3), 0.1);
    let mut setup = setup(folder.path(), &tree);
    setup.local_machine("one", "method = \"none\"");
    setup.local_machine("other", "method = \"none\"");
    let mut first = setup.start(0).await;
    let mut second = setup.start(1).await;
    let body = request(&tree, json!(["one", "other"]));
    let id = first.submit(&body).await;
    let (status, joined) = second.post("/api/v1/bisections", &body).await;
    assert_eq!(
        (status, joined["id"].as_str()),
        (200, Some(id.as_str())),
        "an equal request joins: {joined:#}"
    );
    // The one that was asked dies for good; the other one has to finish what it carried.
    assert!(!ended_within(&first, &id, Duration::from_millis(random.range(500, 4000) as u64)).await);
    first.kill();
    let found = second.concluded(&id, CONCLUSION_LIMIT).await;
    assert_found(&found, &tree);
    assert_nothing_twice(&setup, &tree).await;
    assert!(second.stop().success(), "{}", second.log_tail());
}
