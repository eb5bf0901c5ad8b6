//! Files from the folder of data.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use flate2::read::MultiGzDecoder;
use lull_sim::traffic::{FlowSizes, Request};

use super::{SimulateError, log};
use crate::plan::{Datagrams, Flows, Kind, Scenario, Section, Sizes};
use crate::record::{DemandRecord, rounded};

/// The default folder of data: `shared/data` beside the working folder, or beside one of its parents.
pub(crate) fn usual_folder() -> PathBuf {
    let relative = Path::new("shared/data");
    let here = std::env::current_dir().unwrap_or_default();
    let found = here.ancestors().map(|folder| folder.join(relative)).find(|folder| folder.is_dir());
    found.unwrap_or_else(|| Path::new("..").join(relative))
}

/// Reports missing files of a cell.
pub(crate) fn check(scenario: &Scenario, data: &Path) -> Result<(), SimulateError> {
    for group in &scenario.groups {
        let file = match &group.kind {
            Kind::Documents(documents) => &documents.section.log,
            Kind::Datagrams(Datagrams::Log { section, .. }) => &section.log,
            Kind::Datagrams(Datagrams::Recorded { file })
            | Kind::Flows(Flows { sizes: Sizes::File(file), .. }) => file,
            _ => continue,
        };
        let path = data.join(file);
        fs::metadata(&path).map_err(|source| SimulateError::Data { path, source })?;
    }
    Ok(())
}

/// A file as text; a name that ends in `.gz` is decompressed.
pub(crate) fn text(path: &Path) -> Result<String, SimulateError> {
    let error = |source| SimulateError::Data { path: path.to_owned(), source };
    let bytes = fs::read(path).map_err(error)?;
    let mut plain = Vec::new();
    if path.extension().is_some_and(|extension| extension == "gz") {
        MultiGzDecoder::new(&bytes[..]).read_to_end(&mut plain).map_err(error)?;
    } else {
        plain = bytes;
    }
    // A log may contain text of strangers, in any encoding.
    Ok(String::from_utf8_lossy(&plain).into_owned())
}

/// The requests of a section, with times from its beginning at the speed of the replay, and clients numbered
/// again.
pub(super) fn requests(data: &Path, section: &Section) -> Result<Vec<Request>, SimulateError> {
    let path = data.join(&section.log);
    let all = log::requests(&text(&path)?).map_err(|(line, error)| SimulateError::Line {
        path,
        line,
        why: error.to_string(),
    })?;
    let begin = nanos(section.begin);
    let end = begin + nanos(section.length);
    let mut clients = BTreeMap::new();
    let requests: Vec<Request> = all
        .into_iter()
        .filter(|request| (begin..end).contains(&request.at_nanos))
        .map(|Request { at_nanos, client, bytes }| {
            let number = clients.len() as u32;
            Request {
                at_nanos: ((at_nanos - begin) as f64 / section.speed) as u64,
                client: *clients.entry(client).or_insert(number),
                bytes: ((bytes as f64 * section.scale).round() as u64).max(1),
            }
        })
        .collect();
    if requests.is_empty() {
        return Err(SimulateError::Empty { log: section.log.clone(), from: section.begin });
    }
    Ok(requests)
}

/// A visit ends after this time without a request, on the log's clock.
const VISIT: Duration = Duration::from_secs(300);

/// The demand of the requests of a section.
pub(super) fn demand(requests: &[Request], section: &Section) -> DemandRecord {
    let seconds = section.length.as_secs_f64() / section.speed;
    let bytes: u64 = requests.iter().map(|request| request.bytes).sum();
    let pause = nanos(VISIT) as f64 / section.speed;
    let mut last: BTreeMap<u32, u64> = BTreeMap::new();
    let mut present = 0.0;
    for request in requests {
        if let Some(before) = last.insert(request.client, request.at_nanos) {
            let since = (request.at_nanos - before) as f64;
            present += if since <= pause { since } else { 0.0 };
        }
    }
    DemandRecord {
        requests: requests.len() as u64,
        clients: last.len() as u64,
        bytes,
        mbit: rounded(bytes as f64 * 8.0 / 1e6 / seconds),
        active_clients: rounded(present / 1e9 / seconds),
    }
}

/// Datagrams from a file: seconds and bytes, a line for each.
pub(super) fn recorded(data: &Path, file: &str) -> Result<Vec<(u64, u16)>, SimulateError> {
    let path = data.join(file);
    let mut datagrams: Vec<(u64, u16)> = Vec::new();
    for (at, line) in text(&path)?.lines().enumerate() {
        let error = |why: &str| SimulateError::Line {
            path: path.clone(),
            line: at + 1,
            why: why.to_owned(),
        };
        let mut words = line.split_whitespace();
        let Some(time) = words.next() else { continue };
        let time = time.parse::<f64>().ok().filter(|time| (0.0..1e9).contains(time));
        let bytes = words.next().and_then(|word| word.parse::<u16>().ok()).filter(|b| *b > 0);
        let (Some(time), Some(bytes)) = (time, bytes) else {
            return Err(error("a datagram is two numbers: seconds, and bytes up to 65535"));
        };
        let nanos = (time * 1e9).round() as u64;
        if datagrams.last().is_some_and(|(before, _)| nanos < *before) {
            return Err(error("times must not decrease"));
        }
        datagrams.push((nanos, bytes));
    }
    Ok(datagrams)
}

/// The distribution of sizes.
pub(super) fn sizes(data: &Path, sizes: &Sizes) -> Result<FlowSizes, SimulateError> {
    let file = match sizes {
        Sizes::Table(table) => return Ok(table.clone()),
        Sizes::File(file) => file,
    };
    let path = data.join(file);
    let wrong = |why: String| SimulateError::Sizes { path: path.clone(), why };
    let table = text(&path)?.parse::<FlowSizes>().map_err(|error| wrong(error.to_string()))?;
    match table.mean() >= 1.0 {
        true => Ok(table),
        false => Err(wrong("the mean must be a byte at least".to_owned())),
    }
}

/// Each document as a burst of datagrams at a rate, one after the other.
pub(super) fn bursts(requests: &[Request], rate: lull_cc::Rate, bytes: u16) -> Vec<(u64, u16)> {
    let mut datagrams = Vec::new();
    let mut free = 0;
    for request in requests {
        let mut at = request.at_nanos.max(free);
        let mut left = request.bytes;
        while left > 0 {
            let own = u64::from(bytes).min(left);
            datagrams.push((at, own as u16));
            at += nanos(rate.time_for(lull_cc::Bytes(own)));
            left -= own;
        }
        free = at;
    }
    datagrams
}

/// Nanoseconds of a time; no run is longer than 64 bits of them.
pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
