//! From the filters of all classes and cells to what is told: likelihoods of classes, moments of the unknowns.

use super::{DELTA, Folded, Model, Node, State, TREND, prior_of};
use crate::noise::{Cell, Drift, Part};

pub fn gather(nodes: &[Node], model: &Model<'_>, size: usize) -> Folded {
    let classes = model.class_prior.len();
    let mut folded = Folded {
        log_likelihood: vec![f64::NEG_INFINITY; classes],
        delta: vec![(0.0, model.delta_sd * model.delta_sd); classes],
        s2: 0.0,
        kappa2: 0.0,
        walk2: 0.0,
        slope2: 0.0,
        outliers: 0.0,
        two_modes: 0.0,
        drifts: 0.0,
        mode_spread: 0.0,
    };
    let best = nodes
        .iter()
        .flat_map(|n| {
            n.states
                .iter()
                .map(|s| s.log_weight + model.cells[s.cell].log_prior)
        })
        .fold(f64::NEG_INFINITY, f64::max);
    if !best.is_finite() {
        folded.log_likelihood = vec![0.0; classes];
        return folded;
    }
    let mut all = 0.0;
    for node in nodes {
        let mut here = Moments::default();
        for state in &node.states {
            let cell = &model.cells[state.cell];
            let w = libm::exp((state.log_weight + cell.log_prior - best).max(-700.0));
            here.add(w, state, cell, size, &model.shapes[cell.shape].0);
        }
        let prior = prior_of(node, model.class_prior);
        all += prior * here.weight;
        folded.s2 += prior * here.s2;
        folded.kappa2 += prior * here.kappa2;
        folded.walk2 += prior * here.walk2;
        folded.slope2 += prior * here.slope2;
        folded.outliers += prior * here.outliers;
        folded.two_modes += prior * here.two_modes;
        folded.drifts += prior * here.drifts;
        folded.mode_spread += prior * here.mode_spread;
        for &k in &node.classes {
            folded.log_likelihood[k] = libm::log(here.weight.max(1e-300));
            folded.delta[k] = here.delta();
        }
    }
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
}

impl Moments {
    fn add(&mut self, w: f64, state: &State, cell: &Cell, size: usize, parts: &[Part]) {
        let s2 = cell.s * cell.s;
        self.weight += w;
        self.d1 += w * state.m[DELTA];
        self.d2 += w * (state.m[DELTA] * state.m[DELTA] + state.p[DELTA * size + DELTA].max(0.0));
        self.s2 += w * s2;
        self.kappa2 += w * cell.kappa * cell.kappa;
        match cell.drift {
            Drift::Walk(q) => {
                self.walk2 += w * q * s2;
                self.drifts += if q > 0.0 { w } else { 0.0 };
            }
            Drift::Trend => {
                let slope = state.m[TREND];
                self.slope2 += w * slope * slope;
                self.walk2 += w * state.p[TREND * size + TREND].max(0.0);
                self.drifts += w;
            }
        }
        self.outliers += w * parts
            .iter()
            .filter(|p| p.extra > 0.0)
            .map(|p| p.weight)
            .sum::<f64>();
        if let [main, second, _] = parts {
            self.two_modes += w;
            // Variance that the second mode adds to a boot whose mode is not known.
            let share = second.weight / (main.weight + second.weight);
            self.mode_spread += w * share * (1.0 - share) * second.offset * second.offset * s2;
        }
    }

    fn delta(&self) -> (f64, f64) {
        let mean = self.d1 / self.weight.max(1e-300);
        (mean, (self.d2 / self.weight.max(1e-300) - mean * mean).max(0.0))
    }
}
