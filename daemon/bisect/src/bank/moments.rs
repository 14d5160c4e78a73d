//! From the filters of all nodes and cells to what is told: likelihoods of nodes, moments of the unknowns.

use super::tank::{DELTA, TREND};
use super::{Node, factors};
use crate::noise::{Cell, Cells, Drift, Shape};
use std::f64::consts::LN_2;

/// What the boots of one machine say.
#[derive(Clone, Debug, Default)]
pub struct Folded {
    /// Log likelihood of each node, up to a common constant.
    pub log_likelihood: Vec<f64>,
    /// Posterior mean and variance of delta in each node.
    pub delta: Vec<(f64, f64)>,
    /// Posterior means over everything: of `s^2`, `kappa^2`, walk variance an hour, outliers, two modes, any drift.
    pub s2: f64,
    pub kappa2: f64,
    pub walk2: f64,
    /// Square of a linear trend's slope, an hour: predicted, so no reason to look again.
    pub slope2: f64,
    pub outliers: f64,
    pub two_modes: f64,
    pub drifts: f64,
    pub mode_spread: f64,
    /// Probability that the change, if there is one, is one of the modes' shares.
    pub switch: f64,
}

pub(super) fn gather(nodes: &[Node], cells: &Cells) -> Folded {
    let mut folded = Folded::default();
    let (mut all, mut changed) = (0.0, 0.0);
    for (node, factor) in nodes.iter().zip(factors(nodes)) {
        let mut here = Moments::default();
        for tank in &node.tanks {
            for (number, weight, m, p) in tank.states() {
                let cell = &cells.all[number];
                here.add(weight, m, p, cell, &cells.shapes[cell.shape]);
            }
        }
        all += factor * here.weight;
        folded.s2 += factor * here.s2;
        folded.kappa2 += factor * here.kappa2;
        folded.walk2 += factor * here.walk2;
        folded.slope2 += factor * here.slope2;
        folded.outliers += factor * here.outliers;
        folded.two_modes += factor * here.two_modes;
        folded.drifts += factor * here.drifts;
        folded.mode_spread += factor * here.mode_spread;
        if !node.none {
            changed += factor * here.weight;
            folded.switch += factor * here.switch;
        }
        let log = libm::log(here.weight.max(1e-300)) + f64::from(node.exponent) * LN_2;
        folded.log_likelihood.push(log);
        folded.delta.push(here.delta());
    }
    folded.switch /= changed.max(1e-300);
    for sum in [
        &mut folded.s2,
        &mut folded.kappa2,
        &mut folded.walk2,
        &mut folded.slope2,
        &mut folded.outliers,
        &mut folded.two_modes,
        &mut folded.drifts,
        &mut folded.mode_spread,
    ] {
        *sum /= all.max(1e-300);
    }
    folded
}

#[derive(Default)]
struct Moments {
    weight: f64,
    d1: f64,
    d2: f64,
    s2: f64,
    kappa2: f64,
    walk2: f64,
    slope2: f64,
    outliers: f64,
    two_modes: f64,
    drifts: f64,
    mode_spread: f64,
    switch: f64,
}

impl Moments {
    fn add(&mut self, w: f64, m: &[f64], p: &[f64], cell: &Cell, shape: &Shape) {
        let s2 = cell.s * cell.s;
        self.weight += w;
        // Of the mean, whatever moves it.
        let delta = m[DELTA] + shape.shift() * cell.s;
        self.d1 += w * delta;
        self.d2 += w * (delta * delta + p[2].max(0.0));
        self.s2 += w * s2;
        self.kappa2 += w * cell.kappa * cell.kappa;
        match cell.drift {
            Drift::Walk(q) => {
                self.walk2 += w * q * s2;
                self.drifts += if q > 0.0 { w } else { 0.0 };
            }
            Drift::Trend => {
                let slope = m[TREND];
                self.slope2 += w * slope * slope;
                self.walk2 += w * p[5].max(0.0);
                self.drifts += w;
            }
        }
        let outliers = shape.good.iter().filter(|p| p.extra > 0.0);
        self.outliers += w * outliers.map(|p| p.weight).sum::<f64>();
        if let Some(spread) = shape.mode_spread() {
            self.two_modes += w;
            self.mode_spread += w * spread * s2;
        }
        self.switch += if cell.switch { w } else { 0.0 };
    }

    fn delta(&self) -> (f64, f64) {
        let mean = self.d1 / self.weight.max(1e-300);
        (mean, (self.d2 / self.weight.max(1e-300) - mean * mean).max(0.0))
    }
}
