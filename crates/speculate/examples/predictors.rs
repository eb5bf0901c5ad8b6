//! How good the predictors are on a real log.
//!
//! ```text
//! cargo run --release -p lull-speculate --example predictors -- LOG[.gz] [NAME]
//! ```
//!
//! Trains on the first half of the time, chooses on the next sixth, and judges on the rest. With NAME only
//! predictors that have it in their names.

use std::ffi::OsString;
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use flate2::read::MultiGzDecoder;
use lull_speculate::evaluate::{Contestant, Measured, Plan, best, evaluate};
use lull_speculate::log::{Entry, Reader};
use lull_speculate::observe::{ClientHasher, Limits, Observer};
use lull_speculate::predict::{Backoff, Counted, Ppm, PpmParameters, Predictor, TopN};

/// Bytes a page at which predictors are compared.
const BYTES: &[f64] = &[1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5];

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let (path, only) = match &arguments[..] {
        [path] => (Path::new(path), String::new()),
        [path, name] => (Path::new(path), name.to_string_lossy().into_owned()),
        _ => {
            eprintln!("usage: predictors LOG[.gz] [NAME]");
            return ExitCode::from(2);
        }
    };
    let bytes = read(path);
    let path = path.display();
    let bytes = match bytes {
        Ok(bytes) => bytes,
        Err(error) => {
            eprintln!("{path}: {error}");
            return ExitCode::FAILURE;
        }
    };
    let lines = || bytes.split(|byte| *byte == b'\n');
    let Some(mut reader) = Reader::detect(lines()) else {
        eprintln!("{path}: no format that is known");
        return ExitCode::FAILURE;
    };
    let entries: Vec<Entry<'_>> = lines().filter_map(|line| reader.read(line)).collect();
    println!("{path}: {:?}, {} requests", reader.format(), reader.entries());
    for (why, bad) in reader.bad() {
        println!("{} lines: {why}; line {}: {}", bad.count, bad.first, bad.sample);
    }
    let (Some(first), Some(last)) = (entries.first(), entries.last()) else {
        return ExitCode::FAILURE;
    };
    let plan = Plan::split(first.at, last.at, 0.5, 1.0 / 6.0);
    let mut predictors: Vec<(String, Box<dyn Predictor>)> =
        contestants().into_iter().filter(|(name, _)| name.contains(&only)).collect();
    let mut contestants: Vec<Contestant<'_>> = predictors
        .iter_mut()
        .map(|(name, predictor)| Contestant { name: name.clone(), predictor: &mut **predictor })
        .collect();
    let mut observer = Observer::new(ClientHasher::new([0; 16]), Limits::default());
    let result = evaluate(entries, &mut observer, &mut contestants, &plan);
    println!("{} visits; ignored: {:?}", result.visits, result.ignored);
    for (name, slice) in ["validation", "test"].iter().zip(&result.slices) {
        print(name, slice);
    }
    if let Some(best) = result.slices.first().and_then(|slice| best(slice, BYTES)) {
        println!("best on the validation slice: {}", best.name);
    }
    ExitCode::SUCCESS
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

/// The papers' grid, the baselines, and the default with one rule changed at a time.
fn contestants() -> Vec<(String, Box<dyn Predictor>)> {
    let shipped = PpmParameters::shipped();
    let mut all: Vec<(String, PpmParameters)> =
        vec![("markov".to_owned(), PpmParameters::markov())];
    for order in 1..=3 {
        for window in [1, 5, 10] {
            all.push((format!("ppm-{order}/{window}"), PpmParameters::paper(order, window)));
        }
    }
    let mut changed = |name: &str, parameters| all.push((format!("default{name}"), parameters));
    changed("", shipped);
    changed(", n = 2", PpmParameters { order: 2, ..shipped });
    changed(", w = 1", PpmParameters { window: 1, ..shipped });
    changed(", w = 2", PpmParameters { window: 2, ..shipped });
    changed(", w = 10", PpmParameters { window: 10, ..shipped });
    changed(", all counts", PpmParameters { counted: Counted::All, ..shipped });
    changed(", no fading", PpmParameters { fade: 1.0, ..shipped });
    changed(", alone", PpmParameters { backoff: Backoff::Longest, ..shipped });
    for discount in [0.1, 1.0, 3.0] {
        let backoff = Backoff::Blend { discount };
        changed(&format!(", c = {discount}"), PpmParameters { backoff, ..shipped });
    }
    changed(", one client", PpmParameters { clients: 1, ..shipped });
    let escape = PpmParameters { backoff: Backoff::Escape, ..PpmParameters::paper(2, 5) };
    all.push(("ppm-2/5, escape".to_owned(), escape));
    let one = PpmParameters { clients: 1, ..PpmParameters::paper(2, 10) };
    all.push(("ppm-2/10, one client".to_owned(), one));
    let mut all: Vec<(String, Box<dyn Predictor>)> = all
        .into_iter()
        .map(|(name, parameters)| (name, Box::new(Ppm::new(parameters)) as Box<dyn Predictor>))
        .collect();
    all.push(("top-n".to_owned(), Box::new(TopN::new(shipped.half_life))));
    all
}

fn print(slice: &str, measured: &[Measured]) {
    let Some(first) = measured.first() else { return };
    println!("\n{slice}: {} pages, {} requests", first.pages, first.requests);
    print!(
        "{:<24} {:>6} {:>6} {:>6} {:>6} {:>7}  |",
        "lists of 10", "page", "all", "prec", "recall", "kB/page"
    );
    for bytes in BYTES {
        print!(" {:>6}", format!("{}k", bytes / 1e3));
    }
    println!();
    for one in measured {
        let ten =
            one.by_length.iter().find(|point| point.length == Some(10)).expect("it is in the plan");
        print!(
            "{:<24} {:>6.3} {:>6.3} {:>6.3} {:>6.3} {:>7.1}  |",
            one.name,
            ten.page_hit_rate,
            ten.hit_rate,
            ten.precision,
            ten.recall,
            ten.bytes_per_page / 1e3
        );
        for bytes in BYTES {
            print!(" {:>6.3}", one.page_hit_rate_at(*bytes));
        }
        println!();
    }
}
