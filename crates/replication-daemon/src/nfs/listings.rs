//! Folders that clients read in parts. All parts are of one state, whose number is the verifier of the cookies.

use std::collections::VecDeque;
use std::sync::Arc;

use lull_replication::path::Path;
use lull_replication::replica::Entry;
use lull_replication::types::Sequence;

/// Listings that are remembered, and the names in all of them but the last. Others are made again, as long as the
/// replica has their state.
const REMEMBERED: usize = 64;
const REMEMBERED_NAMES: usize = 1_000_000;

/// The names of a folder in a state, without `.` and `..`.
#[derive(Debug)]
pub(super) struct Listing {
    pub(super) folder: Option<Path>,
    pub(super) at: Sequence,
    pub(super) names: Vec<(Vec<u8>, Entry)>,
}

/// The last listings.
#[derive(Debug, Default)]
pub(super) struct Listings(VecDeque<Arc<Listing>>);

impl Listings {
    pub(super) fn add(&mut self, listing: Arc<Listing>) {
        if self.get(&listing.folder, listing.at).is_none() {
            self.0.push_back(listing);
        }
        let names = |all: &VecDeque<Arc<Listing>>| -> usize {
            all.iter().rev().skip(1).map(|one| one.names.len()).sum()
        };
        while self.0.len() > REMEMBERED || names(&self.0) > REMEMBERED_NAMES {
            self.0.pop_front();
        }
    }

    pub(super) fn get(&self, folder: &Option<Path>, at: Sequence) -> Option<Arc<Listing>> {
        self.0.iter().find(|one| one.at == at && one.folder == *folder).cloned()
    }
}
