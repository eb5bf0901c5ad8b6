//! The messages of the control channel.

use lull_cc::Bytes;

use super::cursor::{Reader, Writer};
use super::sealed::Coded;
use super::{WireError, reports};
use crate::message::{
    Ask, MAX_BELOW, MAX_CHANGES, MAX_ENTRIES, MAX_NEIGHBOURS, MAX_PARTIAL, MAX_PATHS, MAX_RANGES,
    MAX_RELAYS, MAX_URGENT, MAX_URGENT_REPLICAS, Neighbour, Refusal, Start, ToOrigin, ToReplica,
    Tree, Urgent, Vouch, Wanted,
};
use crate::path::Path;
use crate::subscription::{MAX_PATTERN_BYTES, MAX_PATTERNS, Pattern, Subscription};
use crate::types::{Change, Content, Version};

/// The maximum frame of replicas: [`MAX_PATHS`] of the longest paths, with counts, are 4.1 MB.
const MAX_TO_ORIGIN_BYTES: usize = 5 << 20;
/// The maximum frame of the origin: [`MAX_CHANGES`] changes of the longest paths are 4.1 MB, and so are
/// [`MAX_ENTRIES`] entries of a leaf.
const MAX_TO_REPLICA_BYTES: usize = 5 << 20;

const PATHS: (&str, usize) = ("paths", MAX_PATHS);
const PATTERNS: (&str, usize) = ("patterns", MAX_PATTERNS);
const PARTIAL: (&str, usize) = ("partial bodies", MAX_PARTIAL);
const RANGES: (&str, usize) = ("ranges", MAX_RANGES);
const RELAYS: (&str, usize) = ("relays", MAX_RELAYS);
const BELOW: (&str, usize) = ("replicas", MAX_BELOW);
const NEIGHBOURS: (&str, usize) = ("neighbours", MAX_NEIGHBOURS);
const URGENT: (&str, usize) = ("publications", MAX_URGENT);
const URGENT_REPLICAS: (&str, usize) = ("replicas", MAX_URGENT_REPLICAS);
/// A path, and a slash.
const PREFIX: (&str, usize) = ("prefix", 4_096);
const CHANGES: (&str, usize) = ("changes", MAX_CHANGES);
const BRANCHES: (&str, usize) = ("branches", 1 << 8);
const LEAVES: (&str, usize) = ("leaves", 1 << 16);
const LEAVES_OF_A_BRANCH: (&str, usize) = ("leaves", 1 << 8);
const ENTRIES: (&str, usize) = ("entries", MAX_ENTRIES);

/// The fewest bytes of a path, a pattern, a change, an entry of a leaf.
const PATH: usize = 2 + 1;
const PATTERN: usize = 2 + 1;
const CHANGE: usize = PATH + 1;
const ENTRY: usize = PATH + VERSION;
/// The fewest bytes of a content, and of a version: two more if mode bits follow.
const CONTENT: usize = 49;
const VERSION: usize = 8 + CONTENT;
const MODE: usize = 2;
/// The bytes of a neighbour: number, hash, address.
const NEIGHBOUR: usize = 4 + 32 + 18;
/// The fewest bytes of an urgent publication.
const SHORTEST_URGENT: usize = 8 + 2 + 4;

fn length_of_content(content: &Content) -> usize {
    CONTENT + content.metadata.mode_code().1.map_or(0, |_| MODE)
}

/// The bytes of a change in an invalidation.
pub(crate) fn length_of(change: &Change) -> usize {
    2 + change.path.as_bytes().len() + 1 + change.content.as_ref().map_or(0, length_of_content)
}

/// The bytes of an entry of a leaf.
pub(crate) fn length_of_entry((path, version): &(Path, Version)) -> usize {
    2 + path.as_bytes().len() + 8 + length_of_content(&version.content)
}

mod kind {
    pub(super) const HELLO: u8 = 0x01;
    pub(super) const PING: u8 = 0x02;
    pub(super) const ACK: u8 = 0x03;
    pub(super) const TAKEN: u8 = 0x04;
    pub(super) const READS: u8 = 0x05;
    pub(super) const DEMAND: u8 = 0x06;
    pub(super) const LACKING: u8 = 0x07;
    pub(super) const ASK_BRANCHES: u8 = 0x08;
    pub(super) const ASK_LEAVES: u8 = 0x09;
    pub(super) const ASK_ENTRIES: u8 = 0x0a;
    pub(super) const RESYNCED: u8 = 0x0b;
    pub(super) const REPORT: u8 = 0x0c;
    pub(super) const FETCHED: u8 = 0x0d;
    pub(super) const WITHDRAW: u8 = 0x0e;
    pub(super) const RELAYS: u8 = 0x0f;
    pub(super) const VOUCH: u8 = 0x10;
    pub(super) const BELOW: u8 = 0x11;
    pub(super) const PRICE: u8 = 0x1a;
    pub(super) const PARTIAL: u8 = 0x1b;
    pub(super) const WANTED: u8 = 0x1c;
    pub(super) const WANTED_IN_PART: u8 = 0x1d;
    pub(super) const SHARE: u8 = 0x1e;
    pub(super) const WELCOME_LOG: u8 = 0x41;
    pub(super) const WELCOME_RESYNC: u8 = 0x42;
    pub(super) const REFUSED: u8 = 0x43;
    pub(super) const INVALIDATION: u8 = 0x44;
    pub(super) const HEARTBEAT: u8 = 0x45;
    pub(super) const BRANCHES: u8 = 0x46;
    pub(super) const LEAVES: u8 = 0x47;
    pub(super) const ENTRIES: u8 = 0x48;
    pub(super) const RENEW: u8 = 0x49;
    pub(super) const WITHDRAWN: u8 = 0x4a;
    pub(super) const VOUCHED: u8 = 0x4b;
    pub(super) const URGENT: u8 = 0x4c;
    pub(super) const NEIGHBOURS: u8 = 0x4d;
}

impl Coded for ToOrigin {
    const MAX_FRAME_BYTES: usize = MAX_TO_ORIGIN_BYTES;

    fn kind(&self) -> u8 {
        match self {
            ToOrigin::Hello { .. } => kind::HELLO,
            ToOrigin::Ping { .. } => kind::PING,
            ToOrigin::Ack(_) => kind::ACK,
            ToOrigin::Taken(_) => kind::TAKEN,
            ToOrigin::Reads(_) => kind::READS,
            ToOrigin::Demand(_) => kind::DEMAND,
            ToOrigin::Lacking(_) => kind::LACKING,
            ToOrigin::Ask { part: Ask::Branches, .. } => kind::ASK_BRANCHES,
            ToOrigin::Ask { part: Ask::Leaves(_), .. } => kind::ASK_LEAVES,
            ToOrigin::Ask { part: Ask::Entries(_), .. } => kind::ASK_ENTRIES,
            ToOrigin::Resynced(_) => kind::RESYNCED,
            ToOrigin::Report(_) => kind::REPORT,
            ToOrigin::Fetched(_) => kind::FETCHED,
            ToOrigin::Withdraw(_) => kind::WITHDRAW,
            ToOrigin::Relays(_) => kind::RELAYS,
            ToOrigin::Vouch(_) => kind::VOUCH,
            ToOrigin::Below(_) => kind::BELOW,
            ToOrigin::Price(_) => kind::PRICE,
            ToOrigin::Partial(_) => kind::PARTIAL,
            ToOrigin::Wanted(Wanted { more: false, .. }) => kind::WANTED,
            ToOrigin::Wanted(Wanted { more: true, .. }) => kind::WANTED_IN_PART,
            ToOrigin::Share(_) => kind::SHARE,
        }
    }

    fn write(&self, to: &mut Writer<'_>) -> Result<(), WireError> {
        match self {
            ToOrigin::Hello { protocol, replica, position, committed, only } => {
                to.u16(*protocol);
                to.replica(*replica);
                to.sequence(*committed);
                to.option(position.as_ref(), |to, position| {
                    to.position(position);
                    Ok(())
                })?;
                return to.list(PATTERNS, only.patterns(), |to, pattern| {
                    to.blob(("pattern", MAX_PATTERN_BYTES), pattern.as_bytes())
                });
            }
            ToOrigin::Ping { sent } => to.local(*sent),
            ToOrigin::Ack(sequence) | ToOrigin::Resynced(sequence) => to.sequence(*sequence),
            ToOrigin::Taken(count) | ToOrigin::Fetched(count) => to.u64(*count),
            ToOrigin::Price(bytes) => to.u64(bytes.0),
            ToOrigin::Reads(counts) => {
                return to.list(PATHS, counts, |to, (path, count)| {
                    to.path(path);
                    to.u32(*count);
                    Ok(())
                });
            }
            ToOrigin::Demand(path) | ToOrigin::Withdraw(path) => to.path(path),
            ToOrigin::Lacking(paths) => {
                return to.list(PATHS, paths, |to, path| {
                    to.path(path);
                    Ok(())
                });
            }
            ToOrigin::Ask { of, part } => {
                to.sequence(*of);
                return write_ask(to, part);
            }
            ToOrigin::Report(report) => return reports::write(to, report),
            ToOrigin::Below(all) => return to.list(BELOW, all, reports::write_below),
            ToOrigin::Relays(relays) => {
                return to.list(RELAYS, relays, |to, relay| {
                    to.replica(*relay);
                    Ok(())
                });
            }
            ToOrigin::Partial(all) => {
                return to.list(PARTIAL, all, |to, (digest, pieces)| {
                    to.digest(digest);
                    to.u32(*pieces);
                    Ok(())
                });
            }
            ToOrigin::Wanted(wanted) => return write_wanted(to, wanted),
            ToOrigin::Share(address) => to.address(address),
            ToOrigin::Vouch(Vouch { question, replica, certificate, position }) => {
                to.u64(*question);
                to.replica(*replica);
                to.digest(certificate);
                return to.option(position.as_ref(), |to, position| {
                    to.position(position);
                    Ok(())
                });
            }
        }
        Ok(())
    }

    fn read(kind: u8, from: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(match kind {
            kind::HELLO => ToOrigin::Hello {
                protocol: from.u16("protocol")?,
                replica: from.replica("replica")?,
                committed: from.sequence("committed")?,
                position: from.option("position", Reader::position)?,
                only: read_subscription(from)?,
            },
            kind::PING => ToOrigin::Ping { sent: from.local("sent")? },
            kind::ACK => ToOrigin::Ack(from.sequence("sequence")?),
            kind::TAKEN => ToOrigin::Taken(from.u64("count")?),
            kind::READS => {
                let count = |from: &mut Reader<'_>| Ok((from.path()?, from.u32("count")?));
                ToOrigin::Reads(from.list(PATHS, PATH + 4, count)?)
            }
            kind::DEMAND => ToOrigin::Demand(from.path()?),
            kind::LACKING => ToOrigin::Lacking(from.list(PATHS, PATH, Reader::path)?),
            kind::ASK_BRANCHES | kind::ASK_LEAVES | kind::ASK_ENTRIES => {
                let of = from.sequence("tree")?;
                ToOrigin::Ask { of, part: read_ask(kind, from)? }
            }
            kind::RESYNCED => ToOrigin::Resynced(from.sequence("sequence")?),
            kind::REPORT => ToOrigin::Report(reports::read(from)?),
            kind::FETCHED => ToOrigin::Fetched(from.u64("count")?),
            kind::WITHDRAW => ToOrigin::Withdraw(from.path()?),
            kind::RELAYS => ToOrigin::Relays(from.list(RELAYS, 4, |from| from.replica("relay"))?),
            kind::BELOW => {
                ToOrigin::Below(from.list(BELOW, reports::SHORTEST_BELOW, reports::read_below)?)
            }
            kind::VOUCH => ToOrigin::Vouch(Vouch {
                question: from.u64("question")?,
                replica: from.replica("replica")?,
                certificate: from.digest("certificate")?,
                position: from.option("position", Reader::position)?,
            }),
            kind::PARTIAL => {
                let one = |from: &mut Reader<'_>| Ok((from.digest("hash")?, from.u32("pieces")?));
                ToOrigin::Partial(from.list(PARTIAL, 36, one)?)
            }
            kind::WANTED | kind::WANTED_IN_PART => {
                let range = |from: &mut Reader<'_>| Ok((from.u32("first")?, from.u32("count")?));
                ToOrigin::Wanted(Wanted {
                    digest: from.digest("hash")?,
                    demand: from.flag("demand")?,
                    number: from.u64("number")?,
                    ranges: from.list(RANGES, 8, range)?,
                    more: kind == kind::WANTED_IN_PART,
                })
            }
            kind::SHARE => ToOrigin::Share(from.address("address")?),
            kind::PRICE => ToOrigin::Price(Bytes(from.u64("bytes")?)),
            other => return Err(WireError::Kind(other)),
        })
    }
}

fn read_subscription(from: &mut Reader<'_>) -> Result<Subscription, WireError> {
    let pattern = |from: &mut Reader<'_>| {
        let text = from.blob(("pattern", MAX_PATTERN_BYTES))?;
        Pattern::new(&text).map_err(|_| WireError::Value("pattern"))
    };
    let patterns = from.list(PATTERNS, PATTERN, pattern)?;
    Subscription::new(patterns).map_err(|_| WireError::Value("patterns"))
}

fn write_wanted(to: &mut Writer<'_>, wanted: &Wanted) -> Result<(), WireError> {
    to.digest(&wanted.digest);
    to.flag(wanted.demand);
    to.u64(wanted.number);
    to.list(RANGES, &wanted.ranges, |to, (first, count)| {
        to.u32(*first);
        to.u32(*count);
        Ok(())
    })
}

fn write_ask(to: &mut Writer<'_>, part: &Ask) -> Result<(), WireError> {
    match part {
        Ask::Branches => Ok(()),
        Ask::Leaves(branches) => to.list(BRANCHES, branches, |to, branch| {
            to.u8(*branch);
            Ok(())
        }),
        Ask::Entries(leaves) => to.list(LEAVES, leaves, |to, leaf| {
            to.u16(*leaf);
            Ok(())
        }),
    }
}

fn read_ask(kind: u8, from: &mut Reader<'_>) -> Result<Ask, WireError> {
    Ok(match kind {
        kind::ASK_BRANCHES => Ask::Branches,
        kind::ASK_LEAVES => Ask::Leaves(from.list(BRANCHES, 1, |from| from.u8("branch"))?),
        _ => Ask::Entries(from.list(LEAVES, 2, |from| from.u16("leaf"))?),
    })
}

fn write_urgent(to: &mut Writer<'_>, urgent: &Urgent) -> Result<(), WireError> {
    to.sequence(urgent.at);
    to.blob(PREFIX, &urgent.within)?;
    to.list(URGENT_REPLICAS, &urgent.replicas, |to, replica| {
        to.replica(*replica);
        Ok(())
    })
}

fn read_urgent(from: &mut Reader<'_>) -> Result<Urgent, WireError> {
    Ok(Urgent {
        at: from.sequence("at")?,
        within: from.blob(PREFIX)?,
        replicas: from.list(URGENT_REPLICAS, 4, |from| from.replica("replica"))?,
    })
}

fn write_neighbour(to: &mut Writer<'_>, one: &Neighbour) -> Result<(), WireError> {
    to.replica(one.replica);
    to.digest(&one.certificate);
    to.address(&one.address);
    Ok(())
}

fn read_neighbour(from: &mut Reader<'_>) -> Result<Neighbour, WireError> {
    Ok(Neighbour {
        replica: from.replica("replica")?,
        certificate: from.digest("certificate")?,
        address: from.address("address")?,
    })
}

impl Coded for ToReplica {
    const MAX_FRAME_BYTES: usize = MAX_TO_REPLICA_BYTES;

    fn kind(&self) -> u8 {
        match self {
            ToReplica::Welcome { start: Start::Log, .. } => kind::WELCOME_LOG,
            ToReplica::Welcome { start: Start::Resync { .. }, .. } => kind::WELCOME_RESYNC,
            ToReplica::Refused(_) => kind::REFUSED,
            ToReplica::Invalidation { .. } => kind::INVALIDATION,
            ToReplica::Heartbeat { .. } => kind::HEARTBEAT,
            ToReplica::Tree { part: Tree::Branches(_), .. } => kind::BRANCHES,
            ToReplica::Tree { part: Tree::Leaves(..), .. } => kind::LEAVES,
            ToReplica::Tree { part: Tree::Entries { .. }, .. } => kind::ENTRIES,
            ToReplica::Renew => kind::RENEW,
            ToReplica::Withdrawn(_) => kind::WITHDRAWN,
            ToReplica::Vouched { .. } => kind::VOUCHED,
            ToReplica::Urgent(_) => kind::URGENT,
            ToReplica::Neighbours(_) => kind::NEIGHBOURS,
        }
    }

    fn write(&self, to: &mut Writer<'_>) -> Result<(), WireError> {
        match self {
            ToReplica::Renew => {}
            ToReplica::Withdrawn(path) => to.path(path),
            ToReplica::Welcome { start, eager } => {
                to.flag(*eager);
                if let Start::Resync { position, stamp, root } = start {
                    to.position(position);
                    to.wall(*stamp);
                    to.digest(root);
                }
            }
            ToReplica::Refused(why) => write_refusal(to, *why),
            ToReplica::Neighbours(all) => return to.list(NEIGHBOURS, all, write_neighbour),
            ToReplica::Urgent(all) => return to.list(URGENT, all, write_urgent),
            ToReplica::Vouched { question, refusal } => {
                to.u64(*question);
                return to.option(refusal.as_ref(), |to, why| {
                    write_refusal(to, *why);
                    Ok(())
                });
            }
            ToReplica::Invalidation { sequence, stamp, changes, more } => {
                to.sequence(*sequence);
                to.wall(*stamp);
                to.flag(*more);
                return to.list(CHANGES, changes, |to, change| {
                    to.path(&change.path);
                    to.option(change.content.as_ref(), Writer::content)
                });
            }
            ToReplica::Heartbeat { stamp, committed, echo } => {
                to.wall(*stamp);
                to.sequence(*committed);
                return to.option(echo.as_ref(), |to, echo| {
                    to.local(*echo);
                    Ok(())
                });
            }
            ToReplica::Tree { of, part } => {
                to.sequence(*of);
                return write_tree(to, part);
            }
        }
        Ok(())
    }

    fn read(kind: u8, from: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(match kind {
            kind::WELCOME_LOG => {
                ToReplica::Welcome { eager: from.flag("eager")?, start: Start::Log }
            }
            kind::WELCOME_RESYNC => ToReplica::Welcome {
                eager: from.flag("eager")?,
                start: Start::Resync {
                    position: from.position()?,
                    stamp: from.wall("stamp")?,
                    root: from.digest("root")?,
                },
            },
            kind::REFUSED => ToReplica::Refused(read_refusal(from)?),
            kind::INVALIDATION => ToReplica::Invalidation {
                sequence: from.sequence("sequence")?,
                stamp: from.wall("stamp")?,
                more: from.flag("more")?,
                changes: from.list(CHANGES, CHANGE, |from| {
                    let path = from.path()?;
                    Ok(Change { path, content: from.option("content", Reader::content)? })
                })?,
            },
            kind::HEARTBEAT => ToReplica::Heartbeat {
                stamp: from.wall("stamp")?,
                committed: from.sequence("committed")?,
                echo: from.option("echo", |from| from.local("echo"))?,
            },
            kind::BRANCHES | kind::LEAVES | kind::ENTRIES => {
                let of = from.sequence("tree")?;
                ToReplica::Tree { of, part: read_tree(kind, from)? }
            }
            kind::RENEW => ToReplica::Renew,
            kind::WITHDRAWN => ToReplica::Withdrawn(from.path()?),
            kind::NEIGHBOURS => {
                ToReplica::Neighbours(from.list(NEIGHBOURS, NEIGHBOUR, read_neighbour)?)
            }
            kind::URGENT => ToReplica::Urgent(from.list(URGENT, SHORTEST_URGENT, read_urgent)?),
            kind::VOUCHED => ToReplica::Vouched {
                question: from.u64("question")?,
                refusal: from.option("refusal", read_refusal)?,
            },
            other => return Err(WireError::Kind(other)),
        })
    }
}

fn write_tree(to: &mut Writer<'_>, part: &Tree) -> Result<(), WireError> {
    match part {
        Tree::Branches(branches) => to.list(BRANCHES, branches, |to, (branch, digest)| {
            to.u8(*branch);
            to.digest(digest);
            Ok(())
        }),
        Tree::Leaves(branch, leaves) => {
            to.u8(*branch);
            to.list(LEAVES_OF_A_BRANCH, leaves, |to, (leaf, digest)| {
                to.u16(*leaf);
                to.digest(digest);
                Ok(())
            })
        }
        Tree::Entries { leaf, entries, more } => {
            to.u16(*leaf);
            to.flag(*more);
            to.list(ENTRIES, entries, |to, (path, version)| {
                to.path(path);
                to.version(version)
            })
        }
    }
}

fn read_tree(kind: u8, from: &mut Reader<'_>) -> Result<Tree, WireError> {
    Ok(match kind {
        kind::BRANCHES => {
            let branch = |from: &mut Reader<'_>| Ok((from.u8("branch")?, from.digest("hash")?));
            Tree::Branches(from.list(BRANCHES, 33, branch)?)
        }
        kind::LEAVES => {
            let branch = from.u8("branch")?;
            let leaf = |from: &mut Reader<'_>| Ok((from.u16("leaf")?, from.digest("hash")?));
            Tree::Leaves(branch, from.list(LEAVES_OF_A_BRANCH, 34, leaf)?)
        }
        _ => {
            let leaf = from.u16("leaf")?;
            let entry = |from: &mut Reader<'_>| Ok((from.path()?, from.version()?));
            let more = from.flag("more")?;
            Tree::Entries { leaf, entries: from.list(ENTRIES, ENTRY, entry)?, more }
        }
    })
}

fn write_refusal(to: &mut Writer<'_>, why: Refusal) {
    let (kind, value) = match why {
        Refusal::Protocol(version) => (0, u64::from(version)),
        Refusal::Ahead(last) => (1, last.0),
        Refusal::Diverged => (2, 0),
        Refusal::Forgotten(first) => (3, first.0),
        Refusal::Revoked => (4, 0),
        Refusal::Replaced => (5, 0),
        Refusal::Unknown => (6, 0),
        Refusal::Loop => (7, 0),
    };
    to.u8(kind);
    to.u64(value);
}

fn read_refusal(from: &mut Reader<'_>) -> Result<Refusal, WireError> {
    let kind = from.u8("refusal")?;
    let value = from.sequence("refusal")?;
    match kind {
        0 => {
            let version = u16::try_from(value.0).map_err(|_| WireError::Value("refusal"))?;
            Ok(Refusal::Protocol(version))
        }
        1 => Ok(Refusal::Ahead(value)),
        2 if value.0 == 0 => Ok(Refusal::Diverged),
        3 => Ok(Refusal::Forgotten(value)),
        4 if value.0 == 0 => Ok(Refusal::Revoked),
        5 if value.0 == 0 => Ok(Refusal::Replaced),
        6 if value.0 == 0 => Ok(Refusal::Unknown),
        7 if value.0 == 0 => Ok(Refusal::Loop),
        _ => Err(WireError::Value("refusal")),
    }
}
