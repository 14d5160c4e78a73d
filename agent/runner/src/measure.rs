//! Boots an image in a guest or on the machine itself, or takes the machine as it is, and runs a benchmark there.

pub mod accel;
pub mod console;
pub mod cpio;
pub mod frames;
pub mod here;
pub mod machine;
pub mod qemu;
pub mod ticks;

use crate::journey;
use crate::trouble::Trouble;
use crate::worker::Ctx;
use protocol::{Boot, Commands, Kexec, Measure, Oneshot, Report};

pub fn measure(ctx: &Ctx, order: &Measure) -> Result<Report, Trouble> {
    match &order.boot {
        Boot::None => here::measure(ctx, order),
        Boot::Qemu(boot) => qemu::measure(ctx, order, boot),
        Boot::Kexec(Kexec { trip, .. })
        | Boot::Oneshot(Oneshot { trip, .. })
        | Boot::Commands(Commands { trip, .. }) => journey::depart(ctx, order, trip),
    }
}
