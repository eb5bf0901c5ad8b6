//! The client of a local origin or replica, by the socket in its folder.

mod distribution;
mod folder;
mod stored;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes as Buffer;
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use lull_replication::path::{Escaped, Path, PathError};
use lull_replication::types::{MAX_BODY_BYTES, Sequence};
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use thiserror::Error;
use tokio::net::UnixStream;
use tokio::sync::mpsc::{Sender, channel};

use super::content::Content;
use super::origin::{AFTER, Done, Entry, Order, WITHIN};
use super::socket;
use super::transaction::{END, Head, ObjectKind, PutContent, put_head};
use crate::identity::TicketKind;
use crate::source;
pub use folder::TreeDigest;
use folder::{difference, is_empty, scan};

/// A file's name in one line, for any bytes.
fn shown(path: &FilePath) -> String {
    Escaped(path.as_os_str().as_bytes()).to_string()
}

/// Several errors with their causes, one per line.
fn listed(errors: &[ClientError]) -> String {
    let line = |error: &ClientError| match error {
        ClientError::File { source, .. } => format!("\n  {error}: {source}"),
        _ => format!("\n  {error}"),
    };
    errors.iter().map(line).collect()
}

/// Why a request has failed.
#[derive(Debug, Error)]
pub enum ClientError {
    /// No process listens there.
    #[error("nothing runs in `{}`: start it first", .0.display())]
    NotRunning(PathBuf),
    /// Its socket belongs to another user.
    #[error(
        "only the user of the daemon in `{}` may do that: run it with `sudo -u USER`", .0.display()
    )]
    Rights(PathBuf),
    /// The daemon rejects it, and says why.
    #[error("{0}")]
    Refused(String),
    /// The connection failed.
    #[error("the connection to the daemon failed")]
    Connection(#[source] io::Error),
    /// The answer was unexpected.
    #[error("the daemon sent an unexpected response: install the same release everywhere")]
    Unexpected,
    /// A file cannot be read.
    #[error("`{}` cannot be read", shown(path))]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file cannot be an object.
    #[error("`{}`: {why}", shown(path))]
    Name {
        /// Which.
        path: PathBuf,
        /// Why.
        why: PathError,
    },
    /// It is neither a file, nor a link, nor a folder.
    #[error("`{}` is a socket, a pipe or a device: move it out of the folder", shown(.0))]
    Kind(PathBuf),
    /// It is too large.
    #[error("`{}` is larger than {MAX_BODY_BYTES}: split it into several files", shown(.0))]
    Large(PathBuf),
    /// It changes all the time.
    #[error("`{}` changes while it is read: publish again when no program writes it", shown(.0))]
    Restless(PathBuf),
    /// Several entries of the folder cannot be published, each for its own reason.
    #[error("nothing is published, because {} entries of the folder are not allowed:{}", .0.len(), listed(.0))]
    Several(Vec<ClientError>),
    /// The folder is empty.
    #[error(
        "`{}` has no files, so {deleted} would be deleted: check that its disk is mounted. To \
         delete them, use --delete-all", path.display()
    )]
    Empty {
        /// The folder.
        path: PathBuf,
        /// How many.
        deleted: u64,
    },
    /// Other writers never pause.
    #[error("other writers change the state all the time: try again")]
    Overtaken,
    /// It is committed, but replicas do not have it so far.
    #[error(
        "state {} exists, but not all of these replicas have it after {} s: they get it when they \
         are connected",
        sequence.0, limit.as_secs_f64()
    )]
    Late {
        /// The state.
        sequence: Sequence,
        /// The limit of the wait.
        limit: Duration,
    },
}

/// The result of a publication.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// The state that has it.
    pub sequence: Sequence,
    /// Files that are new or changed.
    pub put: u64,
    /// Files that no longer exist.
    pub deleted: u64,
    /// Files that stayed.
    pub unchanged: u64,
    /// Bytes that had to be sent to the origin.
    pub bytes: u64,
    /// The files of the folder: how many, and their digest.
    pub tree: TreeDigest,
}

/// The progress of a publication. All of it may be read at any time.
#[derive(Debug, Default)]
pub struct Publishing {
    /// Files that were read and hashed.
    pub files: AtomicU64,
    /// Their bytes.
    pub read: AtomicU64,
    /// Bytes of files that the origin does not have; zero until that is known.
    pub to_send: AtomicU64,
    /// Bytes that were sent, with names and numbers.
    pub sent: AtomicU64,
}

/// The result of a transaction.
enum Written {
    At(Sequence),
    /// Other writers were faster. The origin keeps the uploaded bodies for a while.
    Moved,
    /// It no longer has bodies that it was expected to have.
    Gone,
}

/// Sends requests to the daemon of a folder.
#[derive(Clone, Debug)]
pub struct Client {
    folder: PathBuf,
}

impl Client {
    /// The client of the daemon in `folder`.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Client { folder: folder.into() }
    }

    async fn send(&self, request: Request<Content>) -> Result<Buffer, ClientError> {
        let (status, bytes) = self.exchange(request).await?;
        if status.is_success() {
            return Ok(bytes);
        }
        Err(ClientError::Refused(String::from_utf8_lossy(&bytes).trim().to_owned()))
    }

    fn not_reached(&self, error: io::Error) -> ClientError {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                ClientError::NotRunning(self.folder.clone())
            }
            io::ErrorKind::PermissionDenied => ClientError::Rights(self.folder.clone()),
            _ => ClientError::Connection(error),
        }
    }

    async fn exchange(
        &self,
        request: Request<Content>,
    ) -> Result<(StatusCode, Buffer), ClientError> {
        let failed = |error: hyper::Error| ClientError::Connection(io::Error::other(error));
        let stream = UnixStream::connect(socket(&self.folder)).await;
        let stream = stream.map_err(|error| self.not_reached(error))?;
        let (mut sender, connection) =
            handshake::<_, Content>(TokioIo::new(stream)).await.map_err(failed)?;
        let talking = async {
            let response = sender.send_request(request).await.map_err(failed)?;
            let status = response.status();
            let body: Incoming = response.into_body();
            Ok((status, body.collect().await.map_err(failed)?.to_bytes()))
        };
        tokio::pin!(talking, connection);
        // The answer may have arrived when the connection ends.
        tokio::select! {
            biased;
            answer = &mut talking => answer,
            _ = &mut connection => talking.await,
        }
    }

    fn request(&self, method: Method, path: &str, body: Content) -> Request<Content> {
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().unwrap_or_default();
        let host = HeaderValue::from_static("lull");
        request.headers_mut().insert(http::header::HOST, host);
        request
    }

    async fn order(&self, order: &Order) -> Result<Done, ClientError> {
        let text = serde_json::to_vec(order).map_err(|_| ClientError::Unexpected)?;
        let request = self.request(Method::POST, "/.lull/orders", Content::of(text));
        let answer = self.send(request).await?;
        serde_json::from_slice(&answer).map_err(|_| ClientError::Unexpected)
    }

    /// The status of the daemon, as JSON.
    ///
    /// # Errors
    /// If no daemon answers.
    pub async fn status(&self) -> Result<String, ClientError> {
        let answer = self.send(self.request(Method::GET, "/.lull/status", Content::none())).await?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }

    /// A ticket of a kind for this name; its holder will connect to the origin at `address`, or where it
    /// listens.
    ///
    /// # Errors
    /// If the origin does not run, or cannot write.
    pub async fn ticket(
        &self,
        name: &str,
        address: Option<&str>,
        valid: Duration,
        kind: TicketKind,
    ) -> Result<String, ClientError> {
        let (name, address) = (name.to_owned(), address.map(str::to_owned));
        let order = Order::Ticket { name, address, seconds: valid.as_secs(), kind };
        match self.order(&order).await? {
            Done::Ticket(ticket) => Ok(ticket),
            _ => Err(ClientError::Unexpected),
        }
    }

    /// Shuts a replica out.
    ///
    /// # Errors
    /// If the origin does not run, or knows no such replica.
    pub async fn revoke(&self, name: &str) -> Result<(), ClientError> {
        self.order(&Order::Revoke { name: name.to_owned() }).await.map(drop)
    }

    /// Begins to replace the origin's authority, or ends it.
    ///
    /// # Errors
    /// If the origin does not run, or this step is not possible now.
    pub async fn rotate(&self, finish: bool) -> Result<(), ClientError> {
        self.order(&Order::Rotate { finish }).await.map(drop)
    }

    /// Restores the state of `to`, as one more transaction.
    ///
    /// # Errors
    /// If the origin does not run, or no rollback to that state is possible.
    pub async fn rollback(&self, to: Sequence) -> Result<Sequence, ClientError> {
        match self.order(&Order::Rollback { to: to.0 }).await? {
            Done::Sequence(sequence) => Ok(Sequence(sequence)),
            _ => Err(ClientError::Unexpected),
        }
    }

    /// Checks that replicas of these names exist, and can be waited for.
    ///
    /// # Errors
    /// If the origin does not run, or a name has no replica, or that has not joined or was revoked.
    pub async fn joined(&self, names: &[String]) -> Result<(), ClientError> {
        if names.is_empty() {
            return Ok(());
        }
        self.order(&Order::Joined { names: names.to_vec() }).await.map(drop)
    }

    /// Waits until these replicas have the state at `sequence`, for at most `limit` if given. See
    /// [`OriginHandle::wait_for`](crate::daemon::OriginHandle::wait_for) for the exact condition.
    ///
    /// # Errors
    /// As for [`joined`](Client::joined), and if they do not have it in time.
    pub async fn wait_for(
        &self,
        names: &[String],
        sequence: Sequence,
        limit: Option<Duration>,
    ) -> Result<(), ClientError> {
        self.wait(names, sequence, None, limit).await
    }

    /// The same with all files that are below `within` in that state, or with all files:
    /// [`OriginHandle::wait_for_files`](crate::daemon::OriginHandle::wait_for_files).
    ///
    /// # Errors
    /// As for [`wait_for`](Client::wait_for).
    pub async fn wait_for_files(
        &self,
        names: &[String],
        sequence: Sequence,
        within: Option<&Path>,
        limit: Option<Duration>,
    ) -> Result<(), ClientError> {
        let files = within.map_or_else(String::new, Path::to_string);
        self.wait(names, sequence, Some(files), limit).await
    }

    async fn wait(
        &self,
        names: &[String],
        sequence: Sequence,
        files: Option<String>,
        limit: Option<Duration>,
    ) -> Result<(), ClientError> {
        if names.is_empty() {
            return Ok(());
        }
        let order = Order::Wait { names: names.to_vec(), sequence: sequence.0, files };
        let Some(limit) = limit else { return self.order(&order).await.map(drop) };
        let waited = tokio::time::timeout(limit, self.order(&order)).await;
        waited.unwrap_or(Err(ClientError::Late { sequence, limit })).map(drop)
    }

    /// Makes everything below `into`, or everything, equal to a local folder, as one transaction: files that
    /// are not in the folder are deleted. A file that differs only in its time is not changed. A folder
    /// without files deletes everything only with `delete_all`.
    ///
    /// # Errors
    /// If the origin does not run or rejects it, or the folder contains entries that cannot be published.
    pub async fn publish(
        &self,
        source: &FilePath,
        into: Option<&Path>,
        delete_all: bool,
    ) -> Result<Published, ClientError> {
        self.publish_showing(source, into, delete_all, &Arc::default()).await
    }

    /// The same for a caller that shows the progress: `publishing` is counted up meanwhile.
    ///
    /// # Errors
    /// As for [`publish`](Client::publish).
    pub async fn publish_showing(
        &self,
        source: &FilePath,
        into: Option<&Path>,
        delete_all: bool,
        publishing: &Arc<Publishing>,
    ) -> Result<Published, ClientError> {
        /// A concurrent write causes another comparison. That is fast, since all bodies are stored by then.
        const TRIES: usize = 20;
        let (from, below) = (source.to_owned(), into.cloned());
        let counting = Arc::clone(publishing);
        let scan = move || scan(&from, below.as_ref(), &counting);
        let scanned = tokio::task::spawn_blocking(scan).await;
        let (root, files) =
            scanned.map_err(|error| ClientError::Connection(io::Error::other(error)))??;
        let digest = TreeDigest::of(&files, into);
        let (mut sent, mut bytes) = (BTreeSet::new(), 0);
        for _ in 0..TRIES {
            let (sequence, tree) = self.tree(into).await?;
            let (mut heads, mut published) = difference(&files, &tree, into, &sent);
            published.tree = digest;
            if into.is_some() {
                self.leave_out_stored(&mut heads, &mut published).await?;
            }
            if heads.is_empty() {
                return Ok(Published { sequence, bytes, ..published });
            }
            if is_empty(&files) && !delete_all {
                let (path, deleted) = (source.to_owned(), published.deleted);
                return Err(ClientError::Empty { path, deleted });
            }
            bytes += published.bytes;
            publishing.sent.store(0, Ordering::Relaxed);
            publishing.to_send.store(published.bytes, Ordering::Relaxed);
            let bodies = heads.iter().filter_map(|(head, _)| match &head.put {
                PutContent::Body(file) => Some(file.digest.clone()),
                PutContent::Stored(_) | PutContent::Delete => None,
            });
            let bodies: Vec<String> = bodies.collect();
            match self.write((sequence, into), &root, heads, publishing).await? {
                Written::At(sequence) => return Ok(Published { sequence, bytes, ..published }),
                Written::Moved => sent.extend(bodies),
                Written::Gone => sent.clear(),
            }
        }
        Err(ClientError::Overtaken)
    }

    /// The objects of the origin, or `within` and those below it.
    async fn tree(
        &self,
        within: Option<&Path>,
    ) -> Result<(Sequence, BTreeMap<Path, Entry>), ClientError> {
        let mut request = self.request(Method::GET, "/.lull/tree", Content::none());
        set_within(&mut request, within)?;
        let answer = self.send(request).await?;
        let mut lines = answer.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let first = lines.next().and_then(|line| std::str::from_utf8(line).ok()?.parse().ok());
        let sequence = Sequence(first.ok_or(ClientError::Unexpected)?);
        let entries = lines.map(|line| {
            let entry: Entry = serde_json::from_slice(line).map_err(|_| ClientError::Unexpected)?;
            let path = Path::parse(&entry.path).map_err(|_| ClientError::Unexpected)?;
            Ok((path, entry))
        });
        Ok((sequence, entries.collect::<Result<_, ClientError>>()?))
    }

    /// Sends a transaction that was made for a state, or for a folder of it.
    async fn write(
        &self,
        (after, within): (Sequence, Option<&Path>),
        root: &FilePath,
        heads: Vec<(Head, Option<PathBuf>)>,
        publishing: &Arc<Publishing>,
    ) -> Result<Written, ClientError> {
        let (sender, pieces) = channel(4);
        let body = Content::Pieces { pieces, left: None };
        let mut request = self.request(Method::POST, "/.lull/transactions", body);
        request.headers_mut().insert(AFTER, after.0.into());
        set_within(&mut request, within)?;
        let (root, publishing) = (root.to_owned(), Arc::clone(publishing));
        // Each file system call for a file blocks, and there may be a million files.
        let send = move || send_changes(&sender, &root, heads, &publishing);
        let send = async {
            let sent = tokio::task::spawn_blocking(send).await;
            sent.unwrap_or_else(|error| Err(ClientError::Connection(io::Error::other(error))))
        };
        let (sent, answered) = tokio::join!(send, self.exchange(request));
        let (status, answer) = match (sent, answered) {
            // The daemon's answer is more informative than the broken connection.
            (_, Ok(answered)) => answered,
            (Err(error), _) => return Err(error),
            (Ok(()), Err(error)) => return Err(error),
        };
        match status {
            StatusCode::PRECONDITION_FAILED => return Ok(Written::Moved),
            StatusCode::GONE => return Ok(Written::Gone),
            _ => {}
        }
        if !status.is_success() {
            let text = String::from_utf8_lossy(&answer).trim().to_owned();
            return Err(ClientError::Refused(text));
        }
        match serde_json::from_slice(&answer) {
            Ok(Done::Sequence(sequence)) => Ok(Written::At(Sequence(sequence))),
            _ => Err(ClientError::Unexpected),
        }
    }
}

/// Names the folder that matters to a request.
fn set_within(request: &mut Request<Content>, within: Option<&Path>) -> Result<(), ClientError> {
    if let Some(within) = within {
        let within = percent_encode(within.as_bytes(), NON_ALPHANUMERIC).to_string();
        let within = HeaderValue::try_from(within).map_err(|_| ClientError::Unexpected)?;
        request.headers_mut().insert(WITHIN, within);
    }
    Ok(())
}

/// The bytes of an object. A link is read and not followed.
fn body(root: &FilePath, path: &FilePath, head: &Head) -> io::Result<Box<dyn Read>> {
    let kind = match &head.put {
        PutContent::Body(content) | PutContent::Stored(content) => content.kind,
        PutContent::Delete => ObjectKind::File,
    };
    Ok(match kind {
        ObjectKind::File => Box::new(source::open(root, path)?),
        ObjectKind::Link => {
            let target = source::link(path)?.map(|(target, _)| target).unwrap_or_default();
            Box::new(io::Cursor::new(target))
        }
        ObjectKind::Folder => Box::new(io::empty()),
    })
}

/// Sends heads and files; blocks. An unreadable file cuts the stream off, so nothing of it is committed.
fn send_changes(
    to: &Sender<io::Result<Buffer>>,
    root: &FilePath,
    heads: Vec<(Head, Option<PathBuf>)>,
    publishing: &Publishing,
) -> Result<(), ClientError> {
    const CHUNK: usize = 256 * 1024;
    let mut waiting = Vec::new();
    // Whether a server accepts them.
    let send = |waiting: &mut Vec<u8>| {
        publishing.sent.fetch_add(waiting.len() as u64, Ordering::Relaxed);
        to.blocking_send(Ok(core::mem::take(waiting).into())).is_ok()
    };
    for (head, file) in heads {
        put_head(&mut waiting, &head).map_err(ClientError::Connection)?;
        if let Some(path) = file {
            let failed = |source| ClientError::File { path: path.clone(), source };
            let mut file = body(root, &path, &head).map_err(failed)?;
            let mut left = match &head.put {
                PutContent::Body(content) => content.size,
                PutContent::Stored(_) | PutContent::Delete => 0,
            };
            while left > 0 {
                let begin = waiting.len();
                let count = left.min(CHUNK as u64) as usize;
                waiting.resize(begin + count, 0);
                file.read_exact(&mut waiting[begin..]).map_err(failed)?;
                left -= count as u64;
                if waiting.len() >= CHUNK && !send(&mut waiting) {
                    return Ok(());
                }
            }
        }
        if waiting.len() >= CHUNK && !send(&mut waiting) {
            return Ok(());
        }
    }
    waiting.extend(END);
    send(&mut waiting);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn connection_error_says_how_to_reach_the_daemon() {
        let client = Client::new("origin");
        for (kind, words) in [
            (io::ErrorKind::PermissionDenied, "run it with `sudo -u USER`"),
            (io::ErrorKind::ConnectionRefused, "nothing runs in `origin`: start it first"),
            (io::ErrorKind::NotFound, "nothing runs in `origin`: start it first"),
        ] {
            let told = client.not_reached(kind.into()).to_string();
            assert!(told.contains(words), "{told}");
        }
    }

    #[tokio::test]
    async fn no_file_outside_the_folder_is_sent() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("source");
        fs::create_dir_all(source.join("d")).unwrap();
        fs::write(source.join("d/a"), "1").unwrap();
        let (root, files) = scan(&source, None, &Publishing::default()).unwrap();
        let (heads, _) = difference(&files, &BTreeMap::new(), None, &BTreeSet::new());
        // A link replaces the folder that the file was in.
        fs::rename(source.join("d"), folder.path().join("out")).unwrap();
        std::os::unix::fs::symlink(folder.path().join("out"), source.join("d")).unwrap();
        assert!(matches!(folder::hash(&root, &root.join("d/a")), Err(ClientError::File { .. })));
        let (sender, mut pieces) = channel(4);
        let sending = move || send_changes(&sender, &root, heads, &Publishing::default());
        let sent = tokio::task::spawn_blocking(sending).await.unwrap();
        assert!(matches!(sent, Err(ClientError::File { .. })), "{sent:?}");
        assert!(pieces.recv().await.is_none());
    }
}
