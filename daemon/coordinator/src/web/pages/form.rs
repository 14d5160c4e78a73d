//! The submit form: the API's request as fields, its refusals beside the fields they name.

use super::{PageError, page};
use crate::config::{Config, Role};
use crate::store::Submitted;
use crate::web::error::{FieldError, Problem};
use crate::web::{BODY_BYTES, WebState, api, lab, submit as submission};
use askama::Template;
use axum::body::to_bytes;
use axum::extract::{RawQuery, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{Html, IntoResponse, Redirect, Response};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// What was typed, by the form's field names, and what is wrong with it by the API's.
#[derive(Default)]
struct Typed {
    values: BTreeMap<String, String>,
    errors: Vec<FieldError>,
}

struct Choice {
    value: String,
    /// Names of the workloads that yield this metric, for the script that leaves out the others.
    of: String,
    label: String,
    chosen: bool,
}

struct Parameter {
    /// `parameters.block_kib`, the API's name of the field.
    field: String,
    name: String,
    of: String,
    choices: Vec<Choice>,
}

#[derive(Template)]
#[template(path = "submit.html")]
struct SubmitPage {
    trees: Vec<Choice>,
    refs: Vec<String>,
    workloads: Vec<Choice>,
    metrics: Vec<Choice>,
    parameters: Vec<Parameter>,
    machines: Vec<Choice>,
    typed: Typed,
    mail: bool,
}

impl SubmitPage {
    fn value(&self, name: &str) -> &str {
        self.typed.values.get(name).map_or("", String::as_str)
    }

    fn error(&self, name: &str) -> String {
        let said = self
            .typed
            .errors
            .iter()
            .filter(|e| e.field == name || e.field.starts_with(&format!("{name}[")));
        said.map(|e| e.message.clone()).collect::<Vec<_>>().join("; ")
    }

    /// Complaints about what the form has no field for.
    fn other_errors(&self) -> Vec<String> {
        const SHOWN: [&str; 12] = [
            "tree",
            "good",
            "bad",
            "workload",
            "metric",
            "machine",
            "pool",
            "min_effect_pct",
            "min_effect_abs",
            "confidence",
            "limits.boots",
            "recipients",
        ];
        let shown = |e: &&FieldError| {
            SHOWN
                .iter()
                .any(|s| e.field == *s || e.field.starts_with(&format!("{s}[")))
                || self.parameters.iter().any(|p| p.field == e.field)
        };
        let others = self.typed.errors.iter().filter(|e| !shown(e));
        others.map(|e| format!("{}: {}", e.field, e.message)).collect()
    }

    /// Something was typed, or is taken over: what is empty then is meant to be.
    fn is_filled(&self) -> bool {
        !self.typed.values.is_empty()
    }

    fn has_errors(&self) -> bool {
        !self.typed.errors.is_empty()
    }
}

/// With `from`, filled with what an earlier bisection was asked.
pub async fn submit_form(
    State(state): State<WebState>,
    RawQuery(raw): RawQuery,
    headers: HeaderMap,
) -> Result<Response, PageError> {
    let query = api::Query::read(raw.as_deref(), &["from"])?;
    let mut typed = Typed::default();
    if let Some(name) = query.get("from") {
        typed.values = from_request(&api::find(&state, name).await?.request);
    }
    page(&form(&state, typed).await, &headers)
}

/// An accepted request as it would have been typed; what the form has no field for is left out.
fn from_request(request: &Value) -> BTreeMap<String, String> {
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Array(all) => all.first().and_then(Value::as_str).map(String::from),
        Value::Null | Value::Bool(_) | Value::Object(_) => None,
    };
    let mut typed = BTreeMap::new();
    for name in [
        "tree",
        "good",
        "bad",
        "workload",
        "metric",
        "min_effect_pct",
        "min_effect_abs",
    ] {
        typed.extend(text(&request[name]).map(|value| (name.to_string(), value)));
    }
    let place = text(&request["machine"]).or_else(|| text(&request["pool"]));
    typed.extend(place.map(|value| ("machine".to_string(), value)));
    typed.extend(text(&request["limits"]["boots"]).map(|value| ("limits.boots".to_string(), value)));
    let confidence = request["confidence"].as_f64().unwrap_or(0.99);
    // Seven digits: 0.999 is 99.9 and no 99.90000000000001.
    let pct = (confidence * 1e9).round() / 1e7;
    typed.insert("confidence_pct".into(), pct.to_string());
    if request["first_parent"] == Value::Bool(true) {
        typed.insert("first_parent".into(), "1".into());
    }
    let workload = request["workload"].as_str().unwrap_or_default();
    for (name, value) in request["parameters"].as_object().into_iter().flatten() {
        typed.extend(text(value).map(|value| (format!("parameters.{workload}.{name}"), value)));
    }
    let mails = request["recipients"].as_array().into_iter().flatten();
    let mails: Vec<&str> = mails.filter_map(|r| r["mail"].as_str()).collect();
    if !mails.is_empty() {
        typed.insert("mail".into(), mails.join(", "));
    }
    typed
}

async fn form(state: &WebState, typed: Typed) -> SubmitPage {
    let config = &state.config;
    let mut refs = BTreeSet::new();
    for tree in config.file.trees.keys() {
        refs.extend(lab::refs_of(state, tree).await);
    }
    let chosen = |field: &str, value: &str| typed.values.get(field).is_some_and(|v| v == value);
    let choice = |field: &str, value: &str, label: String| Choice {
        chosen: chosen(field, value),
        of: String::new(),
        value: value.into(),
        label,
    };
    let named = |field: &'static str, names: Vec<&String>| -> Vec<Choice> {
        names.into_iter().map(|n| choice(field, n, n.clone())).collect()
    };
    let mut metrics: BTreeMap<&str, (String, Vec<&str>)> = BTreeMap::new();
    for workload in config.workloads.values() {
        for metric in &workload.metrics {
            let better = if metric.higher_is_better {
                "higher is better"
            } else {
                "lower is better"
            };
            let entry = metrics
                .entry(&metric.name)
                .or_insert_with(|| (format!("{}, {better}", metric.unit), Vec::new()));
            entry.1.push(&workload.name);
        }
    }
    let metrics = metrics.iter().map(|(name, (said, of))| Choice {
        of: of.join(" "),
        ..choice("metric", name, format!("{name} ({said}) – {}", of.join(", ")))
    });
    let metrics = metrics.collect();
    let trees = named("tree", config.file.trees.keys().collect());
    let workloads = config.workloads.values().map(|w| {
        let label = if w.description.is_empty() {
            w.name.clone()
        } else {
            format!("{} – {}", w.name, w.description)
        };
        choice("workload", &w.name, label)
    });
    let workloads = workloads.collect();
    let machines = machines(config)
        .into_iter()
        .map(|(value, label)| choice("machine", &value, label))
        .collect();
    let mut parameters = Vec::new();
    for workload in config.workloads.values() {
        for (name, choices) in &workload.parameters {
            let field = format!("parameters.{name}");
            let typed_here = format!("parameters.{}.{name}", workload.name);
            let choices = choices
                .iter()
                .map(|c| choice(&typed_here, c, c.clone()))
                .collect();
            parameters.push(Parameter {
                field,
                name: name.clone(),
                of: workload.name.clone(),
                choices,
            });
        }
    }
    let mail = config.file.mail.is_some();
    SubmitPage {
        trees,
        refs: refs.into_iter().collect(),
        workloads,
        metrics,
        parameters,
        machines,
        typed,
        mail,
    }
}

/// Machines that measure, and pools of them.
fn machines(config: &Config) -> Vec<(String, String)> {
    let measuring: Vec<_> = config
        .machines
        .values()
        .filter(|m| m.roles.contains(&Role::Measure))
        .collect();
    let mut pools: BTreeMap<&str, usize> = BTreeMap::new();
    for pool in measuring.iter().flat_map(|m| &m.pools) {
        *pools.entry(pool).or_default() += 1;
    }
    let machines = measuring.iter().map(|m| (m.name.clone(), m.name.clone()));
    let pools = pools
        .into_iter()
        .filter(|(pool, _)| !config.machines.contains_key(*pool));
    machines
        .chain(pools.map(|(pool, n)| (pool.to_string(), format!("{pool} (pool of {n})"))))
        .collect()
}

pub async fn send_form(State(state): State<WebState>, request: Request) -> Result<Response, PageError> {
    let bytes = to_bytes(request.into_body(), BODY_BYTES)
        .await
        .map_err(|_| Problem::too_large(BODY_BYTES))?;
    let text = String::from_utf8_lossy(&bytes);
    let query = api::pairs(&text).ok_or_else(|| Problem::bad_query("form", "is not well formed"))?;
    let values: BTreeMap<String, String> = query.into_iter().collect();
    let (body, unread) = to_request(&values);
    let outcome = match unread.is_empty() {
        true => submission::submit(&state, body).await,
        false => Err(Problem::invalid(unread)),
    };
    match outcome {
        Ok(Submitted::Created(_, number) | Submitted::Joined(_, number)) => {
            Ok(Redirect::to(&format!("/bisections/{number}")).into_response())
        }
        Err(problem) if problem.status < 500 => {
            let typed = Typed {
                values,
                errors: problem.errors,
            };
            let html = form(&state, typed).await.render();
            let html = html.map_err(|e| Problem::internal("a page could not be written", e))?;
            Ok((StatusCode::UNPROCESSABLE_ENTITY, Html(html)).into_response())
        }
        Err(problem) => Err(problem.into()),
    }
}

/// The form's fields as the API's request; numbers that are none are complained about here.
fn to_request(values: &BTreeMap<String, String>) -> (Value, Vec<FieldError>) {
    let mut body = Map::new();
    let mut errors = Vec::new();
    let typed = |name: &str| values.get(name).map(|v| v.trim()).filter(|v| !v.is_empty());
    for name in ["tree", "good", "bad", "workload", "metric"] {
        if let Some(value) = typed(name) {
            body.insert(name.into(), json!(value));
        }
    }
    // A pool and a machine are one choice here; the API takes either name under either field.
    if let Some(value) = typed("machine") {
        body.insert("machine".into(), json!(value));
    }
    let mut number = |name: &str| {
        let text = typed(name)?;
        let parsed = text
            .replace(',', ".")
            .parse::<f64>()
            .ok()
            .filter(|x| x.is_finite());
        if parsed.is_none() {
            errors.push(FieldError {
                field: name.to_string(),
                message: format!("`{text}` is no number"),
            });
        }
        parsed
    };
    // The per cent field is filled in beforehand; who writes the other one means that one.
    let size = if typed("min_effect_abs").is_some() {
        "min_effect_abs"
    } else {
        "min_effect_pct"
    };
    if let Some(value) = number(size) {
        body.insert(size.into(), json!(value));
    }
    if let Some(pct) = number("confidence_pct") {
        body.insert("confidence".into(), json!(pct / 100.0));
    }
    if let Some(boots) = number("limits.boots") {
        let boots = if boots.fract() == 0.0 {
            json!(boots as i64)
        } else {
            json!(boots)
        };
        body.insert("limits".into(), json!({ "boots": boots }));
    }
    if typed("first_parent").is_some() {
        body.insert("first_parent".into(), json!(true));
    }
    let workload = typed("workload").unwrap_or_default();
    let prefix = format!("parameters.{workload}.");
    let chosen = values
        .iter()
        .filter_map(|(name, value)| Some((name.strip_prefix(&prefix)?, value)));
    let parameters: Map<String, Value> = chosen
        .filter(|(_, v)| !v.is_empty())
        .map(|(name, v)| (name.to_string(), json!(v)))
        .collect();
    if !parameters.is_empty() {
        body.insert("parameters".into(), Value::Object(parameters));
    }
    if let Some(mail) = typed("mail") {
        let all = mail.split([',', ' ']).filter(|m| !m.is_empty());
        body.insert("recipients".into(), all.map(|m| json!({ "mail": m })).collect());
    }
    (Value::Object(body), errors)
}
