//! Links whose capacity changes over time, read from mahimahi's trace files.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lull_cc::{Rate, Timestamp};

use super::Error;

/// When a link of changing capacity can send.
///
/// The format is mahimahi's: each line is a time in whole milliseconds at which 1500 bytes may
/// leave. The file is repeated for ever; its last time is the length of the cycle.
#[derive(Clone, Debug)]
pub struct Trace {
    name: Arc<str>,
    /// Milliseconds, ascending; shared, because traces have 100,000 lines and more.
    opportunities: Arc<[u64]>,
}

impl Trace {
    /// Bytes that may leave at each opportunity.
    pub const OPPORTUNITY_BYTES: u64 = 1500;

    /// Reads a trace file, plain or compressed by gzip.
    ///
    /// # Errors
    /// [`Error::Trace`] if the file cannot be read, or is none.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let error = |why: String| Error::Trace { path: path.to_owned(), why };
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|file| BufReader::new(file).read_to_end(&mut bytes))
            .map_err(|source| error(source.to_string()))?;
        let mut text = String::new();
        if bytes.starts_with(&[0x1f, 0x8b]) {
            flate2::read::MultiGzDecoder::new(&bytes[..])
                .read_to_string(&mut text)
                .map_err(|source| error(source.to_string()))?;
        } else {
            text = String::from_utf8(bytes).map_err(|_| error("it is not text".to_owned()))?;
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Self::parse(name, &text).map_err(error)
    }

    /// Reads a trace from its text; `name` is what records call it.
    ///
    /// # Errors
    /// One line that names the line at fault and what is wrong with it.
    pub fn parse(name: impl Into<Arc<str>>, text: &str) -> Result<Self, String> {
        let mut opportunities = Vec::new();
        let mut last = 0;
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() {
                continue;
            }
            let time: u64 = line.parse().map_err(|_| {
                format!("line {} is '{line}', not a time in milliseconds", index + 1)
            })?;
            if time < last {
                return Err(format!("line {} goes back in time, from {last} to {time}", index + 1));
            }
            last = time;
            opportunities.push(time);
        }
        if last == 0 {
            return Err("it is empty, or all its times are 0".to_owned());
        }
        Ok(Trace { name: name.into(), opportunities: opportunities.into() })
    }

    /// The file's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// After how long the trace starts again.
    pub fn cycle(&self) -> Duration {
        Duration::from_millis(self.cycle_millis())
    }

    fn cycle_millis(&self) -> u64 {
        self.opportunities[self.opportunities.len() - 1]
    }

    /// The average capacity over a cycle.
    pub fn mean_rate(&self) -> Rate {
        let bits = self.opportunities.len() as u64 * Self::OPPORTUNITY_BYTES * 8;
        Rate::from_bits_per_second((bits * 1000 / self.cycle_millis()).max(1))
    }

    /// The time of the opportunity number `number`, counted from 0 over all cycles.
    pub fn opportunity(&self, number: u64) -> Timestamp {
        let length = self.opportunities.len() as u64;
        let within = self.opportunities[(number % length) as usize];
        Timestamp::from_micros(((number / length) * self.cycle_millis() + within) * 1000)
    }

    /// How many opportunities lie at or before `time`: the number of the first one after it.
    pub fn opportunities_until(&self, time: Timestamp) -> u64 {
        let length = self.opportunities.len() as u64;
        let millis = time.as_micros() / 1000;
        let cycle = self.cycle_millis();
        let within = |millis: u64| self.opportunities.partition_point(|&at| at <= millis) as u64;
        let (cycles, rest) = (millis / cycle, millis % cycle);
        // At the seam the end of one cycle and the start of the next are the same millisecond.
        cycles * length + within(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(millis: u64) -> Timestamp {
        Timestamp::from_micros(millis * 1000)
    }

    #[test]
    fn the_last_time_is_the_length_of_the_cycle() {
        let trace = Trace::parse("t", "0\n2\n2\n5\n").unwrap();
        let times: Vec<_> = (0..9).map(|n| trace.opportunity(n).as_micros() / 1000).collect();
        assert_eq!(times, [0, 2, 2, 5, 5, 7, 7, 10, 10]);
        assert_eq!(trace.mean_rate(), Rate::from_bits_per_second(4 * 12_000 * 1000 / 5));
    }

    #[test]
    fn opportunities_are_counted_over_the_seam_of_cycles() {
        for text in ["0\n2\n2\n5\n", "3\n4\n", "1\n1\n", "7\n"] {
            let trace = Trace::parse("t", text).unwrap();
            for time in 0..40 {
                let counted = trace.opportunities_until(millis(time));
                assert!(trace.opportunity(counted) > millis(time), "{text:?} at {time} ms");
                if counted > 0 {
                    assert!(trace.opportunity(counted - 1) <= millis(time), "{text:?} at {time}");
                }
            }
        }
    }

    #[test]
    fn a_malformed_trace_is_told_by_its_line() {
        for (text, why) in [
            ("", "it is empty, or all its times are 0"),
            ("0\n0\n", "it is empty, or all its times are 0"),
            ("1\nx\n", "line 2 is 'x', not a time in milliseconds"),
            ("5\n4\n", "line 2 goes back in time, from 5 to 4"),
        ] {
            assert_eq!(Trace::parse("t", text).unwrap_err(), why);
        }
    }
}
