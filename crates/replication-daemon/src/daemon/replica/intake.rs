//! One body on its way to the store: its pieces come from the connection, from an earlier transfer, and from an older
//! version of the object.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lull_cc::Bytes;
use lull_replication::lane::Lane;
use lull_replication::message::{BodyHeader, MAX_RANGES, Wanted};
use lull_replication::path::Path;
use lull_replication::types::{Digest, DiskFull, Payload};
use lull_replication::wire::{Assembly, Chunk, Outline, PIECE};

use super::Shared;
use super::forward::{Forwarded, Taker};
use super::older::{LocalPieces, Older, join, ranges};
use super::sharing::{self, PiecesToCome, Running};
use crate::daemon::{LinkError, blocking};
use crate::store::{Body, Stager, StoreError};

/// The request to the sender that answers the hashes of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Nothing,
    Chunks,
    Pieces,
    /// Some pieces, and others later: neighbours may have them.
    Exchange,
}

impl Asked {
    /// Makes the assembly expect the requested parts.
    pub(super) fn expect_in(self, assembly: &mut Assembly, lane: Lane) {
        match self {
            Asked::Nothing => {}
            Asked::Chunks => assembly.expect_chunks(lane),
            Asked::Pieces => assembly.expect_gaps(lane),
            Asked::Exchange => assembly.expect_any_order(lane),
        }
    }
}

/// The pieces of a long body, and where they come from.
struct Selection {
    path: Path,
    digest: Digest,
    size: u64,
    demand: bool,
    number: u64,
    outline: Arc<Outline>,
    /// The pieces of an earlier transfer.
    first: u32,
    /// The next piece to be written.
    next: u32,
    /// The older version whose chunks are awaited, and those of the new one.
    asked: Option<(Arc<Older>, Vec<Chunk>)>,
    local: Option<Arc<LocalPieces>>,
    /// Pieces also come from neighbours.
    exchange: Option<Arc<Running>>,
    /// All of them are here, or are of no use.
    is_exchanged: bool,
    /// Pieces that have not come by it.
    left: u32,
}

impl Drop for Selection {
    fn drop(&mut self) {
        if let Some(running) = &self.exchange {
            running.end();
        }
    }
}

impl Selection {
    fn count(&self) -> u32 {
        u32::try_from(self.size.div_ceil(PIECE as u64)).unwrap_or(u32::MAX)
    }

    /// Asks for the pieces that are not here. Neighbours may have them, unless a read waits.
    async fn want(&mut self, shared: &Arc<Shared>) -> Asked {
        if !self.demand {
            let (path, digest, size) = (self.path.clone(), self.digest, self.size);
            let (outline, local) = (Arc::clone(&self.outline), self.local.clone());
            let first = self.first;
            let body = PiecesToCome { path, digest, size, outline, first, local };
            self.exchange = sharing::begin(shared, body).await;
        }
        if let Some(running) = &self.exchange {
            self.left = running.left();
            running.wake();
            return Asked::Exchange;
        }
        self.want_from_parent(shared)
    }

    fn want_from_parent(&self, shared: &Shared) -> Asked {
        let is_here = |number| self.local.as_ref().is_some_and(|local| local.has(number));
        let ranges = ranges((self.first, self.count()), MAX_RANGES, is_here);
        self.say(shared, ranges, false);
        Asked::Pieces
    }

    fn say(&self, shared: &Shared, ranges: Vec<(u32, u32)>, more: bool) {
        want(shared, (self.digest, self.demand, self.number), ranges, more);
    }

    /// The pieces before this one that are here: from the older version, or from neighbours.
    fn gap(&mut self, piece: u32) -> Gap {
        let numbers = self.next..piece;
        self.next = piece;
        let (outline, local) = (Arc::clone(&self.outline), self.local.clone());
        Gap { numbers, outline, local, exchange: self.exchange.clone() }
    }
}

fn want(
    shared: &Shared,
    (digest, demand, number): (Digest, bool, u64),
    ranges: Vec<(u32, u32)>,
    more: bool,
) {
    let wanted = Wanted { digest, demand, number, ranges, more };
    shared.with(|core, _| core.machine.want_pieces(wanted));
}

/// Pieces that are here, and come before one of the connection.
struct Gap {
    numbers: core::ops::Range<u32>,
    outline: Arc<Outline>,
    local: Option<Arc<LocalPieces>>,
    exchange: Option<Arc<Running>>,
}

/// The outcome of writing pieces.
enum Written {
    /// And whether children can get them.
    Here(Box<Stager>, bool),
    Full,
    /// A piece of the older version is not there any more, or was never announced.
    Broken,
}

impl Gap {
    /// Writes the pieces, on a thread that may block.
    fn fill(
        self,
        mut stager: Stager,
        mut is_passed_on: bool,
        taker: Option<&Taker>,
    ) -> Result<Written, StoreError> {
        for number in self.numbers {
            let read = match (&self.exchange, &self.local) {
                (Some(running), _) => running.piece(number)?,
                (None, Some(local)) => local.read(number)?,
                (None, None) => None,
            };
            let Some(bytes) = read.filter(|bytes| self.outline.has(number, bytes)) else {
                stager.discard();
                return Ok(Written::Broken);
            };
            is_passed_on = is_passed_on && taker.is_none_or(|taker| taker.take(&bytes));
            if stager.write(&bytes)?.is_err() {
                return Ok(Written::Full);
            }
        }
        Ok(Written::Here(Box::new(stager), is_passed_on))
    }
}

/// One body on its way to the store.
pub(super) struct Intake<'a> {
    shared: &'a Arc<Shared>,
    /// None if the body was discarded because the disk is full, and before its first byte.
    stager: Option<Stager>,
    full: bool,
    broken: bool,
    pub(super) arriving: Arriving<'a>,
    /// At a relay: children get it as it arrives.
    pub(super) forwarded: Option<Forwarded>,
    selection: Option<Selection>,
    /// Counts the long bodies of the channel.
    pub(super) number: u64,
}

/// Counts the bytes of one body until it is whole, or is discarded.
pub(super) struct Arriving<'a> {
    all: &'a AtomicU64,
    own: u64,
}

impl Arriving<'_> {
    pub(super) fn add(&mut self, bytes: usize) {
        self.own += bytes as u64;
        self.all.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl Drop for Arriving<'_> {
    fn drop(&mut self) {
        self.all.fetch_sub(self.own, Ordering::Relaxed);
    }
}

/// All bytes have come.
pub(super) struct Finished {
    /// None if there is no room for the body, or it is broken.
    pub(super) payload: Option<Payload<Body>>,
    pub(super) forwarded: Option<Forwarded>,
    /// Pieces of an older version are not there.
    pub(super) is_broken: bool,
}

impl<'a> Intake<'a> {
    pub(super) fn new(shared: &'a Arc<Shared>) -> Self {
        let arriving = Arriving { all: &shared.arriving, own: 0 };
        let (stager, full, broken, forwarded, selection) = Default::default();
        Intake { shared, stager, full, broken, arriving, forwarded, selection, number: 0 }
    }

    /// The hashes of all pieces are here: asks for those that have to come, if the sender waits for that.
    pub(super) async fn select(&mut self, header: &BodyHeader, outline: &Outline) -> Asked {
        let Some(version) = header.version else { return Asked::Nothing };
        if !self.shared.with(|core, _| core.machine.is_asked(header)) {
            self.set_chunks(&[]);
            return Asked::Nothing;
        }
        let (digest, size) = (version.content.digest, version.content.size.0);
        let partials = self.shared.bodies.partials();
        let first =
            partials.iter().find(|(one, _)| *one == digest).map_or(0, |(_, pieces)| *pieces);
        let older = self.shared.older.find(self.shared, &header.path, &digest);
        let mut selection = Selection {
            path: header.path.clone(),
            digest,
            size,
            demand: header.demand,
            number: self.number,
            outline: Arc::new(outline.clone()),
            first,
            next: 0,
            asked: older.map(|older| (older, Vec::new())),
            local: None,
            exchange: None,
            is_exchanged: false,
            left: u32::MAX,
        };
        selection.first = first.min(selection.count().saturating_sub(1));
        selection.next = selection.first;
        let asked = if selection.asked.is_some() {
            selection.say(self.shared, Vec::new(), false);
            Asked::Chunks
        } else {
            self.set_chunks(&[]);
            selection.want(self.shared).await
        };
        self.selection = Some(selection);
        asked
    }

    /// The hashes are corrupt: only the end of the body has to come.
    pub(super) fn want_the_end(&self, header: &BodyHeader) -> Asked {
        let Some(version) = header.version else { return Asked::Nothing };
        if !self.shared.with(|core, _| core.machine.is_asked(header)) {
            return Asked::Nothing;
        }
        let last = (version.content.size.0 - 1) / PIECE as u64;
        let last = u32::try_from(last).unwrap_or(u32::MAX);
        let of = (version.content.digest, header.demand, self.number);
        want(self.shared, of, vec![(last, 1)], false);
        Asked::Pieces
    }

    fn set_chunks(&self, chunks: &[Chunk]) {
        self.forwarded.iter().for_each(|forwarded| forwarded.set_chunks(chunks));
    }

    /// Some chunks of the body have come. Behind the last ones, asks for the pieces that are not in the older version.
    pub(super) async fn take_chunks(
        &mut self,
        chunks: Vec<Chunk>,
        is_end: bool,
    ) -> Result<Asked, LinkError> {
        let Some(selection) = &mut self.selection else { return Ok(Asked::Nothing) };
        let Some((_, all)) = &mut selection.asked else { return Ok(Asked::Nothing) };
        all.extend(chunks);
        if !is_end {
            return Ok(Asked::Nothing);
        }
        let Some((older, chunks)) = selection.asked.take() else { return Ok(Asked::Nothing) };
        let (reader, size) = (self.shared.body_reader.clone(), selection.size);
        let find = move || {
            let found = match chunks.is_empty() {
                true => None,
                false => LocalPieces::find((older, reader), size, &chunks)?,
            };
            Ok::<_, StoreError>((found, chunks))
        };
        // There is no thread only when the runtime ends.
        let (local, chunks) = blocking(find).await.ok_or(LinkError::GivenUp)??;
        selection.local = local.map(Arc::new);
        let asked = selection.want(self.shared).await;
        self.set_chunks(&chunks);
        Ok(asked)
    }

    /// Bytes of a body of several pieces: they may be written to the disk, so another thread takes them. `piece` is the
    /// number of the piece: the first one may have others before it, from an earlier transfer.
    pub(super) async fn write(
        &mut self,
        digest: &Digest,
        piece: u32,
        bytes: Vec<u8>,
    ) -> Result<(), LinkError> {
        if self.full || self.broken {
            return Ok(());
        }
        let write = self.writer(digest, piece, Some(bytes));
        // There is no thread only when the runtime ends.
        let written = blocking(write).await.ok_or(LinkError::GivenUp)??;
        self.note_written(written);
        Ok(())
    }

    fn note_written(&mut self, written: Written) {
        match written {
            Written::Here(stager, is_passed_on) => {
                self.stager = Some(*stager);
                if !is_passed_on {
                    self.forwarded = None;
                }
            }
            Written::Full => (self.full, self.forwarded) = (true, None),
            Written::Broken => (self.broken, self.forwarded) = (true, None),
        }
    }

    /// Writes a piece behind those before it, or only these. Opens the stager, if that is not done: it may read the first
    /// pieces from the disk. Children get all of them.
    fn writer(
        &mut self,
        digest: &Digest,
        piece: u32,
        bytes: Option<Vec<u8>>,
    ) -> impl FnOnce() -> Result<Written, StoreError> + Send + use<> {
        let (stager, bodies, digest) = (self.stager.take(), self.shared.bodies.clone(), *digest);
        let first = self.selection.as_ref().map_or(piece, |selection| selection.first);
        let begin = Bytes(u64::from(first) * PIECE as u64);
        let is_new = stager.is_none();
        if is_new {
            self.arriving.add(begin.0 as usize);
        }
        let gap = self.selection.as_mut().map(|selection| {
            let gap = selection.gap(piece);
            selection.next += u32::from(bytes.is_some());
            gap
        });
        let exchange = gap.as_ref().and_then(|gap| gap.exchange.clone());
        let taker = self.forwarded.as_ref().map(Forwarded::taker);
        move || {
            let taker = taker.as_ref();
            let mut number = 0;
            let pass_on = |earlier: &[u8]| {
                if let Some(taker) = taker {
                    taker.take_earlier(earlier);
                }
                if let Some(exchange) = &exchange {
                    exchange.take_earlier(number, earlier);
                }
                number += 1;
            };
            let stager = stager.map_or_else(|| bodies.stage_from(&digest, begin, pass_on), Ok)?;
            let is_passed_on = !is_new || taker.is_none_or(|taker| taker.is_at(first));
            let written = match gap {
                Some(gap) => gap.fill(stager, is_passed_on, taker)?,
                None => Written::Here(Box::new(stager), is_passed_on),
            };
            let Written::Here(mut stager, is_passed_on) = written else { return Ok(written) };
            let Some(bytes) = bytes else { return Ok(Written::Here(stager, is_passed_on)) };
            let is_passed_on = is_passed_on && taker.is_none_or(|taker| taker.take(&bytes));
            Ok(match stager.write(&bytes)? {
                Ok(()) => Written::Here(stager, is_passed_on),
                Err(DiskFull) => Written::Full,
            })
        }
    }

    /// The exchange of its pieces, while there is one.
    pub(super) fn exchange(&self) -> Option<&Arc<Running>> {
        self.selection.as_ref().filter(|one| !one.is_exchanged)?.exchange.as_ref()
    }

    /// A piece of an exchange has come from the parent.
    pub(super) async fn take_piece(
        &mut self,
        number: u32,
        bytes: Vec<u8>,
    ) -> Result<(), LinkError> {
        let Some(running) = self.exchange().cloned() else { return Ok(()) };
        let now = self.shared.clock.read().local;
        let take = move || running.take_from_parent(now, number, &bytes);
        blocking(take).await.ok_or(LinkError::GivenUp)
    }

    /// The next step of an exchange: writes the first pieces, as far as they are here, and asks for others. When all are
    /// here, or cannot be stored, the last one has to come.
    pub(super) async fn turn(&mut self) -> Result<(), LinkError> {
        /// Pieces that are written at a time: those of the connection wait meanwhile.
        const STEP: u32 = 64;
        let Some(running) = self.exchange().cloned() else { return Ok(()) };
        let Some(selection) = &mut self.selection else { return Ok(()) };
        let turn = running.turn(self.shared);
        let (digest, next, last) = (selection.digest, selection.next, selection.count() - 1);
        if !turn.wanted.is_empty() {
            selection.say(self.shared, join(turn.wanted, MAX_RANGES), true);
        }
        let came = selection.left.saturating_sub(turn.left);
        selection.left = turn.left;
        self.arriving.add(came as usize * PIECE);
        let here = running.end_of_those_here(next).min(next + STEP);
        if here > next || self.stager.is_none() {
            let write = self.writer(&digest, here, None);
            let written = blocking(write).await.ok_or(LinkError::GivenUp)??;
            self.note_written(written);
        }
        self.full |= running.is_full();
        if here == last || self.full || self.broken {
            self.end_exchange(last);
        } else if here == next + STEP {
            running.wake();
        }
        Ok(())
    }

    /// Only the last piece has to come. Neighbours get pieces until then.
    fn end_exchange(&mut self, last: u32) {
        let Some(selection) = &mut self.selection else { return };
        selection.say(self.shared, vec![(last, 1)], false);
        selection.is_exchanged = true;
        selection.exchange.iter().for_each(|running| running.stop_asking());
    }

    /// A piece of the parent was corrupt: the rest is of no use.
    pub(super) fn give_up_exchange(&mut self) {
        if self.exchange().is_some()
            && let Some(selection) = &self.selection
        {
            self.end_exchange(selection.count() - 1);
        }
    }

    /// Whether a part of it may be on the disk.
    pub(super) fn has_file(&self) -> bool {
        self.stager.is_some()
    }

    /// Whether nothing of it has come.
    pub(super) fn is_new(&self) -> bool {
        self.stager.is_none() && !self.full && !self.broken
    }

    /// The rest does not come.
    pub(super) async fn end(self, is_kept: bool) {
        let end = move |stager: Stager| if is_kept { drop(stager) } else { stager.discard() };
        if let Some(stager) = self.stager {
            let _ = blocking(move || end(stager)).await;
        }
    }

    /// The last bytes.
    pub(super) async fn finish(
        mut self,
        digest: &Digest,
        piece: u32,
        last: Vec<u8>,
    ) -> Result<Finished, LinkError> {
        let none = |is_broken| Finished { payload: None, forwarded: None, is_broken };
        if self.full || self.broken {
            return Ok(none(self.broken));
        }
        let single = self.stager.is_none() && piece == 0;
        let write = self.writer(digest, piece, Some(last));
        let finish = move || {
            Ok::<_, StoreError>(match write()? {
                Written::Here(stager, is_passed_on) => Ok((stager.finish()?.ok(), is_passed_on)),
                Written::Full => Ok((None, false)),
                Written::Broken => Err(()),
            })
        };
        // A single piece stays in memory.
        let finished =
            if single { finish()? } else { blocking(finish).await.ok_or(LinkError::GivenUp)?? };
        let Ok((payload, is_passed_on)) = finished else { return Ok(none(true)) };
        let forwarded = self.forwarded.take().filter(|_| is_passed_on);
        Ok(Finished { payload, forwarded, is_broken: false })
    }
}
