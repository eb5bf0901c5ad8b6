//! Parts of Lull that an ablation leaves out, to show what each contributes. The kernel has all of them.

/// A part of Lull.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A return begins from the remembered window.
    Memory,
    /// The floor's pause depends on the path's rate, not on its round-trip time and the connections.
    FloorByTime,
    /// Pairs leave within the times after which programs give up.
    MinimumProgress,
    /// The rules for shallow buffers.
    ShallowRules,
    /// Jitter is no queue.
    NoiseFloor,
    /// Trains show others where routers keep flows apart.
    Trains,
    /// A trial shows whether the path is longer.
    LongerPath,
    /// A round with a queue may empty it on a path that hosts share.
    EmptyingRound,
}

/// Parts that are left out; none by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LeftOut(u16);

impl LeftOut {
    pub(super) fn add(&mut self, part: Part) {
        self.0 |= 1 << part as u16;
    }

    pub(super) fn has(self, part: Part) -> bool {
        self.0 & 1 << part as u16 != 0
    }
}
