//! What must not change the answer: a daemon killed at any moment, a link that is cut, a second coordinator.
//!
//! The moments are drawn from a seed, which is printed: `PB_TEST_SEED=N` draws the same again.

use ::kernel_tree::random::Random;
use lab::daemon::{Daemon, Setup, assert_found};
use lab::kernel_tree::{self, KernelTree};
use lab::sshd::Network;
use lab::user_tree::UserTree;
use lab::wait::until_async;
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Long enough for a machine that builds kernels at the same time.
const CONCLUSION_LIMIT: Duration = Duration::from_secs(1800);
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

fn request(tree: &UserTree, machines: Value, seed: u32) -> Value {
    json!({
        "tree": "steps", "good": tree.commits[0], "bad": tree.commits[COMMITS - 1], "workload": "steps",
        "metric": "ops", "min_effect_pct": 3.0, "machine": machines,
        "seed": seed,
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

/// Counts by SQL, in the database that the test brought.
struct Counts(sqlx::PgPool);

impl Counts {
    async fn of(setup: &Setup) -> Counts {
        let url = setup
            .database_url
            .as_deref()
            .expect("these tests bring their database");
        Counts(sqlx::PgPool::connect(url).await.expect("the test's own database"))
    }

    async fn count(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql)
            .fetch_one(&self.0)
            .await
            .unwrap_or_else(|e| panic!("{sql}: {e}"))
    }

    /// Every finished job has one observation, and no job or build had a second attempt.
    async fn assert_nothing_twice(&self) {
        let wrong = "select count(*) from jobs j where state = 'done' and \
                     (select count(*) from observations o where o.job_id = j.id) <> 1";
        assert_eq!(
            self.count(wrong).await,
            0,
            "finished jobs without exactly one observation"
        );
        let again =
            "select count(*) from (select 1 from attempts group by job_id, build_id having count(*) > 1) a";
        let again = self.count(again).await;
        assert_eq!(
            again, 0,
            "jobs or builds that were tried twice, though no machine was lost"
        );
        assert!(self.count("select count(*) from jobs where state = 'done'").await > 0);
    }

    /// The benchmark ran as often as the jobs say.
    async fn assert_ran(&self, ran: usize) {
        let finished = "select coalesce(sum(runs), 0)::bigint from jobs where state = 'done'";
        let tried = "select coalesce(sum(runs), 0)::bigint from jobs j \
                     where exists (select from attempts a where a.job_id = j.id)";
        let (finished, tried) = (self.count(finished).await, self.count(tried).await);
        let said = format!("{ran} runs, {finished} in finished jobs, {tried} in tried ones");
        assert!((finished..=tried).contains(&(ran as i64)), "{said}");
    }
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
        runtime.block_on(async {
            let mut random = Random::new(seed());
            let folder = tempfile::tempdir().unwrap();
            let tree = UserTree::new(folder.path(), COMMITS, random.range(3, COMMITS - 3), 1.5);
            let mut setup = setup(folder.path(), &tree);
            setup
                .machines
                .push(ssh_machine(&network, folder.path(), "method = \"none\""));
            let ask = |nth| request(&tree, json!("box"), nth);
            killed_and_cut_off(
                &network,
                &setup,
                &mut random,
                ask,
                &tree.first_bad,
                Pace::Clock { gap_ms: 6000 },
            )
            .await;
            let counts = Counts::of(&setup).await;
            counts.assert_nothing_twice().await;
            counts.assert_ran(tree.runs()).await;
        });
    });
}

/// The same with real kernels in guests on the far machine: minutes, so it is for the slow tier.
#[test]
#[ignore = "builds and boots kernels for some ten minutes: tests/run lab"]
fn killed_twenty_times_and_cut_off_five_times_real_kernels_conclude_the_same() {
    let network = Network::start(1);
    network.inside(|| {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
        runtime.block_on(async {
            let seed = seed();
            let mut random = Random::new(seed);
            let tree = KernelTree::new(seed);
            let folder = tempfile::tempdir().unwrap();
            let mut setup = Setup::new(folder.path());
            setup.trees.push(("linux".into(), tree.repository.clone(), kernel_tree::recipe(0)));
            let workload = concat!(env!("CARGO_MANIFEST_DIR"), "/../config/workloads/pipe.toml");
            setup.workloads.push(std::fs::read_to_string(workload).expect("the workload is shipped"));
            let boot = "method = \"qemu\", accel = \"tcg\", icount = true, boot_limit_s = 300, silence_limit_s = 200";
            setup.machines.push(ssh_machine(&network, folder.path(), boot));
            let ask = |nth| {
                json!({
                    "tree": "linux", "good": "v1.0", "bad": "v1.1", "workload": "pipe", "seed": nth,
                    "metric": "perf_bench.usecs_per_op", "min_effect_pct": 2.0, "machine": "box",
                    "costs": { "build_s": 7, "boot_s": 2, "run_s": 0.3 },
                })
            };
            killed_and_cut_off(&network, &setup, &mut random, ask, tree.first_bad(), Pace::Attempts { free: 5, gap_ms: 4000 }).await;
            Counts::of(&setup).await.assert_nothing_twice().await;
        });
    });
}

/// What the moments of faults are counted from.
#[derive(Clone, Copy)]
enum Pace {
    /// The fault before.
    Clock { gap_ms: usize },
    /// The start of another build or boot, once `free` faults have hit the first, long build.
    Attempts { free: usize, gap_ms: usize },
}

/// Until more builds and boots were begun than `seen`, or the search has ended; how many there are then.
async fn another_attempt(daemon: &Daemon, id: &str, seen: usize) -> usize {
    until_async("another build or boot", CONCLUSION_LIMIT, async || {
        let attempts = daemon.get(&format!("/api/v1/bisections/{id}/attempts")).await;
        let count = attempts["attempts"].as_array().map_or(0, Vec::len);
        let open = daemon.get(&format!("/api/v1/bisections/{id}")).await["state"] == "open";
        (count > seen || !open).then_some(count)
    })
    .await
}

/// Faults at random moments until all are spent; then the search must end as if nothing had been.
async fn killed_and_cut_off(
    network: &Network,
    setup: &Setup,
    random: &mut Random,
    ask: impl Fn(u32) -> Value,
    first_bad: &str,
    pace: Pace,
) {
    let mut daemon = setup.start(0).await;
    let mut id = daemon.submit(&ask(0)).await;
    let mut faults: Vec<bool> = (0..KILLS + CUTS).map(|n| n < KILLS).collect();
    random.shuffle(&mut faults);
    let mut searches = 1;
    let mut seen = 0;
    for (nth, kill) in faults.into_iter().enumerate() {
        let gap_ms = match pace {
            Pace::Clock { gap_ms } => gap_ms,
            Pace::Attempts { free, gap_ms } => {
                if nth >= free {
                    seen = another_attempt(&daemon, &id, seen).await;
                }
                gap_ms
            }
        };
        // Every other moment comes soon, while leases and connections of the last life still stand; the others leave
        // time to take up the work and go on.
        let ms = if nth % 2 == 0 {
            random.range(20, 1500)
        } else {
            random.range(gap_ms / 3, gap_ms)
        };
        if ended_within(&daemon, &id, Duration::from_millis(ms as u64)).await {
            // Each fault has to hit a search under way: a short one is followed by another.
            assert_found(&daemon.concluded(&id, CONCLUSION_LIMIT).await, first_bad);
            id = daemon.submit(&ask(searches)).await;
            searches += 1;
            seen = 0;
        }
        if kill {
            daemon.kill();
            daemon.start().await;
        } else {
            network.cut(0);
            let ms = random.range(200, 6000) as u64;
            // What was reported before the cut may still conclude.
            let _ = ended_within(&daemon, &id, Duration::from_millis(ms)).await;
            network.heal();
        }
    }
    println!("{searches} searches, {KILLS} kills, {CUTS} cuts");
    assert_found(&daemon.concluded(&id, CONCLUSION_LIMIT).await, first_bad);
    assert!(daemon.stop().success(), "{}", daemon.log_tail());
}

/// The network's first host as the machine `box`.
fn ssh_machine(network: &Network, folder: &Path, boot: &str) -> String {
    let sshd = &network.sshds[0];
    format!(
        "name = \"box\"\naddress = {:?}\nwork_dir = {:?}\nboot = {{ {boot} }}\n\
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
    let body = request(&tree, json!(["one", "other"]), 0);
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
    assert_found(&found, &tree.first_bad);
    let counts = Counts::of(&setup).await;
    counts.assert_nothing_twice().await;
    counts.assert_ran(tree.runs()).await;
    assert!(second.stop().success(), "{}", second.log_tail());
}
