//! The next step, with its reasons: the types. How it is found is in `decide`.

use crate::{CommitId, Conclusion, Job, Kernel};

/// Raised whenever the same record may give another plan; kept with every decision.
pub const PLANNER_VERSION: u32 = 3;

#[derive(Clone, PartialEq, Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one step a plan")]
pub enum Step {
    /// Each for a machine that is not busy; none pending or observed.
    Run(Vec<Job>),
    /// Nothing to ask for until a pending job ends.
    Wait,
    Conclude(Conclusion),
}

#[derive(Clone, PartialEq, Debug)]
pub struct Suspect {
    pub commit: CommitId,
    pub probability: f64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    Good,
    Bad,
    /// `why`: `build_failed`, `boot_failed`, `benchmark_failed`, `lost`, `override`.
    Skip {
        why: String,
    },
    /// Measured, not decided yet.
    Open,
}

/// The verdict on one kernel that was tried, with the numbers that made it.
#[derive(Clone, PartialEq, Debug)]
pub struct VerdictLine {
    pub commit: CommitId,
    pub verdict: Verdict,
    /// Boots measured and their level in the metric's unit.
    pub boots: u32,
    pub level: Option<f64>,
    /// Probability that this kernel is on the bad side.
    pub p_bad: Option<f64>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Effect {
    pub pct: f64,
    pub ci95_pct: (f64, f64),
}

#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Noise {
    pub boot_pct: f64,
    pub run_pct: f64,
    pub image_pct: f64,
    pub drift_pct_per_h: f64,
    pub outlier_share: f64,
    pub modes: u32,
}

#[derive(Clone, PartialEq, Debug)]
pub struct OtherMetric {
    pub name: String,
    pub effect: Option<Effect>,
    pub note: String,
}

#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Remaining {
    pub kernels: u32,
    pub boots: u32,
    pub time_s: f64,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    pub step: Step,
    pub build_ahead: Vec<Kernel>,
    /// The 20 most probable.
    pub suspects: Vec<Suspect>,
    /// All above 0.0001.
    pub suspects_left: u32,
    pub p_no_change: f64,
    pub verdicts: Vec<VerdictLine>,
    /// Between the ends.
    pub effect: Option<Effect>,
    /// Levels of the ends in the metric's unit, each with its 95 % interval.
    pub good_level: Option<(f64, f64, f64)>,
    pub bad_level: Option<(f64, f64, f64)>,
    pub noise: Noise,
    pub min_detectable_pct: Option<f64>,
    pub others: Vec<OtherMetric>,
    pub remaining: Remaining,
    pub reason: String,
}
