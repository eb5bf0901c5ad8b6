//! Formats that the user describes: nginx' `log_format`, Apache's `LogFormat`, or the names in a JSON object.

use std::borrow::Cow;

use super::fields::{Found, Scalar};
use super::{Line, LineError, json};

/// The format of a log, in the syntax of the server's configuration.
///
/// ```
/// use lull_speculate::log::Template;
///
/// for text in [
///     "$remote_addr [$time_iso8601] $status \"$request\"",
///     "%h %l %u %t \\\"%r\\\" %>s %b",
///     "json:client=net.peer,time=ts,request=line,status=code",
/// ] {
///     assert!(text.parse::<Template>().is_ok(), "{text}");
/// }
/// assert!("$remote_addr$status".parse::<Template>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// Texts and fields in turn.
    Text(Vec<Piece>),
    /// The field's name here, and the names in the object that lead to it.
    Json(Vec<(&'static str, String)>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    /// The constant text in each line.
    Text(String),
    /// A field by nginx' name.
    Field(String),
}

/// Names of fields in a JSON map, and nginx' names of them.
const MAPPED: [(&str, &str); 14] = [
    ("client", "remote_addr"),
    ("time", "msec"),
    ("request", "request"),
    ("method", "request_method"),
    ("url", "request_uri"),
    ("status", "status"),
    ("bytes", "body_bytes_sent"),
    ("agent", "http_user_agent"),
    ("referer", "http_referer"),
    ("host", "host"),
    ("user", "remote_user"),
    ("forwarded", "http_x_forwarded_for"),
    ("duration", "request_time"),
    ("purpose", "http_sec_purpose"),
];

impl core::str::FromStr for Template {
    type Err = String;

    /// Reads a description. A whole directive of a configuration is accepted as well.
    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim().trim_end_matches(';').trim_end();
        let kind = if let Some(map) = text.strip_prefix("json:") {
            Kind::Json(json_map(map)?)
        } else {
            let text = of_directive(text);
            let pieces = if text.contains('$') { nginx(&text)? } else { apache(&text)? };
            Kind::Text(joined(pieces)?)
        };
        let template = Template { kind };
        template.check()?;
        Ok(template)
    }
}

/// The format in a directive of nginx or Apache, or the text itself.
fn of_directive(text: &str) -> Cow<'_, str> {
    if let Some(rest) = text.strip_prefix("log_format") {
        // Strings in quotation marks after the name, which nginx joins.
        return Cow::Owned(rest.split('\'').skip(1).step_by(2).collect());
    }
    if let Some(rest) = text.strip_prefix("LogFormat") {
        let inner = rest.trim().strip_prefix('"');
        let end = inner.and_then(|inner| {
            let mut marks = inner.match_indices('"').map(|(at, _)| at);
            marks.rfind(|at| !inner[..*at].ends_with('\\'))
        });
        if let (Some(inner), Some(end)) = (inner, end) {
            return Cow::Owned(inner[..end].replace("\\\"", "\""));
        }
    }
    if text.contains("\\\"") { Cow::Owned(text.replace("\\\"", "\"")) } else { Cow::Borrowed(text) }
}

fn json_map(map: &str) -> Result<Vec<(&'static str, String)>, String> {
    map.split(',')
        .map(|pair| {
            let known = || MAPPED.map(|(name, _)| name).join(", ");
            let (name, path) = pair
                .split_once('=')
                .ok_or_else(|| format!("'{pair}' has no '=': write client=FIELD,time=FIELD,…"))?;
            let found = MAPPED.iter().find(|(known, _)| *known == name.trim());
            let (_, field) = found
                .ok_or_else(|| format!("'{name}' is not a field: the fields are {}", known()))?;
            Ok((*field, path.trim().to_owned()))
        })
        .collect()
}

/// Texts and variables, such as `$status` or `${status}`.
fn nginx(text: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut parts = text.split('$');
    pieces.push(Piece::Text(parts.next().unwrap_or_default().to_owned()));
    for part in parts {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let (name, rest) = match part.strip_prefix('{') {
            Some(inner) => inner.split_once('}').ok_or("a '${' has no '}'")?,
            None => part.split_at(part.find(|c| !is_name(c)).unwrap_or(part.len())),
        };
        if name.is_empty() {
            return Err("a '$' has no name behind it".to_owned());
        }
        pieces.push(Piece::Field(name.to_owned()));
        pieces.push(Piece::Text(rest.to_owned()));
    }
    Ok(pieces)
}

/// Texts and directives, such as `%>s` or `%{Referer}i`.
fn apache(text: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    // Adjacent path and query are the target.
    let text = text.replace("%U%q", "%{target}U");
    let mut rest = text.as_str();
    while let Some(at) = rest.find('%') {
        pieces.push(Piece::Text(rest[..at].to_owned()));
        let modifiers = |c: char| c.is_ascii_digit() || matches!(c, '<' | '>' | '!' | ',');
        rest = rest[at + 1..].trim_start_matches(modifiers);
        let name = match rest.strip_prefix('{') {
            Some(inner) => {
                let (name, behind) = inner.split_once('}').ok_or("a '%{' has no '}'")?;
                rest = behind;
                Some(name)
            }
            None => None,
        };
        let letter = rest.chars().next().ok_or("a '%' has no letter behind it")?;
        rest = &rest[letter.len_utf8()..];
        pieces.extend(directive(letter, name)?);
    }
    pieces.push(Piece::Text(rest.to_owned()));
    Ok(pieces)
}

fn directive(letter: char, name: Option<&str>) -> Result<Vec<Piece>, String> {
    let header =
        |of: &str, name: &str| format!("{of}_{}", name.to_ascii_lowercase().replace('-', "_"));
    let field = match (letter, name) {
        ('%', _) => return Ok(vec![Piece::Text("%".to_owned())]),
        ('t', None) => {
            let bracket = |text: &str| Piece::Text(text.to_owned());
            return Ok(vec![bracket("["), Piece::Field("time_local".to_owned()), bracket("]")]);
        }
        ('t', Some("sec" | "msec" | "usec")) => "msec".to_owned(),
        ('t', Some(_)) => "time_local".to_owned(),
        ('h', _) | ('a', None) => "remote_addr".to_owned(),
        ('u', _) => "remote_user".to_owned(),
        ('r', _) => "request".to_owned(),
        ('m', _) => "request_method".to_owned(),
        ('U', Some(_)) => "request_uri".to_owned(),
        ('U', None) => "uri".to_owned(),
        ('s', _) => "status".to_owned(),
        ('b' | 'B', _) => "body_bytes_sent".to_owned(),
        ('O', _) => "bytes_sent".to_owned(),
        ('v' | 'V', _) => "host".to_owned(),
        ('T', None | Some("s")) => "request_time".to_owned(),
        ('i', Some(name)) => header("http", name),
        ('o', Some(name)) => header("sent_http", name),
        (letter, _) if letter.is_ascii_alphabetic() => format!("of_apache_{letter}"),
        (letter, _) => return Err(format!("'%{letter}' is not a directive of Apache")),
    };
    Ok(vec![Piece::Field(field)])
}

/// The same without empty texts, and with adjacent texts joined.
fn joined(pieces: Vec<Piece>) -> Result<Vec<Piece>, String> {
    let mut all: Vec<Piece> = Vec::new();
    for piece in pieces {
        match (all.last_mut(), piece) {
            (_, Piece::Text(text)) if text.is_empty() => {}
            (Some(Piece::Text(before)), Piece::Text(text)) => before.push_str(&text),
            (Some(Piece::Field(before)), Piece::Field(name)) => {
                return Err(format!("nothing separates {before} and {name}"));
            }
            (_, piece) => all.push(piece),
        }
    }
    Ok(all)
}

impl Template {
    /// Whether it has all fields of a request.
    fn check(&self) -> Result<(), String> {
        let Kind::Text(pieces) = &self.kind else { return Ok(()) };
        let has = |names: &[&str]| {
            let is_one =
                |piece: &Piece| matches!(piece, Piece::Field(name) if names.contains(&&**name));
            pieces.iter().any(is_one)
        };
        let client = [
            "remote_addr",
            "http_x_forwarded_for",
            "http_forwarded",
            "http_x_real_ip",
            "http_cf_connecting_ip",
        ];
        for (what, names) in [
            ("client ($remote_addr or %h)", &client[..]),
            ("time ($time_local or %t)", &["time_local", "time_iso8601", "msec"]),
            ("request ($request or %r)", &["request", "request_uri", "uri"]),
            ("status ($status or %>s)", &["status"]),
        ] {
            if !has(names) {
                return Err(format!("the format has no {what}"));
            }
        }
        Ok(())
    }

    /// Reads a line of this form. `named` is the field that the user has named for the client.
    pub(super) fn line<'a>(
        &self,
        text: &'a str,
        named: Option<&str>,
    ) -> Result<Line<'a>, LineError> {
        match &self.kind {
            Kind::Text(pieces) => {
                let (found, value) = fields(pieces, text, named)?;
                let mut line = found.line()?;
                line.stated.named = value.map(Cow::Borrowed);
                Ok(line)
            }
            Kind::Json(map) => json::mapped(text, map, named),
        }
    }
}

/// The fields of a line, and the value of the one with a name.
fn fields<'a>(
    pieces: &[Piece],
    text: &'a str,
    named: Option<&str>,
) -> Result<(Found<'a>, Option<&'a str>), LineError> {
    let mut found = Found::default();
    let mut rest = text;
    let mut value_of_named = None;
    for (at, piece) in pieces.iter().enumerate() {
        let name = match piece {
            Piece::Text(expected) => {
                // A text before a field was found as its end.
                rest = behind(rest, expected).ok_or(LineError::Shape)?;
                continue;
            }
            Piece::Field(name) => name,
        };
        let value = match pieces.get(at + 1) {
            Some(Piece::Text(next)) => &rest[..end_of(rest, next).ok_or(LineError::Shape)?],
            _ => rest,
        };
        rest = &rest[value.len()..];
        if named.is_some_and(|named| is_same_name(named, name)) {
            value_of_named = Some(value);
        }
        let value = if name == "http_x_forwarded_for" || value != "-" { value } else { continue };
        found.take_top(name, Scalar::Text(Cow::Borrowed(value)));
    }
    // A log without a field for agents contains none; a dash in one shows that none was sent.
    let has_agent =
        pieces.iter().any(|piece| matches!(piece, Piece::Field(name) if name == "http_user_agent"));
    if has_agent && found.agent.is_none() {
        found.agent = Some(Cow::Borrowed(""));
    }
    if found.client.is_none() && (found.forwarded.is_some() || value_of_named.is_some()) {
        // The only field that may have the client.
        found.client = Some(Cow::Borrowed(""));
    }
    Ok((found, value_of_named))
}

/// Whether two names mean one field: `X-Forwarded-For` is nginx' `http_x_forwarded_for`.
fn is_same_name(named: &str, field: &str) -> bool {
    let name = named.to_ascii_lowercase().replace('-', "_");
    let name = name.strip_prefix('$').unwrap_or(&name);
    name == field || field.strip_prefix("http_").is_some_and(|field| field == name)
}

/// The rest after a text. Any number of blanks counts as one.
fn behind<'a>(rest: &'a str, expected: &str) -> Option<&'a str> {
    if let Some(rest) = rest.strip_prefix(expected) {
        return Some(rest);
    }
    let mut rest = rest;
    for word in expected.split_inclusive(' ') {
        let bare = word.trim_end_matches(' ');
        rest = rest.strip_prefix(bare)?;
        if bare.len() < word.len() {
            // The line may end with the blank, which was trimmed.
            let trimmed = rest.trim_start_matches(' ');
            if trimmed.len() == rest.len() && !rest.is_empty() {
                return None;
            }
            rest = trimmed;
        }
    }
    Some(rest)
}

/// The end of a field before this text. In quotation marks, an escaped one does not end it.
fn end_of(rest: &str, next: &str) -> Option<usize> {
    let is_quote = next.starts_with('"');
    let found = rest.match_indices(next).map(|(at, _)| at).find(|at| {
        !is_quote || rest[..*at].bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 0
    });
    // The last text may have lost its blank.
    found.or_else(|| {
        rest.strip_suffix(next.trim_end()).map(str::len).filter(|_| next.ends_with(' '))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nginx_and_apache_templates_parse_their_lines() {
        let nginx = "[$time_iso8601] - $host - $remote_addr - $status - - - $request_method - \
                     $server_protocol - $body_bytes_sent - $request_time - \"$http_referer\" - \
                     \"$http_user_agent\" - \"$request_uri\"";
        let of_nginx = "[2024-07-03T09:46:40+00:00] - www.example.org - 192.0.2.7 - 200 - - - GET - \
                        HTTP/1.1 - 1713 - 0.012 - \"-\" - \"Mozilla/5.0 (\\\"X\\\")\" - \"/a?b\"";
        let apache =
            "%h %l %u %t \\\"%m %U%q %H\\\" %>s %b \\\"%{Referer}i\\\" \\\"%{User-Agent}i\\\" %D";
        let of_apache = "192.0.2.7 - bob [03/Jul/2024:09:46:40 +0000] \"GET /a?b HTTP/1.1\" 200 1713 \"-\" \
                         \"Mozilla/5.0 (\\\"X\\\")\" 12";
        let directive = "log_format main '$remote_addr [$time_local] '\n '\"$request\" $status $body_bytes_sent';";
        let of_directive = "192.0.2.7 [03/Jul/2024:09:46:40 +0000] \"GET /a?b HTTP/1.1\" 200 1713";
        let log_format = "LogFormat \"%h %t \\\"%r\\\" %>s %b\" short";
        for (template, line) in [
            (nginx, of_nginx),
            (apache, of_apache),
            (directive, of_directive),
            (log_format, of_directive),
        ] {
            let template: Template = template.parse().unwrap();
            let found = template.line(line, None).unwrap();
            assert_eq!(found.stated.column, "192.0.2.7", "{line}");
            let entry = found.entry;
            assert_eq!((&*entry.method, &*entry.target, entry.status), ("GET", "/a?b", 200));
            assert_eq!((entry.bytes.0, entry.at.as_nanos()), (1713, 1_720_000_000_000_000_000));
            assert_eq!(entry.private, line.contains("bob"), "{line}");
            let agent = entry.agent.as_deref();
            assert!(agent.is_none_or(|agent| agent == "Mozilla/5.0 (\\\"X\\\")"), "{agent:?}");
            assert_eq!(template.line("192.0.2.7 x", None).unwrap_err(), LineError::Shape);
        }
    }

    #[test]
    fn json_maps_lead_to_nested_fields() {
        let template: Template =
            "json:client=net.peer,time=when,url=req.u,method=req.m,status=code".parse().unwrap();
        let line = r#"{"net":{"peer":"192.0.2.7"},"when":1720000000,"req":{"u":"/a","m":"GET"},"code":200}"#;
        let found = template.line(line, None).unwrap();
        assert_eq!((&*found.stated.column, &*found.entry.target), ("192.0.2.7", "/a"));
        let named = template.line(line, Some("net.peer")).unwrap().stated.named;
        assert_eq!(named.as_deref(), Some("192.0.2.7"));
    }

    #[test]
    fn template_errors_are_reported() {
        for (text, words) in [
            ("", "no client"),
            ("combined", "no client"),
            ("$remote_addr [$time_local] $status", "no request"),
            ("$remote_addr $ $time_local", "no name"),
            ("$remote_addr${time_local", "no '}'"),
            ("$remote_addr$time_local $request $status", "nothing separates"),
            ("%h %t %r %", "no letter"),
            ("%h %t %r %>", "no letter"),
            ("%h %t \"%r\"", "no status"),
            ("json:client", "no '='"),
            ("json:who=a", "'who' is not a field"),
        ] {
            let error = text.parse::<Template>().unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
