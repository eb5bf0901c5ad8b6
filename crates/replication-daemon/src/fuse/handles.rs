//! Open files and folders.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

use tokio::sync::Mutex as AsyncMutex;

use super::abi::Kind;
use super::nodes::File;
use crate::daemon::Found;

/// The body of a version, shared by all open handles that have read it.
pub(super) type Body = AsyncMutex<Weak<Found>>;

/// Open files.
#[derive(Debug, Default)]
pub(super) struct Handles {
    pub(super) open: BTreeMap<u64, Open>,
    last: u64,
}

#[derive(Clone, Debug)]
pub(super) enum Open {
    File(Arc<OpenFile>),
    Folder(Arc<[Listed]>),
}

/// An open file. Its body is opened at the first read: the kernel may have its pages.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) file: Arc<File<Body>>,
    pub(super) body: Mutex<Option<Arc<Found>>>,
}

impl Handles {
    /// Opens something, and returns its handle.
    pub(super) fn add(&mut self, open: Open) -> u64 {
        self.last += 1;
        self.open.insert(self.last, open);
        self.last
    }
}

/// A name of an open folder.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) name: Vec<u8>,
    pub(super) number: u64,
    pub(super) kind: Kind,
}
