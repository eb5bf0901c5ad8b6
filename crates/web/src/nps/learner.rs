//! The hint server's learner (SSR §5.2.1): one thread holds the model, learns from requests, and ranks likely
//! next requests of visitors. This module sends to it; [`super::learner_worker`] is the thread.
//!
//! Threads that carry traffic never wait for it. If its queue is full, or it is still reading the saved
//! model, requests are not learned and lists stay empty.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use http::header::USER_AGENT;
use http::{HeaderMap, StatusCode, request};
use lull_speculate::model::{Model, Sender};
use tokio::sync::oneshot;

use super::clock::wall;
use super::persistence::Save;
use super::requester::Requester;
use super::select_hints::{Ask, Ranked};
use crate::policy::fields;
use crate::proxy::Event;

/// The queue's limits: messages, and bytes of all together.
const WAITING: usize = 4096;
const WAITING_BYTES: usize = 8 << 20;
/// The bytes of a message beside its texts.
const MESSAGE_BYTES: usize = 256;
/// The beginning of a longer user agent shows whether it is a robot's.
const MAX_AGENT_BYTES: usize = 512;
/// Longest wait at the end for a thread that does not respond, and the pause between checks.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);
const SHUTDOWN_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Makes the initial model from the saved state and logs, while the site is served already. It reports
/// events, and gives up once the flag says that the process ends: then there is no model.
pub type Learn = Box<dyn FnOnce(&dyn Fn(&Event), &AtomicBool) -> Option<Model> + Send>;

/// The model that a learner begins with.
pub(super) enum Begin {
    With(Box<Model>),
    Learning(Learn),
}

/// A request and its reply, as far as they are learned.
#[derive(Debug)]
pub(super) struct Visited {
    pub(super) address: IpAddr,
    pub(super) agent: String,
    pub(super) target: String,
    pub(super) at: SystemTime,
    pub(super) status: u16,
    pub(super) bytes: u64,
    pub(super) took: Option<Duration>,
    pub(super) prefetch: bool,
    pub(super) private: bool,
}

impl Visited {
    /// For a page that was a copy, in the browser's cache or the service worker's. It contains nothing about
    /// the page itself.
    pub(super) fn of_copy(head: &request::Parts, target: String, requester: Requester) -> Self {
        Visited {
            address: requester.address,
            agent: agent(&head.headers),
            target,
            at: wall(),
            status: StatusCode::NOT_MODIFIED.as_u16(),
            bytes: 0,
            took: None,
            prefetch: false,
            private: false,
        }
    }
}

/// The user agent of a browser, truncated.
pub(super) fn agent(headers: &HeaderMap) -> String {
    let said = fields::single(headers, USER_AGENT).unwrap_or_default();
    // It is ASCII: `fields` accepts nothing else as text.
    said.get(..MAX_AGENT_BYTES).unwrap_or(said).to_owned()
}

/// A request to the learner's thread.
pub(super) enum Message {
    Visited(Visited),
    /// A page that came out of a visitor's cache.
    Shown(Visited),
    Ask(Ask, oneshot::Sender<Ranked>),
    Popular(Vec<String>, oneshot::Sender<Vec<String>>),
    /// Changes that other proxies have not got yet, with their number.
    TakeDelta(oneshot::Sender<Option<(u64, Vec<u8>)>>),
    /// A numbered delta of another proxy.
    Merge(Sender, u64, Vec<u8>),
    End,
}

impl Message {
    /// Its memory while it waits.
    fn bytes(&self) -> usize {
        MESSAGE_BYTES
            + match self {
                Message::Visited(visited) | Message::Shown(visited) => {
                    visited.agent.len() + visited.target.len()
                }
                Message::Ask(ask, _) => {
                    let had = ask.had.iter().map(|url| url.len() + size_of::<String>());
                    ask.page.len() + had.sum::<usize>()
                }
                Message::Popular(except, _) => except.iter().map(String::len).sum(),
                Message::Merge(_, _, bytes) => bytes.len(),
                Message::TakeDelta(_) | Message::End => 0,
            }
    }
}

/// The way to the thread.
#[derive(Debug)]
pub(super) struct Learner {
    to: SyncSender<Message>,
    /// Bytes of waiting messages.
    waiting: Arc<AtomicUsize>,
    state: Arc<State>,
}

/// State shared by both ends.
#[derive(Debug, Default)]
struct State {
    /// Whether there is no model so far.
    is_reading: AtomicBool,
    is_ending: AtomicBool,
}

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Message")
    }
}

/// The thread's end, before it runs.
pub(super) struct LearnerStart {
    messages: Receiver<Message>,
    waiting: Arc<AtomicUsize>,
    state: Arc<State>,
    begin: Begin,
    save: Option<Save>,
}

impl std::fmt::Debug for LearnerStart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LearnerStart").field("state", &self.state).finish_non_exhaustive()
    }
}

/// A learner with this model, or with one that is made first.
pub(super) fn learner(begin: Begin, save: Option<Save>) -> (Learner, LearnerStart) {
    let (sender, messages) = sync_channel(WAITING);
    let waiting = Arc::new(AtomicUsize::new(0));
    let state = Arc::new(State::default());
    state.is_reading.store(matches!(begin, Begin::Learning(_)), Ordering::Relaxed);
    let learner = Learner { to: sender, waiting: Arc::clone(&waiting), state: Arc::clone(&state) };
    (learner, LearnerStart { messages, waiting, state, begin, save })
}

/// The receiving end: the messages for the thread.
pub(super) struct Inbox {
    messages: Receiver<Message>,
    waiting: Arc<AtomicUsize>,
}

impl Inbox {
    /// The next message.
    ///
    /// # Errors
    /// If no message arrives in time, or all senders are gone.
    pub(super) fn receive(&self, within: Duration) -> Result<Message, RecvTimeoutError> {
        let message = self.messages.recv_timeout(within)?;
        self.waiting.fetch_sub(message.bytes(), Ordering::Relaxed);
        Ok(message)
    }
}

impl LearnerStart {
    /// Makes the model. `None` if the proxy ends meanwhile: an incomplete model is not used, because the next
    /// start would skip its part of the log.
    pub(super) fn model(self, on_event: impl Fn(&Event)) -> Option<(Model, Inbox, Option<Save>)> {
        let LearnerStart { messages, waiting, state, begin, save } = self;
        let model = match begin {
            Begin::With(model) => *model,
            Begin::Learning(learn) => learn(&on_event, &state.is_ending)?,
        };
        state.is_reading.store(false, Ordering::Relaxed);
        Some((model, Inbox { messages, waiting }, save))
    }
}

impl Learner {
    /// Hands a visit over; false if the queue is full.
    pub(super) fn visited(&self, visited: Visited) -> bool {
        self.hand(Message::Visited(visited))
    }

    /// Hands a message over, if there is room for it.
    fn hand(&self, message: Message) -> bool {
        let bytes = message.bytes();
        let waiting = self.waiting.fetch_add(bytes, Ordering::Relaxed);
        let is_taken = waiting + bytes <= WAITING_BYTES && self.to.try_send(message).is_ok();
        if !is_taken {
            self.waiting.fetch_sub(bytes, Ordering::Relaxed);
        }
        is_taken
    }

    /// Hands over that a page was shown without a request to the proxy. The message may be invented, so only
    /// known public pages count.
    pub(super) fn shown(&self, visited: Visited) {
        self.hand(Message::Shown(visited));
    }

    /// Whether it still reads the saved state.
    pub(super) fn is_reading(&self) -> bool {
        self.state.is_reading.load(Ordering::Relaxed)
    }

    /// Likely next pages; `None` if the queue is full.
    pub(super) async fn ask(&self, ask: Ask) -> Option<Ranked> {
        let (to, answer) = oneshot::channel();
        if self.is_reading() || !self.hand(Message::Ask(ask, to)) {
            return None;
        }
        answer.await.ok()
    }

    /// The candidates of the monitor: the most popular public page and public subresource, and a page that is
    /// slower to make, without these.
    pub(super) async fn popular(&self, except: Vec<String>) -> Vec<String> {
        let (to, answer) = oneshot::channel();
        if self.is_reading() || !self.hand(Message::Popular(except, to)) {
            return Vec::new();
        }
        answer.await.unwrap_or_default()
    }

    /// Changes that other proxies have not got yet, with their number; none if there are none, or the queue is full.
    pub(super) async fn take_delta(&self) -> Option<(u64, Vec<u8>)> {
        let (to, answer) = oneshot::channel();
        if self.is_reading() || !self.hand(Message::TakeDelta(to)) {
            return None;
        }
        answer.await.ok().flatten()
    }

    /// Hands a delta of another proxy over; false if the queue is full.
    pub(super) fn merge(&self, sender: Sender, number: u64, delta: &[u8]) -> bool {
        self.hand(Message::Merge(sender, number, delta.to_vec()))
    }

    /// Ends the thread, after the waiting messages. A thread that is still reading logs stops.
    pub(super) fn end(&self) {
        self.state.is_ending.store(true, Ordering::Relaxed);
        self.waiting.fetch_add(Message::End.bytes(), Ordering::Relaxed);
        let begun = Instant::now();
        while let Err(TrySendError::Full(_)) = self.to.try_send(Message::End) {
            if self.is_reading() && begun.elapsed() > SHUTDOWN_TIMEOUT {
                return;
            }
            thread::sleep(SHUTDOWN_CHECK_INTERVAL);
        }
    }

    /// Whether its thread cannot react, so that it should not be waited for: a log may be a pipe without a
    /// writer.
    pub(super) fn is_stalled(&self, worker: &thread::JoinHandle<()>) -> bool {
        let begun = Instant::now();
        while self.is_reading() && !worker.is_finished() {
            if begun.elapsed() > SHUTDOWN_TIMEOUT {
                return true;
            }
            thread::sleep(SHUTDOWN_CHECK_INTERVAL);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use lull_speculate::observe::{ClientHasher, Limits};
    use lull_speculate::predict::PpmParameters;

    use super::*;

    fn visit(target: String) -> Visited {
        let (head, ()) = http::Request::get("/").body(()).unwrap().into_parts();
        let requester = Requester {
            address: IpAddr::from([192, 0, 2, 7]),
            client: crate::policy::Client(7),
            secure: false,
            by_cache: false,
        };
        Visited::of_copy(&head, target, requester)
    }

    #[test]
    fn learner_queue_is_bounded_in_bytes() {
        let model =
            Model::new(ClientHasher::new([7; 16]), Limits::default(), PpmParameters::shipped());
        let (learner, worker) = learner(Begin::With(Box::new(model)), None);
        let long = "x".repeat(60_000);
        let taken = (0..WAITING).filter(|_| learner.visited(visit(long.clone()))).count();
        assert!((100..140).contains(&taken), "{taken}");
        assert!(!learner.visited(visit(long.clone())));
        // Once it continues, there is room again.
        let message = worker.messages.recv().unwrap();
        worker.waiting.fetch_sub(message.bytes(), Ordering::Relaxed);
        assert!(learner.visited(visit(long)));
        let waiting = worker.messages.try_iter().map(|message| message.bytes()).sum::<usize>();
        assert_eq!(worker.waiting.load(Ordering::Relaxed), waiting);
    }

    #[test]
    fn long_user_agent_is_cut_at_512_bytes() {
        for (length, expected) in [(0, 0), (100, 100), (512, 512), (60_000, 512)] {
            let mut headers = HeaderMap::new();
            headers.insert(USER_AGENT, "x".repeat(length).parse().unwrap());
            assert_eq!(agent(&headers).len(), expected);
        }
    }
}
