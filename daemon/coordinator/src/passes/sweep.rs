//! What is left over: machines to be asked what they are, reports that came late, spools, pins.

use super::{Passes, beside, carry, finish, order};
use crate::config::Machine;
use crate::store::attempts::Carried;
use protocol::{OrderState, Probe};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use uuid::Uuid;

/// Programs and compilers of a machine change by an administrator's hand; orders left there are rare.
const PROBE_AGAIN_S: f64 = 120.0;
/// A machine that does not answer holds up nobody but itself.
const PROBE_LIMIT: Duration = Duration::from_secs(90);
/// A late report is in its spool already.
const LATE_LIMIT: Duration = Duration::from_secs(120);
/// Pages of an ended bisection still show its commits; so long they stay pinned.
const PINNED_DAYS: i32 = 30;

pub async fn sweep_once(p: &Passes) -> anyhow::Result<()> {
    p.store.quarantine_losers().await?;
    probe_machines(p).await?;
    for tree in p.trees.names() {
        for bisection in p.store.to_unpin(&tree, PINNED_DAYS).await? {
            p.trees.unpin(&tree, bisection).await?;
            p.store.unpinned(bisection).await?;
        }
    }
    Ok(())
}

async fn probe_machines(p: &Passes) -> anyhow::Result<()> {
    let names: Vec<String> = p.config.machines.keys().cloned().collect();
    let mut asked = JoinSet::new();
    for machine in p.store.take_unprobed(&names, PROBE_AGAIN_S).await? {
        let p = p.clone();
        asked.spawn(async move {
            let probed = timeout(PROBE_LIMIT, probe_one(&p, &machine)).await;
            match probed.map_err(anyhow::Error::from).flatten() {
                Ok(()) => Ok(()),
                Err(error) => {
                    tracing::warn!(machine, "not probed: {error:#}");
                    p.store.probe_again(&machine).await
                }
            }
        });
    }
    while let Some(done) = asked.join_next().await {
        done??;
    }
    Ok(())
}

async fn probe_one(p: &Passes, machine: &str) -> anyhow::Result<()> {
    let probe = p.fleet.probe(machine).await?;
    p.store
        .store_probe(machine, &serde_json::to_value(&probe)?)
        .await?;
    tidy(p, machine, &probe).await
}

/// Orders on a machine whose attempts have ended here: those that run are stopped, reports that never arrived
/// are taken, spools erased. Orders that are no attempts of ours are left alone.
async fn tidy(p: &Passes, machine: &str, probe: &Probe) -> anyhow::Result<()> {
    let state = |id: &Uuid| {
        probe
            .orders
            .iter()
            .find(|o| o.id == id.to_string())
            .map(|o: &OrderState| o.running)
    };
    let ids: Vec<Uuid> = probe.orders.iter().filter_map(|o| o.id.parse().ok()).collect();
    for ended in p.store.ended_among(&ids).await? {
        let order = ended.id.to_string();
        if state(&ended.id) == Some(true) {
            tracing::info!(machine, order, "stopping an order whose attempt has ended");
            p.fleet.cancel(machine, &order).await?;
        }
        if !ended.reported {
            late(p, machine, ended.id).await?;
        }
        p.fleet.erase(machine, &order).await?;
    }
    Ok(())
}

/// A report that never arrived while its attempt was carried.
async fn late(p: &Passes, machine: &str, attempt: Uuid) -> anyhow::Result<()> {
    let Some(carried) = p.store.carried(attempt).await? else {
        return Ok(());
    };
    let Some(machine) = p.config.machines.get(machine) else {
        return Ok(());
    };
    let (order, _) = order::order(p, machine, &carried).await?;
    let (send, mut lines) = mpsc::channel(256);
    let from = carried.seen_lines.cast_unsigned();
    // The order is known there, so nothing is supplied and nothing started.
    let follow = p
        .fleet
        .carry(&machine.name, &order, Default::default(), from, send);
    let keep = carry::keep_all(p, &carried, &mut lines);
    let (report, kept) = timeout(LATE_LIMIT, async { tokio::join!(follow, keep) }).await?;
    kept?;
    take(p, machine, &carried, report?).await
}

async fn take(
    p: &Passes,
    machine: &Machine,
    carried: &Carried,
    report: protocol::Report,
) -> anyhow::Result<()> {
    if let protocol::Report::Built(_) = &report {
        return Ok(()); // Its files are not here; the build is wanted anew and is quick there.
    }
    let runs = carry::runs(p, carried.id).await?;
    let ending = finish::ending(
        carried,
        &report,
        &runs,
        &beside::gather(p, carried, machine).await?,
    )?;
    carry::end(p, carried, ending, Some(serde_json::to_value(&report)?)).await;
    Ok(())
}
