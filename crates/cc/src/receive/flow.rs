//! A download with a handle to its path.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Arrival, Download, Downloads};
use crate::Timestamp;
use crate::lull::Member;

/// A path that downloads of one process share.
#[derive(Clone, Debug, Default)]
pub struct SharedPath(Arc<Mutex<Downloads>>);

impl SharedPath {
    /// A new download on the path.
    pub fn join(&self) -> Flow {
        self.join_with_weight(Member::USUAL_WEIGHT)
    }

    /// A new download on the path with a weight ([`Member::join_with_weight`]).
    pub fn join_with_weight(&self, weight: u32) -> Flow {
        Flow { download: Download::join(&mut self.lock(), weight), path: self.clone() }
    }

    /// The path's state.
    pub fn lock(&self) -> MutexGuard<'_, Downloads> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A download that shares its path's window with others; it leaves the path when it is dropped.
#[derive(Debug)]
pub struct Flow {
    download: Download,
    path: SharedPath,
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.download.leave(&mut self.path.lock());
    }
}

impl Flow {
    /// A packet with data arrives ([`Download::handle_echo`]).
    pub fn handle_echo(&mut self, now: Timestamp, echo: u32) {
        self.download.handle_echo(now, echo);
    }

    /// An acknowledgement is about to leave. Returns for how many packets the window may
    /// have room; 0 if for less than one.
    pub fn handle_arrival(&mut self, arrival: &Arrival) -> u32 {
        self.download.handle_arrival(&mut self.path.lock(), arrival);
        self.download.packets()
    }
}
