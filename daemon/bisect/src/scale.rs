//! The scale on which levels are compared: logarithms for a metric that is always positive, so that a loss of
//! 5 % is the same step on every level; the metric's own unit, stretched so that the smallest effect asked for
//! is 0.03, for one that may be zero.
//!
//! Everything below works on this scale. Positive `y` is more of the number, whatever is better.

use crate::{MinEffect, Policy, Value};

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Scale {
    /// `Some(stretch)`: linear; `None`: logarithmic.
    stretch: Option<f64>,
    /// +1 where more is a loss (lower is better), -1 where less is.
    pub loss_sign: f64,
    /// Smallest loss that the user cares about, positive.
    pub least: f64,
}

impl Scale {
    pub fn of(policy: &Policy) -> Scale {
        let loss_sign = if policy.metric.higher_is_better { -1.0 } else { 1.0 };
        match policy.min_effect {
            MinEffect::Abs(abs) if abs > 0.0 && abs.is_finite() => Scale {
                stretch: Some(0.03 / abs),
                loss_sign,
                least: 0.03,
            },
            MinEffect::Abs(_) => Scale {
                stretch: Some(1.0),
                loss_sign,
                least: 0.03,
            },
            MinEffect::Pct(pct) => {
                let share = if pct.is_finite() {
                    (pct / 100.0).clamp(1e-6, 1e6)
                } else {
                    0.03
                };
                let least = if loss_sign < 0.0 {
                    -libm::log1p(-share.min(0.999))
                } else {
                    libm::log1p(share)
                };
                Scale {
                    stretch: None,
                    loss_sign,
                    least,
                }
            }
        }
    }

    /// A run on the scale; nothing for a number that cannot be on it.
    pub fn y(&self, value: Value) -> Option<f64> {
        let (Value::Exact(x) | Value::AtLeast(x) | Value::AtMost(x)) = value;
        let y = match self.stretch {
            Some(stretch) => x * stretch,
            None if x > 0.0 => libm::log(x),
            None => return None,
        };
        y.is_finite().then_some(y)
    }

    /// Back to the metric's unit.
    pub fn level(&self, y: f64) -> f64 {
        finite(match self.stretch {
            Some(stretch) => y / stretch,
            None => libm::exp(y),
        })
    }

    /// A difference as the plain change of the number in per cent; in the metric's unit where it may be zero.
    pub fn change(&self, delta: f64) -> f64 {
        finite(match self.stretch {
            Some(stretch) => delta / stretch,
            None => 100.0 * libm::expm1(delta),
        })
    }

    /// A spread, which has no sign, in per cent (or the metric's unit).
    pub fn spread(&self, sd: f64) -> f64 {
        finite(match self.stretch {
            Some(stretch) => sd / stretch,
            None => 100.0 * sd,
        })
    }

    /// The size of a loss `delta`: positive where it is one.
    pub fn loss(&self, delta: f64) -> f64 {
        self.loss_sign * delta
    }

    /// The smallest effect in the unit of [`Scale::change`], positive.
    pub fn shown_size(&self, size: f64) -> f64 {
        self.change(self.loss_sign * size).abs()
    }

    pub fn unit<'a>(&self, metric_unit: &'a str) -> &'a str {
        match self.stretch {
            Some(_) => metric_unit,
            None => "%",
        }
    }
}

/// What no double holds is the largest: a number is printed in any case.
fn finite(x: f64) -> f64 {
    x.clamp(f64::MIN, f64::MAX)
}
