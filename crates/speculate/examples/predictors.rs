//! How good the predictors are on real logs, and which of them should be the default.
//!
//! ```text
//! cargo run --release -p lull-speculate --example predictors -- [--validation | --previous] LOG[.gz] ...
//! ```
//!
//! The first third of each log's time only trains, the middle third is the validation slice, and the last
//! third is the later part; learning continues throughout. The default is chosen by the validation slices of
//! all logs together, by the rule of [`ranking`]. The later parts are printed after that, only for the
//! default, the baselines and the papers' grid; with `--validation` they are omitted. With `--previous` only the
//! default and the one before it are compared, on the later parts. The tables of `docs/predictor.md` are the
//! output of this program.

use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use flate2::read::MultiGzDecoder;
use lull_cc::Bytes;
use lull_speculate::evaluate::{
    Evaluation, Interval, Measured, NamedPredictor, Plan, evaluate, ranking,
};
use lull_speculate::log::{Entry, Reader};
use lull_speculate::observe::{ClientHasher, Limits, Observer};
use lull_speculate::predict::{Backoff, Counted, Ppm, PpmParameters, Predictor, TopN};

/// Bytes per page at which predictors are compared.
const BYTES: [f64; 7] = [1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5];
/// Those of them in the table of changes.
const SHOWN: [f64; 3] = [5e3, 2e4, 1e5];
/// The number of printed ranks.
const MAX_LISTED: usize = 12;
/// The part for training, and the part for the validation slice.
const THIRD: f64 = 1.0 / 3.0;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let is_option = |one: &&OsString| *one == "--validation" || *one == "--previous";
    let paths: Vec<PathBuf> =
        arguments.iter().filter(|one| !is_option(one)).map(PathBuf::from).collect();
    if paths.is_empty() {
        eprintln!("usage: predictors [--validation | --previous] LOG[.gz] ...");
        return ExitCode::from(2);
    }
    let only_previous = arguments.iter().any(|one| one == "--previous");
    let compared =
        if only_previous { ComparedPredictors::two() } else { ComparedPredictors::all() };
    let mut logs = Vec::new();
    for path in &paths {
        match measure(path, &compared) {
            Ok(evaluation) => logs.push((path.display().to_string(), evaluation)),
            Err(error) => {
                eprintln!("{}: {error}", path.display());
                return ExitCode::FAILURE;
            }
        }
    }
    if only_previous {
        print_previous(&compared, &logs);
        return ExitCode::SUCCESS;
    }
    print_choice(&compared, &logs);
    print_changes(&compared, &logs);
    if paths.len() == arguments.len() {
        for (name, evaluation) in &logs {
            print_later(&compared, name, evaluation);
        }
    }
    ExitCode::SUCCESS
}

/// A predictor with its name; none is the list of the most popular URLs.
type Named = (String, Option<PpmParameters>);

struct ComparedPredictors {
    /// Candidates first, then those that only show the cost of a guarantee.
    all: Vec<Named>,
    candidates: usize,
}

impl ComparedPredictors {
    /// The papers' grid and the baselines, then all combinations of the parameters: contexts of up to two
    /// pages, the papers' windows and those that only count ahead, with and without fading, alone and with
    /// shorter contexts. How many clients must have gone the same way is a promise, and not varied.
    fn all() -> Self {
        let mut all: Vec<Named> =
            vec![("markov".to_owned(), Some(PpmParameters::markov())), ("top-n".to_owned(), None)];
        for order in 1..=3 {
            // PPM-1/1 is another name of the Markov model.
            for window in [1, 5, 10].into_iter().filter(|window| (order, *window) != (1, 1)) {
                let name = format!("ppm-{order}/{window}");
                all.push((name, Some(PpmParameters::paper(order, window))));
            }
        }
        for order in [1, 2] {
            for (window, fade) in
                [(1, 1.0), (2, 1.0), (2, 0.5), (5, 1.0), (5, 0.5), (10, 1.0), (10, 0.5)]
            {
                for counted in [Counted::All, Counted::Ahead] {
                    for backoff in backoffs(order) {
                        let shipped = PpmParameters::shipped();
                        let parameters =
                            PpmParameters { order, window, counted, fade, backoff, ..shipped };
                        if all.iter().all(|(_, other)| *other != Some(parameters)) {
                            all.push((name(&parameters), Some(parameters)));
                        }
                    }
                }
            }
        }
        let candidates = all.len();
        for (change, parameters) in changes() {
            if all.iter().all(|(_, other)| *other != Some(parameters)) {
                all.push((format!("default, {change}"), Some(parameters)));
            }
        }
        ComparedPredictors { all, candidates }
    }

    /// The default, and the one before it.
    fn two() -> Self {
        let both = [PpmParameters::shipped(), PpmParameters::previous_default()];
        let all = both.map(|one| (name(&one), Some(one))).into();
        ComparedPredictors { all, candidates: 2 }
    }

    fn place(&self, parameters: &PpmParameters) -> usize {
        let is_it = |(_, other): &Named| other.as_ref() == Some(parameters);
        self.all.iter().position(is_it).expect("it is among the compared")
    }
}

/// The baselines of the issue and the papers: the grid, which includes the Markov model, and the most
/// popular.
fn is_baseline(name: &str) -> bool {
    ["markov", "top-n"].contains(&name) || name.starts_with("ppm-")
}

fn backoffs(order: usize) -> Vec<Backoff> {
    let mut all = vec![Backoff::Longest];
    // A context of one page has no shorter one to escape to.
    all.extend((order > 1).then_some(Backoff::Escape));
    all.extend([0.1, 0.3, 1.0, 3.0].map(|discount| Backoff::Blend { discount }));
    all
}

fn backoff_name(backoff: Backoff) -> String {
    match backoff {
        Backoff::Longest => "alone".to_owned(),
        Backoff::Escape => "escape".to_owned(),
        Backoff::Blend { discount } => format!("c = {discount}"),
    }
}

fn counted_name(counted: Counted) -> &'static str {
    if counted == Counted::All { "all counts" } else { "ahead" }
}

fn fade_name(fade: f32) -> &'static str {
    if fade < 1.0 { "fading" } else { "no fading" }
}

fn name(one: &PpmParameters) -> String {
    let (counted, fade) = (counted_name(one.counted), fade_name(one.fade));
    let backoff = backoff_name(one.backoff);
    format!("n = {}, w = {}, {counted}, {fade}, {backoff}", one.order, one.window)
}

/// The default with one rule changed at a time.
fn changes() -> Vec<(String, PpmParameters)> {
    let shipped = PpmParameters::shipped();
    let mut all = vec![("nothing".to_owned(), shipped)];
    for order in 1..=3 {
        all.push((format!("n = {order}"), PpmParameters { order, ..shipped }));
    }
    for window in [1, 2, 5, 10] {
        all.push((format!("w = {window}"), PpmParameters { window, ..shipped }));
    }
    for counted in [Counted::All, Counted::Ahead] {
        all.push((counted_name(counted).to_owned(), PpmParameters { counted, ..shipped }));
    }
    for fade in [0.5, 1.0] {
        all.push((fade_name(fade).to_owned(), PpmParameters { fade, ..shipped }));
    }
    for backoff in backoffs(shipped.order) {
        all.push((backoff_name(backoff), PpmParameters { backoff, ..shipped }));
    }
    for least in [0.0, 0.001, 0.002, 0.005] {
        all.push((format!("least probability {least}"), PpmParameters { least, ..shipped }));
    }
    for megabytes in [5, 10, 50, 100] {
        let bytes_per_hit = Some(Bytes(megabytes * 1_000_000));
        let name = format!("{megabytes} MB for each hit");
        all.push((name, PpmParameters { bytes_per_hit, ..shipped }));
    }
    all.push(("any bytes".to_owned(), PpmParameters { bytes_per_hit: None, ..shipped }));
    all.push(("one client".to_owned(), PpmParameters { clients: 1, ..shipped }));
    let mut is_first = true;
    all.retain(|(_, parameters)| *parameters != shipped || std::mem::take(&mut is_first));
    all
}

/// Trains all compared on a log, and measures them on its middle and its last third.
fn measure(path: &Path, compared: &ComparedPredictors) -> Result<Evaluation, String> {
    let bytes = read(path).map_err(|error| error.to_string())?;
    let lines = || bytes.split(|byte| *byte == b'\n');
    let mut reader = Reader::detect(lines()).ok_or("no format that is known")?;
    let entries: Vec<Entry<'_>> = lines().filter_map(|line| reader.read(line)).collect();
    println!("{}: {:?}, {} requests", path.display(), reader.format(), reader.entries());
    for (why, bad) in reader.bad() {
        println!("{} lines: {why}; line {}: {}", bad.count, bad.first, bad.sample);
    }
    let (first, last) = entries.first().zip(entries.last()).ok_or("there is no request")?;
    let plan = Plan::split(first.at, last.at, THIRD, THIRD);
    let half_life = PpmParameters::shipped().half_life;
    let mut predictors: Vec<Box<dyn Predictor>> = compared
        .all
        .iter()
        .map(|(_, parameters)| match parameters {
            Some(parameters) => Box::new(Ppm::new(*parameters)) as Box<dyn Predictor>,
            None => Box::new(TopN::new(half_life)),
        })
        .collect();
    let mut named: Vec<NamedPredictor<'_>> = compared
        .all
        .iter()
        .zip(&mut predictors)
        .map(|((name, _), predictor)| NamedPredictor {
            name: name.clone(),
            predictor: &mut **predictor,
        })
        .collect();
    let mut observer = Observer::new(ClientHasher::new([0; 16]), Limits::default());
    let evaluation = evaluate(entries, &mut observer, &mut named, &plan);
    println!("{} visits; ignored: {:?}", evaluation.visits, evaluation.ignored);
    Ok(evaluation)
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let bytes = std::fs::read(path)?;
    if path.extension().is_none_or(|extension| extension != "gz") {
        return Ok(bytes);
    }
    let mut plain = Vec::new();
    MultiGzDecoder::new(&bytes[..]).read_to_end(&mut plain)?;
    Ok(plain)
}

fn row(cells: impl IntoIterator<Item = String>) {
    println!("| {} |", cells.into_iter().collect::<Vec<_>>().join(" | "));
}

fn head(first: &str, columns: impl IntoIterator<Item = String>) {
    let cells: Vec<String> = [first.to_owned()].into_iter().chain(columns).collect();
    let rule = "---|".repeat(cells.len());
    row(cells);
    println!("|{rule}");
}

fn kilobytes(bytes: f64) -> String {
    format!("{}", bytes / 1e3)
}

/// An interval of a difference.
fn between(interval: Interval) -> String {
    format!("{:+.3} to {:+.3}", interval.low, interval.high)
}

fn three(number: f64) -> String {
    format!("{number:.3}")
}

/// The best by the validation slices, and the rank of the present default.
fn print_choice(compared: &ComparedPredictors, logs: &[(String, Evaluation)]) {
    let slices: Vec<&[Measured]> =
        logs.iter().map(|(_, log)| &log.slices[0][..compared.candidates]).collect();
    let ranked = ranking(&slices, is_baseline, &BYTES);
    let default = &compared.all[compared.place(&PpmParameters::shipped())].0;
    println!("\nthe choice among {}, by the validation slices", compared.candidates);
    head("", ["predictor", "short by", "over the best baseline"].map(str::to_owned));
    for (rank, (name, standing)) in ranked.iter().enumerate() {
        let is_default = name == default;
        if rank < MAX_LISTED || is_default {
            let name = if is_default { format!("{name} (default)") } else { (*name).to_owned() };
            let (short, ratio) = (three(standing.shortfall), three(standing.ratio));
            row([(rank + 1).to_string(), name, short, ratio]);
        }
    }
}

/// The benefit of each rule of the default, on the validation slices.
fn print_changes(compared: &ComparedPredictors, logs: &[(String, Evaluation)]) {
    println!("\none rule of the default changed at a time, on the validation slices");
    for (name, log) in logs {
        println!("{name}: {} pages", log.slices[0].first().map_or(0, |one| one.pages));
    }
    let columns = logs.iter().flat_map(|_| {
        let shown = SHOWN.iter().map(|bytes| kilobytes(*bytes) + " kB");
        shown.chain(["pages, lists of 10", "less the default", "MB wasted"].map(str::to_owned))
    });
    head("changed", columns);
    for (change, parameters) in changes() {
        let place = compared.place(&parameters);
        let cells = logs.iter().flat_map(|(_, log)| {
            let one = &log.slices[0][place];
            let ten = one.by_length.iter().find(|point| point.length == Some(10));
            let rates = SHOWN.iter().map(move |bytes| three(one.page_hit_rate_at(*bytes)));
            let both = (place, compared.place(&PpmParameters::shipped()));
            let difference = log.bootstraps[0].difference_with_lists_of(both, 10);
            let wasted = ten.map_or(0.0, |point| point.wasted_bytes as f64 / 1e6);
            let rate = three(ten.map_or(0.0, |point| point.page_hit_rate));
            rates.chain([rate, difference.map_or(String::new(), between), format!("{wasted:.1}")])
        });
        row([change].into_iter().chain(cells));
    }
}

/// The default beside the previous one, on the later part of each log: with lists of ten, and at equal bytes.
fn print_previous(compared: &ComparedPredictors, logs: &[(String, Evaluation)]) {
    let default = compared.place(&PpmParameters::shipped());
    let previous = compared.place(&PpmParameters::previous_default());
    let (mut places, mut reached) = (0, 0);
    let columns = BYTES.map(|bytes| kilobytes(bytes) + " kB").into_iter();
    head("log", ["predictor", "lists of 10", "95 %"].map(str::to_owned).into_iter().chain(columns));
    for (name, log) in logs {
        let (slice, bootstrap) = (&log.slices[1], &log.bootstraps[1]);
        for (at, title) in [(default, "default"), (previous, "previous")] {
            let one = &slice[at];
            let ten = one.by_length.iter().find(|point| point.length == Some(10));
            let rates = BYTES.map(|bytes| three(one.page_hit_rate_at(bytes)));
            let ten = three(ten.map_or(0.0, |point| point.page_hit_rate));
            let difference = (at == default)
                .then(|| bootstrap.difference_with_lists_of((default, previous), 10))
                .flatten();
            let difference = difference.map_or(String::new(), between);
            row([name.clone(), title.to_owned(), ten, difference].into_iter().chain(rates));
        }
        for bytes in BYTES {
            let [one, other] = [default, previous].map(|at| slice[at].page_hit_rate_at(bytes));
            places += 1;
            reached += u32::from(one >= other);
        }
    }
    println!("\nat or above the previous default at {reached} of {places} places");
}

/// The result on the later part of a log.
fn print_later(compared: &ComparedPredictors, log: &str, evaluation: &Evaluation) {
    let (slice, bootstrap) = (&evaluation.slices[1], &evaluation.bootstraps[1]);
    let Some(first) = slice.first() else { return };
    println!("\n{log}, later part: {} pages, {} requests", first.pages, first.requests);
    let lists = ["pages", "all", "precision", "recall", "kB/page"].map(str::to_owned);
    head("predictor", lists.into_iter().chain(BYTES.map(kilobytes)));
    let place = compared.place(&PpmParameters::shipped());
    let default = &slice[place];
    let is_baseline = |one: &(usize, &Measured)| is_baseline(&one.1.name);
    let baselines: Vec<(usize, &Measured)> = slice.iter().enumerate().filter(is_baseline).collect();
    for one in [default].into_iter().chain(baselines.iter().map(|(_, one)| *one)) {
        let is_default = core::ptr::eq(one, default);
        let name = if is_default { "default".to_owned() } else { one.name.clone() };
        let ten = one.by_length.iter().find(|point| point.length == Some(10));
        let Some(ten) = ten else { continue };
        let rates = [ten.page_hit_rate, ten.hit_rate, ten.precision, ten.recall].map(three);
        let bytes = format!("{:.1}", ten.bytes_per_page / 1e3);
        let equal = BYTES.map(|bytes| three(one.page_hit_rate_at(bytes)));
        row([name].into_iter().chain(rates).chain([bytes]).chain(equal));
    }
    println!("\n{log}, later part: the default over the best baseline");
    let columns = ["default", "best baseline", "which", "pages more", "difference, 95 %"];
    head("kB a page", columns.map(str::to_owned));
    for bytes in BYTES {
        let rate = |one: &Measured| one.page_hit_rate_at(bytes);
        let best = baselines.iter().copied().max_by(|a, b| rate(a.1).total_cmp(&rate(b.1)));
        let Some((at, best)) = best else { continue };
        let difference = between(bootstrap.difference_at((place, at), bytes));
        let pages = (rate(default) - rate(best)) * first.pages as f64;
        let pages = format!("{pages:+.1}");
        let rates = [rate(default), rate(best)].map(three);
        let behind = [best.name.clone(), pages, difference];
        row([kilobytes(bytes)].into_iter().chain(rates).chain(behind));
    }
}
