//! An order's life: detached, idempotent, fenced, followed from anywhere, ended exactly once.

use crate::agent::*;
use protocol::*;

/// Announces itself, then stays until killed, with a child in a session of its own.
fn endless(id: &str, token: u64) -> Order {
    let mut bench = bench(shell("sleep 1000"));
    bench.setup = vec![shell("setsid sleep 2000 >/dev/null 2>&1 & echo begun")];
    bench.run_limit_s = 1000;
    order(id, token, none(bench))
}

fn begun(event: &Event) -> bool {
    matches!(
        event,
        Event::Phase {
            phase: Phase::Bench,
            ..
        }
    )
}

/// Processes that carry the order's mark.
fn marked(id: &str) -> Vec<i32> {
    let mark = format!("{}={id}", runner::process::MARK);
    let living = |pid: i32| runner::process::stat(pid).is_some_and(|s| s.state != 'Z');
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|e| e.unwrap().file_name().to_str()?.parse().ok())
        .filter(|pid| {
            let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environ.split(|b| *b == 0).any(|v| v == mark.as_bytes()) && living(*pid)
        })
        .collect()
}

#[test]
fn an_order_is_started_once_and_followed_from_any_line() {
    let agent = Agent::new();
    let order = order(
        "life-once",
        1,
        none(bench(words(&["{agent}", "micro", "getpid", "--loops", "10"]))),
    );
    assert!(agent.start(&order).fresh);
    assert!(!agent.start(&order).fresh);
    let all = agent.follow(&order.id, 0);
    assert!(matches!(report(&all), Report::Measured(_)), "{all:?}");
    assert_eq!(
        all.iter().map(|l| l.n).collect::<Vec<_>>(),
        (0..all.len() as u64).collect::<Vec<_>>()
    );
    assert!(!agent.start(&order).fresh, "an ended order is known, too");
    assert_eq!(agent.follow(&order.id, 1), all[1..]);
    // Lines that a crash of the machine took are not waited for.
    assert_eq!(agent.follow(&order.id, 1000), all[all.len() - 1..]);
    assert!(agent.call(&["erase", &order.id], b"").status.success());
    assert!(agent.call(&["erase", &order.id], b"").status.success());
    assert_eq!(agent.refusal(&["follow", &order.id], b""), "unknown_order");
    assert!(agent.ask::<Probe>(&["probe"], b"").orders.is_empty());
}

#[test]
fn old_tokens_are_refused_and_a_busy_machine_says_so() {
    let agent = Agent::new();
    let running = endless("life-fence", 7);
    agent.start(&running);
    let text = |o: &Order| serde_json::to_vec(o).unwrap();
    assert_eq!(
        agent.refusal(&["start"], &text(&endless("life-late", 6))),
        "old_token"
    );
    assert_eq!(
        agent.ask::<Probe>(&["probe"], b"").token,
        7,
        "what a new daemon has to go on above"
    );
    assert_eq!(
        agent.refusal(&["start"], &text(&endless("life-other", 8))),
        "busy"
    );
    assert_eq!(agent.refusal(&["erase", "life-fence"], b""), "busy");
    let newer = Order {
        version: VERSION + 1,
        ..endless("life-new", 9)
    };
    assert_eq!(agent.refusal(&["start"], &text(&newer)), "version");
    assert_eq!(agent.refusal(&["start"], b"{}"), "corrupt");
    assert_eq!(
        agent.refusal(&["start"], &text(&endless("../escape", 9))),
        "corrupt"
    );
}

#[test]
fn cancel_ends_everything_the_order_started() {
    let agent = Agent::new();
    let order = endless("life-cancel", 1);
    agent.start(&order);
    agent.follow_until(&order.id, begun);
    assert!(
        marked(&order.id).len() >= 3,
        "worker, sleep and the one in its own session"
    );
    assert!(agent.ask::<Cancelled>(&["cancel", &order.id], b"").was_running);
    assert_eq!(marked(&order.id), Vec::<i32>::new());
    assert_eq!(*report(&agent.follow(&order.id, 0)), Report::Cancelled);
    assert!(!agent.root().join("spool").join(&order.id).join("work").exists());
    assert!(!agent.ask::<Cancelled>(&["cancel", &order.id], b"").was_running);
    assert!(
        !agent
            .ask::<Cancelled>(&["cancel", "never-known"], b"")
            .was_running
    );
}

#[test]
fn a_killed_worker_is_noticed_by_whoever_follows_and_reported_once() {
    let agent = Agent::new();
    let order = endless("life-kill", 1);
    agent.start(&order);
    agent.follow_until(&order.id, begun);
    // Followers wait at the time of death; both must see the same, single report.
    let followers: Vec<_> = (0..3)
        .map(|_| {
            agent
                .command(&["follow", &order.id])
                .stdin(std::process::Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    runner::process::kill(agent.worker(&order.id).pid);
    for follower in followers {
        let seen = lines(&follower.wait_with_output().unwrap().stdout);
        assert!(
            matches!(report(&seen), Report::Trouble { what } if what.contains("killed")),
            "{seen:?}"
        );
    }
    let state = &agent.ask::<Probe>(&["probe"], b"").orders[0];
    assert_eq!(
        *state,
        OrderState {
            id: order.id.clone(),
            running: false
        }
    );
    let reports = agent
        .follow(&order.id, 0)
        .into_iter()
        .filter(|l| matches!(l.event, Event::Report(_)));
    assert_eq!(reports.count(), 1);
    assert_eq!(marked(&order.id), Vec::<i32>::new());
}

#[test]
fn a_restart_of_the_machine_is_told_from_a_killed_worker_and_a_torn_line_is_dropped() {
    let agent = Agent::new();
    let order = endless("life-boot", 1);
    agent.start(&order);
    agent.follow_until(&order.id, begun);
    assert!(agent.ask::<Cancelled>(&["cancel", &order.id], b"").was_running);
    // As the disk would look after a power cut.
    let spool = agent.root().join("spool").join(&order.id);
    let events = std::fs::read_to_string(spool.join("events.ndjson")).unwrap();
    let (kept, last) = events.trim_end().rsplit_once('\n').unwrap();
    std::fs::write(
        spool.join("events.ndjson"),
        format!("{kept}\n{}", &last[..last.len() / 2]),
    )
    .unwrap();
    let mut worker = agent.worker(&order.id);
    worker.boot_id = "00000000-0000-0000-0000-000000000000".into();
    std::fs::write(spool.join("worker.json"), serde_json::to_vec(&worker).unwrap()).unwrap();
    let seen = agent.follow(&order.id, 0);
    assert!(
        matches!(report(&seen), Report::Trouble { what } if what.contains("restarted")),
        "{seen:?}"
    );
    assert_eq!(seen.len(), kept.lines().count() + 1);
}

#[test]
fn the_deadline_ends_an_order_without_anybody_watching() {
    let agent = Agent::new();
    let order = Order {
        deadline_s: 1,
        ..endless("life-deadline", 1)
    };
    agent.start(&order);
    let seen = agent.follow(&order.id, 0);
    assert!(
        matches!(report(&seen), Report::Trouble { what } if what.contains("deadline")),
        "{seen:?}"
    );
    assert_eq!(marked(&order.id), Vec::<i32>::new());
}

#[test]
fn start_survives_the_death_of_its_caller_before_the_worker_began() {
    let agent = Agent::new();
    let order = order("life-accepted", 1, none(bench(words(&["true"]))));
    let root = runner::root::Root::open(&agent.root()).unwrap();
    runner::spool::Spool::create(&root, &order).unwrap();
    assert_eq!(
        agent.ask::<Probe>(&["probe"], b"").orders,
        [OrderState {
            id: order.id.clone(),
            running: false
        }]
    );
    assert!(agent.start(&order).fresh);
    assert!(matches!(report(&agent.follow(&order.id, 0)), Report::Measured(_)));
}
