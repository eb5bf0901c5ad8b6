//! Files that only their owner may read, and that are there completely or not at all.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::IdentityError;

/// The file with keys, certificates and replicas.
const NAME: &str = "identity.json";

pub(super) fn file(folder: &Path) -> PathBuf {
    folder.join(NAME)
}

pub(super) fn read<T: DeserializeOwned>(folder: &Path) -> Result<T, IdentityError> {
    let path = file(folder);
    match fs::read(&path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|_| IdentityError::Damaged(path)),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(IdentityError::Nothing(folder.to_owned()))
        }
        Err(source) => Err(IdentityError::File { path, source }),
    }
}

/// Writes a new file.
pub(super) fn create<T: Serialize>(folder: &Path, value: &T) -> Result<(), IdentityError> {
    let path = file(folder);
    if path.exists() {
        return Err(IdentityError::Exists(folder.to_owned()));
    }
    crate::folder::create(folder).map_err(|source| IdentityError::File { path, source })?;
    write(folder, value)
}

/// Replaces the file, durably.
pub(super) fn write<T: Serialize>(folder: &Path, value: &T) -> Result<(), IdentityError> {
    let path = file(folder);
    let failed = |source| IdentityError::File { path: path.clone(), source };
    let bytes = serde_json::to_vec_pretty(value).map_err(io::Error::from).map_err(failed)?;
    lull_durable::replace_private(&path, &bytes).map_err(failed)
}
