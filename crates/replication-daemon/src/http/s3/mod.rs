//! The files of a replica as the objects of an S3 bucket, for reading.
//!
//! | request | answer |
//! |---|---|
//! | `GET /` | the buckets: one, [`BUCKET`] |
//! | `HEAD /lull`, `GET /lull?location` | that it exists, and no region |
//! | `GET /lull?list-type=2` or without | a page of its files, of one state |
//! | `GET`, `HEAD /lull/KEY` | a file, with conditions and ranges as by HTTP |
//! | anything else | `MethodNotAllowed` or `NotImplemented` |
//!
//! Requests need no signature, and none is checked. Links and folders are not objects.

mod listing;
mod xml;

use std::collections::BTreeMap;
use std::sync::Arc;

use http::header;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use lull_replication::path::{Escaped, Path};
use lull_replication::types::Sequence;
use tokio::net::TcpListener;

use super::content::Content;
use super::replica::{Blocked, ReplicaHttp};
use super::{HttpService, Listener, SESSION, Serving, whole_seconds};
use crate::daemon::{ReadError, ReplicaHandle};
use xml::S3Error;

/// The name of the only bucket.
pub const BUCKET: &str = "lull";

/// Parameters that make another request out of one for a bucket or an object.
const OTHER_REQUESTS: [&str; 30] = [
    "accelerate",
    "acl",
    "analytics",
    "attributes",
    "cors",
    "encryption",
    "intelligent-tiering",
    "inventory",
    "legal-hold",
    "lifecycle",
    "logging",
    "metrics",
    "notification",
    "object-lock",
    "ownershipControls",
    "policy",
    "policyStatus",
    "publicAccessBlock",
    "replication",
    "requestPayment",
    "restore",
    "retention",
    "select",
    "tagging",
    "torrent",
    "uploadId",
    "uploads",
    "versioning",
    "versions",
    "website",
];

/// The S3 service of a replica.
#[derive(Debug)]
pub struct ReplicaS3 {
    http: ReplicaHttp,
}

/// The parameters of a query, decoded.
type Parameters = BTreeMap<String, Vec<u8>>;

/// The subject of a request.
#[derive(Debug, PartialEq, Eq)]
enum Target {
    Service,
    Bucket,
    Object(Vec<u8>),
}

impl ReplicaS3 {
    /// Opens the service. Clients follow no redirect to another replica, so with [`Blocked::Redirect`] a read fails
    /// instead.
    pub fn open(listener: TcpListener, replica: ReplicaHandle, blocked: Blocked) -> Serving {
        let blocked = match blocked {
            Blocked::Redirect(patience, _) => Blocked::Error(patience),
            other => other,
        };
        let service = ReplicaS3 { http: ReplicaHttp::of_objects(replica, blocked) };
        Serving::open(Listener::tcp(listener), Arc::new(service))
    }

    async fn respond(&self, request: &Request<Incoming>) -> Result<Response<Content>, S3Error> {
        let is_head = request.method() == Method::HEAD;
        if request.method() != Method::GET && !is_head {
            return Err(S3Error::READ_ONLY);
        }
        let target = target(request.uri().path())?;
        let parameters = parameters(request.uri().query().unwrap_or_default());
        if let Some(name) = OTHER_REQUESTS.iter().find(|name| parameters.contains_key(**name)) {
            return Err(S3Error::not_implemented(name));
        }
        match target {
            Target::Service => Ok(xml::buckets()),
            Target::Bucket if is_head => Ok(Response::new(Content::none())),
            Target::Bucket if parameters.contains_key("location") => Ok(xml::location()),
            Target::Bucket => self.list(request, &parameters).await,
            Target::Object(key) => self.object(&key, request).await,
        }
    }

    async fn object(
        &self,
        key: &[u8],
        request: &Request<Incoming>,
    ) -> Result<Response<Content>, S3Error> {
        let after = self.session(request)?;
        let path = Path::from_bytes(key).map_err(|_| S3Error::no_key(key))?;
        let (at, response) = self.http.file(&path, after, request).await.map_err(S3Error::of)?;
        let mut response = response.ok_or_else(|| S3Error::no_key(key))?;
        match response.status() {
            StatusCode::PRECONDITION_FAILED => Err(S3Error::PRECONDITION),
            StatusCode::RANGE_NOT_SATISFIABLE => Err(S3Error::RANGE),
            _ => {
                self.remember(at.max(after), &mut response);
                Ok(response)
            }
        }
    }

    async fn list(
        &self,
        request: &Request<Incoming>,
        parameters: &Parameters,
    ) -> Result<Response<Content>, S3Error> {
        let tokens = self.http.replica.tokens();
        let after = self.session(request)?;
        let query = listing::Query::new(parameters, |token| tokens.verify(token).ok())?;
        let after = after.max(query.after);
        let answer = self.http.replica.read(query.read(after), self.http.blocked.patience()).await;
        let answer = answer.map_err(S3Error::of)?;
        let at = answer.at.max(after);
        let mut response = query.page(answer.outcome, || tokens.issue(at))?;
        if let Some(reflects) = answer.reflects {
            let age = whole_seconds(self.http.replica.now().local.since(reflects));
            response.headers_mut().insert(header::AGE, age.into());
        }
        self.remember(at, &mut response);
        Ok(response)
    }

    /// The state that the client has seen, if it says so. Clients of S3 do not; those of one replica see no state
    /// undone all the same.
    fn session(&self, request: &Request<impl Sized>) -> Result<Sequence, S3Error> {
        let Some(token) = request.headers().get(SESSION) else { return Ok(Sequence::ZERO) };
        let token = token.to_str().unwrap_or_default();
        self.http
            .replica
            .tokens()
            .verify(token)
            .map_err(|error| S3Error::argument(error.to_string()))
    }

    fn remember(&self, at: Sequence, response: &mut Response<Content>) {
        if let Ok(token) = HeaderValue::from_str(&self.http.replica.tokens().issue(at)) {
            response.headers_mut().insert(SESSION, token);
        }
    }
}

impl HttpService for ReplicaS3 {
    async fn answer(&self, request: Request<Incoming>) -> Response<Content> {
        let answer = self.respond(&request).await;
        answer.unwrap_or_else(|error| error.response(request.uri().path()))
    }
}

/// The target of a path: the bucket comes first, and the rest is the key.
fn target(path: &str) -> Result<Target, S3Error> {
    let path = path.strip_prefix('/').unwrap_or(path);
    let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
    match (bucket, key) {
        ("", "") => Ok(Target::Service),
        (BUCKET, "") => Ok(Target::Bucket),
        (BUCKET, key) => Ok(Target::Object(percent_encoding::percent_decode_str(key).collect())),
        _ => Err(S3Error::NO_BUCKET),
    }
}

fn parameters(query: &str) -> Parameters {
    let decoded = |text: &str| -> Vec<u8> {
        percent_encoding::percent_decode_str(&text.replace('+', " ")).collect()
    };
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs
        .map(|(name, value)| (String::from_utf8_lossy(&decoded(name)).into_owned(), decoded(value)))
        .collect()
}

impl S3Error {
    const READ_ONLY: S3Error = S3Error::fixed(
        StatusCode::METHOD_NOT_ALLOWED,
        "MethodNotAllowed",
        "a replica is read only: write to the origin",
    );
    const NO_BUCKET: S3Error = S3Error::fixed(
        StatusCode::NOT_FOUND,
        "NoSuchBucket",
        "the only bucket is `lull`: put it first in the path, and turn off virtual-hosted addresses",
    );
    const PRECONDITION: S3Error = S3Error::fixed(
        StatusCode::PRECONDITION_FAILED,
        "PreconditionFailed",
        "it is not the requested version: send the request without a condition",
    );
    const RANGE: S3Error = S3Error::fixed(
        StatusCode::RANGE_NOT_SATISFIABLE,
        "InvalidRange",
        "the object has no byte of the range",
    );

    fn not_implemented(parameter: &str) -> Self {
        let text = format!("`{parameter}` is not supported: read objects, or list them");
        S3Error::new(StatusCode::NOT_IMPLEMENTED, "NotImplemented", text)
    }

    fn argument(text: String) -> Self {
        S3Error::new(StatusCode::BAD_REQUEST, "InvalidArgument", text)
    }

    fn no_key(key: &[u8]) -> Self {
        let text = format!("there is no file `{}`", Escaped(key));
        S3Error::new(StatusCode::NOT_FOUND, "NoSuchKey", text)
    }

    /// The answer to a read that cannot be answered. Clients repeat it, except for a body that is lost.
    fn of(error: ReadError) -> Self {
        let (status, code) = match error {
            ReadError::Lost => (StatusCode::INTERNAL_SERVER_ERROR, "InternalError"),
            ReadError::Scarce | ReadError::Evicted => (StatusCode::SERVICE_UNAVAILABLE, "SlowDown"),
            ReadError::Waits(_) | ReadError::Stopped => {
                (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable")
            }
        };
        S3Error::new(status, code, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_names_the_bucket_and_then_the_key() {
        let object = |key: &[u8]| Some(Target::Object(key.to_vec()));
        for (path, expected) in [
            ("/", Some(Target::Service)),
            ("/lull", Some(Target::Bucket)),
            ("/lull/", Some(Target::Bucket)),
            ("/lull/a/b%20c", object(b"a/b c")),
            ("/lull/%ff%2F", object(b"\xff/")),
            ("/lull//a", object(b"/a")),
            ("/other/a", None),
            ("//lull/a", None),
        ] {
            assert_eq!(target(path).ok(), expected, "{path}");
        }
    }

    #[test]
    fn parameters_are_decoded_as_forms_are() {
        let all = parameters("prefix=a%2Fb+c&list-type=2&&location&x=%ff");
        let value = |name: &str| all.get(name).map(Vec::as_slice);
        assert_eq!(value("prefix"), Some(&b"a/b c"[..]));
        assert_eq!(value("location"), Some(&b""[..]));
        assert_eq!(value("x"), Some(&b"\xff"[..]));
        assert_eq!(value("none"), None);
    }
}
