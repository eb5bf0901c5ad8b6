//! The logs of a command line, read in the order of their times.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, BufRead, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lull_cc::Timestamp;
use lull_speculate::log::{Clock, Entry, MAX_LINE_BYTES, Options, Reader, Span};

use crate::LogsError;
use crate::contents::{Contents, ReadResult};
use crate::unpack::{self, Damage, Unpacked};

/// Lines that are read to detect the format: as many as [`Reader::detect`] reads, and some that are empty or
/// directives.
const HEAD: usize = 256;
/// If none of these is a line of a log: as many as that reads then, or more bytes than any log's beginning
/// has.
const MAX_HEAD_LINES: usize = 10_000;
const HEAD_BYTES: usize = 16 << 20;
/// Dates of two lines within this time belong together: as long as a session lasts without a request.
const NEAR: Duration = Duration::from_secs(30 * 60);

/// Is called with the number of bytes whenever bytes of a log, as it is stored, were read.
pub type Meter = Arc<dyn Fn(u64) + Send + Sync>;

/// A log on the command line.
#[derive(Debug)]
enum Source {
    File(PathBuf),
    /// The standard input, which can be read once.
    Stream,
    /// A named pipe, or a shell's process substitution: the same.
    Pipe(PathBuf),
    /// The contents of one of these, with its name.
    Held(String, Vec<u8>),
}

impl Source {
    fn name(&self) -> String {
        match self {
            Source::File(path) | Source::Pipe(path) => path.display().to_string(),
            Source::Stream => "the standard input".to_owned(),
            Source::Held(name, _) => name.clone(),
        }
    }

    fn is_read_once(&self) -> bool {
        matches!(self, Source::Stream | Source::Pipe(_))
    }

    /// The error when it cannot be read.
    fn unreadable(&self, source: io::Error) -> LogsError {
        LogsError::Unreadable { name: self.name(), source }
    }

    fn open(&self) -> Result<Box<dyn Read + '_>, LogsError> {
        Ok(match self {
            Source::File(path) | Source::Pipe(path) => {
                Box::new(File::open(path).map_err(|source| self.unreadable(source))?)
            }
            Source::Stream => Box::new(io::stdin().lock()),
            Source::Held(_, bytes) => Box::new(&bytes[..]),
        })
    }
}

/// When logs begin, and when they end.
pub type TimeRange = (Timestamp, Timestamp);

/// The logs of a command line, in the order of their times.
pub struct Logs {
    sources: Vec<Source>,
    /// When each begins, if that was determined.
    begins: Vec<Option<Timestamp>>,
    /// Lines of other sites are left out, unless this is empty.
    sites: Vec<String>,
    options: Options,
    meter: Option<Meter>,
}

impl Logs {
    /// The logs with these names, unread so far; `-` is the standard input.
    ///
    /// # Errors
    /// If one cannot be a log.
    pub fn named(paths: &[PathBuf], options: Options) -> Result<Self, LogsError> {
        let mut sources = Vec::new();
        for path in paths {
            let is_stream = path.as_os_str() == "-";
            if is_stream && sources.iter().any(|source| matches!(source, Source::Stream)) {
                return Err(LogsError::StandardInputTwice);
            }
            if !is_stream && path.is_dir() {
                return Err(LogsError::Folder(path.clone()));
            }
            sources.push(if is_stream {
                Source::Stream
            } else if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
                Source::Pipe(path.clone())
            } else {
                Source::File(path.clone())
            });
        }
        let begins = vec![None; sources.len()];
        Ok(Logs { sources, begins, sites: Vec::new(), options, meter: None })
    }

    /// The same without lines that name another site than these; if these are empty, all lines.
    pub fn of_sites(mut self, sites: &[String]) -> Self {
        self.sites = sites.to_vec();
        self
    }

    /// Checks whether they can be opened, if that does not block: a pipe waits for its writer.
    ///
    /// # Errors
    /// If one cannot be opened.
    pub fn check(&self) -> Result<(), LogsError> {
        for source in &self.sources {
            if matches!(source, Source::File(_)) {
                source.open()?;
            }
        }
        Ok(())
    }

    /// Reads the beginnings of several to sort them: rotated logs are named by people, or by a pattern of the
    /// shell that has the latest first.
    ///
    /// # Errors
    /// If one cannot be read.
    pub fn in_order(mut self) -> Result<Self, LogsError> {
        if self.sources.len() > 1 {
            self.hold()?;
            let mut timed = Vec::new();
            for source in core::mem::take(&mut self.sources) {
                timed.push((first_time(&source, &self.options)?, source));
            }
            // A stable sort: those without a time come first, and equal ones in the given order.
            timed.sort_by_key(|(time, _)| *time);
            (self.begins, self.sources) = timed.into_iter().unzip();
        }
        Ok(self)
    }

    /// Makes sure that all can be read more than once.
    ///
    /// # Errors
    /// If one cannot be read.
    pub fn hold(&mut self) -> Result<(), LogsError> {
        for source in &mut self.sources {
            if source.is_read_once() {
                // In compressed form, which takes less memory.
                let mut bytes = Vec::new();
                let read = source.open()?.read_to_end(&mut bytes);
                read.map_err(|error| source.unreadable(error))?;
                *source = Source::Held(source.name(), bytes);
            }
        }
        Ok(())
    }

    /// The bytes of all logs as they are stored, if that is known.
    pub fn bytes(&self) -> Option<u64> {
        let length = |source: &Source| match source {
            Source::File(path) => fs::metadata(path).ok().map(|metadata| metadata.len()),
            Source::Stream | Source::Pipe(_) => None,
            Source::Held(_, bytes) => Some(bytes.len() as u64),
        };
        self.sources.iter().map(length).sum()
    }

    /// Calls `meter` in the next passes, or nothing.
    pub fn set_meter(&mut self, meter: Option<Meter>) {
        self.meter = meter;
    }

    /// Finds the first and last time of all logs, despite single wrong lines: none without a request. They
    /// can be read again then.
    ///
    /// # Errors
    /// As for [`read`](Logs::read).
    pub fn span(&mut self) -> Result<(Vec<Contents>, Option<TimeRange>), LogsError> {
        self.hold()?;
        let mut span = Span::default();
        let contents = self.read(|entry| span.record(entry.at))?;
        Ok((contents, span.ends()))
    }

    /// Reads all logs in the order of their times, and returns the contents of each. Logs of the same time,
    /// such as of several servers, are read line by line in turns.
    ///
    /// # Errors
    /// If a log cannot be read, or none has a request and one has lines.
    pub fn read(&self, take: impl FnMut(&Entry<'_>)) -> Result<Vec<Contents>, LogsError> {
        self.read_while(&|| true, take)
    }

    /// The same while `goes_on` is true, which is checked at each line.
    ///
    /// # Errors
    /// As for [`read`](Logs::read).
    pub fn read_while(
        &self,
        goes_on: &dyn Fn() -> bool,
        mut take: impl FnMut(&Entry<'_>),
    ) -> Result<Vec<Contents>, LogsError> {
        let mut all: Vec<Contents> = Vec::new();
        let mut turns: Vec<OpenLog<'_>> = Vec::new();
        loop {
            let first = (0..turns.len()).min_by_key(|at| (turns[*at].time, turns[*at].which));
            let time = first.map(|at| turns[at].time);
            let begins = self.begins.get(all.len()).copied();
            if let Some(begins) = begins
                && goes_on()
                && time.is_none_or(|time| begins.is_none_or(|begins| begins <= time))
            {
                let source = &self.sources[all.len()];
                let (mut what, which) = (ReadResult::Nothing, all.len());
                let mut damage = None;
                match Opened::of(source, &self.options, self.meter.clone())? {
                    Opened::Empty(why) => damage = why,
                    Opened::Other(is, command) => what = ReadResult::Other { is, command },
                    Opened::Foreign(reader) => what = ReadResult::Foreign(reader),
                    Opened::Log(log) => turns.push(OpenLog::new(which, log)),
                }
                all.push(Contents {
                    name: source.name(),
                    what,
                    damage,
                    others: 0,
                    is_of_some: !self.sites.is_empty(),
                });
                continue;
            }
            let Some(first) = first else { break };
            let others = turns.iter().enumerate().filter(|(at, _)| *at != first);
            let until = others.map(|(_, other)| other.time).chain(begins.flatten()).min();
            let turn = &mut turns[first];
            let goes_on = turn
                .go_on(until, goes_on, &self.sites, &mut take)
                .map_err(|error| self.sources[turn.which].unreadable(error))?;
            if !goes_on {
                let turn = turns.swap_remove(first);
                let contents = &mut all[turn.which];
                contents.damage = turn.log.lines.damage.reason();
                (contents.what, contents.others) =
                    (ReadResult::Log(Box::new(turn.log.reader)), turn.others);
            }
        }
        if all.iter().all(|one| one.entries() == 0)
            && let Some(refusal) = all.iter().find_map(Contents::refusal)
        {
            return Err(LogsError::Unusable(refusal));
        }
        let requests: u64 = all.iter().map(Contents::entries).sum();
        if requests > 0 && all.iter().map(|one| one.others).sum::<u64>() == requests {
            return Err(LogsError::OtherSites(self.sites.clone()));
        }
        Ok(all)
    }
}

/// When a log begins; none if it is empty.
fn first_time(source: &Source, options: &Options) -> Result<Option<Timestamp>, LogsError> {
    let Opened::Log(log) = Opened::of(source, options, None)? else { return Ok(None) };
    let mut reader = log.reader.clone();
    let entries = log.head.iter().filter_map(|line| reader.read(line).map(|entry| entry.at));
    Ok(begin_of(&entries.collect::<Vec<_>>()))
}

/// The beginning of a log whose first requests have these dates: the first one that is near the next. A wrong
/// date is isolated.
fn begin_of(dates: &[Timestamp]) -> Option<Timestamp> {
    let clock = Clock::new(NEAR);
    let believed = dates.windows(2).find(|two| clock.are_near(two[0], two[1]));
    believed.map(|two| two[0]).or_else(|| dates.first().copied())
}

/// A log that is read in turn with others.
struct OpenLog<'a> {
    /// Its index among all.
    which: usize,
    log: Box<Open<'a>>,
    clock: Clock,
    /// The time of the next entry, and that entry, once there is one.
    time: Timestamp,
    next: Option<Entry<'static>>,
    line: Vec<u8>,
    /// Lines of other sites.
    others: u64,
}

impl<'a> OpenLog<'a> {
    fn new(which: usize, log: Box<Open<'a>>) -> Self {
        let (clock, time) = (Clock::new(NEAR), Timestamp::ZERO);
        OpenLog { which, log, clock, time, next: None, line: Vec::new(), others: 0 }
    }

    /// Takes entries up to this time; false at the end.
    fn go_on(
        &mut self,
        until: Option<Timestamp>,
        goes_on: &dyn Fn() -> bool,
        sites: &[String],
        take: &mut impl FnMut(&Entry<'_>),
    ) -> io::Result<bool> {
        if let Some(next) = self.next.take() {
            take(&next);
        }
        while goes_on() && self.log.next(&mut self.line)? {
            let Some(entry) = self.log.reader.read(&self.line) else { continue };
            if !entry.is_of(sites) {
                self.others += 1;
                continue;
            }
            // A line with a wrong date must not delay all later ones.
            self.time = self.clock.advance(entry.at);
            if until.is_some_and(|until| until < self.time) {
                self.next = Some(entry.into_owned());
                return Ok(true);
            }
            take(&entry);
        }
        Ok(false)
    }
}

/// A log being read.
struct Open<'a> {
    head: VecDeque<Vec<u8>>,
    lines: Lines<Box<dyn BufRead + 'a>>,
    reader: Reader,
}

/// The result of opening a file.
enum Opened<'a> {
    /// Empty, or nothing that can be unpacked, with the reason.
    Empty(Option<String>),
    /// Another kind of file: its kind, and the command that unpacks it.
    Other(&'static str, &'static str),
    /// No line of it can be read; the reader has counted the reasons.
    Foreign(Box<Reader>),
    Log(Box<Open<'a>>),
}

impl<'a> Opened<'a> {
    /// Opens a log and detects its format.
    fn of(source: &'a Source, options: &Options, meter: Option<Meter>) -> Result<Self, LogsError> {
        let unread = |error| source.unreadable(error);
        let metered = Metered { from: source.open()?, meter };
        let text = match unpack::open(metered).map_err(unread)? {
            Unpacked::Text(text) => text,
            Unpacked::Other(what, command) => return Ok(Opened::Other(what, command)),
        };
        let mut lines = Lines { from: text.from, damage: text.damage };
        let mut head = VecDeque::new();
        let mut line = Vec::new();
        let mut unknown = None;
        for (count, most) in [(HEAD, usize::MAX), (MAX_HEAD_LINES, HEAD_BYTES)] {
            let mut bytes = 0;
            while head.len() < count && bytes < most && lines.next(&mut line).map_err(unread)? {
                bytes += line.len();
                head.push_back(core::mem::take(&mut line));
            }
            match Reader::detect_with(head.iter().map(Vec::as_slice), options) {
                Ok(reader) => return Ok(Opened::Log(Box::new(Open { head, lines, reader }))),
                Err(reader) => unknown = Some(reader),
            }
        }
        let is_empty = head.iter().all(|line| line.trim_ascii().is_empty());
        Ok(match unknown {
            Some(reader) if !is_empty || head.len() >= MAX_HEAD_LINES => Opened::Foreign(reader),
            _ => Opened::Empty(lines.damage.reason()),
        })
    }
}

impl Open<'_> {
    /// Reads the next line, first those that were read for the format.
    fn next(&mut self, line: &mut Vec<u8>) -> io::Result<bool> {
        match self.head.pop_front() {
            Some(first) => {
                *line = first;
                Ok(true)
            }
            None => self.lines.next(line),
        }
    }
}

/// Reports the bytes that are read.
struct Metered<R> {
    from: R,
    meter: Option<Meter>,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(to)?;
        if let Some(meter) = &self.meter {
            meter(count as u64);
        }
        Ok(count)
    }
}

/// Lines of a bounded length.
struct Lines<R> {
    from: R,
    damage: Damage,
}

impl<R: BufRead> Lines<R> {
    /// Reads the next line without its end; false after the last one. A line that is too long is cut, but
    /// still too long for readers.
    fn next(&mut self, line: &mut Vec<u8>) -> io::Result<bool> {
        line.clear();
        let most = MAX_LINE_BYTES as u64 + 2;
        let count = (&mut self.from).take(most).read_until(b'\n', line)?;
        if line.last() == Some(&b'\n') {
            line.pop();
        } else if count as u64 == most {
            self.from.skip_until(b'\n')?;
        } else if self.damage.is_there() {
            // A part of a line has another meaning than the line.
            return Ok(false);
        }
        Ok(count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut lines = Lines { from: bytes, damage: Damage::default() };
        let mut all = Vec::new();
        let mut line = Vec::new();
        while lines.next(&mut line).unwrap() {
            all.push(line.clone());
        }
        all
    }

    #[test]
    fn lines_of_any_ending_are_split_and_long_ones_cut() {
        assert_eq!(lines(b""), [] as [Vec<u8>; 0]);
        assert_eq!(lines(b"a\n\nb"), [b"a".to_vec(), Vec::new(), b"b".to_vec()]);
        for (length, kept) in [
            (MAX_LINE_BYTES, MAX_LINE_BYTES),
            (MAX_LINE_BYTES + 1, MAX_LINE_BYTES + 1),
            (MAX_LINE_BYTES + 2, MAX_LINE_BYTES + 2),
            (10 * MAX_LINE_BYTES, MAX_LINE_BYTES + 2),
        ] {
            let text = [vec![b'x'; length], b"\nb\n".to_vec()].concat();
            let all = lines(&text);
            assert_eq!(all.iter().map(Vec::len).collect::<Vec<_>>(), [kept, 1], "{length}");
        }
    }

    #[test]
    fn wrong_first_date_is_not_the_start_of_a_log() {
        let at = |minute: u64| Timestamp::from_nanos(minute * 60_000_000_000);
        for (minutes, begin) in [
            (&[][..], None),
            (&[7], Some(7)),
            (&[7, 8, 9], Some(7)),
            (&[90_000, 7, 8], Some(7)),
            (&[0, 90_000, 90_001], Some(90_000)),
            // Of a site without visitors.
            (&[0, 100, 200], Some(0)),
        ] {
            let dates: Vec<Timestamp> = minutes.iter().copied().map(at).collect();
            assert_eq!(begin_of(&dates), begin.map(at), "{minutes:?}");
        }
    }
}
