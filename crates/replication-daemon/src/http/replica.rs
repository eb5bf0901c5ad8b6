//! The HTTP answers of a replica.

mod links;
#[cfg(test)]
mod tests;

use std::io;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes as Buffer;
use http::header::{self, HeaderMap};
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use httpdate::HttpDate;
use hyper::body::Incoming;
use lull_replication::path::{Escaped, Path};
use lull_replication::replica::{Answer, ReadTarget, Request as Read};
use lull_replication::time::LocalTime;
use lull_replication::token::{Keyring, TokenError};
use lull_replication::types::{Kind, Metadata, Sequence, Version};
use lull_replication::wire::PIECE;
use tokio::net::TcpListener;
use tokio::select;
use tokio::sync::mpsc::channel;
use tokio::time::timeout;

use super::conditions::{self, Judged};
use super::content::Content;
use super::origin::local;
use super::{
    HttpService, Listener, SESSION, Serving, document, figures, line, name_of, own_of,
    whole_seconds,
};
use crate::daemon::{Found, ReadError, ReplicaHandle};
use links::{Resolved, resolve};

/// The cookie of a session, which a browser sends to one host only; and the query parameter that carries it
/// to another replica.
const COOKIE: &str = "lull-session";
/// A client that reads nothing of a body for this long no longer keeps it: an overwritten body may then be
/// dropped.
const STALLED: Duration = Duration::from_secs(60);

/// The treatment of a read that cannot be answered now (SSR §6.2.2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Blocked {
    /// It waits as long as the client does.
    #[default]
    Wait,
    /// After a time it fails with 503.
    Error(Duration),
    /// After a time it is redirected (307) to another replica, given as a URL without a query. If another
    /// replica redirected it here, it fails instead.
    Redirect(Duration, Uri),
}

impl Blocked {
    /// For how long a read waits; none without a limit.
    pub fn patience(&self) -> Option<Duration> {
        match self {
            Blocked::Wait => None,
            Blocked::Error(patience) | Blocked::Redirect(patience, _) => Some(*patience),
        }
    }
}

/// The contents of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shows {
    Objects,
    /// The status of the replica.
    Figures,
    Both,
}

/// The HTTP service of a replica.
#[derive(Debug)]
pub struct ReplicaHttp {
    pub(super) replica: ReplicaHandle,
    pub(super) blocked: Blocked,
    shows: Shows,
}

impl ReplicaHttp {
    /// Opens the service, for objects and for the replica's status.
    pub fn open(listener: TcpListener, replica: ReplicaHandle, blocked: Blocked) -> Serving {
        Self::showing(Shows::Both, listener, replica, blocked)
    }

    /// Opens it for objects only.
    pub fn open_objects(
        listener: TcpListener,
        replica: ReplicaHandle,
        blocked: Blocked,
    ) -> Serving {
        Self::showing(Shows::Objects, listener, replica, blocked)
    }

    /// Opens it only for the replica's status.
    pub fn open_figures(listener: TcpListener, replica: ReplicaHandle) -> Serving {
        Self::showing(Shows::Figures, listener, replica, Blocked::Wait)
    }

    /// The answers about objects, for another service.
    pub(super) fn of_objects(replica: ReplicaHandle, blocked: Blocked) -> Self {
        ReplicaHttp { replica, blocked, shows: Shows::Objects }
    }

    fn showing(
        shows: Shows,
        listener: TcpListener,
        replica: ReplicaHandle,
        blocked: Blocked,
    ) -> Serving {
        let service = ReplicaHttp { replica, blocked, shows };
        Serving::open(Listener::tcp(listener), Arc::new(service))
    }

    /// Opens it as a socket in the replica's folder, for users with access to that.
    ///
    /// # Errors
    /// If the socket cannot be made.
    pub fn open_local(
        folder: &FilePath,
        replica: ReplicaHandle,
        blocked: Blocked,
    ) -> io::Result<Serving> {
        let listener = local(folder)?;
        let service = ReplicaHttp { replica, blocked, shows: Shows::Both };
        Ok(Serving::open(Listener::Unix(listener), Arc::new(service)))
    }

    async fn object(&self, name: &[u8], request: &Request<Incoming>) -> Response<Content> {
        let seen = match ClientState::from_request(request, &self.replica.tokens()) {
            Ok(seen) => seen,
            Err(error) => return line(StatusCode::BAD_REQUEST, error),
        };
        // Like web servers: a folder is read by its index.
        let file = match name {
            _ if name.is_empty() || name.ends_with(b"/") => [name, b"index.html"].concat(),
            _ => name.to_owned(),
        };
        let Ok(path) = Path::from_bytes(&file) else {
            return absent(&file);
        };
        let (at, response) = match self.read(&path, seen.at, request).await {
            Ok(read) => read,
            Err(error) => return self.unanswered(error, request.uri(), seen),
        };
        let mut response = response.unwrap_or_else(|| absent(path.as_bytes()));
        self.remember(at, seen, response.headers_mut());
        response
    }

    /// Reads the file that a name leads to. Returns the state, and the answer unless there is no such file.
    async fn read(
        &self,
        name: &Path,
        after: Sequence,
        request: &Request<Incoming>,
    ) -> Result<(Sequence, Option<Response<Content>>), ReadError> {
        /// How often links that change meanwhile are followed again.
        const TRIES: usize = 8;
        let patience = self.blocked.patience();
        for _ in 0..TRIES {
            let resolved = resolve(&self.replica, name, after, patience).await?;
            let Some(Resolved { path, only_in }) = resolved else { continue };
            let path = path.unwrap_or_else(|| name.clone());
            let (at, response) = self.file(&path, after, request).await?;
            // If the state has changed by now, the link may lead elsewhere.
            if only_in.is_none_or(|only| only == at) {
                return Ok((at, response));
            }
        }
        Err(ReadError::Evicted)
    }

    /// Reads a file, not what a link leads to. Returns the state, and the answer unless there is no such file.
    pub(super) async fn file(
        &self,
        path: &Path,
        after: Sequence,
        request: &Request<Incoming>,
    ) -> Result<(Sequence, Option<Response<Content>>), ReadError> {
        let patience = self.blocked.patience();
        if let Some(read) = self.without_body(path, after, patience, request).await? {
            return Ok(read);
        }
        let (at, found) = self.replica.object(path, after, patience).await?;
        let found = found.filter(|found| is_file(&found.version));
        Ok((at, found.map(|found| self.found(found, path, request))))
    }

    /// Answers a request that needs no body, so that it waits for none: gives a state, and the answer unless
    /// there is no such object. None for other requests.
    async fn without_body(
        &self,
        path: &Path,
        after: Sequence,
        patience: Option<Duration>,
        request: &Request<Incoming>,
    ) -> Result<Option<(Sequence, Option<Response<Content>>)>, ReadError> {
        let is_head = request.method() == Method::HEAD;
        if !is_head && !conditions::are_any(request.headers()) {
            return Ok(None);
        }
        let read = Read { target: ReadTarget::Entry(path.clone()), after };
        let Answer { at, outcome, reflects, .. } = self.replica.read(read, patience).await?;
        let Some(version) = outcome.version().filter(is_file) else { return Ok(Some((at, None))) };
        let mut response = self.head(&version, path, reflects);
        match judged(request.headers(), &version) {
            Judged::Failed => response = not_meant(path),
            Judged::Known => {
                *response.status_mut() = StatusCode::NOT_MODIFIED;
                if !is_head {
                    self.replica.count_read(path);
                }
            }
            Judged::Fine if is_head => {
                // Ranges are for GET (RFC 9110 §14.2).
                let size = version.content.size.0;
                response.headers_mut().insert(header::CONTENT_LENGTH, size.into());
            }
            Judged::Fine => return Ok(None),
        }
        Ok(Some((at, Some(response))))
    }

    /// The session has seen this state.
    fn remember(&self, at: Sequence, seen: ClientState, headers: &mut HeaderMap) {
        let token = self.replica.tokens().issue(at.max(seen.at));
        let cookie = format!("{COOKIE}={token}; Path=/; HttpOnly; SameSite=Lax");
        if let Ok(token) = HeaderValue::from_str(&token) {
            headers.insert(SESSION, token);
        }
        if (at.max(seen.at) > seen.kept || seen.is_reissued)
            && let Ok(cookie) = HeaderValue::from_str(&cookie)
        {
            headers.insert(header::SET_COOKIE, cookie);
        }
    }

    fn unanswered(&self, error: ReadError, uri: &Uri, seen: ClientState) -> Response<Content> {
        let can_elsewhere =
            matches!(error, ReadError::Waits(_) | ReadError::Scarce | ReadError::Evicted);
        if let Blocked::Redirect(_, other) = &self.blocked
            && can_elsewhere
            && !was_sent_here(uri)
        {
            let place = elsewhere(other, uri, &self.replica.tokens().issue(seen.at));
            let mut response = line(StatusCode::TEMPORARY_REDIRECT, error);
            if let Ok(place) = HeaderValue::from_str(&place) {
                response.headers_mut().insert(header::LOCATION, place);
            }
            return response;
        }
        if error == ReadError::Lost {
            return line(StatusCode::BAD_GATEWAY, error);
        }
        let mut response = line(StatusCode::SERVICE_UNAVAILABLE, error);
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        response
    }

    /// The head of a response about a version, from a state that includes every commit acknowledged before
    /// `reflects`.
    fn head(
        &self,
        version: &Version,
        path: &Path,
        reflects: Option<LocalTime>,
    ) -> Response<Content> {
        let mut response = Response::new(Content::none());
        let headers = response.headers_mut();
        let mut set = |name, text: &str| {
            if let Ok(value) = HeaderValue::from_str(text) {
                headers.insert(name, value);
            }
        };
        set(header::ETAG, &tag_of(version));
        set(header::LAST_MODIFIED, &date(version.content.metadata).to_string());
        // A cache would answer without the guarantees, so it must revalidate each time. A shared cache must
        // store nothing: it would store the token of its first client with the body, and set other clients
        // back to that state.
        set(header::CACHE_CONTROL, "no-cache, private");
        set(header::ACCEPT_RANGES, "bytes");
        set(header::CONTENT_TYPE, kind_of(path));
        // It was read some time ago, if its body had to be fetched.
        if let Some(reflects) = reflects {
            let age = self.replica.now().local.since(reflects);
            set(header::AGE, &whole_seconds(age).to_string());
        }
        response
    }

    fn found(&self, found: Found, path: &Path, request: &Request<impl Sized>) -> Response<Content> {
        let size = found.version.content.size.0;
        let mut response = self.head(&found.version, path, found.reflects);
        let asked = request.headers();
        // It may be newer than the version by which its name was judged; a known one is sent nevertheless.
        if judged(asked, &found.version) == Judged::Failed {
            return not_meant(path);
        }
        let tag = tag_of(&found.version);
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
        let (replica, patience) = (self.replica.clone(), self.blocked.patience());
        let reading = Reading { replica, path: path.clone(), patience, found };
        *response.body_mut() = reading.bytes(begin, end);
        response
    }
}

fn set_range(response: &mut Response<Content>, text: &str) {
    if let Ok(value) = HeaderValue::from_str(text) {
        response.headers_mut().insert(header::CONTENT_RANGE, value);
    }
}

/// A body that is being sent to a client.
struct Reading {
    replica: ReplicaHandle,
    path: Path,
    patience: Option<Duration>,
    found: Found,
}

impl Reading {
    /// The bytes from `begin` to before `end`, as the client takes them.
    fn bytes(mut self, begin: u64, end: u64) -> Content {
        if begin == end {
            return Content::none();
        }
        let (sender, pieces) = channel(2);
        tokio::spawn(async move {
            let piece = PIECE as u64;
            for number in begin / piece..end.div_ceil(piece) {
                let room = match timeout(STALLED, sender.reserve()).await {
                    Ok(room) => room,
                    Err(_) => {
                        self.found.release_hold();
                        // A client that takes nothing for much longer is disconnected.
                        sender.reserve().await
                    }
                };
                // The client has gone.
                let Ok(room) = room else { return };
                let read = select! {
                    read = self.piece(u32::try_from(number).unwrap_or(u32::MAX)) => read,
                    // It may have to come from the origin again, which may be unreachable.
                    () = sender.closed() => return,
                };
                let read = read.map(|bytes| {
                    let first = number * piece;
                    let from = begin.saturating_sub(first).min(bytes.len() as u64) as usize;
                    let to = (end - first).min(bytes.len() as u64) as usize;
                    bytes.slice(from..to)
                });
                let last = read.is_err();
                room.send(read);
                if last {
                    return;
                }
            }
        });
        Content::Pieces { pieces, left: Some(end - begin) }
    }

    async fn piece(&mut self, number: u32) -> io::Result<Buffer> {
        /// How often a body is reopened if it is found corrupted during a read.
        const TRIES: usize = 8;
        for _ in 0..TRIES {
            match self.found.piece(number).await {
                Ok(Some(bytes)) => return Ok(bytes),
                // If it is still current, it is fetched again.
                Ok(None) => {
                    let again =
                        self.replica.version(&self.path, self.found.version, self.patience).await;
                    match again {
                        Ok(Some(found)) => self.found = found,
                        Ok(None) => break,
                        Err(_) => return Err(io::ErrorKind::BrokenPipe.into()),
                    }
                }
                Err(_) => return Err(io::ErrorKind::BrokenPipe.into()),
            }
        }
        // It was overwritten long ago. The client sees that the rest is missing.
        Err(io::ErrorKind::NotFound.into())
    }
}

/// The range of a `Range` header.
#[derive(Debug, PartialEq, Eq)]
enum Ranged {
    /// The whole body: there is no range, or an unknown one, which may be ignored (RFC 9110 §14.2).
    All,
    /// From the first to before the second.
    Part(u64, u64),
    /// No byte of the body.
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
        // A suffix: the last bytes, of this number.
        (Err(_), Ok(count)) if first.trim().is_empty() => {
            (size.saturating_sub(count), if count == 0 { 0 } else { size })
        }
        _ => return Ranged::All,
    };
    if begin < end { Ranged::Part(begin, end) } else { Ranged::Outside }
}

/// The decision about a read with these conditions.
fn judged(headers: &HeaderMap, version: &Version) -> Judged {
    let content = &version.content;
    conditions::judge(headers, &content.digest, date(content.metadata))
}

fn not_meant(path: &Path) -> Response<Content> {
    let text =
        format_args!("`{path}` is not the requested version: send the request without a condition");
    line(StatusCode::PRECONDITION_FAILED, text)
}

/// The state that a client has seen, by its tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ClientState {
    /// The highest state.
    at: Sequence,
    /// The state that it will present next time by itself, without that of a query.
    kept: Sequence,
    /// Its cookie is of another origin, and no client drops such a cookie by itself. Or its key is being
    /// replaced, so the cookie will not be accepted for long.
    is_reissued: bool,
}

impl ClientState {
    /// A malformed token in a header is an error of the client's author. Cookies and links may be left over
    /// from another origin, which made no promises here.
    fn from_request(request: &Request<impl Sized>, tokens: &Keyring) -> Result<Self, TokenError> {
        let mut seen = ClientState::default();
        if let Some(token) = request.headers().get(SESSION) {
            // Bytes that are not text are reported as a malformed token.
            seen.kept = tokens.verify(token.to_str().unwrap_or_default())?;
        }
        for cookie in cookies(request.headers()) {
            seen.is_reissued |= !tokens.is_current(cookie);
            seen.kept = tokens.verify(cookie).map_or(seen.kept, |at| seen.kept.max(at));
        }
        let taken_along = parameters(request.uri()).filter_map(of_session);
        let taken_along = taken_along.filter_map(|token| tokens.verify(token).ok());
        seen.at = taken_along.fold(seen.kept, Sequence::max);
        Ok(seen)
    }
}

/// The tokens among the cookies.
fn cookies(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| of_session(pair.trim()))
}

/// The parameters of a query, undecoded.
fn parameters(uri: &Uri) -> impl Iterator<Item = &str> {
    uri.query().unwrap_or_default().split('&').filter(|one| !one.is_empty())
}

/// The value of a pair, if its name is the session's.
fn of_session(pair: &str) -> Option<&str> {
    pair.strip_prefix(COOKIE)?.strip_prefix('=')
}

/// The same URL at another replica. The token is passed in the query, because browsers send no cookie to
/// another host; there it becomes a cookie. It is always passed, so that the other replica recognizes
/// redirected requests.
fn elsewhere(other: &Uri, uri: &Uri, token: &str) -> String {
    let others = parameters(uri).filter(|one| of_session(one).is_none()).map(str::to_owned);
    let query: Vec<_> = others.chain([format!("{COOKIE}={token}")]).collect();
    let base = other.to_string();
    format!("{}{}?{}", base.trim_end_matches('/'), uri.path(), query.join("&"))
}

/// Whether another replica redirected this request here. If this one redirected it again, both might continue
/// for ever.
fn was_sent_here(uri: &Uri) -> bool {
    parameters(uri).any(|one| of_session(one).is_some())
}

/// Links are followed before this, and a folder has no bytes.
fn is_file(version: &Version) -> bool {
    version.content.metadata.kind == Kind::File
}

fn tag_of(version: &Version) -> String {
    conditions::tag_of(&version.content.digest)
}

fn date(metadata: Metadata) -> HttpDate {
    let nanos = u64::try_from(metadata.modified.as_nanos()).unwrap_or(0);
    HttpDate::from(SystemTime::UNIX_EPOCH + Duration::from_nanos(nanos))
}

fn absent(name: &[u8]) -> Response<Content> {
    line(StatusCode::NOT_FOUND, format_args!("there is no `{}`", Escaped(name)))
}

/// The media type of a file, by its name.
fn kind_of(path: &Path) -> &'static str {
    mime_guess::from_path(&*path.key()).first_raw().unwrap_or("application/octet-stream")
}

impl HttpService for ReplicaHttp {
    async fn answer(&self, request: Request<Incoming>) -> Response<Content> {
        if ![Method::GET, Method::HEAD].contains(request.method()) {
            let mut response =
                line(StatusCode::METHOD_NOT_ALLOWED, "a replica is read only: write to the origin");
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        let name = name_of(&request);
        let own = own_of(&name);
        let status = || self.replica.status();
        match own {
            None if self.shows != Shows::Figures => self.object(&name, &request).await,
            // No object has such a name.
            Some(_) if self.shows == Shows::Objects => absent(&name),
            Some("status") => document("application/json", figures::json(&status())),
            Some("metrics") => document(figures::PROMETHEUS, figures::of_replica(&status())),
            _ => line(StatusCode::NOT_FOUND, "this port has only /.lull/status and /.lull/metrics"),
        }
    }
}
