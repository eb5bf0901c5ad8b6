//! Data to or from the other end.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::remote::Remote;

const BLOCK: usize = 1 << 16;

/// Counts at the other end: ssh itself may hold megabytes that have not left this machine.
const COUNTS: &str =
    "while n=$(dd bs=65536 count=1 2>/dev/null | wc -c) && [ $n -gt 0 ]; do echo $n; done";

/// How long a transfer may take to end. It is a multiple of the longest round-trip times.
const ENDS_WITHIN: Duration = Duration::from_secs(20);

/// When a transfer ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) time: Duration,
    pub(super) bytes: u64,
}

impl Limits {
    fn blocks(self) -> u64 {
        self.bytes / BLOCK as u64
    }
}

/// A running transfer.
pub(super) struct Transfer {
    child: Child,
    counted: Arc<AtomicU64>,
    is_to_end: Arc<AtomicBool>,
    most: u64,
}

impl Transfer {
    /// Starts it behind `prefix`.
    pub(super) fn start(
        remote: &Remote,
        prefix: &[OsString],
        is_download: bool,
        limits: Limits,
    ) -> anyhow::Result<Self> {
        let most = limits.blocks() * BLOCK as u64;
        let (counted, is_to_end) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, end) = (Arc::clone(&counted), Arc::clone(&is_to_end));
        let script = match is_download {
            true => {
                format!("exec dd if=/dev/zero bs={BLOCK} count={} 2>/dev/null", limits.blocks())
            }
            false => COUNTS.to_owned(),
        };
        let (mut child, output) = remote.start(prefix, &script)?;
        let input = child.stdin.take().expect("it is a pipe");
        if is_download {
            thread::spawn(move || receive(input, output, &count, &end));
        } else {
            thread::spawn(move || send(input, limits.blocks(), &end));
            thread::spawn(move || add_lines(output, &count));
        }
        Ok(Transfer { child, counted, is_to_end, most })
    }

    /// Payload that has arrived so far.
    pub(super) fn bytes(&self) -> u64 {
        self.counted.load(Ordering::Relaxed)
    }

    /// `lull exec` passes this signal on; SIGKILL would leave its program behind. sudo may not be killed: it ends with
    /// its pipes.
    fn ask_to_end(&self) {
        let _ = kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM);
    }

    /// Whether all of it has arrived.
    pub(super) fn is_complete(&self) -> bool {
        self.bytes() >= self.most
    }

    /// Ends it.
    ///
    /// # Errors
    /// If nothing has arrived, or the program does not end.
    pub(super) fn end(mut self) -> anyhow::Result<()> {
        self.is_to_end.store(true, Ordering::Relaxed);
        self.ask_to_end();
        let until = Instant::now() + ENDS_WITHIN;
        while self.child.try_wait().context("cannot wait")?.is_none() {
            if Instant::now() > until {
                bail!("the transfer does not end: process {}", self.child.id());
            }
            thread::sleep(Duration::from_millis(10));
        }
        if self.bytes() == 0 {
            bail!("no data has arrived: try the same command with ssh, and read what it prints");
        }
        Ok(())
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.is_to_end.store(true, Ordering::Relaxed);
        if matches!(self.child.try_wait(), Ok(None)) {
            self.ask_to_end();
        }
    }
}

fn send(mut input: ChildStdin, blocks: u64, is_to_end: &AtomicBool) {
    let block = vec![0; BLOCK];
    for _ in 0..blocks {
        if is_to_end.load(Ordering::Relaxed) || input.write_all(&block).is_err() {
            return;
        }
    }
}

fn add_lines(output: BufReader<ChildStdout>, counted: &AtomicU64) {
    for line in output.lines().map_while(Result::ok) {
        counted.fetch_add(line.trim().parse().unwrap_or(0), Ordering::Relaxed);
    }
}

/// Holds the input open: ssh would pass its end on.
fn receive(
    _input: ChildStdin,
    mut output: BufReader<ChildStdout>,
    counted: &AtomicU64,
    is_to_end: &AtomicBool,
) {
    let mut block = vec![0; BLOCK];
    while let Ok(count @ 1..) = output.read(&mut block) {
        counted.fetch_add(count as u64, Ordering::Relaxed);
        if is_to_end.load(Ordering::Relaxed) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Here the other end is this machine.
    fn transfer(is_download: bool, bytes: u64) -> Transfer {
        let remote = Remote::new("sh -c", "eval \"exec $0\"").unwrap();
        let limits = Limits { time: Duration::from_secs(1), bytes };
        Transfer::start(&remote, &[], is_download, limits).unwrap()
    }

    #[test]
    fn transfer_ends_at_its_limit_of_bytes() {
        for is_download in [true, false] {
            let transfer = transfer(is_download, 10 * BLOCK as u64 + 1);
            let until = Instant::now() + Duration::from_secs(20);
            while !transfer.is_complete() && Instant::now() < until {
                thread::sleep(Duration::from_millis(5));
            }
            assert_eq!(transfer.bytes(), 10 * BLOCK as u64, "{is_download}");
            transfer.end().unwrap();
        }
    }

    #[test]
    fn transfer_ends_before_its_limit_when_asked() {
        for is_download in [true, false] {
            let transfer = transfer(is_download, 1 << 50);
            let until = Instant::now() + Duration::from_secs(20);
            while transfer.bytes() == 0 && Instant::now() < until {
                thread::sleep(Duration::from_millis(5));
            }
            transfer.end().unwrap();
        }
    }
}
