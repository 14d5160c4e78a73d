//! The description of the API: what the handlers say of themselves, and what holds for all of them.
//!
//! A route of the API is added by `routes!`, which takes its description along: there is no other way in, so that
//! none is undescribed. What is configured here (trees, workloads, machines) is part of the description: it is the
//! one of this daemon.

mod submission;

use super::access::needs::{self, Need};
use super::{WebState, api, lab, live, submit, surroundings, tokens};
use crate::config::Config;
use axum::http::Method;
use serde_json::{Map, Value, json};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Where the description is found.
pub const PATH: &str = "/api/v1/openapi.json";
/// What JSON carries everywhere without loss: no number or id is larger.
pub const LARGEST: i64 = (1 << 53) - 1;

pub fn streams() -> OpenApiRouter<WebState> {
    OpenApiRouter::default()
        .routes(routes!(live::of_all))
        .routes(routes!(live::of_bisection))
}

pub fn answers() -> OpenApiRouter<WebState> {
    OpenApiRouter::default()
        .routes(routes!(api::list, submit::accept))
        .routes(routes!(api::one))
        .routes(routes!(api::cancel))
        .routes(routes!(submit::retry))
        .routes(routes!(api::samples))
        .routes(routes!(api::jobs))
        .routes(routes!(api::attempts))
        .routes(routes!(surroundings::environment))
        .routes(routes!(api::decisions))
        .routes(routes!(api::console))
        .routes(routes!(lab::machines))
        .routes(routes!(lab::admit))
        .routes(routes!(lab::workloads))
        .routes(routes!(lab::trees))
        .routes(routes!(tokens::list, tokens::create))
        .routes(routes!(tokens::revoke))
        .routes(routes!(tokens::actions))
        .routes(routes!(tokens::me))
}

/// The whole of it, for this daemon.
pub fn document(config: &Config) -> Value {
    let mut described = answers().into_openapi();
    described.merge(streams().into_openapi());
    let mut all = serde_json::to_value(described).unwrap_or_default();
    all["info"] = json!({
        "title": "perfbisect",
        "version": env!("CARGO_PKG_VERSION"),
        "license": { "name": "MIT OR Apache-2.0" },
        "description": "Finds the commit that made a kernel slower. Every error is a problem (RFC 9457). Every answer has \
            an X-Request-Id. Answers in JSON have an ETag; If-None-Match spares their bodies. A POST with an \
            Idempotency-Key is carried out once, however often it is sent within a day.",
    });
    all["components"]["securitySchemes"] = json!({ "token": { "type": "http", "scheme": "bearer" } });
    all["components"]["schemas"]["Problem"] = problem();
    let asks = config.file.auth.is_some();
    for (path, operations) in all["paths"].as_object_mut().into_iter().flatten() {
        for (method, operation) in operations.as_object_mut().into_iter().flatten() {
            if let Some(operation) = operation.as_object_mut() {
                finish(path, method, operation, asks);
            }
        }
    }
    submission::describe(&mut all, config);
    all
}

fn finish(path: &str, method: &str, operation: &mut Map<String, Value>, asks: bool) {
    let method: Method = method.to_uppercase().parse().unwrap_or(Method::GET);
    operation["responses"]["default"] = json!({
        "description": "What was wrong, where, and what to do",
        "content": { "application/problem+json": { "schema": { "$ref": "#/components/schemas/Problem" } } },
    });
    for answer in operation["responses"].as_object_mut().into_iter().flatten() {
        answer.1["headers"]["X-Request-Id"] = json!({ "required": true, "schema": { "type": "string" } });
    }
    match needs::of(&method, Some(path)) {
        Need::Nothing => {}
        Need::Role(role) => {
            operation.insert("x-role".into(), json!(role.name()));
            if asks {
                operation.insert("security".into(), json!([{ "token": [] }]));
            }
        }
    }
    if let Some(body) = operation.get_mut("requestBody") {
        body["required"] = json!(true);
    }
    let parameters = operation.entry("parameters").or_insert_with(|| json!([]));
    for parameter in parameters.as_array_mut().into_iter().flatten() {
        present(&mut parameter["schema"]);
    }
    if method == Method::POST
        && super::idempotency::applies(path)
        && let Some(all) = parameters.as_array_mut()
    {
        all.push(json!({
            "name": "Idempotency-Key",
            "in": "header",
            "required": false,
            "description": "A key of the client's own choice: the same request under the same key is carried out once.",
            "schema": { "type": "string", "pattern": super::idempotency::PATTERN },
        }));
    }
}

/// A parameter is there or not; there is no null in an address.
fn present(schema: &mut Value) {
    if let Some(kinds) = schema.get("type").and_then(Value::as_array) {
        let kind = kinds.iter().find(|k| *k != "null").cloned();
        schema["type"] = kind.unwrap_or_else(|| json!("string"));
    }
    if let Some(choices) = schema.get("oneOf").and_then(Value::as_array) {
        let kept = choices.iter().find(|c| c["type"] != "null").cloned();
        *schema = kept.unwrap_or_else(|| json!({}));
    }
}

fn problem() -> Value {
    let text = json!({ "type": "string" });
    json!({
        "type": "object",
        "required": ["type", "title", "status", "detail"],
        "properties": {
            "type": text,
            "title": text,
            "status": { "type": "integer", "minimum": 400, "maximum": 599 },
            "detail": text,
            "errors": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["field", "message"],
                    "properties": { "field": text, "message": text },
                },
            },
        },
    })
}
