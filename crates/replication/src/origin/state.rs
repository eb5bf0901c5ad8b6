//! What an origin has on stable storage, with the sums that follow from it.

use std::collections::BTreeMap;

use lull_cc::Bytes;

use super::case::{ByCase, CaseClash};
use super::history::{History, Weight};
use super::image::{Append, Entry, Image};
use super::interface::Config;
use super::writes::CaseClashes;
use crate::path::Path;
use crate::types::{Content, Sequence};

/// The committed state. All that replicas hear comes from here.
#[derive(Debug)]
pub(super) struct State {
    pub(super) image: Image,
    /// Bytes of all its objects.
    pub(super) bytes: Bytes,
    /// The size of the log.
    pub(super) history: History,
    /// Its paths without case, where paths that differ only in case are refused.
    pub(super) by_case: Option<ByCase>,
}

impl State {
    pub(super) fn new(image: Image, config: &Config) -> Self {
        let refuses = config.case_clashes == CaseClashes::Refuse;
        State {
            bytes: Bytes(image.objects.values().map(|version| version.content.size.0).sum()),
            history: History::of(&image.log),
            by_case: refuses.then(|| image.objects.keys().collect()),
            image,
        }
    }

    /// Where the log begins after commits of these weights.
    pub(super) fn log_after(&self, new: &[Weight], config: &Config) -> Sequence {
        Sequence(self.image.log_after().0 + self.history.excess(new, config) as u64)
    }

    /// Does a step; gives the entries that left the log.
    pub(super) fn commit(&mut self, append: &Append<()>, weights: Vec<Weight>) -> Vec<Entry> {
        let left = self.image.apply(append);
        // Some may have left again immediately.
        let new = || left.iter().chain(&self.image.log).rev().take(append.commits.len());
        let after = new().flat_map(|entry| &*entry.commit.changes).filter_map(|one| one.content);
        let before = new().flat_map(|entry| &entry.before).flatten().map(|one| one.content);
        self.bytes.0 += after.map(|content| content.size.0).sum::<u64>();
        self.bytes.0 -= before.map(|content| content.size.0).sum::<u64>();
        self.history.change(weights, left.len());
        if let Some(by_case) = &mut self.by_case {
            for change in append.commits.iter().flat_map(|commit| &*commit.changes) {
                by_case.set(&change.path, change.content.is_some());
            }
        }
        left
    }

    /// What of these changes would be refused because of paths that differ only in case.
    pub(super) fn case_clashes(&self, changes: &BTreeMap<Path, Option<Content>>) -> Vec<CaseClash> {
        let found = |path: &Path| {
            let version = self.image.objects.get(path);
            version.map(|version| version.content.is_folder())
        };
        let by_case = self.by_case.as_ref();
        by_case.map_or_else(Vec::new, |by_case| by_case.clashes(changes, found))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::time::WallTime;
    use crate::types::{Change, Commit, Digest, Metadata};

    /// A commit of one change of the object `name`: a body of `size` bytes, or a deletion.
    fn append(sequence: u64, name: u8, size: Option<u64>) -> Append<()> {
        let content = size.map(|size| Content {
            digest: Digest([size as u8; 32]),
            size: Bytes(size),
            metadata: Metadata::default(),
        });
        let path = Path::new(&name.to_string()).expect("a path");
        let (sequence, stamp) = (Sequence(sequence), WallTime::default());
        let commits = vec![Commit { sequence, stamp, changes: [Change { path, content }].into() }];
        Append {
            commits,
            inline: Vec::new(),
            log_after: Sequence::ZERO,
            chain_from: Sequence::ZERO,
        }
    }

    proptest! {
        #[test]
        fn bytes_are_the_sum_over_all_objects(
            writes in prop::collection::vec((0..5_u8, prop::option::of(0..200_u64)), 0..40),
        ) {
            let config = Config { case_clashes: CaseClashes::Refuse, ..Config::default() };
            let mut state = State::new(Image::empty([7; 32]), &config);
            for ((name, size), sequence) in writes.into_iter().zip(1..) {
                state.commit(&append(sequence, name, size), vec![Weight::default()]);
                let again = State::new(state.image.clone(), &config);
                prop_assert_eq!(state.bytes, again.bytes);
                prop_assert_eq!(format!("{:?}", state.by_case), format!("{:?}", again.by_case));
            }
        }
    }
}
