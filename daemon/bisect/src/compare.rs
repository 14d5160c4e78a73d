//! Two samples compared as textbooks do: for people who want to see the figures they know beside the mind's.
//!
//! `a` is the old side, `b` the new one; differences are `b - a`. None of this decides anything: a search looks again
//! and again at growing samples, where these p-values do not hold.

use crate::special::{f_above, t_quantile_two_sided, t_two_sided};
use crate::stats::{mean, median, variance};

/// A sample by its size, mean and standard deviation (of `n - 1`).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Summary {
    pub n: usize,
    pub mean: f64,
    pub sd: f64,
}

impl Summary {
    pub fn of(values: &[f64]) -> Summary {
        Summary {
            n: values.len(),
            mean: mean(values),
            sd: libm::sqrt(variance(values)),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Welch {
    pub diff: f64,
    pub t: f64,
    pub degrees: f64,
    pub p_two_sided: f64,
    pub ci95: (f64, f64),
}

/// Welch's t test with the degrees of freedom of Satterthwaite (Welch 1947). `None` where a side has fewer than two
/// values or neither spreads.
pub fn welch(a: Summary, b: Summary) -> Option<Welch> {
    if a.n < 2 || b.n < 2 {
        return None;
    }
    let part = |s: Summary| s.sd * s.sd / s.n as f64;
    let (va, vb) = (part(a), part(b));
    let error = libm::sqrt(va + vb);
    if !(error > 0.0 && error.is_finite()) {
        return None;
    }
    let degrees = (va + vb) * (va + vb) / (va * va / (a.n as f64 - 1.0) + vb * vb / (b.n as f64 - 1.0));
    let diff = b.mean - a.mean;
    let t = diff / error;
    let reach = t_quantile_two_sided(0.05, degrees) * error;
    Some(Welch {
        diff,
        t,
        degrees,
        p_two_sided: t_two_sided(t, degrees),
        ci95: (diff - reach, diff + reach),
    })
}

/// Student's t test with the pooled variance: `t`, degrees of freedom, p.
pub fn student(a: Summary, b: Summary) -> Option<(f64, f64, f64)> {
    let degrees = (a.n + b.n).checked_sub(2).filter(|d| *d > 0)? as f64;
    let sum = |s: Summary| s.sd * s.sd * (s.n as f64 - 1.0);
    let pooled = (sum(a) + sum(b)) / degrees;
    let error = libm::sqrt(pooled * (1.0 / a.n as f64 + 1.0 / b.n as f64));
    let t = (b.mean - a.mean) / error;
    (error > 0.0 && t.is_finite()).then(|| (t, degrees, t_two_sided(t, degrees)))
}

/// Ratio of the variances `a / b`, and the two-sided p of F.
pub fn variance_ratio(a: Summary, b: Summary) -> Option<(f64, f64)> {
    let f = (a.sd * a.sd) / (b.sd * b.sd);
    if a.n < 2 || b.n < 2 || !f.is_finite() {
        return None;
    }
    let above = f_above(f, a.n as f64 - 1.0, b.n as f64 - 1.0);
    Some((f, (2.0 * above.min(1.0 - above)).min(1.0)))
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MannWhitney {
    /// Pairs in which `b` is more, ties half.
    pub u_b: f64,
    pub p_two_sided: f64,
    /// Of `b` being so little, or less.
    pub p_b_less: f64,
    /// The least two-sided p that samples of these sizes can give.
    pub least_p: f64,
}

/// Pairs above which the exact distribution is not counted out.
const MOST_PAIRS: usize = 2500;

/// Mann and Whitney's U (1947) against its exact distribution over all ways to deal the pooled values, ties at their
/// mean ranks. `None` for empty or very large samples.
pub fn mann_whitney(a: &[f64], b: &[f64]) -> Option<MannWhitney> {
    let (na, nb) = (a.len(), b.len());
    if na == 0 || nb == 0 || na * nb > MOST_PAIRS {
        return None;
    }
    // Twice the mean ranks are whole numbers.
    let mut pooled: Vec<(f64, bool)> = a
        .iter()
        .map(|v| (*v, false))
        .chain(b.iter().map(|v| (*v, true)))
        .collect();
    pooled.sort_by(|x, y| x.0.total_cmp(&y.0));
    let mut ranks = Vec::with_capacity(pooled.len());
    let mut from = 0;
    while from < pooled.len() {
        let same = pooled[from..]
            .iter()
            .take_while(|v| v.0 == pooled[from].0)
            .count();
        let same = same.max(1);
        ranks.extend(std::iter::repeat_n(2 * from + same + 1, same));
        from += same;
    }
    let sum_b: usize = pooled
        .iter()
        .zip(&ranks)
        .filter(|(v, _)| v.1)
        .map(|(_, r)| r)
        .sum();
    // Ways to deal `k` of the values so that their doubled ranks sum to `s`.
    let most: usize = ranks.iter().sum();
    let mut ways = vec![vec![0.0f64; most + 1]; nb + 1];
    ways[0][0] = 1.0;
    for &rank in &ranks {
        for k in (1..=nb).rev() {
            let (fewer, own) = ways.split_at_mut(k);
            for s in (rank..=most).rev() {
                own[0][s] += fewer[k - 1][s - rank];
            }
        }
    }
    let all: f64 = ways[nb].iter().sum();
    let less = ways[nb][..=sum_b].iter().sum::<f64>() / all;
    let more = ways[nb][sum_b..].iter().sum::<f64>() / all;
    let extreme = ways[nb].iter().find(|w| **w > 0.0).copied().unwrap_or(all) / all;
    Some(MannWhitney {
        u_b: sum_b as f64 / 2.0 - (nb * (nb + 1)) as f64 / 2.0,
        p_two_sided: (2.0 * less.min(more)).min(1.0),
        p_b_less: less,
        least_p: (2.0 * extreme).min(1.0),
    })
}

/// Hodges and Lehmann's shift (1963): the median of all differences, and the interval between order statistics of them
/// whose exact coverage is at least 95 %, where the samples are large enough for one.
pub fn hodges_lehmann(a: &[f64], b: &[f64]) -> Option<(f64, Option<(f64, f64)>)> {
    let mut differences: Vec<f64> = b.iter().flat_map(|y| a.iter().map(move |x| y - x)).collect();
    if differences.is_empty() || differences.len() > MOST_PAIRS {
        return None;
    }
    differences.sort_by(f64::total_cmp);
    // The distribution of U where nothing differs and nothing ties.
    let (na, nb) = (a.len(), b.len());
    let mut ways = vec![vec![0.0f64; na * nb + 1]; nb + 1];
    ways[0][0] = 1.0;
    for rank in 0..na + nb {
        for k in (1..=nb).rev() {
            // The k-th smallest of b has rank - (k - 1) of a below it.
            let Some(below) = (rank + 1).checked_sub(k).filter(|below| *below <= na) else {
                continue;
            };
            let (fewer, own) = ways.split_at_mut(k);
            for s in (below..=na * nb).rev() {
                own[0][s] += fewer[k - 1][s - below];
            }
        }
    }
    let all: f64 = ways[nb].iter().sum();
    let mut tail = 0.0;
    let outside = ways[nb].iter().take_while(|w| {
        tail += *w / all;
        tail <= 0.025
    });
    let outside = outside.count();
    let interval =
        (outside > 0).then(|| (differences[outside - 1], differences[differences.len() - outside]));
    Some((median(&differences), interval))
}

/// Share of all ways to deal the pooled values whose means differ at least as much (Fisher 1935). `None` for more than
/// 200,000 ways.
pub fn permutation(a: &[f64], b: &[f64]) -> Option<f64> {
    let pooled: Vec<f64> = a.iter().chain(b).copied().collect();
    let (n, nb) = (pooled.len(), b.len());
    let ways = (0..nb).try_fold(1u64, |ways, i| {
        ways.checked_mul((n - i) as u64).map(|w| w / (i as u64 + 1))
    })?;
    if a.is_empty() || b.is_empty() || ways > 200_000 {
        return None;
    }
    let total: f64 = pooled.iter().sum();
    let differ = |sum_b: f64| (sum_b / nb as f64 - (total - sum_b) / (n - nb) as f64).abs();
    let observed = differ(b.iter().sum());
    let slack = 1e-9 * (1.0 + observed);
    let mut chosen: Vec<usize> = (0..nb).collect();
    let (mut hits, mut count) = (0u64, 0u64);
    loop {
        count += 1;
        hits += u64::from(differ(chosen.iter().map(|i| pooled[*i]).sum()) >= observed - slack);
        let Some(at) = (0..nb).rev().find(|&i| chosen[i] < n - nb + i) else {
            return Some(hits as f64 / count as f64);
        };
        chosen[at] += 1;
        for i in at + 1..nb {
            chosen[i] = chosen[i - 1] + 1;
        }
    }
}

/// Cohen's d by the pooled standard deviation, and Hedges' g, which takes its bias away (Hedges 1981, approximate).
pub fn standardised(a: Summary, b: Summary) -> Option<(f64, f64)> {
    let (t, degrees, _) = student(a, b)?;
    let d = t * libm::sqrt(1.0 / a.n as f64 + 1.0 / b.n as f64);
    Some((d, d * (1.0 - 3.0 / (4.0 * degrees - 1.0))))
}

/// Cliff's delta: how much more often `b` is more than less.
pub fn cliffs_delta(a: &[f64], b: &[f64]) -> Option<f64> {
    let pairs = (a.len() * b.len()) as f64;
    let sign = |x: f64, y: f64| f64::from(i8::from(y > x) - i8::from(y < x));
    let sum: f64 = b.iter().flat_map(|y| a.iter().map(move |x| sign(*x, *y))).sum();
    (pairs > 0.0).then(|| sum / pairs)
}

/// Two-sided p of so many lower pairs of all pairs that differ (sign test).
pub fn sign_test(lower: usize, pairs: usize) -> f64 {
    let log_ways = |k: usize| {
        let (n, k) = (pairs as f64, k as f64);
        libm::lgamma(n + 1.0) - libm::lgamma(k + 1.0) - libm::lgamma(n - k + 1.0)
    };
    let few = lower.min(pairs.saturating_sub(lower));
    let each = |k: usize| libm::exp(log_ways(k) - pairs as f64 * std::f64::consts::LN_2);
    (2.0 * (0..=few).map(each).sum::<f64>()).min(1.0)
}

/// Two-sided p of Wilcoxon's signed ranks (1945), exact over all signs; `None` for more than 60 pairs.
pub fn wilcoxon(differences: &[f64]) -> Option<f64> {
    let mut left: Vec<f64> = differences.iter().copied().filter(|d| *d != 0.0).collect();
    if left.is_empty() || left.len() > 60 {
        return None;
    }
    left.sort_by(|x, y| x.abs().total_cmp(&y.abs()));
    let mut ways = vec![1.0f64];
    let (mut from, mut positive) = (0, 0usize);
    while from < left.len() {
        let same = left[from..]
            .iter()
            .take_while(|d| d.abs() == left[from].abs())
            .count()
            .max(1);
        let rank = 2 * from + same + 1; // twice the mean rank
        for d in &left[from..from + same] {
            positive += if *d > 0.0 { rank } else { 0 };
            let mut next = vec![0.0; ways.len() + rank];
            for (s, w) in ways.iter().enumerate() {
                next[s] += w;
                next[s + rank] += w;
            }
            ways = next;
        }
        from += same;
    }
    let all: f64 = ways.iter().sum();
    let below = ways[..=positive].iter().sum::<f64>() / all;
    let above = ways[positive..].iter().sum::<f64>() / all;
    Some((2.0 * below.min(above)).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_small_samples_are_those_of_the_tables() {
        let u = mann_whitney(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]).expect("small");
        assert_eq!((u.u_b, u.p_two_sided, u.least_p), (9.0, 0.1, 0.1));
        // Four a side 0.029, five 0.0079.
        let least = |n: i32| {
            let low: Vec<f64> = (0..n).map(f64::from).collect();
            let high: Vec<f64> = (n..2 * n).map(f64::from).collect();
            mann_whitney(&low, &high).expect("small").p_two_sided
        };
        assert!((least(4) - 2.0 / 70.0).abs() < 1e-12 && (least(5) - 2.0 / 252.0).abs() < 1e-12);
        let tied = mann_whitney(&[1.0, 1.0], &[1.0, 1.0]).expect("small");
        assert_eq!((tied.u_b, tied.p_two_sided), (2.0, 1.0));
    }

    #[test]
    fn shifts_have_intervals_where_samples_are_large_enough() {
        let low: Vec<f64> = (0..10).map(f64::from).collect();
        let high: Vec<f64> = (0..10).map(|i| f64::from(i) + 20.0).collect();
        assert_eq!(hodges_lehmann(&low[..3], &high[..3]).expect("small").1, None);
        // The tables' critical value of U for ten a side is 23: the 24th difference from either end.
        let (shift, interval) = hodges_lehmann(&low, &high).expect("small");
        let mut all: Vec<f64> = high.iter().flat_map(|y| low.iter().map(move |x| y - x)).collect();
        all.sort_by(f64::total_cmp);
        assert_eq!((shift, interval), (20.0, Some((all[23], all[76]))));
    }

    #[test]
    fn nothing_and_constants_have_no_test() {
        let none = Summary::of(&[]);
        assert_eq!(welch(none, none), None);
        let flat = Summary::of(&[2.0, 2.0, 2.0]);
        assert_eq!((welch(flat, flat), standardised(flat, flat)), (None, None));
        assert_eq!(
            (mann_whitney(&[], &[1.0]), permutation(&[], &[1.0])),
            (None, None)
        );
        assert_eq!(wilcoxon(&[0.0]), None);
    }
}
