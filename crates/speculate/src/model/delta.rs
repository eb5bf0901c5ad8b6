//! Changes that one model sends to another one of the same site.

use std::io::{Read, Write};

use lull_cc::Timestamp;

use crate::encoding::{ReadError, Sink, Source};
use crate::observe::{Evidence, MAX_PATH_BYTES, Requests, UrlChange};
use crate::predict::{ContextChange, FollowerChange, Pages};

/// The version of its encoding.
const DELTA_VERSION: u16 = 1;
/// More answers are not counted in one delta.
const MAX_COUNT: u32 = 1 << 24;

/// Counts of one model that another one adds to its own. It holds no address, no hash of one and no session:
/// its only client data are the classes of [`Urls::is_public`](crate::observe::Urls::is_public).
#[derive(Clone, Debug, PartialEq)]
pub struct Delta {
    /// The time until which the requests came.
    pub(super) at: Timestamp,
    pub(super) answers: u32,
    /// Visits of pages, and those of them that were not the first of a session.
    pub(super) pages: (u32, u32),
    pub(super) urls: Vec<UrlChange>,
    /// Contexts by places in `urls`.
    pub(super) contexts: Vec<(Vec<u16>, ContextChange<u16>)>,
}

impl Delta {
    pub(super) fn new(at: Timestamp) -> Self {
        Delta { at, answers: 0, pages: (0, 0), urls: Vec::new(), contexts: Vec::new() }
    }

    /// Whether it tells nothing.
    pub fn is_empty(&self) -> bool {
        self.answers == 0 && self.urls.is_empty()
    }

    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // Memory takes everything, and all lengths were bounded when it was made.
        let _ = self.write(&mut bytes);
        bytes
    }

    fn write(&self, to: &mut Vec<u8>) -> std::io::Result<()> {
        let mut to = Sink::new(to);
        to.u16(DELTA_VERSION)?;
        to.u64(self.at.as_nanos())?;
        to.u32(self.answers)?;
        to.u32(self.pages.0)?;
        to.u32(self.pages.1)?;
        to.count(self.urls.len())?;
        for url in &self.urls {
            to.count(url.path.len())?;
            to.bytes(url.path.as_bytes())?;
            to.u32(url.requests.requests)?;
            to.u32(url.requests.visits)?;
            to.u32(url.bytes)?;
            to.u32(url.micros)?;
            url.evidence.write(&mut to)?;
        }
        to.count(self.contexts.len())?;
        for (pages, context) in &self.contexts {
            write_context(&mut to, pages, context)?;
        }
        to.finish()
    }

    /// Reads bytes of [`encode`](Self::encode).
    ///
    /// # Errors
    /// [`ReadError`], if they are no delta, of another version, or damaged.
    pub fn decode(bytes: &[u8]) -> Result<Self, ReadError> {
        let mut from = Source::new(bytes);
        match from.u16()? {
            DELTA_VERSION => {}
            other => return Err(ReadError::Version(other)),
        }
        let mut delta = Delta::new(Timestamp::from_nanos(from.u64()?));
        delta.answers = count(&mut from)?;
        delta.pages = (count(&mut from)?, count(&mut from)?);
        for _ in 0..from.count()? {
            delta.urls.push(read_url(&mut from)?);
        }
        for _ in 0..from.count()? {
            let context = read_context(&mut from, delta.urls.len())?;
            delta.contexts.push(context);
        }
        from.finish()?;
        Ok(delta)
    }
}

fn count<R: Read>(from: &mut Source<R>) -> Result<u32, ReadError> {
    Ok(from.u32()?.min(MAX_COUNT))
}

fn read_url<R: Read>(from: &mut Source<R>) -> Result<UrlChange, ReadError> {
    let invalid = || ReadError::Invalid("URL");
    let length = from.count()?;
    if length > MAX_PATH_BYTES {
        return Err(invalid());
    }
    let mut path = vec![0; length];
    from.bytes(&mut path)?;
    let path = String::from_utf8(path).map_err(|_| invalid())?;
    if !path.starts_with('/') || path.contains('#') {
        return Err(invalid());
    }
    Ok(UrlChange {
        path: path.into(),
        requests: Requests { requests: count(from)?, visits: count(from)? },
        bytes: from.u32()?,
        micros: from.u32()?,
        evidence: Evidence::read(from)?,
    })
}

fn write_context<W: Write>(
    to: &mut Sink<W>,
    pages: &[u16],
    context: &ContextChange<u16>,
) -> std::io::Result<()> {
    to.count(pages.len())?;
    for page in pages {
        to.u16(*page)?;
    }
    to.u32(context.times)?;
    to.count(context.followers.len())?;
    for one in &context.followers {
        to.u16(one.url)?;
        to.f32(one.weight)?;
        to.u16(one.classes)?;
    }
    Ok(())
}

fn read_context<R: Read>(
    from: &mut Source<R>,
    urls: usize,
) -> Result<(Vec<u16>, ContextChange<u16>), ReadError> {
    let invalid = || ReadError::Invalid("context");
    let place = |from: &mut Source<R>| {
        let place = from.u16()?;
        if usize::from(place) < urls { Ok(place) } else { Err(invalid()) }
    };
    let count_of_pages = from.count()?;
    if !(1..=Pages::MOST).contains(&count_of_pages) {
        return Err(invalid());
    }
    let mut pages = Vec::new();
    for _ in 0..count_of_pages {
        pages.push(place(from)?);
    }
    let times = count(from)?;
    let mut followers = Vec::new();
    for _ in 0..from.count()? {
        let url = place(from)?;
        let weight = from.weight()?.min(MAX_COUNT as f32);
        followers.push(FollowerChange { url, weight, classes: from.u16()? });
    }
    Ok((pages, ContextChange { times, followers }))
}
