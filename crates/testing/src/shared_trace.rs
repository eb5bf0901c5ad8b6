//! Generated histories of connections that share the state of a path, for tests of such controllers. Like
//! those of [`trace`](crate::trace), they depend only on their seed.

use core::iter::Peekable;

use lull_cc::{Ack, Timestamp};

use crate::trace::{Event, History, Random};

/// The number of paths.
pub const PATHS: usize = 2;
/// The most connections.
pub const CONNECTIONS: usize = 8;

/// An event of a connection that shares a path. An event of a connection without a path must be ignored, and
/// so must a join of one that has a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedEvent {
    /// Its time.
    pub now: Timestamp,
    /// The number of the connection.
    pub connection: usize,
    /// The event.
    pub kind: SharedKind,
}

/// An event of a connection. Paths are given by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedKind {
    /// It joins a path.
    Join(usize),
    /// It leaves its path.
    Leave,
    /// The connection that leads on a path, possibly another one, leaves that.
    LeaderLeaves(usize),
    /// It leaves its path and joins another.
    Move(usize),
    /// It has data to send, and pacing allows it now. With the count of [`Ack::delivered`], and packets in
    /// flight.
    Send(u32, u32),
    /// The host's foreground on a path is reported.
    Foreground(usize, Foreground),
    /// Any event of a single connection, at the same time.
    Own(Event),
}

/// The traffic of this host's foreground connections on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foreground {
    /// When the last one began to connect.
    pub connected: Timestamp,
    /// When the last packet with data left.
    pub sent: Timestamp,
    /// Bytes of data so far.
    pub bytes: u64,
}

/// Histories of up to [`CONNECTIONS`] connections on one time line, with joins, leaves, moves between
/// paths, and deaths of leaders.
#[derive(Debug)]
pub struct SharedHistory {
    random: Random,
    connections: Vec<Line>,
    foregrounds: [Foreground; PATHS],
    now: Timestamp,
}

/// The history of one connection, and how far its clock is ahead of the local one.
#[derive(Debug)]
struct Line {
    history: Peekable<History>,
    ahead_micros: u64,
    delivered: u32,
}

/// The first possible time of an event.
const BEGIN_MICROS: u64 = 1_000_000;

impl SharedHistory {
    /// Histories that paths could have had.
    pub fn plausible(seed: u64, connections: usize) -> Self {
        Self::new(seed, connections, History::plausible)
    }

    /// Histories with any events and values that the types allow.
    pub fn wild(seed: u64, connections: usize) -> Self {
        Self::new(seed, connections, History::wild)
    }

    fn new(seed: u64, connections: usize, history: impl Fn(u64) -> History) -> Self {
        assert!((1..=CONNECTIONS).contains(&connections), "{connections} connections");
        let mut random = Random::new(seed);
        let connections = (0..connections)
            .map(|_| {
                let mut history = history(random.bits()).peekable();
                let first = history.peek().map_or(BEGIN_MICROS, |event| time(event).as_micros());
                Line { history, ahead_micros: first - BEGIN_MICROS, delivered: 0 }
            })
            .collect();
        let never = Timestamp::from_micros(0);
        let silent = Foreground { connected: never, sent: never, bytes: 0 };
        let now = Timestamp::from_micros(BEGIN_MICROS);
        SharedHistory { random, connections, foregrounds: [silent; PATHS], now }
    }

    /// The connection whose next event is the earliest.
    fn earliest(&mut self) -> usize {
        let times = self.connections.iter_mut().map(Line::next_micros).enumerate();
        times.min_by_key(|(_, micros)| *micros).map_or(0, |(connection, _)| connection)
    }

    fn next_foreground(&mut self, path: usize) -> Foreground {
        let foreground = &mut self.foregrounds[path];
        if self.random.one_in(3) {
            foreground.connected = self.now;
        }
        if self.random.one_in(2) {
            foreground.sent = self.now;
            foreground.bytes += u64::from(self.random.below(1 << 24));
        }
        *foreground
    }

    /// An event that changes which connections are on which path, or the foreground there.
    fn membership_event(&mut self) -> SharedEvent {
        let connection = self.random.below(self.connections.len() as u32) as usize;
        let path = self.random.below(PATHS as u32) as usize;
        let kind = match self.random.below(10) {
            8 | 9 => SharedKind::Foreground(path, self.next_foreground(path)),
            0 => SharedKind::LeaderLeaves(path),
            1 => SharedKind::Leave,
            2 => SharedKind::Move(path),
            3 => SharedKind::Join(path),
            // Mostly, most connections are on the first path.
            _ => SharedKind::Join(0),
        };
        SharedEvent { now: self.now, connection, kind }
    }
}

impl Line {
    fn next_micros(&mut self) -> u64 {
        self.history.peek().map_or(u64::MAX, |event| time(event).as_micros() - self.ahead_micros)
    }
}

impl Iterator for SharedHistory {
    type Item = SharedEvent;

    fn next(&mut self) -> Option<SharedEvent> {
        if self.random.one_in(50) {
            return Some(self.membership_event());
        }
        let connection = self.earliest();
        let line = &mut self.connections[connection];
        if self.random.one_in(5) {
            let in_flight = self.random.below(8).saturating_sub(4);
            let kind = SharedKind::Send(line.delivered, in_flight);
            return Some(SharedEvent { now: self.now, connection, kind });
        }
        let micros = line.next_micros();
        let event = line.history.next()?;
        self.now = Timestamp::from_micros(micros);
        line.delivered = delivered(&event).unwrap_or(line.delivered);
        let kind = SharedKind::Own(at(&event, self.now));
        Some(SharedEvent { now: self.now, connection, kind })
    }
}

fn time(event: &Event) -> Timestamp {
    match *event {
        Event::Ack(ack) => ack.now,
        Event::Loss(now, _) | Event::Mark(now, _) | Event::Timeout(now, _) | Event::Idle(now) => {
            now
        }
    }
}

fn delivered(event: &Event) -> Option<u32> {
    match *event {
        Event::Ack(ack) => Some(ack.delivered),
        Event::Loss(_, delivered) | Event::Mark(_, delivered) | Event::Timeout(_, delivered) => {
            Some(delivered)
        }
        Event::Idle(_) => None,
    }
}

/// The same event at another time.
fn at(event: &Event, now: Timestamp) -> Event {
    match *event {
        Event::Ack(ack) => Event::Ack(Ack { now, ..ack }),
        Event::Loss(_, delivered) => Event::Loss(now, delivered),
        Event::Mark(_, delivered) => Event::Mark(now, delivered),
        Event::Timeout(_, delivered) => Event::Timeout(now, delivered),
        Event::Idle(_) => Event::Idle(now),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_connections_share_one_clock() {
        for history in [SharedHistory::plausible(1, 8), SharedHistory::wild(2, 3)] {
            let events: Vec<_> = history.take(20_000).collect();
            assert!(events.is_sorted_by_key(|event| event.now.as_micros()));
            let kinds: std::collections::HashSet<_> =
                events.iter().map(|event| core::mem::discriminant(&event.kind)).collect();
            assert_eq!(kinds.len(), 7, "every kind of event happens");
        }
    }

    #[test]
    fn shared_history_depends_on_its_seed_alone() {
        let take = |seed| SharedHistory::plausible(seed, 4).take(1_000).collect::<Vec<_>>();
        assert_eq!(take(5), take(5));
        assert_ne!(take(5), take(6));
    }
}
