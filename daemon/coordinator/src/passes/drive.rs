//! Plans: for each open bisection with news, from its record to a decision, committed only if the record still
//! stands. The planning itself is `bisect::plan` and happens outside of any transaction.

use super::Passes;
use super::evidence::words;
use crate::case::{RecipeDef, kernel_key};
use crate::config::{self, Role};
use crate::plan_json as json;
use crate::store::bisections::{Open, Ruling};
use crate::store::builds::Wish;
use crate::store::jobs::{Want, short_key};
use crate::store::machines::{Seen, machine_id, machine_of};
use crate::store::record::{Decision, Overridden};
use anyhow::{Context, anyhow};
use bisect::{
    Conclusion, Costs, History, Image, Job, Kernel, Machine, MachineId, Observation, Override,
    OverrideVerdict, Plan, Planner, Record, Step,
};
use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard, PoisonError};
use tokio::task::JoinSet;
use uuid::Uuid;

/// Facts that planning itself brings to light (a wanted kernel that is known not to build) make it plan again
/// at once, but not for ever in one pass.
const ROUNDS: usize = 64;
/// Bisections whose planners are kept; some ten megabytes each on the largest ranges.
const MOST_PLANNERS: usize = 32;
/// Medians of fewer say less than the policy's own figures.
const COSTS_FROM: usize = 3;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Driven {
    Decided,
    /// Its record moved meanwhile, or it ended: the next look shows.
    Overtaken,
    /// Nothing can be said yet: no builder has told which compiler it has.
    Waits,
}

pub async fn drive_once(p: &Passes) -> anyhow::Result<()> {
    for _ in 0..ROUNDS {
        p.store.settle_unbuildable().await?;
        let mut tasks = JoinSet::new();
        for id in p.store.due().await? {
            let p = p.clone();
            tasks.spawn(async move { drive(&p, id).await.with_context(|| format!("bisection {id}")) });
        }
        let mut again = false;
        while let Some(driven) = tasks.join_next().await {
            match driven.map_err(anyhow::Error::from).flatten() {
                Ok(driven) => again |= driven != Driven::Waits,
                Err(error) => tracing::error!(pass = "drive", "{error:#}"),
            }
        }
        if !again {
            return Ok(());
        }
    }
    Ok(())
}

async fn drive(p: &Passes, id: Uuid) -> anyhow::Result<Driven> {
    let Some(mut open) = p.store.open(id).await? else {
        return Ok(Driven::Overtaken);
    };
    if open.cc_digest.is_none() {
        let Some(cc_digest) = compiler(p, &open).await? else {
            return Ok(Driven::Waits);
        };
        open.cc_digest = Some(p.store.fix_compiler(id, &cc_digest).await?);
    }
    let (good, bad) = (open.good_commit.as_str().into(), open.bad_commit.as_str().into());
    let history = p
        .trees
        .history(&open.tree, &good, &bad, open.first_parent)
        .await?;
    let record = record(p, &open, &history).await?;
    let policy = record.policy.clone();
    let plan = {
        let (p, history) = (p.clone(), Arc::clone(&history));
        tokio::task::spawn_blocking(move || remembering(&p, id, &history, &record))
            .await
            .context("the planner")?
    };
    let (wants, wishes) = wanted(&plan)?;
    let ruling = match &plan.step {
        Step::Run(_) | Step::Wait => Ruling::GoesOn {
            wake_s: wake_s(&open),
        },
        Step::Conclude(conclusion) => Ruling::Concluded {
            conclusion: json::conclusion_to_json(conclusion),
            said: said(conclusion),
            words: words(p, &open, &history, &policy, &plan, conclusion).await?,
        },
    };
    let decision = Decision {
        bisection: id,
        version: open.version,
        planner_version: bisect::PLANNER_VERSION,
        plan: json::plan_to_json(&plan),
        ruling,
        wants: &wants,
        wishes: &wishes,
    };
    match p.store.decide(&decision).await? {
        true => {
            tracing::info!(bisection = open.number, version = open.version, "{}", plan.reason);
            Ok(Driven::Decided)
        }
        false => Ok(Driven::Overtaken),
    }
}

/// Plans with what was worked out for this bisection's last plan. Taken out meanwhile: a plan that fails takes its
/// planner along.
fn remembering(p: &Passes, id: Uuid, history: &History, record: &Record) -> Plan {
    let mut planner = lock(p).remove(&id).unwrap_or_default();
    let plan = planner.plan(history, record);
    if !matches!(plan.step, Step::Conclude(_)) {
        let mut planners = lock(p);
        planners.insert(id, planner);
        // Ids rise with time: the oldest bisection is likely done for, by a cancellation or another coordinator.
        if planners.len() > MOST_PLANNERS {
            planners.pop_first();
        }
    }
    plan
}

fn lock(p: &Passes) -> MutexGuard<'_, BTreeMap<Uuid, Planner>> {
    p.planners.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The compiler that builds the whole search: the one that most builders have. `None` until one was asked.
async fn compiler(p: &Passes, open: &Open) -> anyhow::Result<Option<String>> {
    let recipe: RecipeDef = super::order::read("recipe", &open.recipe)?;
    let RecipeDef::Kbuild { cc, .. } = &recipe else {
        return Ok(Some(String::new()));
    };
    let builds =
        |m: &&config::Machine| m.roles.contains(&Role::Build) && super::order::builds_for(m, &recipe);
    let builders: Vec<String> = p
        .config
        .machines
        .values()
        .filter(builds)
        .map(|m| m.name.clone())
        .collect();
    let mut votes: BTreeMap<String, usize> = BTreeMap::new();
    for (_, probe) in p.store.probes(&builders).await? {
        let digest = probe["compiler_digests"][cc.as_str()]
            .as_str()
            .unwrap_or_default();
        *votes.entry(digest.to_string()).or_default() += 1;
    }
    let most = votes
        .into_iter()
        .max_by(|a, b| a.1.cmp(&b.1).then_with(|| b.0.cmp(&a.0)));
    Ok(most.map(|(digest, _)| digest))
}

async fn record(p: &Passes, open: &Open, history: &History) -> anyhow::Result<Record> {
    let mut policy =
        json::policy_from_json(&open.policy, "policy").map_err(|e| anyhow!("stored policy: {e}"))?;
    measured_costs(p, open, &mut policy.costs).await?;
    let kernel = |value: &serde_json::Value| {
        json::kernel_from_json(value, "kernel").map_err(|e| anyhow!("stored kernel: {e}"))
    };
    let mut machines = p.store.machines_for(open.id).await?;
    // Where all of them are quarantined the search waits for a person, and loses nothing.
    if machines.iter().any(|m| !m.quarantined) {
        machines.retain(|m| !m.quarantined);
    }
    let machine = |m: &Seen| Machine {
        id: MachineId::new(machine_id(&m.name, m.lane)),
        busy: m.busy || m.quarantined,
    };
    let machines: Vec<Machine> = machines.iter().map(machine).collect();
    let mut observations = Vec::new();
    for o in p.store.observations(open.id).await? {
        observations.push(Observation {
            kernel: kernel(&o.kernel)?,
            machine: MachineId::new(machine_id(&o.machine, o.lane)),
            replicate: o.replicate.cast_unsigned(),
            at_s: o.at_s,
            outcome: json::outcome_from_json(&o.outcome, "outcome")
                .map_err(|e| anyhow!("stored observation {}: {e}", o.id))?,
        });
    }
    let mut pending = Vec::new();
    for j in p.store.pending(open.id).await? {
        pending.push(Job {
            kernel: kernel(&j.kernel)?,
            machine: MachineId::new(machine_id(&j.machine, j.lane)),
            replicate: j.replicate.cast_unsigned(),
            runs: j.runs.cast_unsigned(),
        });
    }
    let mut images = Vec::new();
    for i in p.store.images_for(open.id).await? {
        let kernel = kernel(&i.kernel)?;
        if history.place(&kernel.commit).is_some() {
            images.push(Image {
                kernel,
                digest: i.digest,
            });
        }
    }
    let overrides = p
        .store
        .overrides(open.id)
        .await?
        .into_iter()
        .filter_map(overridden)
        .collect();
    // Who also measures for this search has no time to build ahead.
    let builds_only =
        |m: &&config::Machine| m.roles.contains(&Role::Build) && !open.machines.contains(&m.name);
    let builders = u32::try_from(p.config.machines.values().filter(builds_only).count())?;
    Ok(Record {
        policy,
        machines,
        builders,
        now_s: open.now_s,
        images,
        observations,
        pending,
        overrides,
    })
}

fn overridden(o: Overridden) -> Option<Override> {
    let verdict = match o.verdict.as_str() {
        "good" => OverrideVerdict::Good,
        "bad" => OverrideVerdict::Bad,
        "skip" => OverrideVerdict::Skip,
        _ => return None,
    };
    Some(Override {
        commit: o.commit.as_str().into(),
        verdict,
    })
}

/// What things really take here, once enough of them are known.
async fn measured_costs(p: &Passes, open: &Open, costs: &mut Costs) -> anyhow::Result<()> {
    let builds = p.store.build_seconds(open.id).await?;
    if builds.len() >= COSTS_FROM {
        costs.build_s = median(builds);
    }
    let spent: Vec<_> = p
        .store
        .spent(open.id)
        .await?
        .into_iter()
        .filter(|s| s.runs > 0)
        .collect();
    if spent.len() >= COSTS_FROM {
        costs.run_s = median(spent.iter().map(|s| s.runs_s / s.runs as f64).collect());
        costs.boot_s = median(spent.iter().map(|s| (s.attempt_s - s.runs_s).max(0.0)).collect());
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn wanted(plan: &Plan) -> anyhow::Result<(Vec<Want>, Vec<Wish>)> {
    let jobs = match &plan.step {
        Step::Run(jobs) => jobs.as_slice(),
        Step::Wait | Step::Conclude(_) => &[],
    };
    let mut wants = Vec::new();
    for job in jobs {
        let (machine, lane) = machine_of(job.machine.as_str())
            .with_context(|| format!("the plan names a machine `{}`, which is none", job.machine))?;
        wants.push(Want {
            kernel_key: kernel_key(&job.kernel),
            kernel: json::kernel_to_json(&job.kernel),
            machine: machine.to_string(),
            lane,
            replicate: i32::try_from(job.replicate)?,
            runs: i32::try_from(job.runs.clamp(1, 1000))?,
        });
    }
    let wish = |kernel: &Kernel, urgent| Wish {
        kernel_key: kernel_key(kernel),
        kernel: json::kernel_to_json(kernel),
        urgent,
    };
    let needed = jobs.iter().map(|job| wish(&job.kernel, true));
    let wishes = needed
        .chain(plan.build_ahead.iter().map(|kernel| wish(kernel, false)))
        .collect();
    Ok((wants, wishes))
}

/// The next limit of time, which comes without any fact.
fn wake_s(open: &Open) -> Option<f64> {
    let limits = &open.policy["limits"];
    let due = ["time_s", "ends_time_s"].map(|name| limits[name].as_f64());
    due.into_iter()
        .flatten()
        .filter(|s| *s > open.now_s)
        .min_by(f64::total_cmp)
}

fn said(conclusion: &Conclusion) -> String {
    let named: Vec<String> = conclusion
        .first_bad
        .iter()
        .map(|c| short_key(c.as_str()))
        .collect();
    let effect = conclusion
        .effect_pct
        .map(|pct| format!(" ({pct:+.1} %)"))
        .unwrap_or_default();
    match named.is_empty() {
        true => format!("{}{effect}", conclusion.status.word()),
        false => format!("{}: {}{effect}", conclusion.status.word(), named.join(", ")),
    }
}
