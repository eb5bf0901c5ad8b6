//! Bugs to be sown, so that the checker and the simulation can show that they find them.
//!
//! Without the feature `simulate` there are none: [`Faults::has`] is `false` at compile time.

/// A bug that breaks a promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    not(feature = "simulate"),
    allow(
        dead_code,
        unreachable_pub,
        reason = "named by the state machines; what asks for one is compiled away"
    )
)]
pub enum Fault {
    /// A body becomes visible before the invalidations of earlier commits.
    BodyBeforeInvalidations,
    /// After a reconnection invalidations go on where they were sent, not where they were received.
    InvalidationLostOnReconnect,
    /// The lease counts from when a heartbeat arrives.
    ArrivalTimeLease,
    /// The bound of the skew is added where it is to be subtracted.
    SkewWithTheWrongSign,
    /// The origin acknowledges before the log is on stable storage.
    AcknowledgementBeforeDurable,
    /// A replica answers with state that is not on stable storage, and its lease outlives it. With a
    /// lease that ends with its process nobody would notice: before it answers again a replica has
    /// heard of everything that it had answered with.
    RestartThatGoesBack,
    /// Parts of a large commit become visible one by one.
    HalfATransaction,
}

#[cfg(feature = "simulate")]
impl Fault {
    /// All of them.
    pub const ALL: [Fault; 7] = [
        Fault::BodyBeforeInvalidations,
        Fault::InvalidationLostOnReconnect,
        Fault::ArrivalTimeLease,
        Fault::SkewWithTheWrongSign,
        Fault::AcknowledgementBeforeDurable,
        Fault::RestartThatGoesBack,
        Fault::HalfATransaction,
    ];
}

/// Which bugs a state machine has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Faults {
    #[cfg(feature = "simulate")]
    sown: Option<Fault>,
}

impl Faults {
    #[cfg(feature = "simulate")]
    pub(crate) const fn sown(fault: Option<Fault>) -> Self {
        Faults { sown: fault }
    }

    #[cfg(feature = "simulate")]
    pub(crate) fn has(self, fault: Fault) -> bool {
        self.sown == Some(fault)
    }

    #[cfg(not(feature = "simulate"))]
    pub(crate) const fn has(self, _: Fault) -> bool {
        false
    }
}
