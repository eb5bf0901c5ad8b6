//! The limits of an observer.

use core::time::Duration;
use std::io::{self, Read, Write};

use lull_cc::Bytes;

use crate::encoding::{AGED, ReadError, Sink, Source};

/// The lower bits of a [`UrlId`] are a place in the table, the upper ones count its occupants.
pub(super) const PLACE_BITS: u32 = 24;
/// Longer paths are not kept.
pub(crate) const MAX_PATH_BYTES: usize = 1024;

/// Limits of an observer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// URLs: 64 bytes each, up to 22 for the index, and the path; under 2^24.
    pub urls: usize,
    /// The paths of all URLs together, at least the length of the longest, 1 KiB.
    pub path_bytes: Bytes,
    /// Clients: up to 1.3 kB each; under 2^32.
    pub sessions: usize,
    /// A session ends, and its client is forgotten, this long after its last request; under 500 years.
    pub session_window: Duration,
    /// A request counts half after this time; a second at least, and under 500 years.
    pub half_life: Duration,
    /// Or after this many answers, if they take longer: so a quiet site keeps its knowledge. 1 or more.
    pub visits_per_half_life: u32,
}

/// Longer times are useless, and their nanoseconds overflow.
pub(crate) const MAX_TIME: Duration = Duration::from_secs(500 * 366 * 24 * 3600);

/// Chosen by the validation slices of three logs: `docs/predictor.md`.
const VISITS_PER_HALF_LIFE: u32 = 50_000;

impl Default for Limits {
    /// A million URLs with paths of 256 bytes on average, 65,536 clients, half an hour, and a week. The
    /// papers have no such limits. Half an hour is what statistics of sites regard as the end of a visit,
    /// after the 25.5 minutes of Catledge and Pitkow (1995).
    fn default() -> Self {
        Limits {
            urls: 1 << 20,
            path_bytes: Bytes(256 << 20),
            sessions: 1 << 16,
            session_window: Duration::from_secs(30 * 60),
            half_life: Duration::from_secs(7 * 24 * 3600),
            visits_per_half_life: VISITS_PER_HALF_LIFE,
        }
    }
}

impl Limits {
    /// The field that is out of its range.
    pub(super) fn fault(&self) -> Option<&'static str> {
        let is_time = |time: Duration| time < MAX_TIME;
        if !(1..1 << PLACE_BITS).contains(&self.urls) {
            Some("limit of URLs")
        } else if self.path_bytes.0 < MAX_PATH_BYTES as u64 {
            Some("limit of paths")
        } else if self.sessions == 0 || u32::try_from(self.sessions).is_err() {
            Some("limit of clients")
        } else if !is_time(self.session_window) {
            Some("window of a session")
        } else if self.half_life.as_secs() == 0 || !is_time(self.half_life) {
            Some("half-life")
        } else if self.visits_per_half_life == 0 {
            Some("answers of a half-life")
        } else {
            None
        }
    }

    pub(crate) fn write<W: Write>(&self, to: &mut Sink<W>) -> io::Result<()> {
        to.count(self.urls)?;
        to.u64(self.path_bytes.0)?;
        to.count(self.sessions)?;
        to.duration(self.session_window)?;
        to.duration(self.half_life)?;
        to.u32(self.visits_per_half_life)
    }

    pub(crate) fn read<R: Read>(from: &mut Source<R>) -> Result<Self, ReadError> {
        let is_aged = from.version() >= AGED;
        let limits = Limits {
            urls: from.count()?,
            path_bytes: Bytes(from.u64()?),
            sessions: from.count()?,
            session_window: from.duration()?,
            half_life: from.duration()?,
            visits_per_half_life: if is_aged { from.u32()? } else { VISITS_PER_HALF_LIFE },
        };
        limits.fault().map_or(Ok(limits), |fault| Err(ReadError::Invalid(fault)))
    }
}
