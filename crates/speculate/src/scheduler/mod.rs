//! The priority scheduler of an upstream server: demand first, then prefetches by priority (SSR §3.1.2).
//!
//! A proxy sees every request to its upstream, so it need not estimate the spare capacity from outside.
//! Demand is sent at once. Prefetches wait here, and start while the upstream serves fewer requests than it
//! can without delaying demand. That limit is learned ([`LimitFigures`]). A prefetch in service is aborted
//! when demand arrives and there are more requests than the limit.
//!
//! Nothing here sends or waits. `handle_*` reports events, [`Scheduler::poll`] returns actions, and
//! [`Scheduler::next_poll`] the time of the next call. Time comes in with each call.
//!
//! ```text
//!  demand ─────────────────────────────────────────▶ upstream ──▶ its response times ──▶ limit
//!  prefetch ──▶ queue by priority ──▶ room? ── start ──▶ │  │
//!                 │                                      │  └──▶ aborted: demand has come
//!                 └──▶ refused: waited too long, or no place in the queue
//! ```

mod curve;
mod harm;
mod in_service;
mod limit;
mod moments;
mod prefetch;
mod queue;

use std::collections::VecDeque;

use core::time::Duration;

use lull_cc::Timestamp;

use harm::{Met, Sample};
use in_service::InService;
use limit::Limit;
use queue::Queue;

pub use harm::Estimate;
pub use in_service::BODY;
pub use limit::LimitFigures;
pub use prefetch::{Id, Prefetch};

/// The parameters of a [`Scheduler`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Prefetches that wait.
    pub waiting: usize,
    /// Waiting prefetches of one client, at most: a client that marks all its requests cannot fill the queue.
    pub per_client: usize,
    /// A prefetch that has waited this long is refused.
    pub patience: Duration,
    /// After this time a waiting priority counts half (SSR §3.1.3: an old valuable prefetch does not block a
    /// present one).
    pub half_life: Duration,
    /// Prefetches in service at a time, with any limit.
    pub most_in_service: usize,
    /// A prefetch in service for this long, and for many times longer than others, hangs.
    pub hung: Duration,
    /// Hints in a full list.
    pub document: u32,
    /// Whether prefetches have servers of their own, at a lower priority of the operating system, such as "nice
    /// 19". Then they need not wait for demand, and are not aborted. The limit counts only prefetches.
    pub is_isolated: bool,
}

impl Default for Parameters {
    /// The defaults of `lull web`.
    fn default() -> Self {
        Parameters {
            waiting: 512,
            per_client: 16,
            patience: Duration::from_secs(10),
            half_life: Duration::from_secs(5),
            most_in_service: 8,
            hung: Duration::from_secs(2),
            document: 10,
            is_isolated: false,
        }
    }
}

impl Parameters {
    /// The same for prefetches with servers of their own. On a busy machine these may stand still for seconds.
    #[must_use]
    pub fn isolated(self) -> Self {
        Parameters { is_isolated: true, hung: ISOLATED_HUNG, ..self }
    }
}

/// An action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send this prefetch to the upstream. Its end is reported by [`Scheduler::handle_prefetch_end`].
    Start(Id),
    /// End this prefetch, which is in service: close its connection, or reset its stream. Then it is
    /// finished.
    Abort(Id, Aborted),
    /// Answer this waiting prefetch with "not now". Then it is finished.
    Refuse(Id, Refused),
}

/// Why a prefetch is aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aborted {
    /// Demand has come.
    Demand,
    /// It takes too long.
    Hung,
}

/// Why a prefetch is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There was no room at the upstream for too long.
    Waited,
    /// The queue, or the client's share of it, is full of higher priorities.
    Full,
}

/// How a request has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The upstream has answered.
    Served,
    /// The client has left, so its time does not count.
    Cancelled,
    /// The upstream has failed, or has reported overload (429, 503).
    Failed,
}

/// How many hints a client may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// This many, at least one.
    Hints(u32),
    /// None; ask again after this time.
    Later(Duration),
}

/// The scheduler in the form for the owner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// The limit, and its evidence.
    pub limit: LimitFigures,
    /// Requests of demand in service.
    pub demand: usize,
    /// Prefetches in service.
    pub prefetches: usize,
    /// Prefetches that wait.
    pub waiting: usize,
    /// Served prefetches per second, recently.
    pub drain_rate: f64,
    /// Whether prefetches back off because they failed.
    pub is_backing_off: bool,
    /// Whether another program uses the upstream.
    pub has_neighbour: bool,
}

/// The state of a demand request.
#[derive(Clone, Copy, Debug)]
struct Demand {
    class: u8,
    others: usize,
    all_others: Option<usize>,
    /// Whether it is in a block with prefetches; none if it gives no sample.
    with_prefetches: Option<bool>,
    met: Met,
}

/// After a failed prefetch none starts for this long; for twice that after the next failure.
const BACKOFF: Duration = Duration::from_millis(500);
const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// A prefetch that takes this many times as long as usual hangs.
const HUNG_TIMES: u32 = 16;
/// [`Parameters::hung`] for prefetches with servers of their own.
const ISOLATED_HUNG: Duration = Duration::from_secs(8);
/// Where aborts are futile, one of this many arrivals of demand has prefetches aborted all the same.
const ABORT_TRIAL: u32 = 16;
/// The weight of one prefetch in the usual service time.
const RECENT: f64 = 1.0 / 16.0;
/// The rate at which the queue drains is measured over this time.
const DRAIN: Duration = Duration::from_secs(10);

/// The scheduler of one upstream.
#[derive(Clone, Debug)]
pub struct Scheduler {
    parameters: Parameters,
    limit: Limit,
    queue: Queue,
    demand: InService<Demand>,
    prefetches: InService<()>,
    actions: VecDeque<Action>,
    /// The usual service time of a prefetch.
    usual: Option<Duration>,
    /// No prefetch starts earlier: the limit is below one.
    paced_until: Timestamp,
    /// No prefetch starts earlier: some have failed.
    rests_until: Timestamp,
    failures: u32,
    /// Served prefetches, with decay, and when that was counted.
    served: f64,
    served_at: Timestamp,
    /// Granted hints for which no prefetch has come.
    promised: f64,
    /// Counts arrivals of demand for [`ABORT_TRIAL`].
    arrivals: u32,
}

impl Scheduler {
    /// A scheduler of an unknown upstream.
    ///
    /// # Panics
    /// If the half-life is zero.
    pub fn new(parameters: Parameters) -> Self {
        Scheduler {
            parameters,
            limit: Limit::new(parameters.most_in_service, parameters.is_isolated),
            queue: Queue::new(parameters.waiting, parameters.per_client, parameters.half_life),
            demand: InService::new(),
            prefetches: InService::new(),
            actions: VecDeque::new(),
            usual: None,
            paced_until: Timestamp::ZERO,
            rests_until: Timestamp::ZERO,
            failures: 0,
            served: 0.0,
            served_at: Timestamp::ZERO,
            promised: 0.0,
            arrivals: 0,
        }
    }

    /// This many schedulers send prefetches to the same server. Each of them may slow demand down by its part
    /// of what one alone may.
    pub fn set_sharers(&mut self, sharers: usize) {
        self.limit.set_sharers(sharers);
    }

    /// A request of demand goes to the upstream. Requests of one `class`, such as a hash of the URL, have
    /// similar times.
    pub fn handle_demand(&mut self, now: Timestamp, id: Id, class: u8) {
        self.expire(now);
        let with_prefetches = self.limit.demand(now, self.prefetches.len());
        let others = self.demand.len();
        let beside = self.prefetches.len();
        let spares = self.abort_for_demand(now);
        let is_known = !spares && !self.parameters.is_isolated;
        let all_others = is_known.then_some(others + self.prefetches.len());
        let met = match (beside, self.prefetches.len()) {
            (0, _) => Met::None,
            (_, 0) => Met::Aborted,
            _ => Met::Spared,
        };
        self.demand.add(now, id, Demand { class, others, all_others, with_prefetches, met });
    }

    /// The head of the response to a request has arrived, of demand or of a prefetch.
    pub fn handle_head(&mut self, now: Timestamp, id: Id) {
        self.demand.head(now, id);
        self.prefetches.head(now, id);
    }

    /// A request of demand has ended.
    pub fn handle_demand_end(&mut self, now: Timestamp, id: Id, end: End) {
        self.expire(now);
        let Some(ended) = self.demand.end(id) else { return };
        let Demand { class, others, all_others, with_prefetches, met } = ended.what;
        if let (End::Served, Some(with_prefetches)) = (end, with_prefetches) {
            let time = now.saturating_since(ended.began);
            self.limit
                .record(now, Sample { class, others, all_others, with_prefetches, met, time });
        }
    }

    /// A prefetch has arrived, and waits. Exactly one of these follows: [`Action::Refuse`], or
    /// [`Action::Start`] and then an [`Action::Abort`] or the caller's
    /// [`handle_prefetch_end`](Self::handle_prefetch_end), or the caller's
    /// [`handle_cancel`](Self::handle_cancel) at any time.
    ///
    /// `waited` is its earlier wait, if it was aborted and comes again.
    pub fn handle_prefetch(&mut self, now: Timestamp, prefetch: Prefetch, waited: Duration) {
        self.expire(now);
        self.promised = (self.promised - 1.0).max(0.0);
        let expires = now + self.parameters.patience.saturating_sub(waited);
        if let Some(id) = self.queue.push(now, prefetch, expires) {
            self.actions.push_back(Action::Refuse(id, Refused::Full));
        }
    }

    /// The client of a prefetch has left, or it is demand from now on.
    pub fn handle_cancel(&mut self, now: Timestamp, id: Id) {
        if self.queue.remove(id).is_some() {
            return;
        }
        let answers = |action: &Action| matches!(action, Action::Refuse(one, _) | Action::Abort(one, _) | Action::Start(one) if *one == id);
        self.actions.retain(|action| !answers(action));
        self.leave(now, id);
    }

    /// A prefetch has ended.
    pub fn handle_prefetch_end(&mut self, now: Timestamp, id: Id, end: End) {
        let time = self.leave(now, id);
        match end {
            End::Served => {
                self.failures = 0;
                self.count_served(now, 1.0);
                if let Some(time) = time {
                    let usual = self.usual.unwrap_or(time);
                    self.usual = Some(usual.mul_f64(1.0 - RECENT) + time.mul_f64(RECENT));
                }
            }
            End::Failed => self.back_off(now),
            End::Cancelled => {}
        }
    }

    /// The next action. Call it until it returns none, after each other call and at
    /// [`next_poll`](Self::next_poll).
    pub fn poll(&mut self, now: Timestamp) -> Option<Action> {
        self.expire(now);
        if let Some(action) = self.actions.pop_front() {
            return Some(action);
        }
        if let Some(id) = self.queue.expired(now) {
            return Some(Action::Refuse(id, Refused::Waited));
        }
        self.abort_hung(now);
        if let Some(action) = self.actions.pop_front() {
            return Some(action);
        }
        if self.queue.len() == 0 || !self.has_room(now) {
            return None;
        }
        let (prefetch, _) = self.queue.pop()?;
        self.limit.started();
        self.prefetches.add(now, prefetch.id, ());
        Some(Action::Start(prefetch.id))
    }

    /// When to poll, if nothing happens earlier.
    pub fn next_poll(&self, now: Timestamp) -> Option<Timestamp> {
        let waits = self.queue.len() > 0;
        let start = self.paced_until.max(self.rests_until).max(self.limit.opens());
        // After the head the request no longer waits for the upstream.
        let start = (waits && start > now).then_some(start);
        let oldest = self.prefetches.iter().map(|(_, one)| one.began).min();
        let hangs = oldest.map(|began| began + self.hung_after());
        let ends = self.demand.next_expiry().filter(|_| waits);
        [self.queue.next_expiry(), start, hangs, ends, self.prefetches.next_expiry()]
            .into_iter()
            .flatten()
            .min()
    }

    /// How many hints a client may have now, up to `hints`: as many as the queue drains before they have
    /// waited too long.
    pub fn room(&mut self, now: Timestamp, hints: u32) -> Room {
        self.count_served(now, 0.0);
        let rest = self.rests_until.saturating_since(now);
        if !rest.is_zero() {
            return Room::Later(rest.max(Duration::from_secs(1)));
        }
        let document = self.parameters.document.min(hints);
        let ahead = self.queue.len() as f64 + self.promised;
        if ahead < f64::from(self.parameters.document) {
            return self.promise(document);
        }
        let wait = ahead / self.drain_rate().max(0.1);
        let half = self.parameters.patience.as_secs_f64() / 2.0;
        let length = f64::from(self.parameters.document) * (1.0 - wait / half);
        if length < 1.0 {
            return Room::Later(Duration::from_secs_f64(wait.clamp(1.0, 30.0)));
        }
        self.promise((length as u32).min(hints))
    }

    fn promise(&mut self, hints: u32) -> Room {
        self.promised += f64::from(hints);
        Room::Hints(hints)
    }

    /// Whether this prefetch is in service.
    pub fn is_in_service(&self, id: Id) -> bool {
        self.prefetches.contains(id)
    }

    /// Whether this prefetch waits.
    pub fn is_waiting(&self, id: Id) -> bool {
        self.queue.contains(id)
    }

    /// The current values.
    pub fn figures(&mut self, now: Timestamp) -> Figures {
        self.expire(now);
        self.count_served(now, 0.0);
        Figures {
            limit: self.limit.figures(),
            demand: self.demand.len(),
            prefetches: self.prefetches.len(),
            waiting: self.queue.len(),
            drain_rate: self.drain_rate(),
            is_backing_off: self.rests_until > now,
            has_neighbour: self.limit.has_neighbour(),
        }
    }

    /// Whether a prefetch may start.
    fn has_room(&mut self, now: Timestamp) -> bool {
        let (demand, prefetches) = (self.demand.len(), self.prefetches.len());
        if now < self.limit.opens() || now < self.rests_until {
            return false;
        }
        let is_paced = now < self.paced_until || (self.limit.share() < 1.0 && prefetches > 0);
        let counted = if self.parameters.is_isolated { prefetches } else { demand + prefetches };
        let is_full = prefetches >= self.parameters.most_in_service
            || counted >= self.limit.concurrent_limit();
        if is_paced || is_full {
            self.limit.binds();
        }
        !is_paced && !is_full
    }

    /// Demand has arrived: aborts prefetches until there are no more requests than the limit, the youngest
    /// first. One more is kept if it is likely to end soon, or if the server would go on with it all the same.
    fn abort_for_demand(&mut self, now: Timestamp) -> bool {
        if self.parameters.is_isolated {
            return false;
        }
        let kept =
            self.usual.unwrap_or_default().as_secs_f64() * self.limit.spare_after_service_times();
        let mut over = (self.demand.len() + 1 + self.prefetches.len())
            .saturating_sub(self.limit.concurrent_limit());
        let mut spared = false;
        let mut youngest_first: Vec<(Id, Timestamp)> =
            self.prefetches.iter().map(|(id, one)| (id, one.began)).collect();
        youngest_first.sort_by_key(|(id, began)| core::cmp::Reverse((*began, *id)));
        let oldest = youngest_first.last().map(|(id, _)| *id);
        let is_futile =
            self.limit.aborts_are_futile() && !self.arrivals.is_multiple_of(ABORT_TRIAL);
        for (id, began) in youngest_first {
            if over == 0 {
                break;
            }
            over -= 1;
            let is_late = now.saturating_since(began).as_secs_f64() >= kept;
            if Some(id) == oldest && (is_late || is_futile) && !spared {
                spared = true;
                continue;
            }
            self.leave(now, id);
            self.actions.push_back(Action::Abort(id, Aborted::Demand));
        }
        // An abort now and then shows whether the server has changed.
        self.arrivals = self.arrivals.wrapping_add(1);
        spared
    }

    /// A prefetch leaves the upstream; returns how long it was there, if it still counted.
    fn leave(&mut self, now: Timestamp, id: Id) -> Option<Duration> {
        let ended = self.prefetches.end(id)?;
        let time = now.saturating_since(ended.began);
        self.pace(now, time);
        Some(time)
    }

    /// Below one the limit is a part of the time.
    fn pace(&mut self, now: Timestamp, time: Duration) {
        let share = self.limit.share();
        if share < 1.0 {
            let rest = time.as_secs_f64() * (1.0 / share - 1.0);
            let rest = Duration::from_secs_f64(rest.min(MAX_BACKOFF.as_secs_f64()));
            self.paced_until = self.paced_until.max(now + rest);
        }
    }

    fn back_off(&mut self, now: Timestamp) {
        // Requests in flight by then fail like it, and give no further information.
        if now < self.rests_until {
            return;
        }
        let rest = BACKOFF * 2u32.saturating_pow(self.failures.min(7));
        self.failures += 1;
        self.rests_until = now + rest.min(MAX_BACKOFF);
    }

    fn hung_after(&self) -> Duration {
        if self.parameters.is_isolated {
            return self.parameters.hung;
        }
        self.parameters.hung.max(self.usual.unwrap_or_default() * HUNG_TIMES)
    }

    fn abort_hung(&mut self, now: Timestamp) {
        let after = self.hung_after();
        let hung: Vec<Id> = self
            .prefetches
            .iter()
            .filter(|(_, one)| now.saturating_since(one.began) >= after)
            .map(|(id, _)| id)
            .collect();
        for id in hung {
            self.leave(now, id);
            self.back_off(now);
            self.actions.push_back(Action::Abort(id, Aborted::Hung));
        }
    }

    /// Requests that wait for something else than the upstream no longer count.
    fn expire(&mut self, now: Timestamp) {
        while self.demand.expired(now).is_some() {}
        while let Some((_, ended)) = self.prefetches.expired(now) {
            self.pace(now, now.saturating_since(ended.began));
        }
    }

    fn drain_rate(&self) -> f64 {
        self.served / DRAIN.as_secs_f64()
    }

    fn count_served(&mut self, now: Timestamp, more: f64) {
        let since = now.saturating_since(self.served_at).as_secs_f64();
        let keep = libm::exp(-since / DRAIN.as_secs_f64());
        self.served = self.served * keep + more;
        self.promised *= keep;
        self.served_at = self.served_at.max(now);
    }
}

#[cfg(test)]
mod tests;
