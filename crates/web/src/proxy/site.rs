//! The hook: what the rest of NPS sees of the traffic, and where it may change it.

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

/// Looks at every request before it goes upstream. Without one the proxy is transparent.
///
/// It is called on the threads that carry the traffic: whatever takes long goes elsewhere.
pub trait Site: Send + Sync + 'static {
    /// How prefetches wait for room at the upstream; none if they do not.
    fn schedules(&self) -> Option<Parameters> {
        None
    }

    /// Is told once, before the first request, where the counters are and who hears of events, and
    /// is given what it may ask the upstream by.
    fn started(&self, metrics: &Metrics, fetcher: Fetcher, listener: &Listener) {
        let _ = (metrics, fetcher, listener);
    }

    /// Is told before that where clients come in, once for each place.
    fn listens(&self, at: Address) {
        let _ = at;
    }

    /// Is given the access log before the first request, if there is one, for visits that came past the proxy. It is to be
    /// dropped when [`ended`](Self::ended) is told.
    fn logs_to(&self, visits: VisitLog) {
        let _ = visits;
    }

    /// Is told that the owner has something new to be read ([`Server::reload`]).
    ///
    /// [`Server::reload`]: super::Server::reload
    fn reloaded(&self) {}

    /// Is told once that no request comes any more. What is to be kept is kept now, before the access log
    /// is waited for.
    fn ended(&self) {}

    /// Is told that the owner says that the upstream is another one by now ([`Server::upstream_changed`]).
    ///
    /// [`Server::upstream_changed`]: super::Server::upstream_changed
    fn upstream_changed(&self) {}

    /// Of which client the access log has this request; `None` leaves it out, such as what scripts ask
    /// for that nobody has seen. Asked before [`request`](Self::request), if there is a log.
    fn logged_as(&self, head: &request::Parts, connection: &Connection) -> Option<IpAddr> {
        let _ = head;
        Some(connection.peer().ip())
    }

    /// Looks at the head of a request as the client sent it, less what was malformed. What is
    /// changed in it goes upstream, except that the proxy's own rules for headers come after it.
    ///
    /// Over a connection that [is always in the background](Connection::is_always_background) the
    /// host that is left in `Host` is the one that the upstream is told.
    fn request(&self, head: &mut request::Parts, connection: &Arc<Connection>) -> Decision;
}

/// What becomes of a request.
#[allow(
    clippy::large_enum_variant,
    reason = "it is taken apart at once; a box costs an allocation"
)]
pub enum Decision {
    /// It goes upstream, and nobody hears of its response.
    Forward,
    /// It goes upstream, and this hears of its response.
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

/// What is kept for one request that goes upstream.
pub trait Exchange: Send {
    /// Its priority, if it is a prefetch: nobody waits for the answer. Then it is taken from the upstream, as far as it is
    /// small, before its client takes it. It waits until the upstream has room, where the proxy [schedules](Site::schedules)
    /// that; otherwise it fails at once if the upstream has as many requests as it may have.
    fn prefetch(&self) -> Option<PrefetchPriority> {
        None
    }

    /// Looks at the head of the upstream's response, less the headers that are not to be passed
    /// on, and may put another body in the place of `body`, such as one that transforms it. Who
    /// does so removes `Content-Length`, or sets it.
    ///
    /// A head that changes the protocol (101) has no body; what is done to that does nothing. With
    /// another status in its place the protocol stays.
    fn response(&mut self, head: &mut response::Parts, body: Body) -> Body {
        let _ = head;
        body
    }

    /// The upstream gave no answer, or none that can be passed on. What the client gets then; without
    /// it the proxy says what is wrong, by a status of 502 to 504.
    fn failed(&mut self, failure: Failure) -> Option<Response<Body>> {
        let _ = failure;
        None
    }

    /// The exchange has ended: all was sent, or something failed.
    fn ended(self: Box<Self>, outcome: &Outcome) {
        let _ = outcome;
    }
}

/// How an exchange went.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// The status that the client got; 499 if it went away before.
    pub status: u16,
    /// Bytes of the response's body that were handed to the client's connection.
    pub bytes: u64,
    /// From the request's head to that of the upstream's answer, if there was one. For requests
    /// without a body this is the upstream's time and that of the way to it.
    pub time_to_first_byte: Option<Duration>,
    /// From when the request went over a connection to the upstream to the head of the answer, of requests
    /// without a body: no client can make it longer, nobody has waited in it for others, and no connection
    /// was made.
    pub upstream_time: Option<Duration>,
    /// From the request's head to the end.
    pub duration: Duration,
    /// What went wrong, if anything did.
    pub failure: Option<Failure>,
}
