//! Two bisectors as they are written in an afternoon, in the same worlds: what a bound is worth shows when they
//! break it.

use bisect::Kernel;
use bisect::simulate::{Answer, Drawn, Shape};

/// Boots of three runs, as logs, one after the other on a clock.
struct Bench<'w> {
    world: &'w mut Drawn,
    minute: f64,
    built: Vec<u32>,
}

impl Bench<'_> {
    /// The plain mean of the runs of one more boot.
    fn boot(&mut self, commit: u32) -> f64 {
        if !self.built.contains(&commit) {
            self.built.push(commit);
            self.minute += 10.0;
        }
        self.minute += 2.0;
        let kernel = Kernel::plain(Shape::name(commit));
        let runs = self.world.runs(&kernel, 0, 60.0 * self.minute, 3);
        self.minute += 6.0;
        runs.iter().sum::<f64>() / 3.0
    }
}

fn judged(world: &Drawn, named: Option<u32>) -> Answer {
    match named {
        None => Answer::Undecided,
        Some(c) if world.losses().contains(&c) => Answer::Right,
        Some(_) => Answer::Wrong,
    }
}

/// Three runs in one boot each; whatever is nearer to the bad end is bad.
pub fn naive(world: &mut Drawn) -> Answer {
    let (mut low, mut high) = (world.shape.good, world.shape.bad);
    let mut bench = Bench {
        world,
        minute: 0.0,
        built: Vec::new(),
    };
    let (good, bad) = (bench.boot(low), bench.boot(high));
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        let y = bench.boot(middle);
        if (y - bad).abs() < (y - good).abs() {
            high = middle;
        } else {
            low = middle;
        }
    }
    judged(world, Some(high))
}

/// A Bayesian search on a line whose noise is normal, its size and both levels taken from the ends.
pub fn gaussian(world: &mut Drawn) -> Answer {
    const ENDS: usize = 4;
    const MOST: usize = 150;
    let (low, high) = (world.shape.good, world.shape.bad);
    let mut bench = Bench {
        world,
        minute: 0.0,
        built: Vec::new(),
    };
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for _ in 0..ENDS {
        good.push(bench.boot(low));
        bad.push(bench.boot(high));
    }
    let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
    let (g, b) = (mean(&good), mean(&bad));
    let square = |v: &[f64], m: f64| v.iter().map(|y| (y - m) * (y - m)).sum::<f64>();
    let variance = (square(&good, g) + square(&bad, b)) / (2.0 * ENDS as f64 - 2.0);
    // Ends that do not differ by two standard errors are refused.
    if (g - b).abs() < 2.0 * (2.0 * variance / ENDS as f64).sqrt() {
        return Answer::Undecided;
    }
    let first = low + 1;
    let mut log = vec![0.0; (high - low) as usize];
    for _ in 0..MOST {
        let top = log.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weight: Vec<f64> = log.iter().map(|l| (l - top).exp()).collect();
        let all: f64 = weight.iter().sum();
        if let Some(at) = weight.iter().position(|w| w / all >= 0.99) {
            return judged(world, Some(first + at as u32));
        }
        let mut sum = 0.0;
        let median = weight.iter().position(|w| {
            sum += w;
            sum >= 0.5 * all
        });
        let commit = first + median.unwrap_or(0) as u32;
        let y = bench.boot(commit);
        for (at, log) in log.iter_mut().enumerate() {
            let centre = if first + at as u32 <= commit { b } else { g };
            *log -= 0.5 * (y - centre) * (y - centre) / variance;
        }
    }
    Answer::Undecided
}
