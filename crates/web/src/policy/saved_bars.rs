//! Bars as bytes: a URL is barred for a day, however long a process lasts.

use std::time::SystemTime;

use lull_cc::Timestamp;

use super::Policy;
use super::bars::Bars;

impl Policy {
    /// The first bytes of saved bars.
    pub const KEPT_BARS: &'static [u8] = b"lullbar\x01";

    /// The present bars, to be given to [`Policy::take_bars`] of another process. They name no URL: their
    /// holder can only check whether a given one is barred.
    pub fn encode_bars(&self, now: Timestamp, wall: SystemTime) -> Vec<u8> {
        let mut kept = Self::KEPT_BARS.to_vec();
        self.bars.encode(now, wall, &mut kept);
        // Older versions read a second list.
        Bars::default().encode(now, wall, &mut kept);
        kept
    }

    /// Continues with earlier bars, in place of the current ones. Returns false and changes nothing if they
    /// are malformed.
    pub fn take_bars(&mut self, kept: &[u8], now: Timestamp, wall: SystemTime) -> bool {
        let Some(mut kept) = kept.strip_prefix(Self::KEPT_BARS) else { return false };
        let taken = Bars::decode(&mut kept, now, wall).zip(Bars::decode(&mut kept, now, wall));
        let Some((bars, _)) = taken.filter(|_| kept.is_empty()) else { return false };
        self.bars.continue_with(bars);
        true
    }

    /// A number that increases when something is barred.
    pub fn bar_changes(&self) -> u64 {
        self.bars.changes
    }
}
