//! Times without a connection, and for how long nobody who reads has noticed them (SSR §6.3.2.3).

use core::time::Duration;

use super::reads::Why;
use super::{Replica, Waiting};
use crate::time::LocalTime;

/// A time without a connection that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Outage {
    /// The last word of the origin before it: a silent line is noticed later.
    pub began: LocalTime,
    /// When the origin talked to this replica again.
    pub ended: LocalTime,
    /// For how long of that it was masked: to its end, if no read has noticed it.
    pub masked: Duration,
}

impl<P: Clone> Replica<P> {
    /// Since when there is no connection: since the last word of the origin, or since the start. None while
    /// the origin talks to this replica.
    pub fn away_since(&self) -> Option<LocalTime> {
        self.away_since
    }

    /// For how long the loss of the connection has been masked by now: until a read had to wait for what is not
    /// here, or the larger Δ was over. Nothing while there is one.
    pub fn masked(&self, now: LocalTime) -> Duration {
        let (Some(since), Some(said)) = (self.away_since, self.lease.covered()) else {
            return Duration::ZERO;
        };
        let ends = [self.lease.deadline(said, false), self.unmasked];
        ends.into_iter().flatten().fold(now, LocalTime::min).since(since)
    }

    /// The connection is lost, which is known only now: since the last word of the origin nothing could have
    /// come by it.
    pub(super) fn lose_connection(&mut self) {
        let cut = self.heard;
        self.away_since = Some(cut);
        // What was given up before that had a connection to wait for.
        let given_up = self.unmasked.filter(|at| *at >= cut);
        let waiting = self.waiting.iter().filter(|one| needs_connection(one.why));
        let waiting = waiting.map(|one| one.since.max(cut)).min();
        self.unmasked = given_up.into_iter().chain(waiting).min();
    }

    /// The connection is back: what there was until now without one, if there was one before.
    pub(super) fn end_outage(&mut self, now: LocalTime) -> Option<Outage> {
        let masked = self.masked(now);
        self.unmasked = None;
        let began = self.away_since.take()?;
        // Until the first connection nothing is lost, and nothing promised.
        self.origin.map(|_| Outage { began, ended: now, masked })
    }

    /// A read waits. If only a connection can help it, and there is none, its reader notices that. What waits
    /// while there seems to be one is looked at when that turns out to be lost.
    pub(super) fn cannot_mask(&mut self, now: LocalTime, why: Why) {
        if self.away_since.is_some() && needs_connection(why) {
            self.unmasked.get_or_insert(now);
        }
    }

    /// Nobody waits for a read any more that was not answered: if the origin says nothing more, it could not be.
    pub(super) fn give_up_read(&mut self, read: &Waiting) {
        if self.away_since.is_none() && needs_connection(read.why) {
            let since = read.since.max(self.heard);
            let others = self.unmasked.filter(|at| *at >= self.heard);
            self.unmasked = Some(others.map_or(since, |at| at.min(since)));
        }
    }
}

/// Behind another one a read waits for that, and while something is applied for the disk.
fn needs_connection(why: Why) -> bool {
    matches!(why, Why::Stale | Why::Behind | Why::Invalid)
}
