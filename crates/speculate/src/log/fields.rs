//! The fields of a line, by the names that servers, load balancers and log shippers use.

use std::borrow::Cow;

use core::time::Duration;

use lull_cc::Bytes;

use super::client::Stated;
use super::{Entry, Line, LineError, Part, date, is_prefetch, is_private, request_line};
use crate::address;

/// A value, as text or number.
#[derive(Clone, Debug)]
pub(super) enum Scalar<'a> {
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

    pub(super) fn text(self) -> Option<Cow<'a, str>> {
        match self {
            Scalar::Text(text) => Some(text),
            Scalar::Number(_) => None,
        }
    }

    /// Whether it names a user, and is not a placeholder.
    fn is_user(&self) -> bool {
        match self {
            Scalar::Text(user) => !matches!(&**user, "" | "-"),
            Scalar::Number(user) => *user != 0.0,
        }
    }
}

/// Names of a user field, or of headers that show a signed-in user. Their values are not used.
pub(super) const USERS: [&str; 7] = [
    "ClientUsername",
    "remote_user",
    "user_id",
    "user",
    "http_authorization",
    "sent_http_set_cookie",
    "upstream_http_set_cookie",
];

#[derive(Debug, Default)]
pub(super) struct Found<'a> {
    pub(super) at: Option<Scalar<'a>>,
    pub(super) client: Option<Cow<'a, str>>,
    pub(super) forwarded: Option<Cow<'a, str>>,
    /// An address that may be the client's or another one's, such as the server's.
    vague: Option<Cow<'a, str>>,
    /// A line of another log.
    pub(super) wrapped: Option<Cow<'a, str>>,
    pub(super) line: Option<Cow<'a, str>>,
    pub(super) method: Option<Cow<'a, str>>,
    target: Option<Cow<'a, str>>,
    /// The server's rewritten target: used only without the original one.
    rewritten: Option<Cow<'a, str>>,
    site: Option<Cow<'a, str>>,
    status: Option<f64>,
    bytes: Option<f64>,
    referer: Option<Cow<'a, str>>,
    pub(super) agent: Option<Cow<'a, str>>,
    pub(super) took: Option<f64>,
    prefetch: bool,
    pub(super) private: bool,
    pub(super) nested: bool,
    /// Envoy counts durations in milliseconds, others in seconds.
    is_envoy: bool,
}

/// The object that a name is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldParent {
    Top,
    /// Caddy's `request`.
    Request,
    RequestHeaders,
    ResponseHeaders,
    /// Google's `httpRequest`.
    HttpRequest,
    /// The field sets of the Elastic Common Schema.
    Ecs(FieldSet),
}

/// Objects of the Elastic Common Schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldSet {
    Source,
    Http,
    Request,
    Response,
    Body,
    Url,
    UserAgent,
}

impl FieldParent {
    pub(super) fn below(self, name: &str) -> Option<FieldParent> {
        Some(match (self, name) {
            (FieldParent::Top, "request") => FieldParent::Request,
            (FieldParent::Top, "resp_headers") => FieldParent::ResponseHeaders,
            (FieldParent::Request, "headers") => FieldParent::RequestHeaders,
            (FieldParent::Top, "httpRequest") => FieldParent::HttpRequest,
            (FieldParent::Top, "source" | "client") => FieldParent::Ecs(FieldSet::Source),
            (FieldParent::Top, "http") => FieldParent::Ecs(FieldSet::Http),
            (FieldParent::Top, "url") => FieldParent::Ecs(FieldSet::Url),
            (FieldParent::Top, "user_agent") => FieldParent::Ecs(FieldSet::UserAgent),
            (FieldParent::Ecs(FieldSet::Http), "request") => FieldParent::Ecs(FieldSet::Request),
            (FieldParent::Ecs(FieldSet::Http), "response") => FieldParent::Ecs(FieldSet::Response),
            (FieldParent::Ecs(FieldSet::Response), "body") => FieldParent::Ecs(FieldSet::Body),
            _ => return None,
        })
    }
}

impl<'a> Found<'a> {
    pub(super) fn take(&mut self, parent: FieldParent, name: &str, value: Scalar<'a>) {
        match parent {
            FieldParent::Top => self.take_top(name, value),
            FieldParent::Request => match name {
                "client_ip" => self.client = value.text(),
                "remote_ip" | "remote_addr" => self.client = self.client.take().or(value.text()),
                "method" => self.method = value.text(),
                "host" => self.site = value.text(),
                "uri" => self.target = value.text(),
                _ => {}
            },
            FieldParent::RequestHeaders => self.take_header(name, value),
            FieldParent::ResponseHeaders => {
                self.private |= name.eq_ignore_ascii_case("set-cookie")
                    || name.eq_ignore_ascii_case("cache-control")
                        && value.text().is_some_and(|text| is_private(&text));
            }
            FieldParent::HttpRequest => self.take_google(name, value),
            FieldParent::Ecs(set) => self.take_ecs(set, name, value),
        }
    }

    fn take_google(&mut self, name: &str, value: Scalar<'a>) {
        match name {
            "remoteIp" => self.client = value.text(),
            "requestMethod" => self.method = value.text(),
            "requestUrl" => self.target = value.text(),
            "status" => self.status = value.number(),
            "responseSize" => self.bytes = value.number(),
            "userAgent" => self.agent = value.text(),
            "referer" => self.referer = value.text(),
            _ => {}
        }
    }

    fn take_ecs(&mut self, set: FieldSet, name: &str, value: Scalar<'a>) {
        match (set, name) {
            (FieldSet::Source, "ip") => self.client = value.text(),
            (FieldSet::Source, "address") => self.client = self.client.take().or(value.text()),
            (FieldSet::Request, "method") => self.method = value.text(),
            (FieldSet::Request, "referrer") => self.referer = value.text(),
            (FieldSet::Response, "status_code") => self.status = value.number(),
            (FieldSet::Body, "bytes") => self.bytes = value.number(),
            (FieldSet::Url, "original") => self.target = value.text(),
            (FieldSet::Url, "path") => self.rewritten = self.rewritten.take().or(value.text()),
            (FieldSet::Url, "domain") => self.site = self.site.take().or(value.text()),
            (FieldSet::UserAgent, "original") => self.agent = value.text(),
            _ => {}
        }
    }

    /// Makes room for another value of a field, under nginx' name.
    pub(super) fn forget(&mut self, field: &str) {
        match field {
            "remote_addr" => (self.client, self.vague) = (None, None),
            "host" => self.site = None,
            "request" => (self.method, self.target, self.rewritten) = (None, None, None),
            "request_uri" => self.line = None,
            _ => {}
        }
    }

    pub(super) fn take_top(&mut self, name: &str, value: Scalar<'a>) {
        match name {
            "ts" | "time" | "timestamp" | "@timestamp" | "time_iso8601" | "time_local"
            | "start_time" | "StartUTC" | "EdgeStartTimestamp" => {
                self.at = self.at.take().or(Some(value));
            }
            // With milliseconds, so the best of nginx's times.
            "msec" => self.at = Some(value),
            "log" | "message" | "MESSAGE" => self.wrapped = self.wrapped.take().or(value.text()),
            "request_time" | "duration" => self.took = value.number(),
            "Duration" => self.took = value.number().map(|nanoseconds| nanoseconds / 1e9),
            _ => self.take_top_client(name, value),
        }
    }

    fn take_top_client(&mut self, name: &str, value: Scalar<'a>) {
        match name {
            "client" | "ip" => self.vague = self.vague.take().or(value.text()),
            "client_ip"
            | "remote_addr"
            | "remote_ip"
            | "clientip"
            | "source.ip"
            | "source.address"
            | "ClientIP"
            | "ClientHost"
            | "downstream_remote_address" => {
                if let Some(client) = value.text() {
                    self.take_client(client);
                }
            }
            "http_x_forwarded_for" | "x_forwarded_for" | "xff" | "request_X-Forwarded-For" => {
                self.forwarded = value.text();
            }
            "http_forwarded" | "forwarded" | "request_Forwarded" => {
                self.forwarded = self.forwarded.take().or(value.text());
            }
            "http_x_real_ip" | "http_cf_connecting_ip" | "http_true_client_ip" => {
                self.forwarded = self.forwarded.take().or(value.text());
            }
            "http_user_agent"
            | "user_agent"
            | "agent"
            | "request_User-Agent"
            | "ClientRequestUserAgent"
            | "user_agent.original" => self.agent = value.text(),
            _ => self.take_top_request(name, value),
        }
    }

    fn take_top_request(&mut self, name: &str, value: Scalar<'a>) {
        match name {
            "request" => self.line = value.text(),
            "request_method"
            | "method"
            | "verb"
            | "http.request.method"
            | "RequestMethod"
            | "ClientRequestMethod" => self.method = value.text(),
            "request_uri" | "RequestPath" | "ClientRequestURI" | "url.original" => {
                self.target = value.text();
            }
            // nginx has rewritten its `uri`, which may be the same for all pages, and has no query.
            "uri" | "url" | "path" => self.rewritten = self.rewritten.take().or(value.text()),
            "host" | "http_host" | "server_name" | "vhost" | "authority" | "RequestHost"
            | "ClientRequestHost" => self.site = self.site.take().or(value.text()),
            "http_referer"
            | "referer"
            | "referrer"
            | "request_Referer"
            | "ClientRequestReferer" => self.referer = value.text(),
            _ => self.take_top_response(name, value),
        }
    }

    fn take_top_response(&mut self, name: &str, value: Scalar<'a>) {
        match name {
            "status"
            | "status_code"
            | "response"
            | "DownstreamStatus"
            | "EdgeResponseStatus"
            | "http.response.status_code" => self.status = value.number(),
            "response_code" => {
                self.status = value.number();
                self.is_envoy = true;
            }
            // Body and head: only if the length of the body is missing.
            "bytes_sent" => self.bytes = self.bytes.or(value.number()),
            "body_bytes_sent"
            | "bytes"
            | "size"
            | "DownstreamContentSize"
            | "EdgeResponseBytes"
            | "http.response.body.bytes" => self.bytes = value.number(),
            _ => self.take_private(name, value),
        }
    }

    /// Of two addresses one is a proxy's, and it is unknown which.
    fn take_client(&mut self, client: Cow<'a, str>) {
        let address = |text: &str| address::parse(text).ok_or_else(|| text.to_owned());
        match &self.client {
            None => self.client = Some(client),
            Some(other) if address(other) == address(&client) => {}
            Some(_) => self.forwarded = self.forwarded.take().or(Some(client)),
        }
    }

    /// Evidence that an answer is private, or that the request is a prefetch.
    fn take_private(&mut self, name: &str, value: Scalar<'a>) {
        match name {
            name if USERS.contains(&name) => self.private |= value.is_user(),
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
            "x-forwarded-for" => self.forwarded = value.text(),
            "forwarded" => self.forwarded = self.forwarded.take().or(value.text()),
            _ => {}
        }
    }
}

impl<'a> Found<'a> {
    pub(super) fn line(self) -> Result<Line<'a>, LineError> {
        let missing = |part| move || LineError::Missing(part);
        let at = self.at.ok_or_else(missing(Part::Date))?;
        let at = match &at {
            Scalar::Number(number) => date::epoch(*number),
            Scalar::Text(text) => date::rfc3339(text)
                .or_else(|| date::common(text))
                .or_else(|| date::with_slashes(text))
                .or_else(|| at.number().and_then(date::epoch)),
        };
        let line = self.line.map(in_two);
        let (method, target) = match (self.method, self.target, self.rewritten, line) {
            (Some(method), Some(target), _, _) => (method, target),
            (_, _, _, Some(line)) if !line.0.is_empty() => line,
            (Some(method), _, Some(target), _) => (method, target),
            // Logstash has only the target in `request`.
            (Some(method), _, _, Some((_, target))) => (method, target),
            (_, _, _, line) => line.ok_or_else(missing(Part::Request))?,
        };
        let status = self.status.ok_or_else(missing(Part::Status))?;
        let bytes = self.bytes.unwrap_or(0.0);
        let status_fits = status.fract() == 0.0 && (0.0..=65_535.0).contains(&status);
        let column = self.client.or(self.vague).ok_or_else(missing(Part::Client))?;
        let entry = Entry {
            at: at.ok_or(LineError::Invalid(Part::Date))?,
            client: Cow::Borrowed(""),
            method,
            target,
            status: if status_fits { status as u16 } else { return invalid(Part::Status) },
            // nginx's name for a server that is requested without a name.
            site: self.site.filter(|text| !matches!(&**text, "" | "-" | "_")),
            bytes: if bytes >= 0.0 { Bytes(bytes as u64) } else { return invalid(Part::Length) },
            referer: self.referer.filter(|text| !matches!(&**text, "" | "-")),
            agent: self.agent.map(unquoted),
            took: self
                .took
                .map(|took| if self.is_envoy { took / 1e3 } else { took })
                .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
            prefetch: self.prefetch,
            private: self.private,
            named_by_query: false,
        };
        let stated = Stated { column, forwarded: self.forwarded, named: None };
        Ok(Line { entry, stated })
    }
}

/// A user agent without the quotation marks that Logstash leaves around it; empty for a dash.
fn unquoted(text: Cow<'_, str>) -> Cow<'_, str> {
    if text == "-" {
        return Cow::Borrowed("");
    }
    match text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
        Some(inner) => Cow::Owned(inner.to_owned()),
        None => text,
    }
}

/// Method and target of a request line.
fn in_two(line: Cow<'_, str>) -> (Cow<'_, str>, Cow<'_, str>) {
    match line {
        Cow::Borrowed(line) => {
            let (method, target) = request_line(line);
            (Cow::Borrowed(method), Cow::Borrowed(target))
        }
        Cow::Owned(line) => {
            let (method, target) = request_line(&line);
            (Cow::Owned(method.to_owned()), Cow::Owned(target.to_owned()))
        }
    }
}

fn invalid<T>(part: Part) -> Result<T, LineError> {
    Err(LineError::Invalid(part))
}
