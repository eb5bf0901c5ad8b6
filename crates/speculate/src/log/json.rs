//! A JSON object per line: Caddy's, or a flat one with the usual names.
//!
//! ```text
//! {"ts":1646861401.5,"request":{"client_ip":"192.0.2.7","method":"GET","uri":"/a",
//!   "headers":{"User-Agent":["Mozilla/5.0"]}},"duration":0.01,"size":1713,"status":200}
//! {"time_iso8601":"2022-03-09T21:30:01+00:00","remote_addr":"192.0.2.7",
//!   "request":"GET /a HTTP/1.1","status":"200","body_bytes_sent":"1713"}
//! ```

use std::borrow::Cow;

use core::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::fields::{FieldParent, Found, Scalar, USERS};
use super::{Format, Line, LineError};

/// The contents of a JSON line.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one at a time is made, and none is kept")]
pub(super) enum Object<'a> {
    /// A request.
    Request(Line<'a>, Format),
    /// A line of another log, wrapped by a container runtime or a log shipper.
    Wrapped(Cow<'a, str>),
}

/// The contents of a line.
pub(super) fn parse(line: &str) -> Result<Object<'_>, LineError> {
    let found = find(line)?;
    match found.wrapped {
        Some(wrapped) if found.line.is_none() && found.method.is_none() => {
            Ok(Object::Wrapped(wrapped))
        }
        _ => {
            let format = if found.nested { Format::Caddy } else { Format::JsonLines };
            found.line().map(|line| Object::Request(line, format))
        }
    }
}

/// A request in a JSON object after columns between tabs, of which the first is the time.
pub(super) fn behind_columns(text: &str) -> Result<(Line<'_>, Format), LineError> {
    let at = text.find("\t{").ok_or(LineError::NotJson)?;
    let mut found = find(&text[at + 1..])?;
    if found.at.is_none() {
        let time = text.split('\t').next().unwrap_or_default();
        found.at = Some(Scalar::Text(Cow::Borrowed(time)));
    }
    let format = if found.nested { Format::Caddy } else { Format::JsonLines };
    found.line().map(|line| (line, format))
}

/// A request in an object with custom names: ours, and the names that they map to.
pub(super) fn mapped<'a>(
    text: &'a str,
    map: &[(&'static str, String)],
    named: Option<&str>,
) -> Result<Line<'a>, LineError> {
    let mut found = find(text)?;
    let object: Value = serde_json::from_str(text).map_err(|_| LineError::NotJson)?;
    for (field, path) in map {
        let Some(value) = lookup(&object, path) else { continue };
        found.forget(field);
        found.take_top(field, value);
    }
    let mut line = found.line()?;
    line.stated.named = named.and_then(|name| text_at(&object, name)).map(Cow::Owned);
    Ok(line)
}

/// The text with this name.
pub(super) fn value_of(text: &str, name: &str) -> Option<String> {
    text_at(&serde_json::from_str(text).ok()?, name)
}

fn text_at(object: &Value, name: &str) -> Option<String> {
    lookup(object, name).and_then(Scalar::text).map(Cow::into_owned)
}

/// The value of a name, which may contain dots itself, or dots between the names of nested objects.
fn lookup(object: &Value, path: &str) -> Option<Scalar<'static>> {
    let found = object
        .get(path)
        .or_else(|| path.split('.').try_fold(object, |object, name| object.get(name)))?;
    match found {
        // Headers may be lists of values.
        Value::Array(values) => values.last().and_then(scalar),
        other => scalar(other),
    }
}

fn scalar(value: &Value) -> Option<Scalar<'static>> {
    match value {
        Value::String(text) => Some(Scalar::Text(Cow::Owned(text.clone()))),
        Value::Number(number) => number.as_f64().map(Scalar::Number),
        _ => None,
    }
}

fn find(line: &str) -> Result<Found<'_>, LineError> {
    let mut found = Found::default();
    let mut reader = serde_json::Deserializer::from_str(line);
    let seed = Members { found: &mut found, parent: FieldParent::Top };
    reader.deserialize_map(seed).map_err(|_| LineError::NotJson)?;
    reader.end().map_err(|_| LineError::NotJson)?;
    Ok(found)
}

/// Parses an object into the fields.
struct Members<'f, 'a> {
    found: &'f mut Found<'a>,
    parent: FieldParent,
}

impl<'a> Visitor<'a> for Members<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'a>>(self, mut map: M) -> Result<(), M::Error> {
        while let Some(name) = map.next_key_seed(Text)? {
            let value = Member { found: &mut *self.found, parent: self.parent, name: &name };
            if let Some(scalar) = map.next_value_seed(value)? {
                self.found.take(self.parent, &name, scalar);
            }
        }
        Ok(())
    }
}

/// Reads a text without a copy where it has no escapes.
struct Text;

impl<'a> DeserializeSeed<'a> for Text {
    type Value = Cow<'a, str>;

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<Cow<'a, str>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'a> Visitor<'a> for Text {
    type Value = Cow<'a, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_borrowed_str<E>(self, text: &'a str) -> Result<Cow<'a, str>, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Cow<'a, str>, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

/// Parses the value of a name: a scalar is returned, a relevant object goes into the fields.
struct Member<'f, 'a, 'n> {
    found: &'f mut Found<'a>,
    parent: FieldParent,
    name: &'n str,
}

impl<'a> DeserializeSeed<'a> for Member<'_, 'a, '_> {
    type Value = Option<Scalar<'a>>;

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for Member<'_, 'a, '_> {
    type Value = Option<Scalar<'a>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_borrowed_str<E>(self, text: &'a str) -> Result<Self::Value, E> {
        Ok(Some(Scalar::Text(Cow::Borrowed(text))))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Some(Scalar::Text(Cow::Owned(text.to_owned()))))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Self::Value, E> {
        Ok(Some(Scalar::Number(number)))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Some(Scalar::Number(number as f64)))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
        Ok(Some(Scalar::Number(number as f64)))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    /// Caddy's headers are lists: a property of any of their values counts.
    fn visit_seq<S: SeqAccess<'a>>(self, mut list: S) -> Result<Self::Value, S::Error> {
        let Member { found, parent, name } = self;
        loop {
            // An object in a list is at none of the relevant places.
            let member = Member { found: &mut *found, parent, name: "" };
            match list.next_element_seed(member)? {
                Some(Some(scalar)) => found.take(parent, name, scalar),
                Some(None) => {}
                None => break,
            }
        }
        Ok(None)
    }

    fn visit_map<M: MapAccess<'a>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        match self.parent.below(self.name) {
            Some(parent) => {
                self.found.nested |= parent == FieldParent::Request;
                Members { found: self.found, parent }.visit_map(map)?;
            }
            None => {
                let is_user = self.parent == FieldParent::Top && USERS.contains(&self.name);
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
                    self.found.private |= is_user;
                }
            }
        }
        Ok(None)
    }
}
