//! Runs to boots. The unit of data is the boot: runs within one share memory layout, page placement and disk
//! state. A boot's value is the Huber mean of its runs; warm-up runs are found and left out.
//!
//! `sigma_within` is the pooled robust spread of runs within boots: 1.25 x the median distance from the boot's
//! centre, over boots with at least three runs (statistics: median of |v - centre|, Gaussian consistency for three).

use crate::facts::{Boot, Tried, stage};
use crate::stats::{huber, mean, median, t95, variance};

#[derive(Clone, Copy, Default, Debug)]
pub struct Summaries {
    /// Standard deviation of runs within a boot.
    pub sigma_within: f64,
    /// Standard deviation of boots of one kernel on one machine about their mean, pooled; `None` without replicates.
    pub sigma_boot: Option<f64>,
    /// Degrees of freedom behind the boots' spread, by all boots.
    pub boot_degrees: f64,
    /// First runs of every boot that are left out.
    pub warm_up: u32,
}

/// Fills `y` and `counted` of every boot. The spreads are taken from the first boots only (see [`stage`]) and in
/// steps of 10 %, so that a boot's value seldom changes with later ones.
pub fn summarise(boots: &mut [Boot], kernels: &[Tried]) -> Summaries {
    let first = stage(boots.len());
    let warm_up = warm_up(&boots[..first]);
    let sigma_within = in_steps(sigma_within(&boots[..first], warm_up));
    for boot in boots.iter_mut() {
        let runs = boot.runs.get(warm_up as usize..).unwrap_or_default();
        boot.counted = runs.len() as u32;
        boot.y = huber(runs, sigma_within);
    }
    let (sigma_boot, _) = sigma_boot(&boots[..first], kernels);
    let (_, boot_degrees) = self::sigma_boot(boots, kernels);
    Summaries {
        sigma_within,
        sigma_boot: sigma_boot.map(in_steps),
        boot_degrees,
        warm_up,
    }
}

/// The nearest power of 1.1.
fn in_steps(x: f64) -> f64 {
    if x > 0.0 && x.is_finite() {
        libm::pow(1.1, libm::round(libm::log(x) / libm::log(1.1)))
    } else {
        x
    }
}

/// How many first runs differ from the rest of their boot: paired over boots, |t| beyond a bar that a true null
/// passes about once in a thousand, at most two runs.
fn warm_up(boots: &[Boot]) -> u32 {
    for skip in 0..2usize {
        let gaps: Vec<f64> = boots
            .iter()
            .filter(|b| b.runs.len() >= skip + 2 && b.runs.len() >= 3)
            .map(|b| b.runs[skip] - median(&b.runs[skip + 1..]))
            .collect();
        if gaps.len() < 4 {
            return skip as u32;
        }
        let n = gaps.len() as f64;
        let standard_error = libm::sqrt(variance(&gaps) / n);
        let gap = mean(&gaps).abs();
        // 1.7 x the 95 % quantile is close to the 99.9 % one for large n and beyond it for small n.
        if gap <= 1.7 * t95(n - 1.0) * standard_error || gap < 0.005 {
            return skip as u32;
        }
    }
    2
}

fn sigma_within(boots: &[Boot], warm_up: u32) -> f64 {
    let mut distances = Vec::new();
    let mut pairs = Vec::new();
    for boot in boots {
        let runs = boot.runs.get(warm_up as usize..).unwrap_or_default();
        match runs {
            [a, b] => pairs.push((a - b).abs()),
            [_, _, _, ..] => {
                let centre = median(runs);
                distances.extend(runs.iter().map(|v| (v - centre).abs()).filter(|d| *d > 0.0));
            }
            _ => {}
        }
    }
    if !distances.is_empty() {
        // The centre's own run has distance 0 and is left out: what is left is half-normal, median 0.674 sigma,
        // stretched by the centre's own error for three runs.
        1.1 * median(&distances)
    } else {
        // |a - b| of two runs has median 0.954 sigma.
        median(&pairs) / 0.954
    }
}

fn sigma_boot(boots: &[Boot], kernels: &[Tried]) -> (Option<f64>, f64) {
    let mut groups: std::collections::BTreeMap<(usize, usize), Vec<f64>> = Default::default();
    for boot in boots.iter().filter(|b| b.counted > 0) {
        groups
            .entry((kernels[boot.kernel].binary, boot.machine))
            .or_default()
            .push(boot.y);
    }
    let (mut squares, mut degrees) = (0.0, 0.0);
    for values in groups.values() {
        let n = values.len() as f64;
        squares += variance(values) * (n - 1.0);
        degrees += n - 1.0;
    }
    if degrees > 0.0 {
        (Some(libm::sqrt(squares / degrees)), degrees)
    } else {
        (None, 0.0)
    }
}
