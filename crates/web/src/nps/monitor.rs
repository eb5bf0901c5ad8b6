//! The monitor (SSR §5.2.1.1): whether the site's server has something to spare, by how long its
//! answers take.
//!
//! Answers to visitors say that for nothing, where they are for one of the objects that stand for
//! the site. Else the monitor asks for these itself, as long as hints are wanted, and for a
//! hundredth of the time at most.

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use lull_cc::Timestamp;
use lull_speculate::budget::{Budget, Grant, ObjectId, Outcome, Parameters, Probe};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::robots::AGENT;
use super::{Draws, Shared};
use crate::proxy::Fetcher;

/// Hints are wanted for so long after somebody asked for some.
const WANTED_FOR: Duration = Duration::from_secs(60);
/// Without a sign that hints are wanted, and without an object to ask for, it is looked again.
const LOOK: Duration = Duration::from_secs(1);
/// Of the time that passes the monitor's own questions take one part in so many.
const PART: u32 = 100;
/// So much of it may be saved up: enough to learn the thresholds of a fast server at once.
const SAVED: Duration = Duration::from_millis(500);
/// An answer to a visitor says how the server is for so long.
const FRESH: Duration = Duration::from_secs(1);
/// An object whose answer is none so often in a row is no longer asked for.
const MOST_FAILURES: u32 = 5;
/// What is read of an answer: objects are chosen that are not longer.
const LONGEST: usize = 64 << 10;
/// How long a client waits that cannot be served: between the two (SSR §5.2.2 leaves it open).
const WAIT_FROM: Duration = Duration::from_secs(1);
const WAIT_TO: Duration = Duration::from_secs(30);

/// How the monitor works.
#[derive(Clone, Debug, Default)]
pub struct MonitorSettings {
    /// What stands for the site: paths of public objects. Empty: what visitors want most.
    pub objects: Vec<String>,
    /// Of the budget. `None`: what Lull ships, for as many objects as there are.
    pub parameters: Option<Parameters>,
}

#[derive(Debug)]
pub(super) struct Monitor {
    settings: MonitorSettings,
    state: Mutex<State>,
    /// The paths of the objects, for the threads that carry traffic.
    watched: RwLock<Vec<String>>,
    wanted: Notify,
    draws: Draws,
}

#[derive(Debug, Default)]
struct State {
    budget: Option<Budget>,
    /// What visitors' requests for each object took last, until it is used.
    seen: Vec<Option<(Timestamp, Duration)>>,
    asked: Option<Timestamp>,
    failures: u32,
}

/// The monitor, as it is now.
#[derive(Clone, Debug)]
pub(super) struct Figures {
    /// B, in requests a second.
    pub(super) budget: u32,
    pub(super) paused: bool,
    /// The paths of the objects, and from when on their answers are late, if that is known.
    pub(super) objects: Vec<(String, Option<Duration>)>,
}

impl Monitor {
    pub(super) fn new(settings: MonitorSettings) -> Self {
        Monitor {
            settings,
            state: Mutex::default(),
            watched: RwLock::default(),
            wanted: Notify::new(),
            draws: Draws::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client asks for a list.
    pub(super) fn ask(&self, now: Timestamp) -> Grant {
        let mut state = self.state();
        if state.asked.is_none_or(|asked| now.saturating_since(asked) >= LOOK) {
            self.wanted.notify_one();
        }
        state.asked = Some(now);
        let draw = self.draws.next();
        match &mut state.budget {
            Some(budget) => budget.ask(now, draw),
            None => {
                let range = (WAIT_TO - WAIT_FROM).as_nanos() as u64;
                let part = (u128::from(range) * u128::from(draw)) >> 64;
                Grant::Empty { again: WAIT_FROM + Duration::from_nanos(part as u64) }
            }
        }
    }

    /// The server began to answer a visitor's request for `path` after `time`.
    pub(super) fn answered(&self, path: &str, now: Timestamp, time: Duration) {
        let place = {
            let watched = self.watched.read().unwrap_or_else(PoisonError::into_inner);
            watched.iter().position(|object| object == path)
        };
        if let Some(place) = place
            && let Some(seen) = self.state().seen.get_mut(place)
        {
            *seen = Some((now, time));
        }
    }

    /// What there is to see.
    pub(super) fn figures(&self) -> Figures {
        let watched = self.watched.read().unwrap_or_else(PoisonError::into_inner).clone();
        let state = self.state();
        let budget = state.budget.as_ref();
        let threshold = |place: usize| budget?.threshold(ObjectId(place as u32));
        let objects = watched.into_iter().enumerate().map(|(place, path)| (path, threshold(place)));
        Figures {
            budget: budget.map_or(0, Budget::budget),
            paused: budget.is_some_and(Budget::is_paused),
            objects: objects.collect(),
        }
    }

    /// Begins with these objects, of which nothing is known.
    fn begin(&self, objects: Vec<String>, now: Timestamp) {
        let parameters = match &self.settings.parameters {
            Some(parameters) => parameters.clone(),
            None => Parameters::shipped(objects.len()),
        };
        let mut state = self.state();
        state.seen = vec![None; objects.len()];
        state.failures = 0;
        state.budget = Some(Budget::new(parameters, now));
        drop(state);
        *self.watched.write().unwrap_or_else(PoisonError::into_inner) = objects;
    }

    /// Gives the objects up: they are none any more.
    fn give_up(&self) {
        self.state().budget = None;
        self.watched.write().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// Keeps the budget, until it is dropped.
pub(super) async fn run(shared: &Shared, fetcher: Fetcher) {
    let monitor = &shared.monitor;
    let mut asking = Asking { shared, fetcher, paid_at: Timestamp::ZERO };
    loop {
        let now = shared.now();
        let (is_wanted, next) = {
            let state = monitor.state();
            let asked = state.asked.map(|asked| now.saturating_since(asked));
            let is_wanted = shared.is_active() && asked.is_some_and(|since| since < WANTED_FOR);
            (is_wanted, state.budget.as_ref().map(Budget::next_poll))
        };
        match next {
            _ if !is_wanted => {
                let _ = timeout(LOOK, monitor.wanted.notified()).await;
            }
            None => {
                let objects = match &monitor.settings.objects {
                    given if given.is_empty() => shared.desk.popular().await,
                    given => given.clone(),
                };
                if objects.is_empty() {
                    sleep(LOOK).await;
                } else {
                    monitor.begin(objects, shared.now());
                }
            }
            Some(next) if next > now => sleep(next.saturating_since(now)).await,
            Some(_) => asking.sample().await,
        }
    }
}

/// Asks the server, within what it may.
struct Asking<'a> {
    shared: &'a Shared,
    fetcher: Fetcher,
    /// When the time that was taken up so far is paid for.
    paid_at: Timestamp,
}

impl Asking<'_> {
    /// Takes the samples of one epoch.
    async fn sample(&mut self) {
        let monitor = &self.shared.monitor;
        let now = self.shared.now();
        let has_all = |state: &State| {
            state
                .seen
                .iter()
                .all(|seen| seen.is_some_and(|(at, _)| now.saturating_since(at) < FRESH))
        };
        let mut due = {
            let mut state = monitor.state();
            if self.paid_at > now + SAVED * PART && !has_all(&state) {
                None
            } else {
                state.budget.as_mut().and_then(|budget| budget.poll(now))
            }
        };
        if due.is_none() {
            sleep(Duration::from_millis(20)).await;
        }
        while let Some(probe) = due {
            due = self.answer(probe).await;
        }
    }

    /// Answers a probe, by what a visitor's request took or by one of its own; gives the next one,
    /// if it is due at once.
    async fn answer(&mut self, probe: Probe) -> Option<Probe> {
        let monitor = &self.shared.monitor;
        if let Some(time) = seen(monitor, probe.object, self.shared.now()) {
            self.shared.counts.passive.one();
            return self.take(probe, Some(time));
        }
        let path = {
            let watched = monitor.watched.read().unwrap_or_else(PoisonError::into_inner);
            watched.get(probe.object.0 as usize)?.clone()
        };
        let (begun, overdue) = {
            let (state, now) = (monitor.state(), self.shared.now());
            (now, state.budget.as_ref()?.next_poll().saturating_since(now))
        };
        let fetched = timeout(overdue, self.fetcher.get(&path, AGENT, LONGEST)).await;
        let took = self.shared.now().saturating_since(begun);
        self.pay(took);
        if let Ok(Ok(fetched)) = &fetched {
            self.shared.counts.probes.note(fetched.time_to_first_byte);
        }
        let Ok(fetched) = fetched else {
            self.shared.counts.probes.note(took);
            // It is late already, and the budget knows.
            return monitor.state().budget.as_mut()?.poll(self.shared.now());
        };
        let time = match fetched {
            Ok(fetched) if fetched.status.is_success() => Some(fetched.time_to_first_byte),
            _ => None,
        };
        let mut state = monitor.state();
        state.failures = if time.is_some() { 0 } else { state.failures + 1 };
        let is_none = state.failures >= MOST_FAILURES && monitor.settings.objects.is_empty();
        drop(state);
        if is_none {
            monitor.give_up();
            return None;
        }
        self.take(probe, time)
    }

    /// Takes note of time that was taken up.
    fn pay(&mut self, took: Duration) {
        self.paid_at = self.paid_at.max(self.shared.now()) + took * PART;
    }

    fn take(&self, probe: Probe, time: Option<Duration>) -> Option<Probe> {
        let now = self.shared.now();
        let mut state = self.shared.monitor.state();
        match state.budget.as_mut()?.handle_sample(now, probe, time) {
            Outcome::Again(probe) => Some(probe),
            _ => None,
        }
    }
}

/// What a visitor's request for `object` took a moment ago; each counts once.
fn seen(monitor: &Monitor, object: ObjectId, now: Timestamp) -> Option<Duration> {
    let (at, time) = monitor.state().seen.get_mut(object.0 as usize)?.take()?;
    (now.saturating_since(at) < FRESH).then_some(time)
}
