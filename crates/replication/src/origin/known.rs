//! The origin's knowledge of its replicas, for its users.
//!
//! All of it was reported in this incarnation of the origin: none of it is worth a write to the disk. So the
//! values are bounds for a replica that has not connected since the start. It has sent no message since the
//! start, and counts as having none of the commits since then.

use core::time::Duration;
use std::collections::BTreeMap;

use super::Origin;
use crate::message::Report;
use crate::time::{LocalTime, Reading};
use crate::types::{ReplicaId, Sequence};

/// When this life of the origin began, and the replicas that have joined in it.
#[derive(Debug)]
pub(super) struct Life {
    begun: LocalTime,
    /// The last commit then.
    begun_at: Sequence,
    /// When a replica has joined, and what the last commit was.
    joined: BTreeMap<ReplicaId, (LocalTime, Sequence)>,
}

impl Life {
    pub(super) fn new(begun: LocalTime, begun_at: Sequence) -> Self {
        Life { begun, begun_at, joined: BTreeMap::new() }
    }

    /// For how long this life has lasted.
    pub(super) fn lasted(&self, now: LocalTime) -> Duration {
        now.since(self.begun)
    }

    /// Since when a replica was not heard that has not been in this life, at least, and what it may have at most.
    fn unheard(&self, replica: ReplicaId) -> (LocalTime, Sequence) {
        self.joined.get(&replica).copied().unwrap_or((self.begun, self.begun_at))
    }
}

impl<P: Clone> Origin<P> {
    /// Up to where a replica has reported to answer reads, and whether it is connected. None if it was not
    /// admitted in this life of the origin. Bodies may be missing there, see
    /// [`has_arrived`](Origin::has_arrived).
    pub fn progress(&self, replica: ReplicaId) -> Option<(Sequence, bool)> {
        if let Some(known) = self.known_below(replica) {
            return Some((known.committed, known.connected));
        }
        let peer = self.peers.get(&replica).filter(|peer| peer.heard.is_some())?;
        Some((peer.committed, peer.link.is_some()))
    }

    /// How many commits a replica is behind; a lower bound if its [`progress`](Origin::progress) is unknown.
    pub fn lag(&self, replica: ReplicaId) -> u64 {
        let known = self.progress(replica).map(|(committed, _)| committed);
        let most = known.unwrap_or_else(|| self.life.unheard(replica).1);
        self.last().sequence.0.saturating_sub(most.0)
    }

    /// For how long a disconnected replica has not been heard; a lower bound if it was not admitted in this
    /// life of the origin.
    pub fn away(&self, now: Reading, replica: ReplicaId) -> Option<Duration> {
        if let Some(known) = self.known_below(replica) {
            return (!known.connected).then(|| now.local.since(known.heard));
        }
        let peer = self.peers.get(&replica);
        if peer.is_some_and(|peer| peer.link.is_some()) {
            return None;
        }
        let heard = peer.and_then(|peer| peer.heard);
        Some(now.local.since(heard.unwrap_or_else(|| self.life.unheard(replica).0)))
    }

    /// The last report of a replica; none if there is none in this life of the origin.
    pub fn report(&self, replica: ReplicaId) -> Option<(LocalTime, Report)> {
        match self.known_below(replica) {
            Some(known) => known.report,
            None => self.peers.get(&replica).and_then(|peer| peer.report),
        }
    }

    /// The maximum staleness of a replica, by its reports in this incarnation of the origin; none without
    /// such a report.
    pub fn staleness(&self, now: Reading, replica: ReplicaId) -> Option<Duration> {
        let (_, report) = self.report(replica)?;
        report.reflects.map(|stamp| self.clock.clone().read(now).since(stamp))
    }

    /// The minimum staleness, if only that is known: it has received no newer state in this incarnation of
    /// the origin.
    pub fn stale_at_least(&self, now: Reading, replica: ReplicaId) -> Duration {
        now.local.since(self.life.unheard(replica).0)
    }

    /// By how many nanoseconds the wall clock of a replica is ahead of this one: at least and at most. The
    /// bounds allow for the drift of both since its report.
    pub fn skew(&self, now: Reading, replica: ReplicaId) -> Option<(i64, i64)> {
        let (at, report) = self.report(replica)?;
        let (least, most) = report.skew?;
        let apart = self.config.drift.of_two().max_error(now.local.since(at));
        let apart = i64::try_from(apart.as_nanos()).unwrap_or(i64::MAX);
        Some((least.saturating_sub(apart), most.saturating_add(apart)))
    }

    /// A replica has joined under that number, with its own state and incarnations: nothing of its
    /// predecessor counts.
    pub fn handle_joined(&mut self, now: Reading, replica: ReplicaId) {
        self.peers.remove(&replica);
        self.forget_below(replica);
        self.life.joined.insert(replica, (now.local, self.last().sequence));
    }

    /// A replica's report has arrived.
    pub(super) fn reported(&mut self, now: Reading, replica: ReplicaId, mut report: Report) {
        if let Some(peer) = self.peers.get_mut(&replica) {
            // In a re-sync it does not know; but no state goes back behind an earlier one.
            let before = peer.report.and_then(|(_, before)| before.reflects);
            report.reflects = report.reflects.or(before);
            peer.report = Some((now.local, report));
        }
    }
}
