//! Situations that runs must reach to prove anything.

use core::fmt;

use lull_replication::origin::Strategy;
use lull_replication::{origin, replica};

macro_rules! situations {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// A situation that a run may meet.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Situation {
            $($(#[$doc])* $name,)*
        }

        impl Situation {
            /// All of them.
            pub const ALL: &[Situation] = &[$(Situation::$name,)*];
        }
    };
}

situations! {
    /// A rewrite replaced an older version in a queue.
    Absorbed,
    /// Speculative bodies were pushed.
    Pushed,
    /// A body came before its invalidation.
    EarlyBody,
    /// A body came after its invalidation was applied.
    LateBody,
    /// A body came after a newer version.
    StaleBody,
    /// A body was received with other bytes than were sent.
    Corrupted,
    /// A body was cut off on its way.
    BrokenOff,
    /// A replica found a body to be invalid, or not the announced one.
    Unusable,
    /// An invalidation was applied together with its body.
    AppliedWithBody,
    /// An invalidation was applied at its deadline, after some time.
    AppliedAtDeadline,
    /// An invalidation was applied on arrival, because the origin's strategy delays none.
    AppliedAtOnce,
    /// An invalidation was applied for a demand body or a token.
    AppliedOnDemand,
    /// A commit was applied without an overwritten body, because the newer one was stored.
    Overtaken,
    /// A commit of several changes was applied.
    Transaction,
    /// A commit went in parts.
    InParts,
    /// A transaction was rejected because it would have broken the tree.
    RefusedTransaction,
    /// A transaction was rejected because two paths would have differed only in case.
    CaseClash,
    /// Two objects existed whose paths differ only in case.
    BothCases,
    /// The origin was rolled back to an earlier state.
    Rollback,
    /// A replica that had been away for long compared trees.
    Resync,
    /// The log passed a replica that was comparing trees.
    ResyncAgain,
    /// A replica that had been away for longer than the hashes reach was rejected, and joined again.
    Forgotten,
    /// A replica read nothing for a while, and commits to announce to it were made.
    TookNothing,
    /// The log passed a replica that took nothing and stayed connected.
    PassedByLog,
    /// The acknowledgements of a replica were delayed for a while.
    AcknowledgedNothing,
    /// A read waited because no message of the origin had arrived for Δ, though earlier there were some.
    BlockedByLease,
    /// A read waited because no message had arrived since the start.
    BlockedAtStart,
    /// A read waited for an invalidation to be applied.
    BlockedByApplying,
    /// A read waited for a body.
    BlockedByBody,
    /// A read waited behind another one.
    BlockedByOrder,
    /// A read passed another one that waited.
    Passed,
    /// A read was cancelled while it waited.
    Cancelled,
    /// The demand of a read was withdrawn.
    Withdrawn,
    /// Before any of it had left.
    WithdrawnUnsent,
    /// A part of it had left, and the rest was cut off.
    WithdrawnBroken,
    /// All of it had left.
    WithdrawnLate,
    /// A read requested it before that was known.
    AwaitedAgain,
    /// A short body passed a long one that had left in part.
    Overtook,
    /// A session that had changed replicas waited for the newer state.
    TokenWaited,
    /// A read was answered only because the replica knew that it was disconnected.
    Masked,
    /// Invalidations were overdue when a connection came back.
    OverdueOnReconnect,
    /// A connection was closed because too many commits waited.
    Overfull,
    /// A heartbeat counted by the wall clock.
    SkewCertified,
    /// A heartbeat counted by its echo.
    SkewUncertified,
    /// The clocks were found further apart than maxSkew.
    SkewExceeded,
    /// A wall clock was set.
    ClockStepped,
    /// A message on the control channel took longer than Δ.
    Delayed,
    /// A connection was cut without notice to either side.
    Partition,
    /// A connection was reset, and messages in flight were lost.
    Reset,
    /// A message of an earlier connection arrived.
    StaleFrame,
    /// The origin crashed.
    OriginCrashed,
    /// Bodies waited for a replica when the origin crashed, and so the queue was lost.
    QueueLost,
    /// A replica crashed.
    ReplicaCrashed,
    /// A crash lost a body or a step that was being written.
    LostWrite,
    /// A crash left a body torn.
    TornBody,
    /// A write survived a crash of the origin without an acknowledgement.
    Unacknowledged,
    /// A body on a disk was corrupted, and a read found it.
    MissingBody,
    /// A body on the origin's disk became corrupt, and a read found it.
    LostAtOrigin,
    /// A start of the origin did not find a body.
    LostAtStart,
    /// A transaction was rejected because it relied on a lost body.
    RefusedLost,
    /// A body was held for the transaction that names it.
    Held,
    /// A lost body was written again.
    PutBack,
    /// The origin's disk was full, and a transaction was rejected for that.
    OriginFull,
    /// A replica's disk was full.
    ReplicaFull,
    /// A body was evicted because the disk or the quota was full.
    Evicted,
    /// A speculative body found no room.
    NoRoom,
    /// A body was stored already, under another name.
    Deduplicated,
    /// A body was wanted while it was being deleted.
    DropRaced,
    /// A file was opened in the version of its lookup, which was overwritten by then.
    Graced,
    /// Its body was gone by then.
    GoneVersion,
    /// A body that was open when it was evicted was fetched again.
    FetchedAgain,
    /// A session read an earlier state.
    SnapshotRead,
    /// It read a body there that was overwritten by then.
    SnapshotBody,
    /// The state that the client was reading is no longer available.
    SnapshotGone,
    /// A name was read that does not exist.
    AbsentRead,
    /// A name was looked up.
    LookedUp,
    /// A folder was listed, with all below it.
    Listed,
    /// A folder was listed like in a file system.
    NamesRead,
    /// A replica started that takes some names only.
    Subscribed,
    /// A session waited until a replica had a commit with its bodies, and it arrived.
    Arrived,
    /// The replica had shown it without them before.
    ArrivedLater,
    /// An origin restored from an old backup was refused: it is behind.
    BackupBehind,
    /// An origin restored from an old backup was refused: it has written past the cursor.
    BackupDiverged,
    /// A relay lost its parent, or had to compare trees, and closed the connections of its children.
    RelayCut,
    /// A child waited for a body that its relay had to fetch.
    RelayFetched,
    /// A child compared its tree with that of its relay.
    RelayCompared,
    /// A relay served another relay.
    RelayOfRelay,
    /// A session waited until a replica below a relay had a commit with its bodies, and it arrived.
    ArrivedBelow,
    /// A replica whose parent was lost was welcomed by another one.
    FoundParent,
    /// A relay passed on a body while it received it.
    PassedOn,
    /// The rest of such a body did not come.
    CutOffBehind,
}

impl Situation {
    /// Whether only runs with relays meet it.
    pub fn is_of_relays(self) -> bool {
        self >= Situation::RelayCut
    }
}

/// A set of situations.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Situations(u128);

const _: () = assert!(Situation::ALL.len() <= u128::BITS as usize);

impl Situations {
    /// Adds one.
    pub fn add(&mut self, situation: Situation) {
        self.0 |= 1 << situation as u32;
    }

    /// Adds one if it was counted.
    pub fn count(&mut self, situation: Situation, times: u64) {
        if times > 0 {
            self.add(situation);
        }
    }

    /// Whether it contains one.
    pub fn has(self, situation: Situation) -> bool {
        self.0 & (1 << situation as u32) != 0
    }

    pub(super) fn of_origin(&mut self, counters: &origin::Counters) {
        self.count(Situation::Absorbed, counters.absorbed);
        self.count(Situation::Pushed, counters.pushed);
        self.count(Situation::WithdrawnUnsent, counters.withdrawn);
        self.count(Situation::WithdrawnBroken, counters.broken_off);
        self.count(Situation::InParts, counters.in_parts);
        self.count(Situation::ResyncAgain, counters.resyncs_again);
        self.count(Situation::StaleFrame, counters.stale_frames);
        self.count(Situation::DropRaced, counters.dedup_waits);
    }

    pub(super) fn of_replica(&mut self, counters: &replica::Counters, strategy: Strategy) {
        if strategy.is_eager() {
            self.count(Situation::AppliedAtOnce, counters.at_once);
        }
        for (situation, times) in [
            (Situation::EarlyBody, counters.early),
            (Situation::LateBody, counters.late),
            (Situation::StaleBody, counters.stale),
            (Situation::Unusable, counters.corrupt),
            (Situation::AppliedWithBody, counters.with_bodies),
            (Situation::AppliedAtDeadline, counters.at_deadline),
            (Situation::AppliedOnDemand, counters.on_demand),
            (Situation::Overtaken, counters.overtaken),
            (Situation::Transaction, counters.transactions),
            (Situation::Resync, counters.resyncs),
            (Situation::BlockedByLease, counters.blocked_stale),
            (Situation::BlockedAtStart, counters.blocked_unheard),
            (Situation::BlockedByApplying, counters.blocked_applying),
            (Situation::BlockedByBody, counters.blocked_invalid),
            (Situation::BlockedByOrder, counters.blocked_order),
            (Situation::Passed, counters.passed),
            (Situation::Withdrawn, counters.withdrawn),
            (Situation::WithdrawnLate, counters.withdrawn_late),
            (Situation::AwaitedAgain, counters.awaited_again),
            (Situation::TokenWaited, counters.blocked_behind),
            (Situation::Masked, counters.masked),
            (Situation::OverdueOnReconnect, counters.overdue),
            (Situation::Overfull, counters.overfull),
            (Situation::SkewCertified, counters.certified),
            (Situation::SkewUncertified, counters.uncertified),
            (Situation::StaleFrame, counters.stale_frames),
            (Situation::MissingBody, counters.missing),
            (Situation::Evicted, counters.evicted),
            (Situation::NoRoom, counters.refused),
            (Situation::Deduplicated, counters.deduplicated),
            (Situation::DropRaced, counters.dedup_waits),
        ] {
            self.count(situation, times);
        }
    }
}

impl fmt::Debug for Situations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(Situation::ALL.iter().filter(|one| self.has(**one))).finish()
    }
}
