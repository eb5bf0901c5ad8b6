//! A cell in a process of its own.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::Order;
use crate::record::CellRecord;

/// Runs an order with `lull lab cell`, which reads it from its standard input and writes the
/// record to its standard output. The error is one line.
pub(super) fn run(lull: &Path, order: &Order) -> Result<CellRecord, String> {
    let limit = order.limit();
    let mut child = Command::new(lull)
        .args(["lab", "cell"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{} cannot be run: {error}", lull.display()))?;
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
        let record = ended.and_then(|()| {
            serde_json::from_str(&output).map_err(|error| format!("it wrote no record: {error}"))
        });
        (record, errors)
    });
    record.map_err(|error| {
        let last = said.lines().rfind(|line| !line.trim().is_empty());
        let error =
            if matches!(written, Some(Err(_))) { "it ended too early".into() } else { error };
        last.map_or(error, |line| line.trim_start_matches("lull: ").to_owned())
    })
}

pub(super) fn read(mut pipe: impl Read) -> String {
    let mut bytes = Vec::new();
    // What was read before an error is still worth showing.
    let _ = pipe.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Waits for a child, and ends it when its time is over.
pub(super) fn wait(child: &mut Child, limit: Instant) -> Result<(), String> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(format!("it ended with {status}")),
            Ok(None) if Instant::now() < limit => thread::sleep(Duration::from_millis(50)),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err("it did not end in time and was killed".to_owned());
            }
            Err(error) => return Err(format!("waiting for it failed: {error}")),
        }
    }
}
