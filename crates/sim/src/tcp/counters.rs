//! What the two ends of a connection count.

/// What a sender has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderCounters {
    /// Segments sent, with those sent again.
    pub segments: u64,
    /// Segments sent again.
    pub retransmissions: u64,
    /// Payload acknowledged, in bytes.
    pub acknowledged_bytes: u64,
    /// Segments found lost, without those that a timeout took for lost.
    pub losses: u64,
    /// Fast recoveries begun.
    pub recoveries: u64,
    /// Timeouts.
    pub timeouts: u64,
    /// Reductions for echoes of congestion.
    pub marks: u64,
}

/// What a receiver has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverCounters {
    /// Segments that arrived for the first time.
    pub segments: u64,
    /// Payload that arrived for the first time, in bytes: goodput.
    pub bytes: u64,
    /// Segments that had arrived before.
    pub duplicates: u64,
    /// Segments marked "congestion experienced".
    pub marked: u64,
}
