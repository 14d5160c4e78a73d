//! What a boot is held against before its number is looked at.

use super::{Passes, order};
use crate::config::{Disturbed, Machine};
use crate::store::attempts::Carried;
use crate::surroundings::Earlier;

pub struct Beside {
    /// Boots of the same search on this machine and lane.
    pub earlier: Vec<Earlier>,
    pub limits: Disturbed,
}

pub async fn gather(p: &Passes, carried: &Carried, machine: &Machine) -> anyhow::Result<Beside> {
    let rows = p.store.earlier_environments(carried.id).await?;
    // What this version cannot read says nothing.
    let read = |(image_id, facts)| {
        let facts = order::read("environment", &facts).ok()?;
        Some(Earlier { image_id, facts })
    };
    Ok(Beside {
        earlier: rows.into_iter().filter_map(read).collect(),
        limits: machine.disturbed.clone(),
    })
}
