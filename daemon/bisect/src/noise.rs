//! Hypotheses about the noise: what a boot's value may do around its level.
//!
//! A cell is one combination of the boot-to-boot standard deviation `s`, the shape of its distribution, the
//! drift of the machine and the offset `kappa` that each image carries (layout), which more boots of one image
//! do not average out. The grids are the defaults of the reference study: `s` from 0.02 % to 33 % by factors of
//! 1.4; outliers 1 % or 8 % of boots; a second mode at 4, 7 or 12 `s`; a random walk of the level with variance
//! `q s^2` an hour, or a linear trend. The floor of `s` is also what keeps noise-free data (an emulator that
//! counts instructions) away from a division by zero.

use crate::bank;

/// One component of a boot's distribution: weight, offset in `s`, extra variance (absolute).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Part {
    pub weight: f64,
    pub offset: f64,
    pub extra: f64,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Drift {
    /// Variance of the level's walk, in `s^2` an hour.
    Walk(f64),
    /// A constant slope, unknown, `N(0, (5 % an hour)^2)`.
    Trend,
}

#[derive(Clone, Debug)]
pub struct Cell {
    pub s: f64,
    pub shape: usize,
    pub drift: Drift,
    pub kappa: f64,
    pub prior: f64,
}

/// The whole grid for one machine.
pub struct Cells {
    pub all: Vec<Cell>,
    pub shapes: Vec<(Vec<Part>, f64)>,
    /// Numbers of the cells whose filters have the same unknowns: see [`crate::bank::kind`].
    pub by_kind: [Vec<u16>; 3],
}

/// Standard deviation of the trend's prior, an hour.
pub const TREND_SD: f64 = 0.05;

const S_LEAST: f64 = 0.0002;
const S_RATIO: f64 = 1.4;
const S_POINTS: i32 = 23;
const DRIFTS: [(Drift, f64); 5] = [
    (Drift::Walk(0.0), 0.4),
    (Drift::Walk(0.05), 0.18),
    (Drift::Walk(0.3), 0.18),
    (Drift::Walk(1.5), 0.18),
    (Drift::Trend, 0.06),
];
const KAPPAS: [(f64, f64); 4] = [(0.0, 0.5), (0.002, 0.2), (0.006, 0.2), (0.018, 0.1)];
const MODE_SHARES: [f64; 3] = [0.2, 0.5, 0.8];
const MODE_OFFSETS: [f64; 3] = [4.0, 7.0, 12.0];
/// Standard deviation of an outlier, at least.
pub const OUTLIER_SD: f64 = 0.7;

/// Shapes 0 and 1 have one mode, the rest two.
fn shapes(sd: f64) -> Vec<(Vec<Part>, f64)> {
    let outlier = |weight| Part {
        weight,
        offset: 0.0,
        extra: sd * sd,
    };
    let main = |weight| Part {
        weight,
        offset: 0.0,
        extra: 0.0,
    };
    let mut all = vec![
        (vec![main(0.99), outlier(0.01)], 0.35),
        (vec![main(0.92), outlier(0.08)], 0.35),
    ];
    for share in MODE_SHARES {
        for offset in MODE_OFFSETS {
            let second = Part {
                weight: 0.99 * share,
                offset,
                extra: 0.0,
            };
            all.push((vec![main(0.99 * (1.0 - share)), second, outlier(0.01)], 0.3 / 9.0));
        }
    }
    all
}

/// Least share of a run's variance that boots add, so that runs without end do not make a boot exact.
const BETWEEN_LEAST: f64 = 0.02;

/// Variance of a boot of `runs` runs, where one of three has variance `three` and runs have `within`:
/// `tau^2 + sigma^2 / r` with `tau^2 = three - sigma^2 / 3`.
pub fn boot_variance(three: f64, within: f64, runs: u32) -> f64 {
    between(three, within) + within / f64::from(runs.max(1))
}

/// The part of it that more runs do not average out.
pub fn between(three: f64, within: f64) -> f64 {
    (three - within / 3.0).max(BETWEEN_LEAST * within)
}

fn sizes() -> impl Iterator<Item = f64> {
    (0..S_POINTS).map(|i| S_LEAST * libm::pow(S_RATIO, f64::from(i)))
}

/// The largest size of the grid that is not above `floor`, the least that the runs within boots allow.
pub fn least(floor: f64) -> f64 {
    sizes().filter(|s| *s <= floor).fold(S_LEAST, f64::max)
}

impl Cells {
    /// From the size `least` on; `outlier_sd` is how far outliers reach. Without `offsets` two images are compared as they are, whatever made them differ.
    pub fn new(least: f64, outlier_sd: f64, offsets: bool) -> Cells {
        let shapes = shapes(outlier_sd);
        let mut all = Vec::new();
        for s in sizes().filter(|s| *s >= least) {
            for (shape, (parts, weight)) in shapes.iter().enumerate() {
                for (kappa, kappa_weight) in kappas(s, parts.len() > 2 || !offsets) {
                    // A trend beside offsets of images would be told from them only by very many boots.
                    for (drift, drift_weight) in DRIFTS {
                        if drift != Drift::Trend || kappa <= 0.0 {
                            all.push(Cell {
                                s,
                                shape,
                                drift,
                                kappa,
                                prior: weight * drift_weight * kappa_weight,
                            });
                        }
                    }
                }
            }
        }
        let mut by_kind = [const { Vec::new() }; 3];
        for (cell, number) in all.iter().zip(0u16..) {
            by_kind[bank::kind(cell)].push(number);
        }
        Cells { all, shapes, by_kind }
    }
}

/// Offsets that can't be told from none beside so much boot noise are counted as none; two modes come without.
fn kappas(s: f64, none_only: bool) -> Vec<(f64, f64)> {
    if none_only {
        return vec![(0.0, 1.0)];
    }
    let (near, far): (Vec<_>, Vec<_>) = KAPPAS.into_iter().partition(|(kappa, _)| *kappa < 0.15 * s);
    let none: f64 = near.iter().map(|(_, w)| w).sum();
    let mut all: Vec<(f64, f64)> = if none > 0.0 { vec![(0.0, none)] } else { Vec::new() };
    all.extend(far.into_iter().filter(|(kappa, _)| *kappa > 0.0));
    all
}
