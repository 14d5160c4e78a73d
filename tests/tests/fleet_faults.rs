//! What happens to an order when the way to its machine is broken: nothing but a delay.

use coordinator::config::{Address, Machine};
use coordinator::fleet::{FleetError, Limits, Supplies};
use lab::orders::{Carried, Gate, PATIENCE, assert_whole, by_ssh, fleet_of, fresh_id, impatient, measure};
use lab::sshd::{Network, Sshd};
use lab::wait;
use protocol::Report;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

#[tokio::test]
async fn a_killed_connection_costs_no_line_and_no_run() {
    let sshd = Sshd::start();
    let fleet = fleet_of(vec![by_ssh("m", &sshd)], impatient());
    let mut gate = Gate::new(sshd.folder());
    let mut carried = Carried::start(&fleet, "m", gate.order(12), Supplies::default(), 0);
    for round in 1..=3 {
        gate.open(2);
        carried.runs(4 * round - 2).await;
        assert!(sshd.kill_sessions() > 0);
        // The machine works on while nobody listens.
        gate.open(2);
        wait::until_async("the runs of an unheard agent", PATIENCE, async || {
            (gate.runs_done() >= 4 * round).then_some(())
        })
        .await;
        carried.runs(4 * round).await;
    }
    let (report, lines) = carried.end().await;
    assert!(matches!(report, Report::Measured(_)), "{report:?}");
    assert_whole(&lines, 0);
    assert_eq!(gate.runs_done(), 12, "no run was repeated");
}

#[tokio::test]
async fn a_frozen_sshd_is_noticed_by_its_silence() {
    let sshd = Sshd::start();
    let fleet = fleet_of(vec![by_ssh("m", &sshd)], impatient());
    let mut gate = Gate::new(sshd.folder());
    let mut carried = Carried::start(&fleet, "m", gate.order(3), Supplies::default(), 0);
    gate.open(1);
    carried.runs(1).await;
    assert!(sshd.freeze_sessions() > 0);
    let began = Instant::now();
    gate.open(2);
    let (report, lines) = carried.end().await;
    println!("frozen sshd: noticed and gone on after {:?}", began.elapsed());
    assert!(
        began.elapsed() >= Duration::from_secs(6),
        "it was not the silence that was noticed"
    );
    assert!(matches!(report, Report::Measured(_)), "{report:?}");
    assert_whole(&lines, 0);
}

#[tokio::test]
async fn a_healthy_and_quiet_machine_is_not_given_up() {
    let sshd = Sshd::start();
    let fleet = fleet_of(vec![by_ssh("m", &sshd)], impatient());
    let mut gate = Gate::new(sshd.folder());
    let mut carried = Carried::start(&fleet, "m", gate.order(2), Supplies::default(), 0);
    gate.open(1);
    carried.runs(1).await;
    let before = sshd.log().matches("Accepted publickey").count();
    // Twice the silence limit, in which nothing comes but heartbeats: quiet is what is tested.
    let quiet = tokio::time::timeout(Duration::from_secs(14), carried.lines.recv()).await;
    assert!(quiet.is_err(), "{quiet:?}");
    gate.open(1);
    let (_, lines) = carried.end().await;
    assert_whole(&lines, 0);
    assert_eq!(
        sshd.log().matches("Accepted publickey").count(),
        before,
        "it never connected again"
    );
}

#[test]
fn a_cut_line_is_noticed_and_followed_again_when_it_is_whole() {
    let network = Network::start(1);
    network.inside(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let sshd = &network.sshds[0];
            let fleet = fleet_of(vec![by_ssh("m", sshd)], impatient());
            let mut gate = Gate::new(sshd.folder());
            let mut carried = Carried::start(&fleet, "m", gate.order(6), Supplies::default(), 0);
            gate.open(2);
            carried.runs(2).await;
            let began = Instant::now();
            network.cut(0);
            gate.open(2);
            wait::until_async("a new connection to be tried", PATIENCE, async || {
                is_connecting(22).then_some(())
            })
            .await;
            println!("cut line: noticed after {:?}", began.elapsed());
            assert_eq!(gate.runs_done(), 4, "the machine worked on");
            network.heal();
            gate.open(2);
            let (report, lines) = carried.end().await;
            assert!(matches!(report, Report::Measured(_)), "{report:?}");
            assert_whole(&lines, 0);
            assert_eq!(gate.runs_done(), 6);
        });
    });
}

/// Whether some socket of this network waits for the other side to answer its first packet.
fn is_connecting(port: u16) -> bool {
    let table = std::fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
    let remote = format!(":{port:04X}");
    table.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.len() > 3 && words[2].ends_with(&remote) && words[3] == "02"
    })
}

#[tokio::test]
async fn a_machine_out_of_reach_is_given_up_in_time_and_by_name() {
    let sshd = Sshd::start();
    let gone = by_ssh("gone", &sshd);
    let Address::Ssh { user, host, .. } = gone.address.clone() else {
        unreachable!()
    };
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let gone = Machine {
        address: Address::Ssh {
            user,
            host,
            port: free,
        },
        ..gone
    };
    let limits = Limits {
        give_up: Duration::from_secs(1),
        back_off: Duration::from_millis(50),
        ..Limits::default()
    };
    let fleet = fleet_of(vec![gone], limits);
    let order = measure(&fresh_id(), 1, vec!["true".into()], 1, BTreeMap::new());
    let error = fleet
        .carry("gone", &order, Supplies::default(), 0, mpsc::channel(1).0)
        .await
        .unwrap_err();
    assert!(matches!(error, FleetError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("`gone` cannot be reached"), "{error}");
}
