//! Replicas below relays, as far as relays report on them.
//!
//! A relay reports only on replicas about which it has asked before, and for which the origin has vouched. Reports on
//! others are ignored, and so are those on replicas that are connected here. If several relays have asked about a
//! replica, the last one that says it is connected there counts.
//!
//! A relay sends news, not lists: each replica is reported again when something has changed, in turns, and changes that
//! come meanwhile are merged. Progress goes before figures for users.

use core::ops::Bound;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use super::Origin;
use super::interface::Event;
use super::ranking::demand;
use crate::message::{BelowReport, Delivered, MAX_BELOW, Report, ToOrigin};
use crate::path::Path;
use crate::time::{LocalTime, Reading};
use crate::types::{ReplicaId, Sequence, Version};

/// The last report on a replica.
#[derive(Clone, Debug)]
pub(super) struct Known {
    /// The relay that has reported, and is connected here.
    pub(super) via: ReplicaId,
    /// The relay that serves it.
    relay: ReplicaId,
    pub(super) connected: bool,
    pub(super) committed: Sequence,
    pub(super) delivered: Delivered,
    pub(super) waiting: u64,
    /// When it was connected last.
    pub(super) heard: LocalTime,
    pub(super) report: Option<(LocalTime, Report)>,
}

/// A replica for which the origin has vouched.
#[derive(Debug, Default)]
struct Vouched {
    /// The relays that have asked on their present connections. Each serves the replica or a relay above it, or has
    /// done so: questions of several relays may arrive in any order.
    by: BTreeSet<ReplicaId>,
    known: Option<Known>,
}

/// Replicas that wait for their turn, each once.
#[derive(Debug, Default)]
struct Turns {
    waiting: BTreeSet<ReplicaId>,
    last: Option<ReplicaId>,
}

impl Turns {
    fn next(&mut self) -> Option<ReplicaId> {
        let from = self.last.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.waiting.range((from, Bound::Unbounded)).next();
        let next = *next.or_else(|| self.waiting.first())?;
        self.waiting.remove(&next);
        self.last = Some(next);
        Some(next)
    }
}

/// The kind of change that a message brings about its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// Its state, its bodies, or its connection.
    Progress,
    /// Its report for users.
    Figures,
}

impl News {
    pub(super) fn of(message: &ToOrigin) -> Option<Self> {
        match message {
            ToOrigin::Ack(_) => Some(News::Progress),
            ToOrigin::Report(_) => Some(News::Figures),
            _ => None,
        }
    }
}

/// The replicas below the relays that are connected here.
#[derive(Debug, Default)]
pub(super) struct Below {
    vouched: BTreeMap<ReplicaId, Vouched>,
    /// The replicas by the relay that has asked about them.
    by_relay: BTreeMap<ReplicaId, BTreeSet<ReplicaId>>,
    /// At a relay: those to be reported.
    progress: Turns,
    figures: Turns,
}

impl Below {
    /// Bodies of a replica that are looked at one by one, at most. If more wait for it, none is said to have arrived.
    const MAX_PENDING: u64 = 1_024;

    fn forget(&mut self, replica: ReplicaId) {
        for relay in self.vouched.remove(&replica).unwrap_or_default().by {
            if let Some(all) = self.by_relay.get_mut(&relay) {
                all.remove(&replica);
                if all.is_empty() {
                    self.by_relay.remove(&relay);
                }
            }
        }
    }

    fn is_via(&self, replica: ReplicaId, relay: ReplicaId) -> bool {
        self.vouched.get(&replica).is_some_and(|vouched| vouched.by.contains(&relay))
    }

    fn add_news(&mut self, replica: ReplicaId, news: News) {
        let turns = match news {
            News::Progress => &mut self.progress,
            News::Figures => &mut self.figures,
        };
        turns.waiting.insert(replica);
    }

    fn drop_news(&mut self, replica: ReplicaId) {
        self.progress.waiting.remove(&replica);
        self.figures.waiting.remove(&replica);
    }

    fn poll_news(&mut self) -> Option<ReplicaId> {
        let next = self.progress.next().or_else(|| self.figures.next())?;
        self.figures.waiting.remove(&next);
        Some(next)
    }
}

impl<P: Clone> Origin<P> {
    /// A replica that this relay has asked about may be served below it.
    pub(crate) fn admit_below(&mut self, relay: ReplicaId, replica: ReplicaId) {
        if relay == replica {
            return;
        }
        let vouched = self.below.vouched.entry(replica).or_default();
        vouched.by.insert(relay);
        if self.upstream.is_some() {
            // A relay must not repeat it: the replica may have joined again since.
            vouched.known = None;
        }
        self.below.by_relay.entry(relay).or_default().insert(replica);
    }

    /// A replica is connected here, or another machine has joined under its number.
    pub(super) fn forget_below(&mut self, replica: ReplicaId) {
        self.below.forget(replica);
    }

    /// The connection to a relay has ended: nothing is known of the replicas below it from now on.
    pub(super) fn lose_below(&mut self, relay: ReplicaId) {
        for replica in self.below.by_relay.remove(&relay).unwrap_or_default() {
            let Some(vouched) = self.below.vouched.get_mut(&replica) else { continue };
            vouched.by.remove(&relay);
            if let Some(known) = vouched.known.as_mut().filter(|known| known.via == relay) {
                known.connected = false;
                self.note_news(replica, News::Progress);
            }
        }
    }

    /// At a relay: a replica is to be reported to the parent.
    pub(super) fn note_news(&mut self, replica: ReplicaId, news: News) {
        if self.upstream.is_some() {
            self.below.add_news(replica, news);
        }
    }

    /// At a relay: the parent is asked whether a replica may be served, perhaps with another state than before. What is
    /// still to be reported must not follow that question.
    pub(crate) fn drop_news(&mut self, replica: ReplicaId) {
        self.below.drop_news(replica);
    }

    /// Reports of a relay have arrived; returns whether they are possible.
    pub(super) fn handle_below(
        &mut self,
        now: Reading,
        relay: ReplicaId,
        all: Vec<BelowReport>,
    ) -> bool {
        let last = self.last().sequence;
        for one in all {
            let replica = one.replica;
            // It gets commits from here.
            if one.committed > last {
                return false;
            }
            let is_here = self.peers.get(&replica).is_some_and(|peer| peer.link.is_some());
            if is_here || !self.below.is_via(replica, relay) {
                continue;
            }
            // It may name only a relay that was vouched for below it, too.
            let is_below = self.below.is_via(one.relay, relay);
            let serving = if is_below { one.relay } else { relay };
            let Some(vouched) = self.below.vouched.get_mut(&replica) else { continue };
            let before = vouched.known.as_ref();
            // It has lost a replica that is connected to another relay by now.
            if !one.connected && before.is_some_and(|known| known.connected && known.via != relay) {
                continue;
            }
            let reported = before.and_then(|before| before.report);
            let report = one.report.map(|(age, mut report)| {
                // In a re-sync it does not know; but no state goes back behind an earlier one.
                report.reflects =
                    report.reflects.or(reported.and_then(|(_, report)| report.reflects));
                (now.local.minus(age), report)
            });
            let is_moved = before.is_none_or(|known| known.via != relay);
            let heard = match before {
                Some(before) if !one.connected => before.heard,
                _ => now.local,
            };
            vouched.known = Some(Known {
                via: relay,
                relay: serving,
                connected: one.connected,
                committed: one.committed,
                delivered: one.delivered,
                waiting: one.waiting,
                heard,
                report: report.or(reported),
            });
            if is_moved {
                self.note_moved();
            }
            self.note_news(replica, News::Progress);
            self.output.events.push_back(Event::Progress { replica, committed: one.committed });
        }
        true
    }

    /// The last report on a replica that is below a relay.
    pub(super) fn known_below(&self, replica: ReplicaId) -> Option<&Known> {
        let is_here = self.peers.get(&replica).is_some_and(|peer| peer.link.is_some());
        self.below.vouched.get(&replica).filter(|_| !is_here)?.known.as_ref()
    }

    /// The relay that serves a replica; none if that is connected here, or was not reported.
    pub fn relay_above(&self, replica: ReplicaId) -> Option<ReplicaId> {
        self.known_below(replica).map(|known| known.relay)
    }

    /// The next reports for the parent of this relay, whose number is `own`.
    pub(crate) fn take_news(&mut self, now: Reading, own: ReplicaId) -> Vec<BelowReport> {
        let mut all = Vec::new();
        while all.len() < MAX_BELOW
            && let Some(replica) = self.below.poll_news()
        {
            all.extend(self.report_of(now.local, own, replica));
        }
        all
    }

    fn report_of(&self, now: LocalTime, own: ReplicaId, replica: ReplicaId) -> Option<BelowReport> {
        let aged =
            |(at, report): (LocalTime, Report)| -> (Duration, Report) { (now.since(at), report) };
        let is_here = self.peers.get(&replica).is_some_and(|peer| peer.link.is_some());
        if !is_here && let Some(vouched) = self.below.vouched.get(&replica) {
            let Known { relay, connected, committed, delivered, waiting, report, .. } =
                vouched.known.clone()?;
            let report = report.map(aged);
            return Some(BelowReport {
                replica,
                relay,
                connected,
                committed,
                delivered,
                waiting,
                report,
            });
        }
        let peer = self.peers.get(&replica).filter(|peer| peer.heard.is_some())?;
        // A replica says in its hello what it likes.
        let committed = peer.committed.min(self.last().sequence);
        Some(BelowReport {
            replica,
            relay: own,
            connected: peer.link.is_some(),
            committed,
            delivered: self.delivered(replica, committed),
            waiting: peer.waiting.len() + peer.aside.len(),
            report: peer.report.map(aged),
        })
    }

    /// The bodies that have arrived at a replica, of the commits up to `committed`.
    fn delivered(&self, replica: ReplicaId, committed: Sequence) -> Delivered {
        let Some(peer) = self.peers.get(&replica) else { return Delivered::default() };
        let link = peer.link.as_ref();
        let accounted = link.map_or(peer.accounted, |link| link.accounted);
        let queued = peer.waiting.len() + peer.absent.len() + peer.aside.len();
        if !accounted || peer.filling.is_some() || queued > Below::MAX_PENDING {
            return Delivered::default();
        }
        let is_pending = |path: &&Path| {
            let version = self.state.image.objects.get(*path);
            let is_here =
                |version: &Version| self.bodies.references.is_stored(&version.content.digest);
            version.is_some_and(is_here) || self.is_expected(path)
        };
        let current = |path: &Path| {
            let version = *self.state.image.objects.get(path)?;
            let demand = demand(self.ranking.get(path), version);
            let pushes = self.config.strategy.pushes(demand, self.peers.len());
            (pushes && peer.only.has(path)).then_some(version.sequence)
        };
        let waiting = peer.waiting.iter().chain(peer.aside.iter());
        let waiting = waiting.filter_map(|at| self.ranking.path(at));
        let absent = peer.absent.iter().filter_map(|at| self.ranking.path(at));
        let queued = waiting.chain(absent.filter(is_pending));
        let under_way = link.into_iter().flat_map(|link| {
            let sending = link.demands.sending_versions();
            link.pushed.sequences().chain(link.fetched.sequences()).chain(sending)
        });
        Delivered::new(committed, queued.filter_map(current).chain(under_way))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_replica_with_news_gets_its_turn() {
        let mut below = Below::default();
        for number in [5, 1, 9] {
            below.add_news(ReplicaId(number), News::Figures);
        }
        below.add_news(ReplicaId(7), News::Progress);
        below.add_news(ReplicaId(9), News::Progress);
        let mut order = Vec::new();
        while let Some(ReplicaId(next)) = below.poll_news() {
            order.push(next);
            if order.len() < 5 {
                // New figures of the first one do not delay the others.
                below.add_news(ReplicaId(1), News::Figures);
            }
        }
        assert_eq!(order, [7, 9, 1, 5, 1]);
    }
}
