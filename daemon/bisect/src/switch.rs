//! A change that moves no level: it alters how often boots are in the slow mode, or how widely they scatter.
//!
//! The bank weighs switches of a mode's share like any other noise hypothesis, but its collapsed mixtures are too sure
//! of them while a boot's mode is in doubt, and choose what looks best by chance. So a culprit found that way must stand
//! a test of its own: a dozen fresh boots of it and of its parent, or two, sorted into modes, and Fisher's exact test
//! (Fisher 1935) on the counts of these and of all.
//! A change of spread is not searched for, but never passed over: Brown and Forsythe's test (1974) of the ends.

use crate::confirm::{Round, Size};
use crate::facts::{Facts, SWITCH_CONFIRM, confirmation};
use crate::plan::Effect;
use crate::search::{Ask, Searcher};
use crate::special::{hypergeometric_from, t_two_sided};
use crate::stats::{mean, median, variance};
use crate::{Check, CheckResult, Checked, Kernel};

/// Chance that a test passes for nothing: of all boots, and of the fresh ones.
const ALPHA: f64 = 0.01;
const FRESH: f64 = 0.05;

/// The verdict on a culprit that switches a mode: its size, or what has to be measured first. `Err(None)`: it did not
/// stand the test.
pub fn confirm(
    searcher: &Searcher<'_>,
    machine: usize,
    culprit: u32,
    size: Size,
) -> Result<Size, Option<Ask>> {
    let facts = searcher.facts;
    let parent = facts
        .history
        .parents(culprit)
        .iter()
        .copied()
        .find(|&p| facts.skip_at(p).is_none());
    let Some(parent) = parent else { return Err(None) };
    let kernels = [parent, culprit].map(|place| Kernel::plain(facts.history.id(place).clone()));
    let slow = slow_mode(facts, machine);
    let of = |place, fresh: bool| {
        let own = facts
            .boots_on(place, machine)
            .into_iter()
            .map(|b| &facts.boots[b]);
        let own: Vec<bool> = own
            .filter(|b| !fresh || confirmation(b.replicate).is_some_and(|n| SWITCH_CONFIRM.contains(&n)))
            .map(|b| facts.scale.loss(b.y) > slow)
            .collect();
        (own.iter().filter(|s| **s).count(), own.len())
    };
    let test = |fresh| {
        let ((before, good), (after, bad)) = (of(parent, fresh), of(culprit, fresh));
        hypergeometric_from(after, before + after, bad, good + bad)
    };
    let passes = || test(true) < FRESH && test(false) < ALPHA;
    for count in SWITCH_CONFIRM {
        let reason = format!(
            "{} may change how often the slow mode appears: {count} boots of it and of its parent, which chose nothing",
            facts.history.id(culprit)
        );
        let runs = 1 + facts.summaries.warm_up;
        Round { machine, count, runs }
            .ask(facts, &kernels, &reason)
            .map_err(Some)?;
        if passes() {
            break;
        }
    }
    if !passes() {
        return Err(None);
    }
    let ((before, good), (after, bad), p) = (of(parent, false), of(culprit, false), test(false));
    let detail = format!(
        "slow mode in {before} of {good} boots of the parent and in {after} of {bad} of {}: Fisher's exact test, p = {p:.1e}",
        facts.history.id(culprit)
    );
    let mut size = size;
    size.boots = good.min(bad);
    size.notes.push(format!(
        "distribution change: how often the slow mode appears changed ({detail})"
    ));
    size.checks.push(Checked {
        check: Check::Parents,
        result: CheckResult::Passed,
        detail,
    });
    Ok(size)
}

/// Where the slow mode begins, as a loss: between the two means that part the machine's boots best (Lloyd 1982).
fn slow_mode(facts: &Facts<'_>, machine: usize) -> f64 {
    let own = facts.boots.iter().filter(|b| b.machine == machine);
    let losses: Vec<f64> = own.map(|b| facts.scale.loss(b.y)).collect();
    let low = losses.iter().copied().fold(f64::INFINITY, f64::min);
    let high = losses.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut middle = 0.5 * (low + high);
    for _ in 0..20 {
        let (slow, fast): (Vec<f64>, Vec<f64>) = losses.iter().partition(|l| **l > middle);
        if slow.is_empty() || fast.is_empty() {
            break;
        }
        middle = 0.5 * (mean(&slow) + mean(&fast));
    }
    middle
}

/// What is said of the ends where their boots scatter differently.
pub fn spread(facts: &Facts<'_>, low: u32, high: u32, machine: usize) -> Option<String> {
    let boots = |place| -> Vec<f64> {
        let own = facts.boots_on(place, machine).into_iter();
        own.map(|b| facts.boots[b].y).collect()
    };
    let (good, bad) = (boots(low), boots(high));
    if good.len().min(bad.len()) < 4 {
        return None;
    }
    let off = |ys: &[f64]| -> Vec<f64> {
        let centre = median(ys);
        ys.iter().map(|y| (y - centre).abs()).collect()
    };
    let (a, b) = (off(&good), off(&bad));
    let (n, m) = (a.len() as f64, b.len() as f64);
    let pooled = ((n - 1.0) * variance(&a) + (m - 1.0) * variance(&b)) / (n + m - 2.0);
    let t = (mean(&b) - mean(&a)) / libm::sqrt(pooled * (1.0 / n + 1.0 / m)).max(1e-12);
    let p = t_two_sided(t, n + m - 2.0);
    let ratio = libm::sqrt(variance(&bad) / variance(&good).max(1e-300));
    (p < ALPHA && ratio.is_finite()).then(|| {
        format!(
            "distribution change: boots of the bad end scatter {ratio:.1} times as widely as those of the good end \
             (Brown-Forsythe, p = {p:.1e}); such a change is named, not searched for"
        )
    })
}

/// Levels of one metric at the two ends, judged while boots still come: the Bayes factor of a difference (Gonen et al.
/// 2005, standardised difference `N(0, 1)` under it) bounds the error under any number of looks, `p = min(1, 1 / BF)`
/// (Ville 1939; for right Haar priors Hendriksen, de Heide and Grunwald 2021).
pub fn always_valid_p(good: &[f64], bad: &[f64]) -> f64 {
    let (n, m) = (good.len() as f64, bad.len() as f64);
    let degrees = n + m - 2.0;
    if good.len() < 2 || bad.len() < 2 {
        return 1.0;
    }
    let pooled = ((n - 1.0) * variance(good) + (m - 1.0) * variance(bad)) / degrees;
    let difference = mean(bad) - mean(good);
    let weight = n * m / (n + m);
    if pooled <= 0.0 {
        return if difference == 0.0 { 1.0 } else { 0.0 };
    }
    let t2 = difference * difference * weight / pooled;
    let log = -0.5 * libm::log1p(weight)
        + 0.5 * (degrees + 1.0) * (libm::log1p(t2 / degrees) - libm::log1p(t2 / (degrees * (1.0 + weight))));
    libm::exp(-log).clamp(0.0, 1.0)
}

/// Which of these p-values hold together at 5 % (Holm 1979).
pub fn holm(p: &[f64]) -> Vec<bool> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&a, &b| p[a].total_cmp(&p[b]).then(a.cmp(&b)));
    let mut holds = vec![false; p.len()];
    for (rank, i) in order.into_iter().enumerate() {
        if p[i] > 0.05 / (p.len() - rank) as f64 {
            break;
        }
        holds[i] = true;
    }
    holds
}

/// What is said of another metric; `holds`: its change stands beside those of all the others.
pub fn word(effect: Option<Effect>, holds: bool, higher_is_better: bool) -> &'static str {
    match effect {
        None => "not enough boots of both ends",
        Some(_) if !holds => "",
        Some(e) if (e.pct > 0.0) == higher_is_better => "changed for the better",
        Some(_) => "changed for the worse too",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::Dice;

    #[test]
    fn looking_after_every_boot_keeps_the_error_rate() {
        let mut dice = Dice::new(5);
        let mut false_alarms = 0;
        for _ in 0..1000 {
            let (mut good, mut bad) = (vec![dice.normal()], vec![dice.normal()]);
            let mut least = 1.0f64;
            for _ in 0..40 {
                good.push(dice.normal());
                bad.push(dice.normal());
                least = least.min(always_valid_p(&good, &bad));
            }
            false_alarms += u32::from(least < 0.05);
        }
        assert!(false_alarms <= 50, "{false_alarms} of 1000");
        let far: Vec<f64> = (0..8).map(|_| 3.0 + dice.normal()).collect();
        let near: Vec<f64> = (0..8).map(|_| dice.normal()).collect();
        assert!(always_valid_p(&near, &far) < 0.01);
    }

    #[test]
    fn holm_is_the_textbook_s() {
        assert_eq!(holm(&[0.01, 0.04, 0.03, 0.005]), [true, false, false, true]);
        assert_eq!(holm(&[0.06, 0.001]), [false, true]);
        assert!(holm(&[]).is_empty());
    }
}
