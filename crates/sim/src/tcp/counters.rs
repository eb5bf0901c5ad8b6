//! The counters of the two ends of a connection.

/// The counters of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderCounters {
    /// Segments sent, including retransmissions.
    pub segments: u64,
    /// Retransmitted segments.
    pub retransmissions: u64,
    /// Payload acknowledged, in bytes.
    pub acknowledged_bytes: u64,
    /// Segments found lost, without those that a timeout marked as lost.
    pub losses: u64,
    /// Fast recoveries begun.
    pub recoveries: u64,
    /// Timeouts.
    pub timeouts: u64,
    /// Reductions for echoes of congestion.
    pub marks: u64,
}

/// The counters of a receiver.
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
