//! How fast a predictor learns from an access log and gives hints, and how much memory it needs.
//!
//! The log is generated from a seed, line by line, in the Combined Log Format, and is not stored. Clients
//! follow links between pages, whose popularity falls as 1/rank. They visit at most ten pages, with three
//! images in each. The times do not include the generation. The rate of lines is measured in processor time,
//! which other programs hardly affect; hints are measured by the clock.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::io;
use std::time::{Duration, Instant};

use lull_speculate::log::{Format, Reader};
use lull_speculate::observe::{ClientHasher, Limits, Observer};
use lull_speculate::predict::{Asker, Ppm, PpmParameters, Predictor as _, prioritise};
use serde::Serialize;

use crate::record::rounded;
use lull_emulator::random::Random;

/// Lines that are generated at a time.
const BATCH: u64 = 50_000;
/// Concurrent clients of the site.
const PRESENT: usize = 2_000;
/// Lines in a second of the log's time.
const RATE: u64 = 500;
/// Clients to give hints to after each batch, with two hint lists each.
const CLIENTS: usize = 250;
/// A page and the images in it.
const FILES: u64 = 4;

/// The predictor and the log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The predictor.
    pub parameters: PpmParameters,
    /// Lines of the log.
    pub lines: u64,
    /// The site's URLs, four at least. A short log does not contain all of them.
    pub urls: u64,
    /// The seed of the log.
    pub seed: u64,
}

/// The results.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Lines that were read and learned.
    pub lines: u64,
    /// Different URLs that the model knows in the end.
    pub urls: u64,
    /// Time of the processor for the lines, in seconds.
    pub seconds: f64,
    /// Lines in a second of the processor's time.
    pub lines_per_second: f64,
    /// Hint lists.
    pub hints: Hints,
    /// Memory of the predictor, without the allocator's overhead.
    pub predictor_bytes: u64,
    /// Memory of URLs and clients beside it.
    pub observer_bytes: u64,
    /// The peak memory of this process (`VmHWM`).
    pub most_resident_bytes: u64,
}

/// The times for hint lists: to rank the likely next URLs, and to order them by how much a prefetch is worth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Hints {
    /// Requested lists.
    pub asked: u64,
    /// Lists that were not empty.
    pub listed: u64,
    /// The median, in microseconds.
    pub p50_us: f64,
    /// 99 % are at most this long.
    pub p99_us: f64,
    /// The longest.
    pub max_us: f64,
}

/// Generates the log, and learns from it.
///
/// # Errors
/// If the kernel does not report how long threads ran, or how much memory a process had.
///
/// # Panics
/// If the generated log cannot be read.
pub fn run(settings: &Settings) -> io::Result<Report> {
    let mut site = Site::new(settings.urls, settings.seed);
    // Nothing is kept beyond the run, so the key protects nothing.
    let mut observer = Observer::new(ClientHasher::new([0; 16]), Limits::default());
    let mut predictor = Ppm::new(settings.parameters);
    let mut reader = Reader::new(Format::Combined);
    let mut asker = Asker::default();
    let (mut ranked, mut list) = (Vec::new(), Vec::new());
    let mut spent = Duration::ZERO;
    let mut times = Vec::new();
    let mut listed = 0;
    let mut left = settings.lines;
    let mut text = String::new();
    while left > 0 {
        let count = BATCH.min(left);
        left -= count;
        text.clear();
        (0..count).for_each(|_| site.line(&mut text));
        let begun = processor_time()?;
        let mut visits = Vec::new();
        for line in text.as_bytes().split(|byte| *byte == b'\n') {
            let Some(entry) = reader.read(line) else { continue };
            if let Ok(visit) = observer.observe(&entry) {
                predictor.train(&visit, observer.history(&visit), observer.urls());
                visits.push(visit);
            }
        }
        spent += processor_time()?.saturating_sub(begun);
        // For the latest clients, each once with the predictor and once with pages by popularity. A repeated
        // request would find everything in the processor's caches.
        let mut clients = HashSet::new();
        visits.reverse();
        visits.retain(|visit| clients.len() < CLIENTS && clients.insert(visit.client));
        for (visit, is_elsewhere) in visits.iter().flat_map(|visit| [(visit, false), (visit, true)])
        {
            let pages: Vec<_> = [site.popular(), site.popular()]
                .iter()
                .filter_map(|page| observer.url(&path_of(*page)))
                .collect();
            let begun = Instant::now();
            let mut question = asker.ask(visit.at, observer.history(visit));
            if is_elsewhere {
                question.pages = &pages;
                question.learned = false;
                question.held = &[];
            }
            predictor.rank(&question, observer.urls(), &mut ranked);
            prioritise(&ranked, observer.urls(), &mut list);
            times.push(begun.elapsed());
            listed += u64::from(!list.is_empty());
        }
    }
    let bad: u64 = reader.bad().values().map(|bad| bad.count).sum();
    assert_eq!((reader.entries(), bad), (settings.lines, 0), "the log is sound");
    let seconds = spent.as_secs_f64();
    Ok(Report {
        lines: settings.lines,
        urls: observer.urls().len() as u64,
        seconds: rounded(seconds),
        lines_per_second: rounded(settings.lines as f64 / seconds.max(f64::MIN_POSITIVE)),
        hints: Hints { listed, ..hints(times) },
        predictor_bytes: predictor.resident().0,
        observer_bytes: observer.resident().0,
        most_resident_bytes: most_resident()?,
    })
}

fn hints(mut times: Vec<Duration>) -> Hints {
    times.sort_unstable();
    let at = |share: f64| {
        let place = (times.len().saturating_sub(1) as f64 * share) as usize;
        times.get(place).map_or(0.0, |time| rounded(time.as_secs_f64() * 1e6))
    };
    let asked = times.len() as u64;
    Hints { asked, listed: 0, p50_us: at(0.5), p99_us: at(0.99), max_us: at(1.0) }
}

/// This thread's processor time.
fn processor_time() -> io::Result<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanos = text.split_whitespace().next().and_then(|word| word.parse().ok());
    nanos.map(Duration::from_nanos).ok_or_else(|| io::Error::other("/proc/thread-self/schedstat"))
}

/// The peak memory of this process, in bytes.
fn most_resident() -> io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.map(|kib| kib * 1024).ok_or_else(|| io::Error::other("/proc/self/status has no VmHWM"))
}

/// A visitor; a site has [`PRESENT`] of them.
#[derive(Clone, Copy, Debug)]
struct Visitor {
    name: u64,
    page: u64,
    /// Files of the page that are still to be requested, the page itself first.
    files: u64,
    pages: u64,
}

/// Generates lines of a log.
#[derive(Debug)]
struct Site {
    random: Random,
    pages: u64,
    visitors: Vec<Visitor>,
    lines: u64,
}

fn path_of(page: u64) -> String {
    format!("/section/{}/page-{page}.html", page % 97)
}

impl Site {
    fn new(urls: u64, seed: u64) -> Self {
        let pages = (urls / FILES).max(1);
        Site { random: Random::new(seed), pages, visitors: Vec::new(), lines: 0 }
    }

    /// A rank from 0 below `bound`, with a probability that falls as 1/rank.
    fn rank(&mut self, bound: u64) -> u64 {
        let uniform = (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        (((bound as f64 + 1.0).powf(uniform) - 1.0) as u64).min(bound - 1)
    }

    /// A page, by popularity.
    fn popular(&mut self) -> u64 {
        self.rank(self.pages)
    }

    /// Writes the next line.
    fn line(&mut self, text: &mut String) {
        self.lines += 1;
        if self.visitors.len() < PRESENT {
            let (page, name) = (self.popular(), self.random.next_u64());
            let pages = 1 + self.random.below(10) as u64;
            self.visitors.push(Visitor { name, page, files: FILES, pages });
        }
        let at = self.random.below(self.visitors.len());
        let Visitor { name, page, files, pages } = self.visitors[at];
        let seconds = self.lines / RATE;
        // Writing into a text cannot fail.
        let _ = write!(
            text,
            "10.{}.{}.{} - - [{:02}/May/2015:{:02}:{:02}:{:02} +0000] \"GET ",
            name >> 16 & 255,
            name >> 8 & 255,
            name & 255,
            1 + seconds / 86_400 % 28,
            seconds / 3_600 % 24,
            seconds / 60 % 60,
            seconds % 60
        );
        match files {
            FILES => text.push_str(&path_of(page)),
            _ => {
                let _ = write!(text, "/images/{}/figure-{page}-{files}.png", page % 97);
            }
        }
        text.push_str(" HTTP/1.1\" 200 5120 \"-\" \"Mozilla/5.0 (X11; Linux x86_64)\"\n");
        if files > 1 {
            self.visitors[at].files -= 1;
        } else if pages > 1 {
            // Links of a page lead to a few fixed pages, or to popular ones.
            let page = match self.random.below(4) {
                0 => self.popular(),
                _ => (page * 31 + self.rank(20)) % self.pages,
            };
            self.visitors[at] = Visitor { name, page, files: FILES, pages: pages - 1 };
        } else {
            self.visitors.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(seed: u64) -> Settings {
        Settings { parameters: PpmParameters::paper(2, 10), lines: 30_000, urls: 2_000, seed }
    }

    #[test]
    fn log_generator_depends_on_its_seed() {
        let text = |seed| {
            let mut site = Site::new(2_000, seed);
            let mut text = String::new();
            (0..10_000).for_each(|_| site.line(&mut text));
            text
        };
        assert_eq!(text(1), text(1));
        assert_ne!(text(1), text(2));
    }

    #[test]
    fn generated_lines_are_learned_and_give_hints() {
        let report = run(&settings(1)).unwrap();
        assert_eq!(report.lines, 30_000);
        // A log this short does not contain all of its URLs, but no others.
        assert!((1_000..=2_000).contains(&report.urls), "{report:?}");
        assert_eq!(report.hints.asked, 2 * CLIENTS as u64);
        assert!(report.hints.listed > 0 && report.hints.p99_us > 0.0, "{report:?}");
        let own = report.predictor_bytes + report.observer_bytes;
        assert!(own > 0 && report.most_resident_bytes > 0, "{report:?}");
    }
}
