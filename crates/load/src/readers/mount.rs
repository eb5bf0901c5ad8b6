//! A mount of a replica, or a folder, in which files are read.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::{File, Load, ReadersError};
use crate::mounted::Root;
use crate::numbered;

/// The interval of checks for events.
pub(super) const STEP: Duration = Duration::from_millis(20);
/// How often a file is reopened if it is written faster than it arrives.
const TRIES: usize = 8;

pub(super) fn system(what: &'static str) -> impl Fn(io::Error) -> ReadersError {
    move |source| ReadersError::System { what, source }
}

/// A mount, or a folder, that answers.
#[derive(Clone, Debug)]
pub(super) struct Mount {
    folder: PathBuf,
    root: Arc<Root>,
}

impl Mount {
    pub(super) fn new(folder: &Path, root: Root) -> Self {
        Mount { folder: folder.to_owned(), root: Arc::new(root) }
    }

    /// The current entries of a folder.
    pub(super) fn hold(folder: &Path) -> Result<Self, ReadersError> {
        match Root::hold(folder) {
            Ok(root) => Ok(Mount::new(folder, root)),
            Err(source) => Err(ReadersError::Folder { folder: folder.to_owned(), source }),
        }
    }

    /// Reads a file, but waits only until `until`: a replica that has no news from its origin lets reads
    /// wait.
    pub(super) fn read_until(&self, name: &str, until: Instant) -> Result<Vec<u8>, ReadersError> {
        let (told, answered) = channel();
        let (reader, name) = (self.clone(), name.to_owned());
        let read = move || drop(told.send(reader.read(&name)));
        thread::Builder::new().spawn(read).map_err(system("starting a thread"))?;
        match answered.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(read) => read,
            Err(_) => Err(ReadersError::Silent(self.folder.clone())),
        }
    }

    /// Whether the first version of a file is present.
    pub(super) fn has_first(
        &self,
        load: &Load,
        number: usize,
        until: Instant,
    ) -> Result<(), ReadersError> {
        let File { name, bytes } = &load.files[number];
        let read = self.read_until(name, until)?;
        match numbered::number_of(&read, |_| *bytes) == Some(load.first_body(number)) {
            true => Ok(()),
            false => {
                let (name, folder) = (name.clone(), self.folder.clone());
                Err(ReadersError::Version { name, folder })
            }
        }
    }

    /// Reads a whole file like any program.
    pub(super) fn read(&self, name: &str) -> Result<Vec<u8>, ReadersError> {
        let path = self.root.path(name);
        let mut read = fs::read(&path);
        for _ in 1..TRIES {
            // It was overwritten before its body had arrived: there is a newer one.
            let stale = read.as_ref().is_err_and(|error| {
                error.raw_os_error().map(Errno::from_raw) == Some(Errno::ESTALE)
            });
            if !stale {
                break;
            }
            read = fs::read(&path);
        }
        read.map_err(|source| ReadersError::Read {
            mount: self.folder.clone(),
            name: name.to_owned(),
            source,
        })
    }
}
