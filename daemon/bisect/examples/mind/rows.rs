//! The rows: which worlds, and what is to be reached in them.

use bisect::LookFor;
use bisect::simulate::{Form, MODELS, Noise, Setting, What};

pub const HEADER: &str = "row                                target         met | right                | wrong              | undecided            | claimed actual| minutes p50 p90, bound+ends, ratio | kernels, boots | a trial | endings";

pub struct Row {
    pub name: String,
    pub setting: Setting,
    pub target: Target,
    pub trials: usize,
}

#[derive(Clone, Copy)]
pub enum Target {
    /// At least this share right.
    Right(f64),
    /// At most this share wrong.
    Wrong(f64),
    /// Claimed and actual at most so far apart.
    Calibrated(f64),
    /// Median minutes against information bound and ends.
    Cost(f64),
    /// Median kernels beyond `ceil(log2 N)`.
    Kernels(f64),
}

impl Target {
    pub fn word(self) -> String {
        match self {
            Target::Right(least) => format!("right >= {:.0}", 100.0 * least),
            Target::Wrong(most) => format!("wrong <= {:.1}", 100.0 * most),
            Target::Calibrated(points) => format!("off <= {:.1}", 100.0 * points),
            Target::Cost(most) => format!("ratio <= {most:.1}"),
            Target::Kernels(more) => format!("log2 N + {more:.0}"),
        }
    }
}

const TRIALS: usize = 4000;
const TRIALS_NULL: usize = 10_000;
const SIGMA: f64 = 0.02;

fn model(name: &str) -> Noise {
    Noise::named(name, SIGMA).expect("a model of that name")
}

fn row(name: String, setting: Setting, target: Target) -> Row {
    let trials = if setting.changes.is_empty() {
        TRIALS_NULL
    } else {
        TRIALS
    };
    Row {
        name,
        setting,
        target,
        trials,
    }
}

fn level(factor: f64) -> What {
    What::Level(libm::log(factor))
}

/// The figures to reach, one kind after the other.
pub fn figures() -> Vec<Row> {
    let mut rows = Vec::new();
    for (commits, form) in [
        (1024, Form::Line),
        (1024, Form::Dag),
        (16_384, Form::Line),
        (16_384, Form::Dag),
    ] {
        for name in MODELS {
            let mut setting = Setting::new(commits, model(name));
            setting.form = form;
            rows.push(row(
                format!("{name} {} {commits}", word(form)),
                setting,
                Target::Right(0.99),
            ));
        }
    }
    for name in MODELS {
        for confidence in [0.95, 0.99, 0.999] {
            let mut setting = Setting::new(256, model(name));
            setting.confidence = confidence;
            rows.push(row(
                format!("calibration {name} {confidence}"),
                setting,
                Target::Calibrated(0.005),
            ));
        }
    }
    rows.extend(unkind());
    for name in MODELS.into_iter().chain(["real"]) {
        let mut setting = Setting::new(1024, model(name));
        setting.changes.clear();
        if name == "real" {
            setting.least_pct = 20.0;
        }
        rows.push(row(format!("no change {name}"), setting, Target::Wrong(0.002)));
    }
    for (name, most) in [("gauss", 1.3), ("boot", 1.7)] {
        for commits in [64, 1024, 16_384] {
            let setting = Setting::new(commits, model(name));
            rows.push(row(
                format!("cost {name} {commits}"),
                setting.clone(),
                Target::Cost(most),
            ));
            rows.push(row(
                format!("kernels {name} {commits}"),
                setting,
                Target::Kernels(2.0),
            ));
        }
    }
    let pairs = [
        ("-5 -5", 0.95, 0.95),
        ("-3 -7", 0.97, 0.93),
        ("+8 -12", 1.08, 0.88),
    ];
    for (name, first, second) in pairs {
        let noise = Noise::named("gauss", 0.01).expect("a model of that name");
        let mut setting = Setting::new(1024, noise);
        setting.changes = vec![level(first), level(second)];
        setting.look_for = LookFor::All;
        rows.push(row(format!("two changes {name}"), setting, Target::Right(0.97)));
    }
    let mut setting = Setting::new(256, model("gauss"));
    setting.noise.mode = (0.1, -0.08);
    setting.changes = vec![What::ModeShare(0.7)];
    rows.push(row(
        "only the slow mode's share".into(),
        setting.clone(),
        Target::Right(0.95),
    ));
    setting.noise.mode = (0.0, 0.0);
    setting.changes = vec![What::Spread(4.0)];
    rows.push(row("only the spread".into(), setting, Target::Wrong(0.01)));
    for machines in [1, 2, 4] {
        let mut setting = Setting::new(1024, model("boot"));
        setting.machines = machines;
        setting.builders = if machines == 1 { 0 } else { machines as u32 };
        rows.push(row(format!("machines {machines}"), setting, Target::Right(0.99)));
    }
    rows
}

/// Where a mind that takes images for equal and forks for fresh names the wrong commit.
fn unkind() -> Vec<Row> {
    let mut rows = Vec::new();
    for percent in [0.5, 1.0, 2.0] {
        let mut setting = Setting::new(256, model("boot"));
        setting.noise.image = percent / 100.0;
        rows.push(row(
            format!("image offsets {percent} %"),
            setting,
            Target::Wrong(0.01),
        ));
    }
    let mut setting = Setting::new(1024, model("gauss"));
    setting.innocents = (30, 0.003);
    rows.push(row("30 innocents of 0.3 %".into(), setting, Target::Wrong(0.01)));
    let mut setting = Setting::new(256, model("gauss"));
    setting.form = Form::StaleForks;
    rows.push(row("forks older than good".into(), setting, Target::Wrong(0.01)));
    // Boots under emulation on a busy host differ by a third: a loss is seen from 2.5 times that on.
    let mut setting = Setting::new(256, model("real"));
    setting.changes = vec![level(0.4)];
    setting.least_pct = 20.0;
    rows.push(row("real boots".into(), setting, Target::Wrong(0.01)));
    rows
}

fn word(form: Form) -> &'static str {
    match form {
        Form::Line => "line",
        Form::Dag => "DAG",
        Form::StaleForks => "stale forks",
    }
}

/// Every kind of noise on every kind of history.
pub fn sweep() -> Vec<Row> {
    let mut kinds: Vec<(String, Setting)> = Vec::new();
    for name in MODELS {
        kinds.push((name.into(), Setting::new(0, model(name))));
    }
    for percent in [0.5, 1.0, 2.0] {
        let mut setting = Setting::new(0, model("boot"));
        setting.noise.image = percent / 100.0;
        kinds.push((format!("image {percent} %"), setting));
    }
    let mut innocents = Setting::new(0, model("gauss"));
    innocents.innocents = (30, 0.003);
    kinds.push(("innocents 0.3 %".into(), innocents));
    let mut real = Setting::new(0, model("real"));
    real.changes = vec![level(0.4)];
    real.least_pct = 20.0;
    kinds.push(("real boots".into(), real));
    let mut rows = Vec::new();
    for (name, setting) in kinds {
        for form in [Form::Line, Form::Dag, Form::StaleForks] {
            if form == Form::StaleForks && name != "gauss" && name != "boot" {
                continue;
            }
            for commits in [64, 1024, 16_384] {
                let mut setting = setting.clone();
                (setting.commits, setting.form) = (commits, form);
                rows.push(row(
                    format!("{name} {} {commits}", word(form)),
                    setting,
                    Target::Wrong(0.01),
                ));
            }
        }
    }
    rows
}
