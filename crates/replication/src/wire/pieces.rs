//! Bodies in pieces, each of which is verified on arrival.
//!
//! BLAKE3 is a tree over chunks of 1024 bytes. A piece of 64 chunks is a subtree. So the hashes of the
//! subtrees of all pieces give the hash of the body, and verify each piece separately: 32 bytes for 65,536. A
//! corrupt piece is found before any of it is kept.

use blake3::Hasher;
use blake3::hazmat::{
    ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root,
};
use thiserror::Error;

use super::body::{BodyPart, Chunk, MAX_HASHES, MIN_CHUNK_BYTES};
use crate::lane::Lane;
use crate::message::BodyHeader;
use crate::types::{Content, Digest, PIECE};

/// The hash of a piece that is not the only one of its body; `number` counts pieces.
fn piece_hash(number: u64, bytes: &[u8]) -> ChainingValue {
    Hasher::new().set_input_offset(number * PIECE as u64).update(bytes).finalize_non_root()
}

/// The hash of the subtree over these pieces. Its left part has as many pieces as possible that are
/// a power of two (BLAKE3, section 2.1).
fn subtree(hashes: &[Digest]) -> ChainingValue {
    if let [hash] = hashes {
        return hash.0;
    }
    let (left, right) = hashes.split_at(hashes.len().next_power_of_two() / 2);
    merge_subtrees_non_root(&subtree(left), &subtree(right), Mode::Hash)
}

/// The pieces of a body of `size` bytes.
const fn pieces(size: u64) -> u64 {
    size.div_ceil(PIECE as u64)
}

/// The hashes of the pieces of a body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outline(Vec<Digest>);

impl Outline {
    /// The outline of a body in pieces of [`PIECE`] bytes.
    pub fn of<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut outline = Outline::default();
        pieces.into_iter().for_each(|piece| outline.push(piece));
        outline
    }

    /// The next piece; all but the last one have [`PIECE`] bytes.
    pub fn push(&mut self, piece: &[u8]) {
        self.0.push(Digest(piece_hash(self.0.len() as u64, piece)));
    }

    /// The message with the hashes of part `number`, from zero, for the receiver of the body on this lane:
    /// none for a single piece, which the hash of the body verifies.
    pub fn part(&self, lane: Lane, number: usize) -> Option<BodyPart> {
        let told = if self.0.len() < 2 { &[] } else { &self.0[..] };
        let hashes = told.chunks(MAX_HASHES).nth(number)?.to_vec();
        Some(BodyPart::Hashes { lane, hashes })
    }

    /// All of them.
    pub fn parts(&self, lane: Lane) -> impl Iterator<Item = BodyPart> + '_ {
        (0..).map_while(move |number| self.part(lane, number))
    }

    /// Whether these bytes are the piece with this number.
    pub fn has(&self, number: u32, piece: &[u8]) -> bool {
        let hash = self.0.get(number as usize);
        hash.is_some_and(|hash| hash.0 == piece_hash(u64::from(number), piece))
    }

    /// Whether it belongs to a body of this content.
    fn fits(&self, content: &Content) -> bool {
        if self.0.len() as u64 != pieces(content.size.0) || self.0.len() < 2 {
            return false;
        }
        let (left, right) = self.0.split_at(self.0.len().next_power_of_two() / 2);
        let root = merge_subtrees_root(&subtree(left), &subtree(right), Mode::Hash);
        content.digest == Digest(*root.as_bytes())
    }
}

/// The result of a part of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// More parts have to come.
    More,
    /// These bytes come next, and are verified. Those before the first ones came in an earlier transfer, and are verified
    /// by the hash of the whole body.
    Bytes(Vec<u8>),
    /// Some of the chunks of the body, and whether they are the last ones. None and the last: the sender does not know them.
    Chunks(Vec<Chunk>, bool),
    /// The body is complete, absent or lost: to be passed to
    /// [`Replica::handle_body`](crate::replica::Replica::handle_body).
    Complete {
        /// The kind that was found.
        header: BodyHeader,
        /// Its last bytes, verified; empty if it has none.
        last: Vec<u8>,
        /// Whether it is intact: if not, pieces that were returned must be discarded.
        intact: bool,
    },
}

/// A part that is invalid here: the peer violates the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a part of a body came out of order")]
pub struct Unexpected;

/// ```text
///            header                hashes, all of them         the last piece
///   Idle ──────────────▶ Outlining ────────────────▶ Pieces ─────────────────▶ Idle
///                                                     (chunks before them, if asked for)
///    ▲ │  one piece          │                        │  ▲ │ corrupt
///    │ └─────────────────────┼────────────────────────┼──┘ ▼
///    │       broken          ▼        broken          ▼  Skipping ── last piece, broken ─▶ Idle
///    └───────────────────────┴────────────────────────┘
/// ```
#[derive(Clone, Debug, Default)]
enum State {
    #[default]
    Idle,
    Outlining {
        header: BodyHeader,
        content: Content,
        hashes: Vec<Digest>,
    },
    Pieces {
        header: BodyHeader,
        content: Content,
        outline: Outline,
        next: u64,
        order: Order,
    },
    /// A part was corrupt: the rest of the body is ignored.
    Skipping {
        header: BodyHeader,
        content: Content,
        next: u64,
        order: Order,
    },
}

/// The next valid part of a body behind its hashes.
#[derive(Clone, Copy, Debug, Default)]
struct Order {
    /// Pieces may be left out between others: they were not asked for.
    has_gaps: bool,
    /// Pieces come in any order, the last one of the body at the end: they were asked for in several parts.
    is_any: bool,
    /// Bytes of the chunks that have come, if chunks were asked for.
    chunked: Option<u64>,
}

impl Order {
    /// Takes the next chunks of a body of `size` bytes. Returns whether they are the last ones.
    fn handle_chunks(&mut self, size: u64, chunks: &[Chunk]) -> Result<bool, Unexpected> {
        let chunked = self.chunked.as_mut().ok_or(Unexpected)?;
        if chunks.is_empty() && *chunked > 0 {
            return Err(Unexpected);
        }
        for chunk in chunks {
            *chunked += u64::from(chunk.length);
            let is_last = *chunked == size;
            if *chunked > size || (chunk.length < MIN_CHUNK_BYTES && !is_last) || chunk.length == 0
            {
                return Err(Unexpected);
            }
        }
        let is_end = *chunked == size || chunks.is_empty();
        self.chunked = self.chunked.filter(|_| !is_end);
        Ok(is_end)
    }
}

/// Assembles the bodies of one connection. Keeps the outline of one body for each lane, 32 bytes per piece,
/// and none of their bytes.
#[derive(Clone, Debug, Default)]
pub struct Assembly {
    lanes: [State; Lane::COUNT],
}

impl Assembly {
    /// The body in progress on a lane.
    pub fn header(&self, lane: Lane) -> Option<&BodyHeader> {
        match &self.lanes[lane.index()] {
            State::Idle => None,
            State::Outlining { header, .. }
            | State::Pieces { header, .. }
            | State::Skipping { header, .. } => Some(header),
        }
    }

    /// The body whose first piece comes next on a lane, if it has several, and their hashes.
    pub fn begins(&self, lane: Lane) -> Option<(&BodyHeader, &Outline)> {
        match &self.lanes[lane.index()] {
            State::Pieces { header, outline, next: 0, .. } if outline.0.len() > 1 => {
                Some((header, outline))
            }
            _ => None,
        }
    }

    /// The chunks of the body on a lane, whose first piece comes next, were asked for.
    pub fn expect_chunks(&mut self, lane: Lane) {
        if let State::Pieces { order, .. } | State::Skipping { order, .. } =
            &mut self.lanes[lane.index()]
        {
            order.chunked = Some(0);
        }
    }

    /// Only some pieces of the body on a lane were asked for, its last one among them.
    pub fn expect_gaps(&mut self, lane: Lane) {
        if let State::Pieces { order, .. } | State::Skipping { order, .. } =
            &mut self.lanes[lane.index()]
        {
            order.has_gaps = true;
        }
    }

    /// Pieces of the body on a lane are asked for in several parts, and come in any order. Its last piece ends it.
    pub fn expect_any_order(&mut self, lane: Lane) {
        if let State::Pieces { order, .. } | State::Skipping { order, .. } =
            &mut self.lanes[lane.index()]
        {
            order.is_any = true;
        }
    }

    /// Whether the body on a lane has a corrupt part.
    pub fn is_corrupt(&self, lane: Lane) -> bool {
        matches!(self.lanes[lane.index()], State::Skipping { .. })
    }

    /// A part has come: returns its lane, and its result.
    ///
    /// # Errors
    /// If the part is invalid now.
    pub fn handle(&mut self, part: BodyPart) -> Result<(Lane, Delivery), Unexpected> {
        let lane = part.lane();
        let delivery = self.lanes[lane.index()].handle(part)?;
        Ok((lane, delivery))
    }
}

impl State {
    fn handle(&mut self, part: BodyPart) -> Result<Delivery, Unexpected> {
        match (core::mem::take(self), part) {
            (State::Idle, BodyPart::Header(header)) => Ok(self.handle_header(header)),
            (
                State::Outlining { header, content, mut hashes },
                BodyPart::Hashes { hashes: more, .. },
            ) => {
                hashes.extend(more);
                *self = State::with_hashes(header, content, hashes)?;
                Ok(Delivery::More)
            }
            (
                State::Pieces { header, content, outline, next: 0, mut order },
                BodyPart::Chunks { chunks, .. },
            ) => {
                let is_end = order.handle_chunks(content.size.0, &chunks)?;
                *self = State::Pieces { header, content, outline, next: 0, order };
                Ok(Delivery::Chunks(chunks, is_end))
            }
            (
                State::Pieces { header, content, outline, next, order },
                BodyPart::Piece { number, bytes, .. },
            ) => {
                let next = expect(&content, (next, order), number, &bytes)?;
                let intact = match outline.0.get(next as usize) {
                    Some(hash) => hash.0 == piece_hash(next, &bytes),
                    None => Digest::of(&bytes) == content.digest,
                };
                let done = next + 1 == pieces(content.size.0);
                if done {
                    let last = if intact { bytes } else { Vec::new() };
                    return Ok(Delivery::Complete { header, last, intact });
                }
                if intact {
                    *self = State::Pieces { header, content, outline, next: next + 1, order };
                    return Ok(Delivery::Bytes(bytes));
                }
                *self = State::Skipping { header, content, next: next + 1, order };
                Ok(Delivery::More)
            }
            (
                State::Skipping { header, content, next, order },
                BodyPart::Piece { number, bytes, .. },
            ) => {
                let next = expect(&content, (next, order), number, &bytes)?;
                if next + 1 == pieces(content.size.0) {
                    return Ok(Delivery::Complete { header, last: Vec::new(), intact: false });
                }
                *self = State::Skipping { header, content, next: next + 1, order };
                Ok(Delivery::More)
            }
            (
                State::Outlining { header, .. }
                | State::Pieces { header, .. }
                | State::Skipping { header, .. },
                BodyPart::Broken { .. },
            ) => Ok(Delivery::Complete { header, last: Vec::new(), intact: false }),
            _ => Err(Unexpected),
        }
    }

    /// After more hashes of pieces.
    fn with_hashes(
        header: BodyHeader,
        content: Content,
        hashes: Vec<Digest>,
    ) -> Result<Self, Unexpected> {
        let count = pieces(content.size.0);
        if (hashes.len() as u64) < count {
            return Ok(State::Outlining { header, content, hashes });
        }
        if hashes.len() as u64 > count {
            return Err(Unexpected);
        }
        let (outline, order) = (Outline(hashes), Order::default());
        Ok(match outline.fits(&content) {
            true => State::Pieces { header, content, outline, next: 0, order },
            false => State::Skipping { header, content, next: 0, order },
        })
    }

    fn handle_header(&mut self, header: BodyHeader) -> Delivery {
        let Some(content) = header.version.map(|version| version.content) else {
            return Delivery::Complete { header, last: Vec::new(), intact: true };
        };
        if header.lost {
            return Delivery::Complete { header, last: Vec::new(), intact: false };
        }
        match pieces(content.size.0) {
            0 => {
                let intact = content.digest == Digest::of(&[]);
                return Delivery::Complete { header, last: Vec::new(), intact };
            }
            1 => {
                let (outline, order) = Default::default();
                *self = State::Pieces { header, content, outline, next: 0, order };
            }
            _ => *self = State::Outlining { header, content, hashes: Vec::new() },
        }
        Delivery::More
    }
}

/// The number of a piece, if it has the expected number and length. The first one may have any number: those before it
/// came in an earlier transfer.
fn expect(
    content: &Content,
    (next, order): (u64, Order),
    number: u32,
    bytes: &[u8],
) -> Result<u64, Unexpected> {
    let number = u64::from(number);
    let may_skip = next == 0 || order.has_gaps || order.is_any;
    let is_next = number == next || may_skip && (number > next || order.is_any);
    let is_next = is_next && number < pieces(content.size.0);
    let left = content.size.0.saturating_sub(number * PIECE as u64);
    let length = left.min(PIECE as u64);
    if is_next && bytes.len() as u64 == length { Ok(number) } else { Err(Unexpected) }
}
