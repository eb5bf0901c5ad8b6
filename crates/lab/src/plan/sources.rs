//! Traffic that only the simulator makes: documents from a log, datagrams, and random flows.

use std::time::Duration;

use lull_cc::Rate;
use lull_sim::traffic::{FlowSizes, Pattern};
use serde::Deserialize;

use super::invalid::Invalid;
use super::spelled::{Size, Spelled, Time};

/// A section of a web server's log, replayed at a speed.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// The log's file in the folder of data, in the Common Log Format, plain or compressed by gzip.
    pub log: String,
    /// Its beginning, counted from the log's first line.
    pub begin: Duration,
    /// Its length, on the log's clock.
    pub length: Duration,
    /// The speed of the replay, relative to the log's clock.
    pub speed: f64,
    /// The factor of document sizes, relative to the log.
    pub scale: f64,
}

/// Clients that request documents as in a log.
#[derive(Clone, Debug, PartialEq)]
pub struct Documents {
    /// The requests.
    pub section: Section,
    /// Whether a client's pauses are kept, or its requests' times.
    pub arrivals: Arrivals,
    /// Whether a client has one connection for all of its documents.
    pub persistent: bool,
}

/// When a client sends its requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    /// At the times of the log, regardless of earlier documents.
    #[default]
    Logged,
    /// After the end of its last document, with the pause that the log has between the two requests.
    Think,
}

/// Datagrams without congestion control.
#[derive(Clone, Debug, PartialEq)]
pub enum Datagrams {
    /// By a rule.
    Pattern(Pattern),
    /// From a file in the folder of data: a line for each, with seconds and bytes on the link.
    Recorded {
        /// The file.
        file: String,
    },
    /// Each document of a log as a burst at this rate: recorded traffic that does not adapt (filler §4.1).
    Log {
        /// The documents.
        section: Section,
        /// The rate of a burst; bursts that would overlap follow one another.
        rate: Rate,
        /// The length of a full datagram on the link.
        bytes: u16,
    },
}

/// Connections that start as a Poisson process, with sizes drawn from a distribution. They do not wait for
/// each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Flows {
    /// Their sizes.
    pub sizes: Sizes,
    /// Their number.
    pub intensity: Intensity,
}

/// A distribution of sizes: rows of bytes, and the probability of a size up to that.
#[derive(Clone, Debug, PartialEq)]
pub enum Sizes {
    /// From a file in the folder of data, a row in each line.
    File(String),
    /// From the plan.
    Table(FlowSizes),
}

/// How many flows begin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Intensity {
    /// As many as fill this part of a bottleneck on average, with full packets.
    Load(f64),
    /// This many each second on average.
    PerSecond(f64),
}

impl Flows {
    /// From the text of a plan.
    pub(super) fn new(
        sizes: &serde_json::Value,
        load: Option<f64>,
        per_second: Option<f64>,
    ) -> Result<Self, Invalid> {
        let within = |key: &'static str, value: f64, most: f64| match value > 0.0 && value <= most {
            true => Ok(value),
            false => {
                Err(Invalid::value(key, value, format!("it must be above 0, and {most} at most")))
            }
        };
        // More than ten times the link's rate is probably a mistake.
        let intensity = match (load, per_second) {
            (Some(load), None) => Intensity::Load(within("load", load, 10.0)?),
            (None, Some(rate)) => Intensity::PerSecond(within("per_second", rate, 1e6)?),
            _ => {
                return Err(Invalid::Rule(
                    "flows need either 'load', a part of the link, or 'per_second', how many begin",
                ));
            }
        };
        Ok(Flows { sizes: Sizes::new(sizes)?, intensity })
    }
}

impl Sizes {
    fn new(written: &serde_json::Value) -> Result<Self, Invalid> {
        if let Some(file) = written.as_str() {
            return Ok(Sizes::File(file.to_owned()));
        }
        let rows = || -> Option<String> {
            let row = |row: &serde_json::Value| {
                let [bytes, probability] = &row.as_array()?[..] else { return None };
                Some(format!("{} {}\n", bytes.as_f64()?, probability.as_f64()?))
            };
            written.as_array()?.iter().map(row).collect()
        };
        let rows = rows().ok_or(Invalid::Rule(
            "sizes: write the name of a file, or rows of bytes and the probability of a size up \
             to that: [[1000, 0.5], [50000, 1]]",
        ))?;
        let sizes = rows.parse::<FlowSizes>().map_err(Invalid::Sizes)?;
        // A mean below one byte has no gap between flows.
        match sizes.mean() >= 1.0 {
            true => Ok(Sizes::Table(sizes)),
            false => Err(Invalid::Rule("sizes: the mean must be a byte at least")),
        }
    }
}

/// The name of a way to send datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum PatternName {
    Constant,
    Poisson,
    Pareto,
    Bursts,
    Recorded,
    Log,
}

/// The keys of both kinds, as they are written.
#[derive(Debug)]
pub(super) struct SourceText {
    pub(super) log: Option<String>,
    pub(super) begin: Option<Spelled<Time>>,
    pub(super) length: Option<Spelled<Time>>,
    pub(super) speed: Option<f64>,
    pub(super) scale: Option<f64>,
    pub(super) rate: Option<Spelled<Rate>>,
    pub(super) size: Option<Spelled<Size>>,
    pub(super) on: Option<Spelled<Time>>,
    pub(super) off: Option<Spelled<Time>>,
    pub(super) shape: Option<f64>,
    pub(super) burst: Option<Spelled<Size>>,
    pub(super) every: Option<Spelled<Time>>,
    pub(super) file: Option<String>,
}

fn need<T>(value: Option<T>, key: &'static str) -> Result<T, Invalid> {
    value.ok_or(Invalid::Missing(key))
}

fn nanos(key: &'static str, time: Option<Spelled<Time>>) -> Result<u64, Invalid> {
    let time = need(time, key)?;
    match u64::try_from(time.value.0.as_nanos()) {
        Ok(nanos) if nanos > 0 => Ok(nanos),
        _ => Err(Invalid::value(key, time, "it must be above 0")),
    }
}

impl SourceText {
    /// The section of a log.
    pub(super) fn section(self) -> Result<Section, Invalid> {
        let above_zero = |key: &'static str, value: Option<f64>| match value {
            None => Ok(1.0),
            Some(value) if value > 0.0 && value <= 1e6 => Ok(value),
            Some(value) => Err(Invalid::value(key, value, "it must be above 0")),
        };
        let section = Section {
            log: need(self.log, "log")?,
            begin: self.begin.map_or(Duration::ZERO, |begin| begin.value.0),
            length: need(self.length, "length")?.value.0,
            speed: above_zero("speed", self.speed)?,
            scale: above_zero("scale", self.scale)?,
        };
        if section.length.is_zero() {
            return Err(Invalid::value("length", "0s", "it must be above 0"));
        }
        Ok(section)
    }

    pub(super) fn datagrams(self, pattern: Option<PatternName>) -> Result<Datagrams, Invalid> {
        let pattern = need(pattern, "pattern")?;
        self.reject_foreign_keys(pattern)?;
        let bytes = match &self.size {
            None => 1500,
            Some(size) => u16::try_from(size.value.0.0)
                .map_err(|_| Invalid::value("size", size, "it is 65535B at most"))?,
        };
        let rate = |rate: Option<Spelled<Rate>>| match need(rate, "rate")? {
            rate if rate.value.bits_per_second() > 0 => Ok::<_, Invalid>(rate.value),
            rate => Err(Invalid::value("rate", rate, "it must be above 0")),
        };
        let bits_per_second = |text: Option<Spelled<Rate>>| rate(text).map(Rate::bits_per_second);
        let pattern = match pattern {
            PatternName::Recorded => {
                return Ok(Datagrams::Recorded { file: need(self.file, "file")? });
            }
            PatternName::Log => {
                let rate = rate(self.rate.clone())?;
                return Ok(Datagrams::Log { section: self.section()?, rate, bytes });
            }
            PatternName::Constant => {
                Pattern::Constant { bits_per_second: bits_per_second(self.rate)?, bytes }
            }
            PatternName::Poisson => {
                Pattern::Poisson { bits_per_second: bits_per_second(self.rate)?, bytes }
            }
            PatternName::Pareto => {
                let shape = need(self.shape, "shape")?;
                if !(shape > 1.0 && shape <= 100.0) {
                    return Err(Invalid::value("shape", shape, "only above 1 there is a mean"));
                }
                Pattern::OnOffPareto {
                    bits_per_second: bits_per_second(self.rate)?,
                    bytes,
                    on_nanos: nanos("on", self.on)?,
                    off_nanos: nanos("off", self.off)?,
                    shape,
                }
            }
            PatternName::Bursts => Pattern::Bursts {
                bits_per_second: bits_per_second(self.rate)?,
                bytes,
                burst_bytes: need(self.burst, "burst")?.value.0.0,
                every_nanos: nanos("every", self.every)?,
            },
        };
        Ok(Datagrams::Pattern(pattern))
    }

    /// Keys of another pattern are rejected, as they would have no effect.
    fn reject_foreign_keys(&self, pattern: PatternName) -> Result<(), Invalid> {
        use PatternName::{Bursts, Constant, Log, Pareto, Poisson, Recorded};
        let own: [(&'static str, bool, &[PatternName]); 13] = [
            ("log", self.log.is_some(), &[Log]),
            ("begin", self.begin.is_some(), &[Log]),
            ("length", self.length.is_some(), &[Log]),
            ("speed", self.speed.is_some(), &[Log]),
            ("scale", self.scale.is_some(), &[Log]),
            ("rate", self.rate.is_some(), &[Constant, Poisson, Pareto, Bursts, Log]),
            ("size", self.size.is_some(), &[Constant, Poisson, Pareto, Bursts, Log]),
            ("on", self.on.is_some(), &[Pareto]),
            ("off", self.off.is_some(), &[Pareto]),
            ("shape", self.shape.is_some(), &[Pareto]),
            ("burst", self.burst.is_some(), &[Bursts]),
            ("every", self.every.is_some(), &[Bursts]),
            ("file", self.file.is_some(), &[Recorded]),
        ];
        match own.iter().find(|(_, is, patterns)| *is && !patterns.contains(&pattern)) {
            Some((key, ..)) => Err(Invalid::Foreign { key, owner: "another pattern of datagrams" }),
            None => Ok(()),
        }
    }
}
