//! A model: the knowledge about a site, to be saved across restarts.
//!
//! The saved form holds the URLs with the knowledge about each, the followers of pages, and the clocks of the
//! decay. It holds no address, no hash of one and no session. Its only client data are the classes that
//! [`Urls::is_public`](crate::observe::Urls::is_public) counts, which identify no client without the key of
//! the [`ClientHasher`]; and the key is not saved.
//!
//! Under another key a client may be in another class, and so be counted twice. So when a loaded model
//! continues to learn under another key, incomplete counts restart: a URL of four clients needs five more.
//! Public URLs remain public.

use std::io::{self, Read, Write};

use lull_cc::{Bytes, Timestamp};

use crate::encoding::{OLDEST, SHARED, Sink, Source};
use crate::log::Entry;
use crate::observe::{ClientHasher, Ignored, Limits, Observer, Visit};
use crate::predict::{Ppm, PpmParameters, Predictor as _};

mod delta;
mod sharing;

use sharing::Merged;

pub use crate::encoding::{ReadError, VERSION};
pub use delta::Delta;
pub use sharing::Sender;

/// The first bytes of every model. The first one is not text in any encoding.
pub const MAGIC: [u8; 8] = *b"\x89LULLPPM";

/// A site's URLs and their sequences. They belong together, since the predictor knows URLs by the observer's
/// numbers.
#[derive(Clone, Debug)]
pub struct Model {
    observer: Observer,
    predictor: Ppm,
    /// The observer's key, and the one with which its clients were counted.
    key: u64,
    counted_by: u64,
    /// Its server among those that share the model, if they do.
    own: Option<Sender>,
    merged: Merged,
}

impl Model {
    /// A model that has learned nothing.
    ///
    /// # Panics
    /// If a limit or a parameter is out of its range.
    pub fn new(hasher: ClientHasher, limits: Limits, parameters: PpmParameters) -> Self {
        let key = hasher.fingerprint();
        Model {
            observer: Observer::new(hasher, limits),
            predictor: Ppm::new(parameters),
            key,
            counted_by: key,
            own: None,
            merged: Merged::default(),
        }
    }

    /// Learns the next request.
    ///
    /// # Errors
    /// If the entry teaches nothing.
    pub fn learn(&mut self, entry: &Entry<'_>) -> Result<Visit, Ignored> {
        self.restart_counts_of_another_key();
        let visit = self.observer.observe(entry)?;
        let history = self.observer.history(&visit);
        self.predictor.train(&visit, history, self.observer.urls());
        Ok(visit)
    }

    /// Incomplete counts of clients begin again if they were counted by another key.
    fn restart_counts_of_another_key(&mut self) {
        if self.counted_by != self.key {
            self.counted_by = self.key;
            self.observer.restart_counts();
            self.predictor.restart_counts();
        }
    }

    /// The URLs, and the clients with running sessions.
    pub fn observer(&self) -> &Observer {
        &self.observer
    }

    /// The followers.
    pub fn predictor(&self) -> &Ppm {
        &self.predictor
    }

    /// Forgets clients whose session has ended: [`Observer::forget`].
    pub fn forget(&mut self, now: Timestamp) {
        self.observer.forget(now);
    }

    /// Continues at `now`, the time of a request that is learned when it arrives. Dates far ahead of it were
    /// wrong.
    pub fn resume(&mut self, now: Timestamp) {
        self.observer.resume(now);
    }

    /// The time of the latest learned request.
    pub fn latest(&self) -> Timestamp {
        self.observer.latest()
    }

    /// Its memory, without the allocator's overhead.
    pub fn resident(&self) -> Bytes {
        Bytes(self.observer.resident().0 + self.predictor.resident().0)
    }

    /// The largest memory of a model. Limits beyond any machine are at the end of the range.
    pub fn most_resident(limits: &Limits, parameters: &PpmParameters) -> Bytes {
        Bytes(limits.most_resident().0.saturating_add(parameters.most_resident().0))
    }

    /// Writes it. Equal models have equal bytes on every machine.
    ///
    /// # Errors
    /// If `to` does.
    pub fn write(&self, to: impl Write) -> io::Result<()> {
        let mut to = Sink::new(to);
        to.bytes(&MAGIC)?;
        to.u16(VERSION)?;
        to.u64(self.counted_by)?;
        self.observer.limits().write(&mut to)?;
        self.predictor.parameters().write(&mut to)?;
        self.observer.write(&mut to)?;
        self.predictor.write(&mut to)?;
        self.merged.write(&mut to)?;
        to.finish()
    }

    /// Reads a model that may take `most` memory once its limits are reached.
    ///
    /// It uses memory for the bytes that it has read, not for the claimed size. It ranks like the saved
    /// model; under the same key it also learns like that, once the sessions of all its clients had ended.
    ///
    /// # Errors
    /// [`ReadError`], if it is not a model, or damaged.
    pub fn read(from: impl Read, hasher: ClientHasher, most: Bytes) -> Result<Self, ReadError> {
        let mut from = Source::new(from);
        let magic = from.array().map_err(|error| match error {
            ReadError::Truncated => ReadError::NoModel,
            other => other,
        })?;
        if magic != MAGIC {
            return Err(ReadError::NoModel);
        }
        match from.u16()? {
            version @ OLDEST..=VERSION => from.set_version(version),
            other => return Err(ReadError::Version(other)),
        }
        let (key, counted_by) = (hasher.fingerprint(), from.u64()?);
        let limits = Limits::read(&mut from)?;
        let parameters = PpmParameters::read(&mut from)?;
        let needed = Model::most_resident(&limits, &parameters);
        if needed > most {
            return Err(ReadError::TooLarge { needed, most });
        }
        let observer = Observer::read(hasher, limits, &mut from)?;
        let predictor = Ppm::read(parameters, &mut from)?;
        let is_shared = from.version() >= SHARED;
        let merged = if is_shared { Merged::read(&mut from)? } else { Merged::default() };
        from.finish()?;
        Ok(Model { observer, predictor, key, counted_by, own: None, merged })
    }
}

#[cfg(test)]
mod tests;
