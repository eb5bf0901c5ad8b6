//! The parameters of a [`Ppm`](super::Ppm).

use core::time::Duration;
use std::io::{self, Read, Write};

use lull_cc::Bytes;

use crate::encoding::{AGED, ReadError, Sink, Source};
use crate::observe::MAX_TIME;
use crate::predict::TopN;
use crate::predict::contexts::{Contexts, PER_BLOCK, Room};

/// The part of a window that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Everything up to the w-th page after the context, including that page: the papers' window (Nice §6.1).
    All,
    /// Only URLs of the next page or later: the next w pages with all of their subresources.
    ///
    /// The browser requests the subresources of the present page at once, with or without hints.
    Ahead,
}

/// The use of contexts of fewer pages than n.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Backoff {
    /// Only the longest known context predicts.
    Longest,
    /// Shorter contexts predict what longer ones do not, with the remaining probability. That is PPM's escape
    /// by method C (Moffat, 1990), the share of followers among occurrences and followers.
    Escape,
    /// All predict together, from general popularity up. A context that occurred N times and was followed by
    /// D URLs has the weight N / (N + c·D). It leaves the rest to the shorter one. With c = 1 that is the
    /// smoothing of Witten and Bell (1991), whose weights are those of method C.
    Blend {
        /// c, in occurrences per following URL; 0 or more.
        discount: f32,
    },
}

/// The parameters of a [`Ppm`](super::Ppm).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PpmParameters {
    /// n: the pages of the longest context, 1 to 4.
    pub order: usize,
    /// w: the pages of the window, 1 to 16.
    pub window: u32,
    /// The part of it that counts.
    pub counted: Counted,
    /// The weight of the window's second page, if the first has 1; the third has the square of it, and so on.
    /// With 1 probabilities are those of the papers; with less, they prefer URLs that are wanted soon. Above
    /// 0, up to 1.
    pub fade: f32,
    /// The use of shorter contexts.
    pub backoff: Backoff,
    /// The number of client classes, of 16, that must have gone from a context to a URL before others learn
    /// that: so no request reveals the path of a single client. 1 to 16.
    pub clients: u32,
    /// Less probable URLs are not suggested: lists are not padded with hardly wanted ones. 0 suggests all, as
    /// the papers do; below 1.
    pub least: f32,
    /// URLs with a higher cost in bytes per hit are not suggested. None suggests all, as in the papers, which
    /// leave that to the priorities (SSR §3.1.2).
    pub bytes_per_hit: Option<Bytes>,
    /// An occurrence counts half after this time; a second at least, and under 500 years.
    pub half_life: Duration,
    /// Contexts that are remembered, 24 bytes each and up to 22 for the index; up to 2^28.
    pub contexts: usize,
    /// Followers of all contexts that are remembered, 12 bytes each; up to 2^30.
    pub followers: usize,
    /// Followers that one context remembers; up to [`PpmParameters::MAX_FOLLOWERS_PER_CONTEXT`].
    pub followers_per_context: usize,
}

/// Three clients: the requesting one, and two others, so that neither of these is identified as the only one.
/// An extension: the papers reveal the path of any client.
const CLIENTS: u32 = 3;
/// The upper limit of [`PpmParameters::contexts`], [`PpmParameters::followers`] and of a context's blocks.
const MAX_CONTEXTS: usize = 1 << 28;
const MAX_FOLLOWERS: usize = 1 << 30;
const MAX_BLOCKS: usize = 255;

impl PpmParameters {
    /// The upper limit of [`PpmParameters::followers_per_context`].
    pub const MAX_FOLLOWERS_PER_CONTEXT: usize = PER_BLOCK * MAX_BLOCKS;

    /// PPM-n/w of Nice §6.1: n = 2 there; w = 5 conservative, 10 aggressive. The paper leaves open the weight
    /// of shorter contexts after an unknown one.
    pub fn paper(order: usize, window: u32) -> Self {
        PpmParameters {
            order,
            window,
            counted: Counted::All,
            fade: 1.0,
            backoff: Backoff::Longest,
            clients: CLIENTS,
            least: 0.0,
            bytes_per_hit: None,
            // Not in the paper: SSR §5.3 predicts from one day's log and forgets nothing.
            half_life: Duration::from_secs(7 * 24 * 3600),
            contexts: 1 << 20,
            followers: 24 << 20,
            followers_per_context: 60,
        }
    }

    /// A first-order Markov model: the requests after a page, up to and with the next one.
    pub fn markov() -> Self {
        PpmParameters::paper(1, 1)
    }

    /// Lull's default, chosen by the validation slices of three logs (`docs/predictor.md`).
    pub fn shipped() -> Self {
        PpmParameters {
            window: 5,
            fade: 0.5,
            least: 0.0005,
            bytes_per_hit: Some(Bytes(20_000_000)),
            ..PpmParameters::previous_default()
        }
    }

    /// Lull's default with models of version 2, to be compared with.
    pub fn previous_default() -> Self {
        PpmParameters {
            counted: Counted::Ahead,
            backoff: Backoff::Blend { discount: 0.1 },
            ..PpmParameters::paper(1, 2)
        }
    }

    /// The maximum memory of a predictor, without the allocator's overhead.
    pub fn most_resident(&self) -> Bytes {
        // The pages and the 64 contexts that it reads fit into the last part.
        Bytes(Contexts::most_resident(&self.room()) + TopN::RESIDENT + 8192)
    }

    /// The field that is out of its range.
    pub(super) fn fault(&self) -> Option<&'static str> {
        let is_discount = |c: f32| c.is_finite() && c >= 0.0;
        if !(1..=4).contains(&self.order) {
            Some("length of contexts")
        } else if !(1..=16).contains(&self.window) {
            Some("window")
        } else if !(self.fade > 0.0 && self.fade <= 1.0) {
            Some("fading")
        } else if matches!(self.backoff, Backoff::Blend { discount } if !is_discount(discount)) {
            Some("discount")
        } else if !(1..=16).contains(&self.clients) {
            Some("least number of clients")
        } else if !(0.0..1.0).contains(&self.least) {
            Some("least probability")
        } else if self.half_life.as_secs() == 0 || self.half_life >= MAX_TIME {
            Some("half-life")
        } else if !(1..=MAX_CONTEXTS).contains(&self.contexts) {
            Some("limit of contexts")
        } else if !(1..=MAX_FOLLOWERS).contains(&self.followers) {
            Some("limit of followers")
        } else if !(1..=Self::MAX_FOLLOWERS_PER_CONTEXT).contains(&self.followers_per_context) {
            Some("limit of the followers of a context")
        } else {
            None
        }
    }

    pub(super) fn room(&self) -> Room {
        Room {
            contexts: self.contexts,
            blocks: self.followers.div_ceil(PER_BLOCK),
            // Within what `fault` accepts.
            blocks_per_context: self.followers_per_context.div_ceil(PER_BLOCK).min(MAX_BLOCKS)
                as u8,
            clients: self.clients,
        }
    }

    pub(crate) fn write<W: Write>(&self, to: &mut Sink<W>) -> io::Result<()> {
        let (backoff, discount) = match self.backoff {
            Backoff::Longest => (0, 0.0),
            Backoff::Escape => (1, 0.0),
            Backoff::Blend { discount } => (2, discount),
        };
        to.count(self.order)?;
        to.u32(self.window)?;
        to.u8(match self.counted {
            Counted::All => 0,
            Counted::Ahead => 1,
        })?;
        to.f32(self.fade)?;
        to.u8(backoff)?;
        to.f32(discount)?;
        to.u32(self.clients)?;
        to.f32(self.least)?;
        to.u64(self.bytes_per_hit.map_or(u64::MAX, |most| most.0))?;
        to.duration(self.half_life)?;
        to.count(self.contexts)?;
        to.count(self.followers)?;
        to.count(self.followers_per_context)
    }

    pub(crate) fn read<R: Read>(from: &mut Source<R>) -> Result<Self, ReadError> {
        let is_old = from.version() < AGED;
        let limit = |most| (most < u64::MAX).then_some(Bytes(most));
        let order = from.count()?;
        let window = from.u32()?;
        let counted = match from.u8()? {
            0 => Counted::All,
            1 => Counted::Ahead,
            _ => return Err(ReadError::Invalid("way to count")),
        };
        let fade = from.f32()?;
        let backoff = match (from.u8()?, from.f32()?) {
            (0, _) => Backoff::Longest,
            (1, _) => Backoff::Escape,
            (2, discount) => Backoff::Blend { discount },
            _ => return Err(ReadError::Invalid("way to use shorter contexts")),
        };
        let parameters = PpmParameters {
            order,
            window,
            counted,
            fade,
            backoff,
            clients: from.u32()?,
            least: if is_old { 0.0 } else { from.f32()? },
            bytes_per_hit: if is_old { None } else { limit(from.u64()?) },
            half_life: from.duration()?,
            contexts: from.count()?,
            followers: from.count()?,
            followers_per_context: from.count()?,
        };
        if let Some(fault) = parameters.fault() {
            return Err(ReadError::Invalid(fault));
        }
        // The default was not chosen by a user, so an old model gets today's. Its earlier counts fade out.
        let is_default = is_old && parameters == PpmParameters::previous_default();
        Ok(if is_default { PpmParameters::shipped() } else { parameters })
    }
}
