//! From samples to what the plot and the table show of each kernel: boots, means, intervals.
//!
//! Descriptive only: the boot is the replicate, the interval is Student's over boot means. Verdicts come from
//! the planner, never from here.

use super::reading::{self, LevelRead, RunRead};
use crate::store::views::SampleView;
use std::collections::BTreeMap;
use uuid::Uuid;

#[derive(Clone, Debug)]
pub struct Boot {
    pub replicate: i32,
    pub mean: f64,
    pub runs: Vec<RunRead>,
    pub attempt: Option<Uuid>,
}

#[derive(Clone, Debug)]
pub struct Skip {
    /// `build_failed`, `boot_failed`, `benchmark_failed`, `lost`.
    pub word: String,
    pub detail: String,
    pub excerpt: String,
    pub attempt: Option<Uuid>,
}

/// One kernel on one machine (in one lane).
#[derive(Clone, Debug, Default)]
pub struct KernelLevels {
    pub boots: Vec<Boot>,
    pub skips: Vec<Skip>,
}

impl KernelLevels {
    pub fn level(&self) -> Option<LevelRead> {
        let means: Vec<f64> = self.boots.iter().map(|b| b.mean).collect();
        interval(&means)
    }
}

/// Machine (with its lane where it is not the first) to kernel key to what is known.
pub type ByMachine = BTreeMap<String, BTreeMap<String, KernelLevels>>;

pub fn by_machine(samples: &[SampleView]) -> ByMachine {
    let mut all = ByMachine::new();
    for sample in samples {
        let machine = match sample.lane {
            ..=1 => sample.machine.clone(),
            lane => format!("{}#{lane}", sample.machine),
        };
        let kernel = all
            .entry(machine)
            .or_default()
            .entry(sample.kernel_key.clone())
            .or_default();
        match reading::measured(&sample.outcome) {
            Some(runs) if !runs.is_empty() => {
                let mut values: Vec<f64> = runs.iter().map(|r| r.value).collect();
                values.sort_by(f64::total_cmp);
                let mean = values.iter().sum::<f64>() / values.len() as f64;
                let attempt = sample.attempt_id;
                kernel.boots.push(Boot {
                    replicate: sample.replicate,
                    mean,
                    runs,
                    attempt,
                });
            }
            _ => kernel.skips.push(skip(sample)),
        }
    }
    for kernel in all.values_mut().flat_map(BTreeMap::values_mut) {
        kernel.boots.sort_by_key(|b| b.replicate);
    }
    all
}

fn skip(sample: &SampleView) -> Skip {
    let field = |name: &str| {
        let value = sample
            .failure
            .as_ref()
            .and_then(|f| f.get(name))
            .and_then(|v| v.as_str());
        value.unwrap_or_default().to_string()
    };
    let detail = [field("class"), field("fault")]
        .into_iter()
        .find(|t| !t.is_empty())
        .unwrap_or_default();
    let word = reading::failed(&sample.outcome)
        .unwrap_or("benchmark_failed")
        .to_string();
    Skip {
        word,
        detail,
        excerpt: super::say::plain_console(&field("excerpt")),
        attempt: sample.attempt_id,
    }
}

/// Mean of boots with its 95 % interval; one boot has no interval.
fn interval(means: &[f64]) -> Option<LevelRead> {
    let mut sorted = means.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    let mean = match n {
        0 => return None,
        _ => sorted.iter().sum::<f64>() / n as f64,
    };
    let half = match n {
        1 => 0.0,
        _ => {
            let variance = sorted.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1) as f64;
            student_975(n - 1) * (variance / n as f64).sqrt()
        }
    };
    Some(LevelRead {
        level: mean,
        low: mean - half,
        high: mean + half,
    })
}

/// The 0.975 quantile of Student's t: a table to 10 degrees of freedom, beyond it the Cornish-Fisher expansion
/// about the normal's 1.959964 (off by less than 0.0002 there).
fn student_975(freedom: usize) -> f64 {
    const TABLE: [f64; 10] = [
        12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281,
    ];
    const Z: f64 = 1.959_964;
    match TABLE.get(freedom.saturating_sub(1)) {
        Some(t) => *t,
        None => {
            let n = freedom as f64;
            let g1 = (Z.powi(3) + Z) / 4.0;
            let g2 = (5.0 * Z.powi(5) + 16.0 * Z.powi(3) + 3.0 * Z) / 96.0;
            let g3 = (3.0 * Z.powi(7) + 19.0 * Z.powi(5) + 17.0 * Z.powi(3) - 15.0 * Z) / 384.0;
            Z + g1 / n + g2 / n.powi(2) + g3 / n.powi(3)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_student_s_over_boots() {
        let level = interval(&[9.0, 10.0, 11.0]).expect("three boots have a level");
        assert!((level.level - 10.0).abs() < 1e-12);
        assert!((level.high - 10.0 - 4.3027 / 3f64.sqrt()).abs() < 1e-3);
        // Reference: scipy.stats.t.ppf(0.975, [11, 30, 120])
        for (freedom, t) in [(11, 2.20099), (30, 2.04227), (120, 1.97993)] {
            assert!(
                (student_975(freedom) - t).abs() < 2e-4,
                "{freedom}: {}",
                student_975(freedom)
            );
        }
    }

    #[test]
    fn one_boot_has_a_level_and_no_interval() {
        let level = interval(&[5.0]).expect("one boot has a level");
        assert_eq!((level.low, level.high), (5.0, 5.0));
        assert!(interval(&[]).is_none());
    }
}
