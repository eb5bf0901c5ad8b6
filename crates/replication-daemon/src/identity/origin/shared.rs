//! The identity in a log that several origins share.

use std::path::Path;

use super::{OriginFile, OriginIdentity};
use crate::identity::{IdentityError, files, random, sealed};

/// Stores an encrypted identity where other origins read it.
pub(super) type Publish = Box<dyn Fn(Vec<u8>) -> Result<(), IdentityError> + Send>;

impl OriginIdentity {
    /// The key that encrypts the identity in a log; none if it was never in one.
    pub(crate) fn log_key(&self) -> Option<[u8; 32]> {
        self.kept.log_key
    }

    /// The same, made if there is none.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn make_log_key(&mut self) -> Result<[u8; 32], IdentityError> {
        if let Some(key) = self.kept.log_key {
            return Ok(key);
        }
        let key = random()?;
        self.change(|kept| {
            kept.log_key = Some(key);
            Ok::<_, IdentityError>(key)
        })
    }

    /// From now on each change, and the present state, is stored by `publish` first.
    ///
    /// # Errors
    /// If that fails.
    pub(crate) fn publish_by(&mut self, publish: Publish) -> Result<(), IdentityError> {
        publish(encrypt(&self.kept)?)?;
        self.publish = Some(publish);
        Ok(())
    }

    /// Replaces the identity in `folder` by one that another origin has stored.
    ///
    /// # Errors
    /// If it is encrypted with another key, or cannot be written.
    pub(crate) fn receive(
        folder: &Path,
        key: &[u8; 32],
        encrypted: &[u8],
    ) -> Result<(), IdentityError> {
        let bytes = sealed::open(key, encrypted)?;
        let kept: OriginFile = serde_json::from_slice(&bytes).map_err(|_| IdentityError::Sealed)?;
        files::write(folder, &kept)
    }
}

/// The identity as the log has it.
pub(super) fn encrypt(kept: &OriginFile) -> Result<Vec<u8>, IdentityError> {
    let key = kept.log_key.ok_or(IdentityError::Sealed)?;
    let bytes = serde_json::to_vec(kept).map_err(|error| IdentityError::Log(error.to_string()))?;
    sealed::seal(&key, &bytes)
}
