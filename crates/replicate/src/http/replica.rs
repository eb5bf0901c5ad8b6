//! What a replica answers.

use std::io;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::header::{self, HeaderMap};
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use tokio::net::TcpListener;
use tokio::sync::mpsc::channel;

use super::content::Content;
use super::origin::local;
use super::{Face, Listener, Serving, document, figures, line, name_of};
use crate::daemon::{Found, ReadError, ReplicaHandle};
use crate::path::{Path, RESERVED};
use crate::types::{Metadata, Sequence};
use crate::wire::PIECE;

/// What carries the token of a session, in both directions.
const SESSION: HeaderName = HeaderName::from_static("lull-session");
/// Its cookie.
const COOKIE: &str = "lull-session";

/// What happens to a read that cannot be answered now (SSR §6.2.2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Blocked {
    /// It waits for as long as whoever reads does.
    #[default]
    Wait,
    /// After a time it is told that it cannot: 503.
    Error(Duration),
    /// After a time it is sent to another replica: 307.
    Redirect(Duration, Uri),
}

impl Blocked {
    /// For how long a read waits, if that has an end.
    pub fn patience(&self) -> Option<Duration> {
        match self {
            Blocked::Wait => None,
            Blocked::Error(patience) | Blocked::Redirect(patience, _) => Some(*patience),
        }
    }
}

/// The HTTP face of a replica.
#[derive(Debug)]
pub struct ReplicaFace {
    replica: ReplicaHandle,
    blocked: Blocked,
}

impl ReplicaFace {
    /// Opens the face.
    pub fn open(listener: TcpListener, replica: ReplicaHandle, blocked: Blocked) -> Serving {
        Serving::open(Listener::Tcp(listener), Arc::new(ReplicaFace { replica, blocked }))
    }

    /// Opens it as a socket in the replica's folder, for whoever may use that.
    ///
    /// # Errors
    /// If the socket cannot be made.
    pub fn open_local(
        folder: &FilePath,
        replica: ReplicaHandle,
        blocked: Blocked,
    ) -> io::Result<Serving> {
        let listener = local(folder)?;
        Ok(Serving::open(Listener::Unix(listener), Arc::new(ReplicaFace { replica, blocked })))
    }

    async fn object(&self, name: &str, request: &Request<Incoming>) -> Response<Content> {
        let headers = request.headers();
        let seen = match token(headers).map(|token| self.replica.tokens().verify(token)) {
            None => Sequence::ZERO,
            Some(Ok(seen)) => seen,
            Some(Err(error)) => return line(StatusCode::BAD_REQUEST, error),
        };
        // As web servers do: a folder is read by its index.
        let file = match name {
            _ if name.is_empty() || name.ends_with('/') => format!("{name}index.html"),
            _ => name.to_owned(),
        };
        let Ok(path) = Path::new(&file) else {
            return line(StatusCode::NOT_FOUND, format_args!("there is no `{file}`"));
        };
        let (at, found) = match self.replica.object(&path, seen, self.blocked.patience()).await {
            Ok(read) => read,
            Err(error) => return self.unanswered(error, request.uri()),
        };
        let mut response = match found {
            None => line(StatusCode::NOT_FOUND, format_args!("there is no `{path}`")),
            Some(found) => self.found(found, &path, request),
        };
        self.remember(at, seen, response.headers_mut());
        response
    }

    /// The session has seen this state.
    fn remember(&self, at: Sequence, seen: Sequence, headers: &mut HeaderMap) {
        let token = self.replica.tokens().issue(at.max(seen));
        let cookie = format!("{COOKIE}={token}; Path=/; HttpOnly; SameSite=Lax");
        if let Ok(token) = HeaderValue::from_str(&token) {
            headers.insert(SESSION, token);
        }
        if at > seen
            && let Ok(cookie) = HeaderValue::from_str(&cookie)
        {
            headers.insert(header::SET_COOKIE, cookie);
        }
    }

    fn unanswered(&self, error: ReadError, uri: &Uri) -> Response<Content> {
        if let (Blocked::Redirect(_, other), ReadError::Waits(_)) = (&self.blocked, &error) {
            let rest = uri.path_and_query().map_or("/", |rest| rest.as_str());
            let place = format!("{}{rest}", other.to_string().trim_end_matches('/'));
            let mut response = line(StatusCode::TEMPORARY_REDIRECT, error);
            if let Ok(place) = HeaderValue::from_str(&place) {
                response.headers_mut().insert(header::LOCATION, place);
            }
            return response;
        }
        let mut response = line(StatusCode::SERVICE_UNAVAILABLE, error);
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        response
    }

    fn found(&self, found: Found, path: &Path, request: &Request<Incoming>) -> Response<Content> {
        let content = found.version.content;
        let size = content.size.0;
        let tag = format!("\"{}\"", content.digest);
        let mut response = Response::new(Content::none());
        let headers = response.headers_mut();
        let mut set = |name, text: &str| {
            if let Ok(value) = HeaderValue::from_str(text) {
                headers.insert(name, value);
            }
        };
        set(header::ETAG, &tag);
        set(header::LAST_MODIFIED, &date(content.metadata));
        // Any other cache would answer without the promises: it asks here each time.
        set(header::CACHE_CONTROL, "no-cache");
        set(header::ACCEPT_RANGES, "bytes");
        set(header::CONTENT_TYPE, kind_of(path));
        if let Some(age) = self.replica.staleness() {
            set(header::AGE, &age.as_secs().to_string());
        }
        let asked = request.headers();
        if asked.get(header::IF_NONE_MATCH).is_some_and(|tags| names(tags, &tag)) {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            return response;
        }
        let fresh = asked.get(header::IF_RANGE).is_none_or(|of| of.as_bytes() == tag.as_bytes());
        let range =
            asked.get(header::RANGE).filter(|_| fresh).and_then(|range| range.to_str().ok());
        let (begin, end) = match range.map_or(Ranged::All, |range| ranged(range, size)) {
            Ranged::All => (0, size),
            Ranged::Part(begin, end) => {
                set_range(&mut response, &format!("bytes {begin}-{}/{size}", end - 1));
                *response.status_mut() = StatusCode::PARTIAL_CONTENT;
                (begin, end)
            }
            Ranged::Outside => {
                set_range(&mut response, &format!("bytes */{size}"));
                *response.status_mut() = StatusCode::RANGE_NOT_SATISFIABLE;
                return response;
            }
        };
        if request.method() == Method::HEAD {
            response.headers_mut().insert(header::CONTENT_LENGTH, (end - begin).into());
        } else {
            *response.body_mut() = bytes(found, begin, end);
        }
        response
    }
}

fn set_range(response: &mut Response<Content>, text: &str) {
    if let Ok(value) = HeaderValue::from_str(text) {
        response.headers_mut().insert(header::CONTENT_RANGE, value);
    }
}

/// The bytes from `begin` to before `end`, as they are taken.
fn bytes(found: Found, begin: u64, end: u64) -> Content {
    if begin == end {
        return Content::none();
    }
    let (sender, pieces) = channel(2);
    tokio::spawn(async move {
        let piece = PIECE as u64;
        for number in begin / piece..end.div_ceil(piece) {
            let read = match found.piece(u32::try_from(number).unwrap_or(u32::MAX)).await {
                Ok(Some(bytes)) => {
                    let first = number * piece;
                    let from = begin.saturating_sub(first).min(bytes.len() as u64) as usize;
                    let to = (end - first).min(bytes.len() as u64) as usize;
                    Ok(bytes.slice(from..to))
                }
                // It was overwritten long ago, or given up. The client sees that the rest is missing.
                Ok(None) => Err(io::ErrorKind::NotFound.into()),
                Err(_) => Err(io::ErrorKind::BrokenPipe.into()),
            };
            let last = read.is_err();
            if sender.send(read).await.is_err() || last {
                return;
            }
        }
    });
    Content::Pieces { pieces, left: Some(end - begin) }
}

/// What a `Range` asks for.
#[derive(Debug, PartialEq, Eq)]
enum Ranged {
    /// Everything: it is none, or one that is not understood, which may be ignored (RFC 9110 §14.2).
    All,
    /// From the first to before the second.
    Part(u64, u64),
    /// Nothing that is there.
    Outside,
}

fn ranged(text: &str, size: u64) -> Ranged {
    let Some((first, last)) = text.strip_prefix("bytes=").and_then(|range| range.split_once('-'))
    else {
        return Ranged::All;
    };
    let (begin, end) = match (first.trim().parse::<u64>(), last.trim().parse::<u64>()) {
        (Ok(begin), Ok(last)) if last >= begin => (begin, last.saturating_add(1).min(size)),
        (Ok(begin), Err(_)) if last.trim().is_empty() => (begin, size),
        // The last so many.
        (Err(_), Ok(count)) if first.trim().is_empty() => {
            (size.saturating_sub(count), if count == 0 { 0 } else { size })
        }
        _ => return Ranged::All,
    };
    if begin < end { Ranged::Part(begin, end) } else { Ranged::Outside }
}

/// Whether a list of entity tags has this one (RFC 9110 §13.1.2: compared weakly).
fn names(tags: &HeaderValue, tag: &str) -> bool {
    let tags = tags.to_str().unwrap_or_default();
    let mut tags = tags.split(',').map(|one| one.trim().trim_start_matches("W/"));
    tags.any(|one| one == "*" || one == tag)
}

/// The token that a client shows, by the header or else by the cookie.
fn token(headers: &HeaderMap) -> Option<&str> {
    if let Some(token) = headers.get(SESSION) {
        // What is no text is no token either, and is told so.
        return Some(token.to_str().unwrap_or_default());
    }
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|cookies| cookies.split(';'));
    pairs.find_map(|pair| pair.trim().strip_prefix(COOKIE)?.strip_prefix('='))
}

fn date(metadata: Metadata) -> String {
    let nanos = u64::try_from(metadata.modified.as_nanos()).unwrap_or(0);
    let time = SystemTime::UNIX_EPOCH + Duration::from_nanos(nanos);
    httpdate::fmt_http_date(time)
}

/// What a file is, by its name.
fn kind_of(path: &Path) -> &'static str {
    mime_guess::from_path(path.as_str()).first_raw().unwrap_or("application/octet-stream")
}

impl Face for ReplicaFace {
    async fn answer(&self, request: Request<Incoming>) -> Response<Content> {
        if ![Method::GET, Method::HEAD].contains(request.method()) {
            let mut response =
                line(StatusCode::METHOD_NOT_ALLOWED, "a replica is read only: write to the origin");
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        let Some(name) = name_of(&request) else {
            return line(StatusCode::BAD_REQUEST, "the path is no UTF-8");
        };
        let Some(own) = name.strip_prefix(RESERVED).and_then(|own| own.strip_prefix('/')) else {
            return self.object(&name, &request).await;
        };
        let status = || self.replica.status();
        match own {
            "status" => document("application/json", figures::json(&status())),
            "metrics" => document(figures::PROMETHEUS, figures::of_replica(&status())),
            _ => line(StatusCode::NOT_FOUND, "here are /.lull/status and /.lull/metrics"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_what_the_rfc_says() {
        for (text, expected) in [
            ("bytes=0-0", Ranged::Part(0, 1)),
            ("bytes=2-", Ranged::Part(2, 10)),
            ("bytes=-3", Ranged::Part(7, 10)),
            ("bytes=-30", Ranged::Part(0, 10)),
            ("bytes=5-100", Ranged::Part(5, 10)),
            ("bytes=10-", Ranged::Outside),
            ("bytes=-0", Ranged::Outside),
            ("bytes=5-4", Ranged::All),
            ("bytes=0-1,3-4", Ranged::All),
            ("lines=0-1", Ranged::All),
            ("bytes=-", Ranged::All),
            ("bytes=a-b", Ranged::All),
        ] {
            assert_eq!(ranged(text, 10), expected, "{text}");
        }
        assert_eq!(ranged("bytes=0-", 0), Ranged::Outside);
    }

    #[test]
    fn a_token_comes_by_header_or_cookie() {
        let mut headers = HeaderMap::new();
        assert_eq!(token(&headers), None);
        headers.insert(header::COOKIE, HeaderValue::from_static("a=1; lull-session=two; b=3"));
        assert_eq!(token(&headers), Some("two"));
        headers.insert(SESSION, HeaderValue::from_static("one"));
        assert_eq!(token(&headers), Some("one"));
        headers.insert(SESSION, HeaderValue::from_bytes(b"\xff").expect("a value"));
        assert_eq!(token(&headers), Some(""));
    }

    #[test]
    fn entity_tags_are_compared_weakly() {
        for (tags, expected) in [
            ("\"a\"", true),
            ("W/\"a\"", true),
            ("\"b\", \"a\"", true),
            ("*", true),
            ("\"b\"", false),
        ] {
            assert_eq!(names(&HeaderValue::from_static(tags), "\"a\""), expected, "{tags}");
        }
    }
}
