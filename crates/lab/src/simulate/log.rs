//! The requests of a web server's log, as documents that clients request.

use std::collections::BTreeMap;

use lull_sim::traffic::Request;
use lull_speculate::log::{Format, LineError, Reader};

const SECOND: u64 = 1_000_000_000;

/// Requests of a log, from its first line on; clients are numbered in order of appearance. Responses without
/// bytes are left out: no data is sent for them.
///
/// Most logs count in whole seconds. Requests of one second are spread over it evenly, in order.
///
/// # Errors
/// The number of the first line that can't be read, from 1, and why.
pub(super) fn requests(text: &str) -> Result<Vec<Request>, (usize, LineError)> {
    let lines = || text.lines().map(str::as_bytes);
    // If no format reads anything, the first line says why.
    let reader = Reader::detect(lines()).unwrap_or_else(|| Reader::new(Format::Common));
    let mut reader = reader.believing_names();
    let mut clients = BTreeMap::new();
    let mut requests: Vec<Request> = Vec::new();
    let mut first = None;
    for (at, line) in lines().enumerate() {
        let Some(entry) = reader.try_read(line).map_err(|error| (at + 1, error))? else {
            continue;
        };
        let start = *first.get_or_insert(entry.at);
        if entry.bytes.0 == 0 {
            continue;
        }
        let count = clients.len() as u32;
        let client = *clients.entry(entry.client).or_insert(count);
        let at_nanos = entry.at.as_nanos().saturating_sub(start.as_nanos());
        requests.push(Request { at_nanos, client, bytes: entry.bytes.0 });
    }
    requests.sort_by_key(|request| request.at_nanos);
    for same in requests.chunk_by_mut(|a, b| a.at_nanos == b.at_nanos) {
        let count = same.len() as u64;
        if same[0].at_nanos % SECOND != 0 {
            continue;
        }
        for (at, request) in same.iter_mut().enumerate() {
            request.at_nanos += SECOND * at as u64 / count;
        }
    }
    Ok(requests)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(at_nanos: u64, client: u32, bytes: u64) -> Request {
        Request { at_nanos, client, bytes }
    }

    #[test]
    fn requests_of_one_second_are_spread_over_it() {
        let log = r#"b - - [01/Aug/1995:06:00:07 +0000] "GET /1 HTTP/1.0" 200 10
a - - [01/Aug/1995:06:00:09 +0000] "GET /2 HTTP/1.0" 200 20
a - - [01/Aug/1995:06:00:09 +0000] "GET /3 HTTP/1.0" 304 -

b - - [01/Aug/1995:06:00:09 +0000] "GET /4 HTTP/1.0" 200 30
"#;
        assert_eq!(
            requests(log).unwrap(),
            [request(0, 0, 10), request(2_000_000_000, 1, 20), request(2_500_000_000, 0, 30)]
        );
    }

    #[test]
    fn finer_time_stamps_of_a_log_are_kept() {
        let line = |time: &str| {
            format!(
                r#"{{"ts":{time},"remote_addr":"a","request":"GET / HTTP/1.1","status":200,"bytes":10}}"#
            )
        };
        let log = [line("100.0"), line("101.25"), line("101.25")].join("\n");
        let expected = [0, 1_250_000_000, 1_250_000_000].map(|at| request(at, 0, 10));
        assert_eq!(requests(&log).unwrap(), expected);
    }

    #[test]
    fn unreadable_line_is_named() {
        let good = r#"c1 - - [01/Aug/1995:06:00:00 +0000] "GET /logo.gif HTTP/1.0" 200 1713"#;
        let log = format!("{good}\nnonsense\n");
        let (line, error) = requests(&log).unwrap_err();
        assert_eq!((line, error.to_string().as_str()), (2, "no client"));
        let log = good.replace("200 1713", "200 many");
        let (line, error) = requests(&log).unwrap_err();
        assert_eq!((line, error.to_string().as_str()), (1, "the length cannot be read"));
        assert_eq!(requests(""), Ok(Vec::new()));
    }
}
