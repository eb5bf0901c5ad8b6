//! The clock, the connections, and the loop that drives the clients with both.
//!
//! One thread does it all. Due events come from one timer of the kernel, which is exact to microseconds; an
//! async runtime's own timer rounds up to milliseconds.

mod exchange;
mod find;
mod hints;
mod monitor;
mod settled;
mod sys;
mod tag;
mod timers;

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use http::HeaderValue;
use lull_cc::Timestamp;
use lull_speculate::budget::{Budget, Grant, Parameters, Probe, Wanted};
use lull_speculate::observe::Kind;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, LocalSet};

use super::advice::{Advisor, Listed};
use super::client::{Advice, Ahead, Client, Effect, PageReport, Question};
use super::tally::{Monitored, Report, Tally};
use super::trace::{DocumentId, Trace};
use super::{Mode, ReplayError, Settings};
use exchange::{Answer, Connection, Lane, PlannedRequest, ServerAddress, exchange};
use find::{find, raise_limit};
use lull_emulator::random::Random;
use lull_emulator::rounded;
use monitor::Monitor;
use sys::Clock;
use timers::{TimerEvent, Timers};

/// How often the observer is informed.
const WATCH: Duration = Duration::from_millis(200);
/// D of the budget's monitor: the longest list (SSR §5.3.1).
const DOCUMENT: usize = 10;
/// A status from this on means that there is no object.
const FAILED: u16 = 400;

/// The progress of a replay.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Since it began.
    pub now: Duration,
    /// Requests that were due, and those that were answered.
    pub due: u64,
    /// Requests with an answer.
    pub answered: u64,
}

/// Replays a trace. `advisor` makes the lists of predicted documents; `watch` is informed of the progress a
/// few times a second.
///
/// # Errors
/// [`ReplayError`]. Results of single requests are in the report.
pub fn run(
    settings: &Settings,
    trace: Trace,
    advisor: Option<Advisor>,
    watch: &mut dyn FnMut(Progress),
) -> Result<Report, ReplayError> {
    if trace.arrivals.is_empty() {
        return Err(ReplayError::Empty);
    }
    let system = |what| move |source| ReplayError::System { what, source };
    raise_limit();
    let to = find(&settings.to, &settings.codings)?;
    let is_one = settings.to == settings.ahead_to;
    let ahead_to =
        if is_one { Rc::clone(&to) } else { find(&settings.ahead_to, &settings.codings)? };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(system("starting an event loop"))?;
    let (events, inbox) = mpsc::unbounded_channel();
    LocalSet::new().block_on(&runtime, async {
        let clock = Clock::new().map_err(system("making a timer"))?;
        Replay::new(settings, trace, advisor, [to, ahead_to], events).run(clock, inbox, watch).await
    })
}

/// A client with its connections.
struct ConnectedClient {
    client: Client,
    demand: Lane<Work>,
    ahead: Lane<Work>,
    /// The value of `X-Lull` in fetches.
    mark: Option<HeaderValue>,
    /// The fetch in progress.
    running: Option<Running>,
}

/// A fetch, or the look before it.
struct Running {
    serial: u64,
    is_server_check: bool,
    /// Ends it.
    task: AbortHandle,
}

impl ConnectedClient {
    /// Whether that is still the fetch in progress; then it is removed.
    fn ends(&mut self, serial: u64) -> bool {
        self.running.take_if(|running| running.serial == serial).is_some()
    }
}

/// The purpose of a connection.
enum Work {
    Demand(DocumentId, Duration),
    Hints(Question),
    Tell(PageReport),
    Fetch(u64, Ahead),
    ServerCheck(u64, DocumentId),
}

/// A finished operation.
struct Event {
    /// None for the monitor.
    client: Option<u32>,
    ended: Ended,
    connection: Option<Connection>,
    answer: Option<Answer>,
}

enum Ended {
    Demand(DocumentId, Duration),
    Hints(u64),
    PageReport,
    Fetch(u64),
    ServerCheck(u64),
    Probe { probe: Probe, sent: Instant },
}

struct Replay<'a> {
    settings: &'a Settings,
    trace: Trace,
    advisor: Option<Advisor>,
    to: Rc<ServerAddress>,
    ahead_to: Rc<ServerAddress>,
    clients_by_number: Vec<ConnectedClient>,
    next: usize,
    timers: Timers,
    serial: u64,
    monitor: Option<Monitor>,
    tally: Tally,
    random: Random,
    began: Instant,
    events: mpsc::UnboundedSender<Event>,
    /// Payload of fetches, as it arrives, and the part of it that does not count.
    fetched: Rc<Cell<u64>>,
    fetched_before: u64,
    effects: Vec<Effect>,
    /// The section has ended: nothing is prefetched any more.
    is_over: bool,
}

impl<'a> Replay<'a> {
    fn new(
        settings: &'a Settings,
        trace: Trace,
        advisor: Option<Advisor>,
        [to, ahead_to]: [Rc<ServerAddress>; 2],
        events: mpsc::UnboundedSender<Event>,
    ) -> Self {
        let monitor = match &settings.mode {
            Mode::Monitor { threshold, probe } => {
                let parameters = match threshold {
                    Some(threshold) => Parameters::paper([*threshold]),
                    None => Parameters::shipped(1),
                };
                Some(Monitor {
                    budget: Budget::new(parameters, Timestamp::ZERO),
                    lane: Lane::new(2),
                    probe: probe.clone(),
                    probes: 0,
                    poll_at: None,
                    sum: 0.0,
                    from: Duration::ZERO,
                    looked: Duration::ZERO,
                })
            }
            _ => None,
        };
        let client = || Client::new(settings.mode.hint_use(), trace.caching);
        let is_one = Rc::ptr_eq(&to, &ahead_to);
        let connected = || ConnectedClient {
            client: if is_one { client() } else { client().fetching_elsewhere() },
            demand: Lane::new(settings.connections),
            ahead: Lane::new(1),
            mark: settings.marked.then(|| HeaderValue::from_static("1")),
            running: None,
        };
        let clients_by_number = (0..trace.clients).map(|_| connected()).collect();
        Replay {
            settings,
            trace,
            advisor,
            to,
            ahead_to,
            clients_by_number,
            next: 0,
            timers: Timers::default(),
            serial: 0,
            monitor,
            tally: Tally::new(settings.patience),
            random: Random::new(settings.seed),
            began: Instant::now(),
            events,
            fetched: Rc::default(),
            fetched_before: 0,
            effects: Vec::new(),
            is_over: false,
        }
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// The address that a client sends as its own, in 24 bits. Concurrent replays have different ones by
    /// their seeds.
    fn address(&self, client: u32) -> u32 {
        ((self.settings.seed as u32) << 16).wrapping_add(client).wrapping_add(1)
    }

    async fn run(
        mut self,
        clock: Clock,
        mut inbox: mpsc::UnboundedReceiver<Event>,
        watch: &mut dyn FnMut(Progress),
    ) -> Result<Report, ReplayError> {
        let system = |source| ReplayError::System { what: "setting the timer", source };
        self.began = Instant::now();
        self.timers.at(Duration::ZERO, TimerEvent::Watch);
        if !self.settings.settle.is_zero() {
            self.timers.at(self.settings.settle, TimerEvent::Settled);
        }
        if self.monitor.is_some() {
            self.timers.at(Duration::ZERO, TimerEvent::Poll);
        }
        let last = self.trace.length + self.settings.patience;
        loop {
            self.due(watch);
            if !self.is_over && self.now() >= self.trace.length {
                self.close();
            }
            if self.is_over && (!self.has_open() || self.now() >= last) {
                break;
            }
            clock.set(self.next_due().min(last).saturating_sub(self.now())).map_err(system)?;
            tokio::select! {
                biased;
                event = inbox.recv() => self.take(event)?,
                result = clock.wait() => result.map_err(system)?,
            }
            // Many may have ended at once.
            while let Ok(event) = inbox.try_recv() {
                self.take(Some(event))?;
            }
        }
        Ok(self.finish())
    }

    /// Whether some request has no answer so far.
    fn has_open(&self) -> bool {
        self.clients_by_number.iter().any(|connected| connected.client.waiting().next().is_some())
    }

    /// When something is due next.
    fn next_due(&self) -> Duration {
        let arrival = self.trace.arrivals.get(self.next).map(|arrival| arrival.due);
        let end = (!self.is_over).then_some(self.trace.length);
        [arrival, self.timers.next(), end].into_iter().flatten().min().unwrap_or(Duration::MAX)
    }

    /// Does everything that is due.
    fn due(&mut self, watch: &mut dyn FnMut(Progress)) {
        loop {
            let now = self.now();
            if let Some(arrival) = self.trace.arrivals.get(self.next).copied()
                && arrival.due <= now
            {
                self.next += 1;
                if self.settings.counts(arrival.due) {
                    self.tally.due(now - arrival.due);
                }
                let kind = self.trace.documents.get(arrival.document).kind;
                let mut effects = std::mem::take(&mut self.effects);
                let connected = &mut self.clients_by_number[arrival.client as usize];
                connected.client.demand(now, &arrival, kind, &mut effects);
                self.carry_out(arrival.client, effects);
                continue;
            }
            let Some(due) = self.timers.pop(now) else { return };
            match due {
                TimerEvent::Wake(client) => {
                    let mut effects = std::mem::take(&mut self.effects);
                    self.clients_by_number[client as usize].client.wake(now, &mut effects);
                    self.carry_out(client, effects);
                }
                TimerEvent::Advice(client, number, advice) => self.advise(client, number, advice),
                TimerEvent::Poll => self.poll(),
                TimerEvent::Settled => self.settled(),
                TimerEvent::Watch => {
                    let demand = &self.tally.report.demand;
                    watch(Progress { now, due: demand.due, answered: demand.answered });
                    if !self.is_over {
                        self.timers.at(now + WATCH, TimerEvent::Watch);
                    }
                }
            }
        }
    }

    fn advise(&mut self, client: u32, number: u64, advice: Advice) {
        self.tally.report.ahead.lists += u64::from(!advice.list.is_empty());
        let mut effects = std::mem::take(&mut self.effects);
        let now = self.now();
        self.clients_by_number[client as usize].client.advise(now, number, advice, &mut effects);
        self.carry_out(client, effects);
    }

    /// Carries out a client's effects.
    fn carry_out(&mut self, client: u32, mut effects: Vec<Effect>) {
        for effect in effects.drain(..) {
            let connected = &mut self.clients_by_number[client as usize];
            match effect {
                Effect::Demand(document, due) => connected.demand.push(Work::Demand(document, due)),
                Effect::Answered { document, due, from } => {
                    let kind = self.trace.documents.get(document).kind;
                    if self.settings.counts(due) {
                        let time = self.began.elapsed().saturating_sub(due);
                        self.tally.answered(from, kind, time);
                    }
                }
                Effect::Wake(time) => self.timers.at(time, TimerEvent::Wake(client)),
                Effect::Stop => {
                    if let Some(running) = connected.running.take() {
                        running.task.abort();
                        connected.ahead.end(None);
                        self.tally.report.ahead.stopped += u64::from(!running.is_server_check);
                    }
                }
                Effect::Tell(told) => connected.demand.push(Work::Tell(told)),
                Effect::Fetch(_) | Effect::ServerCheck(_) | Effect::Ask(_) if self.is_over => {}
                Effect::Fetch(ahead) => {
                    self.serial += 1;
                    connected.ahead.push(Work::Fetch(self.serial, ahead));
                }
                Effect::ServerCheck(page) => {
                    self.serial += 1;
                    connected.ahead.push(Work::ServerCheck(self.serial, page));
                }
                Effect::Ask(question) => self.ask(client, question),
            }
        }
        // The memory is reused.
        self.effects = effects;
        self.start_work(client);
    }

    /// Begins work for free connections.
    fn start_work(&mut self, client: u32) {
        let address = self.address(client);
        let connected = &mut self.clients_by_number[client as usize];
        while let Some((work, kept)) = connected.demand.next() {
            let (asked, ended) = match work {
                Work::Demand(id, due) => {
                    let document = self.trace.documents.get(id);
                    let is_page = document.kind == Kind::Page;
                    let reads_tag = is_page && matches!(self.settings.mode, Mode::Hinted);
                    let asked = PlannedRequest {
                        reads_tag,
                        ..PlannedRequest::get(&document.target, is_page)
                    };
                    (asked, Ended::Demand(id, due))
                }
                Work::Hints(question) => {
                    let message = hints::message(&question, &self.trace.documents);
                    (PlannedRequest::post(hints::PATH, message), Ended::Hints(question.number))
                }
                Work::Tell(told) => {
                    let message = hints::beacon(told, &self.trace.documents);
                    (PlannedRequest::post(hints::BEACON_PATH, message), Ended::PageReport)
                }
                Work::Fetch(..) | Work::ServerCheck(..) => continue,
            };
            let (server, patience) = (Rc::clone(&self.to), self.settings.patience);
            let work = exchange(server, kept, asked, address, patience, Rc::default());
            let events = self.events.clone();
            tokio::task::spawn_local(async move {
                let (connection, answer) = work.await;
                let _ = events.send(Event { client: Some(client), ended, connection, answer });
            });
        }
        while let Some((work, kept)) = connected.ahead.next() {
            let documents = &self.trace.documents;
            let of = |id| {
                let document = documents.get(id);
                PlannedRequest::get(&document.target, document.kind == Kind::Page)
            };
            let mark = connected.mark.clone();
            let (serial, asked, ended) = match work {
                Work::Fetch(serial, Ahead::Dummy) => {
                    let asked = PlannedRequest::get(&self.settings.dummy, false);
                    (serial, PlannedRequest { mark, ..asked }, Ended::Fetch(serial))
                }
                Work::Fetch(serial, Ahead::Document(id)) => {
                    (serial, PlannedRequest { mark, ..of(id) }, Ended::Fetch(serial))
                }
                Work::ServerCheck(serial, page) => (
                    serial,
                    PlannedRequest::server_check(&documents.get(page).target),
                    Ended::ServerCheck(serial),
                ),
                Work::Demand(..) | Work::Hints(_) | Work::Tell(_) => continue,
            };
            let is_server_check = asked.is_server_check;
            let (server, patience) = (Rc::clone(&self.ahead_to), self.settings.patience);
            let work = exchange(server, kept, asked, address, patience, Rc::clone(&self.fetched));
            let events = self.events.clone();
            let task = tokio::task::spawn_local(async move {
                let (connection, answer) = work.await;
                let _ = events.send(Event { client: Some(client), ended, connection, answer });
            });
            connected.running =
                Some(Running { serial, is_server_check, task: task.abort_handle() });
        }
    }

    /// Gets an answer to a question, at once or from the server.
    fn ask(&mut self, client: u32, question: Question) {
        self.tally.report.ahead.asked += 1;
        let now = self.now();
        let (most, is_rationed) = match &self.settings.mode {
            Mode::None => return,
            Mode::Hinted => {
                self.clients_by_number[client as usize].demand.push(Work::Hints(question));
                return;
            }
            Mode::NoAvoidance { files } | Mode::WithPage { files, .. } => (*files, false),
            Mode::Monitor { .. } => (DOCUMENT, true),
        };
        let mut list = match (self.settings.listed, &mut self.advisor) {
            (Listed::Dummies, _) => vec![Ahead::Dummy; most],
            (Listed::Predicted { threshold }, Some(advisor)) => {
                advisor.list(&question.pages, &question.had, most, threshold)
            }
            (Listed::Predicted { .. }, None) => Vec::new(),
        };
        let (mut after, mut again) = (Duration::ZERO, is_rationed.then_some(now));
        if is_rationed && !list.is_empty() {
            let Some(monitor) = &mut self.monitor else { return };
            let (files, first) = (list.len() as u32, question.had.is_empty());
            let wanted = Wanted { files, pointed: false, first };
            match monitor.budget.ask(timestamp(now), wanted, self.random.next_u64()) {
                Grant::List { length, after: wait } => {
                    list.truncate(length as usize);
                    after = wait;
                }
                Grant::Empty { again: wait } => {
                    list.clear();
                    again = Some(now + wait);
                }
            }
        }
        // A client without anything to fetch need not come again at once.
        let again = if list.is_empty() && again == Some(now) { None } else { again };
        self.timers
            .at(now + after, TimerEvent::Advice(client, question.number, Advice { list, again }));
    }

    /// Handles a finished operation.
    fn take(&mut self, event: Option<Event>) -> Result<(), ReplayError> {
        // `self` has a sender, so there always is one.
        let Some(Event { client, ended, connection, answer }) = event else { return Ok(()) };
        let now = answer
            .as_ref()
            .map_or_else(|| self.now(), |answer| answer.at.saturating_duration_since(self.began));
        let Some(client) = client else {
            if let Ended::Probe { probe, sent } = ended {
                self.probed(probe, sent, connection, answer.as_ref());
            }
            return Ok(());
        };
        let status = answer.as_ref().map(|answer| answer.status);
        if let (Some(status), Ended::Demand(..) | Ended::Fetch(_)) = (status, &ended) {
            *self.tally.report.statuses.entry(status).or_default() += 1;
        }
        let good = answer.as_ref().filter(|answer| answer.status < FAILED);
        let mut effects = std::mem::take(&mut self.effects);
        let connected = &mut self.clients_by_number[client as usize];
        match ended {
            Ended::Demand(document, due) => {
                connected.demand.end(connection);
                if let (Some(answer), false) = (&answer, self.is_over) {
                    self.tally.report.demand.bytes += answer.bytes;
                    self.tally.report.demand.per_second += 1.0;
                }
                if let Some(wait) = good.and_then(|answer| answer.wait) {
                    connected.client.is_to_wait(document, wait);
                }
                connected.client.answered(now, document, due, good.is_some(), &mut effects);
            }
            Ended::Fetch(serial) => {
                // A cancelled fetch may have arrived all the same.
                if connected.ends(serial) {
                    connected.ahead.end(connection);
                    self.take_fetched(client, now, good, &mut effects);
                }
            }
            Ended::Hints(number) => {
                connected.demand.end(connection);
                self.take_hints(client, now, number, answer.as_ref(), &mut effects)?;
            }
            Ended::ServerCheck(serial) => {
                if connected.ends(serial) {
                    connected.ahead.end(connection);
                    let is_server =
                        answer.is_some_and(|answer| answer.status == 204 && answer.is_marked);
                    connected.client.server_checked(now, is_server, &mut effects);
                }
            }
            Ended::PageReport => connected.demand.end(connection),
            Ended::Probe { .. } => {}
        }
        self.carry_out(client, effects);
        Ok(())
    }

    /// Takes the outcome of a prefetch.
    fn take_fetched(
        &mut self,
        client: u32,
        now: Duration,
        good: Option<&Answer>,
        effects: &mut Vec<Effect>,
    ) {
        // A refused prefetch (204) is not a copy.
        let bytes = good.filter(|answer| answer.status == 200).map(|answer| answer.bytes);
        let ahead = &mut self.tally.report.ahead;
        *(if bytes.is_some() { &mut ahead.fetched } else { &mut ahead.failed }) += 1;
        let client = &mut self.clients_by_number[client as usize].client;
        if good.is_some_and(|answer| answer.status == 204 && answer.is_marked) {
            client.refused(now, effects);
        } else {
            client.fetched(now, bytes, effects);
        }
    }

    /// Takes a list of hints. A server that answers with other content has none.
    fn take_hints(
        &mut self,
        client: u32,
        now: Duration,
        number: u64,
        answer: Option<&Answer>,
        effects: &mut Vec<Effect>,
    ) -> Result<(), ReplayError> {
        let Some(answer) = answer else { return Ok(()) };
        let is_good = answer.status < FAILED;
        let read =
            is_good.then(|| hints::advice(&answer.body, &mut self.trace.documents, now)).flatten();
        let Some((advice, mark)) = read else {
            let server = self.settings.to.to_string();
            let why = format!("{} is answered with {}", hints::PATH, answer.status);
            return Err(ReplayError::NoHints { server, why });
        };
        let connected = &mut self.clients_by_number[client as usize];
        connected.mark = Some(mark);
        self.tally.report.ahead.lists += u64::from(!advice.list.is_empty());
        connected.client.advise(now, number, advice, effects);
        Ok(())
    }

    /// The section has ended.
    fn close(&mut self) {
        self.is_over = true;
        self.tally.report.ahead.bytes = self.fetched.get() - self.fetched_before;
        for connected in &mut self.clients_by_number {
            // An awaited fetch is demand.
            if let Some(running) = connected.running.take_if(|_| !connected.client.awaits()) {
                running.task.abort();
            }
        }
        let now = self.now();
        if let Some(monitor) = &mut self.monitor {
            monitor.add_up_budget(now);
        }
    }

    fn finish(mut self) -> Report {
        let now = self.now();
        for connected in &self.clients_by_number {
            let settings = self.settings;
            for (document, due) in
                connected.client.waiting().filter(|(_, due)| settings.counts(*due))
            {
                let kind = self.trace.documents.get(document).kind;
                self.tally.unanswered(kind, now.saturating_sub(due));
            }
        }
        let clients = self.trace.clients;
        let length = self.trace.length.saturating_sub(self.settings.settle);
        let mut report = self.tally.finish(length, clients);
        report.demand.reachable = self.trace.reachable();
        report.monitor = self.monitor.map(|monitor| Monitored {
            probes: monitor.probes,
            budget_mean: rounded(monitor.mean()),
            threshold_ms: monitor
                .budget
                .threshold(lull_speculate::budget::ObjectId(0))
                .map(|threshold| rounded(threshold.as_secs_f64() * 1e3)),
        });
        report
    }
}

fn timestamp(since: Duration) -> Timestamp {
    Timestamp::ZERO + since
}
