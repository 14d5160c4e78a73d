//! `perfbisect compare`: two kernels' numbers side by side: the textbook's tests, and what the mind makes of them.

use anyhow::{Context, bail};
use bisect::compare::{self, Summary};
use bisect::*;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::process::ExitCode;

/// Compare the numbers of two kernels, each number a boot of its own.
#[derive(clap::Args)]
pub struct Args {
    /// The old kernel's numbers, divided by commas; `>300` where a run was cut off there.
    #[arg(long, value_delimiter = ',', required = true, allow_hyphen_values = true)]
    old: Vec<String>,
    /// The new kernel's numbers.
    #[arg(long, value_delimiter = ',', required = true, allow_hyphen_values = true)]
    new: Vec<String>,
    /// Less is better: times, latencies.
    #[arg(long)]
    lower_is_better: bool,
    /// Smallest loss that matters, in per cent.
    #[arg(long, default_value_t = 3.0)]
    min_effect_pct: f64,
    /// One JSON object instead of text.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if !(args.min_effect_pct > 0.0 && args.min_effect_pct < 1000.0) {
        bail!("--min-effect-pct {}: is between 0 and 1000", args.min_effect_pct);
    }
    let (old, new) = (values(&args.old)?, values(&args.new)?);
    let figures = figures(&old, &new, !args.lower_is_better, args.min_effect_pct);
    if args.json {
        println!("{figures}");
    } else {
        say(&figures);
    }
    Ok(ExitCode::SUCCESS)
}

fn values(texts: &[String]) -> anyhow::Result<Vec<Value>> {
    let number = |text: &str| -> anyhow::Result<f64> {
        let number: f64 = text
            .trim()
            .parse()
            .with_context(|| format!("{text:?} is no number"))?;
        if !(number > 0.0 && number.is_finite()) {
            bail!("{text}: numbers are above 0");
        }
        Ok(number)
    };
    texts
        .iter()
        .map(|text| match (text.strip_prefix('>'), text.strip_prefix('<')) {
            (Some(least), _) => number(least).map(Value::AtLeast),
            (_, Some(most)) => number(most).map(Value::AtMost),
            _ => number(text).map(Value::Exact),
        })
        .collect()
}

/// Everything that can be said about two samples; what can't be said is null.
pub fn figures(old: &[Value], new: &[Value], higher_is_better: bool, min_effect_pct: f64) -> Json {
    let exact = |side: &[Value]| -> Option<Vec<f64>> {
        let one = |v: &Value| match v {
            Value::Exact(x) => Some(*x),
            Value::AtLeast(_) | Value::AtMost(_) => None,
        };
        side.iter().map(one).collect()
    };
    let mut figures = match (exact(old), exact(new)) {
        (Some(a), Some(b)) => tests(&a, &b),
        _ => json!({}),
    };
    figures["judgement"] = judgement(old, new, higher_is_better, min_effect_pct);
    figures
}

fn summary(s: Summary) -> Json {
    json!({ "n": s.n, "mean": s.mean, "sd": s.sd })
}

fn tests(a: &[f64], b: &[f64]) -> Json {
    let (sa, sb) = (Summary::of(a), Summary::of(b));
    let logs = |v: &[f64]| Summary::of(&v.iter().map(|x| x.ln()).collect::<Vec<f64>>());
    let pct = |log: f64| 100.0 * log.exp_m1();
    let mut figures = by_summary(sa, sb);
    figures["welch_log"] = json!(compare::welch(logs(a), logs(b)).map(|w| json!({
        "t": w.t, "df": w.degrees, "p_two_sided": w.p_two_sided, "ci95_ratio_pct": [pct(w.ci95.0), pct(w.ci95.1)],
    })));
    figures["mann_whitney"] = json!(compare::mann_whitney(a, b).map(|u| json!({
        "U_b": u.u_b, "p_two_sided_exact": u.p_two_sided, "p_one_sided_b_less_exact": u.p_b_less,
        "min_possible_p_two_sided": u.least_p,
    })));
    figures["permutation_p_two_sided"] = json!(compare::permutation(a, b));
    let shift = compare::hodges_lehmann(a, b);
    figures["hodges_lehmann_shift"] = json!(shift.map(|s| s.0));
    figures["hodges_lehmann_ci95"] = json!(shift.and_then(|s| s.1).map(|i| [i.0, i.1]));
    figures["cliffs_delta"] = json!(compare::cliffs_delta(a, b));
    figures
}

/// What sizes, means and standard deviations alone tell.
pub fn by_summary(a: Summary, b: Summary) -> Json {
    let standardised = compare::standardised(a, b);
    json!({
        "old": summary(a), "new": summary(b),
        "diff": b.mean - a.mean, "diff_pct": 100.0 * (b.mean - a.mean) / a.mean,
        "welch": compare::welch(a, b).map(|w| json!({
            "t": w.t, "df": w.degrees, "p_two_sided": w.p_two_sided, "ci95_diff": [w.ci95.0, w.ci95.1],
        })),
        "student": compare::student(a, b).map(|s| json!({ "t": s.0, "df": s.1, "p_two_sided": s.2 })),
        "variance_ratio": compare::variance_ratio(a, b).map(|f| json!({ "F": f.0, "p_two_sided": f.1 })),
        "cohens_d": standardised.map(|s| s.0), "hedges_g": standardised.map(|s| s.1),
    })
}

/// What the mind makes of the numbers as boots of two neighbouring kernels, one after the other in turn.
fn judgement(old: &[Value], new: &[Value], higher_is_better: bool, min_effect_pct: f64) -> Json {
    let (good, bad) = (CommitId::new("old"), CommitId::new("new"));
    let commits = vec![
        Commit {
            id: good.clone(),
            parents: Vec::new(),
        },
        Commit {
            id: bad.clone(),
            parents: vec![good.clone()],
        },
    ];
    let Ok(history) = History::new(good.clone(), bad.clone(), commits, false, BTreeMap::new()) else {
        return Json::Null;
    };
    let machine = MachineId::new("m1");
    let boots = |side: &[Value], commit: &CommitId, turn: f64| -> Vec<Observation> {
        let numbered = side.iter().zip(0u32..);
        numbered
            .map(|(value, replicate)| Observation {
                kernel: Kernel::plain(commit.clone()),
                machine: machine.clone(),
                replicate,
                at_s: 240.0 * (2.0 * f64::from(replicate) + turn),
                outcome: Outcome::Measured {
                    values: vec![*value],
                    others: BTreeMap::new(),
                },
            })
            .collect()
    };
    let mut observations = boots(old, &good, 0.0);
    observations.extend(boots(new, &bad, 1.0));
    let record = Record {
        policy: Policy {
            metric: Metric {
                name: "numbers".into(),
                unit: String::new(),
                higher_is_better,
                may_be_zero: false,
            },
            min_effect: MinEffect::Pct(min_effect_pct),
            confidence: 0.99,
            seed: 0,
            look_for: LookFor::First,
            costs: Costs::default(),
            limits: Limits::default(),
            confirm: Confirm::default(),
            other_metrics: Vec::new(),
        },
        machines: vec![Machine {
            id: machine.clone(),
            busy: false,
        }],
        builders: 0,
        now_s: 480.0 * old.len().max(new.len()) as f64,
        images: Vec::new(),
        observations,
        pending: Vec::new(),
        overrides: Vec::new(),
    };
    let plan = bisect::plan(&history, &record);
    let worse = plan.effect.is_some_and(|e| (e.pct < 0.0) == higher_is_better);
    let word = match (&plan.step, plan.p_no_change) {
        (Step::Conclude(c), _) if c.first_bad.is_empty() => c.status.word(),
        (_, p) if p < 0.01 && worse => "loss",
        (_, p) if p < 0.01 => "gain",
        _ => "open",
    };
    json!({
        "word": word, "p_no_change": plan.p_no_change,
        "effect_pct": plan.effect.map(|e| e.pct),
        "ci95_pct": plan.effect.map(|e| [e.ci95_pct.0, e.ci95_pct.1]),
        "min_detectable_pct": plan.min_detectable_pct,
        "reason": plan.reason,
    })
}

fn say(figures: &Json) {
    let number = |at: &str| figures.pointer(at).and_then(Json::as_f64);
    let pair = |at: &str| Some((number(&format!("{at}/0"))?, number(&format!("{at}/1"))?));
    for side in ["old", "new"] {
        if let (Some(mean), Some(sd), Some(n)) = (
            number(&format!("/{side}/mean")),
            number(&format!("/{side}/sd")),
            number(&format!("/{side}/n")),
        ) {
            println!("{side:14} {mean:.6}, standard deviation {sd:.6}, {n} numbers");
        }
    }
    if let (Some(diff), Some(pct)) = (number("/diff"), number("/diff_pct")) {
        println!("difference     {diff:+.6} ({pct:+.2} %)");
    }
    if let (Some(t), Some(df), Some(p), Some((low, high))) = (
        number("/welch/t"),
        number("/welch/df"),
        number("/welch/p_two_sided"),
        pair("/welch/ci95_diff"),
    ) {
        println!("Welch          t {t:.4}, {df:.4} degrees, p {p:.6}, 95 % interval {low:+.6} to {high:+.6}");
    }
    if let (Some(u), Some(p), Some(least)) = (
        number("/mann_whitney/U_b"),
        number("/mann_whitney/p_two_sided_exact"),
        number("/mann_whitney/min_possible_p_two_sided"),
    ) {
        println!("Mann-Whitney   U {u}, exact p {p:.6} (least possible {least:.6})");
    }
    if let Some(shift) = number("/hodges_lehmann_shift") {
        let interval = pair("/hodges_lehmann_ci95");
        let interval = interval.map_or("too few for one".to_owned(), |(l, h)| {
            format!("{l:+.6} to {h:+.6}")
        });
        println!("Hodges-Lehmann {shift:+.6}, 95 % interval {interval}");
    }
    let text = |at: &str| figures.pointer(at).and_then(Json::as_str).unwrap_or("");
    println!(
        "judgement      {}: {}",
        text("/judgement/word"),
        text("/judgement/reason")
    );
}
