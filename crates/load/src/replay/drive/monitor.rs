//! The replay's own monitor: a budget, and the results of its probes.

use std::rc::Rc;
use std::time::{Duration, Instant};

use lull_speculate::budget::{Budget, Outcome, Probe};

use super::exchange::{Answer, Connection, Lane, PlannedRequest, exchange};
use super::timers::TimerEvent;
use super::{Ended, Event, FAILED, Replay, timestamp};

/// A monitor of the replay itself.
pub(super) struct Monitor {
    pub(super) budget: Budget,
    pub(super) lane: Lane<Probe>,
    pub(super) probe: String,
    pub(super) probes: u64,
    /// When the budget is polled next, as far as a timer is set.
    pub(super) poll_at: Option<Duration>,
    /// Budget times seconds, up to the time of the last look.
    pub(super) sum: f64,
    pub(super) from: Duration,
    pub(super) looked: Duration,
}

impl Monitor {
    /// Forgets earlier samples.
    pub(super) fn reset(&mut self, now: Duration) {
        (self.sum, self.from, self.looked, self.probes) = (0.0, now, now, 0);
    }

    /// The budget's mean over time.
    pub(super) fn mean(&self) -> f64 {
        self.sum / self.looked.saturating_sub(self.from).as_secs_f64().max(1e-9)
    }

    /// Adds up the budget since the last look.
    pub(super) fn add_up_budget(&mut self, now: Duration) {
        let since = now.saturating_sub(self.looked);
        self.sum += f64::from(self.budget.budget()) * since.as_secs_f64();
        self.looked = now;
    }
}

impl Replay<'_> {
    /// The monitor's turn.
    pub(super) fn poll(&mut self) {
        let now = self.now();
        if self.is_over {
            return;
        }
        let Some(monitor) = &mut self.monitor else { return };
        monitor.add_up_budget(now);
        if monitor.poll_at.is_some_and(|at| at <= now) {
            monitor.poll_at = None;
        }
        if let Some(probe) = monitor.budget.poll(timestamp(now)) {
            monitor.lane.push(probe);
        }
        self.probe();
    }

    /// Sends the waiting probes, and sets a timer for the next look.
    fn probe(&mut self) {
        let now = self.now();
        let Some(monitor) = &mut self.monitor else { return };
        let next = Duration::from_nanos(monitor.budget.next_poll().as_nanos());
        // Actions that are due at once have been done.
        let next = next.max(now + Duration::from_millis(1));
        let is_sooner = monitor.poll_at.is_none_or(|at| next < at);
        if is_sooner {
            monitor.poll_at = Some(next);
            self.timers.at(next, TimerEvent::Poll);
        }
        let Some(monitor) = &mut self.monitor else { return };
        while let Some((probe, kept)) = monitor.lane.next() {
            let asked = PlannedRequest::get(&monitor.probe, false);
            let (server, patience) = (Rc::clone(&self.to), self.settings.patience);
            let sent = Instant::now();
            let work = exchange(server, kept, asked, u32::MAX >> 8, patience, Rc::default());
            let events = self.events.clone();
            tokio::task::spawn_local(async move {
                let (connection, answer) = work.await;
                let ended = Ended::Probe { probe, sent };
                let _ = events.send(Event { client: None, ended, connection, answer });
            });
        }
    }

    /// A probe has its answer, or none.
    pub(super) fn probed(
        &mut self,
        probe: Probe,
        sent: Instant,
        connection: Option<Connection>,
        answer: Option<&Answer>,
    ) {
        let now = self.now();
        let Some(monitor) = &mut self.monitor else { return };
        monitor.add_up_budget(now);
        monitor.lane.end(connection);
        monitor.probes += 1;
        let good = answer.filter(|answer| answer.status < FAILED);
        let time = good.map(|answer| answer.at.saturating_duration_since(sent));
        if let Outcome::Again(again) = monitor.budget.handle_sample(timestamp(now), probe, time) {
            monitor.lane.push(again);
        }
        self.probe();
    }
}
