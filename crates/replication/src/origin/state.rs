//! The state of an origin on stable storage, with the sums that follow from it.

use std::collections::BTreeMap;

use lull_cc::Bytes;

use super::case::{ByCase, CaseClash};
use super::history::{History, Weight};
use super::image::{Entry, Image};
use super::interface::Config;
use super::writes::CaseClashes;
use crate::by_body::ByBody;
use crate::path::Path;
use crate::types::{Change, Content, Digest, Position, Sequence, Version};

/// The committed state. All that replicas hear comes from here.
#[derive(Debug)]
pub(super) struct State {
    pub(super) image: Image,
    /// Bytes of all its objects.
    pub(super) bytes: Bytes,
    /// The size of the log.
    pub(super) history: History,
    /// Its objects by their bodies.
    by_body: ByBody,
    /// Its paths without case, where paths that differ only in case are refused.
    pub(super) by_case: Option<ByCase>,
}

impl State {
    pub(super) fn new(image: Image, config: &Config) -> Self {
        let refuses = config.case_clashes == CaseClashes::Refuse;
        State {
            bytes: Bytes(image.objects.values().map(|version| version.content.size.0).sum()),
            history: History::of(&image.log),
            by_body: by_body(&image),
            by_case: refuses.then(|| image.objects.keys().collect()),
            image,
        }
    }

    /// Where the log begins after commits of these weights.
    pub(super) fn log_after(&self, new: &[Weight], config: &Config) -> Sequence {
        Sequence(self.image.log_after().0 + self.history.excess(new, config) as u64)
    }

    /// Changes an object; returns its earlier version.
    pub(super) fn change(&mut self, sequence: Sequence, change: &Change) -> Option<Version> {
        let before = self.image.change(sequence, change);
        if let Some(Version { content, .. }) = before {
            self.bytes.0 -= content.size.0;
            self.by_body.remove(&content.digest, &change.path);
        }
        if let Some(content) = change.content {
            self.bytes.0 += content.size.0;
            self.by_body.add(&content.digest, &change.path);
        }
        if let Some(by_case) = &mut self.by_case {
            by_case.set(&change.path, change.content.is_some());
        }
        before
    }

    /// A commit is complete, whose changes were made.
    pub(super) fn push(&mut self, entry: Entry, position: Position, weight: Weight) {
        self.image.push(entry, position);
        self.history.push(weight);
    }

    /// The log becomes shorter; returns the entries that left it.
    pub(super) fn trim(&mut self, log_after: Sequence, chain_from: Sequence) -> Vec<Entry> {
        let left = self.image.trim(log_after, chain_from);
        self.history.forget(left.len());
        left
    }

    /// The objects that have a body, in the order of their paths.
    pub(super) fn holders(&self, digest: &Digest) -> impl Iterator<Item = &Path> {
        let has = |path: &&Path| {
            let version = self.image.objects.get(*path);
            version.is_some_and(|version| version.content.digest == *digest)
        };
        self.by_body.paths_of(digest).filter(has)
    }

    /// The changes that would be rejected because their paths differ only in case.
    pub(super) fn case_clashes(&self, changes: &BTreeMap<Path, Option<Content>>) -> Vec<CaseClash> {
        let found = |path: &Path| {
            let version = self.image.objects.get(path);
            version.map(|version| version.content.is_folder())
        };
        let by_case = self.by_case.as_ref();
        by_case.map_or_else(Vec::new, |by_case| by_case.clashes(changes, found))
    }
}

fn by_body(image: &Image) -> ByBody {
    let mut by_body = ByBody::default();
    for (path, version) in &image.objects {
        by_body.add(&version.content.digest, path);
    }
    by_body
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::types::{Digest, Metadata};

    /// A change of the object `name`: a body of `size` bytes, or a deletion.
    fn change(name: u8, size: Option<u64>) -> Change {
        let content = size.map(|size| Content {
            digest: Digest([size as u8; 32]),
            size: Bytes(size),
            metadata: Metadata::default(),
        });
        Change { path: Path::new(&name.to_string()).expect("a path"), content }
    }

    proptest! {
        #[test]
        fn sums_and_indexes_equal_those_of_all_objects(
            writes in prop::collection::vec((0..5_u8, prop::option::of(0..200_u64)), 0..40),
        ) {
            let config = Config { case_clashes: CaseClashes::Refuse, ..Config::default() };
            let mut state = State::new(Image::empty([7; 32]), &config);
            for ((name, size), sequence) in writes.into_iter().zip(1..) {
                state.change(Sequence(sequence), &change(name, size));
                let again = State::new(state.image.clone(), &config);
                prop_assert_eq!(state.bytes, again.bytes);
                prop_assert_eq!(format!("{:?}", state.by_case), format!("{:?}", again.by_case));
                prop_assert_eq!(&state.by_body, &again.by_body);
                let digest = Digest([size.unwrap_or(7) as u8; 32]);
                let objects = state.image.objects.iter();
                let with = objects.filter(|(_, version)| version.content.digest == digest);
                prop_assert!(state.holders(&digest).eq(with.map(|(path, _)| path)));
            }
        }
    }
}
