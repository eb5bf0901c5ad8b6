//! The monitor (SSR §5.2.1.1): whether the site's server has something to spare, by how long its
//! answers take.
//!
//! Answers to visitors say that for nothing, where they are for one of the objects that stand for
//! the site. Else the monitor asks for these itself, as long as hints are wanted, and for a
//! hundredth of the time at most.

mod asking;
mod dry;
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
use dry::Dry;
use usual::Usual;

pub(super) use asking::{Surroundings, run};
pub use usual::KEPT_TIMES;

/// Hints are wanted for so long after somebody asked for some.
const WANTED_FOR: Duration = Duration::from_secs(60);
/// Whoever gets a list fetches it within so long, mostly, and who gets none asks again. Until somebody asks
/// once more, nobody needs to know each epoch how the server is.
const ASKED_LATELY: Duration = Duration::from_secs(2);
/// Without a sign that hints are wanted, and without an object to ask for, it is looked again.
const LOOK: Duration = Duration::from_secs(1);
/// An answer to a visitor says how the server is for so long.
const FRESH: Duration = Duration::from_secs(1);
/// A server whose answers were late within so long, and for which there is no budget, is loaded.
const LOADED_FOR: Duration = Duration::from_secs(5);
/// An object whose answer is none so often in a row is no longer asked for.
const MOST_FAILURES: u32 = 5;
/// Objects that were given up are passed over, so many of them.
const MOST_GIVEN_UP: usize = 64;

/// Why there is no budget, and what can be done.
const LATE: &str = "the server's answers are later than they used to be, or prefetches are refused \
    (429, 503). Under load that is as it should be. If it became slower for good, SIGUSR2 has its \
    times learned anew; --probe names other objects to go by";
const UNKNOWN: &str = "how long the server's answers usually take is still not known: name public \
    objects that come fast by --probe";

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
    /// When one of them said anything last.
    heard: Option<Timestamp>,
    /// When an answer was late last, so that the budget was halved.
    late: Option<Timestamp>,
    /// The object that the budget asks for next: they take turns.
    turn: usize,
    asked: Option<Timestamp>,
    /// How often in a row the answer for each object was none.
    failures: Vec<u32>,
    /// Paths whose answers are none while those of others are some. The owner knows.
    given_up: Vec<String>,
    /// Whether the owner knows that all answers are none.
    is_told: bool,
    /// Whether the last that is known of the server is that it is loaded.
    is_late: bool,
    /// Whether nothing more can be known for now, and that was the last.
    is_blind: bool,
    /// Whether objects are to be chosen anew: a pause has begun, some are none, or the owner wants it.
    chooses: bool,
    /// Whether all is learned anew with that, because the owner says that the server changed.
    forgets: bool,
    /// The thresholds that were learned, whether or not their objects still stand for the site.
    usual: Usual,
    /// When the budget was halved last for a prefetch that was refused.
    refused: Option<Timestamp>,
    /// Whether anybody has got a list so far.
    has_granted: bool,
    dry: Dry,
}

impl State {
    /// Begins with so many objects; what was learned stays.
    fn begin(&mut self, objects: usize) {
        self.seen = vec![None; objects];
        (self.turn, self.failures) = (0, vec![0; objects]);
        (self.is_late, self.is_blind) = (false, false);
        (self.chooses, self.forgets) = (false, false);
    }

    /// Has objects be chosen anew, those that were given up, too.
    fn choose(&mut self) {
        self.given_up.clear();
        (self.is_told, self.chooses) = (false, true);
    }

    /// The probe that is due now. Without leave to ask it is for the next object of which a visitor's request
    /// says something, so that no slow one keeps others from being heard; none, if there is no such object.
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

    /// The next object, from the one whose turn it is, of which a visitor's request says something that can be
    /// used now.
    fn next_seen(&self, now: Timestamp) -> Option<ObjectId> {
        let is_fresh = |place: &usize| {
            self.seen[*place].is_some_and(|(at, _)| now.saturating_since(at) < FRESH)
        };
        let objects = self.seen.len();
        let place = (self.turn..objects).chain(0..self.turn.min(objects)).find(is_fresh)?;
        Some(ObjectId(place as u32))
    }

    /// Whether the server is known to be loaded, so that nothing of it is spare.
    fn is_loaded(&self, now: Timestamp) -> bool {
        let budget = self.budget.as_ref();
        let is_spent = budget.is_some_and(|budget| budget.budget() == 0 && !budget.is_paused());
        is_spent && self.late.is_some_and(|late| now.saturating_since(late) < LOADED_FOR)
    }

    /// Whether visitors say how a loaded server is, so that it need not be asked on top.
    fn is_told_by_visitors(&self, now: Timestamp) -> bool {
        let is_heard = self.heard.is_some_and(|heard| now.saturating_since(heard) < FRESH);
        is_heard && self.is_loaded(now)
    }

    /// Whether a sample is needed in each epoch: somebody has asked for a list lately, or it learns.
    fn is_busy(&self, now: Timestamp) -> bool {
        let learns = self.budget.as_ref().is_some_and(Budget::is_paused);
        learns || self.was_asked_within(ASKED_LATELY, now)
    }

    /// Whether somebody has asked for a list so long ago at most.
    fn was_asked_within(&self, time: Duration, now: Timestamp) -> bool {
        self.asked.is_some_and(|asked| now.saturating_since(asked) < time)
    }

    /// Why there is no budget, if the owner is to hear of that now.
    fn look(&mut self, now: Timestamp, is_wanted: bool) -> Option<&'static str> {
        let budget = self.budget.as_ref();
        let has_some = budget.is_some_and(|budget| budget.budget() > 0);
        let is_known = budget.is_some_and(|budget| !budget.is_paused());
        let is_due = self.dry.look(now, is_wanted, has_some);
        is_due.then_some(if is_known { LATE } else { UNKNOWN })
    }

    /// The answer for an object was of use, so the owner hears when it is none again.
    fn answered(&mut self, object: ObjectId, path: &str) {
        if let Some(failures) = self.failures.get_mut(object.0 as usize) {
            *failures = 0;
        }
        self.given_up.retain(|other| other != path);
        self.is_told = false;
    }

    /// The answer for an object was none: what follows from that.
    fn failed(&mut self, object: ObjectId, path: &str) -> Failing {
        let place = object.0 as usize;
        let Some(failures) = self.failures.get_mut(place) else { return Failing::Bearable };
        *failures = failures.saturating_add(1);
        if *failures < MOST_FAILURES {
            return Failing::Bearable;
        }
        let mut others = self.failures.iter().enumerate().filter(|(other, _)| *other != place);
        if !others.any(|(_, failures)| *failures == 0) {
            return Failing::All { is_new: !std::mem::replace(&mut self.is_told, true) };
        }
        let is_new = !self.given_up.iter().any(|other| other == path);
        if is_new {
            if self.given_up.len() >= MOST_GIVEN_UP {
                self.given_up.remove(0);
            }
            self.given_up.push(path.to_owned());
        }
        Failing::Alone { is_new }
    }

    /// What a visitor's request for `object` took a moment ago; each counts once.
    fn take_seen(&mut self, object: ObjectId, now: Timestamp) -> Option<Duration> {
        let (at, time) = self.seen.get_mut(object.0 as usize)?.take()?;
        (now.saturating_since(at) < FRESH).then_some(time)
    }
}

/// What it means that an object's answer was none; new is what the owner does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failing {
    /// Nothing yet.
    Bearable,
    /// The object is to blame: others are answered.
    Alone { is_new: bool },
    /// The server is, or all of them are.
    All { is_new: bool },
}

/// The monitor, as it is now.
#[derive(Clone, Debug)]
pub(super) struct Figures {
    /// B, in requests a second.
    pub(super) budget: u32,
    pub(super) paused: bool,
    /// While it is paused, how many samples it has of the object with the fewest, and how many it needs.
    pub(super) progress: Option<(usize, usize)>,
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

    /// As many files as a list has at most.
    pub(super) fn document(&self) -> u32 {
        let given = self.settings.parameters.as_ref().map(|given| given.document);
        given.unwrap_or_else(|| Parameters::shipped(1).document)
    }

    /// A client asks for a list.
    pub(super) fn ask(&self, now: Timestamp, wanted: Wanted) -> Grant {
        let mut state = self.state();
        if state.asked.is_none_or(|asked| now.saturating_since(asked) >= LOOK) {
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
            // As if there were none (SSR §5.2.2 leaves it open).
            _ => {
                let given = self.settings.parameters.as_ref().map(|given| given.rationing);
                let rationing = given.unwrap_or(Rationing::shipped());
                Grant::Empty { again: rationing.again(LOOK, draw as u32) }
            }
        }
    }

    /// The server began to answer a request for `path` after `time`, of somebody whom nobody knows: what
    /// it makes for others takes another time.
    pub(super) fn answered(&self, path: &str, now: Timestamp, time: Duration) {
        // Kept until it is noted: the objects may just be others.
        let watched = self.watched.read().unwrap_or_else(PoisonError::into_inner);
        let Some(place) = watched.iter().position(|object| object == path) else { return };
        let mut state = self.state();
        if let Some(seen) = state.seen.get_mut(place) {
            *seen = Some((now, time));
            state.heard = Some(now);
        }
    }

    /// The server has refused a prefetch, because it is too much.
    pub(super) fn refused(&self, now: Timestamp) {
        let mut state = self.state();
        // What was under way then is refused like it, and says nothing more.
        if state.refused.is_none_or(|refused| now.saturating_since(refused) >= LOOK) {
            state.refused = Some(now);
            if let Some(budget) = &mut state.budget {
                budget.back_off(now);
            }
        }
    }

    /// The owner has something new to be read: objects are chosen anew. What was learned of them says
    /// nobody that it does not hold any more; logs are rotated each night, overload or not.
    pub(super) fn choose(&self) {
        self.state().choose();
    }

    /// The owner says that the server changed: what is usual of it is learned anew, with objects that are
    /// chosen anew.
    pub(super) fn relearn(&self) {
        let mut state = self.state();
        state.choose();
        state.usual.clear();
        state.forgets = true;
    }

    /// What was learned of the server's times, to be given to [`Monitor::take_times`] of another process.
    pub(super) fn keep_times(&self) -> Vec<u8> {
        self.state().usual.keep()
    }

    /// Goes on with what was learned of them before; nothing changes, if it is none.
    pub(super) fn take_times(&self, kept: &[u8]) {
        let _ = self.state().usual.take(kept);
    }

    /// A number that another one follows when something else is to be kept.
    pub(super) fn time_changes(&self) -> u64 {
        self.state().usual.changes()
    }

    /// Whether it learns from when on the server's answers are late: nobody is to fetch ahead meanwhile.
    pub(super) fn is_paused(&self) -> bool {
        self.state().budget.as_ref().is_some_and(Budget::is_paused)
    }

    /// Whether nothing is fetched ahead while it learns. A scheduler sees demand by itself, so there the monitor is a second
    /// signal only.
    pub(super) fn bars_prefetches(&self) -> bool {
        !self.is_second_signal() && self.is_paused()
    }

    /// Whether the proxy schedules prefetches by what it sees of demand, and probes only add to that.
    pub(super) fn is_second_signal(&self) -> bool {
        self.settings.parameters.is_none()
    }

    /// Whether there are probes at all. As a second signal there are, where the owner names what to ask for: for a server
    /// that others use as well.
    pub(super) fn is_wanted(&self) -> bool {
        !self.is_second_signal() || !self.settings.objects.is_empty()
    }

    /// A client asks for a list, which the scheduler would give: none while probes say that the server is loaded.
    pub(super) fn vetoes(&self, now: Timestamp) -> bool {
        let mut state = self.state();
        if self.is_wanted() {
            if state.asked.is_none_or(|asked| now.saturating_since(asked) >= LOOK) {
                self.wanted.notify_one();
            }
            state.asked = Some(now);
        }
        state.is_loaded(now)
    }

    /// Whether the server has shown to be loaded last, and there is no budget left: what was hinted before
    /// is not to be fetched now.
    pub(super) fn is_spent(&self) -> bool {
        let state = self.state();
        state.is_late && state.budget.as_ref().is_some_and(|budget| budget.budget() == 0)
    }

    /// How long a page that leaves now is to wait before it asks for a list, as it would get an empty one: else
    /// a machine with nothing to spare would have to answer a question for each page.
    pub(super) fn wait(&self, now: Timestamp) -> Option<Duration> {
        let waits = !self.is_as_in_the_paper() && self.state().is_loaded(now);
        waits.then(|| Rationing::shipped().again(LOOK, self.draws.next() as u32))
    }

    /// Whether it keeps the paper's budget, where each epoch has a probe and each page asks (SSR §5.2.2).
    fn is_as_in_the_paper(&self) -> bool {
        let given = self.settings.parameters.as_ref();
        given.is_some_and(|given| given.rationing == Rationing::Paper)
    }

    /// Whether anything may be fetched ahead now.
    fn has_budget(&self) -> bool {
        self.state().budget.as_ref().is_some_and(|budget| budget.budget() > 0)
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
            progress: budget.and_then(Budget::progress),
            objects: objects.collect(),
        }
    }

    /// Begins with these objects, and what was learned of them before.
    fn begin(&self, objects: Vec<String>, now: Timestamp) {
        let mut parameters = match &self.settings.parameters {
            Some(parameters) => parameters.clone(),
            None => Parameters::shipped(objects.len()),
        };
        if let Thresholds::Learned { objects: count, .. } = &mut parameters.thresholds {
            *count = objects.len();
        }
        let mut watched = self.watched.write().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.state();
        state.begin(objects.len());
        let mut budget = Budget::new(parameters, now);
        // Where thresholds are given, nothing was learned.
        let _ = budget.relearn(now, &state.usual.of_all(&objects));
        state.budget = Some(budget);
        *watched = objects;
    }

    /// Goes on with these objects, from a pause that has just begun or with one. What was learned of them
    /// before still holds, and thresholds only fall, unless the owner says that the server changed: an
    /// overload that takes all answers away is none that anything is to be learned from. Without any the
    /// objects stay.
    fn go_on_with(&self, objects: Vec<String>, now: Timestamp) {
        let mut watched = self.watched.write().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.state();
        let forgets = state.forgets;
        (state.chooses, state.forgets) = (false, false);
        // Each has so many failures again before it is given up.
        state.failures.fill(0);
        let objects = if objects.is_empty() { watched.clone() } else { objects };
        if objects.is_empty() || (*watched == objects && !forgets) {
            return;
        }
        if forgets {
            // The pause before may have learned something since.
            state.usual.clear();
        }
        let known = state.usual.of_all(&objects);
        if state.budget.as_mut().is_some_and(|budget| budget.relearn(now, &known)) {
            state.begin(objects.len());
            *watched = objects;
        }
    }

    /// Takes what a probe took, and what that says of the server; gives the second look, if it is due.
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

    /// Tells the budget how long a probe took; what came of it, if there is a budget. What it has learned is
    /// noted.
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
            state.usual.note(path, threshold);
        }
        Some(outcome)
    }

    /// The answer for an object was none: whether the owner is to be told.
    fn failed(&self, now: Timestamp, object: ObjectId, path: &str) -> bool {
        let failing = self.state().failed(object, path);
        match failing {
            Failing::Bearable => false,
            Failing::Alone { is_new } => {
                // Thresholds that were given stand for the objects by their order.
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

    /// What to begin with: what the owner has named, or visitors want most, but for what was given up.
    async fn objects(&self, learner: &Learner) -> Vec<String> {
        let given_up = self.state().given_up.clone();
        if self.settings.objects.is_empty() {
            let popular = learner.popular(given_up).await;
            if popular.is_empty() {
                // Better those than none.
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
