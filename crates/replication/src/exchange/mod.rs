//! Pieces of a long body from neighbours: replicas of one parent in one network, each of which gets another part of the
//! body from the parent (`docs/adr/0031-neighbours-exchange-pieces.md`).
//!
//! Each block of pieces has a *source*: one of the replicas, chosen by a hash of the block and the replica's number
//! (rendezvous hashing). A replica gets the blocks whose source it is from the parent, and asks the others for theirs. If a
//! neighbour is dropped, the next choice takes its place, so only its own blocks move, and spread over all others.
//!
//! The caller verifies each piece by the hash from the parent before it reports it here. So a neighbour can only delay.

#[cfg(test)]
mod tests;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::message::MAX_RANGES;
use crate::time::LocalTime;
use crate::types::ReplicaId;

/// Blocks of a body, at most: so a part is never more ranges than a message may have. Large blocks make parts unequal.
const MOST_BLOCKS: u32 = MAX_RANGES as u32;
/// Pieces that a neighbour is asked for at a time.
pub const WINDOW: usize = 32;
/// Pieces that are kept in mind for a neighbour. It may have got earlier ones elsewhere, which it does not say.
pub const MOST_OWED: usize = 4 * WINDOW;
/// For how long a neighbour that owes pieces may send none, at least.
const PATIENCE: Duration = Duration::from_secs(10);
/// The same, in gaps between two pieces from the parent: behind a slow link neighbours have to wait as well.
const GAPS: u32 = 16;

/// The replica's part of an exchange of one body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    own: ReplicaId,
    neighbours: BTreeMap<ReplicaId, Neighbour>,
    /// Pieces that neighbours have asked for, in this order. One that was dropped because it is slow gets them, too.
    owed: BTreeMap<ReplicaId, VecDeque<u32>>,
    /// Pieces of a block.
    block: u32,
    pieces: Vec<Piece>,
    /// How many are not here.
    left: u32,
    /// Pieces to be wanted from the parent, in ascending order, and all that are awaited from it.
    wanted: BTreeSet<u32>,
    awaited: BTreeSet<u32>,
    /// When the first piece was wanted from the parent, and when all of these had come.
    begun: LocalTime,
    parent_done: Option<LocalTime>,
    /// The last piece from the parent, and the mean gap between two.
    from_parent: Option<LocalTime>,
    gap: Duration,
}

/// The state of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece {
    /// It waits for its turn at its source.
    Missing,
    Asked(ReplicaId),
    /// From the parent.
    Wanted,
    Here,
}

/// A neighbour that exchanges pieces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Neighbour {
    /// Pieces whose source it is, and for which it was not asked.
    waiting: VecDeque<u32>,
    /// Pieces that it was asked for, and since when.
    asked: BTreeMap<u32, LocalTime>,
    /// When it sent its last piece, or was asked for the first one that it owes.
    since: LocalTime,
}

/// The outcome of a piece from a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is new, and to be stored.
    New,
    /// It is here, or the neighbour is no longer one.
    Ignored,
    /// It was not right. The neighbour was dropped: its connection is to be closed.
    Wrong,
}

/// The worth of a replica as the source of a block: the highest one is it. A finaliser of MurmurHash3 mixes the bits.
fn worth(block: u32, replica: ReplicaId) -> u64 {
    let mut mixed = u64::from(block) << 32 | u64::from(replica.0);
    for multiplier in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53] {
        mixed ^= mixed >> 33;
        mixed = mixed.wrapping_mul(multiplier);
    }
    mixed ^ mixed >> 33
}

impl Exchange {
    /// An exchange of a body of this many pieces between this replica and its neighbours. `is_here` says which pieces came
    /// in an earlier transfer.
    pub fn new(
        now: LocalTime,
        own: ReplicaId,
        neighbours: impl IntoIterator<Item = ReplicaId>,
        count: u32,
        is_here: impl Fn(u32) -> bool,
    ) -> Self {
        let others = neighbours.into_iter().filter(|one| *one != own);
        let neighbours: BTreeMap<_, _> = others.map(|one| (one, Neighbour::default())).collect();
        let owed = neighbours.keys().map(|one| (*one, VecDeque::new())).collect();
        let state = |number| if is_here(number) { Piece::Here } else { Piece::Missing };
        let pieces: Vec<Piece> = (0..count).map(state).collect();
        let missing: Vec<u32> =
            (0..count).filter(|number| pieces[*number as usize] == Piece::Missing).collect();
        let (wanted, awaited, from_parent, gap) = Default::default();
        let mut exchange = Exchange {
            own,
            neighbours,
            owed,
            block: count.div_ceil(MOST_BLOCKS).max(1),
            pieces,
            left: missing.len() as u32,
            wanted,
            awaited,
            begun: now,
            parent_done: Some(now),
            from_parent,
            gap,
        };
        missing.into_iter().for_each(|number| exchange.assign(number));
        exchange
    }

    /// Whether all pieces are here.
    pub fn is_complete(&self) -> bool {
        self.left == 0
    }

    /// Whether the parent has been asked for pieces that have not come.
    pub fn parent_owes(&self) -> bool {
        self.awaited.len() > self.wanted.len()
    }

    /// Pieces that are not here.
    pub fn left(&self) -> u32 {
        self.left
    }

    /// Whether a piece is here.
    pub fn has(&self, number: u32) -> bool {
        self.pieces.get(number as usize) == Some(&Piece::Here)
    }

    /// The source of a piece, among this replica and the neighbours that were not dropped.
    fn source(&self, number: u32) -> ReplicaId {
        let block = number / self.block;
        let all = self.neighbours.keys().copied().chain([self.own]);
        all.max_by_key(|replica| (worth(block, *replica), *replica)).unwrap_or(self.own)
    }

    fn assign(&mut self, number: u32) {
        let source = self.source(number);
        match self.neighbours.get_mut(&source) {
            Some(neighbour) => {
                self.pieces[number as usize] = Piece::Missing;
                neighbour.waiting.push_back(number);
            }
            None => self.want(number),
        }
    }

    /// The pieces that are wanted from the parent since the last call, in ranges: the first one, and how many.
    pub fn poll_wanted(&mut self) -> Vec<(u32, u32)> {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for number in core::mem::take(&mut self.wanted) {
            match ranges.last_mut() {
                Some((begin, length)) if *begin + *length == number => *length += 1,
                _ => ranges.push((number, 1)),
            }
        }
        ranges
    }

    /// The next piece to be asked for, and the neighbour.
    pub fn poll_ask(&mut self, now: LocalTime) -> Option<(ReplicaId, u32)> {
        for (replica, neighbour) in &mut self.neighbours {
            while neighbour.asked.len() < WINDOW
                && let Some(number) = neighbour.waiting.pop_front()
            {
                let piece = &mut self.pieces[number as usize];
                if *piece != Piece::Missing {
                    continue;
                }
                if neighbour.asked.is_empty() {
                    neighbour.since = now;
                }
                *piece = Piece::Asked(*replica);
                neighbour.asked.insert(number, now);
                return Some((*replica, number));
            }
        }
        None
    }

    /// A replica that the parent has named since then may ask for pieces. It is no source.
    pub fn admit(&mut self, neighbour: ReplicaId) {
        self.owed.entry(neighbour).or_default();
    }

    /// A neighbour asks for a piece: it gets that when it is here. A neighbour that asks for too many at a time, or for
    /// pieces that do not exist, gets fewer. It may have dropped the source of the piece, and this replica comes next: then
    /// the piece is wanted from the parent. Otherwise one would wait for the other, and drop it, too.
    pub fn handle_asked(&mut self, from: ReplicaId, number: u32) {
        let exists = (number as usize) < self.pieces.len();
        if let Some(owed) = self.owed.get_mut(&from)
            && exists
            && !owed.contains(&number)
        {
            if owed.len() >= MOST_OWED {
                owed.pop_front();
            }
            owed.push_back(number);
            self.take_over(number);
        }
    }

    /// Takes the place of the source of a piece, if this replica is the next choice.
    fn take_over(&mut self, number: u32) {
        let source = self.source(number);
        let is_missing = !matches!(self.pieces[number as usize], Piece::Here | Piece::Wanted);
        if source == self.own || !is_missing {
            return;
        }
        let block = number / self.block;
        let own = (worth(block, self.own), self.own);
        let mut others = self.neighbours.keys().filter(|one| **one != source);
        if others.all(|one| (worth(block, *one), *one) < own) {
            if let Some(neighbour) = self.neighbours.get_mut(&source) {
                neighbour.asked.remove(&number);
            }
            self.want(number);
        }
    }

    fn want(&mut self, number: u32) {
        self.pieces[number as usize] = Piece::Wanted;
        self.wanted.insert(number);
        self.awaited.insert(number);
        self.parent_done = None;
    }

    /// The next piece that a neighbour gets.
    pub fn poll_answer(&mut self, to: ReplicaId) -> Option<u32> {
        let pieces = &self.pieces;
        let owed = self.owed.get_mut(&to)?;
        let at = owed.iter().position(|number| pieces[*number as usize] == Piece::Here)?;
        owed.remove(at)
    }

    /// A verified piece has come from the parent. Returns whether it is new.
    pub fn handle_from_parent(&mut self, now: LocalTime, number: u32) -> bool {
        if let Some(before) = self.from_parent.replace(now) {
            self.gap = (self.gap * 7 + now.since(before)) / 8;
        }
        self.take(now, number)
    }

    /// A piece has come from a neighbour. `is_right`: it has the hash from the parent.
    pub fn handle_from_neighbour(
        &mut self,
        now: LocalTime,
        from: ReplicaId,
        (number, is_right): (u32, bool),
    ) -> Taken {
        let Some(neighbour) = self.neighbours.get_mut(&from) else { return Taken::Ignored };
        if !is_right || number as usize >= self.pieces.len() {
            self.drop_neighbour(from);
            self.owed.remove(&from);
            return Taken::Wrong;
        }
        neighbour.since = now;
        if self.take(now, number) { Taken::New } else { Taken::Ignored }
    }

    fn take(&mut self, now: LocalTime, number: u32) -> bool {
        let Some(piece) = self.pieces.get_mut(number as usize) else { return false };
        let before = core::mem::replace(piece, Piece::Here);
        if let Piece::Asked(of) = before
            && let Some(neighbour) = self.neighbours.get_mut(&of)
        {
            neighbour.asked.remove(&number);
        }
        self.wanted.remove(&number);
        if self.awaited.remove(&number) && self.awaited.is_empty() {
            self.parent_done = Some(now);
        }
        self.left -= u32::from(before != Piece::Here);
        before != Piece::Here
    }

    /// The connection to a neighbour has ended, or the parent names it no longer.
    pub fn drop_neighbour(&mut self, neighbour: ReplicaId) {
        let Some(Neighbour { waiting, asked, .. }) = self.neighbours.remove(&neighbour) else {
            return;
        };
        for number in asked.into_keys().chain(waiting) {
            if self.pieces[number as usize] != Piece::Here {
                self.assign(number);
            }
        }
    }

    /// When a neighbour is to be dropped, if it sends nothing until then. If the parent owes nothing, a neighbour may take
    /// as long again as the parent took: it may have had a larger part.
    fn late_at(&self, neighbour: &Neighbour) -> Option<LocalTime> {
        let first = *neighbour.asked.values().min()?;
        let silent = neighbour.since.plus(PATIENCE.max(self.gap * GAPS));
        let slow = self.parent_done.map(|done| {
            let took = done.since(self.begun);
            first.max(done).plus(PATIENCE.max(took))
        });
        Some(slow.map_or(silent, |slow| silent.min(slow)))
    }

    /// When [`handle_timeout`](Exchange::handle_timeout) is to be called.
    pub fn poll_timeout(&self) -> Option<LocalTime> {
        self.neighbours.values().filter_map(|one| self.late_at(one)).min()
    }

    /// Drops the neighbours that owe pieces for too long. Returns them.
    pub fn handle_timeout(&mut self, now: LocalTime) -> Vec<ReplicaId> {
        let is_late = |one: &Neighbour| self.late_at(one).is_some_and(|at| at <= now);
        let late = self.neighbours.iter().filter(|(_, one)| is_late(one));
        let late: Vec<ReplicaId> = late.map(|(replica, _)| *replica).collect();
        late.iter().for_each(|replica| self.drop_neighbour(*replica));
        late
    }
}
