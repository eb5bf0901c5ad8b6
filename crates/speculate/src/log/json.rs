//! A JSON object a line: Caddy's, or a flat one by the usual names.
//!
//! ```text
//! {"ts":1646861401.5,"request":{"client_ip":"192.0.2.7","method":"GET","uri":"/a",
//!   "headers":{"User-Agent":["Mozilla/5.0"]}},"duration":0.01,"size":1713,"status":200}
//! {"time_iso8601":"2022-03-09T21:30:01+00:00","remote_addr":"192.0.2.7",
//!   "request":"GET /a HTTP/1.1","status":"200","body_bytes_sent":"1713"}
//! ```

use std::borrow::Cow;

use core::fmt;
use core::time::Duration;

use lull_cc::Bytes;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{Entry, Format, LineError, Part, date, is_prefetch, is_private, request_line};

/// What was found, as text or number.
#[derive(Clone, Debug)]
enum Scalar<'a> {
    Text(Cow<'a, str>),
    Number(f64),
}

impl<'a> Scalar<'a> {
    /// nginx puts quotation marks around numbers.
    fn number(&self) -> Option<f64> {
        match self {
            Scalar::Text(text) => text.parse().ok(),
            Scalar::Number(number) => Some(*number),
        }
    }

    fn text(self) -> Option<Cow<'a, str>> {
        match self {
            Scalar::Text(text) => Some(text),
            Scalar::Number(_) => None,
        }
    }

    /// Whether it is somebody, and not what stands there for nobody.
    fn is_somebody(&self) -> bool {
        match self {
            Scalar::Text(user) => !matches!(&**user, "" | "-"),
            Scalar::Number(user) => *user != 0.0,
        }
    }
}

/// Names of a user, or of headers that say that one is known. What they say is nobody's business.
const USERS: [&str; 6] = [
    "remote_user",
    "user_id",
    "user",
    "http_authorization",
    "sent_http_set_cookie",
    "upstream_http_set_cookie",
];

#[derive(Debug, Default)]
struct Found<'a> {
    at: Option<Scalar<'a>>,
    client: Option<Cow<'a, str>>,
    line: Option<Cow<'a, str>>,
    method: Option<Cow<'a, str>>,
    target: Option<Cow<'a, str>>,
    /// What the server made of the target: only where nothing says what was asked for.
    rewritten: Option<Cow<'a, str>>,
    site: Option<Cow<'a, str>>,
    status: Option<f64>,
    bytes: Option<f64>,
    referer: Option<Cow<'a, str>>,
    agent: Option<Cow<'a, str>>,
    took: Option<f64>,
    prefetch: bool,
    private: bool,
    nested: bool,
}

/// Where in the object a name stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Top,
    Request,
    RequestHeaders,
    ResponseHeaders,
}

impl Place {
    fn below(self, name: &str) -> Option<Place> {
        match (self, name) {
            (Place::Top, "request") => Some(Place::Request),
            (Place::Top, "resp_headers") => Some(Place::ResponseHeaders),
            (Place::Request, "headers") => Some(Place::RequestHeaders),
            _ => None,
        }
    }
}

impl<'a> Found<'a> {
    fn take(&mut self, place: Place, name: &str, value: Scalar<'a>) {
        match place {
            Place::Top => self.take_top(name, value),
            Place::Request => match name {
                "client_ip" => self.client = value.text(),
                "remote_ip" | "remote_addr" => self.client = self.client.take().or(value.text()),
                "method" => self.method = value.text(),
                "host" => self.site = value.text(),
                "uri" => self.target = value.text(),
                _ => {}
            },
            Place::RequestHeaders => self.take_header(name, value),
            Place::ResponseHeaders => {
                self.private |= name.eq_ignore_ascii_case("set-cookie")
                    || name.eq_ignore_ascii_case("cache-control")
                        && value.text().is_some_and(|text| is_private(&text));
            }
        }
    }

    fn take_top(&mut self, name: &str, value: Scalar<'a>) {
        match name {
            "ts" | "time" | "timestamp" | "@timestamp" | "time_iso8601" | "time_local" => {
                self.at = self.at.take().or(Some(value));
            }
            // With milliseconds, and so the best of nginx's.
            "msec" => self.at = Some(value),
            "client_ip" | "remote_addr" | "remote_ip" | "client" | "ip" => {
                self.client = self.client.take().or(value.text());
            }
            "request" => self.line = value.text(),
            "request_method" | "method" | "verb" => self.method = value.text(),
            "request_uri" => self.target = value.text(),
            // nginx has rewritten its `uri`, which may be the same for all pages, and has no query.
            "uri" | "url" | "path" => self.rewritten = self.rewritten.take().or(value.text()),
            "host" | "http_host" | "server_name" | "vhost" => {
                self.site = self.site.take().or(value.text());
            }
            "status" | "status_code" => self.status = value.number(),
            // Body and head: only where the length of the body is not there.
            "bytes_sent" => self.bytes = self.bytes.or(value.number()),
            "body_bytes_sent" | "bytes" | "size" => self.bytes = value.number(),
            "http_user_agent" | "user_agent" | "agent" => self.agent = value.text(),
            "http_referer" | "referer" | "referrer" => self.referer = value.text(),
            "request_time" | "duration" => self.took = value.number(),
            name if USERS.contains(&name) => self.private |= value.is_somebody(),
            "sent_http_cache_control" | "upstream_http_cache_control" => {
                self.private |= value.text().is_some_and(|text| is_private(&text));
            }
            "http_sec_purpose" | "sec_purpose" | "http_purpose" | "purpose" | "http_x_moz" => {
                self.prefetch |= value.text().is_some_and(|text| is_prefetch(&text));
            }
            _ => {}
        }
    }

    fn take_header(&mut self, name: &str, value: Scalar<'a>) {
        match name.to_ascii_lowercase().as_str() {
            "user-agent" => self.agent = value.text(),
            "referer" => self.referer = value.text(),
            "sec-purpose" | "purpose" | "x-moz" => {
                self.prefetch |= value.text().is_some_and(|text| is_prefetch(&text));
            }
            "authorization" => self.private = true,
            _ => {}
        }
    }
}

/// A line's entry, and whether it has Caddy's shape.
pub(super) fn parse(line: &str) -> Result<(Entry<'_>, Format), LineError> {
    let mut found = Found::default();
    let mut reader = serde_json::Deserializer::from_str(line);
    let seed = Object { found: &mut found, place: Place::Top };
    reader.deserialize_map(seed).map_err(|_| LineError::NotJson)?;
    reader.end().map_err(|_| LineError::NotJson)?;
    let format = if found.nested { Format::Caddy } else { Format::JsonLines };
    let missing = |part| move || LineError::Missing(part);
    let at = found.at.ok_or_else(missing(Part::Date))?;
    let at = match &at {
        Scalar::Number(number) => date::epoch(*number),
        Scalar::Text(text) => date::rfc3339(text)
            .or_else(|| date::common(text))
            .or_else(|| at.number().and_then(date::epoch)),
    };
    let line = found.line.map(|line| match line {
        Cow::Borrowed(line) => {
            let (method, target) = request_line(line);
            (Cow::Borrowed(method), Cow::Borrowed(target))
        }
        Cow::Owned(line) => {
            let (method, target) = request_line(&line);
            (Cow::Owned(method.to_owned()), Cow::Owned(target.to_owned()))
        }
    });
    let (method, target) = match (found.method, found.target, found.rewritten, line) {
        (Some(method), Some(target), _, _) => (method, target),
        (_, _, _, Some(line)) if !line.0.is_empty() => line,
        (Some(method), _, Some(target), _) => (method, target),
        (_, _, _, line) => line.ok_or_else(missing(Part::Request))?,
    };
    let status = found.status.ok_or_else(missing(Part::Status))?;
    let bytes = found.bytes.unwrap_or(0.0);
    let status_fits = status.fract() == 0.0 && (0.0..=65_535.0).contains(&status);
    let entry = Entry {
        at: at.ok_or(LineError::Invalid(Part::Date))?,
        client: found.client.ok_or_else(missing(Part::Client))?,
        method,
        target,
        status: if status_fits { status as u16 } else { return invalid(Part::Status) },
        // nginx's name for whoever is asked by no name.
        site: found.site.filter(|text| !matches!(&**text, "" | "-" | "_")),
        bytes: if bytes >= 0.0 { Bytes(bytes as u64) } else { return invalid(Part::Length) },
        referer: found.referer.filter(|text| !matches!(&**text, "" | "-")),
        agent: found.agent.map(|text| if text == "-" { Cow::Borrowed("") } else { text }),
        took: found.took.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
        prefetch: found.prefetch,
        private: found.private,
        named_by_query: false,
    };
    Ok((entry, format))
}

fn invalid<T>(part: Part) -> Result<T, LineError> {
    Err(LineError::Invalid(part))
}

/// Reads an object into what was found.
struct Object<'f, 'a> {
    found: &'f mut Found<'a>,
    place: Place,
}

impl<'a> Visitor<'a> for Object<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'a>>(self, mut map: M) -> Result<(), M::Error> {
        while let Some(name) = map.next_key_seed(Text)? {
            let value = Member { found: &mut *self.found, place: self.place, name: &name };
            if let Some(scalar) = map.next_value_seed(value)? {
                self.found.take(self.place, &name, scalar);
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

/// Reads the value of a name: a scalar comes back, an object that matters goes into what was found.
struct Member<'f, 'a, 'n> {
    found: &'f mut Found<'a>,
    place: Place,
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

    /// Caddy's headers are lists: what any of its values says holds.
    fn visit_seq<S: SeqAccess<'a>>(self, mut list: S) -> Result<Self::Value, S::Error> {
        let Member { found, place, name } = self;
        loop {
            // An object in a list is none of the places that matter.
            let member = Member { found: &mut *found, place, name: "" };
            match list.next_element_seed(member)? {
                Some(Some(scalar)) => found.take(place, name, scalar),
                Some(None) => {}
                None => break,
            }
        }
        Ok(None)
    }

    fn visit_map<M: MapAccess<'a>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        match self.place.below(self.name) {
            Some(place) => {
                self.found.nested |= place == Place::Request;
                Object { found: self.found, place }.visit_map(map)?;
            }
            None => {
                let is_user = self.place == Place::Top && USERS.contains(&self.name);
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
                    self.found.private |= is_user;
                }
            }
        }
        Ok(None)
    }
}
