//! Boots an image, or takes the machine as it is, and runs a benchmark there.

pub mod here;

use crate::trouble::Trouble;
use crate::worker::Ctx;
use protocol::{Boot, Measure, Report};

pub fn measure(ctx: &Ctx, order: &Measure) -> Result<Report, Trouble> {
    match &order.boot {
        Boot::None => here::measure(ctx, order),
        Boot::Qemu(_) => Err(Trouble("no qemu yet".into())),
    }
}
