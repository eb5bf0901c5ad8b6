//! Standard error, written by a thread of its own.
//!
//! What happens is told by the threads that carry traffic, and by the one that hears signals. Who reads it
//! may have stopped reading; then a write waits for ever, and they must not.

use std::io::{self, Write};
use std::sync::mpsc::sync_channel;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Lines that may wait for who reads them. Beyond these they are lost: each tells of something that is
/// told once, so who reads at all loses none.
const MOST_WAITING: usize = 1024;
/// How long the end waits for the last ones.
const LAST_WAIT: Duration = Duration::from_secs(2);
/// How often it is looked meanwhile whether there is room for its last word.
const LOOK: Duration = Duration::from_millis(10);

enum Message {
    Line(String),
    /// All was told before.
    End,
}

/// The thread that writes.
pub(super) struct Teller {
    messages: SyncSender<Message>,
    /// Closed at the thread's end.
    end: Receiver<()>,
}

/// Where others put their lines.
pub(super) struct Lines(SyncSender<Message>);

impl Teller {
    /// # Errors
    /// If there can be no thread.
    pub(super) fn start() -> io::Result<Self> {
        Teller::to(io::stderr())
    }

    fn to(out: impl Write + Send + 'static) -> io::Result<Self> {
        let (messages, received) = sync_channel(MOST_WAITING);
        let (lasts, end) = channel();
        thread::Builder::new()
            .name("telling".to_owned())
            .spawn(move || write(&received, out, lasts))?;
        Ok(Teller { messages, end })
    }

    pub(super) fn lines(&self) -> Lines {
        Lines(self.messages.clone())
    }

    /// Waits until all was written, but not for ever.
    pub(super) fn finish(self) {
        let begun = Instant::now();
        let left = || LAST_WAIT.saturating_sub(begun.elapsed());
        while let Err(TrySendError::Full(_)) = self.messages.try_send(Message::End)
            && !left().is_zero()
        {
            thread::sleep(LOOK);
        }
        let _: Result<(), RecvTimeoutError> = self.end.recv_timeout(left());
    }
}

impl Lines {
    /// Never waits.
    pub(super) fn line(&self, line: String) {
        let _ = self.0.try_send(Message::Line(line));
    }
}

/// Writes until the end. `_lasts` is closed then.
fn write(received: &Receiver<Message>, mut out: impl Write, _lasts: Sender<()>) {
    while let Ok(Message::Line(line)) = received.recv() {
        // In one piece, so that nobody else's line comes within. Who closes standard error does not want to
        // hear of it.
        let _ = out.write_all(format!("{line}\n").as_bytes());
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
    fn what_is_told_is_there_at_the_end() {
        let (mut reader, writer) = pipe().unwrap();
        let teller = Teller::to(writer).unwrap();
        let lines = teller.lines();
        lines.line("one".to_owned());
        lines.line("two".to_owned());
        teller.finish();
        let mut told = String::new();
        reader.read_to_string(&mut told).unwrap();
        assert_eq!(told, "one\ntwo\n");
    }

    #[test]
    fn who_does_not_read_holds_up_nobody() {
        let (mut reader, writer) = pipe().unwrap();
        let teller = Teller::to(writer).unwrap();
        let lines = teller.lines();
        let begun = Instant::now();
        // More than a pipe holds, and many more than may wait.
        for _ in 0..10 * MOST_WAITING {
            lines.line("x".repeat(200));
        }
        assert!(begun.elapsed() < bound(LONGEST, LAST_WAIT), "{:?}", begun.elapsed());
        teller.finish();
        assert!(begun.elapsed() < bound(LONGEST, 3 * LAST_WAIT), "{:?}", begun.elapsed());
        assert_eq!(reader.read(&mut [0; 300]).unwrap(), 300);
    }
}
