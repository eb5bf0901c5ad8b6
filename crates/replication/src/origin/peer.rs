//! What an origin knows of one replica.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::arrivals::UnderWay;
use super::demands::Demands;
use super::interface::Config;
use super::queue::Waiting;
use super::ranking::Ranked;
use crate::merkle::MerkleTree;
use crate::message::{Ask, Frame, Refusal, Report, Session, Start, ToReplica, Tree};
use crate::path::Path;
use crate::time::{LocalTime, WallTime};
use crate::types::{Incarnation, Position, Sequence};

/// A tree that replicas compare theirs with, and what it is the state of.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) position: Position,
    pub(crate) stamp: WallTime,
    pub(crate) tree: MerkleTree,
}

impl Snapshot {
    /// A re-sync with it: what a replica is told, and from where on it is told of commits.
    pub(crate) fn compare(self: &Arc<Self>) -> (Start, Phase, Sequence) {
        let Position { sequence, .. } = self.position;
        let root = self.tree.root();
        let start = Start::Resync { position: self.position, stamp: self.stamp, root };
        let phase = Phase::Resyncing { snapshot: Arc::clone(self), answers: VecDeque::new() };
        (start, phase, sequence)
    }
}

/// ```text
///              Hello                        Hello, log too short
///   (away) ──────────▶ Streaming      (away) ──────────────────▶ Resyncing
///      ▲                  │  ▲                                     │  │
///      │ disconnected     │  └─────────────────────────────────────┘  │ the log has passed
///      └──────────────────┘                Resynced                   │ the snapshot
///                                  Resyncing (a newer one) ◀──────────┘
/// ```
#[derive(Debug)]
pub(crate) enum Phase {
    /// Invalidations follow the log.
    Streaming,
    /// The replica compares its tree with a snapshot.
    Resyncing { snapshot: Arc<Snapshot>, answers: VecDeque<Answer> },
}

/// A part of the tree to be told.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    Branches,
    Leaves(u8),
    /// What stands in the leaf, without so many that were told already.
    Entries(u16, usize),
}

/// A connection to a replica.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) session: Session,
    pub(crate) phase: Phase,
    /// Said before anything else.
    pub(crate) greeting: Option<Start>,
    /// The last commit whose invalidation was handed out in full.
    pub(crate) cursor: Sequence,
    /// Changes of the next one that were.
    pub(crate) part: usize,
    pub(crate) echo: Option<LocalTime>,
    pub(crate) heartbeat_at: LocalTime,
    pub(crate) demands: Demands,
    /// The last commit of which all bodies were handed out that are pushed with it, and changes of the
    /// next one that were looked at. Only of strategies that push in order.
    pub(crate) bodies: Sequence,
    pub(crate) body: usize,
    /// Speculative bodies that were handed out, and those that reads wait for there and that were sent.
    pub(crate) pushed: UnderWay,
    pub(crate) fetched: UnderWay,
    /// It has said which bodies it lacks, if any that are not known to wait.
    pub(crate) accounted: bool,
    /// It had nothing when it came, and compares its tree with the first one.
    pub(crate) is_new: bool,
}

impl Link {
    pub(crate) fn new(session: Session, start: (Start, Phase, Sequence), now: LocalTime) -> Self {
        let (greeting, phase, cursor) = start;
        Link {
            session,
            phase,
            greeting: Some(greeting),
            cursor,
            part: 0,
            bodies: cursor,
            body: 0,
            echo: None,
            heartbeat_at: now,
            demands: Demands::default(),
            pushed: UnderWay::default(),
            fetched: UnderWay::default(),
            accounted: false,
            is_new: false,
        }
    }

    /// Goes on from `cursor`.
    pub(crate) fn restart(&mut self, phase: Phase, cursor: Sequence) {
        (self.phase, self.cursor, self.part) = (phase, cursor, 0);
        (self.bodies, self.body) = (cursor, 0);
        self.accounted = false;
    }

    pub(crate) fn frame(&self, message: ToReplica) -> Frame<ToReplica> {
        Frame { session: self.session, message }
    }

    /// Takes a question about the tree of a state in; whether it is one that may be asked now. A
    /// replica asks for each part once, so what waits is bounded by the tree.
    pub(crate) fn ask(&mut self, of: Sequence, part: Ask) -> bool {
        /// All parts of a tree.
        const PARTS: usize = 1 + (1 << 8) + (1 << 16);
        let Phase::Resyncing { snapshot, answers } = &mut self.phase else { return false };
        if snapshot.position.sequence != of {
            // That another tree has taken its place is on its way there.
            return true;
        }
        match part {
            Ask::Branches => answers.push_back(Answer::Branches),
            Ask::Leaves(branches) => answers.extend(branches.into_iter().map(Answer::Leaves)),
            Ask::Entries(leaves) => {
                answers.extend(leaves.into_iter().map(|leaf| Answer::Entries(leaf, 0)));
            }
        }
        answers.len() <= PARTS
    }

    /// The next part of the tree that was asked for. A leaf goes in parts as a commit does: by names that were
    /// chosen for it, it may have more in it than any message.
    pub(crate) fn answer(&mut self, config: &Config) -> Option<ToReplica> {
        let Phase::Resyncing { snapshot, answers } = &mut self.phase else { return None };
        let tree = &snapshot.tree;
        let part = match answers.pop_front()? {
            Answer::Branches => Tree::Branches(tree.branches()),
            Answer::Leaves(branch) => Tree::Leaves(branch, tree.leaves(branch)),
            Answer::Entries(leaf, told) => {
                let left = &tree.entries(leaf)[told..];
                let (part, rest) = left.split_at(config.first_entries(left));
                let more = !rest.is_empty();
                if more {
                    answers.push_front(Answer::Entries(leaf, told + part.len()));
                }
                Tree::Entries { leaf, entries: part.to_vec(), more }
            }
        };
        Some(ToReplica::Tree { of: snapshot.position.sequence, part })
    }
}

/// A replica, connected or not.
#[derive(Debug, Default)]
pub(crate) struct Peer {
    pub(crate) link: Option<Link>,
    /// The newest connection that has said hello: an older one's hello comes too late.
    pub(crate) newest: (Incarnation, u32),
    /// To be told, and nothing after it.
    pub(crate) refused: Option<(Session, Refusal)>,
    /// Bodies that wait. Kept while it is away; lost when the origin crashes (SSR §6.2.3.1).
    pub(crate) waiting: Waiting,
    /// Of its last connection: it had said which bodies it lacks.
    pub(crate) accounted: bool,
    /// Up to where it has said that it answers reads.
    pub(crate) committed: Sequence,
    /// When it said anything last; none if it was not let in in this life of the origin.
    pub(crate) heard: Option<LocalTime>,
    /// How it was, and when it said so.
    pub(crate) report: Option<(LocalTime, Report)>,
}

impl Peer {
    /// The bodies of all objects wait.
    pub(crate) fn queue_all(&mut self, objects: &BTreeMap<Path, Ranked>) {
        for ranked in objects.values() {
            self.waiting.insert(ranked.place);
        }
    }

    /// A new tree takes the place of the one that it is being compared with, if it is; whether it is.
    pub(crate) fn compare_anew(
        &mut self,
        snapshot: &Arc<Snapshot>,
        objects: &BTreeMap<Path, Ranked>,
    ) -> bool {
        let comparing = |link: &&mut Link| matches!(link.phase, Phase::Resyncing { .. });
        let Some(link) = self.link.as_mut().filter(comparing) else { return false };
        let (start, phase, cursor) = snapshot.compare();
        link.greeting = Some(start);
        link.restart(phase, cursor);
        if link.is_new {
            // It says of nothing that it lacks it, and in order this is passed over.
            self.queue_all(objects);
        }
        true
    }
}
