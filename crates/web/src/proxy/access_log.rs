//! The access log in Combined format, written by its own thread.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use http::header::{HeaderValue, REFERER, USER_AGENT};
use http::uri::PathAndQuery;
use http::{Method, Version, request};
use jiff::Timestamp;

use super::config::AccessLog;
use super::error::{Error, Result};
use super::event::{Event, Listener};

/// Lines that may wait for the disk, and their bytes. Further lines are lost: no visitor waits for a log.
const MAX_WAITING: usize = 8192;
const MAX_BYTES: usize = 16 << 20;
/// How long a line waits for others, to be written together.
const TOGETHER: Duration = Duration::from_millis(200);
/// How long shutdown waits for unwritten lines. A pipe without a reader and a hanging disk never accept them,
/// and a blocked write cannot be interrupted.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// The data of a request's line.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    peer: IpAddr,
    at: SystemTime,
    method: Method,
    // Separate texts: those of the request keep all of its head in memory.
    target: Box<str>,
    version: Version,
    referer: Option<Box<[u8]>>,
    agent: Option<Box<[u8]>>,
    /// Whether no request came for it, because its browser already had the copy.
    is_prefetched: bool,
}

/// The second column for a page that was shown from the visitor's cache.
const PREFETCHED: &str = "prefetched";

/// The time of day, only for logs.
#[allow(clippy::disallowed_methods)]
fn time_of_day() -> SystemTime {
    SystemTime::now()
}

impl Line {
    pub(crate) fn new(peer: IpAddr, head: &request::Parts) -> Box<Self> {
        let text = |name| head.headers.get(name).map(|value: &HeaderValue| value.as_bytes().into());
        Box::new(Line {
            peer: peer.to_canonical(),
            at: time_of_day(),
            method: head.method.clone(),
            target: head.uri.path_and_query().map_or("-", PathAndQuery::as_str).into(),
            version: head.version,
            referer: text(REFERER),
            agent: text(USER_AGENT),
            is_prefetched: false,
        })
    }

    /// A page that a client was shown out of its cache, according to a message in another request.
    fn of_visit(client: IpAddr, page: &str, message: &request::Parts) -> Box<Self> {
        let mut line = Line::new(client, message);
        line.method = Method::GET;
        line.target = page.into();
        // That is the page itself; the page with the link is unknown.
        line.referer = None;
        line.is_prefetched = true;
        line
    }

    /// Sets the client, if it differs from the peer of the connection.
    pub(crate) fn set_client(&mut self, client: IpAddr) {
        self.peer = client.to_canonical();
    }

    /// Its memory while it waits.
    fn bytes(&self) -> usize {
        let of = |text: &Option<Box<[u8]>>| text.as_ref().map_or(0, |text| text.len());
        size_of::<Self>() + self.target.len() + of(&self.referer) + of(&self.agent)
    }

    /// `ADDRESS - - [TIME] "REQUEST" STATUS BYTES "REFERER" "AGENT"`
    ///
    /// The second word is for the client's identity (RFC 1413), which is no longer used. So readers skip it.
    fn write(&self, to: &mut impl Write, status: u16, bytes: u64) -> io::Result<()> {
        let mark = if self.is_prefetched { PREFETCHED } else { "-" };
        write!(to, "{} {mark} - [", self.peer)?;
        write_time(to, self.at)?;
        write!(to, "] \"{} ", self.method)?;
        write_quoted(to, self.target.as_bytes())?;
        write!(to, " {:?}\" {status} ", self.version)?;
        if bytes == 0 {
            to.write_all(b"-")?;
        } else {
            write!(to, "{bytes}")?;
        }
        for header in [&self.referer, &self.agent] {
            to.write_all(b" \"")?;
            write_quoted(to, header.as_deref().unwrap_or(b"-"))?;
            to.write_all(b"\"")?;
        }
        to.write_all(b"\n")
    }
}

/// Prevents clients from injecting lines: quotes, backslashes and bytes that are not printable ASCII become
/// `\xHH`, as in nginx.
fn write_quoted(to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    for chunk in bytes.chunk_by(|&a, &b| is_plain(a) == is_plain(b)) {
        if chunk.first().copied().is_some_and(is_plain) {
            to.write_all(chunk)?;
        } else {
            for byte in chunk {
                write!(to, "\\x{byte:02X}")?;
            }
        }
    }
    Ok(())
}

fn is_plain(byte: u8) -> bool {
    (b' '..=b'~').contains(&byte) && byte != b'"' && byte != b'\\'
}

/// `10/Oct/2000:13:55:36 +0000`
fn write_time(to: &mut impl Write, at: SystemTime) -> io::Result<()> {
    let at = Timestamp::try_from(at).unwrap_or(Timestamp::UNIX_EPOCH);
    write!(to, "{}", at.strftime("%d/%b/%Y:%H:%M:%S +0000"))
}

enum Message {
    Line(Box<Line>, u16, u64),
    Reopen,
}

/// The queue of lines from all threads.
#[derive(Clone)]
pub(crate) struct LogSender {
    lines: SyncSender<Message>,
    /// Bytes of the waiting lines.
    waiting: Arc<AtomicUsize>,
    lost: Arc<AtomicU64>,
}

impl LogSender {
    /// Never waits.
    pub(crate) fn write(&self, line: Box<Line>, status: u16, bytes: u64) {
        let length = line.bytes();
        let waiting = self.waiting.fetch_add(length, Ordering::Relaxed);
        if waiting + length > MAX_BYTES
            || self.lines.try_send(Message::Line(line, status, bytes)).is_err()
        {
            self.waiting.fetch_sub(length, Ordering::Relaxed);
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The access log for visits that sent no request to the proxy, because their pages had been prefetched.
#[derive(Clone)]
pub struct VisitLog(LogSender);

impl VisitLog {
    /// A client was shown `page`, a path with its query, according to `message`. Never waits.
    pub fn write(&self, client: IpAddr, page: &str, message: &request::Parts) {
        self.0.write(Line::of_visit(client, page, message), 200, 0);
    }
}

impl std::fmt::Debug for VisitLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("VisitLog")
    }
}

/// The thread that writes.
pub(crate) struct Log {
    sender: LogSender,
    /// The file must be reopened, and the queue had no space for that message.
    reopens: Arc<AtomicBool>,
    /// Closed at the thread's end.
    end: Receiver<()>,
    listener: Listener,
}

impl Log {
    /// # Errors
    /// [`Error::System`] if the file cannot be opened, or no thread be started.
    pub(crate) fn start(to: &AccessLog, listener: Listener) -> Result<Self> {
        let output = open(to).map_err(Error::system("open the access log"))?;
        let (lines, received) = sync_channel(MAX_WAITING);
        let (lost, waiting) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicUsize::new(0)));
        let reopens = Arc::new(AtomicBool::new(false));
        let (lasts, end) = channel();
        let writer = Writer {
            to: to.clone(),
            output,
            received,
            waiting: Arc::clone(&waiting),
            lost: Arc::clone(&lost),
            reopens: Arc::clone(&reopens),
            listener: listener.clone(),
            due: None,
            has_told: false,
        };
        thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || writer.run(lasts))
            .map_err(Error::system("start the thread of the access log"))?;
        Ok(Log { sender: LogSender { lines, waiting, lost }, reopens, end, listener })
    }

    pub(crate) fn sender(&self) -> LogSender {
        self.sender.clone()
    }

    pub(crate) fn visits(&self) -> VisitLog {
        VisitLog(self.sender())
    }

    /// Reopens the file after the lines written before, or, if that has to wait for a place in the queue,
    /// with the next line. Never blocks: signal handling calls it.
    pub(crate) fn reopen(&self) {
        if self.sender.lines.try_send(Message::Reopen).is_err() {
            self.reopens.store(true, Ordering::Relaxed);
        }
    }

    /// Waits for the last line, but only for a limited time. All other senders are gone by now.
    pub(crate) fn finish(self) {
        drop(self.sender);
        if self.end.recv_timeout(SHUTDOWN_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
            let why =
                format!("the disk or pipe accepted none for {SHUTDOWN_TIMEOUT:?} at shutdown");
            self.listener.report(&Event::LogLost { why });
        }
    }
}

enum Output {
    File(BufWriter<File>),
    Stdout(BufWriter<io::Stdout>),
}

fn open(to: &AccessLog) -> io::Result<Output> {
    let AccessLog::File(path) = to else {
        return Ok(Output::Stdout(BufWriter::new(io::stdout())));
    };
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    let is_torn = ends_within_a_line(&file, path).unwrap_or(false);
    let mut file = BufWriter::new(file);
    if is_torn {
        file.write_all(b"\n")?;
    }
    Ok(Output::File(file))
}

/// Whether a log ends with a truncated line: a full disk has taken no more of it, or a process was killed.
/// The next line would be lost with it.
fn ends_within_a_line(log: &File, path: &Path) -> io::Result<bool> {
    // A read from a pipe would consume data.
    if !log.metadata()?.is_file() || log.metadata()?.len() == 0 {
        return Ok(false);
    }
    let mut there = File::open(path)?;
    there.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    there.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

struct Writer {
    to: AccessLog,
    output: Output,
    received: Receiver<Message>,
    waiting: Arc<AtomicUsize>,
    lost: Arc<AtomicU64>,
    reopens: Arc<AtomicBool>,
    listener: Listener,
    /// When buffered lines are flushed to the disk, if there are any.
    due: Option<Instant>,
    /// Whether the operator was informed that lines are lost.
    has_told: bool,
}

impl Writer {
    /// Writes until all senders are gone. `_lasts` is closed then, however it ends.
    fn run(mut self, _lasts: Sender<()>) {
        loop {
            if self.reopens.swap(false, Ordering::Relaxed)
                && let Err(error) = self.reopen()
            {
                self.give_up(&error);
            }
            let message = match self.due.map(|due| due.saturating_duration_since(Instant::now())) {
                None => self.received.recv().map_err(|_| RecvTimeoutError::Disconnected),
                // However many lines come.
                Some(Duration::ZERO) => Err(RecvTimeoutError::Timeout),
                Some(wait) => self.received.recv_timeout(wait),
            };
            let result = match message {
                Ok(Message::Line(line, status, bytes)) => {
                    self.waiting.fetch_sub(line.bytes(), Ordering::Relaxed);
                    self.due.get_or_insert_with(|| Instant::now() + TOGETHER);
                    match &mut self.output {
                        Output::File(file) => line.write(file, status, bytes),
                        Output::Stdout(out) => line.write(out, status, bytes),
                    }
                }
                Ok(Message::Reopen) => self.reopen(),
                Err(RecvTimeoutError::Timeout) => self.flush(),
                Err(RecvTimeoutError::Disconnected) => {
                    if let Err(error) = self.flush() {
                        self.report_loss(error.to_string());
                    }
                    return;
                }
            };
            if let Err(error) = result {
                self.give_up(&error);
            }
        }
    }

    /// Makes the disk write all pending data.
    fn flush(&mut self) -> io::Result<()> {
        match &mut self.output {
            Output::File(file) => file.flush(),
            Output::Stdout(out) => out.flush(),
        }?;
        // Only now they are written: the buffer had accepted lines that the disk has no space for.
        if self.due.take().is_some() {
            match self.lost.swap(0, Ordering::Relaxed) {
                0 => self.has_told = false,
                lost => self.report_loss(format!("the disk was too slow, and {lost} were dropped")),
            }
        }
        Ok(())
    }

    fn reopen(&mut self) -> io::Result<()> {
        let flushed = self.flush();
        self.output = open(&self.to)?;
        flushed
    }

    /// Drops the lines that could not be written: they would precede every later line.
    fn give_up(&mut self, error: &io::Error) {
        self.due = None;
        self.lost.store(0, Ordering::Relaxed);
        if let Ok(output) = open(&self.to) {
            let old = std::mem::replace(&mut self.output, output);
            if let Output::File(file) = old {
                let _ = file.into_parts();
            }
        }
        self.report_loss(error.to_string());
    }

    /// Reports once that lines are lost, until a line is written again.
    fn report_loss(&mut self, why: String) {
        if !std::mem::replace(&mut self.has_told, true) {
            self.listener.report(&Event::LogLost { why });
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn line(target: &str, agent: &[u8]) -> String {
        let head = Request::builder()
            .uri(target)
            .header("referer", "https://site.example/")
            .header("user-agent", HeaderValue::from_bytes(agent).unwrap())
            .body(())
            .unwrap()
            .into_parts()
            .0;
        let mut line = Line::new("192.0.2.7".parse().unwrap(), &head);
        line.at = SystemTime::UNIX_EPOCH + Duration::from_secs(971_186_136);
        let mut text = Vec::new();
        line.write(&mut text, 200, 2326).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn line_is_in_combined_format() {
        assert_eq!(
            line("/a?b=c", b"Mozilla/5.0"),
            "192.0.2.7 - - [10/Oct/2000:13:55:36 +0000] \"GET /a?b=c HTTP/1.1\" 200 2326 \
             \"https://site.example/\" \"Mozilla/5.0\"\n"
        );
    }

    #[test]
    fn lines_waiting_for_the_disk_are_bounded_in_bytes() {
        let (lines, received) = sync_channel(MAX_WAITING);
        let (lost, waiting) = (Arc::default(), Arc::default());
        let sender = LogSender { lines, waiting, lost };
        let head = Request::builder().uri("/").header("referer", "x".repeat(60_000)).body(());
        let head = head.unwrap().into_parts().0;
        for _ in 0..1_000 {
            sender.write(Line::new("192.0.2.7".parse().unwrap(), &head), 200, 1);
        }
        let kept = received.try_iter().count();
        assert!((250..280).contains(&kept), "{kept}");
        assert_eq!(sender.lost.load(Ordering::Relaxed), 1_000 - kept as u64);
    }

    #[test]
    fn client_cannot_inject_a_line() {
        let line = line("/", b"x\" 500 \\ \xff");
        assert!(line.ends_with("\"x\\x22 500 \\x5C \\xFF\"\n"), "{line}");
        assert_eq!(line.lines().count(), 1);
    }

    #[test]
    fn predictor_parses_the_written_lines() {
        let line = line("/page?q", b"Mozilla/5.0");
        let mut reader = lull_speculate::log::Reader::new(lull_speculate::log::Format::Combined);
        let entry = reader.read(line.trim_end().as_bytes()).unwrap();
        assert_eq!((entry.client.as_ref(), entry.status), ("192.0.2.7", 200));
        assert_eq!(entry.agent.as_deref(), Some("Mozilla/5.0"));
    }

    #[test]
    fn new_line_follows_a_truncated_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        for (before, expected) in
            [("", "new\n"), ("old\n", "old\nnew\n"), ("old\nhalf", "old\nhalf\nnew\n")]
        {
            std::fs::write(&path, before).unwrap();
            let Output::File(mut log) = open(&AccessLog::File(path.clone())).unwrap() else {
                panic!("it is a file")
            };
            log.write_all(b"new\n").unwrap();
            log.flush().unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
        }
    }
}
