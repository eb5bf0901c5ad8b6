//! The origin's link: one body after the other.

use lull_replication::message::{BodyHeader, Frame};

/// A body on its way into the link.
#[derive(Clone, Debug)]
pub(super) struct Carried {
    pub(super) replica: usize,
    pub(super) frame: Frame<BodyHeader>,
    /// Whether it gives way.
    pub(super) is_background: bool,
    /// What of it is left, in nanoseconds of the link.
    pub(super) left: u64,
}

/// What the link does.
#[derive(Debug)]
pub(super) struct Link {
    nanos_per_byte: f64,
    /// What is carried, and since when.
    carried: Option<(Carried, u64)>,
    /// A body of the background that has given way.
    pub(super) waiting: Option<Carried>,
    /// Counts what was begun, so that a timer of what gave way is known as such.
    number: u64,
    /// Whose turn is next, of those that have one before the background, and of the background.
    pub(super) turn: [usize; 2],
    /// Nanoseconds for which it has carried what is through, or gave way.
    busy: u64,
}

impl Link {
    pub(super) fn new(bandwidth: f64) -> Self {
        Link {
            nanos_per_byte: 1e9 / bandwidth,
            carried: None,
            waiting: None,
            number: 0,
            turn: [0; 2],
            busy: 0,
        }
    }

    /// What a body takes of it.
    pub(super) fn cost(&self, frame: &Frame<BodyHeader>) -> u64 {
        let size = frame.message.version.map_or(0, |version| version.content.size.0);
        (size as f64 * self.nanos_per_byte).round() as u64
    }

    /// Whether what comes before the background could begin now.
    pub(super) fn yields(&self) -> bool {
        self.carried.as_ref().is_none_or(|(carried, _)| carried.is_background)
    }

    /// Nanoseconds for which it has carried something.
    pub(super) fn busy(&self, now: u64) -> u64 {
        self.busy + self.carried.as_ref().map_or(0, |(_, since)| now.saturating_sub(*since))
    }

    pub(super) fn is_idle(&self) -> bool {
        self.carried.is_none()
    }

    /// Begins with a body, before which another one gives way; says when it is through, and its
    /// number.
    pub(super) fn begin(&mut self, now: u64, body: Carried) -> (u64, u64) {
        if let Some((mut other, since)) = self.carried.take() {
            let done = now - since;
            self.busy += done;
            other.left = other.left.saturating_sub(done);
            self.waiting = Some(other);
        }
        self.number += 1;
        let until = now + body.left;
        self.carried = Some((body, now));
        (until, self.number)
    }

    /// A body is through, unless it was another one that was to be by now.
    pub(super) fn end(&mut self, now: u64, number: u64) -> Option<Carried> {
        if number != self.number {
            return None;
        }
        let (body, since) = self.carried.take()?;
        self.busy += now - since;
        Some(body)
    }
}
