//! The work of origin and replicas: the reads of a log, and random writes.

use std::path::PathBuf;

use anyhow::bail;
use lull_cc::Bytes;
use lull_load::replay::trace::{Document, Reading, Section, Trace};
use lull_replication_sim::evaluate::{Read, Updates, Workload};

use super::section::SectionArgs;
use crate::values::positive;
use lull_cli::logs::Contents;
use lull_cli::logs::{LogArgs, Logs};

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct WorkloadArgs {
    /// Access logs, plain or compressed; - is standard input
    #[arg(required = true, value_name = "LOG")]
    logs: Vec<PathBuf>,
    #[command(flatten)]
    how: LogArgs,
    #[command(flatten)]
    section: SectionArgs,
    /// Writes for each read
    #[arg(long, value_name = "NUMBER", default_value = "0.25", value_parser = positive)]
    updates: f64,
    /// Part of the writes that goes to files in proportion to their reads
    #[arg(long, value_name = "PART", default_value = "0.2", value_parser = part)]
    popular: f64,
    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
}

fn part(text: &str) -> Result<f64, &'static str> {
    let number = text.parse::<f64>().ok().filter(|number| (0.0..=1.0).contains(number));
    number.ok_or("write a number from 0 to 1, such as 0.2")
}

/// The work, and its source.
pub(super) struct Drawn {
    pub(super) workload: Workload,
    /// The objects by their names in the log.
    pub(super) documents: Vec<Document>,
    pub(super) contents: Vec<Contents>,
}

impl WorkloadArgs {
    /// Reads the logs, divides their clients among this many replicas, and draws the writes.
    pub(super) fn draw(&self, replicas: u32) -> anyhow::Result<Drawn> {
        let mut logs = Logs::find(&self.logs, &self.how)?;
        let (_, ends) = logs.span()?;
        let (first, last) = ends.unwrap_or_default();
        let mut reading = Reading::new(Section {
            begin: self.section.begin,
            length: self.section.length,
            speed: self.section.speed,
            busiest: None,
            spread_over: Some(replicas),
            seed: self.seed,
        })
        .between(first, last);
        let contents = logs.read_shown("reading", |entry| {
            reading.take(entry);
        })?;
        let (mut workload, documents) = workload(&reading.finish(), replicas);
        if workload.reads.is_empty() {
            bail!("there is nothing to read: no log has an answered request in this section");
        }
        let model = Updates { per_read: self.updates, popular: self.popular };
        workload.update(model, self.seed);
        if workload.need() <= 0.0 {
            bail!("there is nothing to write: raise --updates, or choose a longer section");
        }
        Ok(Drawn { workload, documents, contents })
    }
}

/// The reads of files with a length in the log; files without an answer have none.
fn workload(trace: &Trace, replicas: u32) -> (Workload, Vec<Document>) {
    let all = trace.documents.all();
    let known = all.iter().enumerate().filter(|(_, document)| document.bytes > Some(0));
    let known: Vec<(usize, &Document)> = known.collect();
    let mut numbers = vec![None; all.len()];
    for ((at, _), number) in known.iter().zip(0_u32..) {
        numbers[*at] = Some(number);
    }
    let reads = trace.arrivals.iter().filter_map(|arrival| {
        let object = numbers[arrival.document.0 as usize]?;
        Some(Read { at: arrival.due, replica: arrival.client, object })
    });
    let size = |document: &Document| Bytes(document.bytes.unwrap_or(0));
    let workload = Workload {
        objects: known.iter().map(|(_, document)| size(document)).collect(),
        replicas,
        reads: reads.collect(),
        writes: Vec::new(),
        length: trace.length,
    };
    (workload, known.into_iter().map(|(_, document)| document.clone()).collect())
}
