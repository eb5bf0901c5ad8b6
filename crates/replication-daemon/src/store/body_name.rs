//! The names of large bodies in their folder.

use lull_replication::types::Digest;
use object_store::path::Path as Name;

/// The name of a large body in its folder or bucket.
pub fn name_of(digest: &Digest) -> Name {
    let digits = digest.to_string();
    // 256 folders, so that none becomes too large for searches and syncs.
    Name::from(format!("{}/{digits}", &digits[..2]))
}

pub(super) fn digest_of(name: &Name) -> Option<Digest> {
    Some(Digest(*blake3::Hash::from_hex(name.filename()?).ok()?.as_bytes()))
}
