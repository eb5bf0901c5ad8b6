//! Trace files.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use lull_sim::Trace;

use super::Error;

/// Reads a trace file, plain or compressed by gzip.
///
/// # Errors
/// [`Error::Trace`] if the file cannot be read, or is not a trace.
pub fn read_trace(path: &Path) -> Result<Trace, Error> {
    let error = |why: String| Error::Trace { path: path.to_owned(), why };
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| BufReader::new(file).read_to_end(&mut bytes))
        .map_err(|source| error(source.to_string()))?;
    let mut text = String::new();
    if bytes.starts_with(&[0x1f, 0x8b]) {
        flate2::read::MultiGzDecoder::new(&bytes[..])
            .read_to_string(&mut text)
            .map_err(|source| error(source.to_string()))?;
    } else {
        text = String::from_utf8(bytes).map_err(|_| error("it is not text".to_owned()))?;
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Trace::parse(name, &text).map_err(error)
}
