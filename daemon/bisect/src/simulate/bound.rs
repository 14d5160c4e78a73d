//! What any search must cost, whoever plans it.
//!
//! A commit's label carries at most one bit whatever is measured on it, and each boot adds at most
//! `C1(r)`, the information of one boot of `r` runs at even odds. So every bit costs at least one build and
//! `1 / C1` boots: `0.99 log2(N) min_r (build + (boot + r run) / min(1, C1(r)))`. All parameters known, the ends
//! free: out of reach on purpose. "With the ends" adds two builds and six boots of three runs.

use super::noise::{Boots, Noise};
use super::real;
use crate::Costs;
use crate::stats::{coin_bits, mean, variance};

/// A normal component: weight, centre, variance.
type Part = (f64, f64, f64);

/// Runs a boot that are looked at.
const RUNS: std::ops::RangeInclusive<u32> = 1..=12;

/// Minutes, ends free.
pub fn search_min(commits: usize, effect: f64, noise: &Noise, costs: &Costs) -> f64 {
    let bits = 0.99 * libm::log2(commits.max(1) as f64);
    let a_bit = RUNS.map(|runs| {
        let boot_s = costs.boot_s + f64::from(runs) * costs.run_s;
        costs.build_s + boot_s / boot_bits(effect, noise, runs).clamp(1e-9, 1.0)
    });
    bits * a_bit.fold(f64::INFINITY, f64::min) / 60.0
}

/// Minutes of the two ends: built, and three boots of three runs each.
pub fn ends_min(costs: &Costs) -> f64 {
    (2.0 * costs.build_s + 6.0 * (costs.boot_s + 3.0 * costs.run_s)) / 60.0
}

/// Bits that one boot of so many runs tells about good or bad, at even odds.
pub fn boot_bits(effect: f64, noise: &Noise, runs: u32) -> f64 {
    let parts = parts(noise, runs);
    let reach = |p: &Part| 7.0 * libm::sqrt(p.2);
    let low = parts.iter().map(|p| p.1 - reach(p)).fold(f64::INFINITY, f64::min) - effect.abs();
    let high = parts
        .iter()
        .map(|p| p.1 + reach(p))
        .fold(f64::NEG_INFINITY, f64::max)
        + effect.abs();
    let narrow = parts
        .iter()
        .map(|p| libm::sqrt(p.2))
        .fold(f64::INFINITY, f64::min);
    if !(narrow > 0.0 && high > low) {
        return 1.0;
    }
    let steps = ((high - low) / narrow * 8.0).clamp(64.0, 20_000.0) as usize;
    let width = (high - low) / steps as f64;
    let density = |y: f64| -> f64 {
        let one = |p: &Part| {
            let z2 = (y - p.1) * (y - p.1) / p.2;
            p.0 * libm::exp(-0.5 * z2) / libm::sqrt(2.0 * std::f64::consts::PI * p.2)
        };
        parts.iter().map(one).sum()
    };
    let left: f64 = (0..=steps)
        .map(|i| {
            let y = low + width * i as f64;
            let (good, bad) = (density(y), density(y - effect));
            let all = 0.5 * (good + bad);
            if all > 0.0 {
                all * coin_bits(0.5 * bad / all)
            } else {
                0.0
            }
        })
        .sum();
    (1.0 - left * width).clamp(0.0, 1.0)
}

/// The distribution of a boot's centre as a mixture of normals. Runs that are far off are taken as thrown out at no
/// cost, drift and the machine's step as known: each makes the bound lower, never higher.
fn parts(noise: &Noise, runs: u32) -> Vec<Part> {
    let of_runs = noise.run * noise.run / f64::from(runs);
    if noise.boots == Boots::Resampled {
        let centres: Vec<f64> = real::boots().iter().map(|b| mean(b)).collect();
        let own = variance(&centres).max(1e-8) / 25.0;
        let share = 1.0 / centres.len() as f64;
        return centres.iter().map(|c| (share, *c, own)).collect();
    }
    let boots: Vec<(f64, f64)> = if noise.t3 {
        // Student's t is a normal whose precision is chi-squared: 16 even shares of that.
        precisions()
            .map(|p| (1.0 / 16.0, noise.boot * noise.boot / p))
            .collect()
    } else {
        vec![(1.0, noise.boot * noise.boot)]
    };
    let mut all = Vec::new();
    for (weight, variance) in boots {
        let variance = variance + of_runs;
        let (slow, far) = (noise.mode.0, noise.outlier.0);
        for (share, offset) in [
            ((1.0 - slow) * (1.0 - far), 0.0),
            (slow * (1.0 - far), noise.mode.1),
            ((1.0 - slow) * far, noise.outlier.1),
            (slow * far, noise.mode.1 + noise.outlier.1),
        ] {
            if share > 0.0 {
                all.push((weight * share, offset, variance));
            }
        }
    }
    all
}

/// Middles of 16 even shares of chi-squared over its 3 degrees of freedom (Wilson and Hilferty 1931).
fn precisions() -> impl Iterator<Item = f64> {
    (0..16).map(|i| {
        let z = normal_quantile((f64::from(i) + 0.5) / 16.0);
        let root = 1.0 - 2.0 / 27.0 + z * libm::sqrt(2.0 / 27.0);
        (root * root * root).max(1e-3)
    })
}

fn normal_quantile(p: f64) -> f64 {
    let (mut low, mut high) = (-8.0, 8.0);
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if crate::stats::phi(middle) < p {
            low = middle;
        } else {
            high = middle;
        }
    }
    0.5 * (low + high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_the_published_one() {
        // For a factor of 1.05 in 1024 commits at 2 % noise; builds 10, boots 2, runs 2 minutes.
        for (name, published) in [("gauss", 163.0), ("boot", 199.0), ("drift", 172.0)] {
            let noise = Noise::named(name, 0.02).expect("a model");
            let minutes = search_min(1024, libm::log(1.05), &noise, &Costs::default());
            assert!((minutes - published).abs() < 0.5, "{name}: {minutes}");
        }
        assert!((ends_min(&Costs::default()) - 68.0).abs() < 1e-9);
    }

    #[test]
    fn more_runs_tell_more_and_a_wide_tail_tells_less() {
        let gauss = Noise::named("gauss", 0.02).expect("a model");
        assert!(boot_bits(-0.02, &gauss, 4) > boot_bits(-0.02, &gauss, 1));
        let (boot, t3) = (Noise::named("boot", 0.02), Noise::named("t3", 0.02));
        let bits = |noise: Option<Noise>| boot_bits(-0.05, &noise.expect("a model"), 3);
        assert!(bits(t3) < bits(boot));
    }
}
