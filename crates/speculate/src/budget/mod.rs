//! How many prefetches per second a server can serve, and which clients get them (SSR §5.2).
//!
//! The server is a black box that is probed with requests for representative objects. Answers in time let the
//! budget grow, late ones halve it. Clients ask for hints; as many get a list as the budget permits.
//!
//! This is pure: [`Budget::poll`] returns when a probe is due, and for what. [`Budget::handle_sample`] takes
//! the time of its answer, and [`Budget::ask`] answers a client. Time is an argument of each call, randomness
//! a number drawn by the caller.
//!
//! ```text
//!             thresholds known            above: probe again at once
//!  ┌────────┐ ──────────────▶ ┌──────────┐ ──────────────────────▶ ┌──────────┐
//!  │ Paused │                 │ Counting │                         │ Checking │
//!  └────────┘ ◀────────────── └──────────┘ ◀────────────────────── └──────────┘
//!   budget 0,  time to learn    │      ▲    below: it was an outlier, and counts as below
//!   learns     again            └──────┘    above: budget / 2, count from 0
//!                         below: count + 1;
//!                         at 5: budget + 1, count from 0
//! ```
//!
//! With given thresholds it starts in Counting and never pauses, as the paper's prototype. The default
//! parameters do not check at a budget of 0: it stays in Counting, from 0.

mod share;
mod thresholds;

use core::time::Duration;

use lull_cc::Timestamp;

pub use share::{Grant, Rationing, Wanted};
pub use thresholds::{Learning, ObjectId, Thresholds};

use share::Share;
use thresholds::LearnedThresholds;

/// How the budget grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// By one request per second (SSR §5.2.2).
    Additive,
    /// To twice as much until the first decrease, by one from then on, like slow start in TCP. This is not in
    /// the paper: with one more per half second, a server with room for 500 needs four minutes.
    DoublingFirst,
}

/// Whether an unused budget grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unused {
    /// The budget grows (SSR §5.2.2 only requires samples).
    Grows,
    /// Beyond two documents a second, it grows only if half of it was given out since the last time: unused
    /// capacity shows nothing about the server, as with unfilled windows of TCP (RFC 7661). An extension:
    /// otherwise a quiet site's budget is at its maximum when a crowd comes.
    Stays,
}

/// When a second sample follows a late one at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecondLook {
    /// Always: it may be an outlier (SSR §5.2.2).
    Always,
    /// While there is a budget that it may use. This is not in the paper: without a budget nothing could be
    /// halved, and each second sample would load a server that may have no spare capacity.
    WithBudget,
}

/// The parameters of a [`Budget`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// τ, the length of an epoch: one probe each.
    pub epoch: Duration,
    /// Samples below the threshold that let the budget grow.
    pub samples: u32,
    /// How it grows.
    pub growth: Growth,
    /// Whether it grows while it is unused.
    pub unused: Unused,
    /// When a second sample follows a late one.
    pub second_look: SecondLook,
    /// Requests per second that the budget never exceeds.
    pub most: u32,
    /// D, the files of a document: the length of a full list.
    pub document: u32,
    /// Which clients get a list.
    pub rationing: Rationing,
    /// Times from which on an answer is late.
    pub thresholds: Thresholds,
    /// Without an answer for this long a probe has failed, unless a threshold ends it earlier.
    pub patience: Duration,
}

impl Parameters {
    /// The prototype's (SSR §5.2.2): epochs of 100 ms, five samples, up by one and down by half; a document
    /// of ten files (the lists of §5.3.1). Thresholds are set by hand there. It names no largest budget and
    /// no patience; those here are far beyond what its server could do.
    pub fn paper(thresholds: impl IntoIterator<Item = Duration>) -> Self {
        Parameters {
            epoch: Duration::from_millis(100),
            samples: 5,
            growth: Growth::Additive,
            unused: Unused::Grows,
            second_look: SecondLook::Always,
            most: 10_000,
            document: 10,
            rationing: Rationing::Paper,
            thresholds: Thresholds::Given(thresholds.into_iter().collect()),
            patience: Duration::from_secs(10),
        }
    }

    /// Lull's default: the same, with thresholds learned for `objects` objects. The budget doubles at first
    /// and grows when it is used. There is no repeated sample without a budget, and there are lists while
    /// there is budget for one.
    pub fn shipped(objects: usize) -> Self {
        Parameters {
            growth: Growth::DoublingFirst,
            unused: Unused::Stays,
            second_look: SecondLook::WithBudget,
            rationing: Rationing::shipped(),
            thresholds: Thresholds::Learned { objects, learning: Learning::default() },
            ..Parameters::paper([])
        }
    }
}

/// A probe to be sent: a request for a representative object, timed from its first byte out to the last byte
/// in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The object to request.
    pub object: ObjectId,
    number: u64,
}

/// The outcome of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// In time; counted.
    Below,
    /// In time, and the budget grew.
    Grown,
    /// Late: the same has to be probed again, now.
    Again(Probe),
    /// Late again, or without a budget: that was halved, and the count restarts.
    Halved,
    /// Used for learning, or taken between learning and normal operation.
    Learned,
    /// Of a probe that was abandoned before.
    Stale,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing is prefetched, so that the times without prefetches are learned.
    Paused { since: Timestamp },
    /// This many samples were below the threshold.
    Counting(u32),
    /// The last sample was above; this many were below before.
    Checking(u32),
}

/// Time in which hints are wanted, as far as the calls show it: without requests there are no polls. A pause
/// is due after a share of it. Otherwise each first visitor of a quiet site would meet one.
#[derive(Clone, Copy, Debug)]
struct Busy {
    time: Duration,
    last: Timestamp,
}

impl Busy {
    /// The longest time between two calls that counts. A monitor that has to wait before it may probe a slow
    /// server again comes later than at the next epoch.
    const MAX_GAP: Duration = Duration::from_secs(60);

    fn since(now: Timestamp) -> Self {
        Busy { time: Duration::ZERO, last: now }
    }

    fn poll(&mut self, now: Timestamp) {
        self.time += now.saturating_since(self.last).min(Self::MAX_GAP);
        self.last = self.last.max(now);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sent {
    probe: Probe,
    at: Timestamp,
}

/// The monitor and the rationing of the hint server, for one server.
#[derive(Clone, Debug)]
pub struct Budget {
    parameters: Parameters,
    known: LearnedThresholds,
    state: State,
    /// B, in requests per second.
    budget: u32,
    doubling: bool,
    epoch_ends: Option<Timestamp>,
    sent: Option<Sent>,
    probes: u64,
    next_object: usize,
    busy: Busy,
    /// From the end of the last pause to the next one, in counted time.
    rest: Duration,
    share: Share,
}

impl Budget {
    /// A budget of 0 for an unknown server.
    ///
    /// # Panics
    /// If there is no object to probe, or a parameter is 0 that must not be.
    pub fn new(parameters: Parameters, now: Timestamp) -> Self {
        assert!(parameters.epoch > Duration::ZERO, "an epoch takes time");
        assert!(parameters.samples > 0, "a budget grows after a sample at least");
        assert!(parameters.document > 0, "a list has room for a file");
        let known = LearnedThresholds::new(&parameters.thresholds);
        let share = Share::new(parameters.epoch, parameters.document, parameters.rationing, now);
        let state = match parameters.thresholds {
            Thresholds::Given(_) => State::Counting(0),
            Thresholds::Learned { .. } => State::Paused { since: now },
        };
        Budget {
            doubling: parameters.growth == Growth::DoublingFirst,
            parameters,
            known,
            state,
            budget: 0,
            epoch_ends: None,
            sent: None,
            probes: 0,
            next_object: 0,
            busy: Busy::since(now),
            rest: Duration::ZERO,
            share,
        }
    }

    /// B in force, in requests per second; 0 while prefetching is paused.
    pub fn budget(&self) -> u32 {
        match self.state {
            State::Paused { .. } => 0,
            State::Counting(_) | State::Checking(_) => self.budget,
        }
    }

    /// The time from which on an answer for this object is late; none while it is unknown.
    pub fn threshold(&self, object: ObjectId) -> Option<Duration> {
        self.known.threshold(object)
    }

    /// Whether prefetching is paused to learn thresholds.
    pub fn is_paused(&self) -> bool {
        matches!(self.state, State::Paused { .. })
    }

    /// During a pause, the samples of the object with the fewest, and how many it needs.
    pub fn progress(&self) -> Option<(usize, usize)> {
        self.is_paused().then(|| self.known.progress())
    }

    /// Learns again, for these objects: each has its known threshold, which continues and only falls, or
    /// none. For a caller that knows that the server or its objects changed, or that has saved thresholds; no
    /// sample ever does that. B is kept, as over any pause. False, without a change, with given thresholds.
    ///
    /// # Panics
    /// If there is no object to probe.
    pub fn relearn(&mut self, now: Timestamp, known: &[Option<Duration>]) -> bool {
        let learns = self.known.replace(known);
        if learns {
            self.next_object = 0;
            self.pause(now);
        }
        learns
    }

    /// The server has rejected a prefetch for lack of capacity: B is halved, and the count of samples below
    /// restarts. The caller decides how often that is trusted.
    pub fn back_off(&mut self, now: Timestamp) {
        if let State::Counting(below) | State::Checking(below) = &mut self.state {
            *below = 0;
        }
        self.doubling = false;
        self.change(now, self.budget / 2);
    }

    /// The server answers nothing at all: B is 0, and grows by one from there. This differs from the paper:
    /// after a halving, pages would still be prefetched from a server that is down, or returns under load.
    pub fn fall(&mut self, now: Timestamp) {
        self.back_off(now);
        self.change(now, 0);
    }

    /// When to poll next, if no sample comes earlier.
    pub fn next_poll(&self) -> Timestamp {
        let epoch = self.epoch_ends.unwrap_or(Timestamp::ZERO);
        match self.sent {
            Some(sent) => self.overdue(&sent),
            None => epoch,
        }
    }

    /// The time is `now`. Returns a probe to be sent now: the one of a new epoch, or the second one for an
    /// answer that is overdue.
    ///
    /// One probe is in progress at a time, so a server that answers none gets no more of them than its
    /// patience permits (SSR §5.2.1.1: probing adds load).
    pub fn poll(&mut self, now: Timestamp) -> Option<Probe> {
        self.poll_for(now, ObjectId(self.next_object as u32))
    }

    /// The same, with this object in a new epoch, out of turn. For a caller that has a sample of it, and may
    /// not request the object in turn. The following object is next. Nothing, if there is no such object.
    pub fn poll_for(&mut self, now: Timestamp, object: ObjectId) -> Option<Probe> {
        self.busy.poll(now);
        if let Some(sent) = self.sent {
            if now < self.overdue(&sent) {
                return None;
            }
            // It is late already, whatever its final time.
            self.sent = None;
            if let Outcome::Again(probe) = self.judge(now, sent.probe.object, None) {
                return Some(probe);
            }
        }
        self.pause_in_time(now);
        let place = object.0 as usize;
        if self.epoch_ends.is_some_and(|ends| now < ends) || place >= self.known.objects() {
            return None;
        }
        self.epoch_ends = Some(now + self.parameters.epoch);
        self.next_object = (place + 1) % self.known.objects();
        Some(self.send(now, object))
    }

    /// An answer to a probe came after `time`, or none will come.
    pub fn handle_sample(
        &mut self,
        now: Timestamp,
        probe: Probe,
        time: Option<Duration>,
    ) -> Outcome {
        match self.sent {
            Some(sent) if sent.probe == probe => {
                self.sent = None;
                self.judge(now, probe.object, time)
            }
            _ => Outcome::Stale,
        }
    }

    /// A client asks for hints, and pays for those that it gets. `draw` is uniform in its 64 bits and drawn
    /// for this call alone.
    pub fn ask(&mut self, now: Timestamp, wanted: Wanted, draw: u64) -> Grant {
        self.share.ask(now, self.budget(), wanted, draw)
    }

    fn judge(&mut self, now: Timestamp, object: ObjectId, time: Option<Duration>) -> Outcome {
        let below = match (time, self.known.threshold(object)) {
            (Some(time), Some(threshold)) => time < threshold,
            _ => false,
        };
        match self.state {
            State::Paused { since } => {
                if let Some(time) = time {
                    self.known.learn(now.saturating_since(since), object, time);
                }
                if self.known.learned_all() {
                    // The pause earned nothing.
                    self.share.accrue(now, 0);
                    self.state = State::Counting(0);
                    self.rest = self.known.rest_after(self.busy.time);
                    self.busy = Busy::since(now);
                }
                Outcome::Learned
            }
            State::Counting(count) | State::Checking(count) if below => {
                let count = count + 1;
                if count < self.parameters.samples {
                    self.state = State::Counting(count);
                    return Outcome::Below;
                }
                self.state = State::Counting(0);
                self.grow(now);
                Outcome::Grown
            }
            State::Counting(_)
                if self.budget == 0 && self.parameters.second_look == SecondLook::WithBudget =>
            {
                // It may be an outlier, so the budget doubles as before when the server answers in time.
                self.state = State::Counting(0);
                Outcome::Halved
            }
            // SSR §5.2.2: one sample above may be an outlier, so the same object is probed again immediately.
            State::Counting(count) => {
                self.state = State::Checking(count);
                Outcome::Again(self.send(now, object))
            }
            // SSR §5.2.2: a second one shows that the server is loaded.
            State::Checking(_) => {
                self.state = State::Counting(0);
                self.back_off(now);
                Outcome::Halved
            }
        }
    }

    fn grow(&mut self, now: Timestamp) {
        self.share.accrue(now, self.budget());
        let is_used = self.share.is_used();
        let is_small = self.budget < 2 * self.parameters.document;
        if self.parameters.unused == Unused::Stays && !is_used && !is_small {
            return;
        }
        let more = if self.doubling { self.budget.max(1) } else { 1 };
        self.change(now, self.budget.saturating_add(more).min(self.parameters.most));
    }

    /// The earnings at the previous budget are settled first.
    fn change(&mut self, now: Timestamp, budget: u32) {
        self.share.accrue(now, self.budget());
        self.budget = budget;
    }

    fn send(&mut self, now: Timestamp, object: ObjectId) -> Probe {
        self.probes += 1;
        let probe = Probe { object, number: self.probes };
        self.sent = Some(Sent { probe, at: now });
        probe
    }

    /// When the answer to a probe is late.
    fn overdue(&self, sent: &Sent) -> Timestamp {
        // While it learns, late answers are samples as well.
        let threshold = self.known.threshold(sent.probe.object).filter(|_| !self.is_paused());
        sent.at + threshold.unwrap_or(self.parameters.patience).min(self.parameters.patience)
    }

    fn pause_in_time(&mut self, now: Timestamp) {
        let counting = matches!(self.state, State::Counting(_));
        if counting && self.known.is_learning() && self.busy.time >= self.rest {
            self.pause(now);
        }
    }

    fn pause(&mut self, now: Timestamp) {
        self.share.accrue(now, self.budget());
        self.known.clear_samples();
        self.sent = None;
        self.busy = Busy::since(now);
        self.state = State::Paused { since: now };
    }
}

#[cfg(test)]
mod tests;
