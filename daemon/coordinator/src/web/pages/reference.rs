//! The description of the API for people: the same document, written out. Nothing is loaded from elsewhere.

use super::{PageError, page};
use crate::web::{WebState, openapi};
use askama::Template;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde_json::Value;

struct Parameter {
    name: String,
    place: String,
    kind: String,
    about: String,
}

struct Answer {
    status: String,
    about: String,
    of: String,
}

struct Operation {
    id: String,
    method: String,
    path: String,
    summary: String,
    role: String,
    parameters: Vec<Parameter>,
    takes: String,
    answers: Vec<Answer>,
}

struct Schema {
    name: String,
    text: String,
}

#[derive(Template)]
#[template(path = "reference.html")]
struct ReferencePage {
    version: String,
    about: String,
    operations: Vec<Operation>,
    schemas: Vec<Schema>,
}

pub async fn reference(State(state): State<WebState>, headers: HeaderMap) -> Result<Response, PageError> {
    let all = openapi::document(&state.config);
    let mut operations = Vec::new();
    for (path, methods) in all["paths"].as_object().into_iter().flatten() {
        for (method, operation) in methods.as_object().into_iter().flatten() {
            operations.push(read(path, method, operation));
        }
    }
    let schemas = all["components"]["schemas"].as_object().into_iter().flatten();
    let schemas = schemas.map(|(name, schema)| Schema {
        name: name.clone(),
        text: format!("{schema:#}"),
    });
    let whole = ReferencePage {
        version: text(&all["info"]["version"]),
        about: text(&all["info"]["description"]),
        operations,
        schemas: schemas.collect(),
    };
    page(&whole, &headers)
}

fn read(path: &str, method: &str, operation: &Value) -> Operation {
    let parameters = operation["parameters"].as_array().into_iter().flatten();
    let parameters = parameters.map(|p| Parameter {
        name: text(&p["name"]),
        place: text(&p["in"]),
        kind: kind(&p["schema"]),
        about: text(&p["description"]),
    });
    let answers = operation["responses"].as_object().into_iter().flatten();
    let answers = answers.map(|(status, answer)| Answer {
        status: match status.as_str() {
            "default" => "otherwise".to_string(),
            number => number.to_string(),
        },
        about: text(&answer["description"]),
        of: content(&answer["content"]),
    });
    Operation {
        id: text(&operation["operationId"]),
        method: method.to_uppercase(),
        path: path.to_string(),
        summary: text(&operation["summary"]),
        role: text(&operation["x-role"]),
        parameters: parameters.collect(),
        takes: content(&operation["requestBody"]["content"]),
        answers: answers.collect(),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_string()
}

/// The name of a schema, or what kind of value it is.
fn kind(schema: &Value) -> String {
    match schema["$ref"].as_str().and_then(|r| r.rsplit('/').next()) {
        Some(name) => name.to_string(),
        None => text(&schema["type"]),
    }
}

/// `Detail` for JSON, else the media type.
fn content(content: &Value) -> String {
    let all = content.as_object().into_iter().flatten();
    let said = all.map(|(media, of)| match media.ends_with("json") {
        true => kind(&of["schema"]),
        false => media.clone(),
    });
    said.collect::<Vec<_>>().join(", ")
}
