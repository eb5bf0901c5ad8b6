//! The hook: how the rest of NPS observes the traffic, and where it may change it.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, request, response};
use lull_speculate::scheduler::Parameters;

use super::access_log::VisitLog;
use super::address::Address;
use super::body::Body;
use super::connection::Connection;
use super::error::Failure;
use super::event::Listener;
use super::fetch::Fetcher;
use super::metrics::Metrics;
use super::request_body::RequestBody;
use super::scheduler::PrefetchPriority;

/// Checks every request before it goes upstream. Without a site the proxy is transparent.
///
/// It is called on the threads that carry the traffic: slow work must go elsewhere.
pub trait Site: Send + Sync + 'static {
    /// The scheduler of prefetches at the upstream; none if they do not wait.
    fn schedules(&self) -> Option<Parameters> {
        None
    }

    /// Called once, before the first request, with the counters, the receiver of events, and a fetcher for
    /// requests to the upstream.
    fn started(&self, metrics: &Metrics, fetcher: Fetcher, listener: &Listener) {
        let _ = (metrics, fetcher, listener);
    }

    /// Called before that with each listening address.
    fn listens(&self, at: Address) {
        let _ = at;
    }

    /// Called with the access log before the first request, if there is one, for visits that bypassed the
    /// proxy. It must be dropped on [`ended`](Self::ended).
    fn logs_to(&self, visits: VisitLog) {
        let _ = visits;
    }

    /// Called when the owner reloads ([`Server::reload`]).
    ///
    /// [`Server::reload`]: super::Server::reload
    fn reloaded(&self) {}

    /// Called once after the last request. State must be saved now, before the access log is waited for.
    fn ended(&self) {}

    /// Called when the owner reports that the upstream has changed ([`Server::upstream_changed`]).
    ///
    /// [`Server::upstream_changed`]: super::Server::upstream_changed
    fn upstream_changed(&self) {}

    /// The client for the access log's line of this request; `None` leaves it out, such as unseen requests of
    /// scripts. Called before [`request`](Self::request), if there is a log.
    fn logged_as(&self, head: &request::Parts, connection: &Connection) -> Option<IpAddr> {
        let _ = head;
        Some(connection.peer().ip())
    }

    /// Checks the head of a request as the client sent it, without malformed parts. Changes go upstream, and
    /// the proxy's own rules for headers are applied afterwards.
    ///
    /// Over a connection that [is always in the background](Connection::is_always_background), the remaining
    /// `Host` is the host for the upstream.
    fn request(&self, head: &mut request::Parts, connection: &Arc<Connection>) -> Decision;
}

/// The decision about a request.
#[allow(
    clippy::large_enum_variant,
    reason = "it is taken apart at once; a box costs an allocation"
)]
pub enum Decision {
    /// It goes upstream, and its response is not observed.
    Forward,
    /// It goes upstream, and this object observes its response.
    Watch(Box<dyn Exchange>),
    /// This is the answer.
    Answer(Response<Body>),
    /// The answer needs the request's body, or time.
    AnswerLater(Answerer),
}

impl std::fmt::Debug for Decision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Decision::Forward => "Forward",
            Decision::Watch(_) => "Watch",
            Decision::Answer(_) => "Answer",
            Decision::AnswerLater(_) => "AnswerLater",
        })
    }
}

/// Makes an answer from a whole request.
pub type Answerer = Box<
    dyn FnOnce(Request<RequestBody>) -> Pin<Box<dyn Future<Output = Response<Body>> + Send>> + Send,
>;

/// The state of one request that goes upstream.
pub trait Exchange: Send {
    /// Its priority, if it is a prefetch: no user waits for the answer. Then a small answer is read from the
    /// upstream before its client reads it. It waits until the upstream has capacity, if the proxy
    /// [schedules](Site::schedules) that. Otherwise it fails at once if the upstream has its maximum number
    /// of requests.
    fn prefetch(&self) -> Option<PrefetchPriority> {
        None
    }

    /// Whether the page is changed on its way, so that a compressed one would have to be decompressed. Then a server
    /// nearby is asked for an uncompressed page, and the proxy compresses it.
    fn is_recoded(&self) -> bool {
        false
    }

    /// Checks the head of the upstream's response, without the hop-by-hop headers. It may replace `body`,
    /// such as with one that transforms it. Then it must remove `Content-Length`, or set it.
    ///
    /// A head that changes the protocol (101) has no body; changes of the body have no effect. With another
    /// status instead, the protocol stays.
    fn response(&mut self, head: &mut response::Parts, body: Body) -> Body {
        let _ = head;
        body
    }

    /// The upstream gave no answer, or an unusable one. Returns the client's answer; without it the proxy
    /// answers with a status of 502 to 504.
    fn failed(&mut self, failure: Failure) -> Option<Response<Body>> {
        let _ = failure;
        None
    }

    /// The exchange has ended: all was sent, or it failed.
    fn ended(self: Box<Self>, outcome: &Outcome) {
        let _ = outcome;
    }
}

/// The outcome of an exchange.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// The status that the client got; 499 if it disconnected before.
    pub status: u16,
    /// Bytes of the response's body handed to the client's connection.
    pub bytes: u64,
    /// From the request's head to the head of the upstream's answer, if there was one. For requests without a
    /// body this is the time of the upstream and of the network to it.
    pub time_to_first_byte: Option<Duration>,
    /// From sending the request to the upstream to the head of the answer, for requests without a body: no
    /// client can make it longer, and it includes no queueing and no connection setup.
    pub upstream_time: Option<Duration>,
    /// From the request's head to the end.
    pub duration: Duration,
    /// The failure, if there was one.
    pub failure: Option<Failure>,
}
