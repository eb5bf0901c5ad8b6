//! Writers: one file after the other, at an origin or into a folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::mount::{Mount, STEP, system};
use super::{File, Load, Origin, ReadersError, Source, Written};
use crate::http_client::{Client, PlannedRequest, block_on};
use crate::numbered::{self, MIN_BODY_BYTES};
use crate::replay::files::encoded;

/// The name of a file that is written to test the whole path.
const SIGN: &str = "ready";
/// Its body, which is unlike that of any write of a load.
const SIGN_BODY: u64 = u64::MAX - 1;

/// The time after which it is written again.
const REWRITE_INTERVAL: Duration = Duration::from_secs(1);

/// A thread that writes.
pub(super) type Writing = JoinHandle<Result<Vec<Written>, ReadersError>>;

/// Starts it.
pub(super) fn begin_to_write(
    begun: Instant,
    load: Arc<Load>,
    source: Source,
    stop: Arc<AtomicBool>,
) -> Result<Writing, ReadersError> {
    let work = move || {
        let written = block_on(write(begun, &load, &source, &stop));
        written.map_err(system("starting the writer"))?
    };
    let thread = thread::Builder::new().name("writer".to_owned()).spawn(work);
    thread.map_err(system("starting a thread"))
}

/// Writes one file after the other, each when it is due.
async fn write(
    begun: Instant,
    load: &Load,
    source: &Source,
    stop: &AtomicBool,
) -> Result<Vec<Written>, ReadersError> {
    let mut writer = Writer::new(source);
    let mut written = Vec::with_capacity(load.writes.len());
    for (number, write) in load.writes.iter().enumerate() {
        let due = begun + write.at;
        tokio::time::sleep(due.saturating_duration_since(Instant::now())).await;
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let File { name, bytes } = &load.files[write.file];
        let body = numbered::body(load.written_body(number), *bytes);
        let began = begun.elapsed();
        let position = writer.write(name, &body).await?;
        written.push(Written { write: number, position, began, at: begun.elapsed() });
    }
    Ok(written)
}

/// Writes in the place of the files.
enum Writer<'a> {
    Origin(&'a Origin, Client),
    Folder { folder: &'a Path, beside: PathBuf, writes: u64 },
}

impl<'a> Writer<'a> {
    fn new(source: &'a Source) -> Self {
        match source {
            Source::Origin(origin) => Writer::Origin(origin, Client::to(origin.address)),
            Source::Folder(folder) => Writer::Folder { folder, beside: beside(folder), writes: 0 },
        }
    }

    /// Writes a file; returns the position of that write.
    async fn write(&mut self, name: &str, body: &[u8]) -> Result<u64, ReadersError> {
        match self {
            Writer::Origin(origin, client) => put(origin, client, name, body).await,
            Writer::Folder { folder, beside, writes } => {
                let into = folder.join(name);
                let written = fs::write(&*beside, body).and_then(|()| fs::rename(&*beside, into));
                written.map_err(|source| ReadersError::Edit {
                    name: name.to_owned(),
                    folder: folder.to_path_buf(),
                    source,
                })?;
                *writes += 1;
                Ok(*writes)
            }
        }
    }
}

/// The folder for new files: in the same file system, and not where readers look for files.
fn beside(folder: &Path) -> PathBuf {
    let mut name = folder.file_name().unwrap_or_default().to_owned();
    name.push(".edit");
    folder.with_file_name(name)
}

async fn put(
    origin: &Origin,
    client: &mut Client,
    name: &str,
    body: &[u8],
) -> Result<u64, ReadersError> {
    let path = format!("/{}", encoded(name));
    let bearer = Some(&*origin.token);
    let asked = PlannedRequest { method: "PUT", path: &path, bearer, session: None, body };
    let refused = |why: String| ReadersError::Write { name: name.to_owned(), why };
    let Some(answer) = client.ask(asked).await else {
        return Err(refused(format!("no server answers at {}", origin.address)));
    };
    let position = answer.sequence.filter(|_| answer.status == 200);
    position.ok_or_else(|| refused(format!("it says {}", answer.status)))
}

/// Writes one more file, and waits until it can be read in a folder: then everything in between is running.
/// It is written repeatedly: a reader that is just starting may miss the first write, and an origin that is
/// just starting may not accept it.
///
/// # Errors
/// [`ReadersError::Apart`] if it does not arrive within `patience`; and if it cannot be written.
pub fn ready(source: &Source, folder: &Path, patience: Duration) -> Result<(), ReadersError> {
    let until = Instant::now() + patience;
    let body = numbered::body(SIGN_BODY, MIN_BODY_BYTES);
    let mut next = Instant::now();
    while Instant::now() < until {
        if Instant::now() >= next {
            let written = block_on(async { Writer::new(source).write(SIGN, &body).await });
            match written.map_err(system("starting the writer"))? {
                Ok(_) | Err(ReadersError::Write { .. }) => next = Instant::now() + REWRITE_INTERVAL,
                Err(error) => return Err(error),
            }
        }
        let read = Mount::hold(folder).and_then(|mount| mount.read_until(SIGN, until));
        if read.is_ok_and(|read| read == body) {
            return Ok(());
        }
        thread::sleep(STEP);
    }
    let (name, folder) = (SIGN.to_owned(), folder.to_owned());
    Err(ReadersError::Apart { name, folder, after: patience })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_created_beside_its_folder() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("source");
        fs::create_dir(&folder).unwrap();
        let source = Source::Folder(folder.clone());
        let mut writer = Writer::new(&source);
        for (number, body) in [(1, "one"), (2, "two")] {
            let position = block_on(writer.write("a", body.as_bytes())).unwrap().unwrap();
            assert_eq!(position, number);
            assert_eq!(fs::read_to_string(folder.join("a")).unwrap(), body);
        }
        let names = |folder: &Path| fs::read_dir(folder).unwrap().count();
        assert_eq!((names(&folder), names(home.path())), (1, 1));
        // A trailing slash makes no difference.
        assert_eq!(beside(Path::new("a/b/")), Path::new("a/b.edit"));
        let nowhere = Source::Folder(home.path().join("nowhere"));
        let error = block_on(Writer::new(&nowhere).write("a", b"")).unwrap().unwrap_err();
        assert!(matches!(error, ReadersError::Edit { .. }), "{error}");
    }

    #[test]
    fn writer_is_ready_when_a_file_arrives() {
        let home = tempfile::tempdir().unwrap();
        let (one, other) = (home.path().join("one"), home.path().join("other"));
        fs::create_dir(&one).unwrap();
        fs::create_dir(&other).unwrap();
        let source = Source::Folder(one.clone());
        let error = ready(&source, &other, Duration::from_millis(50)).unwrap_err();
        assert!(matches!(error, ReadersError::Apart { .. }), "{error}");
        ready(&source, &one, Duration::from_secs(10)).unwrap();
    }
}
