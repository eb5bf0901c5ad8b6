//! The marker of a bucket: which origin's bodies it has, and which process writes it.
//!
//! Two origins below one prefix would delete each other's bodies. So an origin puts a marker into an empty
//! prefix, and refuses one with the marker of another origin. Each start writes its number into the marker,
//! if the marker has not changed since it was read. So a second process of the same origin, started from a
//! copy of its folder, is noticed by the first, which then deletes nothing any more. A folder refuses a
//! marker that it has not written: it is older than what is in the bucket. Of origins that share a log, the one that
//! writes the log replaces the marker: its life is the highest.

use object_store::path::Path as Name;
use object_store::{ObjectStoreExt, PutMode, PutOptions, PutPayload, UpdateVersion};
use serde::{Deserialize, Serialize};

use super::{Failure, Shared};

/// The name of the marker below the prefix.
pub(super) const MARKER: &str = "lull-origin.json";

/// The version of its format.
const FORMAT: u32 = 1;

/// The contents of the marker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Marker {
    format: u32,
    /// The random number of the origin, in hexadecimal digits.
    origin: String,
    /// When the last process that uses the bucket began, in microseconds since 1970.
    life: u64,
}

/// Why the bucket may not be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NotClaimed {
    /// It does not answer now.
    Failed(Failure),
    /// It has the marker of another origin.
    Other,
    /// There is another object with the name of the marker.
    Unknown,
    /// The marker of this origin is gone.
    Gone,
    /// The bucket does not exist.
    NoBucket,
    /// Another process of this origin uses the bucket.
    Taken,
    /// The bucket was used by this origin from another folder since.
    Newer,
}

impl From<Failure> for NotClaimed {
    fn from(failure: Failure) -> Self {
        NotClaimed::Failed(failure)
    }
}

impl Marker {
    pub(super) fn new(origin: &str, life: u64) -> Self {
        Marker { format: FORMAT, origin: origin.to_owned(), life }
    }

    /// Whether the bucket may be used, by its marker.
    fn admits(&self, found: &Marker) -> Result<(), NotClaimed> {
        if found.format != FORMAT {
            Err(NotClaimed::Unknown)
        } else if found.origin != self.origin {
            Err(NotClaimed::Other)
        } else if found.life > self.life {
            Err(NotClaimed::Taken)
        } else {
            Ok(())
        }
    }
}

impl Shared {
    fn marker_name(&self) -> Name {
        self.address.prefix.clone().join(MARKER)
    }

    /// Reads the marker; none if there is none.
    async fn marker(&self) -> Result<Option<(Marker, UpdateVersion)>, NotClaimed> {
        let name = self.marker_name();
        let read = || async {
            let got = self.objects.get(&name).await?;
            let version =
                UpdateVersion { e_tag: got.meta.e_tag.clone(), version: got.meta.version.clone() };
            Ok((got.bytes().await?, version))
        };
        match self.retried(read).await {
            Ok((bytes, version)) => {
                let marker = serde_json::from_slice(&bytes).map_err(|_| NotClaimed::Unknown)?;
                Ok(Some((marker, version)))
            }
            Err(Failure::Missing) => Ok(None),
            Err(failure) => Err(failure.into()),
        }
    }

    /// Takes the bucket for this process. An empty one is taken unless it was used before.
    pub(super) async fn claim(&self) -> Result<(), NotClaimed> {
        let mode = match self.marker().await? {
            None if !self.last_lives.is_empty() => return Err(NotClaimed::Gone),
            None => PutMode::Create,
            Some((found, version)) => {
                self.may_replace(&found)?;
                PutMode::Update(version)
            }
        };
        let written = serde_json::to_vec(&self.marker).unwrap_or_default();
        let name = self.marker_name();
        let put = async |mode: &PutMode| {
            let put = || {
                let payload = PutPayload::from(written.clone());
                let options = PutOptions::from(mode.clone());
                self.objects.put_opts(&name, payload, options)
            };
            self.retried(put).await
        };
        match put(&mode).await {
            // The server has no conditional writes.
            Err(Failure::Unsupported) => drop(put(&PutMode::Overwrite).await?),
            // Another process was faster, or an earlier attempt arrived: the marker shows it.
            Ok(_) | Err(Failure::Changed) => {}
            Err(Failure::Missing) => return Err(NotClaimed::NoBucket),
            Err(failure) => return Err(failure.into()),
        }
        self.is_claimed().await
    }

    /// Whether this process may write the marker instead of the found one.
    fn may_replace(&self, found: &Marker) -> Result<(), NotClaimed> {
        match &self.unshared {
            // The bucket was used before the origin was shared.
            Some(before) if found.format == FORMAT && found.origin == *before => Ok(()),
            Some(_) => self.marker.admits(found),
            None => {
                self.marker.admits(found)?;
                let is_known = *found == self.marker || self.last_lives.contains(&found.life);
                if is_known { Ok(()) } else { Err(NotClaimed::Newer) }
            }
        }
    }

    /// Whether the bucket is that of this process.
    pub(super) async fn is_claimed(&self) -> Result<(), NotClaimed> {
        match self.marker().await? {
            None => Err(NotClaimed::Gone),
            Some((found, _)) if found == self.marker => Ok(()),
            Some((found, _)) => self.marker.admits(&found).and(Err(NotClaimed::Taken)),
        }
    }

    /// The failure in one line, with what to do.
    pub(super) fn explain(&self, why: &NotClaimed) -> String {
        let address = &self.address;
        match why {
            NotClaimed::Gone if let Some(before) = &self.moved_from => format!(
                "the bodies of this origin are in `{before}`: copy all its objects to `{address}` first, for \
                 example with aws s3 sync"
            ),
            NotClaimed::Failed(failure) => failure.to_string(),
            NotClaimed::Other => format!(
                "`{address}` has the bodies of another origin: use another prefix, such as \
                 s3://{}/NAME",
                address.bucket
            ),
            NotClaimed::Unknown => format!(
                "`{address}/{MARKER}` is not a marker of this version of Lull: use another prefix, or install \
                 the newer release"
            ),
            NotClaimed::Gone => format!(
                "`{address}` does not have the marker of this origin any more: restore the bucket, or delete \
                 store.json in the origin's folder to continue with the bodies that are there"
            ),
            NotClaimed::NoBucket => format!(
                "there is no bucket `{}`: create it, or correct its name, endpoint or region",
                address.bucket
            ),
            NotClaimed::Newer => format!(
                "`{address}` was used by this origin from another folder since: start it there. To restore this \
                 older folder instead, delete its store.json and `{address}/{MARKER}`, and set --store again"
            ),
            NotClaimed::Taken => format!(
                "`{address}` is used by another process of this origin, which started from a copy of its \
                 folder: end one of the two"
            ),
        }
    }
}
