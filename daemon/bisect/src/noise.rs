//! Hypotheses about the noise: what a boot's value may do around its level.
//!
//! A cell is one combination of the boot-to-boot standard deviation `s`, the shape of its distribution, the
//! drift of the machine and the offset `kappa` that each image carries (layout), which more boots of one image
//! do not average out. The grids are the defaults of the reference study: `s` from 0.02 % to 33 % by factors of
//! 1.4; outliers 1 % or 8 % of boots; a second mode at 4, 7 or 12 `s`, whose share the change may alter ("switch":
//! then it moves nothing else); a random walk of the level with variance `q s^2` an hour, or a linear trend. The floor of `s` is also what keeps noise-free data (an emulator that
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
    /// The change is one of the modes' shares, not of the levels.
    pub switch: bool,
    pub prior: f64,
}

/// What a boot may do around its level, before the change and after it.
pub struct Shape {
    pub good: Vec<Part>,
    pub bad: Vec<Part>,
    pub weight: f64,
}

impl Shape {
    pub fn parts(&self, bad: bool) -> &[Part] {
        if bad { &self.bad } else { &self.good }
    }

    fn same(parts: Vec<Part>, weight: f64) -> Shape {
        Shape {
            bad: parts.clone(),
            good: parts,
            weight,
        }
    }

    pub fn is_switch(&self) -> bool {
        self.good != self.bad
    }

    /// How far the mean moves with the shares, in `s`.
    pub fn shift(&self) -> f64 {
        let mean = |parts: &[Part]| parts.iter().map(|p| p.weight * p.offset).sum::<f64>();
        mean(&self.bad) - mean(&self.good)
    }

    /// Variance that the second mode adds to a boot whose mode is not known, in `s^2`.
    pub fn mode_spread(&self) -> Option<f64> {
        let of = |parts: &[Part]| match parts {
            [main, second, _] => {
                let share = second.weight / (main.weight + second.weight);
                Some(share * (1.0 - share) * second.offset * second.offset)
            }
            _ => None,
        };
        Some(0.5 * (of(&self.good)? + of(&self.bad)?))
    }
}

/// The whole grid for one machine.
pub struct Cells {
    pub all: Vec<Cell>,
    pub shapes: Vec<Shape>,
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
/// Shares of a mode before and after a switch of it.
const SWITCHED: [f64; 3] = [0.1, 0.5, 0.9];
/// Prior of all switches together, and the one drift they come with: there are many of them.
const SWITCH: f64 = 0.05;
const SWITCH_DRIFTS: [(Drift, f64); 1] = [(Drift::Walk(0.05), 1.0)];
/// Prior standard deviation of what a switch moves beside the shares.
pub const SWITCH_DELTA_SD: f64 = 0.002;
/// Standard deviation of an outlier, at least.
pub const OUTLIER_SD: f64 = 0.7;

/// Shapes 0 and 1 have one mode, the rest two.
fn shapes(sd: f64) -> Vec<Shape> {
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
        Shape::same(vec![main(0.99), outlier(0.01)], 0.35),
        Shape::same(vec![main(0.92), outlier(0.08)], 0.35),
    ];
    let two = |share: f64, offset: f64| {
        let second = Part {
            weight: 0.99 * share,
            offset,
            extra: 0.0,
        };
        vec![main(0.99 * (1.0 - share)), second, outlier(0.01)]
    };
    for offset in MODE_OFFSETS {
        all.extend(MODE_SHARES.map(|share| Shape::same(two(share, offset), (0.3 - SWITCH) / 9.0)));
    }
    for offset in MODE_OFFSETS {
        for (good, bad) in SWITCHED.iter().flat_map(|g| SWITCHED.map(|b| (*g, b))) {
            if good != bad {
                all.push(Shape {
                    good: two(good, offset),
                    bad: two(bad, offset),
                    weight: SWITCH / 18.0,
                });
            }
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
    /// From the size `least` on; `outlier_sd` is how far outliers reach, `most_offset` how large an image's offset is.
    pub fn new(least: f64, outlier_sd: f64, most_offset: f64) -> Cells {
        let shapes = shapes(outlier_sd);
        let mut all = Vec::new();
        for s in sizes().filter(|s| *s >= least) {
            for (shape, form) in shapes.iter().enumerate() {
                let most = if form.good.len() > 2 { 0.0 } else { most_offset };
                for (kappa, kappa_weight) in kappas(s, most) {
                    let switch = form.is_switch();
                    let drifts = if switch { &SWITCH_DRIFTS[..] } else { &DRIFTS };
                    // A trend beside offsets of images would be told from them only by very many boots.
                    for &(drift, drift_weight) in drifts {
                        if drift != Drift::Trend || kappa <= 0.0 {
                            all.push(Cell {
                                s,
                                shape,
                                drift,
                                kappa,
                                switch,
                                prior: form.weight * drift_weight * kappa_weight,
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
fn kappas(s: f64, most: f64) -> Vec<(f64, f64)> {
    let negligible = |kappa: f64| kappa < 0.15 * s || kappa > most;
    let (near, far): (Vec<_>, Vec<_>) = KAPPAS.into_iter().partition(|k| negligible(k.0));
    let none: f64 = near.iter().map(|(_, w)| w).sum();
    let mut all: Vec<(f64, f64)> = if none > 0.0 { vec![(0.0, none)] } else { Vec::new() };
    all.extend(far.into_iter().filter(|(kappa, _)| *kappa > 0.0));
    all
}
