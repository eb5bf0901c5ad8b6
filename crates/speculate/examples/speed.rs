//! How fast logs are read and learned from, and hints are given.
//!
//! ```text
//! cargo run --release -p lull-speculate --example speed -- [LINES [URLS]]
//! ```
//!
//! The log is made up from a seed, line by line, in the Combined Log Format: clients go from page to
//! page over links whose popularity falls as 1/rank, half a dozen pages each, with three images in
//! each page. Making it up is not part of the times; learning is of PPM-2/10, and of the default.
//! Lines are counted by the time of the processor, which other programs hardly change, hints by the
//! clock.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use lull_speculate::log::{Format, Reader};
use lull_speculate::observe::{ClientHasher, Limits, Observer};
use lull_speculate::predict::{Asker, Ppm, PpmParameters, Predictor};

/// Lines that are made up at a time.
const BATCH: usize = 50_000;
/// Clients at the site at a time.
const PRESENT: u64 = 2_000;
/// Hint lists that are timed in each batch.
const HINTS: usize = 500;

fn main() -> ExitCode {
    let numbers = std::env::args_os().skip(1).map(|word| word.to_str()?.parse().ok());
    let (lines, urls) = match numbers.collect::<Option<Vec<u64>>>().as_deref() {
        Some([]) => (200_000, 20_000),
        Some([lines @ (1..)]) => (*lines, 20_000),
        Some([lines @ (1..), urls @ (4..)]) => (*lines, *urls),
        _ => {
            eprintln!("usage: speed [LINES [URLS]], at least 1 and 4");
            return ExitCode::from(2);
        }
    };
    println!("{lines} lines, {urls} URLs");
    measure("ppm-2/10", PpmParameters::paper(2, 10), lines, urls);
    measure("default", PpmParameters::shipped(), lines, urls);
    ExitCode::SUCCESS
}

fn measure(name: &str, parameters: PpmParameters, lines: u64, urls: u64) {
    let mut site = Site { draw: Draw(7), pages: urls / 4, clients: Vec::new(), line: 0 };
    let limits = Limits { urls: (1 << 24) - 1, ..Limits::default() };
    let mut observer = Observer::new(ClientHasher::new([0; 16]), limits);
    let mut predictor = Ppm::new(parameters);
    let mut reader = Reader::new(Format::Combined);
    let mut asker = Asker::default();
    let mut ranked = Vec::new();
    let mut spent = Duration::ZERO;
    let mut hints = Vec::new();
    let mut left = lines as usize;
    let mut text = String::new();
    while left > 0 {
        let count = BATCH.min(left);
        left -= count;
        text.clear();
        (0..count).for_each(|_| site.line(&mut text));
        let start = processor_time();
        let mut last = None;
        for line in text.as_bytes().split(|byte| *byte == b'\n') {
            let Some(entry) = reader.read(line) else { continue };
            if let Ok(visit) = observer.observe(&entry) {
                predictor.train(&visit, observer.history(&visit), observer.urls());
                last = Some(visit);
            }
        }
        spent += processor_time() - start;
        let Some(last) = last else { continue };
        for number in 0..HINTS {
            let pages: Vec<_> = [site.page(), site.page()]
                .iter()
                .filter_map(|page| {
                    observer.url(&format!("/section/{}/page-{page}.html", page % 97))
                })
                .collect();
            let start = Instant::now();
            let mut question = asker.ask(last.at, observer.history(&last));
            // Every second one of the client that came last, the others of pages by popularity.
            if number % 2 == 0 {
                question.pages = &pages;
                question.held = &[];
            }
            predictor.rank(&question, observer.urls(), &mut ranked);
            hints.push(start.elapsed());
        }
    }
    hints.sort_unstable();
    let bad: u64 = reader.bad().values().map(|bad| bad.count).sum();
    assert_eq!((reader.entries(), bad), (lines, 0), "the log is sound");
    let rate = lines as f64 / spent.as_secs_f64();
    let at = |share: f64| hints[((hints.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e6;
    println!(
        "{name:<10} {:>8.0} lines/s, hints median {:.1} µs, 99 % {:.1} µs; model {}, observer {}, \
         resident at most {} MiB",
        rate,
        at(0.5),
        at(0.99),
        predictor.resident(),
        observer.resident(),
        most_resident() >> 20,
    );
}

/// The time that this thread had a processor for.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split_whitespace().next().and_then(|word| word.parse().ok());
    Duration::from_nanos(nanos.expect("the kernel counts the time of threads"))
}

/// The most memory that this process ever had, in bytes.
fn most_resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// SplitMix64.
struct Draw(u64);

impl Draw {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let value = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// A rank from 0 below `bound`, with a probability that falls as 1/rank.
    fn rank(&mut self, bound: u64) -> u64 {
        let uniform = (self.bits() >> 11) as f64 / (1u64 << 53) as f64;
        ((bound as f64 + 1.0).powf(uniform) - 1.0) as u64
    }
}

struct Site {
    draw: Draw,
    pages: u64,
    /// Name, page, images left, pages left.
    clients: Vec<(u64, u64, u64, u64)>,
    line: u64,
}

impl Site {
    fn page(&mut self) -> u64 {
        self.draw.rank(self.pages)
    }

    fn line(&mut self, text: &mut String) {
        self.line += 1;
        if (self.clients.len() as u64) < PRESENT {
            let page = self.draw.rank(self.pages);
            let name = self.draw.bits();
            let pages = 1 + self.draw.below(10);
            self.clients.push((name, page, 4, pages));
        }
        let at = self.draw.below(self.clients.len() as u64) as usize;
        let (name, page, images, pages) = self.clients[at];
        let seconds = self.line / 500;
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
        let _ = match images {
            4 => write!(text, "/section/{}/page-{page}.html", page % 97),
            _ => write!(text, "/images/{}/figure-{page}-{images}.png", page % 97),
        };
        text.push_str(" HTTP/1.1\" 200 5120 \"-\" \"Mozilla/5.0 (X11; Linux x86_64)\"\n");
        self.clients[at].2 -= 1;
        if images == 1 {
            // Links of a page lead to a few pages near by, or to what is popular.
            let next = match self.draw.below(4) {
                0 => self.draw.rank(self.pages),
                _ => (page * 31 + self.draw.rank(20)) % self.pages,
            };
            self.clients[at] = (name, next, 4, pages - 1);
        }
        if self.clients[at].3 == 0 {
            self.clients.swap_remove(at);
        }
    }
}
