//! The filters of one node that look alike: means and the lower triangles of covariances, one after another.
//!
//! One step of one filter, with `g = P H'` and `S = H P H'`, for noise that is a mixture of parts `i`:
//!
//! ```text
//! v_i = S + var(r) + extra_i     e_i = y - H m - offset_i s     L_i = w_i N(e_i; 0, v_i)     L = sum L_i
//! m += g A                       A = sum (L_i / L) e_i / v_i
//! P -= g g' B                    B = sum (L_i / L) (1 / v_i - e_i^2 / v_i^2) + A^2
//! ```
//!
//! Every part updates along the same direction `g`, so the collapsed mixture is one update of rank one. A boot that
//! was cut off at `y` has `L_i = w_i Phi(+-e_i / sqrt v_i)` instead, its first two derivatives alike (Tobin 1958).

use super::Settings;
use crate::noise::boot_variance;
use crate::noise::{Cell, Cells, Drift, Part, SWITCH_DELTA_SD, TREND_SD};
use crate::stats::phi;

pub const LEVEL: usize = 0;
pub const DELTA: usize = 1;
pub const TREND: usize = 2;
/// Likelihood of a boot beyond what any part explains: nothing is learned from it, so that nothing becomes infinite.
const HOPELESS: f64 = 1e-290;

#[derive(Clone, Default)]
pub struct Tank {
    dims: usize,
    cells: Vec<u16>,
    weight: Vec<f64>,
    /// `dims` means, then the triangle, of each filter.
    numbers: Vec<f64>,
}

pub struct Boot {
    pub y: f64,
    pub runs: u32,
    /// Variance of its runs.
    pub within: f64,
    /// 1: what was cut off lies above `y`, -1: below, 0: nothing was.
    pub cut: f64,
    /// Since the boot before.
    pub hours: f64,
}

/// The sparse row H of a boot: entries of the state with coefficients.
pub struct Sight {
    at: [(usize, f64); 5],
    len: usize,
    bad: bool,
}

impl Sight {
    pub fn new(bad: bool) -> Sight {
        let mut at = [(LEVEL, 1.0); 5];
        at[1] = (DELTA, 1.0);
        Sight {
            at,
            bad,
            len: 1 + usize::from(bad),
        }
    }

    pub fn see(&mut self, index: usize, coefficient: f64) {
        self.at[self.len] = (index, coefficient);
        self.len += 1;
    }
}

fn triangle(dims: usize) -> usize {
    dims * (dims + 1) / 2
}

impl Tank {
    pub fn new(numbers: &[u16], cells: &[Cell], settings: &Settings) -> Tank {
        let trend = numbers.iter().any(|&c| cells[c as usize].drift == Drift::Trend);
        let dims = 2 + usize::from(trend);
        let mut one = vec![0.0; dims + triangle(dims)];
        one[LEVEL] = settings.level_mean;
        one[dims] = settings.level_sd * settings.level_sd;
        one[dims + 2] = settings.delta_sd * settings.delta_sd;
        if trend {
            one[dims + 5] = TREND_SD * TREND_SD;
        }
        Tank {
            dims,
            cells: numbers.to_vec(),
            weight: numbers.iter().map(|&c| cells[c as usize].prior).collect(),
            numbers: numbers
                .iter()
                .flat_map(|&c| {
                    let mut own = one.clone();
                    if cells[c as usize].switch {
                        own[dims + 2] = SWITCH_DELTA_SD * SWITCH_DELTA_SD;
                    }
                    own
                })
                .collect(),
        }
    }

    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// Cell and weight of each filter.
    pub fn filters(&self) -> impl Iterator<Item = (usize, f64)> {
        self.cells
            .iter()
            .map(|&c| c as usize)
            .zip(self.weight.iter().copied())
    }

    /// Cell, weight, means and triangle of each filter.
    pub fn states(&self) -> impl Iterator<Item = (usize, f64, &[f64], &[f64])> {
        let stride = self.dims + triangle(self.dims);
        let states = self
            .numbers
            .chunks_exact(stride.max(1))
            .map(|n| n.split_at(self.dims));
        self.filters().zip(states).map(|((c, w), (m, p))| (c, w, m, p))
    }

    pub fn scale(&mut self, factor: f64) {
        self.weight.iter_mut().for_each(|w| *w *= factor);
    }

    pub fn retain(&mut self, keep: impl Fn(usize, f64) -> bool) {
        let stride = self.dims + triangle(self.dims);
        let mut to = 0;
        for from in 0..self.cells.len() {
            if keep(self.cells[from] as usize, self.weight[from]) {
                if to != from {
                    self.cells[to] = self.cells[from];
                    self.weight[to] = self.weight[from];
                    self.numbers
                        .copy_within(from * stride..(from + 1) * stride, to * stride);
                }
                to += 1;
            }
        }
        self.cells.truncate(to);
        self.weight.truncate(to);
        self.numbers.truncate(to * stride);
    }

    /// A new entry of the state at `at`, mean 0, `sd` of its own; what was there and after moves up.
    pub fn open(&mut self, at: usize, sd: impl Fn(&Cell) -> f64, cells: &[Cell]) {
        let (old, new) = (self.dims, self.dims + 1);
        let mut numbers = Vec::with_capacity(self.cells.len() * (new + triangle(new)));
        for (cell, state) in self
            .cells
            .iter()
            .zip(self.numbers.chunks_exact(old + triangle(old)))
        {
            let (m, p) = state.split_at(old);
            numbers.extend_from_slice(&m[..at]);
            numbers.push(0.0);
            numbers.extend_from_slice(&m[at..]);
            let variance = sd(&cells[*cell as usize]).powi(2);
            for i in 0..new {
                for j in 0..=i {
                    let from = |k: usize| if k > at { k - 1 } else { k };
                    numbers.push(match (i == at, j == at) {
                        (true, true) => variance,
                        (true, false) | (false, true) => 0.0,
                        (false, false) => p[triangle(from(i)) + from(j)],
                    });
                }
            }
        }
        (self.numbers, self.dims) = (numbers, new);
    }

    /// The entry at `at` begins anew.
    pub fn renew(&mut self, at: usize, sd: impl Fn(&Cell) -> f64, cells: &[Cell]) {
        let dims = self.dims;
        for (cell, state) in self
            .cells
            .iter()
            .zip(self.numbers.chunks_exact_mut(dims + triangle(dims)))
        {
            state[at] = 0.0;
            let p = &mut state[dims..];
            p[triangle(at)..triangle(at) + at].fill(0.0);
            for i in at..dims {
                p[triangle(i) + at] = 0.0;
            }
            p[triangle(at) + at] = sd(&cells[*cell as usize]).powi(2);
        }
    }

    pub fn step(&mut self, boot: &Boot, sight: &Sight, cells: &Cells) {
        // The small sizes are by far the most frequent: known to the compiler, their loops unroll.
        match self.dims {
            2 => self.step_of(2, boot, sight, cells),
            3 => self.step_of(3, boot, sight, cells),
            dims => self.step_of(dims, boot, sight, cells),
        }
    }

    #[inline(always)]
    fn step_of(&mut self, dims: usize, boot: &Boot, sight: &Sight, cells: &Cells) {
        let mut g = [0.0f64; 64];
        let mut long = vec![0.0; if dims > g.len() { dims } else { 0 }];
        let g = if dims > g.len() {
            &mut long[..]
        } else {
            &mut g[..dims]
        };
        let states = self.numbers.chunks_exact_mut(dims + triangle(dims));
        for ((number, weight), state) in self.cells.iter().zip(&mut self.weight).zip(states) {
            let cell = &cells.all[*number as usize];
            let (m, p) = state.split_at_mut(dims);
            if let Drift::Walk(q) = cell.drift {
                p[0] += q * cell.s * cell.s * boot.hours;
            }
            let (mut spread, mut error) = (0.0, boot.y);
            g.fill(0.0);
            for &(h, c) in &sight.at[..sight.len] {
                for (j, g) in g.iter_mut().enumerate() {
                    let (high, low) = if j > h { (j, h) } else { (h, j) };
                    *g += c * p[triangle(high) + low];
                }
                error -= c * m[h];
            }
            for &(h, c) in &sight.at[..sight.len] {
                spread += c * g[h];
            }
            let noise = boot_variance(cell.s * cell.s, boot.within, boot.runs);
            let parts = cells.shapes[cell.shape].parts(sight.bad);
            let told = if boot.cut == 0.0 {
                explain(error, spread + noise, cell.s, parts)
            } else {
                explain_cut(error, boot.cut, spread + noise, cell.s, parts)
            };
            if told.likelihood.is_nan() || told.likelihood <= HOPELESS {
                *weight *= HOPELESS;
                continue;
            }
            *weight *= told.likelihood;
            for i in 0..dims {
                m[i] += g[i] * told.pull;
                let shrink = g[i] * told.shrink;
                for (p, gj) in p[triangle(i)..=triangle(i) + i].iter_mut().zip(&*g) {
                    *p -= shrink * gj;
                }
            }
        }
    }
}

struct Told {
    likelihood: f64,
    pull: f64,
    shrink: f64,
}

/// `L`, `A` and `B` of the module's formulas, without the constant `1 / sqrt(2 pi)`.
#[inline(always)]
fn explain(error: f64, variance: f64, s: f64, parts: &[Part]) -> Told {
    let (mut likelihood, mut first, mut second, mut inverse) = (0.0, 0.0, 0.0, 0.0);
    for part in parts {
        let e = error - part.offset * s;
        let over = 1.0 / (variance + part.extra);
        let pull = e * over;
        let weight = part.weight * libm::exp(-0.5 * e * pull) * over.sqrt();
        likelihood += weight;
        first += weight * pull;
        second += weight * pull * pull;
        inverse += weight * over;
    }
    let pull = first / likelihood;
    Told {
        likelihood,
        pull,
        shrink: (inverse - second) / likelihood + pull * pull,
    }
}

/// The same of a boot that was cut off: `y` is where, `side` on which side of it the value lies.
#[cold]
fn explain_cut(error: f64, side: f64, variance: f64, s: f64, parts: &[Part]) -> Told {
    let (mut likelihood, mut first, mut curve) = (0.0, 0.0, 0.0);
    for part in parts {
        let over = 1.0 / (variance + part.extra);
        let root = over.sqrt();
        let z = side * (error - part.offset * s) * root;
        let tail = phi(-z);
        let density = libm::exp(-0.5 * z * z) / libm::sqrt(2.0 * std::f64::consts::PI);
        likelihood += part.weight * tail;
        first += part.weight * side * density * root;
        curve += part.weight * density * z * over;
    }
    let pull = first / likelihood;
    Told {
        likelihood,
        pull,
        shrink: pull * pull - curve / likelihood,
    }
}
