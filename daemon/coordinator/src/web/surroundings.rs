//! The surroundings of a search's boots: what is the same in all, what differs, what was dropped and why.

use crate::store::surroundings::{DropView, Surrounded};
use crate::surroundings::{Difference, Dropped, Facts, differences, dropped_more_often};
use crate::web::WebState;
use crate::web::api::find;
use crate::web::error::Problem;
use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use utoipa::ToSchema;
use uuid::Uuid;

/// One machine in one lane.
pub struct Lane {
    pub machine: String,
    pub lane: i32,
    pub boots: usize,
    pub same: Facts,
    pub differing: Vec<Difference>,
}

pub struct Surroundings {
    pub lanes: Vec<Lane>,
    pub drops: Vec<DropView>,
    /// Kernels whose boots are dropped more often than the others'.
    pub findings: Vec<Dropped>,
}

pub async fn read(state: &WebState, bisection: Uuid) -> Result<Surroundings, Problem> {
    let boots = state.store.view_surroundings(bisection).await?;
    let drops = state.store.view_drops(bisection).await?;
    Ok(gather(&boots, drops))
}

fn gather(boots: &[Surrounded], drops: Vec<DropView>) -> Surroundings {
    let mut by_lane: BTreeMap<(&str, i32), Vec<Facts>> = BTreeMap::new();
    for boot in boots {
        let facts = Facts::deserialize(&boot.environment).unwrap_or_default();
        by_lane.entry((&boot.machine, boot.lane)).or_default().push(facts);
    }
    let lane = |((machine, lane), facts): ((&str, i32), Vec<Facts>)| {
        let differing = differences(facts.iter());
        let names: BTreeSet<&String> = differing.iter().map(|d| &d.fact).collect();
        let mut same = facts.first().cloned().unwrap_or_default();
        same.retain(|name, value| !names.contains(name) && facts.iter().all(|f| f.get(name) == Some(value)));
        Lane {
            machine: machine.to_string(),
            lane,
            boots: facts.len(),
            same,
            differing,
        }
    };
    let mut kernels: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for boot in boots {
        kernels.entry(&boot.kernel_key).or_default().1 += 1;
    }
    for drop in &drops {
        let (dropped, all) = kernels.entry(&drop.kernel_key).or_default();
        *dropped += 1;
        *all += 1;
    }
    let kernels: Vec<Dropped> = kernels
        .into_iter()
        .map(|(kernel, (dropped, boots))| Dropped {
            kernel: kernel.to_string(),
            dropped,
            boots,
        })
        .collect();
    Surroundings {
        lanes: by_lane.into_iter().map(lane).collect(),
        findings: dropped_more_often(&kernels).into_iter().cloned().collect(),
        drops,
    }
}

/// What the boots of a bisection were surrounded by.
#[derive(Serialize, ToSchema)]
pub struct Environment {
    pub machines: Vec<MachineEnvironment>,
    /// Dropped before their numbers were looked at, the newest first.
    pub dropped: Vec<DroppedBoot>,
    /// Kernels whose boots are dropped more often than chance explains.
    pub dropped_more_often: Vec<DroppedKernel>,
}

/// One machine in one lane.
#[derive(Serialize, ToSchema)]
pub struct MachineEnvironment {
    pub machine: String,
    pub lane: i32,
    pub boots: usize,
    /// Facts that are the same in all of its boots.
    pub same: BTreeMap<String, String>,
    pub differing: Vec<DifferingFact>,
}

#[derive(Serialize, ToSchema)]
pub struct DifferingFact {
    pub fact: String,
    /// Value to the number of boots that have it.
    pub boots: BTreeMap<String, usize>,
}

#[derive(Serialize, ToSchema)]
pub struct DroppedBoot {
    #[schema(value_type = Object)]
    pub kernel: Value,
    pub machine: String,
    pub lane: i32,
    pub replicate: i32,
    /// `environment` or `disturbed`.
    pub reason: String,
    pub what: String,
    #[schema(value_type = Object)]
    pub environment: Value,
    pub attempt_id: Uuid,
    pub dropped_at: DateTime<Utc>,
}

#[derive(Serialize, ToSchema)]
pub struct DroppedKernel {
    pub kernel: String,
    pub dropped: u64,
    pub boots: u64,
}

/// Show what its boots were surrounded by
#[utoipa::path(get, path = "/api/v1/bisections/{name}/environment", tag = "bisections",
    operation_id = "show_environment", params(("name" = String, Path, description = "Its number or its id")),
    responses((status = 200, description = "All of it", body = Environment)))]
pub async fn environment(
    State(state): State<WebState>,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    let view = find(&state, &name).await?;
    Ok(Json(told(read(&state, view.id).await?)).into_response())
}

fn told(all: Surroundings) -> Environment {
    let differing = |d: Difference| DifferingFact {
        fact: d.fact,
        boots: d.values,
    };
    let machine = |l: Lane| MachineEnvironment {
        machine: l.machine,
        lane: l.lane,
        boots: l.boots,
        same: l.same,
        differing: l.differing.into_iter().map(differing).collect(),
    };
    let boot = |d: DropView| DroppedBoot {
        kernel: d.kernel,
        machine: d.machine,
        lane: d.lane,
        replicate: d.replicate,
        reason: d.reason,
        what: d.what,
        environment: d.environment,
        attempt_id: d.attempt_id,
        dropped_at: d.dropped_at,
    };
    let kernel = |f: Dropped| DroppedKernel {
        kernel: f.kernel,
        dropped: f.dropped,
        boots: f.boots,
    };
    Environment {
        machines: all.lanes.into_iter().map(machine).collect(),
        dropped: all.drops.into_iter().map(boot).collect(),
        dropped_more_often: all.findings.into_iter().map(kernel).collect(),
    }
}

/// The same as rows of a page.
pub struct SurroundingsRows {
    /// Fact, then each value with its boots.
    pub differing: Vec<(String, String)>,
    pub dropped: Vec<(String, String)>,
    pub findings: Vec<String>,
    /// Fact and value, of all boots.
    pub same: Vec<(String, String)>,
}

/// Dropped boots that are shown; the API has them all.
const DROPS_SHOWN: usize = 20;

pub fn rows(all: &Surroundings) -> SurroundingsRows {
    let many = all.lanes.len() > 1;
    let named = |l: &Lane, fact: &str| match many {
        true => format!("{} #{}: {fact}", l.machine, l.lane),
        false => fact.to_string(),
    };
    let values = |d: &Difference| {
        let one = |(value, boots): (&String, &usize)| format!("{value} ({boots})");
        d.values.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    let short = |kernel: &str| kernel.chars().take(12).collect::<String>();
    SurroundingsRows {
        differing: (all.lanes.iter())
            .flat_map(|l| l.differing.iter().map(move |d| (named(l, &d.fact), values(d))))
            .collect(),
        dropped: (all.drops.iter().take(DROPS_SHOWN))
            .map(|d| {
                (
                    format!("{} on {}", short(&d.kernel_key), d.machine),
                    d.what.clone(),
                )
            })
            .collect(),
        findings: (all.findings.iter())
            .map(|f| {
                format!(
                    "{}: {} of {} boots were dropped, more than chance explains; it may disturb itself",
                    short(&f.kernel),
                    f.dropped,
                    f.boots
                )
            })
            .collect(),
        same: (all.lanes.iter())
            .flat_map(|l| {
                l.same
                    .iter()
                    .map(move |(fact, value)| (named(l, fact), value.clone()))
            })
            .collect(),
    }
}
