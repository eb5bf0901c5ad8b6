//! Record files: written line by line, so that an interrupted run loses at most its running cells.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;

use super::{CellRecord, Failed, Header, Line, combination};

/// Why a record cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The system refused.
    #[error("the record {path} cannot be used: {source}")]
    System {
        /// The file or its folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A line is not valid in a record.
    #[error(
        "{path}:{line}: this is not a line of a record ({why}): move the file away, or replace it \
         (lull lab run --fresh)"
    )]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The reason.
        why: String,
    },
    /// Another process writes it.
    #[error("another run is writing the record {0}: wait for its end, or write elsewhere (--out)")]
    InUse(PathBuf),
}

/// The contents of a record.
#[derive(Clone, Debug, Default)]
pub struct RecordFile {
    /// The first header and those of the runs that continued it.
    pub headers: Vec<Header>,
    /// The cells that ran; of those that ran more than once, the last run.
    pub cells: Vec<CellRecord>,
    /// The cells that failed and have no later run, each with its last failure.
    pub failed: Vec<Failed>,
}

impl RecordFile {
    /// Reads a record, or its gzip version (`PLAN.jsonl.gz`). A missing one is empty.
    ///
    /// # Errors
    /// [`RecordError`]. An incomplete last line is left out: its run was killed.
    pub fn read(path: &Path) -> Result<Self, RecordError> {
        let system = |path: &Path, source| RecordError::System { path: path.to_owned(), source };
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let packed = packed(path);
                unpack(&packed).map_err(|source| system(&packed, source))?.unwrap_or_default()
            }
            text => text.map_err(|source| system(path, source))?,
        };
        let mut record = RecordFile::default();
        for (number, line) in text.split_inclusive('\n').enumerate() {
            let is_whole = line.ends_with('\n');
            match serde_json::from_str(line) {
                Ok(Line::Header(header)) => record.headers.push(header),
                Ok(Line::Cell(cell)) => {
                    record.cells.retain(|other| !other.is_run_of(&cell.key, cell.seed));
                    record.failed.retain(|other| other.hash != cell.hash);
                    let commit = record.headers.last().and_then(|header| header.commit.clone());
                    record.cells.push(CellRecord { commit, ..*cell });
                }
                Ok(Line::Failed(failed)) => {
                    record.failed.retain(|other| other.hash != failed.hash);
                    record.failed.push(failed);
                }
                Err(_) if !is_whole => {}
                Err(error) => {
                    return Err(RecordError::Line {
                        path: path.to_owned(),
                        line: number + 1,
                        why: error.to_string(),
                    });
                }
            }
        }
        Ok(record)
    }
}

/// Writes a record. It is the only writer of the file, which is locked until the recorder is dropped or its
/// process ends.
#[derive(Debug)]
pub struct Recorder {
    path: PathBuf,
    file: File,
    /// The file that had the name before: processes that opened it at that time must not get its lock.
    replaced: Option<File>,
}

impl Drop for Recorder {
    /// Unlocks the file explicitly. Closing it is not enough while a process that another thread is starting
    /// has it open, too.
    fn drop(&mut self) {
        for file in [Some(&self.file), self.replaced.as_ref()].into_iter().flatten() {
            // A file without a lock, or on a file system without locks, needs no unlocking.
            let _ = file.unlock();
        }
    }
}

impl Recorder {
    /// Continues the record at `path`, or creates it. A gzip version is unpacked first, and removed then.
    ///
    /// # Errors
    /// [`RecordError::InUse`] if another recorder has it, otherwise [`RecordError::System`].
    pub fn open(path: &Path) -> Result<Self, RecordError> {
        let error = |source| RecordError::System { path: path.to_owned(), source };
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(error)?;
        }
        let file = OpenOptions::new().create(true).append(true).open(path).map_err(error)?;
        let mut recorder = Recorder { path: path.to_owned(), file, replaced: None };
        recorder.lock()?;
        truncate_partial_line(path).map_err(error)?;
        if recorder.file.metadata().map_err(error)?.len() == 0 {
            let packed = packed(path);
            let error = |source| RecordError::System { path: packed.clone(), source };
            // It is kept beside the new lines, so that the record can be packed again.
            if let Some(text) = unpack(&packed).map_err(error)? {
                recorder.replace(&text)?;
            }
        }
        Ok(recorder)
    }

    /// Closes the record, packed if it was packed when it was opened. If the process is killed, one of the
    /// two files is complete.
    ///
    /// # Errors
    /// [`RecordError::System`].
    pub fn close(self) -> Result<(), RecordError> {
        let packed = packed(&self.path);
        if !packed.exists() {
            return Ok(());
        }
        let pack = || -> io::Result<()> {
            let text = fs::read(&self.path)?;
            lull_durable::replace_by(&packed, |to| {
                // Without a name and a time in it, so that equal records give equal files.
                let mut encoder = GzEncoder::new(to, Compression::best());
                encoder.write_all(&text)?;
                encoder.finish().map(|_| ())
            })?;
            fs::remove_file(&self.path)
        };
        pack().map_err(|source| RecordError::System { path: packed.clone(), source })
    }

    fn lock(&mut self) -> Result<(), RecordError> {
        match self.file.try_lock() {
            Err(TryLockError::WouldBlock) => Err(RecordError::InUse(self.path.clone())),
            // Lull also measures on a file system without locks.
            Ok(()) | Err(TryLockError::Error(_)) => Ok(()),
        }
    }

    /// Drops the lines that `keep` rejects. If the process is killed, the record is the old or the new one.
    ///
    /// # Errors
    /// [`RecordError::System`].
    pub fn retain(&mut self, keep: impl Fn(&Line) -> bool) -> Result<(), RecordError> {
        let path = self.path.clone();
        let error = |source| RecordError::System { path: path.clone(), source };
        let bytes = fs::read(&path).map_err(error)?;
        let text = String::from_utf8_lossy(&bytes);
        let is_kept = |line: &&str| serde_json::from_str(line).is_ok_and(|line| keep(&line));
        let kept: String = text.split_inclusive('\n').filter(is_kept).collect();
        self.replace(&kept)
    }

    /// Drops data that no plan reads any more: cells and failures of hashes that `is_planned` rejects, cells
    /// that ran again, and headers without lines. Returns how many cells it dropped.
    ///
    /// # Errors
    /// [`RecordError::System`].
    pub fn prune(&mut self, is_planned: impl Fn(&str) -> bool) -> Result<usize, RecordError> {
        let path = self.path.clone();
        let error = |source| RecordError::System { path: path.clone(), source };
        let bytes = fs::read(&path).map_err(error)?;
        let text = String::from_utf8_lossy(&bytes);
        let line = |line| Some((line, serde_json::from_str::<Line>(line).ok()?));
        let lines: Vec<(&str, Line)> = text.split_inclusive('\n').filter_map(line).collect();
        // If a cell ran more than once, the last run counts, as in reading.
        let mut runs: BTreeMap<(&str, u64), usize> = BTreeMap::new();
        let mut results: BTreeMap<&str, usize> = BTreeMap::new();
        for (at, (_, line)) in lines.iter().enumerate() {
            match line {
                Line::Header(_) => {}
                Line::Cell(cell) => {
                    runs.insert((combination(&cell.key), cell.seed), at);
                    results.insert(&cell.hash, at);
                }
                Line::Failed(failed) => {
                    results.insert(&failed.hash, at);
                }
            }
        }
        let mut kept = String::new();
        let mut header = "";
        let mut dropped = 0;
        for (at, (text, line)) in lines.iter().enumerate() {
            let is_kept = match line {
                Line::Header(_) => {
                    header = text;
                    continue;
                }
                Line::Cell(cell) => {
                    let is_last = runs.get(&(combination(&cell.key), cell.seed)) == Some(&at);
                    let is_kept = is_last && is_planned(&cell.hash);
                    dropped += usize::from(!is_kept);
                    is_kept
                }
                Line::Failed(failed) => {
                    results.get(failed.hash.as_str()) == Some(&at) && is_planned(&failed.hash)
                }
            };
            if is_kept {
                kept.push_str(std::mem::take(&mut header));
                kept.push_str(text);
            }
        }
        self.replace(&kept)?;
        Ok(dropped)
    }

    /// Replaces the contents of the record by `text`, atomically. The new file must be open and locked before it has
    /// the name, which `lull_durable` does not offer.
    fn replace(&mut self, text: &str) -> Result<(), RecordError> {
        let path = self.path.clone();
        let error = |source| RecordError::System { path: path.clone(), source };
        let beside = path.with_extension("jsonl.new");
        let file = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .open(&beside)
            .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_data()))
            // From here on like `open`, for a file that has no other name yet.
            .and_then(|()| OpenOptions::new().append(true).open(&beside))
            .map_err(error)?;
        self.replaced = Some(std::mem::replace(&mut self.file, file));
        self.lock()?;
        fs::rename(&beside, &path).map_err(error)
    }

    /// Adds a line; when it returns, the line survives a crash of the machine.
    ///
    /// # Errors
    /// [`RecordError::System`].
    pub fn write(&mut self, line: &Line) -> Result<(), RecordError> {
        let mut text = serde_json::to_vec(line).map_err(io::Error::from);
        if let Ok(text) = &mut text {
            text.push(b'\n');
        }
        text.and_then(|text| self.file.write_all(&text))
            .and_then(|()| self.file.sync_data())
            .map_err(|source| RecordError::System { path: self.path.clone(), source })
    }
}

/// The path of a record: of its packed version, or of the file as written.
pub(crate) fn place(path: &Path) -> PathBuf {
    let packed = packed(path);
    if !path.exists() && packed.exists() { packed } else { path.to_owned() }
}

/// The path of the gzip version of a record.
fn packed(path: &Path) -> PathBuf {
    path.with_extension("jsonl.gz")
}

/// The text in a gzip file; none if it is missing.
fn unpack(path: &Path) -> io::Result<Option<String>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut text = String::new();
    MultiGzDecoder::new(file).read_to_string(&mut text)?;
    Ok(Some(text))
}

/// Removes the last line of a run that was killed while it wrote.
fn truncate_partial_line(path: &Path) -> io::Result<()> {
    let text = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        text => text?,
    };
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    if whole < text.len() {
        OpenOptions::new().write(true).open(path)?.set_len(whole as u64)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_is_unlocked_when_its_recorder_ends() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl");
        let recorder = Recorder::open(&path).unwrap();
        // As in a process that was started and has not called exec yet.
        let _open = recorder.file.try_clone().unwrap();
        assert!(matches!(Recorder::open(&path), Err(RecordError::InUse(_))));
        drop(recorder);
        Recorder::open(&path).unwrap();
    }
}
