//! The monitor (SSR §5.2.1.1): learns from the times of its answers whether the site's server has spare
//! capacity.
//!
//! Answers to visitors are free samples, if they are for one of the monitored objects. Otherwise the monitor
//! requests these objects itself, while hints are wanted, and for at most one percent of the time.

mod asking;
mod budget_starvation;
mod usual;

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use lull_cc::Timestamp;
use lull_speculate::budget::{
    Budget, Grant, ObjectId, Outcome, Parameters, Probe, Rationing, Thresholds, Wanted,
};
use tokio::sync::Notify;

use super::draws::Draws;
use super::learner::Learner;
use super::settings::MonitorSettings;
use budget_starvation::BudgetStarvation;
use usual::Usual;

pub(super) use asking::{MonitorContext, run};
pub use usual::KEPT_TIMES;

/// How long hints are wanted after the last request for some.
const WANTED_FOR: Duration = Duration::from_secs(60);
/// Most clients fetch their list within this time, and clients without a list ask again. Without a request
/// since then, no sample per epoch is needed.
const RECENT_REQUEST: Duration = Duration::from_secs(2);
/// The interval of checks when no hints are requested, or there is no object to probe.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How long an answer to a visitor is evidence of the server's state.
const FRESH: Duration = Duration::from_secs(1);
/// A server without a budget whose answers were late within this time is loaded.
const LOADED_FOR: Duration = Duration::from_secs(5);
/// An object that fails this often in a row is no longer requested.
const MAX_FAILURES: u32 = 5;
/// Number of abandoned objects that are skipped, at most.
const MAX_GIVEN_UP: usize = 64;

/// Why there is no budget, and the remedy.
const LATE: &str = "the server responds later than usual, or rejects prefetches (429, 503). Under \
                    load this is normal. If it became slower permanently, send SIGUSR2 to learn \
                    its usual times again, or name other objects with --probe";
const UNKNOWN: &str = "the server's usual response time is still unknown: name public objects \
                       with fast responses by --probe";

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
    /// The last time of a visitor's request for each object, until it is used.
    seen: Vec<Option<(Timestamp, Duration)>>,
    /// When one of them last had an answer.
    heard: Option<Timestamp>,
    /// When the last late answer came, so that the budget was halved.
    late: Option<Timestamp>,
    /// The object of the budget's next probe: they take turns.
    turn: usize,
    asked: Option<Timestamp>,
    /// How often in a row the answer for each object was unusable.
    failures: Vec<u32>,
    /// Paths that fail while others are answered. The owner was informed.
    given_up: Vec<String>,
    /// Whether the owner was informed that all objects fail.
    is_told: bool,
    /// Whether the server was loaded at the last sample.
    is_late: bool,
    /// Whether no more samples are possible for now, and that was the last.
    is_blind: bool,
    /// Whether objects are to be chosen again: a pause has begun, some fail, or the owner asks for it.
    chooses: bool,
    /// Whether all thresholds are learned again with that, because the owner says that the server changed.
    forgets: bool,
    /// The learned thresholds, whether or not their objects are still representative.
    usual: Usual,
    /// When the budget was last halved because of a rejected prefetch.
    refused: Option<Timestamp>,
    /// Whether any client has got a list so far.
    has_granted: bool,
    starvation: BudgetStarvation,
}

impl State {
    /// Begins with this many objects; learned thresholds stay.
    fn reset(&mut self, objects: usize) {
        self.seen = vec![None; objects];
        (self.turn, self.failures) = (0, vec![0; objects]);
        (self.is_late, self.is_blind) = (false, false);
        (self.chooses, self.forgets) = (false, false);
    }

    /// Chooses objects again, including the dropped ones.
    fn choose(&mut self) {
        self.given_up.clear();
        (self.is_told, self.chooses) = (false, true);
    }

    /// The probe that is due now. Without permission to send one, it is for the next object of which a
    /// visitor's request provides a sample. So no slow object keeps others from being sampled. None if there
    /// is no such object.
    fn poll(&mut self, now: Timestamp, may_ask: bool) -> Option<Probe> {
        let object = if may_ask { None } else { Some(self.next_seen(now)?) };
        let budget = self.budget.as_mut()?;
        let was_paused = budget.is_paused();
        let probe = match object {
            Some(object) => budget.poll_for(now, object),
            None => budget.poll(now),
        };
        self.chooses |= budget.is_paused() && !was_paused;
        let probe = probe?;
        self.turn = (probe.object.0 as usize + 1) % self.seen.len().max(1);
        Some(probe)
    }

    /// The next object, in turn, for which a visitor's request gives a usable sample now.
    fn next_seen(&self, now: Timestamp) -> Option<ObjectId> {
        let is_fresh = |place: &usize| {
            self.seen[*place].is_some_and(|(at, _)| now.saturating_since(at) < FRESH)
        };
        let objects = self.seen.len();
        let place = (self.turn..objects).chain(0..self.turn.min(objects)).find(is_fresh)?;
        Some(ObjectId(place as u32))
    }

    /// Whether the server is known to be loaded, so that it has no spare capacity.
    fn is_loaded(&self, now: Timestamp) -> bool {
        let budget = self.budget.as_ref();
        let is_spent = budget.is_some_and(|budget| budget.budget() == 0 && !budget.is_paused());
        is_spent && self.late.is_some_and(|late| now.saturating_since(late) < LOADED_FOR)
    }

    /// Whether visitors give samples of a loaded server, so that it need not be probed as well.
    fn has_visitor_samples(&self, now: Timestamp) -> bool {
        let is_heard = self.heard.is_some_and(|heard| now.saturating_since(heard) < FRESH);
        is_heard && self.is_loaded(now)
    }

    /// Whether each epoch needs a sample: a list was requested recently, or it learns.
    fn is_busy(&self, now: Timestamp) -> bool {
        let learns = self.budget.as_ref().is_some_and(Budget::is_paused);
        learns || self.was_asked_within(RECENT_REQUEST, now)
    }

    /// Whether a list was requested within this time.
    fn was_asked_within(&self, time: Duration, now: Timestamp) -> bool {
        self.asked.is_some_and(|asked| now.saturating_since(asked) < time)
    }

    /// Why there is no budget, if the owner has to be informed now.
    fn check_starvation(&mut self, now: Timestamp, is_wanted: bool) -> Option<&'static str> {
        let budget = self.budget.as_ref();
        let has_some = budget.is_some_and(|budget| budget.budget() > 0);
        let is_known = budget.is_some_and(|budget| !budget.is_paused());
        let is_due = self.starvation.check_starvation(now, is_wanted, has_some);
        is_due.then_some(if is_known { LATE } else { UNKNOWN })
    }

    /// The answer for an object was usable, so its next failure is reported to the owner.
    fn answered(&mut self, object: ObjectId, path: &str) {
        if let Some(failures) = self.failures.get_mut(object.0 as usize) {
            *failures = 0;
        }
        self.given_up.retain(|other| other != path);
        self.is_told = false;
    }

    /// The answer for an object was unusable: returns the consequence.
    fn failed(&mut self, object: ObjectId, path: &str) -> Failing {
        let place = object.0 as usize;
        let Some(failures) = self.failures.get_mut(place) else { return Failing::Bearable };
        *failures = failures.saturating_add(1);
        if *failures < MAX_FAILURES {
            return Failing::Bearable;
        }
        let mut others = self.failures.iter().enumerate().filter(|(other, _)| *other != place);
        if !others.any(|(_, failures)| *failures == 0) {
            return Failing::All { is_new: !std::mem::replace(&mut self.is_told, true) };
        }
        let is_new = !self.given_up.iter().any(|other| other == path);
        if is_new {
            if self.given_up.len() >= MAX_GIVEN_UP {
                self.given_up.remove(0);
            }
            self.given_up.push(path.to_owned());
        }
        Failing::Alone { is_new }
    }

    /// The time of a visitor's request for `object` a moment ago; each counts once.
    fn take_seen(&mut self, object: ObjectId, now: Timestamp) -> Option<Duration> {
        let (at, time) = self.seen.get_mut(object.0 as usize)?.take()?;
        (now.saturating_since(at) < FRESH).then_some(time)
    }
}

/// The consequence of an object's failure; new means that the owner is not informed so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failing {
    /// Nothing so far.
    Bearable,
    /// The object is the cause: others are answered.
    Alone { is_new: bool },
    /// The server is the cause, or all objects are.
    All { is_new: bool },
}

/// The current state of the monitor.
#[derive(Clone, Debug)]
pub(super) struct Figures {
    /// B, in requests per second.
    pub(super) budget: u32,
    pub(super) paused: bool,
    /// During a pause, the samples of the object with the fewest, and how many it needs.
    pub(super) progress: Option<(usize, usize)>,
    /// The paths of the objects, and from when on their answers are late, if known.
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

    /// The largest number of files on a list.
    pub(super) fn document(&self) -> u32 {
        let given = self.settings.parameters.as_ref().map(|given| given.document);
        given.unwrap_or_else(|| Parameters::shipped(1).document)
    }

    /// A client asks for a list.
    pub(super) fn ask(&self, now: Timestamp, wanted: Wanted) -> Grant {
        let mut state = self.state();
        if state.asked.is_none_or(|asked| now.saturating_since(asked) >= CHECK_INTERVAL) {
            self.wanted.notify_one();
        }
        state.asked = Some(now);
        let draw = self.draws.next();
        let is_blind = state.is_blind;
        match &mut state.budget {
            Some(budget) if !is_blind => {
                let grant = budget.ask(now, wanted, draw);
                state.has_granted |= matches!(grant, Grant::List { .. });
                grant
            }
            // As if there were no threshold (SSR §5.2.2 leaves this open).
            _ => {
                let given = self.settings.parameters.as_ref().map(|given| given.rationing);
                let rationing = given.unwrap_or(Rationing::shipped());
                Grant::Empty { again: rationing.again(CHECK_INTERVAL, draw as u32) }
            }
        }
    }

    /// The server began to answer a request for `path` after `time`, of an anonymous user: pages of signed-in
    /// users take another time.
    pub(super) fn answered(&self, path: &str, now: Timestamp, time: Duration) {
        // Kept until it is noted: the objects may just have changed.
        let watched = self.watched.read().unwrap_or_else(PoisonError::into_inner);
        let Some(place) = watched.iter().position(|object| object == path) else { return };
        let mut state = self.state();
        if let Some(seen) = state.seen.get_mut(place) {
            *seen = Some((now, time));
            state.heard = Some(now);
        }
    }

    /// The server has rejected a prefetch because of its load.
    pub(super) fn refused(&self, now: Timestamp) {
        let mut state = self.state();
        // Requests that were in flight then are rejected like it, and add no information.
        if state.refused.is_none_or(|refused| now.saturating_since(refused) >= CHECK_INTERVAL) {
            state.refused = Some(now);
            if let Some(budget) = &mut state.budget {
                budget.back_off(now);
            }
        }
    }

    /// The owner has rotated logs: objects are chosen again. Thresholds stay valid, because logs are rotated
    /// each night, overload or not.
    pub(super) fn choose(&self) {
        self.state().choose();
    }

    /// The owner says that the server changed: thresholds are learned again, with newly chosen objects.
    pub(super) fn relearn(&self) {
        let mut state = self.state();
        state.choose();
        state.usual.clear();
        state.forgets = true;
    }

    /// The learned times of the server, to be given to [`Monitor::take_times`] of another process.
    pub(super) fn encode_times(&self) -> Vec<u8> {
        self.state().usual.encode()
    }

    /// Continues with times learned before; an invalid input changes nothing.
    pub(super) fn take_times(&self, kept: &[u8]) {
        let _ = self.state().usual.take(kept);
    }

    /// A number that changes whenever the saved state changes.
    pub(super) fn time_changes(&self) -> u64 {
        self.state().usual.changes()
    }

    /// Whether it learns the threshold of late answers: nothing is prefetched meanwhile.
    pub(super) fn is_paused(&self) -> bool {
        self.state().budget.as_ref().is_some_and(Budget::is_paused)
    }

    /// Whether nothing is prefetched while it learns. A scheduler measures demand itself, so there the
    /// monitor is only a second signal.
    pub(super) fn bars_prefetches(&self) -> bool {
        !self.is_second_signal() && self.is_paused()
    }

    /// Whether the proxy schedules prefetches by the demand that it sees, and probes are only a second
    /// signal.
    pub(super) fn is_second_signal(&self) -> bool {
        self.settings.parameters.is_none()
    }

    /// Whether there are probes at all. As a second signal there are some if the owner names objects: for a
    /// server that others use as well.
    pub(super) fn is_wanted(&self) -> bool {
        !self.is_second_signal() || !self.settings.objects.is_empty()
    }

    /// A client requests a list, which the scheduler would grant: none while probes show that the server is
    /// loaded.
    pub(super) fn vetoes(&self, now: Timestamp) -> bool {
        let mut state = self.state();
        if self.is_wanted() {
            if state.asked.is_none_or(|asked| now.saturating_since(asked) >= CHECK_INTERVAL) {
                self.wanted.notify_one();
            }
            state.asked = Some(now);
        }
        state.is_loaded(now)
    }

    /// Whether the server was loaded at the last sample, and no budget is left: earlier hints must not be
    /// fetched now.
    pub(super) fn is_spent(&self) -> bool {
        let state = self.state();
        state.is_late && state.budget.as_ref().is_some_and(|budget| budget.budget() == 0)
    }

    /// How long a page sent now must wait before it asks for a list, because it would get an empty one.
    /// Otherwise a machine without spare capacity would have to answer a request for each page.
    pub(super) fn wait(&self, now: Timestamp) -> Option<Duration> {
        let waits = !self.is_as_in_the_paper() && self.state().is_loaded(now);
        waits.then(|| Rationing::shipped().again(CHECK_INTERVAL, self.draws.next() as u32))
    }

    /// Whether it keeps the paper's budget, in which each epoch has a probe and each page asks (SSR §5.2.2).
    fn is_as_in_the_paper(&self) -> bool {
        let given = self.settings.parameters.as_ref();
        given.is_some_and(|given| given.rationing == Rationing::Paper)
    }

    /// Whether anything may be prefetched now.
    fn has_budget(&self) -> bool {
        self.state().budget.as_ref().is_some_and(|budget| budget.budget() > 0)
    }

    /// The current values.
    pub(super) fn figures(&self) -> Figures {
        let watched = self.watched.read().unwrap_or_else(PoisonError::into_inner).clone();
        let state = self.state();
        let budget = state.budget.as_ref();
        let threshold = |place: usize| budget?.threshold(ObjectId(place as u32));
        let objects = watched.into_iter().enumerate().map(|(place, path)| (path, threshold(place)));
        Figures {
            budget: budget.map_or(0, Budget::budget),
            paused: budget.is_some_and(Budget::is_paused),
            progress: budget.and_then(Budget::progress),
            objects: objects.collect(),
        }
    }

    /// Begins with these objects and their thresholds.
    fn watch_objects(&self, objects: Vec<String>, now: Timestamp) {
        let mut parameters = match &self.settings.parameters {
            Some(parameters) => parameters.clone(),
            None => Parameters::shipped(objects.len()),
        };
        if let Thresholds::Learned { objects: count, .. } = &mut parameters.thresholds {
            *count = objects.len();
        }
        let mut watched = self.watched.write().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.state();
        state.reset(objects.len());
        let mut budget = Budget::new(parameters, now);
        // Configured thresholds are not learned.
        let _ = budget.relearn(now, &state.usual.all_thresholds(&objects));
        state.budget = Some(budget);
        *watched = objects;
    }

    /// Continues with these objects, from the start of a pause or with a new one. Their thresholds still
    /// hold, and thresholds only fall, unless the owner says that the server changed: during an overload
    /// without answers nothing can be learned. Without new objects the old ones stay.
    fn go_on_with(&self, objects: Vec<String>, now: Timestamp) {
        let mut watched = self.watched.write().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.state();
        let forgets = state.forgets;
        (state.chooses, state.forgets) = (false, false);
        // Each object has all its attempts again.
        state.failures.fill(0);
        let objects = if objects.is_empty() { watched.clone() } else { objects };
        if objects.is_empty() || (*watched == objects && !forgets) {
            return;
        }
        if forgets {
            // The last pause may have learned something since.
            state.usual.clear();
        }
        let known = state.usual.all_thresholds(&objects);
        if state.budget.as_mut().is_some_and(|budget| budget.relearn(now, &known)) {
            state.reset(objects.len());
            *watched = objects;
        }
    }

    /// Takes the time of a probe; returns the repeated probe, if one is due.
    fn take_sample(&self, now: Timestamp, probe: Probe, time: Option<Duration>) -> Option<Probe> {
        let outcome = self.handle_sample(now, probe, time)?;
        let mut state = self.state();
        state.is_blind = false;
        if let Outcome::Again(probe) = outcome {
            return Some(probe);
        }
        state.is_late = outcome == Outcome::Halved;
        if state.is_late {
            state.late = Some(now);
        }
        None
    }

    /// Passes the time of a probe to the budget; returns the outcome, if there is a budget. Learned
    /// thresholds are noted.
    fn handle_sample(
        &self,
        now: Timestamp,
        probe: Probe,
        time: Option<Duration>,
    ) -> Option<Outcome> {
        let watched = self.watched.read().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.state();
        let state = &mut *state;
        let budget = state.budget.as_mut()?;
        let outcome = budget.handle_sample(now, probe, time);
        if outcome == Outcome::Learned
            && let Some(path) = watched.get(probe.object.0 as usize)
            && let Some(threshold) = budget.threshold(probe.object)
        {
            state.usual.record(path, threshold);
        }
        Some(outcome)
    }

    /// An object failed: returns whether the owner is to be informed.
    fn failed(&self, now: Timestamp, object: ObjectId, path: &str) -> bool {
        let failing = self.state().failed(object, path);
        match failing {
            Failing::Bearable => false,
            Failing::Alone { is_new } => {
                // Given thresholds belong to the objects by their order.
                let given = self.settings.parameters.as_ref().map(|given| &given.thresholds);
                if !matches!(given, Some(Thresholds::Given(_))) {
                    self.state().chooses = true;
                }
                is_new
            }
            Failing::All { is_new } => {
                let mut state = self.state();
                let left_out = !std::mem::take(&mut state.given_up).is_empty();
                if self.settings.objects.is_empty() || left_out {
                    state.chooses = true;
                    if let Some(budget) = &mut state.budget {
                        budget.fall(now);
                    }
                }
                is_new
            }
        }
    }

    /// The initial objects: those of the owner, or the most popular ones, without dropped ones.
    async fn objects(&self, learner: &Learner) -> Vec<String> {
        let given_up = self.state().given_up.clone();
        if self.settings.objects.is_empty() {
            let popular = learner.popular(given_up).await;
            if popular.is_empty() {
                // Better these than none.
                self.state().given_up.clear();
            }
            return popular;
        }
        let named = self.settings.objects.iter();
        named.filter(|path| !given_up.contains(path)).cloned().collect()
    }
}

#[cfg(test)]
mod tests;
