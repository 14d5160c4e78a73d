//! What a submission to this daemon may hold: one shape for each metric of each configured workload.
//!
//! As exact as the reader of the body (`web/request`), but for what only the tree knows: whether a revision exists.

use super::LARGEST;
use crate::config::{Config, MetricDef, Role, Workload};
use crate::web::request::{PRIORITY, RECIPIENTS, REVISION_BYTES, SECONDS};
use serde_json::{Map, Value, json};

pub fn describe(all: &mut Value, config: &Config) {
    let shapes = config.workloads.values().flat_map(|workload| {
        let metrics = workload.metrics.iter();
        metrics.map(|metric| shape(config, workload, metric))
    });
    let shapes: Vec<Value> = shapes.collect();
    // Without a workload nothing can be submitted, and the description says so.
    all["components"]["schemas"]["Submission"] = match shapes.is_empty() {
        true => json!({ "not": {} }),
        false => json!({ "anyOf": shapes }),
    };
    all["components"]["schemas"]["NewToken"] = json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["name", "role"],
        "properties": {
            "name": { "type": "string", "minLength": 1, "maxLength": crate::web::tokens::NAME_CHARS, "pattern": PRINTED },
            "role": { "enum": crate::store::tokens::Role::ALL.map(|r| r.name()) },
            "lifetime_days": whole(1, crate::web::tokens::LIFETIME_DAYS),
        },
    });
}

/// Begins and ends with what is seen, and holds no control characters.
const PRINTED: &str = "^[!-~]([ -~]*[!-~])?$";
/// The same, and no option of a program.
const REVISION: &str = "^[!-,.-~]([ -~]*[!-~])?$";

fn nullable(kind: &str, mut more: Map<String, Value>) -> Value {
    more.insert("type".into(), json!([kind, "null"]));
    Value::Object(more)
}

fn fields(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    }
}

fn whole(least: i64, most: i64) -> Value {
    nullable("integer", fields(json!({ "minimum": least, "maximum": most })))
}

fn between(low: f64, high: f64) -> Value {
    nullable(
        "number",
        fields(json!({ "exclusiveMinimum": low, "exclusiveMaximum": high })),
    )
}

fn flag() -> Value {
    nullable("boolean", Map::new())
}

fn group(properties: Value) -> Value {
    nullable(
        "object",
        fields(json!({ "additionalProperties": false, "properties": properties })),
    )
}

fn shape(config: &Config, workload: &Workload, metric: &MetricDef) -> Value {
    let revision =
        json!({ "type": "string", "minLength": 1, "maxLength": REVISION_BYTES, "pattern": REVISION });
    let trees: Vec<&String> = config.file.trees.keys().collect();
    let machines = config
        .machines
        .values()
        .filter(|m| m.roles.contains(&Role::Measure));
    let mut places: Vec<&String> = machines
        .flat_map(|m| std::iter::once(&m.name).chain(&m.pools))
        .collect();
    places.sort();
    places.dedup();
    let place = json!({ "anyOf": [
        { "enum": places },
        { "type": "array", "items": { "enum": places }, "minItems": 1 },
    ] });
    let mut properties = fields(json!({
        "tree": { "enum": trees },
        "good": revision,
        "bad": revision,
        "workload": { "const": workload.name },
        "metric": { "const": metric.name },
        "parameters": parameters(workload),
        "machine": place,
        "pool": place,
        "confidence": between(0.5, 1.0),
        "seed": whole(0, LARGEST),
        "look_for": { "enum": ["first", "all", null] },
        "costs": group(json!({
            "build_s": between(0.0, SECONDS), "boot_s": between(0.0, SECONDS), "run_s": between(0.0, SECONDS),
        })),
        "limits": group(json!({
            "boots": whole(1, 1_000_000), "time_s": between(0.0, SECONDS), "ends_time_s": between(0.0, SECONDS),
        })),
        "confirm": group(json!({ "revert": flag(), "layout": flag() })),
        "first_parent": flag(),
        "priority": whole(*PRIORITY.start(), *PRIORITY.end()),
        "recipients": recipients(config),
    }));
    let mut required = vec!["tree", "good", "bad", "workload"];
    if workload.metrics.len() > 1 {
        required.push("metric");
    }
    let (effect, most) = match (metric.may_be_zero, metric.higher_is_better) {
        (true, _) => ("min_effect_abs", f64::MAX),
        (false, true) => ("min_effect_pct", 100.0),
        (false, false) => ("min_effect_pct", 100_000.0),
    };
    let size = json!({ "type": "number", "exclusiveMinimum": 0.0, "exclusiveMaximum": most });
    properties.insert(effect.into(), size);
    required.push(effect);
    json!({
        "title": format!("{} of {}", metric.name, workload.name),
        "type": "object",
        "additionalProperties": false,
        "properties": properties,
        "required": required,
        "anyOf": [{ "required": ["machine"] }, { "required": ["pool"] }],
    })
}

fn parameters(workload: &Workload) -> Value {
    let choices = workload.parameters.iter().map(|(name, choices)| {
        let numbers = choices
            .iter()
            .filter_map(|c| c.parse::<i64>().ok())
            .map(Value::from);
        let texts = choices.iter().cloned().map(Value::from);
        (
            name.clone(),
            json!({ "enum": texts.chain(numbers).collect::<Vec<_>>() }),
        )
    });
    group(Value::Object(choices.collect()))
}

fn recipients(config: &Config) -> Value {
    let channels = [
        (
            config.file.mail.is_some(),
            "mail",
            "^[a-z0-9]+@[a-z0-9]+(\\.[a-z0-9]+)*$",
        ),
        (
            config.file.webhook.is_some(),
            "webhook",
            "^https?://[a-z0-9]+(\\.[a-z0-9]+)*/[a-z0-9/]*$",
        ),
    ];
    let kinds = channels
        .iter()
        .filter(|(has, ..)| *has)
        .map(|(_, name, pattern)| {
            let mut only =
                fields(json!({ "type": "object", "additionalProperties": false, "required": [name] }));
            let address = json!({ "type": "string", "maxLength": 200, "pattern": pattern });
            only.insert(
                "properties".into(),
                Value::Object([(name.to_string(), address)].into_iter().collect()),
            );
            Value::Object(only)
        });
    let kinds: Vec<Value> = kinds.collect();
    let most = if kinds.is_empty() { 0 } else { RECIPIENTS };
    let one = if kinds.is_empty() {
        json!({})
    } else {
        json!({ "anyOf": kinds })
    };
    nullable("array", fields(json!({ "maxItems": most, "items": one })))
}
