//! Times without a connection, and for how long no read has noticed them (SSR §6.3.2.3).

use core::time::Duration;

use super::reads::WaitReason;
use super::{Replica, Waiting};
use crate::time::LocalTime;

/// A finished time without a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Outage {
    /// The last message of the origin before it: a silent line is noticed later.
    pub began: LocalTime,
    /// When the origin accepted this replica again.
    pub ended: LocalTime,
    /// For how long of that time it was masked: to its end, if no read has noticed it.
    pub masked: Duration,
}

/// The time without a connection that goes on, if one does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct OutageState {
    /// Since when there is no connection.
    away_since: Option<LocalTime>,
    /// When a read first had to wait for a connection since then. While there is one: since when a read waited that
    /// was given up, which counts if the origin has said nothing more.
    noticed: Option<LocalTime>,
}

impl OutageState {
    /// A replica starts without a connection.
    pub(super) fn new(now: LocalTime) -> Self {
        OutageState { away_since: Some(now), noticed: None }
    }

    /// The connection is lost since the last word of the origin. `waiting` is since when a read waits for it.
    fn begin(&mut self, heard: LocalTime, waiting: Option<LocalTime>) {
        self.away_since = Some(heard);
        // A read cancelled before then had a connection to wait for.
        let given_up = self.noticed.filter(|at| *at >= heard);
        self.noticed = given_up.into_iter().chain(waiting).min();
    }

    /// The connection is back; since when there was none.
    fn end(&mut self) -> Option<LocalTime> {
        self.noticed = None;
        self.away_since.take()
    }

    /// A read has to wait for a connection.
    fn notice(&mut self, now: LocalTime) {
        if self.away_since.is_some() {
            self.noticed.get_or_insert(now);
        }
    }

    /// A read that has waited since then is given up. It would have noticed a loss of the connection.
    fn give_up(&mut self, since: LocalTime, heard: LocalTime) {
        if self.away_since.is_none() {
            let since = since.max(heard);
            let others = self.noticed.filter(|at| *at >= heard);
            self.noticed = Some(others.map_or(since, |at| at.min(since)));
        }
    }
}

impl<P: Clone> Replica<P> {
    /// Since when there is no connection: since the last message of the origin, or since the start. None
    /// while the origin accepts this replica.
    pub fn away_since(&self) -> Option<LocalTime> {
        self.outage.away_since
    }

    /// How long the loss of the connection has been masked by now: until a read had to wait for a missing
    /// body, or the larger Δ was over. Zero while there is a connection.
    pub fn masked(&self, now: LocalTime) -> Duration {
        let (Some(since), Some(said)) = (self.outage.away_since, self.lease.covered()) else {
            return Duration::ZERO;
        };
        let ends = [self.lease.deadline(said, false), self.outage.noticed];
        ends.into_iter().flatten().fold(now, LocalTime::min).since(since)
    }

    /// The connection is lost, which is only known now: since the last message of the origin nothing could
    /// have arrived on it.
    pub(super) fn lose_connection(&mut self) {
        let heard = self.connection.heard;
        let waiting = self.reads.iter().filter(|one| needs_connection(one.why));
        let waiting = waiting.map(|one| one.since.max(heard)).min();
        self.outage.begin(heard, waiting);
    }

    /// The connection is restored; returns the outage until now, if there was a connection before.
    pub(super) fn end_outage(&mut self, now: LocalTime) -> Option<Outage> {
        let masked = self.masked(now);
        let began = self.outage.end()?;
        // Before the first connection nothing is lost, and nothing promised.
        self.connection.origin.map(|_| Outage { began, ended: now, masked })
    }

    /// A read waits. If only a connection can help it and there is none, its reader notices that. A read that
    /// waits on a silent connection is checked when that turns out to be lost.
    pub(super) fn cannot_mask(&mut self, now: LocalTime, why: WaitReason) {
        if needs_connection(why) {
            self.outage.notice(now);
        }
    }

    /// No reader waits any more for a read without an answer: if the origin says nothing more, it could not be.
    pub(super) fn give_up_read(&mut self, read: &Waiting) {
        if needs_connection(read.why) {
            self.outage.give_up(read.since, self.connection.heard);
        }
    }
}

/// A read behind another one waits for that one, and during an application it waits for the disk.
fn needs_connection(why: WaitReason) -> bool {
    matches!(why, WaitReason::Stale | WaitReason::Behind | WaitReason::Invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: i64) -> LocalTime {
        LocalTime::from_nanos(nanos)
    }

    #[test]
    fn outage_is_noticed_by_the_first_read_that_waits() {
        let mut outage = OutageState::new(at(0));
        outage.notice(at(5));
        outage.notice(at(7));
        assert_eq!(outage.noticed, Some(at(5)));
        assert_eq!(outage.end(), Some(at(0)));
        outage.notice(at(9));
        assert_eq!((outage.noticed, outage.away_since), (None, None));
    }

    #[test]
    fn abandoned_read_counts_if_the_origin_was_silent_since() {
        let mut outage = OutageState::new(at(0));
        outage.end();
        outage.give_up(at(10), at(4));
        // Words of the origin that came later show that there was a connection.
        let mut heard_later = outage.clone();
        heard_later.begin(at(12), None);
        assert_eq!(heard_later.noticed, None);
        outage.begin(at(8), Some(at(20)));
        assert_eq!((outage.away_since, outage.noticed), (Some(at(8)), Some(at(10))));
    }
}
