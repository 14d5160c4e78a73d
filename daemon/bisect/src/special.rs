//! Special functions behind exact intervals and p-values, each with its source.

/// Steps of a continued fraction or a bisection: convergence takes about the root of the larger parameter.
const STEPS: usize = 2000;

/// Regularised incomplete beta function `I_x(a, b)`, by Lentz's continued fraction (Press et al., Numerical Recipes,
/// 3rd ed., 6.4; DLMF 8.17.22). NaN where a parameter is not above 0.
pub fn beta_cdf(x: f64, a: f64, b: f64) -> f64 {
    if !(a > 0.0 && b > 0.0) || x.is_nan() {
        return f64::NAN;
    }
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    // The fraction converges fast below the mean; above it the mirrored one does.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - beta_cdf(1.0 - x, b, a);
    }
    let front =
        libm::lgamma(a + b) - libm::lgamma(a) - libm::lgamma(b) + a * libm::log(x) + b * libm::log1p(-x);
    libm::exp(front) * fraction(x, a, b) / a
}

fn fraction(x: f64, a: f64, b: f64) -> f64 {
    let tiny = |v: f64| if v.abs() < 1e-300 { 1e-300 } else { v };
    let mut c = 1.0;
    let mut d = 1.0 / tiny(1.0 - (a + b) * x / (a + 1.0));
    let mut value = d;
    for m in 1..STEPS {
        let m = m as f64;
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        d = 1.0 / tiny(1.0 + even * d);
        c = tiny(1.0 + even / c);
        value *= d * c;
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        d = 1.0 / tiny(1.0 + odd * d);
        c = tiny(1.0 + odd / c);
        value *= d * c;
        if (d * c - 1.0).abs() < 1e-15 {
            break;
        }
    }
    value
}

/// Where `beta_cdf` reaches `p`, by bisection: monotone, so it can't miss.
pub fn beta_quantile(p: f64, a: f64, b: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..STEPS {
        let middle = 0.5 * (low + high);
        if middle <= low || middle >= high {
            break;
        }
        if beta_cdf(middle, a, b) < p {
            low = middle;
        } else {
            high = middle;
        }
    }
    0.5 * (low + high)
}

/// Probability that Student's t with so many degrees of freedom is further from 0 than `t`.
pub fn t_two_sided(t: f64, degrees: f64) -> f64 {
    if t.is_nan() || degrees.is_nan() || degrees <= 0.0 {
        return f64::NAN;
    }
    beta_cdf(degrees / (degrees + t * t), 0.5 * degrees, 0.5)
}

/// The `t` that is exceeded on either side together with probability `p`.
pub fn t_quantile_two_sided(p: f64, degrees: f64) -> f64 {
    let x = beta_quantile(p, 0.5 * degrees, 0.5);
    libm::sqrt(degrees * (1.0 - x) / x)
}

/// Probability that F with these degrees of freedom is more than `f`.
pub fn f_above(f: f64, top: f64, bottom: f64) -> f64 {
    if f.is_nan() || f < 0.0 {
        return f64::NAN;
    }
    beta_cdf(bottom / (bottom + top * f), 0.5 * bottom, 0.5 * top)
}

/// Probability of at least `seen` marked ones among `drawn` of `all`, of which `marked` are: Fisher's exact test.
pub fn hypergeometric_from(seen: usize, marked: usize, drawn: usize, all: usize) -> f64 {
    let choose = |n: usize, k: usize| {
        let ln = |x: usize| libm::lgamma(x as f64 + 1.0);
        ln(n) - ln(k) - ln(n - k)
    };
    let (marked, drawn) = (marked.min(all), drawn.min(all));
    let least = (marked + drawn).saturating_sub(all).max(seen);
    let terms = (least..=marked.min(drawn))
        .map(|k| libm::exp(choose(marked, k) + choose(all - marked, drawn - k) - choose(all, drawn)));
    terms.sum::<f64>().min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(got: f64, wanted: f64) {
        assert!(
            (got - wanted).abs() <= 1e-9 * (1.0 + wanted.abs()),
            "{got} instead of {wanted}"
        );
    }

    #[test]
    fn known_values_are_met() {
        // I_x(1, 1) = x; I_x(2, 3) is a polynomial; I_x(1/2, 1/2) is an arcsine.
        close(beta_cdf(0.3, 1.0, 1.0), 0.3);
        let x: f64 = 0.4;
        close(
            beta_cdf(x, 2.0, 3.0),
            6.0 * x * x - 8.0 * x * x * x + 3.0 * x * x * x * x,
        );
        close(
            beta_cdf(0.2, 0.5, 0.5),
            2.0 / std::f64::consts::PI * 0.2f64.sqrt().asin(),
        );
        // The tables of Student's t: 12.706, 4.3027, 2.2281 at 95 %.
        close(t_quantile_two_sided(0.05, 1.0), 12.706_204_736_174_698);
        close(t_quantile_two_sided(0.05, 10.0), 2.228_138_851_986_274);
        close(t_two_sided(4.302_652_729_696_142, 2.0), 0.05);
        close(f_above(4.964_602_744_168_4, 1.0, 10.0), 0.05);
    }

    #[test]
    fn quantiles_undo_the_distribution_over_a_wide_range() {
        for (a, b) in [
            (0.5, 0.5),
            (1.0, 4000.0),
            (3.0, 9998.0),
            (4000.0, 1.0),
            (35.0, 12.0),
        ] {
            for p in [1e-6, 0.025, 0.5, 0.975] {
                let x = beta_quantile(p, a, b);
                assert!((beta_cdf(x, a, b) - p).abs() < 1e-9, "{a} {b} {p}");
            }
        }
    }

    #[test]
    fn nonsense_has_no_probability() {
        assert!(beta_cdf(0.5, 0.0, 1.0).is_nan());
        assert!(t_two_sided(f64::NAN, 3.0).is_nan());
        assert!(f_above(-1.0, 1.0, 1.0).is_nan());
    }

    #[test]
    fn fisher_s_tea() {
        // Four of four cups right: one in 70; three of four: 17 in 70.
        assert!((hypergeometric_from(4, 4, 4, 8) - 1.0 / 70.0).abs() < 1e-12);
        assert!((hypergeometric_from(3, 4, 4, 8) - 17.0 / 70.0).abs() < 1e-12);
        assert!((hypergeometric_from(0, 4, 4, 8) - 1.0).abs() < 1e-12);
    }
}
