//! The same facts for programs: the body of a webhook. Fields are only ever added.

use super::{CommitText, Ending, Evidence};
use crate::plan_json::conclusion_to_json;
use bisect::{CommitId, Conclusion, MinEffect, Verdict};
use serde_json::{Value, json};

pub fn body(evidence: &Evidence) -> Value {
    let (kind, conclusion) = match &evidence.ending {
        Ending::Concluded(conclusion) => ("bisection.concluded", concluded(evidence, conclusion)),
        Ending::Cancelled => ("bisection.cancelled", json!({"status": "cancelled"})),
    };
    let metric = &evidence.metric;
    let (min_effect_pct, min_effect_abs) = match evidence.min_effect {
        MinEffect::Pct(pct) => (Some(pct), None),
        MinEffect::Abs(size) => (None, Some(size)),
    };
    let end = |end: &super::End| json!({"rev": end.rev, "commit": commit(evidence, &end.commit)});
    json!({
        "type": kind,
        "timestamp": evidence.ended_at.to_rfc3339_opts(chrono::SecondsFormat::Secs, true),
        "data": {
            "id": evidence.id,
            "number": evidence.number,
            "url": evidence.url,
            "tree": evidence.tree,
            "good": end(&evidence.good),
            "bad": end(&evidence.bad),
            "candidates": evidence.candidates,
            "workload": evidence.workload,
            "parameters": evidence.parameters,
            "metric": {"name": metric.name, "unit": metric.unit, "higher_is_better": metric.higher_is_better},
            "min_effect_pct": min_effect_pct,
            "min_effect_abs": min_effect_abs,
            "confidence": evidence.confidence,
            "machines": evidence.machines,
            "conclusion": conclusion,
            "measured": measured(evidence),
            "spent": {"builds": evidence.spent.builds, "boots": evidence.spent.boots, "time_s": evidence.spent.time_s},
        }
    })
}

fn commit(evidence: &Evidence, id: &CommitId) -> Value {
    match evidence.commits.get(id) {
        Some(CommitText {
            subject,
            author,
            date,
        }) => {
            json!({"id": id.as_str(), "subject": subject, "author": author, "date": date})
        }
        None => json!({"id": id.as_str()}),
    }
}

/// As everywhere else, but commits are told with their subjects.
fn concluded(evidence: &Evidence, conclusion: &Conclusion) -> Value {
    let mut told = conclusion_to_json(conclusion);
    let commits = |ids: &[CommitId]| ids.iter().map(|id| commit(evidence, id)).collect::<Value>();
    told["first_bad"] = commits(&conclusion.first_bad);
    told["improved"] = commits(&conclusion.improved);
    told["suspects"] = commits(&conclusion.suspects);
    told
}

fn measured(evidence: &Evidence) -> Value {
    let Some(plan) = &evidence.plan else {
        return Value::Null;
    };
    let level =
        |level: Option<(f64, f64, f64)>| level.map(|(v, low, high)| json!({"level": v, "ci95": [low, high]}));
    let tried = |line: &bisect::VerdictLine| {
        let (verdict, why) = match &line.verdict {
            Verdict::Good => ("good", None),
            Verdict::Bad => ("bad", None),
            Verdict::Skip { why } => ("skip", Some(why)),
            Verdict::Open => ("open", None),
        };
        json!({"commit": line.commit.as_str(), "verdict": verdict, "why": why, "boots": line.boots, "level": line.level})
    };
    json!({
        "good": level(plan.good_level),
        "bad": level(plan.bad_level),
        "effect": plan.effect.map(|e| json!({"pct": e.pct, "ci95_pct": e.ci95_pct})),
        "min_detectable_pct": plan.min_detectable_pct,
        "noise": {"boot_pct": plan.noise.boot_pct, "run_pct": plan.noise.run_pct},
        "suspects_left": plan.suspects_left,
        "boots_needed": plan.remaining.boots,
        "kernels": plan.verdicts.iter().map(tried).collect::<Vec<_>>(),
    })
}
