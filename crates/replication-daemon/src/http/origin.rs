//! The HTTP answers of an origin.

#[cfg(test)]
mod tests;

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::Body as _;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use lull_replication::origin::{Condition, Put, Refused, Transaction};
use lull_replication::path::{Escaped, Path};
use lull_replication::types::{Digest, Kind, MAX_BODY_BYTES, Metadata, Sequence};
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};
use tokio::net::{TcpListener, UnixListener};
use tokio::time::timeout;

use super::conditions::{ByTime, of_write, tag_of};
use super::content::Content;
use super::transaction::{File, Intake, Malformed, Parser};
use super::{
    HttpService, Listener, SESSION, Serving, document, figures, line, name_of, own_of, page, socket,
};
use crate::daemon::{DaemonError, DistributionStatus, OriginHandle, WriteError, blocking};
use crate::identity::{IdentityError, TicketKind};
use crate::store::Body;

/// The base state of a transaction.
pub(super) const AFTER: HeaderName = HeaderName::from_static("lull-after");
/// Its relevant folder, percent-encoded; without it the whole state is relevant.
pub(super) const WITHIN: HeaderName = HeaderName::from_static("lull-within");
/// The state that a write has made.
const SEQUENCE: HeaderName = HeaderName::from_static("lull-sequence");
/// The longest order.
pub(super) const MAX_ORDER_BYTES: usize = 64 * 1024;
/// How long the rest of a request is read after the answer, for a client that has not seen the answer so far.
const LINGER: Duration = Duration::from_secs(10);
/// A request body without progress for this long is cancelled, at a port. A connection may be down for this
/// long, but nothing of a body is kept. Otherwise a client that stops in the middle would keep its place, and
/// a file.
const STALLED: Duration = Duration::from_secs(60);
/// How long the bodies of a superseded transaction are kept: the repeated transaction names them.
const KEEP: Duration = Duration::from_secs(120);

/// A request to an origin beside writes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Order {
    Ticket {
        name: String,
        address: Option<String>,
        seconds: u64,
        kind: TicketKind,
    },
    Revoke {
        name: String,
    },
    Rotate {
        finish: bool,
    },
    Rollback {
        to: u64,
    },
    Joined {
        names: Vec<String>,
    },
    /// Which of these bodies, in hex, are stored?
    Bodies {
        digests: Vec<String>,
    },
    /// Which replicas match these names and patterns?
    Matching {
        patterns: Vec<String>,
    },
    /// Observe how a state arrives, with the files of a folder, "" for all; by a deadline after these seconds.
    Distribute {
        names: Vec<String>,
        sequence: u64,
        files: String,
        seconds: Option<f64>,
    },
    /// How far has it arrived?
    Distribution {
        number: u64,
    },
    /// `files`: the folder whose files are awaited, "" for all; missing for those of the commit.
    Wait {
        names: Vec<String>,
        sequence: u64,
        files: Option<String>,
    },
}

/// The result of an order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Done {
    Ticket(String),
    Sequence(u64),
    /// For each body, whether it is stored.
    Stored(Vec<bool>),
    Names(Vec<String>),
    /// The number of a distribution.
    Number(u64),
    /// None if it is not known any more.
    Distribution(Option<DistributionStatus>),
    Nothing,
}

/// A line of the tree; the first one is the sequence, alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) path: String,
    #[serde(flatten)]
    pub(super) file: File,
    /// Its body is lost: it has to be sent again.
    #[serde(default, skip_serializing_if = "is_not")]
    pub(super) lost: bool,
}

fn is_not(lost: &bool) -> bool {
    !lost
}

/// The HTTP service of an origin.
#[derive(Debug)]
pub struct OriginHttp {
    origin: OriginHandle,
    /// The address for replicas, if known: the default in tickets.
    address: Option<String>,
    /// The hash of the operator's token; none if the file system controls access. Orders are accepted only
    /// then: a browser may send a password on behalf of another page, and the right to write files does not
    /// include the right to admit replicas.
    token: Option<blake3::Hash>,
    /// A request body without progress for this long is cancelled. None for a local process, which may be
    /// stopped and continued, and whose end is always reported.
    stalled: Option<Duration>,
}

impl OriginHttp {
    /// Opens the service on a port, for clients that present `token` as a bearer token or as a password: for
    /// writes, and for the origin's status.
    pub fn open(
        listener: TcpListener,
        origin: OriginHandle,
        address: Option<String>,
        token: &str,
    ) -> Serving {
        let token = Some(blake3::hash(token.as_bytes()));
        let service = OriginHttp { origin, address, token, stalled: Some(STALLED) };
        Serving::open(Listener::tcp(listener), Arc::new(service))
    }

    /// Opens it as a socket in the origin's folder, for users with access to that.
    ///
    /// # Errors
    /// If the socket cannot be made.
    pub fn open_local(
        folder: &FilePath,
        origin: OriginHandle,
        address: Option<String>,
    ) -> io::Result<Serving> {
        let listener = local(folder)?;
        let service = Arc::new(OriginHttp { origin, address, token: None, stalled: None });
        Ok(Serving::open(Listener::Unix(listener), service))
    }

    fn admits(&self, request: &Request<Incoming>) -> bool {
        let Some(expected) = self.token else { return true };
        let shown = request.headers().get(header::AUTHORIZATION);
        let Some((scheme, value)) =
            shown.and_then(|shown| shown.to_str().ok()).and_then(|shown| shown.split_once(' '))
        else {
            return false;
        };
        let token = match scheme.to_ascii_lowercase().as_str() {
            "bearer" => Some(value.trim().as_bytes().to_vec()),
            "basic" => STANDARD.decode(value.trim()).ok().and_then(|pair| {
                let colon = pair.iter().position(|byte| *byte == b':')?;
                Some(pair[colon + 1..].to_vec())
            }),
            _ => None,
        };
        // Hashes of BLAKE3 are compared in constant time.
        token.is_some_and(|token| blake3::hash(&token) == expected)
    }

    /// Gives an object a body; returns the body's hash.
    async fn put(
        &self,
        path: Path,
        conditions: Vec<Condition>,
        request: Request<&mut Incoming>,
    ) -> Result<(Done, Digest), Failed> {
        if request.headers().contains_key(header::CONTENT_RANGE) {
            // It would become the whole object (RFC 9110 §14.5).
            return Err(Failed::Part);
        }
        let size = request.headers().get(header::CONTENT_LENGTH);
        let size = size.and_then(|size| size.to_str().ok()?.parse::<u64>().ok());
        if size.is_some_and(|size| size > MAX_BODY_BYTES.0) {
            return Err(Malformed::Large(path.to_string()).into());
        }
        let body = request.into_body();
        let mut intake = Intake::new(self.origin.bodies());
        let mut taken = 0;
        while let Some(bytes) = self.next(body).await? {
            taken += bytes.len() as u64;
            if taken > MAX_BODY_BYTES.0 {
                return Err(Malformed::Large(path.to_string()).into());
            }
            intake = intake.write(bytes.to_vec()).await?;
        }
        let payload = intake.finish().await?;
        let body = payload.digest;
        // No header has the mode: the object keeps its mode.
        let before = self.origin.metadata(&path).filter(|before| before.kind == Kind::File);
        let mode = before.map(|metadata| metadata.mode).unwrap_or_default();
        let metadata = Metadata { kind: Kind::File, modified: self.origin.now(), mode };
        Ok((self.write(path, conditions, Put::Body(payload, metadata)).await?, body))
    }

    /// The next bytes of a request's body.
    async fn next(&self, body: &mut Incoming) -> Result<Option<bytes::Bytes>, Malformed> {
        let Some(stalled) = self.stalled else { return next(body).await };
        timeout(stalled, next(body)).await.unwrap_or(Err(Malformed::Stalled))
    }

    async fn write(
        &self,
        path: Path,
        conditions: Vec<Condition>,
        put: Put<Body>,
    ) -> Result<Done, Failed> {
        let conditions = conditions.into_iter().map(|one| (path.clone(), one)).collect();
        let changes = Transaction { changes: [(path, put)].into() };
        Ok(Done::Sequence(self.origin.write_if(conditions, changes).await?.0))
    }

    async fn transaction(&self, request: Request<&mut Incoming>) -> Result<Done, Failed> {
        let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
        let after = header(AFTER).and_then(|after| after.parse().ok());
        let within = within_of(&request)?;
        let mut parser = match after {
            Some(_) => Parser::holding(self.origin.clone()),
            None => Parser::new(self.origin.clone()),
        };
        let body = request.into_body();
        while let Some(bytes) = self.next(body).await? {
            parser.take(&bytes).await?;
        }
        let (changes, held) = parser.finish().await?;
        let written = match after {
            Some(after) => self.origin.write_after(Sequence(after), within.as_ref(), changes).await,
            None => self.origin.write(changes).await,
        };
        if let Err(WriteError::Moved(_)) = &written {
            tokio::spawn(async move {
                tokio::time::sleep(KEEP).await;
                drop(held);
            });
        }
        Ok(Done::Sequence(written?.0))
    }

    async fn order(&self, request: Request<&mut Incoming>) -> Result<Done, Failed> {
        let body = request.into_body();
        let mut text = Vec::new();
        while let Some(bytes) = self.next(body).await? {
            text.extend_from_slice(&bytes);
            if text.len() > MAX_ORDER_BYTES {
                return Err(Malformed::Stream.into());
            }
        }
        let order = serde_json::from_slice(&text).map_err(|_| Malformed::Stream)?;
        Ok(match order {
            Order::Ticket { name, address, seconds, kind } => {
                let address = address.or_else(|| self.address.clone()).ok_or(Failed::Address)?;
                let valid = Duration::from_secs(seconds);
                let ticket = self.origin.ticket_for(kind, &name, &address, valid);
                Done::Ticket(ticket.map_err(DaemonError::from)?.to_string())
            }
            Order::Revoke { name } => {
                self.origin.revoke(&name)?;
                Done::Nothing
            }
            Order::Rotate { finish: false } => {
                self.origin.begin_rotation()?;
                Done::Nothing
            }
            Order::Rotate { finish: true } => {
                self.origin.finish_rotation()?;
                Done::Nothing
            }
            Order::Rollback { to } => Done::Sequence(self.origin.rollback(Sequence(to)).await?.0),
            Order::Joined { names } => {
                self.origin.joined(&names)?;
                Done::Nothing
            }
            Order::Bodies { digests } => {
                let digest =
                    |text: &String| Some(Digest(*blake3::Hash::from_hex(text).ok()?.as_bytes()));
                let digests: Option<Vec<_>> = digests.iter().map(digest).collect();
                Done::Stored(self.origin.have_bodies(&digests.ok_or(Malformed::Stream)?))
            }
            Order::Wait { names, sequence, files: None } => {
                self.origin.wait_for(&names, Sequence(sequence)).await?;
                Done::Nothing
            }
            Order::Matching { patterns } => Done::Names(self.origin.matching(&patterns)?),
            Order::Distribute { names, sequence, files, seconds } => {
                let limit = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
                let (folder, at) = (folder_of(files)?, Sequence(sequence));
                Done::Number(self.origin.distribute(&names, at, folder.as_ref(), limit)?)
            }
            Order::Distribution { number } => Done::Distribution(self.origin.distribution(number)),
            Order::Wait { names, sequence, files: Some(folder) } => {
                let folder = folder_of(folder)?;
                self.origin.wait_for_files(&names, Sequence(sequence), folder.as_ref()).await?;
                Done::Nothing
            }
        })
    }

    async fn tree(&self, within: Option<Path>) -> Response<Content> {
        let origin = self.origin.clone();
        let text = blocking(move || {
            let tree = origin.tree_within(within.as_ref());
            let mut text = format!("{}\n", tree.position.sequence.0);
            for (path, version) in tree.objects {
                let file = File::from_content(&version.content);
                let lost = tree.lost.contains(&version.content.digest);
                let entry = Entry { path: path.to_string(), file, lost };
                // It consists of numbers and texts only, so this cannot fail.
                text += &serde_json::to_string(&entry).unwrap_or_default();
                text.push('\n');
            }
            text
        });
        match text.await {
            Some(text) => document("application/x-ndjson", text),
            None => line(StatusCode::SERVICE_UNAVAILABLE, WriteError::Stopped),
        }
    }

    async fn own(
        &self,
        own: &str,
        request: Request<&mut Incoming>,
    ) -> Result<Response<Content>, Failed> {
        let status = || self.origin.status();
        Ok(match (request.method().clone(), own) {
            (Method::GET, "" | "index.html") => {
                document("text/html; charset=utf-8", page::page(&status()))
            }
            (Method::GET, "status") => document("application/json", figures::json(&status())),
            (Method::GET, "metrics") => {
                document(figures::PROMETHEUS, figures::of_origin(&status()))
            }
            (Method::GET, "tree") => self.tree(within_of(&request)?).await,
            (_, "transactions" | "orders") if self.token.is_some() => line(
                StatusCode::FORBIDDEN,
                "only lull's own commands may do that, over the socket in the origin's folder",
            ),
            (Method::POST, "transactions") => self.done(&self.transaction(request).await?),
            (Method::POST, "orders") => self.done(&self.order(request).await?),
            _ => line(
                StatusCode::NOT_FOUND,
                "this port has only GET /.lull/, /.lull/status and /.lull/metrics",
            ),
        })
    }

    async fn route(&self, request: Request<&mut Incoming>) -> Result<Response<Content>, Failed> {
        let name = name_of(&request);
        if let Some(own) = own_of(&name) {
            return self.own(own, request).await;
        }
        let put = match *request.method() {
            Method::PUT => true,
            Method::DELETE => false,
            _ => {
                let text = "read objects from a replica; this port has PUT, DELETE and GET \
                            /.lull/";
                let mut response = line(StatusCode::METHOD_NOT_ALLOWED, text);
                let allowed = HeaderValue::from_static("PUT, DELETE");
                response.headers_mut().insert(header::ALLOW, allowed);
                return Ok(response);
            }
        };
        let path = named(&name)?;
        let conditions = of_write(request.headers())?;
        if !put {
            return Ok(self.done(&self.write(path, conditions, Put::Delete).await?));
        }
        let (done, body) = self.put(path, conditions, request).await?;
        let mut response = self.done(&done);
        // For the condition of the next write.
        if let Ok(tag) = HeaderValue::from_str(&tag_of(&body)) {
            response.headers_mut().insert(header::ETAG, tag);
        }
        Ok(response)
    }

    /// The result, as JSON. A state comes with the token of a session that has seen it: a client that
    /// presents it to a replica reads that state or a newer one.
    fn done(&self, done: &Done) -> Response<Content> {
        let mut response = document("application/json", figures::json(done));
        if let Done::Sequence(sequence) = done {
            let headers = response.headers_mut();
            headers.insert(SEQUENCE, (*sequence).into());
            let token = self.origin.tokens().issue(Sequence(*sequence));
            if let Ok(token) = HeaderValue::from_str(&token) {
                headers.insert(SESSION, token);
            }
        }
        response
    }
}

/// The folder that matters to a request, if it names one.
fn within_of(request: &Request<&mut Incoming>) -> Result<Option<Path>, Malformed> {
    let within = request.headers().get(WITHIN).and_then(|value| value.to_str().ok());
    within.map(|text| named(&percent_decode_str(text).collect::<Vec<_>>())).transpose()
}

/// The folder of an order; none for all files.
fn folder_of(name: String) -> Result<Option<Path>, Malformed> {
    if name.is_empty() {
        return Ok(None);
    }
    Path::parse(&name).map(Some).map_err(|why| Malformed::Path(name, why))
}

/// The path of an object that a request names.
fn named(name: &[u8]) -> Result<Path, Malformed> {
    Path::from_bytes(name).map_err(|error| Malformed::Path(Escaped(name).to_string(), error))
}

/// The next bytes of a request's body.
async fn next(body: &mut Incoming) -> Result<Option<bytes::Bytes>, Malformed> {
    loop {
        let Some(frame) = body.frame().await else { return Ok(None) };
        // Frames without data are trailers, which have no meaning here.
        if let Ok(data) = frame.map_err(io::Error::other)?.into_data() {
            return Ok(Some(data));
        }
    }
}

/// Reads the rest of a body for a while. Otherwise a client that is still sending when the answer comes would
/// find a broken connection, and not the answer.
fn discard(mut body: Incoming) {
    if !body.is_end_stream() {
        tokio::spawn(async move {
            let rest = async { while let Ok(Some(_)) = next(&mut body).await {} };
            let _ = timeout(LINGER, rest).await;
        });
    }
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    #[error("the origin listens on all addresses: use --address to name the one for the replica")]
    Address,
    #[error("an object is written as a whole: send all of it, without Content-Range")]
    Part,
    #[error(transparent)]
    ByTime(#[from] ByTime),
}

impl Failed {
    fn status(&self) -> StatusCode {
        match self {
            Failed::Malformed(
                Malformed::Full(_) | Malformed::Held(WriteError::Refused(Refused::Disk(_))),
            )
            | Failed::Write(WriteError::Refused(Refused::Disk(_))) => {
                StatusCode::INSUFFICIENT_STORAGE
            }
            Failed::Malformed(Malformed::Large(_)) => StatusCode::PAYLOAD_TOO_LARGE,
            Failed::Malformed(Malformed::Changed(_)) => StatusCode::CONFLICT,
            Failed::Malformed(Malformed::Stalled) => StatusCode::REQUEST_TIMEOUT,
            Failed::Malformed(Malformed::Store(error)) if error.is_passing() => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Failed::Malformed(Malformed::Store(_)) => StatusCode::INTERNAL_SERVER_ERROR,
            Failed::Malformed(Malformed::Held(_)) => StatusCode::SERVICE_UNAVAILABLE,
            Failed::Malformed(_) => StatusCode::BAD_REQUEST,
            Failed::Write(WriteError::Moved(_) | WriteError::Refused(Refused::Condition(_))) => {
                StatusCode::PRECONDITION_FAILED
            }
            Failed::Write(WriteError::Refused(Refused::NotStored(_))) => StatusCode::GONE,
            Failed::Write(
                WriteError::Refused(Refused::Busy)
                | WriteError::StoreAway(_)
                | WriteError::LogAway(_)
                | WriteError::Stopped,
            ) => StatusCode::SERVICE_UNAVAILABLE,
            Failed::Write(_) => StatusCode::CONFLICT,
            Failed::Daemon(DaemonError::NoReplica(_) | DaemonError::NoMatch(_)) => {
                StatusCode::NOT_FOUND
            }
            Failed::Daemon(DaemonError::Identity(IdentityError::Address(_))) => {
                StatusCode::BAD_REQUEST
            }
            Failed::Daemon(DaemonError::Rotation(_) | DaemonError::NotJoined(_)) => {
                StatusCode::CONFLICT
            }
            Failed::Daemon(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Failed::Address | Failed::Part | Failed::ByTime(_) => StatusCode::BAD_REQUEST,
        }
    }
}

impl HttpService for OriginHttp {
    async fn answer(&self, request: Request<Incoming>) -> Response<Content> {
        if !self.admits(&request) {
            let text = "give the token of --token-file as a bearer token, or as a password";
            let mut response = line(StatusCode::UNAUTHORIZED, text);
            let ask = HeaderValue::from_static("Basic realm=\"lull origin\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, ask);
            discard(request.into_body());
            return response;
        }
        let (head, mut body) = request.into_parts();
        let routed = self.route(Request::from_parts(head, &mut body)).await;
        discard(body);
        match routed {
            Ok(response) => response,
            Err(failed) => {
                let status = failed.status();
                if status == StatusCode::INSUFFICIENT_STORAGE {
                    self.origin.disk_full();
                }
                line(status, &failed)
            }
        }
    }
}

/// A socket in a folder, for the folder's owner.
pub(super) fn local(folder: &FilePath) -> io::Result<UnixListener> {
    let path = socket(folder);
    match fs::remove_file(&path) {
        // A socket of the previous process: the store is locked by now, so that has ended.
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&path)?;
    fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    Ok(listener)
}
