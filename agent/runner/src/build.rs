//! Makes an image out of a tree: checkout, configure, compile, collect.

pub mod collect;
pub mod config;
pub mod digest;
pub mod failure;
pub mod kbuild;
pub mod plain;
pub mod toolchain;

use crate::root::lock;
use crate::trees;
use crate::trouble::{Because, Trouble};
use crate::worker::Ctx;
use protocol::{Build, Phase, Recipe, Report};
use std::fs;
use std::time::{Duration, Instant};

/// A first checkout of a kernel writes a gigabyte.
const CHECKOUT_LIMIT_S: u32 = 1800;

/// One build's time limit, over all its commands.
pub struct Limit {
    pub start: Instant,
    pub limit: Duration,
}

impl Limit {
    pub fn left(&self) -> Duration {
        self.limit.saturating_sub(self.start.elapsed())
    }

    pub fn wall_s(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }
}

pub fn build(ctx: &Ctx, order: &Build) -> Result<Report, Trouble> {
    let slot = ctx.root.slot(&order.slot);
    fs::create_dir_all(&slot).because(|| format!("cannot create {}", slot.display()))?;
    let _held = lock(&slot.join("lock"))?;
    ctx.phase(Phase::Checkout, CHECKOUT_LIMIT_S);
    let start = Instant::now();
    trees::checkout(&ctx.root, &order.tree, &slot)?;
    ctx.log(format!("checkout took {:.2} s\n", start.elapsed().as_secs_f64()));
    let limit = Limit {
        start: Instant::now(),
        limit: Duration::from_secs(order.limit_s.into()),
    };
    match &order.recipe {
        Recipe::Kbuild(recipe) => kbuild::build(ctx, order, recipe, &slot, &limit),
        Recipe::Command(recipe) => plain::build(ctx, order, recipe, &slot, &limit),
    }
}
