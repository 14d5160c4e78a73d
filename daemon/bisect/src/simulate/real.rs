//! Boots that were really measured: what no formula made.

use std::sync::OnceLock;

/// One boot a line; what they are stands at the top of the file.
const TEXT: &str = include_str!("boots.txt");

/// The runs of each boot as deviations from the median boot of its kernel, on the log scale.
pub fn boots() -> &'static [Vec<f64>] {
    static BOOTS: OnceLock<Vec<Vec<f64>>> = OnceLock::new();
    BOOTS.get_or_init(|| {
        let lines = TEXT.lines().filter(|l| !l.starts_with('#'));
        let runs = lines.map(|l| {
            l.split_whitespace()
                .filter_map(|w| w.parse().ok())
                .collect::<Vec<f64>>()
        });
        runs.filter(|boot| !boot.is_empty()).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{mean, variance};

    #[test]
    fn the_boots_are_there_and_noisy() {
        let centres: Vec<f64> = boots().iter().map(|b| mean(b)).collect();
        assert!(centres.len() > 200);
        let sd = variance(&centres).sqrt();
        assert!((0.2..0.5).contains(&sd), "{sd}");
    }
}
