//! Runs to boots. The unit of data is the boot: runs within one share memory layout, page placement and disk
//! state. A boot's value is the Huber mean of its runs; warm-up runs are found and left out.
//!
//! `sigma_within` is the pooled spread of runs within boots, winsorised at two of itself (Huber 1981, 5.7), from
//! the median distance on: a fifth more precise than a median from a dozen runs, and hardly moved by an outlier.

use crate::facts::{Boot, Tried, stage};
use crate::stats::{huber, mean, median, t95, variance};

#[derive(Clone, Copy, Default, Debug)]
pub struct Summaries {
    /// Standard deviation of runs within a boot.
    pub sigma_within: f64,
    /// Degrees of freedom that boots of one kernel on one machine have about their means.
    pub boot_degrees: f64,
    /// First runs of every boot that are left out.
    pub warm_up: u32,
}

impl Summaries {
    /// Variance of runs within a boot, 5 % up for what the Huber mean of a few loses.
    pub fn within(&self) -> f64 {
        1.05 * self.sigma_within * self.sigma_within
    }
}

/// Runs farther from their boot's median than so many standard deviations count as no farther.
const WINSOR: f64 = 2.0;
/// What that leaves of the squares where nothing is off (0.92 of single normal values, less about the median of few).
const KEPT: f64 = 0.9;
const WINSOR_ROUNDS: usize = 8;

/// Fills `y` and `counted` of every boot. The spreads are taken from the first boots only (see [`stage`]) and in
/// steps of 10 %, so that a boot's value seldom changes with later ones.
pub fn summarise(boots: &mut [Boot], kernels: &[Tried]) -> Summaries {
    let first = stage(boots.len());
    let warm_up = warm_up(&boots[..first]);
    let sigma_within = in_steps(sigma_within(&boots[..first], warm_up));
    for boot in boots.iter_mut() {
        let runs = boot.runs.get(warm_up as usize..).unwrap_or_default();
        boot.counted = runs.len() as u32;
        let cuts = boot.cuts.get(warm_up as usize..).unwrap_or_default();
        (boot.y, boot.cut) = centre(runs, cuts, sigma_within);
    }
    Summaries {
        sigma_within,
        boot_degrees: boot_degrees(boots, kernels),
        warm_up,
    }
}

/// The Huber mean. Runs that were cut off make it the median, which they do not move unless it is one of them: then
/// it is only known to lie beyond.
fn centre(runs: &[f64], cuts: &[i8], sigma: f64) -> (f64, i8) {
    if cuts.iter().all(|c| *c == 0) {
        return (huber(runs, sigma), 0);
    }
    let mut order: Vec<usize> = (0..runs.len()).collect();
    // Equal numbers: what lies below comes first, what lies above last.
    order.sort_by(|&a, &b| runs[a].total_cmp(&runs[b]).then(cuts[a].cmp(&cuts[b])));
    let (low, high) = (order[(order.len() - 1) / 2], order[order.len() / 2]);
    match (cuts[low], cuts[high]) {
        (0, 0) => (0.5 * (runs[low] + runs[high]), 0),
        (1, _) | (0, 1) => (runs[low], 1),
        (_, -1) | (-1, 0) => (runs[high], -1),
        _ => (0.5 * (runs[low] + runs[high]), 0),
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
    let runs = |b: &Boot| b.runs.get(warm_up as usize..).unwrap_or_default().to_vec();
    let all: Vec<Vec<f64>> = boots.iter().map(runs).filter(|r| r.len() > 1).collect();
    // About the median: one outlier of three runs would move their mean, and with it the distances of the other two.
    let distances = |runs: &Vec<f64>| -> Vec<f64> {
        let centre = median(runs);
        runs.iter().map(|v| (v - centre).abs()).collect()
    };
    let far: Vec<Vec<f64>> = all.iter().map(distances).collect();
    // Of three runs one is the centre.
    let apart: Vec<f64> = far.iter().flatten().copied().filter(|d| *d > 0.0).collect();
    let mut sigma = 1.1 * median(&apart);
    let degrees: f64 = all.iter().map(|r| about_median(r.len())).sum();
    for _ in 0..WINSOR_ROUNDS {
        let corner = WINSOR * sigma;
        let squares = far.iter().map(|boot| {
            let cut = boot.iter().map(|d| d.min(corner));
            cut.map(|d| d * d).sum::<f64>()
        });
        sigma = libm::sqrt(squares.sum::<f64>() / (KEPT * degrees.max(1.0)));
    }
    sigma
}

/// Expected sum of squares of so many standard normal values about their median: `n - 1 + n (var median - 1 / n)`
/// (variances of medians: David and Nagaraja, Order Statistics, 2003, 4.4; the limit is `pi / 2 n`).
fn about_median(n: usize) -> f64 {
    let more = match n {
        0..=2 => 0.0,
        3 => 0.35,
        4 => 0.19,
        5 => 0.43,
        6 => 0.29,
        _ => 0.45,
    };
    n.saturating_sub(1) as f64 + more
}

fn boot_degrees(boots: &[Boot], kernels: &[Tried]) -> f64 {
    let mut groups: std::collections::BTreeMap<(usize, usize), u32> = Default::default();
    for boot in boots.iter().filter(|b| b.counted > 0) {
        *groups
            .entry((kernels[boot.kernel].binary, boot.machine))
            .or_default() += 1;
    }
    groups.values().map(|n| f64::from(n - 1)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::Dice;

    fn boots(dice: &mut Dice, outliers: bool) -> Vec<Boot> {
        let mut boot = |b: usize| {
            let mut runs: Vec<f64> = (0..3).map(|_| 0.02 * dice.normal()).collect();
            if outliers && b.is_multiple_of(6) {
                runs[1] -= 1.1;
            }
            Boot {
                kernel: 0,
                machine: 0,
                replicate: 0,
                at_s: 0.0,
                cuts: vec![0; runs.len()],
                runs,
                y: 0.0,
                counted: 3,
                cut: 0,
            }
        };
        (0..60).map(&mut boot).collect()
    }

    #[test]
    fn a_run_in_eighteen_three_times_off_hardly_moves_the_spread_of_runs() {
        let mut dice = Dice::new(3);
        for (outliers, most) in [(false, 0.0225), (true, 0.028)] {
            let sigma = sigma_within(&boots(&mut dice, outliers), 0);
            assert!(
                (0.0175..most).contains(&sigma),
                "{sigma} with outliers: {outliers}"
            );
        }
    }
}
