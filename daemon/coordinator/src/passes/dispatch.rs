//! Gives machines to those who want them, takes up attempts that nobody carries, and starts the carriers.
//!
//! Who gets a machine is `bisect::assign`'s affair; that it is given once, the store's.

use super::{Passes, admit, carry, order};
use crate::case::{Case, RecipeDef};
use crate::config::{Lane, Machine, Role};
use crate::store::attempts::{Grant, Target};
use anyhow::Context;
use bisect::assign::{self, Claim};
use serde_json::Value;
use std::collections::BTreeMap;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Something a machine could do now, for one bisection.
struct Offer {
    claim: Claim<Uuid>,
    target: Target,
    deadline_s: f64,
}

pub async fn dispatch_once(
    p: &Passes,
    carriers: &mut JoinSet<()>,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    while carriers.try_join_next().is_some() {}
    let mut machines: Vec<&Machine> = p.config.machines.values().collect();
    // Machines that only build go first, so that those which measure are kept free for it.
    machines.sort_by_key(|m| (m.roles.contains(&Role::Measure), m.name.clone()));
    let names: Vec<String> = machines.iter().map(|m| m.name.clone()).collect();
    for attempt in p.store.adopt(&p.instance, &names).await? {
        tracing::info!(%attempt, "taking up an attempt that nobody carries");
        carriers.spawn(carry::carry(p.clone(), attempt, stop.clone()));
    }
    for name in p.store.free_machines(&names).await? {
        let Some(machine) = p.config.machines.get(&name) else {
            continue;
        };
        let of_machine = || format!("machine {name}");
        let granted = match admit::next(p, machine).await.with_context(of_machine)? {
            Ok(()) => give(p, machine).await.with_context(of_machine)?,
            Err(trial) => trial,
        };
        if let Some(attempt) = granted {
            carriers.spawn(carry::carry(p.clone(), attempt, stop.clone()));
        }
    }
    Ok(())
}

/// Grants the machine, if anybody wants it.
async fn give(p: &Passes, machine: &Machine) -> anyhow::Result<Option<Uuid>> {
    let mut offers = offers(p, machine).await?;
    let by_id = |offers: &[Offer]| assign::grant(&offers.iter().map(|o| o.claim.clone()).collect::<Vec<_>>());
    while let Some(bisection) = by_id(&offers) {
        let Some(at) = offers.iter().position(|o| o.claim.id == bisection) else {
            break;
        };
        let offer = offers.swap_remove(at);
        let grant = Grant {
            machine: &machine.name,
            target: offer.target,
            bisection,
            deadline_s: offer.deadline_s,
            carrier: &p.instance,
        };
        if let Some(attempt) = p.store.grant(&grant).await? {
            return Ok(Some(attempt));
        }
    }
    Ok(None)
}

/// One offer a bisection: its next job whose image is there, else a build that a job of it waits for. Building
/// ahead only where nobody waits for the machine itself.
async fn offers(p: &Passes, machine: &Machine) -> anyhow::Result<Vec<Offer>> {
    let mut offers: BTreeMap<Uuid, Offer> = BTreeMap::new();
    if machine.roles.contains(&Role::Measure) {
        for job in p.store.job_claims(&machine.name).await? {
            let case: Case = order::read("case", &job.case)?;
            let lane: Lane = order::read("lane", &job.lane)?;
            let runs = u32::try_from(job.runs)?;
            let offer = Offer {
                claim: Claim {
                    id: job.bisection_id,
                    priority: job.priority,
                    waited_s: job.waited_s,
                },
                target: Target::Job(job.job_id),
                deadline_s: order::measure_deadline_s(machine, &lane, &case, runs),
            };
            offers.insert(job.bisection_id, offer);
        }
    }
    if !machine.roles.contains(&Role::Build) {
        return Ok(offers.into_values().collect());
    }
    let claims = p.store.build_claims().await?;
    if claims.is_empty() {
        return Ok(offers.into_values().collect());
    }
    let probe = p
        .store
        .probes(std::slice::from_ref(&machine.name))
        .await?
        .pop()
        .map(|(_, probe)| probe);
    let mut ahead = Vec::new();
    for build in claims {
        let recipe: RecipeDef = order::read("recipe", &build.recipe)?;
        if !order::builds_for(machine, &recipe) || !has_compiler(probe.as_ref(), &recipe, &build.cc_digest) {
            continue;
        }
        let offer = Offer {
            claim: Claim {
                id: build.bisection_id,
                priority: build.priority,
                waited_s: build.waited_s,
            },
            target: Target::Build(build.build_id),
            deadline_s: order::build_deadline_s(machine, &recipe),
        };
        match build.urgency {
            0 => ahead.push(offer),
            _ => drop(offers.entry(build.bisection_id).or_insert(offer)),
        }
    }
    if offers.is_empty() && !p.store.wanted_on(&machine.name).await? {
        for offer in ahead {
            offers.entry(offer.claim.id).or_insert(offer);
        }
    }
    Ok(offers.into_values().collect())
}

/// One compiler builds a whole search; a builder with another one is passed over.
fn has_compiler(probe: Option<&Value>, recipe: &RecipeDef, cc_digest: &str) -> bool {
    match recipe {
        RecipeDef::Command { .. } => true,
        RecipeDef::Kbuild { .. } if cc_digest.is_empty() => true,
        RecipeDef::Kbuild { cc, .. } => {
            probe.is_some_and(|probe| probe["compiler_digests"][cc.as_str()].as_str() == Some(cc_digest))
        }
    }
}
