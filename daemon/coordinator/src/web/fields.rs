//! Reading a JSON body field by field, so that a refusal names everything that is wrong at once.
//!
//! Knows JSON and ranges; it must not know what the fields mean.

use super::error::FieldError;
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::ops::RangeInclusive;

/// Complaints of one body, in the order in which they were found.
#[derive(Default)]
pub struct Complaints(RefCell<Vec<FieldError>>);

impl Complaints {
    pub fn add(&self, field: impl Into<String>, message: impl Into<String>) {
        self.0.borrow_mut().push(FieldError {
            field: field.into(),
            message: message.into(),
        });
    }

    pub fn into_result<T>(self, value: Option<T>) -> Result<T, Vec<FieldError>> {
        match (self.0.into_inner(), value) {
            (errors, Some(value)) if errors.is_empty() => Ok(value),
            (errors, _) => Err(errors),
        }
    }
}

/// One object; what nobody asked for is complained about when it ends.
pub struct Fields<'a> {
    at: String,
    map: Option<&'a Map<String, Value>>,
    asked: RefCell<Vec<&'static str>>,
    complaints: &'a Complaints,
}

impl<'a> Fields<'a> {
    /// `at` is the object's own name, empty for the body.
    pub fn of(value: &'a Value, at: &str, complaints: &'a Complaints) -> Fields<'a> {
        let map = value.as_object();
        if map.is_none() {
            let place = if at.is_empty() { "(body)" } else { at };
            complaints.add(place, format!("must be an object, is {}", name_of(value)));
        }
        Fields {
            at: at.to_string(),
            map,
            asked: RefCell::default(),
            complaints,
        }
    }

    pub fn place(&self, name: &str) -> String {
        if self.at.is_empty() {
            name.to_string()
        } else {
            format!("{}.{name}", self.at)
        }
    }

    pub fn complain(&self, name: &str, message: impl Into<String>) {
        self.complaints.add(self.place(name), message);
    }

    /// `null` counts as left out.
    pub fn get(&self, name: &'static str) -> Option<&'a Value> {
        self.asked.borrow_mut().push(name);
        self.map?.get(name).filter(|v| !v.is_null())
    }

    pub fn inner(&self, name: &'static str) -> Option<Fields<'a>> {
        self.get(name)
            .map(|value| Fields::of(value, &self.place(name), self.complaints))
    }

    pub fn need_text(&self, name: &'static str, what_to_do: &str) -> Option<&'a str> {
        match self.get(name) {
            Some(_) => self.text(name),
            None if self.map.is_some() => {
                self.complain(name, format!("is required: {what_to_do}"));
                None
            }
            None => None,
        }
    }

    pub fn text(&self, name: &'static str) -> Option<&'a str> {
        let value = self.get(name)?;
        match value.as_str() {
            Some(text) if text.trim().is_empty() => self.complain(name, "must not be empty"),
            Some(text) if text.chars().any(char::is_control) => {
                self.complain(name, "must not hold control characters");
            }
            Some(text) => return Some(text.trim()),
            None => self.complain(name, format!("must be a string, is {}", name_of(value))),
        }
        None
    }

    /// A string, or a list of them.
    pub fn texts(&self, name: &'static str) -> Vec<&'a str> {
        match self.get(name) {
            Some(Value::Array(list)) => {
                let mut texts = Vec::new();
                for (i, value) in list.iter().enumerate() {
                    match value.as_str() {
                        Some(text) if !text.trim().is_empty() => texts.push(text.trim()),
                        _ => self.complaints.add(
                            format!("{}[{i}]", self.place(name)),
                            "must be a string with a name",
                        ),
                    }
                }
                texts
            }
            Some(Value::String(_)) => self.text(name).into_iter().collect(),
            Some(other) => {
                self.complain(
                    name,
                    format!("must be a string or a list of strings, is {}", name_of(other)),
                );
                Vec::new()
            }
            None => Vec::new(),
        }
    }

    pub fn truth(&self, name: &'static str, default: bool) -> bool {
        match self.get(name) {
            None => default,
            Some(Value::Bool(truth)) => *truth,
            Some(other) => {
                self.complain(name, format!("must be true or false, is {}", name_of(other)));
                default
            }
        }
    }

    /// A number above `more_than` and below `less_than`.
    pub fn number(&self, name: &'static str, more_than: f64, less_than: f64) -> Option<f64> {
        let value = self.get(name)?;
        match value.as_f64() {
            Some(x) if x > more_than && x < less_than => return Some(x),
            Some(x) if less_than.is_infinite() => {
                self.complain(name, format!("must be more than {more_than}, is {x}"))
            }
            Some(x) => self.complain(
                name,
                format!("must lie between {more_than} and {less_than}, is {x}"),
            ),
            None => self.complain(name, format!("must be a number, is {}", name_of(value))),
        }
        None
    }

    pub fn whole(&self, name: &'static str, range: RangeInclusive<i64>) -> Option<i64> {
        let value = self.get(name)?;
        match value.as_i64() {
            Some(x) if range.contains(&x) => return Some(x),
            Some(x) => {
                self.complain(
                    name,
                    format!(
                        "must be a whole number from {} to {}, is {x}",
                        range.start(),
                        range.end()
                    ),
                );
            }
            None => self.complain(name, format!("must be a whole number, is {}", name_of(value))),
        }
        None
    }

    /// Nothing else may be there.
    pub fn end(self) {
        let asked = self.asked.borrow();
        for key in self.map.into_iter().flat_map(Map::keys) {
            if !asked.contains(&key.as_str()) {
                let shown: String = key.chars().filter(|c| !c.is_control()).take(60).collect();
                self.complaints.add(
                    self.place(&shown),
                    format!("is unknown here; known are: {}", asked.join(", ")),
                );
            }
        }
    }
}

pub fn name_of(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(_) => "true or false".into(),
        Value::Number(number) => format!("the number {number}"),
        Value::String(_) => "a string".into(),
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "an object".into(),
    }
}
