//! `lull lab learn`: how fast predictors learn and hint.

use std::io::{self, Write};
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::Context;
use lull_cc::Bytes;
use lull_lab::learn::{self, Report, Settings};
use lull_speculate::predict::PpmParameters;

const EXAMPLES: &str = "\
Examples:
  lull lab learn
      measure the default predictor, on 200,000 lines of a site with 20,000 URLs
  lull lab learn --predictor ppm=2/10 --lines 10000000 --urls 1000000
      measure the predictor of the papers, at a large site
  lull lab learn --json | jq .lines_per_second
      print the number of lines per second

The log is generated from the seed while it is read. Lines are measured by processor time, hint lists by
wall-clock time: use an idle machine. The memory is the largest resident size of the process.";

/// Measure the speed and memory of a predictor
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LearnArgs {
    /// Predictor: default, or that of the papers as ppm=N/W
    #[arg(long, value_name = "NAME", default_value = "default")]
    predictor: Predictor,
    /// Lines of the log
    #[arg(long, value_name = "N", default_value_t = 200_000,
        value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    lines: u64,
    /// URLs of the site
    #[arg(long, value_name = "N", default_value_t = 20_000,
        value_parser = clap::value_parser!(u64).range(4..=1 << 24))]
    urls: u64,
    /// Seed of the log
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug)]
struct Predictor(PpmParameters);

impl FromStr for Predictor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            None if text == "default" => Ok(Predictor(PpmParameters::shipped())),
            Some(("ppm", value)) => {
                let (order, window) = crate::values::order_and_window(value)?;
                Ok(Predictor(PpmParameters::paper(order, window)))
            }
            _ => Err("it is default or ppm=N/W".to_owned()),
        }
    }
}

/// Learns an artificial log.
pub(crate) fn learn(args: &LearnArgs) -> anyhow::Result<ExitCode> {
    let report = learn::run(&Settings {
        parameters: args.predictor.0,
        lines: args.lines,
        urls: args.urls,
        seed: args.seed,
    });
    let report = report.context("the kernel does not report processor time")?;
    let text = if args.json {
        format!("{}\n", serde_json::to_string_pretty(&report)?)
    } else {
        to_text(&report)
    };
    io::stdout().write_all(text.as_bytes()).context("cannot write")?;
    Ok(ExitCode::SUCCESS)
}

fn to_text(report: &Report) -> String {
    let hints = &report.hints;
    format!(
        "{} lines of {} URLs in {:.2} s of the processor: {:.0} a second\n\
         {} hint lists, {} of them not empty: median {:.1} µs, p99 {:.1} µs, most {:.1} µs\n\
         {} for the predictor, {} for URLs and clients; the process had {} at most\n",
        report.lines,
        report.urls,
        report.seconds,
        report.lines_per_second,
        hints.asked,
        hints.listed,
        hints.p50_us,
        hints.p99_us,
        hints.max_us,
        Bytes(report.predictor_bytes),
        Bytes(report.observer_bytes),
        Bytes(report.most_resident_bytes),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predictor_is_the_default_or_one_of_the_papers() {
        for (text, is) in [
            ("default", true),
            ("ppm=2/10", true),
            ("ppm=9/1", false),
            ("ppm", false),
            ("default=1", false),
            ("", false),
        ] {
            assert_eq!(text.parse::<Predictor>().is_ok(), is, "{text}");
        }
    }
}
