//! The file in an origin's folder that names its log.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path as FilePath;

use serde::{Deserialize, Serialize};

use super::LogAddress;
use super::message::NodeId;
use crate::identity;
use crate::store::StoreError;

const NAME: &str = "log.json";

/// The contents of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct RecordFile {
    /// The address of the log.
    log: String,
    /// The random number of this folder, in hexadecimal digits.
    node: String,
}

/// The log of an origin, and the number of its folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) address: LogAddress,
    pub(super) node: NodeId,
}

impl Record {
    /// The log of the folder: this one, or the one of the last start. None if it never had one.
    pub(super) fn take(
        folder: &FilePath,
        address: Option<LogAddress>,
    ) -> Result<Option<Self>, StoreError> {
        let path = folder.join(NAME);
        let before: Option<RecordFile> = match fs::read(&path) {
            Ok(bytes) => {
                let kept = serde_json::from_slice(&bytes);
                Some(kept.map_err(|_| StoreError::Damaged(format!("`{}`", path.display())))?)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(source) => return Err(StoreError::Folder { path, source }),
        };
        let known = before.as_ref().map(|kept| kept.log.parse::<LogAddress>()).transpose();
        let known = known.map_err(|error| StoreError::Log(error.to_string()))?;
        let Some(address) = address.or(known) else { return Ok(None) };
        let node = match before.as_ref().and_then(|kept| parse(&kept.node)) {
            Some(node) => node,
            None => NodeId(random()?),
        };
        let hex: String = node.0.iter().map(|byte| format!("{byte:02x}")).collect();
        let kept = RecordFile { log: address.to_string(), node: hex };
        if before.as_ref() != Some(&kept) {
            write(folder, &kept).map_err(|source| StoreError::Folder { path, source })?;
        }
        Ok(Some(Record { address, node }))
    }
}

/// A random number.
pub(super) fn random() -> Result<[u8; 16], StoreError> {
    let bytes = identity::random().map_err(|error| StoreError::Log(error.to_string()))?;
    Ok(core::array::from_fn(|at| bytes[at]))
}

fn parse(text: &str) -> Option<NodeId> {
    let number = u128::from_str_radix(text, 16).ok()?;
    Some(NodeId(number.to_be_bytes()))
}

/// Replaces the file, durably.
fn write(folder: &FilePath, kept: &RecordFile) -> io::Result<()> {
    lull_durable::replace(&folder.join(NAME), &serde_json::to_vec_pretty(kept)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_keeps_its_log_and_its_number() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Record::take(folder.path(), None).unwrap(), None);
        let address: LogAddress = "nats://a:1,b:2/pages".parse().unwrap();
        let first = Record::take(folder.path(), Some(address)).unwrap().unwrap();
        assert_eq!(Record::take(folder.path(), None).unwrap().as_ref(), Some(&first));
        let moved: LogAddress = "nats://c:1/pages".parse().unwrap();
        let second = Record::take(folder.path(), Some(moved.clone())).unwrap().unwrap();
        assert_eq!(second, Record { address: moved, node: first.node });
    }
}
