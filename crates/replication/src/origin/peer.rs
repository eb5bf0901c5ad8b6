//! The origin's knowledge of one replica.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::arrivals::{InPart, UnderWay};
use super::demands::Demands;
use super::follow::{Beat, Pings};
use super::interface::Config;
use super::price::Price;
use super::queue::{Order, QueuePosition, Waiting};
use crate::merkle::MerkleTree;
use crate::message::{
    Ask, Frame, Refusal, Report, Session, Start, ToReplica, Tree, Urgent, Wanted,
};
use crate::path::Path;
use crate::subscription::Subscription;
use crate::time::{LocalTime, WallTime};
use crate::types::{Digest, Incarnation, Position, Sequence};
use crate::wire::OLDEST;

/// A tree for comparisons with replicas, and its position.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) position: Position,
    pub(crate) stamp: WallTime,
    pub(crate) tree: MerkleTree,
}

/// ```text
///              Hello                        Hello, log too short
///   (away) ──────────▶ Streaming      (away) ──────────────────▶ Preparing ──▶ Resyncing
///      ▲                  │  ▲                                       ▲          │  │
///      │ disconnected     │  └───────────────────────────────────────┼──────────┘  │ the log has passed
///      └──────────────────┘                Resynced                  └─────────────┘ the snapshot
/// ```
#[derive(Debug)]
pub(crate) enum Phase {
    /// Invalidations follow the log.
    Streaming,
    /// It waits for a snapshot.
    Preparing,
    /// The replica compares its tree with a snapshot.
    Resyncing { snapshot: Arc<Snapshot>, answers: VecDeque<Answer> },
}

/// A part of the tree to be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    Branches,
    Leaves(u8),
    /// The entries of the leaf after this many that were sent already.
    Entries(u16, usize),
}

/// A connection to a replica.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) session: Session,
    pub(crate) phase: Phase,
    /// Sent before anything else.
    pub(crate) greeting: Option<Start>,
    /// The last commit whose invalidation was handed out in full.
    pub(crate) cursor: Sequence,
    /// Number of handed-out changes of the next one.
    pub(crate) part: usize,
    pub(crate) echo: Option<LocalTime>,
    pub(crate) heartbeat_at: LocalTime,
    /// At a relay: the last heartbeat of its origin that was not passed on, and the pings for which there was none.
    pub(crate) beat: Option<Beat>,
    pub(crate) pings: Pings,
    /// Answers about replicas of this relay.
    pub(crate) vouched: VecDeque<(u64, Option<Refusal>)>,
    pub(crate) demands: Demands,
    /// The last commit whose pushed bodies were all handed out, and the number of changes checked in the next
    /// one. Only for strategies that push in order.
    pub(crate) bodies: Sequence,
    pub(crate) body: usize,
    /// Handed-out speculative bodies, and sent ones that reads wait for there.
    pub(crate) pushed: UnderWay,
    pub(crate) fetched: UnderWay,
    /// How many pieces of bodies the replica has from earlier transfers.
    pub(crate) partial: BTreeMap<Digest, u32>,
    /// The version of the protocol that it speaks.
    pub(crate) protocol: u16,
    /// The pieces that the replica wants, by whether the body comes for a read, and its number on that channel.
    pub(crate) wanted: BTreeMap<(bool, u64), Wanted>,
    /// The pushed body that is sent in pieces, or was.
    pub(crate) in_part: Option<InPart>,
    /// To a relay: what is urgent below it, and whether that is still to be sent.
    pub(crate) urgent: Vec<Urgent>,
    pub(crate) owes_urgent: bool,
    /// The replica has reported the bodies that it lacks, apart from those known to wait.
    pub(crate) accounted: bool,
    /// It was empty when it connected, and compares its tree with the first one.
    pub(crate) is_new: bool,
}

impl Link {
    /// It follows the log from `cursor` on.
    pub(crate) fn new(session: Session, cursor: Sequence, now: LocalTime) -> Self {
        Link {
            session,
            phase: Phase::Streaming,
            greeting: Some(Start::Log),
            cursor,
            part: 0,
            bodies: cursor,
            body: 0,
            echo: None,
            heartbeat_at: now,
            beat: None,
            pings: Pings::default(),
            vouched: VecDeque::new(),
            demands: Demands::default(),
            pushed: UnderWay::default(),
            fetched: UnderWay::default(),
            partial: BTreeMap::new(),
            protocol: OLDEST,
            wanted: BTreeMap::new(),
            in_part: None,
            urgent: Vec::new(),
            owes_urgent: false,
            accounted: false,
            is_new: false,
        }
    }

    /// The replica compares its tree with a snapshot, from whose position on commits are announced.
    pub(crate) fn compare(&mut self, snapshot: &Arc<Snapshot>) {
        let Snapshot { position, stamp, tree } = &**snapshot;
        let phase = Phase::Resyncing { snapshot: Arc::clone(snapshot), answers: VecDeque::new() };
        self.restart(phase, position.sequence);
        let (position, stamp, root) = (*position, *stamp, tree.root());
        self.greeting = Some(Start::Resync { position, stamp, root });
    }

    /// Continues from `cursor`.
    pub(crate) fn restart(&mut self, phase: Phase, cursor: Sequence) {
        (self.phase, self.cursor, self.part, self.greeting) = (phase, cursor, 0, None);
        (self.bodies, self.body) = (cursor, 0);
        self.accounted = false;
    }

    pub(crate) fn frame(&self, message: ToReplica) -> Frame<ToReplica> {
        Frame { session: self.session, message }
    }

    /// A ping has arrived, to which a relay has no answer of its own. Returns whether the replica has reported its
    /// missing bodies, for the first time.
    pub(crate) fn handle_ping(&mut self, now: LocalTime, sent: LocalTime, is_relay: bool) -> bool {
        if is_relay {
            self.pings.add(now, sent);
        } else {
            // Answered at once: a replica with a small Δ pings more often than others.
            (self.echo, self.heartbeat_at) = (Some(sent), self.heartbeat_at.min(now));
        }
        // They come before the first ping.
        let accounts = matches!(self.phase, Phase::Streaming) && !self.accounted;
        self.accounted |= accounts;
        accounts
    }

    /// The replica has taken over a state; returns whether it may have.
    pub(crate) fn handle_resynced(&mut self, sequence: Sequence) -> bool {
        match &self.phase {
            Phase::Resyncing { snapshot, .. } if snapshot.position.sequence == sequence => {
                self.phase = Phase::Streaming;
                self.cursor = sequence;
                self.part = 0;
                (self.accounted, self.is_new) = (false, false);
                true
            }
            // An older snapshot, whose replacement is made or on its way there.
            Phase::Resyncing { .. } | Phase::Preparing => true,
            Phase::Streaming => false,
        }
    }

    /// Queues a question about the tree of a state; returns whether it is valid now. A replica asks for each
    /// part once, so the queue is bounded by the tree.
    pub(crate) fn ask(&mut self, of: Sequence, part: Ask) -> bool {
        /// All parts of a tree.
        const PARTS: usize = 1 + (1 << 8) + (1 << 16);
        let (snapshot, answers) = match &mut self.phase {
            Phase::Streaming => return false,
            // It is about another tree, whose replacement is being made.
            Phase::Preparing => return true,
            Phase::Resyncing { snapshot, answers } => (snapshot, answers),
        };
        if snapshot.position.sequence != of {
            // The message that another tree has replaced it is in flight.
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

    /// The next requested part of the tree. A leaf goes in parts as a commit does: with chosen names, it may
    /// have more entries than any message.
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
    /// The newest connection that has sent hello: the hello of an older one comes too late.
    pub(crate) newest: (Incarnation, u32),
    /// To be sent, and nothing after it.
    pub(crate) refused: Option<(Session, Refusal)>,
    /// The names whose bodies are pushed to it.
    pub(crate) only: Subscription,
    /// The price of its link.
    pub(crate) price: Price,
    /// Bodies of all these names are to wait: those up to this object do, if it is given.
    pub(crate) filling: Option<Option<Path>>,
    /// Bodies that wait. They are kept while it is away, and lost when the origin crashes (SSR §6.2.3.1).
    pub(crate) waiting: Waiting,
    /// At a relay: bodies whose turn has passed, and that are not here. They wait when they arrive.
    pub(crate) absent: Waiting,
    /// Bodies that make room for those that are urgent below.
    pub(crate) aside: Waiting,
    /// All bodies that are urgent below were sent, as far as they are here. So those aside are sent, in the background.
    pub(crate) rests: bool,
    /// In its last connection, it had reported the bodies that it lacks.
    pub(crate) accounted: bool,
    /// Up to where it has reported to answer reads.
    pub(crate) committed: Sequence,
    /// When its last message arrived; none if it was not admitted in this life of the origin.
    pub(crate) heard: Option<LocalTime>,
    /// Its last report, and when that arrived.
    pub(crate) report: Option<(LocalTime, Report)>,
}

impl Peer {
    /// The bodies of all objects wait.
    pub(crate) fn queue_all(&mut self, objects: &Order) {
        (self.absent, self.aside) = (Waiting::default(), Waiting::default());
        if self.only.is_all() {
            self.waiting.fill(objects);
        } else {
            self.filling = Some(None);
        }
    }

    /// The body of an object waits, if the replica subscribes to it. Returns whether it was waiting before.
    pub(crate) fn queue(&mut self, path: &Path, position: QueuePosition) -> bool {
        // Whether it is here is found when its turn comes.
        self.absent.remove(position);
        self.aside.remove(position);
        self.only.has(path) && !self.waiting.insert(position)
    }

    /// A new tree is for a replica that waits for one, and for one that compares. Returns whether it replaces an
    /// older one.
    pub(crate) fn compare_with(&mut self, snapshot: &Arc<Snapshot>, objects: &Order) -> bool {
        let comparing = |link: &&mut Link| !matches!(link.phase, Phase::Streaming);
        let Some(link) = self.link.as_mut().filter(comparing) else { return false };
        let again = matches!(link.phase, Phase::Resyncing { .. });
        link.compare(snapshot);
        if link.is_new {
            // It reports nothing as missing, and in order this is skipped.
            self.queue_all(objects);
        }
        again
    }
}
