//! The log of an origin, with the numbers of the bodies.

use std::collections::BTreeMap;

use lull_replication::checker::{Body, Changes, Name};
use lull_replication::origin::Image;
use lull_replication::types::{Change, Digest, Kind, Sequence};

use super::history::{History, body, object_of};
use super::judge::name;

/// A body in the log that was never written. No read shows it.
const UNKNOWN: Body = Body(u64::MAX - 1);

/// The log does not reach back to its first commit.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the origin has forgotten the beginning of its log: take fewer --seconds")]
pub struct ForgottenLogError;

/// The changes of all commits, from the state on the origin's disk.
///
/// # Errors
/// If the origin has forgotten the first ones.
pub fn changes_of(history: &History, image: &Image) -> Result<Vec<Changes>, ForgottenLogError> {
    if image.log_after() != Sequence::ZERO {
        return Err(ForgottenLogError);
    }
    let bodies: BTreeMap<Digest, Body> =
        (1..=history.bodies).map(|number| (Digest::of(&body(number)), Body(number))).collect();
    let changes = image.log.iter().map(|entry| {
        // The folder of published files is an object too, which no client writes.
        let is_written = |change: &&Change| {
            change.content.is_none_or(|content| content.metadata.kind != Kind::Folder)
        };
        let changes = entry.commit.changes.iter().filter(is_written).map(|change| {
            let object = object_of(&change.path.to_string()).map_or(Name(u32::MAX), name);
            let digest = change.content.map(|content| content.digest);
            let body = digest.map(|digest| bodies.get(&digest).copied().unwrap_or(UNKNOWN));
            (object, body)
        });
        changes.collect()
    });
    Ok(changes.collect())
}

#[cfg(test)]
mod tests {
    use lull_cc::Bytes;
    use lull_replication::origin::Append;
    use lull_replication::path::Path;
    use lull_replication::time::WallTime;
    use lull_replication::types::{Commit, Content, Metadata, Mode};

    use super::super::path_of;
    use super::*;

    fn image(log_after: u64) -> Image {
        let file = |bytes: &[u8]| Content {
            digest: Digest::of(bytes),
            size: Bytes(bytes.len() as u64),
            metadata: Metadata::default(),
        };
        let stamp = WallTime::default();
        let change = |path: &str, content| Change { path: Path::new(path).unwrap(), content };
        let changes = [
            vec![
                change("set", Some(Content::folder(stamp, Mode::PLAIN))),
                change(&path_of(24), Some(file(&body(2)))),
            ],
            vec![change(&path_of(0), Some(file(b"not of a client"))), change(&path_of(24), None)],
        ];
        let commits = (1..).zip(changes).map(|(sequence, changes)| Commit {
            sequence: Sequence(sequence),
            stamp,
            changes: changes.into(),
        });
        let mut image = Image::empty([0; 32]);
        image.apply::<()>(&Append {
            commits: commits.collect(),
            inline: Vec::new(),
            log_after: Sequence(log_after),
            chain_from: Sequence::ZERO,
        });
        image
    }

    #[test]
    fn commits_have_objects_and_bodies_of_clients() {
        let history = History { bodies: 2, ..History::default() };
        let expected = vec![
            Changes::from([(name(24), Some(Body(2)))]),
            Changes::from([(name(0), Some(UNKNOWN)), (name(24), None)]),
        ];
        assert_eq!(changes_of(&history, &image(0)), Ok(expected));
        assert_eq!(changes_of(&history, &image(1)), Err(ForgottenLogError));
    }
}
