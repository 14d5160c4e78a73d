//! The next step, as it is printed, stored and shown.

use super::{conclusion_to_json, job_to_json, kernel_to_json};
use bisect::{Effect, Noise, OtherMetric, Plan, Remaining, Step, Suspect, Verdict, VerdictLine};
use serde_json::{Map, Value, json};

pub fn step_to_json(step: &Step) -> Value {
    match step {
        Step::Run(jobs) => json!({ "run": jobs.iter().map(job_to_json).collect::<Vec<_>>() }),
        Step::Wait => json!({ "wait": {} }),
        Step::Conclude(conclusion) => json!({ "conclude": conclusion_to_json(conclusion) }),
    }
}

fn effect_to_json(effect: &Effect) -> Value {
    let Effect { pct, ci95_pct } = effect;
    json!({ "pct": pct, "ci95_pct": [ci95_pct.0, ci95_pct.1] })
}

fn level_to_json(level: &(f64, f64, f64)) -> Value {
    json!({ "level": level.0, "ci95": [level.1, level.2] })
}

fn verdict_to_json(line: &VerdictLine) -> Value {
    let VerdictLine {
        commit,
        verdict,
        boots,
        level,
        p_bad,
    } = line;
    let (word, why) = match verdict {
        Verdict::Good => ("good", None),
        Verdict::Bad => ("bad", None),
        Verdict::Skip { why } => ("skip", Some(why)),
        Verdict::Open => ("open", None),
    };
    let mut map = Map::new();
    map.insert("commit".into(), json!(commit.as_str()));
    map.insert("verdict".into(), json!(word));
    if let Some(why) = why {
        map.insert("why".into(), json!(why));
    }
    map.insert("boots".into(), json!(boots));
    if let Some(level) = level {
        map.insert("level".into(), json!(level));
    }
    if let Some(p_bad) = p_bad {
        map.insert("p_bad".into(), json!(p_bad));
    }
    Value::Object(map)
}

pub fn plan_to_json(plan: &Plan) -> Value {
    let Plan {
        step,
        build_ahead,
        suspects,
        suspects_left,
        p_no_change,
        verdicts,
        effect,
        good_level,
        bad_level,
        noise,
        min_detectable_pct,
        others,
        remaining,
        reason,
    } = plan;
    let suspect = |s: &Suspect| json!({ "commit": s.commit.as_str(), "probability": s.probability });
    let other = |o: &OtherMetric| {
        let OtherMetric { name, effect, note } = o;
        json!({ "name": name, "effect": effect.as_ref().map(effect_to_json), "note": note })
    };
    let Noise {
        boot_pct,
        run_pct,
        image_pct,
        drift_pct_per_h,
        outlier_share,
        modes,
    } = noise;
    let Remaining {
        kernels,
        boots,
        time_s,
    } = remaining;
    json!({
        "step": step_to_json(step),
        "build_ahead": build_ahead.iter().map(kernel_to_json).collect::<Vec<_>>(),
        "suspects": suspects.iter().map(suspect).collect::<Vec<_>>(),
        "suspects_left": suspects_left,
        "p_no_change": p_no_change,
        "verdicts": verdicts.iter().map(verdict_to_json).collect::<Vec<_>>(),
        "effect": effect.as_ref().map(effect_to_json),
        "good_level": good_level.as_ref().map(level_to_json),
        "bad_level": bad_level.as_ref().map(level_to_json),
        "noise": {
            "boot_pct": boot_pct, "run_pct": run_pct, "image_pct": image_pct,
            "drift_pct_per_h": drift_pct_per_h, "outlier_share": outlier_share, "modes": modes,
        },
        "min_detectable_pct": min_detectable_pct,
        "others": others.iter().map(other).collect::<Vec<_>>(),
        "remaining": { "kernels": kernels, "boots": boots, "time_s": time_s },
        "reason": reason,
    })
}
