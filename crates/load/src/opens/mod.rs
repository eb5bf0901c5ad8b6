//! How long it takes to open, read and close a warm file in one folder, beside the same in another: the cost
//! of a mount compared with a passthrough one.
//!
//! Files are read in both folders in turns, so that other load of the machine affects both. They are warm:
//! each was read before, and its pages are in the kernel's cache. The medians are compared.
//!
//! For each open the kernel asks three times, and each time it wakes a thread, on any processor. To wake a
//! sleeping thread can take longer than the answer, above all in a virtual machine. So the time is measured
//! again with all threads on [`OneProcessor`].

mod passthrough;
mod processor;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use lull_emulator::random::Random;
use lull_emulator::rounded;

pub use passthrough::{PassThrough, PassThroughError};
pub use processor::OneProcessor;

/// The files to open.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Files.
    pub files: usize,
    /// Bytes of each.
    pub size: usize,
    /// How often one is opened, in each folder.
    pub opens: u64,
    /// How many times before it is the other folder's turn.
    pub turn: u64,
    /// The seed of the draws.
    pub seed: u64,
}

/// The measured times.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Report {
    /// Files.
    pub files: usize,
    /// Bytes of each.
    pub bytes: usize,
    /// With threads on any processor that the kernel chooses.
    #[serde(flatten)]
    pub anywhere: Compared,
    /// With all of them on one processor.
    pub one_processor: Compared,
}

/// The times in both folders.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub struct Compared {
    /// In the measured folder.
    pub measured: Opened,
    /// In the folder for comparison.
    pub beside: Opened,
    /// In a folder of the disk, without a mount of FUSE.
    pub plain: Opened,
    /// The ratio of the medians.
    pub ratio: f64,
}

/// The times in one of the folders: from `open` to the end of `close`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub struct Opened {
    /// How often.
    pub opens: u64,
    /// The median, in microseconds.
    pub p50_us: f64,
    /// 99 % are at most this long.
    pub p99_us: f64,
    /// The longest.
    pub max_us: f64,
}

/// Why nothing is compared.
#[derive(Debug, thiserror::Error)]
pub enum OpensError {
    /// A file cannot be written, or not be read.
    #[error("`{}` cannot be used", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file has other bytes than were written.
    #[error("`{}` is not what was written", .0.display())]
    Other(PathBuf),
}

fn name_of(file: usize) -> String {
    format!("file-{file}")
}

fn byte_of(file: usize) -> u8 {
    b'a' + (file % 26) as u8
}

/// Writes the files into a folder.
///
/// # Errors
/// If they cannot be written.
pub fn write(folder: &Path, settings: &Settings) -> Result<(), OpensError> {
    for file in 0..settings.files {
        let path = folder.join(name_of(file));
        let written = std::fs::write(&path, vec![byte_of(file); settings.size]);
        written.map_err(|source| OpensError::File { path, source })?;
    }
    Ok(())
}

/// Opens, reads and closes files in these folders, in turn: the measured one, the one for comparison, and a plain one.
///
/// # Errors
/// If one cannot be read, or does not have the written contents.
pub fn compare(settings: &Settings, folders: [&Path; 3]) -> Result<Compared, OpensError> {
    let [measured, beside, plain] = folders.map(|folder| Folder::new(folder, settings));
    let mut folders = [measured?, beside?, plain?];
    let mut random = Random::new(settings.seed);
    let mut left = settings.opens;
    while left > 0 {
        let turn = left.min(settings.turn.max(1));
        left -= turn;
        for folder in &mut folders {
            for _ in 0..turn {
                let file = random.below(settings.files);
                let time = folder.open(file)?;
                // It grows as necessary: an error would mean over five hundred years.
                let _ = folder.times.record(nanos(time));
            }
        }
    }
    let [measured, beside, plain] = folders.map(Folder::opened);
    let ratio = rounded(measured.p50_us / beside.p50_us.max(f64::MIN_POSITIVE));
    Ok(Compared { measured, beside, plain, ratio })
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// One of the folders.
struct Folder {
    paths: Vec<PathBuf>,
    buffer: Vec<u8>,
    times: Histogram<u64>,
}

impl Folder {
    /// Reads all files, so that they are warm.
    fn new(folder: &Path, settings: &Settings) -> Result<Self, OpensError> {
        let mut this = Folder {
            paths: (0..settings.files).map(|file| folder.join(name_of(file))).collect(),
            buffer: vec![0; settings.size],
            times: Histogram::new(3).expect("three digits are supported"),
        };
        for file in 0..settings.files {
            let path = &this.paths[file];
            let length = std::fs::metadata(path)
                .map_err(|source| OpensError::File { path: path.clone(), source })?
                .len();
            this.open(file)?;
            let is_written = this.buffer.iter().all(|byte| *byte == byte_of(file));
            if length != settings.size as u64 || !is_written {
                return Err(OpensError::Other(this.paths[file].clone()));
            }
        }
        Ok(this)
    }

    /// Opens, reads and closes a file; returns how long that took.
    fn open(&mut self, file: usize) -> Result<Duration, OpensError> {
        let path = &self.paths[file];
        let begun = Instant::now();
        // Exactly its bytes are requested: the end of the file would be a separate request.
        let read = File::open(path).and_then(|mut file| file.read_exact(&mut self.buffer));
        let time = begun.elapsed();
        read.map_err(|source| OpensError::File { path: path.clone(), source })?;
        Ok(time)
    }

    fn opened(self) -> Opened {
        let us = |nanos: u64| rounded(nanos as f64 / 1e3);
        Opened {
            opens: self.times.len(),
            p50_us: us(self.times.value_at_quantile(0.5)),
            p99_us: us(self.times.value_at_quantile(0.99)),
            max_us: us(self.times.max()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Settings = Settings { files: 3, size: 100, opens: 25, turn: 10, seed: 1 };

    #[test]
    fn folders_are_read_equally_often() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        write(one.path(), &SETTINGS).unwrap();
        write(other.path(), &SETTINGS).unwrap();
        let report = compare(&SETTINGS, [one.path(), other.path(), one.path()]).unwrap();
        let opens = [report.measured, report.beside, report.plain].map(|opened| opened.opens);
        assert_eq!(opens, [25; 3]);
        assert!(report.measured.p50_us > 0.0 && report.measured.p50_us <= report.measured.max_us);
        assert!(report.ratio > 0.0, "{report:?}");
    }

    #[test]
    fn other_files_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &SETTINGS).unwrap();
        let path = folder.path().join("file-1");
        for bytes in [vec![b'b'; 101], vec![b'c'; 100]] {
            std::fs::write(&path, bytes).unwrap();
            let error = compare(&SETTINGS, [folder.path(); 3]).unwrap_err();
            assert!(matches!(error, OpensError::Other(other) if other == path));
        }
        std::fs::remove_file(&path).unwrap();
        let error = compare(&SETTINGS, [folder.path(); 3]).unwrap_err().to_string();
        assert!(error.contains("file-1` cannot be used"), "{error}");
    }
}
