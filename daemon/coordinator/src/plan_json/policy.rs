//! What the user wants to know, and what they are willing to spend on it.

use super::fields::{
    At, Fields, Kind, Malformed, any_text, array, count_u32, count_u64, entries, not_negative, number,
    positive, text, truth,
};
use bisect::{CommitId, Confirm, Costs, Limits, LookFor, Metric, MinEffect, Policy};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

fn metric_to_json(metric: &Metric) -> Value {
    let Metric {
        name,
        unit,
        higher_is_better,
        may_be_zero,
    } = metric;
    let mut map = Map::new();
    map.insert("name".into(), json!(name));
    map.insert("unit".into(), json!(unit));
    map.insert("higher_is_better".into(), json!(higher_is_better));
    if *may_be_zero {
        map.insert("may_be_zero".into(), json!(true));
    }
    Value::Object(map)
}

fn metric_from_json((value, at): At<'_>) -> Result<Metric, Malformed> {
    let mut fields = Fields::of(value, &at)?;
    let name = text(fields.need("name")?)?.to_owned();
    let unit = fields
        .get("unit")
        .map(any_text)
        .transpose()?
        .unwrap_or("")
        .to_owned();
    let higher_is_better = truth(fields.need("higher_is_better")?)?;
    let may_be_zero = fields.get("may_be_zero").map(truth).transpose()?.unwrap_or(false);
    fields.end()?;
    Ok(Metric {
        name,
        unit,
        higher_is_better,
        may_be_zero,
    })
}

pub fn policy_to_json(policy: &Policy) -> Value {
    let Policy {
        metric,
        min_effect,
        confidence,
        seed,
        look_for,
        costs,
        limits,
        confirm,
        other_metrics,
    } = policy;
    let mut map = Map::new();
    map.insert("metric".into(), metric_to_json(metric));
    match min_effect {
        MinEffect::Pct(x) => map.insert("min_effect_pct".into(), json!(x)),
        MinEffect::Abs(x) => map.insert("min_effect_abs".into(), json!(x)),
    };
    map.insert("confidence".into(), json!(confidence));
    map.insert("seed".into(), json!(seed));
    let look_for = match look_for {
        LookFor::First => "first",
        LookFor::All => "all",
    };
    map.insert("look_for".into(), json!(look_for));
    map.insert("costs".into(), costs_to_json(costs));
    map.insert("limits".into(), limits_to_json(limits));
    let Confirm { revert, layout } = confirm;
    map.insert("confirm".into(), json!({ "revert": revert, "layout": layout }));
    if !other_metrics.is_empty() {
        map.insert(
            "other_metrics".into(),
            other_metrics.iter().map(metric_to_json).collect(),
        );
    }
    Value::Object(map)
}

fn costs_to_json(costs: &Costs) -> Value {
    let Costs {
        build_s,
        boot_s,
        run_s,
        build_s_of,
    } = costs;
    let mut map = Map::new();
    map.insert("build_s".into(), json!(build_s));
    map.insert("boot_s".into(), json!(boot_s));
    map.insert("run_s".into(), json!(run_s));
    if !build_s_of.is_empty() {
        let known = build_s_of.iter().map(|(c, s)| (c.as_str().to_owned(), json!(s)));
        map.insert("build_s_of".into(), Value::Object(known.collect()));
    }
    Value::Object(map)
}

fn limits_to_json(limits: &Limits) -> Value {
    let Limits {
        boots,
        time_s,
        ends_time_s,
    } = limits;
    let mut map = Map::new();
    if let Some(boots) = boots {
        map.insert("boots".into(), json!(boots));
    }
    if let Some(time_s) = time_s {
        map.insert("time_s".into(), json!(time_s));
    }
    if let Some(ends_time_s) = ends_time_s {
        map.insert("ends_time_s".into(), json!(ends_time_s));
    }
    Value::Object(map)
}

pub fn policy_from_json(value: &Value, at: &str) -> Result<Policy, Malformed> {
    let mut fields = Fields::of(value, at)?;
    let metric = metric_from_json(fields.need("metric")?)?;
    let pct = fields.get("min_effect_pct");
    let abs = fields.get("min_effect_abs");
    let min_effect = min_effect(&metric, pct, abs, at)?;
    let confidence = match fields.get("confidence") {
        None => 0.99,
        Some((value, at)) => match number((value, at.clone()))? {
            x if x > 0.5 && x < 1.0 => x,
            x => {
                return Err(Malformed::field(
                    at,
                    format!("must lie between 0.5 and 1, is {x}"),
                ));
            }
        },
    };
    let seed = fields.get("seed").map(count_u64).transpose()?.unwrap_or(0);
    let look_for = match fields.get("look_for") {
        None => LookFor::First,
        Some((value, at)) => match text((value, at.clone()))? {
            "first" => LookFor::First,
            "all" => LookFor::All,
            other => {
                return Err(Malformed::field(
                    at,
                    format!("expected \"first\" or \"all\", found `{other}`"),
                ));
            }
        },
    };
    let costs = fields
        .get("costs")
        .map(costs_from_json)
        .transpose()?
        .unwrap_or_default();
    let limits = fields
        .get("limits")
        .map(limits_from_json)
        .transpose()?
        .unwrap_or_default();
    let confirm = fields
        .get("confirm")
        .map(confirm_from_json)
        .transpose()?
        .unwrap_or_default();
    let other_metrics = match fields.get("other_metrics") {
        Some(list) => other_metrics(list)?,
        None => Vec::new(),
    };
    fields.end()?;
    Ok(Policy {
        metric,
        min_effect,
        confidence,
        seed,
        look_for,
        costs,
        limits,
        confirm,
        other_metrics,
    })
}

/// By name, so that their order in the policy changes no answer.
fn other_metrics(list: At<'_>) -> Result<Vec<Metric>, Malformed> {
    let mut metrics = BTreeMap::new();
    for (value, at) in array(list)? {
        let place = super::fields::join(&at, "name");
        let metric = metric_from_json((value, at))?;
        if let Some(twice) = metrics.insert(metric.name.clone(), metric) {
            return Err(Malformed {
                kind: Kind::Duplicate,
                message: format!("metric {} is there twice", twice.name),
                at: place,
            });
        }
    }
    Ok(metrics.into_values().collect())
}

fn min_effect(
    metric: &Metric,
    pct: Option<At<'_>>,
    abs: Option<At<'_>>,
    at: &str,
) -> Result<MinEffect, Malformed> {
    match (metric.may_be_zero, pct, abs) {
        (false, Some(pct), None) => {
            let place = pct.1.clone();
            let pct = positive(pct)?;
            if metric.higher_is_better && pct >= 100.0 {
                return Err(Malformed::field(
                    place,
                    format!("a loss is less than 100 %, is {pct}"),
                ));
            }
            Ok(MinEffect::Pct(pct))
        }
        // The absolute effect takes the place of the per cent, which may stay there; but not of nonsense.
        (true, pct, Some(abs)) => {
            pct.map(positive).transpose()?;
            Ok(MinEffect::Abs(positive(abs)?))
        }
        (false, None, None) => Err(Malformed::field(
            super::fields::join(at, "min_effect_pct"),
            "is required",
        )),
        (false, _, Some((_, at))) => Err(Malformed::field(
            at,
            "only for a metric with may_be_zero; use min_effect_pct",
        )),
        (true, _, None) => Err(Malformed::field(
            super::fields::join(at, "min_effect_abs"),
            "is required for a metric with may_be_zero: it has no per cents",
        )),
    }
}

fn costs_from_json((value, at): At<'_>) -> Result<Costs, Malformed> {
    let mut fields = Fields::of(value, &at)?;
    let default = Costs::default();
    let build_s = fields
        .get("build_s")
        .map(not_negative)
        .transpose()?
        .unwrap_or(default.build_s);
    let boot_s = fields
        .get("boot_s")
        .map(not_negative)
        .transpose()?
        .unwrap_or(default.boot_s);
    let run_s = fields
        .get("run_s")
        .map(not_negative)
        .transpose()?
        .unwrap_or(default.run_s);
    let build_s_of = match fields.get("build_s_of") {
        Some(map) => entries(map)?
            .into_iter()
            .map(|(commit, s)| Ok((CommitId::new(commit), not_negative(s)?)))
            .collect::<Result<BTreeMap<_, _>, Malformed>>()?,
        None => BTreeMap::new(),
    };
    fields.end()?;
    Ok(Costs {
        build_s,
        boot_s,
        run_s,
        build_s_of,
    })
}

fn limits_from_json((value, at): At<'_>) -> Result<Limits, Malformed> {
    let mut fields = Fields::of(value, &at)?;
    let boots = fields.get("boots").map(count_u32).transpose()?;
    let time_s = fields.get("time_s").map(not_negative).transpose()?;
    let ends_time_s = fields.get("ends_time_s").map(not_negative).transpose()?;
    fields.end()?;
    Ok(Limits {
        boots,
        time_s,
        ends_time_s,
    })
}

fn confirm_from_json((value, at): At<'_>) -> Result<Confirm, Malformed> {
    let mut fields = Fields::of(value, &at)?;
    let revert = fields.get("revert").map(truth).transpose()?.unwrap_or(false);
    let layout = fields.get("layout").map(truth).transpose()?.unwrap_or(false);
    fields.end()?;
    Ok(Confirm { revert, layout })
}
