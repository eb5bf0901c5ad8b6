//! The origin's link: one body after the other.

use lull_replication::message::{BodyHeader, Frame};

/// A body on its way into the link.
#[derive(Clone, Debug)]
pub(super) struct Carried {
    pub(super) replica: usize,
    pub(super) frame: Frame<BodyHeader>,
    /// Whether it yields.
    pub(super) is_background: bool,
    /// The rest of it, in nanoseconds of the link.
    pub(super) left: u64,
}

/// The state of the link.
#[derive(Debug)]
pub(super) struct Link {
    nanos_per_byte: f64,
    /// The body in transfer, and since when.
    carried: Option<(Carried, u64)>,
    /// A body of the background that was interrupted.
    pub(super) waiting: Option<Carried>,
    /// Counts started transfers, so that the timer of an interrupted one is recognized.
    number: u64,
    /// The next sender in turn: among those with priority over the background, and in the background.
    pub(super) turn: [usize; 2],
    /// Nanoseconds of completed or interrupted transfers.
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

    /// The time of a body on the link.
    pub(super) fn cost(&self, frame: &Frame<BodyHeader>) -> u64 {
        let size = frame.message.version.map_or(0, |version| version.content.size.0);
        (size as f64 * self.nanos_per_byte).round() as u64
    }

    /// Whether a foreground body could begin now.
    pub(super) fn yields(&self) -> bool {
        self.carried.as_ref().is_none_or(|(carried, _)| carried.is_background)
    }

    /// Nanoseconds for which it was busy.
    pub(super) fn busy(&self, now: u64) -> u64 {
        self.busy + self.carried.as_ref().map_or(0, |(_, since)| now.saturating_sub(*since))
    }

    pub(super) fn is_idle(&self) -> bool {
        self.carried.is_none()
    }

    /// Begins a body, which may interrupt another one. Returns when it is transmitted, and its number.
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

    /// A body is transmitted, unless another one has become due instead.
    pub(super) fn end(&mut self, now: u64, number: u64) -> Option<Carried> {
        if number != self.number {
            return None;
        }
        let (body, since) = self.carried.take()?;
        self.busy += now - since;
        Some(body)
    }
}
