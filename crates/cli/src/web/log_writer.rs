//! Standard error, written by a separate thread.
//!
//! The threads that carry traffic log, and so does the thread that handles signals. A write to standard error blocks
//! while its reader does not read. These threads must not block.

use std::io::{self, Write};
use std::sync::mpsc::sync_channel;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError, channel};
use std::thread;
use std::time::{Duration, Instant};

use tracing_subscriber::fmt::MakeWriter;

/// Lines that may wait to be written. Further lines are lost. Every event is logged once, so a reader that reads at
/// all loses none.
const MAX_WAITING: usize = 1024;
/// How long the program waits at its end for the last lines.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);
/// How often it looks in this time whether the queue has room.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

enum Message {
    Line(Vec<u8>),
    /// No line follows.
    End,
}

/// The thread that writes.
pub(super) struct LogWriter {
    messages: SyncSender<Message>,
    /// Closed at the thread's end.
    end: Receiver<()>,
}

/// The queue of lines.
#[derive(Clone)]
pub(super) struct Lines(SyncSender<Message>);

impl LogWriter {
    /// # Errors
    /// If no thread can be started.
    pub(super) fn start() -> io::Result<Self> {
        LogWriter::to(io::stderr())
    }

    fn to(out: impl Write + Send + 'static) -> io::Result<Self> {
        let (messages, received) = sync_channel(MAX_WAITING);
        let (lasts, end) = channel();
        thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || write(&received, out, lasts))?;
        Ok(LogWriter { messages, end })
    }

    pub(super) fn lines(&self) -> Lines {
        Lines(self.messages.clone())
    }

    /// Waits until all lines are written, for two seconds at most.
    pub(super) fn finish(self) {
        let begun = Instant::now();
        let left = || SHUTDOWN_TIMEOUT.saturating_sub(begun.elapsed());
        while let Err(TrySendError::Full(_)) = self.messages.try_send(Message::End)
            && !left().is_zero()
        {
            thread::sleep(CHECK_INTERVAL);
        }
        let _: Result<(), RecvTimeoutError> = self.end.recv_timeout(left());
    }
}

/// A line is one write, which never blocks.
impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let _ = self.0.try_send(Message::Line(line.to_vec()));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Lines;

    fn make_writer(&self) -> Lines {
        self.clone()
    }
}

/// Writes until the end. `_lasts` is closed then.
fn write(received: &Receiver<Message>, mut out: impl Write, _lasts: Sender<()>) {
    while let Ok(Message::Line(line)) = received.recv() {
        // In one piece, so that no other program's line comes between. A closed standard error is not a
        // failure.
        let _ = out.write_all(&line);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, pipe};

    use lull_testing::bound;

    use super::*;

    /// How long the test may take on a busy machine. A line that waits for the reader would wait forever.
    const LONGEST: Duration = Duration::from_secs(60);

    #[test]
    fn all_lines_are_written_at_the_end() {
        let (mut reader, writer) = pipe().unwrap();
        let writer_thread = LogWriter::to(writer).unwrap();
        let mut lines = writer_thread.lines();
        lines.write_all(b"one\n").unwrap();
        lines.write_all(b"two\n").unwrap();
        writer_thread.finish();
        let mut written = String::new();
        reader.read_to_string(&mut written).unwrap();
        assert_eq!(written, "one\ntwo\n");
    }

    #[test]
    fn reader_that_stops_does_not_block_logging() {
        let (mut reader, writer) = pipe().unwrap();
        let writer_thread = LogWriter::to(writer).unwrap();
        let mut lines = writer_thread.lines();
        let begun = Instant::now();
        // More than a pipe and the queue hold.
        for _ in 0..10 * MAX_WAITING {
            lines.write_all(&[b'x'; 200]).unwrap();
        }
        assert!(begun.elapsed() < bound(LONGEST, SHUTDOWN_TIMEOUT), "{:?}", begun.elapsed());
        writer_thread.finish();
        assert!(begun.elapsed() < bound(LONGEST, 3 * SHUTDOWN_TIMEOUT), "{:?}", begun.elapsed());
        assert_eq!(reader.read(&mut [0; 300]).unwrap(), 300);
    }
}
