//! Seeded bugs: the checker and the simulation must find each of them.
//!
//! Only `Origin::seed_fault`, `Replica::seed_fault` and `Relay::seed_fault` set one. The daemons never call them.

/// A bug that breaks a promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// A body becomes visible before the invalidations of earlier commits.
    BodyBeforeInvalidations,
    /// After a reconnection invalidations continue from the last one sent, not from the last one received.
    InvalidationLostOnReconnect,
    /// The lease counts from when a heartbeat arrives.
    ArrivalTimeLease,
    /// The bound of the skew is added instead of subtracted.
    SkewWithTheWrongSign,
    /// The origin acknowledges before the log is on stable storage.
    AcknowledgementBeforeDurable,
    /// A replica answers with state that is not on stable storage, and its lease outlives it. With a lease
    /// that ends with its process this would not be visible: before it answers again, a replica has received
    /// everything that it had answered with.
    RestartThatGoesBack,
    /// Parts of a large commit become visible one by one.
    HalfATransaction,
    /// A relay answers its children's pings by itself, before its origin has.
    RelayAnswersPings,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 8] = [
        Fault::BodyBeforeInvalidations,
        Fault::InvalidationLostOnReconnect,
        Fault::ArrivalTimeLease,
        Fault::SkewWithTheWrongSign,
        Fault::AcknowledgementBeforeDurable,
        Fault::RestartThatGoesBack,
        Fault::HalfATransaction,
        Fault::RelayAnswersPings,
    ];
}

/// Which seeded bug a state machine has, if any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Faults(Option<Fault>);

impl Faults {
    pub(crate) const fn seeded(fault: Option<Fault>) -> Self {
        Faults(fault)
    }

    pub(crate) fn has(self, fault: Fault) -> bool {
        self.0 == Some(fault)
    }
}
