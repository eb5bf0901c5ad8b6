//! Many writers, as a prototype: each has a subtree and a log, and replicas keep causal order across the logs
//! ([decision 27](../../../../docs/adr/0027-each-subtree-has-one-writer.md); SSR §7 names PRACTI as later work).
//!
//! | module | contents |
//! |---|---|
//! | [`Vector`] | a position in each log |
//! | `writer` | accepts writes, and stamps each commit with all that it depends on |
//! | `replica` | applies a commit when its dependencies are applied, and answers reads |
//! | `world` | networks and machines that fail, and clients |
//! | [`checker`] | finds broken promises, without the stamps |
//!
//! ```text
//!  client ── write + token ─▶ writer ── commit + stamp ─▶ replica ◀─ read + token ── client
//!            ◀── stamp ──────        ── heartbeat ──────▶         ── values + token ─▶
//! ```
//!
//! No product feature uses this module.

pub mod checker;
mod link;
mod replica;
#[cfg(test)]
mod tests;
mod vector;
mod world;
mod writer;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use checker::Violation;
pub use vector::Vector;

/// A writer, which is also its log and its subtree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WriterId(pub usize);

/// A client with its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionId(pub usize);

/// An object, which belongs to one subtree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Object {
    /// The writer of its subtree.
    pub owner: WriterId,
    /// Its number in the subtree.
    pub number: u32,
}

/// A write. It is also the value of the objects that it changed, so a value identifies the commit that wrote
/// it. Zero is the value before the first write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct WriteId(pub u64);

/// A commit of one log.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Commit {
    /// The least state that contains the commit and all that it depends on. At its own writer it is the
    /// commit's position.
    stamp: Vector,
    write: WriteId,
    /// The objects that the write changed, in the subtree of the writer.
    objects: BTreeSet<Object>,
}

/// A bug that is put into the prototype. The checker has to find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeededBug {
    /// A replica applies each log in order, without waiting for commits of other logs.
    IgnoresDependencies,
    /// Tokens lose the position in the first log.
    TokenForgetsWriter,
    /// A client sends no token with a write, so that its commit depends on nothing that it has read.
    WritesWithoutToken,
    /// A stamp has what the client depends on, but not what earlier commits of the same log depend on.
    StampForgetsLog,
    /// A replica ignores tokens of reads.
    IgnoresTokens,
    /// A replica applies the objects of a commit one after the other.
    AppliesHalf,
    /// A heartbeat counts although commits before it still wait for their dependencies.
    LeaseIgnoresWaiting,
    /// A writer acknowledges a write before it is durable.
    AcknowledgesBeforeSync,
}

impl SeededBug {
    /// All of them.
    pub const ALL: [SeededBug; 8] = [
        SeededBug::IgnoresDependencies,
        SeededBug::TokenForgetsWriter,
        SeededBug::WritesWithoutToken,
        SeededBug::StampForgetsLog,
        SeededBug::IgnoresTokens,
        SeededBug::AppliesHalf,
        SeededBug::LeaseIgnoresWaiting,
        SeededBug::AcknowledgesBeforeSync,
    ];
}

/// Something that a run should meet: without it, the run proves nothing about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Situation {
    /// A commit arrived before a commit of another log that it depends on.
    CommitWaited,
    /// A read waited for a commit that its session had seen.
    SessionWaited,
    /// A read waited because the replica had not heard from a writer for Δ.
    LeaseWaited,
    /// A read of one subtree was answered while the replica had no lease of another one.
    AnsweredWhileCut,
    /// A writer restarted with writes that were not durable.
    WriteLost,
    /// A replica restarted with commits that were not applied.
    ReplicaRestarted,
    /// A client never learned the result of its write.
    ResultUnknown,
}

impl Situation {
    /// All of them.
    pub const ALL: [Situation; 7] = [
        Situation::CommitWaited,
        Situation::SessionWaited,
        Situation::LeaseWaited,
        Situation::AnsweredWhileCut,
        Situation::WriteLost,
        Situation::ReplicaRestarted,
        Situation::ResultUnknown,
    ];
}

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The seed of all draws.
    pub seed: u64,
    /// Writers, and so subtrees.
    pub writers: usize,
    /// Replicas. Each has all subtrees.
    pub replicas: usize,
    /// Clients.
    pub sessions: usize,
    /// For how long clients work and machines fail. Then everything is repaired.
    pub time: Duration,
    /// Δ of each subtree.
    pub delta: Duration,
    /// The bug.
    pub bug: Option<SeededBug>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            seed: 0,
            writers: 3,
            replicas: 3,
            sessions: 4,
            time: Duration::from_secs(60),
            delta: Duration::from_secs(2),
            bug: None,
        }
    }
}

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Reads that were answered.
    pub reads: usize,
    /// Writes that were acknowledged.
    pub writes: usize,
    /// The situations that occurred.
    pub situations: BTreeSet<Situation>,
    /// The broken promises.
    pub violations: Vec<Violation>,
    /// The parts that did not settle after everything was repaired.
    pub stuck: Vec<String>,
}

/// Runs it.
pub fn run(options: Options) -> Outcome {
    world::World::new(options).run()
}

/// The values of some objects.
type Values = BTreeMap<Object, WriteId>;
