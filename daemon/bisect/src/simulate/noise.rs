//! How a machine is noisy: what it adds to the true level of a kernel, on the log scale.

use super::dice::Dice;
use super::real;
use std::collections::BTreeMap;

/// Where the differences between boots come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Boots {
    /// By the other fields of [`Noise`].
    #[default]
    Formula,
    /// Drawn with their runs from boots that were really measured (plain emulation on a shared host).
    Resampled,
}

/// Sizes are standard deviations on the log scale: 0.02 is 2 %.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Noise {
    pub run: f64,
    pub boot: f64,
    /// Share of runs that read a third of the truth.
    pub thirds: f64,
    /// Runs have a long tail to the slow side (lognormal, skewness 6.2).
    pub skewed: bool,
    /// The boot's own effect has three degrees of freedom: one in 70 is off by more than five times its scale.
    pub t3: bool,
    /// Share of boots in a second mode, and how far it is.
    pub mode: (f64, f64),
    /// Share of boots that are off as a whole, and by how much.
    pub outlier: (f64, f64),
    /// Random walk of the machine, a root hour.
    pub walk: f64,
    /// A step of the machine for good, at a minute drawn from 0 to 300.
    pub step: f64,
    /// Each image has an offset of its own.
    pub image: f64,
    pub boots: Boots,
}

/// The models that a mind is measured by, at `sigma` a run.
pub const MODELS: [&str; 8] = ["gauss", "boot", "heavy", "skew", "bimodal", "drift", "t3", "step"];

impl Noise {
    /// One of [`MODELS`], or `real`.
    pub fn named(name: &str, sigma: f64) -> Option<Noise> {
        let run = Noise {
            run: sigma,
            ..Noise::default()
        };
        Some(match name {
            "gauss" => run,
            "boot" => Noise { boot: sigma, ..run },
            "heavy" => Noise {
                boot: sigma / 2.0,
                thirds: 0.05,
                ..run
            },
            "skew" => Noise {
                boot: sigma / 2.0,
                skewed: true,
                ..run
            },
            "bimodal" => Noise {
                boot: 0.3 * sigma,
                mode: (0.3, 0.08),
                ..run
            },
            "drift" => Noise {
                boot: sigma / 2.0,
                walk: sigma / 2.0,
                ..run
            },
            "t3" => Noise {
                boot: sigma,
                t3: true,
                ..run
            },
            "step" => Noise { step: 0.03, ..run },
            "real" => Noise {
                boots: Boots::Resampled,
                ..Noise::default()
            },
            _ => return None,
        })
    }
}

/// How one kernel differs in its noise from the others.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Manner {
    /// Instead of [`Noise::mode`]'s share.
    pub mode_share: f64,
    /// Factor on the spread of boots and runs.
    pub spread: f64,
}

/// One machine at work: its level moves, its images have offsets.
#[derive(Clone, Debug)]
pub struct Machine {
    noise: Noise,
    level: f64,
    level_at_s: f64,
    step_at_s: f64,
    images: BTreeMap<String, f64>,
}

impl Machine {
    pub fn new(noise: Noise, level: f64, dice: &mut Dice) -> Machine {
        Machine {
            noise,
            level,
            level_at_s: 0.0,
            step_at_s: 18_000.0 * dice.unit(),
            images: BTreeMap::new(),
        }
    }

    /// Logs of the runs of one boot of an image whose true level is `truth`.
    pub fn boot(
        &mut self,
        truth: f64,
        image: &str,
        manner: Manner,
        at_s: f64,
        runs: u32,
        dice: &mut Dice,
    ) -> Vec<f64> {
        let noise = self.noise;
        let hours = ((at_s - self.level_at_s) / 3600.0).max(0.0);
        self.level += noise.walk * libm::sqrt(hours) * dice.normal();
        self.level_at_s = self.level_at_s.max(at_s);
        let mut centre = truth + self.level;
        if at_s > self.step_at_s {
            centre += noise.step;
        }
        let own = noise.image * dice.normal();
        centre += *self.images.entry(image.to_owned()).or_insert(own);
        if noise.boots == Boots::Resampled {
            let boots = real::boots();
            let boot = &boots[dice.below(boots.len())];
            return (0..runs as usize)
                .map(|r| centre + manner.spread * boot[r % boot.len()])
                .collect();
        }
        centre += manner.spread * noise.boot * if noise.t3 { dice.t3() } else { dice.normal() };
        if dice.chance(manner.mode_share) {
            centre += noise.mode.1;
        }
        if dice.chance(noise.outlier.0) {
            centre += noise.outlier.1;
        }
        (0..runs)
            .map(|_| {
                let z = if noise.skewed {
                    -long_tail(dice)
                } else {
                    dice.normal()
                };
                let third = if dice.chance(noise.thirds) {
                    -libm::log(3.0)
                } else {
                    0.0
                };
                centre + manner.spread * noise.run * z + third
            })
            .collect()
    }
}

/// A lognormal with mean 0 and standard deviation 1.
fn long_tail(dice: &mut Dice) -> f64 {
    let e = std::f64::consts::E;
    (libm::exp(dice.normal()) - libm::sqrt(e)) / libm::sqrt(e * (e - 1.0))
}
