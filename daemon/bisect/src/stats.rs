//! Small pieces of classical statistics, each total: empty and constant samples have answers too.

use std::sync::OnceLock;

/// Sum in a fixed order: callers sort first where the order could vary.
pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() {
        0.0
    } else {
        values.iter().sum::<f64>() / values.len() as f64
    }
}

pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => 0.5 * (sorted[n / 2 - 1] + sorted[n / 2]),
    }
}

/// Unbiased variance; 0 for fewer than two values.
pub fn variance(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let m = mean(values);
    values.iter().map(|v| (v - m) * (v - m)).sum::<f64>() / (values.len() - 1) as f64
}

/// Huber's M-estimate of location with corner `1.5 sigma` (Huber 1964); the mean where sigma is 0.
pub fn huber(values: &[f64], sigma: f64) -> f64 {
    let corner = 1.5 * sigma;
    if values.len() < 3 || corner <= 0.0 {
        return mean(values);
    }
    let mut centre = median(values);
    for _ in 0..20 {
        let (mut top, mut bottom) = (0.0, 0.0);
        for v in values {
            let weight = corner / (v - centre).abs().max(corner);
            top += weight * v;
            bottom += weight;
        }
        let next = top / bottom;
        if (next - centre).abs() <= 1e-12 * (1.0 + centre.abs()) {
            return next;
        }
        centre = next;
    }
    centre
}

/// Standard normal distribution function.
pub fn phi(z: f64) -> f64 {
    0.5 * libm::erfc(-z / std::f64::consts::SQRT_2)
}

/// Two-sided 95 % quantile of Student's t, by the Cornish-Fisher series (within 1 % from 3 degrees on; the
/// first two are exact).
pub fn t95(degrees: f64) -> f64 {
    if degrees < 1.5 {
        return 12.706;
    }
    if degrees < 2.5 {
        return 4.303;
    }
    let (z, v) = (1.959_964_f64, degrees);
    let (z3, z5, z7) = (z * z * z, z * z * z * z * z, z * z * z * z * z * z * z);
    z + (z3 + z) / (4.0 * v)
        + (5.0 * z5 + 16.0 * z3 + 3.0 * z) / (96.0 * v * v)
        + (3.0 * z7 + 19.0 * z5 + 17.0 * z3 - 15.0 * z) / (384.0 * v * v * v)
}

/// Entropy of a coin in bits.
pub fn coin_bits(p: f64) -> f64 {
    if p <= 0.0 || p >= 1.0 {
        return 0.0;
    }
    -(p * libm::log2(p) + (1.0 - p) * libm::log2(1.0 - p))
}

/// Bits that one observation of `N(X d, 1)` gives about a coin `X` with probability `p`:
/// `H(p) - E H(p | y)`, as a share of `H(p)` from a table over `logit p` and `d` (within 0.002 of the integral).
pub fn information(p: f64, d: f64) -> f64 {
    let whole = coin_bits(p);
    let d = d.abs();
    if whole <= 0.0 || d <= 0.0 {
        return 0.0;
    }
    let even = p.min(1.0 - p).max(1e-9);
    let x = (-libm::log(even / (1.0 - even)) / ODDS_STEP).min((ODDS - 1) as f64 - 1e-9);
    let y = (d / DISTANCE_STEP).min((DISTANCES - 1) as f64 - 1e-9);
    let table = TABLE.get_or_init(shares);
    let (i, j) = (x as usize, y as usize);
    let (u, v) = (x - i as f64, y - j as f64);
    // Close to no distance at all it grows with the square.
    let v = if j == 0 { v * v } else { v };
    let at = |i: usize, j: usize| table[i * DISTANCES + j];
    let low = (1.0 - v) * at(i, j) + v * at(i, j + 1);
    let high = (1.0 - v) * at(i + 1, j) + v * at(i + 1, j + 1);
    whole * ((1.0 - u) * low + u * high)
}

const ODDS: usize = 33;
const ODDS_STEP: f64 = 0.5;
const DISTANCES: usize = 81;
const DISTANCE_STEP: f64 = 0.125;
static TABLE: OnceLock<Vec<f64>> = OnceLock::new();

fn shares() -> Vec<f64> {
    let mut table = Vec::with_capacity(ODDS * DISTANCES);
    for i in 0..ODDS {
        let p = 1.0 / (1.0 + libm::exp(ODDS_STEP * i as f64));
        for j in 0..DISTANCES {
            table.push(integral(p, DISTANCE_STEP * j as f64) / coin_bits(p));
        }
    }
    table
}

/// By the trapezoid rule, which is exact to 1e-6 here.
fn integral(p: f64, d: f64) -> f64 {
    let (low, high) = (-5.0, d + 5.0);
    let steps = 48;
    let width = (high - low) / f64::from(steps);
    let mut left = 0.0;
    for i in 0..=steps {
        let y = low + width * f64::from(i);
        let bad = p * libm::exp(-0.5 * (y - d) * (y - d));
        let good = (1.0 - p) * libm::exp(-0.5 * y * y);
        let all = bad + good;
        if all > 0.0 {
            left += all * coin_bits(bad / all);
        }
    }
    let left = left * width / libm::sqrt(2.0 * std::f64::consts::PI);
    (coin_bits(p) - left).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_and_nothing_have_answers() {
        assert_eq!((mean(&[]), median(&[]), variance(&[1.0])), (0.0, 0.0, 0.0));
        assert_eq!(huber(&[2.0, 2.0, 2.0], 0.0), 2.0);
    }

    #[test]
    fn an_outlier_moves_huber_little() {
        let centre = huber(&[1.0, 1.1, 0.9, 1.0, 9.0], 0.1);
        assert!((centre - 1.0).abs() < 0.1, "{centre}");
    }

    #[test]
    fn quantiles_agree_with_the_tables() {
        for (degrees, table) in [(3.0, 3.182), (5.0, 2.571), (10.0, 2.228), (30.0, 2.042)] {
            assert!(
                (t95(degrees) / table - 1.0).abs() < 0.012,
                "{degrees}: {}",
                t95(degrees)
            );
        }
    }

    #[test]
    fn information_runs_from_nothing_to_the_whole_coin() {
        assert!(information(0.5, 0.01) < 1e-4);
        assert!((information(0.5, 12.0) - 1.0).abs() < 1e-4);
        assert!(information(0.5, 2.0) > information(0.5, 1.0));
        assert!(information(0.1, 2.0) < information(0.5, 2.0));
        for (p, d) in [(0.5, 0.3), (0.3, 1.7), (0.02, 2.4), (0.9, 5.0), (0.001, 3.3)] {
            let off = information(p, d) - integral(p, d);
            assert!(off.abs() < 0.003, "{p} {d}: {off}");
        }
    }
}
