//! Reading JSON objects strictly, with the place of every error.

use serde_json::{Map, Value};

/// What is wrong with a line, in the door's words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    InvalidField,
    UnknownCommit,
    Cycle,
    Duplicate,
    EqualEnds,
    ReversedRange,
    NoCommonAncestor,
    NotJson,
}

impl Kind {
    pub fn word(self) -> &'static str {
        match self {
            Kind::InvalidField => "invalid_field",
            Kind::UnknownCommit => "unknown_commit",
            Kind::Cycle => "cycle",
            Kind::Duplicate => "duplicate",
            Kind::EqualEnds => "equal_ends",
            Kind::ReversedRange => "reversed_range",
            Kind::NoCommonAncestor => "no_common_ancestor",
            Kind::NotJson => "not_json",
        }
    }
}

/// A malformed input; `at` is the place, empty for the whole of it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}: {message}", if at.is_empty() { "input" } else { at.as_str() })]
pub struct Malformed {
    pub kind: Kind,
    pub message: String,
    pub at: String,
}

impl Malformed {
    pub fn field(at: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            kind: Kind::InvalidField,
            message: message.into(),
            at: at.into(),
        }
    }
}

/// A value and its place.
pub(super) type At<'a> = (&'a Value, String);

/// The fields of one object: each is asked for by name, and what nobody asked for is an error.
pub(super) struct Fields<'a> {
    at: String,
    map: &'a Map<String, Value>,
    asked: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    pub fn of(value: &'a Value, at: &str) -> Result<Self, Malformed> {
        match value.as_object() {
            Some(map) => Ok(Self {
                at: at.to_owned(),
                map,
                asked: Vec::new(),
            }),
            None => Err(Malformed::field(
                at,
                format!("expected an object, found {}", name_of(value)),
            )),
        }
    }

    /// A field that may be left out; `null` counts as left out.
    pub fn get(&mut self, name: &'static str) -> Option<At<'a>> {
        self.asked.push(name);
        self.map
            .get(name)
            .filter(|v| !v.is_null())
            .map(|v| (v, join(&self.at, name)))
    }

    pub fn need(&mut self, name: &'static str) -> Result<At<'a>, Malformed> {
        let at = join(&self.at, name);
        self.get(name).ok_or_else(|| Malformed::field(at, "is required"))
    }

    /// Nothing else may be there.
    pub fn end(self) -> Result<(), Malformed> {
        match self.map.keys().find(|k| !self.asked.contains(&k.as_str())) {
            None => Ok(()),
            Some(key) => Err(Malformed::field(
                join(&self.at, key),
                format!("unknown field; known here: {}", self.asked.join(", ")),
            )),
        }
    }
}

pub(super) fn join(at: &str, name: &str) -> String {
    if at.is_empty() {
        name.to_owned()
    } else {
        format!("{at}.{name}")
    }
}

fn name_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

pub(super) fn text<'a>((value, at): At<'a>) -> Result<&'a str, Malformed> {
    match value.as_str() {
        Some("") => Err(Malformed::field(at, "must not be empty")),
        Some(text) => Ok(text),
        None => Err(Malformed::field(
            at,
            format!("expected a string, found {}", name_of(value)),
        )),
    }
}

/// A string that may be empty (units).
pub(super) fn any_text<'a>((value, at): At<'a>) -> Result<&'a str, Malformed> {
    value
        .as_str()
        .ok_or_else(|| Malformed::field(at, format!("expected a string, found {}", name_of(value))))
}

pub(super) fn truth((value, at): At<'_>) -> Result<bool, Malformed> {
    value
        .as_bool()
        .ok_or_else(|| Malformed::field(at, format!("expected true or false, found {}", name_of(value))))
}

pub(super) fn number((value, at): At<'_>) -> Result<f64, Malformed> {
    match value.as_f64() {
        Some(x) if x.is_finite() => Ok(x),
        Some(_) => Err(Malformed::field(at, "must be finite")),
        None => Err(Malformed::field(
            at,
            format!("expected a number, found {}", name_of(value)),
        )),
    }
}

pub(super) fn positive((value, at): At<'_>) -> Result<f64, Malformed> {
    match number((value, at.clone()))? {
        x if x > 0.0 => Ok(x),
        x => Err(Malformed::field(at, format!("must be more than 0, is {x}"))),
    }
}

pub(super) fn not_negative((value, at): At<'_>) -> Result<f64, Malformed> {
    match number((value, at.clone()))? {
        x if x >= 0.0 => Ok(x),
        x => Err(Malformed::field(at, format!("must not be negative, is {x}"))),
    }
}

pub(super) fn count_u64((value, at): At<'_>) -> Result<u64, Malformed> {
    value
        .as_u64()
        .ok_or_else(|| Malformed::field(at, format!("expected a whole number of 0 or more, found {value}")))
}

pub(super) fn count_u32((value, at): At<'_>) -> Result<u32, Malformed> {
    let wide = count_u64((value, at.clone()))?;
    u32::try_from(wide).map_err(|_| Malformed::field(at, format!("{wide} is too large")))
}

pub(super) fn array<'a>((value, at): At<'a>) -> Result<Vec<At<'a>>, Malformed> {
    match value.as_array() {
        Some(list) => Ok(list
            .iter()
            .enumerate()
            .map(|(i, v)| (v, format!("{at}[{i}]")))
            .collect()),
        None => Err(Malformed::field(
            at,
            format!("expected an array, found {}", name_of(value)),
        )),
    }
}

/// The entries of an object used as a map.
pub(super) fn entries<'a>((value, at): At<'a>) -> Result<Vec<(&'a str, At<'a>)>, Malformed> {
    match value.as_object() {
        Some(map) => Ok(map.iter().map(|(k, v)| (k.as_str(), (v, join(&at, k)))).collect()),
        None => Err(Malformed::field(
            at,
            format!("expected an object, found {}", name_of(value)),
        )),
    }
}
