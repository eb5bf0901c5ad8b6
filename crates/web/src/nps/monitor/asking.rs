//! The monitor's own probes: their objects, their times, and their cost for the server.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use lull_cc::Timestamp;
use lull_speculate::budget::{Budget, Probe};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::Monitor;
use super::{CHECK_INTERVAL, WANTED_FOR};
use crate::nps::counts::Counts;
use crate::nps::learner::Learner;
use crate::nps::notices::Notices;
use crate::nps::robots::AGENT;
use crate::nps::site_rules::SiteRules;
use crate::proxy::{Codings, Event, Failure, Fetched, Fetcher};

/// The monitor's own requests take one part in this many of the time.
const PART: u32 = 100;
/// Time that may be saved up: enough to learn the thresholds of a fast server at once. The same time may be
/// owed for a second sample after a late answer, which cannot wait.
const SAVED: Duration = Duration::from_millis(500);
/// Until the first list is given, it may take this larger share instead, up to this total time, and while no
/// answer is late. Otherwise a site whose pages take 300 ms gets no list for ten minutes.
const EARLY_PART: u32 = 4;
const EARLY: Duration = Duration::from_secs(15);
/// Longest pause before the next request, however long late answers take.
const RARELY: Duration = Duration::from_secs(60);
/// An answer that takes longer counts as missing, while the threshold is unknown. A known late one is not
/// waited for any longer before the next probe either.
const MAX_WAIT: Duration = Duration::from_secs(2);
/// The maximum number of bytes read of an answer: chosen objects are not longer.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// The parts of the site that the monitor uses.
#[derive(Clone, Copy)]
pub(in crate::nps) struct MonitorContext<'a> {
    pub(in crate::nps) rules: &'a SiteRules,
    pub(in crate::nps) learner: &'a Learner,
    pub(in crate::nps) counts: &'a Counts,
    pub(in crate::nps) notices: &'a Notices,
}

/// Keeps the budget, until it is dropped.
pub(in crate::nps) async fn run(monitor: &Monitor, context: MonitorContext<'_>, fetcher: Fetcher) {
    let MonitorContext { rules, learner, notices, .. } = context;
    let mut asking = Asking {
        monitor,
        context,
        fetcher,
        paid_at: Timestamp::ZERO,
        late: JoinSet::new(),
        looked: Timestamp::ZERO,
        early: EARLY,
    };
    loop {
        let now = rules.now();
        let (is_wanted, is_busy, next, chooses, starvation) = {
            let mut state = monitor.state();
            let is_wanted = rules.is_active() && state.was_asked_within(WANTED_FOR, now);
            let starvation = state.check_starvation(now, is_wanted);
            let is_busy = monitor.is_as_in_the_paper() || state.is_busy(now);
            (
                is_wanted,
                is_busy,
                state.budget.as_ref().map(Budget::next_poll),
                state.chooses,
                starvation,
            )
        };
        if let Some(why) = starvation {
            notices.report(&Event::NoBudget { why: why.to_owned() });
        }
        match next {
            _ if !is_wanted => {
                let _ = timeout(CHECK_INTERVAL, monitor.wanted.notified()).await;
            }
            None => {
                let objects = monitor.objects(learner).await;
                if objects.is_empty() {
                    sleep(CHECK_INTERVAL).await;
                } else {
                    monitor.watch_objects(objects, rules.now());
                }
            }
            Some(_) if chooses => {
                let objects = monitor.objects(learner).await;
                monitor.go_on_with(objects, rules.now());
            }
            Some(next) => {
                let due = if is_busy { next } else { next.max(asking.looked + CHECK_INTERVAL) };
                if due > now {
                    let _ = timeout(due.saturating_since(now), monitor.wanted.notified()).await;
                } else {
                    asking.sample().await;
                }
            }
        }
    }
}

/// Probes the server, within its limits.
struct Asking<'a> {
    monitor: &'a Monitor,
    context: MonitorContext<'a>,
    fetcher: Fetcher,
    /// When the time used so far is paid for.
    paid_at: Timestamp,
    /// Late answers still to come: the connection, and the unpaid time.
    late: JoinSet<(Fetcher, Duration)>,
    /// When the last sample was expected, from a visitor's request or its own.
    looked: Timestamp,
    /// The rest of the time until the first list.
    early: Duration,
}

impl Asking<'_> {
    /// Takes the sample of one epoch, and the second sample if that is late.
    async fn sample(&mut self) {
        let now = self.context.rules.now();
        self.looked = now;
        self.take_back();
        let may_ask = self.may_probe(SAVED, now);
        let may_leave_it = !self.monitor.is_as_in_the_paper();
        let due = {
            let mut state = self.monitor.state();
            if !may_ask && state.next_seen(now).is_none() {
                // A server that was last seen loaded is not trusted for lists.
                state.is_blind = state.is_late;
            }
            let is_told = may_leave_it && state.has_visitor_samples(now);
            state.poll(now, may_ask && !is_told)
        };
        let Some(mut probe) = due else { return sleep(Duration::from_millis(20)).await };
        for owed in [SAVED, 2 * SAVED] {
            let seen = self.monitor.state().take_seen(probe.object, now);
            let time = match seen {
                Some(time) => {
                    self.context.counts.passive.one();
                    Some(time)
                }
                None if self.may_probe(owed, self.context.rules.now()) => self.ask(probe).await,
                // The repetition of a late probe would have to wait for too long, so it stays late. While
                // learning, this sample is skipped.
                None => None,
            };
            match self.take(probe, time) {
                Some(again) => probe = again,
                None => return,
            }
        }
    }

    /// Whether it may probe, with this much unpaid server time. While a late answer is still to come, only
    /// the repetition may be sent.
    fn may_probe(&self, most: Duration, now: Timestamp) -> bool {
        let has_place = self.late.is_empty() || most > SAVED;
        let credit = if self.is_early() { most - SAVED } else { most };
        has_place && self.context.rules.is_active() && self.paid_at <= now + credit * PART
    }

    /// Whether no list was given so far, and time is left to measure the server soon.
    fn is_early(&self) -> bool {
        !self.early.is_zero() && !self.monitor.state().has_granted
    }

    /// Sends its own request. Returns the time of the answer; `None` if it is late or unusable.
    async fn ask(&mut self, probe: Probe) -> Option<Duration> {
        let monitor = self.monitor;
        let path = {
            let watched = monitor.watched.read().unwrap_or_else(PoisonError::into_inner);
            watched.get(probe.object.0 as usize)?.clone()
        };
        let (begun, patience, is_learning) = {
            let (state, now) = (monitor.state(), self.context.rules.now());
            let budget = state.budget.as_ref()?;
            let overdue = budget.next_poll().saturating_since(now);
            let is_learning = budget.is_paused();
            (now, if is_learning { overdue.min(MAX_WAIT) } else { overdue }, is_learning)
        };
        let fetched = self.fetch(&path, patience).await;
        let took = self.context.rules.now().saturating_since(begun);
        let (time, failure) = match fetched {
            Some(Ok(fetched)) => {
                let time = fetched.time_to_first_byte;
                self.context.counts.probes.record(time);
                if fetched.status.is_success() {
                    (Some(time), None)
                } else {
                    (None, Some(fetched.status.to_string()))
                }
            }
            Some(Err(failure)) => (None, Some(failure.to_string())),
            None => {
                self.context.counts.probes.record(took);
                (None, is_learning.then(|| format!("no answer within {MAX_WAIT:?}")))
            }
        };
        match failure {
            Some(why) if monitor.failed(self.context.rules.now(), probe.object, &path) => {
                self.context.notices.report(&Event::ProbesFail { path, why });
            }
            None if time.is_some() => monitor.state().answered(probe.object, &path),
            _ => {}
        }
        time
    }

    /// A late answer has left its connection.
    fn take_back(&mut self) {
        while let Some(ended) = self.late.try_join_next() {
            if let Ok((fetcher, rest)) = ended {
                self.fetcher = fetcher;
                self.charge_late(rest);
            }
        }
    }

    /// Requests a path over a connection that has carried an answer already. To make one takes several round
    /// trips, and both ends prepare for the first answer over it. That may take longer than a late answer.
    async fn fetch(&mut self, path: &str, patience: Duration) -> Option<Result<Fetched, Failure>> {
        self.take_back();
        match timeout(MAX_WAIT, self.fetcher.connect()).await.ok()? {
            Ok(false) => {}
            Ok(true) => {
                if let Err(failure) = self.get(path, MAX_WAIT, patience).await? {
                    return Some(Err(failure));
                }
            }
            Err(failure) => return Some(Err(failure)),
        }
        self.get(path, patience, patience).await
    }

    /// Requests a path, and waits for this time; from `patience` on it is late. The server is busy with it
    /// until it has come, even without a waiting caller.
    async fn get(
        &mut self,
        path: &str,
        wait: Duration,
        patience: Duration,
    ) -> Option<Result<Fetched, Failure>> {
        let sent = Instant::now();
        let another = self.fetcher.clone();
        let mut fetcher = std::mem::replace(&mut self.fetcher, another.clone());
        let path = path.to_owned();
        let mut answer = tokio::spawn(async move {
            let fetched = fetcher.get(&path, AGENT, Codings::OfBrowsers, MAX_ANSWER_BYTES);
            (timeout(MAX_WAIT, fetched).await.ok(), fetcher)
        });
        let ended = timeout(wait, &mut answer).await;
        let paid = sent.elapsed().min(patience);
        self.charge(paid);
        let rest = move || sent.elapsed().min(MAX_WAIT).saturating_sub(paid);
        match ended {
            Ok(ended) => {
                let (fetched, fetcher) = ended.ok()?;
                self.fetcher = fetcher;
                self.charge_late(rest());
                fetched
            }
            Err(_) => {
                self.late.spawn(async move {
                    let fetcher = answer.await.map_or(another, |(_, fetcher)| fetcher);
                    (fetcher, rest())
                });
                None
            }
        }
    }

    /// Charges used time.
    fn charge(&mut self, took: Duration) {
        let part = if self.is_early() { EARLY_PART } else { PART };
        self.early = self.early.saturating_sub(took);
        self.paid_at = self.paid_at.max(self.context.rules.now()) + took * part;
    }

    /// Charges the time that an answer took after it became late. While pages are prefetched it waits for
    /// these, which is load. Without a budget it is the server's own time, for example if the server became
    /// permanently slower. Then that is charged, too.
    fn charge_late(&mut self, rest: Duration) {
        if !rest.is_zero() && !self.monitor.has_budget() {
            let now = self.context.rules.now();
            // Otherwise it would take long to detect that the server has recovered.
            let most = now + SAVED * PART + RARELY;
            self.paid_at = self.paid_at.max((self.paid_at.max(now) + rest * PART).min(most));
        }
    }

    /// Passes the sample to the budget; returns the repetition, if one is due. A late answer is reported
    /// here, and not left to [`Budget::poll`] to detect: that would continue with the next epoch, whether or
    /// not a probe is allowed.
    fn take(&mut self, probe: Probe, time: Option<Duration>) -> Option<Probe> {
        let again = self.monitor.take_sample(self.context.rules.now(), probe, time);
        if self.monitor.state().is_late {
            // It has no spare capacity, and gets no more requests than necessary.
            self.early = Duration::ZERO;
        }
        again
    }
}
