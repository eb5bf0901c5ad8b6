//! Readers of replicas' files, and writers at the origin, by a log and a model of writes (SSR §6.3.2.4): real
//! programs in real mounts.
//!
//! The loop is open: a read is made when it is due, independently of earlier ones, by a thread that waits for
//! nothing else. Its time is that from `open` until the last byte has been read. Bodies contain the number of
//! their file's version, so the observation follows from the bytes alone.
//!
//! The same readers work on a plain folder, and the same writes go into one: so any other tool that keeps two
//! folders equal is measured like an origin and its replicas ([`Edits`], [`Arrivals`]).
//!
//! [`violations`] compares the history with the promises of replication.

mod arrivals;
mod drive;
mod edits;
mod judge;
mod mount;
mod tally;
mod write;

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use crate::numbered::UNKNOWN_BODY;
use crate::numbered::{MIN_BODY_BYTES, body};
use crate::replay::files::own_place;
use crate::replay::trace::Document;
pub use arrivals::Arrivals;
pub use drive::Readers;
pub use edits::Edits;
pub use judge::violations;
pub use tally::{Part, Report, Staleness};
pub use write::ready;

/// A file of the replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its path below the mount.
    pub name: String,
    /// Its size in each version.
    pub bytes: usize,
}

impl File {
    /// For a document of a log: below a folder for its path, by a number that no other file has. A body that
    /// identifies itself has 20 bytes at least.
    pub fn of(document: &Document, number: usize) -> Self {
        let bytes = usize::try_from(document.bytes.unwrap_or(0)).unwrap_or(usize::MAX);
        File { name: own_place(document, number), bytes: bytes.max(MIN_BODY_BYTES) }
    }
}

/// A read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// The time since the beginning.
    pub at: Duration,
    /// The mount, from 0.
    pub replica: usize,
    /// The file, from 0.
    pub file: usize,
}

/// A write of a whole file at the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// The time since the beginning.
    pub at: Duration,
    /// The file, from 0.
    pub file: usize,
}

/// The reads and writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// The files.
    pub files: Vec<File>,
    /// In order.
    pub reads: Vec<Read>,
    /// In order.
    pub writes: Vec<Write>,
}

impl Load {
    /// The number of a file's first body.
    pub fn first_body(&self, file: usize) -> u64 {
        file as u64 + 1
    }

    /// The number of a write's body.
    pub fn written_body(&self, write: usize) -> u64 {
        (self.files.len() + write) as u64 + 1
    }

    /// Writes the first body of each file into a folder, for an origin to publish; returns their bytes.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write_first(&self, folder: &Path) -> Result<u64, ReadersError> {
        let mut bytes = 0;
        for (number, file) in self.files.iter().enumerate() {
            let path = folder.join(&file.name);
            let made = path.parent().map_or(Ok(()), fs::create_dir_all);
            let body = body(self.first_body(number), file.bytes);
            bytes += body.len() as u64;
            made.and_then(|()| fs::write(&path, body))
                .map_err(|source| ReadersError::First { path, source })?;
        }
        Ok(bytes)
    }
}

/// The destination of writes.
#[derive(Clone, Debug)]
pub enum Source {
    /// At an origin, by HTTP.
    Origin(Origin),
    /// In a folder, as a careful program does: a new file takes the place of the old one. It is made beside
    /// the folder, so that no reader finds a part of it there.
    Folder(PathBuf),
}

/// The write address of an origin, and the credentials.
#[derive(Clone, Debug)]
pub struct Origin {
    /// Its HTTP address.
    pub address: SocketAddr,
    /// The token for writes.
    pub token: String,
}

/// A read that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnsweredRead {
    /// Which one.
    pub read: usize,
    /// When the file was opened, since the beginning.
    pub began: Duration,
    /// When it was read completely.
    pub ended: Duration,
    /// The number of the body; [`UNKNOWN_BODY`] for unknown bytes.
    pub body: u64,
}

/// A write that was acknowledged. One into a folder is acknowledged when the file exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Which one.
    pub write: usize,
    /// The state that it has made; in a folder, its index among all writes.
    pub position: u64,
    /// When it was begun, since the beginning.
    pub began: Duration,
    /// When it was acknowledged.
    pub at: Duration,
}

/// All that happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// In the order of [`Load::reads`].
    pub reads: Vec<AnsweredRead>,
    /// Reads without an answer, and how long they have waited.
    pub unanswered: Vec<(usize, Duration)>,
    /// In the order of [`Load::writes`].
    pub writes: Vec<Written>,
    /// From the beginning to the end.
    pub length: Duration,
}

/// The progress of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Since the beginning.
    pub now: Duration,
    /// Reads that came due.
    pub due: usize,
    /// Reads that were answered.
    pub answered: usize,
}

/// Why a run has failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadersError {
    /// A first version cannot be written.
    #[error("{} cannot be written", path.display())]
    First {
        /// The path.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// There is no replica.
    #[error("nothing is mounted on {}: start its replica first", .0.display())]
    NotMounted(PathBuf),
    /// It does not answer.
    #[error("the mount on {} answers no read: `lull status` of its replica says more", .0.display())]
    Silent(PathBuf),
    /// A folder for reads cannot be opened.
    #[error("{} cannot be opened", folder.display())]
    Folder {
        /// Which.
        folder: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A file cannot be read.
    #[error("{name} cannot be read below {}: publish the output of --into first", mount.display())]
    Read {
        /// The mount.
        mount: PathBuf,
        /// The file.
        name: String,
        /// The system's reason.
        source: io::Error,
    },
    /// A file of an earlier run exists.
    #[error("{name} below {} is not the first version: copy the output of --into to both places", folder.display())]
    Version {
        /// The file.
        name: String,
        /// The folder.
        folder: PathBuf,
    },
    /// No write has arrived.
    #[error("{name} was written, and cannot be read below {} after {} s", folder.display(), after.as_secs())]
    Apart {
        /// The file.
        name: String,
        /// The folder of the read.
        folder: PathBuf,
        /// The length of the wait.
        after: Duration,
    },
    /// A file cannot be written.
    #[error("{name} cannot be written below {}", folder.display())]
    Edit {
        /// The file.
        name: String,
        /// The folder.
        folder: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A write was rejected.
    #[error("the origin rejected {name}: {why}")]
    Write {
        /// The file.
        name: String,
        /// Why.
        why: String,
    },
    /// The origin has commits of another client.
    #[error(
        "another client writes to this origin, so the reads cannot be checked: stop it, and try again"
    )]
    OtherWriter,
    /// A system call failed.
    #[error("{what} failed")]
    System {
        /// The attempted operation.
        what: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numbered::number_of;
    use crate::replay::trace::Documents;

    #[test]
    fn first_versions_name_their_file() {
        let mut documents = Documents::default();
        let targets = ["/", "/a", "/a/b.gif", "/a?b", "/a?c", "/.."];
        let files = targets.iter().enumerate().map(|(number, target)| {
            let id = documents.number(target);
            File::of(documents.get(id), number)
        });
        let mut load = Load { files: files.collect(), ..Load::default() };
        load.files[2].bytes = 1_000;
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(load.write_first(folder.path()).unwrap(), 5 * 20 + 1_000);
        for (number, name) in
            ["=0", "a/=1", "a/b.gif/=2", "a/=3", "a/=4", "=5"].into_iter().enumerate()
        {
            let File { bytes, .. } = load.files[number];
            let body = fs::read(folder.path().join(name)).unwrap();
            assert_eq!(number_of(&body, |_| bytes), Some(load.first_body(number)), "{name}");
        }
        assert_eq!(load.written_body(0), 7);
    }
}
