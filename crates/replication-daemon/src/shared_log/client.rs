//! The connection to the servers of a log. Calls block, for a few seconds at most.

use std::future::ready;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::header::{HeaderMap, NATS_EXPECTED_LAST_SEQUENCE, NATS_MESSAGE_TTL};
use async_nats::jetstream::context::{
    CreateStreamErrorKind, GetStreamError, GetStreamErrorKind, PublishErrorKind, RequestError,
    RequestErrorKind,
};
use async_nats::jetstream::stream::{Config, DiscardPolicy, RawMessageErrorKind, StorageType};
use async_nats::jetstream::{self, Context, ErrorCode};
use async_nats::{ClientError, ConnectOptions, Event, Server, ServerError};
use bytes::Bytes as Buffer;
use thiserror::Error;
use tokio::runtime::{Builder, Runtime};

use super::LogAddress;
use crate::error_chain::error_chain;

/// How long a request may take. A cluster elects a leader in some seconds; then the request is repeated.
const REQUEST: Duration = Duration::from_secs(2);
/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(2);
/// The pause between two attempts to connect.
const RECONNECT: Duration = Duration::from_millis(250);
/// How long a message that renews a lease is kept.
const ALIVE: Duration = Duration::from_secs(60);
/// The replicas of a new stream, if there is a cluster.
const REPLICAS: usize = 3;

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum Failure {
    /// Another message is the last one.
    #[error("another message is the last one")]
    Moved,
    /// There is no such stream.
    #[error("there is no such stream")]
    NoStream,
    /// The servers do not accept the user.
    #[error(
        "the servers reject the user: set NATS_USER and NATS_PASSWORD, or NATS_TOKEN, to a user of theirs"
    )]
    User,
    /// TLS fails.
    #[error(
        "TLS fails ({0}): set NATS_CA to the CA of the servers, or correct their certificates; write nats:// for          servers without TLS"
    )]
    Tls(String),
    /// The servers have no streams.
    #[error(
        "the servers run without JetStream: add `jetstream {{ store_dir: \"FOLDER\", sync_interval: always }}` to their \
         configuration, and restart them"
    )]
    NoJetStream,
    /// The servers do not answer, or cannot do it now.
    #[error("{0}")]
    Away(String),
}

impl Failure {
    /// Whether an operator has to change something.
    pub(super) fn is_misconfiguration(&self) -> bool {
        matches!(self, Failure::User | Failure::Tls(_) | Failure::NoJetStream)
    }

    /// Whether the log cannot be read or written at the moment.
    pub(super) fn is_away(&self) -> bool {
        self.is_misconfiguration() || matches!(self, Failure::Away(_))
    }
}

/// The last report of the servers or the connection, unless a connection was made since.
type Said = Arc<Mutex<Option<Failure>>>;

/// The news in an event about the connection; none if there are none.
fn said(event: &Event) -> Option<Option<Failure>> {
    match event {
        Event::Connected => Some(None),
        Event::ServerError(ServerError::AuthorizationViolation) => Some(Some(Failure::User)),
        Event::ClientError(ClientError::Other(text)) => Some(Some(connect_failure(text))),
        Event::ServerError(error) => Some(Some(Failure::Away(error.to_string()))),
        _ => None,
    }
}

/// The failure of an attempt to connect. The client has only its text.
fn connect_failure(text: &str) -> Failure {
    const USER: &str = "authorization violation";
    const SETTINGS: &str = "TLS error";
    // The errors of a handshake, as rustls writes them.
    const HANDSHAKE: [&str; 6] = [
        "invalid peer certificate",
        "peer is incompatible",
        "peer misbehaved",
        "received corrupt message",
        "received fatal alert",
        "tls handshake eof",
    ];
    let cause = text.strip_prefix("IO error: ").unwrap_or(text);
    if text.starts_with(USER) {
        Failure::User
    } else if text.starts_with(SETTINGS) || HANDSHAKE.iter().any(|one| cause.starts_with(one)) {
        Failure::Tls(cause.to_owned())
    } else {
        Failure::Away(text.to_owned())
    }
}

/// Why the last attempts to connect failed. The events of the client do not have the cause.
fn last_failure(servers: &[Server]) -> Option<Failure> {
    let failures = servers.iter().filter_map(|server| server.last_error.as_deref());
    failures.map(connect_failure).max_by_key(Failure::is_misconfiguration)
}

/// The first and the last sequence of a stream, and its replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) replicas: usize,
}

/// A connection. It is restored by itself.
pub(super) struct Client {
    /// None only while it is dropped.
    runtime: Option<Runtime>,
    context: Context,
    stream: String,
    said: Said,
}

impl Drop for Client {
    fn drop(&mut self) {
        // Dropping a runtime waits, which an asynchronous task must not do.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl core::fmt::Debug for Client {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Client").field("stream", &self.stream).finish_non_exhaustive()
    }
}

/// A setting of the environment that is not empty.
fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn options(address: &LogAddress, noted: &Said) -> ConnectOptions {
    let (noted, seen) = (Arc::clone(noted), Arc::clone(noted));
    let note = move |event: Event| {
        let mut noted = noted.lock().unwrap_or_else(PoisonError::into_inner);
        match said(&event) {
            // The text of an event is shorter than that of the attempt.
            Some(Some(Failure::Away(_))) if noted.is_some() => {}
            Some(said) => *noted = said,
            None => {}
        }
        async {}
    };
    // Chooses no server.
    let look = move |servers: Vec<Server>, _| {
        if let Some(why) = last_failure(&servers) {
            *seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
        }
        ready(None)
    };
    let mut options = ConnectOptions::new()
        .name("lull origin")
        .connection_timeout(CONNECT)
        .request_timeout(Some(REQUEST))
        .reconnect_delay_callback(|_| RECONNECT)
        .reconnect_to_server_callback(look)
        .retry_on_initial_connect()
        .require_tls(address.tls)
        .event_callback(note);
    if let Some(token) = setting("NATS_TOKEN") {
        options = options.token(token);
    }
    if let (Some(user), Some(password)) = (setting("NATS_USER"), setting("NATS_PASSWORD")) {
        options = options.user_and_password(user, password);
    }
    if let Some(file) = setting("NATS_CA") {
        options = options.add_root_certificates(file.into());
    }
    options
}

impl Client {
    /// Begins to connect.
    pub(super) fn connect(address: &LogAddress) -> Result<Self, Failure> {
        let away = |error: &dyn core::fmt::Display| Failure::Away(error.to_string());
        let mut runtime = Builder::new_multi_thread();
        runtime.worker_threads(1).thread_name("lull-log").enable_all();
        let runtime = runtime.build().map_err(|error| away(&error))?;
        let scheme = if address.tls { "tls" } else { "nats" };
        let servers: Vec<_> =
            address.servers.iter().map(|server| format!("{scheme}://{server}")).collect();
        let said = Said::default();
        let options = options(address, &said);
        let connected = wait(&runtime, async move { options.connect(servers).await });
        let client = connected?.map_err(|error| away(&error))?;
        let mut context = jetstream::new(client);
        context.set_timeout(REQUEST);
        Ok(Client { runtime: Some(runtime), context, stream: address.stream.clone(), said })
    }

    /// Waits for a request. What the servers said explains why there was no answer.
    fn wait<T: Send + 'static>(
        &self,
        request: impl Future<Output = Result<T, Failure>> + Send + 'static,
    ) -> Result<T, Failure> {
        let runtime = self.runtime.as_ref().ok_or_else(|| Failure::Away("ended".to_owned()))?;
        wait(runtime, request)?.map_err(|why| {
            let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
            match (why, said.as_ref()) {
                (Failure::Away(why), Some(Failure::Away(said))) => {
                    Failure::Away(format!("{why}: {said}"))
                }
                (Failure::Away(_), Some(said)) => said.clone(),
                (why, _) => why,
            }
        })
    }

    /// The subject of the messages.
    fn subject(&self) -> String {
        format!("lull.log.{}", self.stream)
    }

    /// Makes the stream, with three replicas if the servers are a cluster.
    pub(super) fn create(&self) -> Result<(), Failure> {
        let (context, stream, subject) =
            (self.context.clone(), self.stream.clone(), self.subject());
        self.wait(async move {
            let config = |num_replicas| Config {
                name: stream.clone(),
                subjects: vec![subject.clone()],
                description: Some("The log of a Lull origin".to_owned()),
                storage: StorageType::File,
                // Full: writes are refused. The old messages must stay.
                discard: DiscardPolicy::New,
                allow_message_ttl: true,
                num_replicas,
                ..Config::default()
            };
            let made = match context.create_stream(config(REPLICAS)).await {
                Err(error) if is_single(&error.kind()) => context.create_stream(config(1)).await,
                made => made,
            };
            made.map(drop).map_err(|error| Failure::Away(error.to_string()))
        })
    }

    /// The extent of the stream.
    pub(super) fn extent(&self) -> Result<Extent, Failure> {
        let (context, stream) = (self.context.clone(), self.stream.clone());
        self.wait(async move {
            let found = context.get_stream(&stream).await.map_err(|error| not_found(&error))?;
            let info = found.cached_info();
            Ok(Extent {
                first: info.state.first_sequence,
                last: info.state.last_sequence,
                replicas: info.config.num_replicas,
            })
        })
    }

    /// Appends a message if `expected` is the last one. Returns its sequence when it is durable.
    pub(super) fn publish(
        &self,
        expected: u64,
        message: Buffer,
        is_short_lived: bool,
    ) -> Result<u64, Failure> {
        let (context, subject) = (self.context.clone(), self.subject());
        let mut headers = HeaderMap::new();
        headers.insert(NATS_EXPECTED_LAST_SEQUENCE, expected.to_string().as_str());
        if is_short_lived {
            headers.insert(NATS_MESSAGE_TTL, format!("{}s", ALIVE.as_secs()).as_str());
        }
        self.wait(async move {
            let sent = context.publish_with_headers(subject, headers, message).await;
            let acknowledged = match sent {
                Ok(acknowledgement) => acknowledgement.await,
                Err(error) => Err(error),
            };
            acknowledged.map(|done| done.sequence).map_err(|error| match error.kind() {
                PublishErrorKind::WrongLastSequence => Failure::Moved,
                // Also while a cluster elects a leader: the extent tells.
                _ => Failure::Away(error_chain(&error)),
            })
        })
    }

    /// The first message after this one, as the leader of the stream has it; none if that was the last one.
    pub(super) fn next(&self, after: u64) -> Result<Option<(u64, Buffer)>, Failure> {
        let (context, name) = (self.context.clone(), self.stream.clone());
        let subject = self.subject();
        self.wait(async move {
            let stream = context.get_stream_no_info(&name).await;
            let stream = stream.map_err(|error| Failure::Away(error.to_string()))?;
            let found = stream.raw_message_builder().sequence(after + 1).next_by_subject(subject);
            match found.send().await {
                Ok(message) => Ok(Some((message.sequence, message.payload))),
                Err(error) => match error.kind() {
                    RawMessageErrorKind::NoMessageFound => Ok(None),
                    RawMessageErrorKind::JetStream(ref why)
                        if why.error_code() == ErrorCode::STREAM_NOT_FOUND =>
                    {
                        Err(Failure::NoStream)
                    }
                    _ => Err(Failure::Away(error_chain(&error))),
                },
            }
        })
    }
}

/// Why a stream was not found.
fn not_found(error: &GetStreamError) -> Failure {
    let source = std::error::Error::source(error);
    match error.kind() {
        GetStreamErrorKind::JetStream(why) => match why.error_code() {
            ErrorCode::STREAM_NOT_FOUND => Failure::NoStream,
            ErrorCode::JETSTREAM_NOT_ENABLED | ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT => {
                Failure::NoJetStream
            }
            _ => Failure::Away(error_chain(error)),
        },
        _ => match source.and_then(|source| source.downcast_ref::<RequestError>()) {
            Some(request) if request.kind() == RequestErrorKind::NoResponders => {
                Failure::NoJetStream
            }
            _ => Failure::Away(error_chain(error)),
        },
    }
}

/// Whether the server is not in a cluster, so that a stream can have one replica only.
fn is_single(kind: &CreateStreamErrorKind) -> bool {
    const NO_CLUSTER: ErrorCode = ErrorCode(10_074);
    matches!(kind, CreateStreamErrorKind::JetStream(error) if error.error_code() == NO_CLUSTER)
}

/// Waits for work on the runtime. A caller may be a task of another one, so it must not block on this one.
fn wait<T: Send + 'static>(
    runtime: &Runtime,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, Failure> {
    let (sender, done) = channel();
    runtime.spawn(async move {
        let _ = sender.send(work.await);
    });
    done.recv().map_err(|_| Failure::Away("the client has ended".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misconfiguration_is_told_from_an_outage() {
        let refused = "IO error: Connection refused (os error 111)";
        for (text, is_misconfiguration) in [
            ("authorization violation: nats: authorization violation", true),
            ("IO error: invalid peer certificate: UnknownIssuer", true),
            ("IO error: received corrupt message of type InvalidContentType", true),
            ("TLS error: could not load certificates", true),
            (refused, false),
            ("DNS error", false),
        ] {
            assert_eq!(connect_failure(text).is_misconfiguration(), is_misconfiguration, "{text}");
        }
        let why = connect_failure("IO error: invalid peer certificate: UnknownIssuer").to_string();
        assert!(
            why.starts_with("TLS fails (invalid peer certificate: UnknownIssuer): set NATS_CA"),
            "{why}"
        );
        assert_eq!(connect_failure(refused), Failure::Away(refused.to_owned()));
    }
}
