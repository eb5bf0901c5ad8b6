//! A cell in its own process.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::order::Order;
use crate::record::CellRecord;

/// Why a cell in its own process has no record. One line.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProcessError {
    #[error("{} cannot be run: {why}", program.display())]
    Start { program: PathBuf, why: io::Error },
    #[error(transparent)]
    Ended(#[from] Ended),
    #[error("it ended too early")]
    TooEarly,
    #[error("it wrote no record: {0}")]
    Record(serde_json::Error),
    /// The last line that it printed.
    #[error("{0}")]
    Said(String),
}

/// How a process failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Ended {
    #[error("it ended with {0}")]
    Status(ExitStatus),
    #[error("it did not end in time and was killed")]
    Killed,
    #[error("waiting for it failed: {0}")]
    Wait(io::Error),
}

/// Runs an order with `lull lab cell`, which reads it from its standard input and writes the
/// record to its standard output.
pub(super) fn run(lull: &Path, order: &Order) -> Result<CellRecord, ProcessError> {
    let limit = order.limit();
    let mut child = Command::new(lull)
        .args(["lab", "cell"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|why| ProcessError::Start { program: lull.to_owned(), why })?;
    let text = serde_json::to_vec(order).expect("orders are plain data");
    let written = child.stdin.take().map(|mut pipe| pipe.write_all(&text));
    let (record, said) = thread::scope(|scope| {
        let output = child.stdout.take().map(|pipe| scope.spawn(|| read(pipe)));
        let errors = child.stderr.take().map(|pipe| scope.spawn(|| read(pipe)));
        let ended = wait(&mut child, Instant::now() + limit);
        let text = |thread: Option<thread::ScopedJoinHandle<'_, String>>| {
            thread.and_then(|thread| thread.join().ok()).unwrap_or_default()
        };
        let (output, errors) = (text(output), text(errors));
        let record = ended
            .map_err(ProcessError::from)
            .and_then(|()| serde_json::from_str(&output).map_err(ProcessError::Record));
        (record, errors)
    });
    record.map_err(|error| match said.lines().rfind(|line| !line.trim().is_empty()) {
        Some(last) => ProcessError::Said(last.trim_start_matches("lull: ").to_owned()),
        None if matches!(written, Some(Err(_))) => ProcessError::TooEarly,
        None => error,
    })
}

pub(super) fn read(mut pipe: impl Read) -> String {
    let mut bytes = Vec::new();
    // Output before an error is still useful.
    let _ = pipe.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Waits for a child, and kills it after its time limit.
pub(super) fn wait(child: &mut Child, limit: Instant) -> Result<(), Ended> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(Ended::Status(status)),
            Ok(None) if Instant::now() < limit => thread::sleep(Duration::from_millis(50)),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(Ended::Killed);
            }
            Err(error) => return Err(Ended::Wait(error)),
        }
    }
}
