//! `lull lab replay`: an access log, or a constant rate, against a server.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, bail};
use http::HeaderValue;
use lull_emulator::parse_duration;
use lull_load::replay::advice::{Advisor, Learned, Listed};
use lull_load::replay::trace::{Reading, Section, Trace};
use lull_load::replay::{self, Mode, Report, Server, Settings};
use lull_speculate::predict::PpmParameters;
use serde_json::{Value, json};

use super::section::SectionArgs;
use crate::UsageError;
use crate::progress::bar;
use crate::values::{order_and_window, positive};
use lull_cli::logs::Contents;
use lull_cli::logs::{LogArgs, Logs};

const EXAMPLES: &str = "\
Examples:
  lull lab replay --to http://127.0.0.1:8080 access.log
      replay the log with clients that have caches, and measure their waiting time
  lull lab replay --to http://127.0.0.1:8080 --begin 36000s --length 300s --speed 10 access.log
      replay five minutes of the log in 30 seconds
  lull lab replay --to http://127.0.0.1:8080 --prefetch nps access.log
      follow the hints of the 'lull web' at that address
  lull lab replay --to http://127.0.0.1:8080 --ahead-to http://127.0.0.1:8081 \\
      --prefetch ppm=2/5 --threshold 0.25 --pause 1s access.log
      prefetch a list with each page from another port (TCP Nice, OSDI 2002, section 6.1)
  lull lab replay --to http://127.0.0.1:8080 --rate 200 --get /page --length 30s \\
      --prefetch monitor --json
      request at a constant rate, and prefetch the same page while the server has spare capacity

The loop is open: a request is sent when it is due, also if earlier requests still wait, and its time
counts from then. Clients cache every response.

The server of --ahead-to decides the congestion control of prefetches, for example under 'lull exec'. The
exit code is 1 if a log cannot be read or a server cannot be reached, and 2 if the arguments are wrong.";

/// Replay an access log against a server, with clients that have caches and follow hints
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReplayArgs {
    /// Server: http://HOST:PORT
    #[arg(long, value_name = "URL")]
    to: Server,
    /// Server for prefetches, if it is another one
    #[arg(long, value_name = "URL")]
    ahead_to: Option<Server>,
    /// Access logs, plain or compressed; - is standard input
    #[arg(required_unless_present = "rate", conflicts_with = "rate", value_name = "LOG")]
    logs: Vec<PathBuf>,
    #[command(flatten)]
    how: LogArgs,
    /// Requests per second for the time of --length, instead of a log
    #[arg(long, value_name = "NUMBER", value_parser = positive, requires = "length")]
    rate: Option<f64>,
    /// Path of the requests of --rate
    #[arg(long, value_name = "PATH", default_value = "/", value_parser = path, requires = "rate")]
    get: String,
    /// Content codings that clients accept
    #[arg(long, value_name = "LIST", default_value = "gzip", value_parser = codings, requires = "rate")]
    accept_encoding: HeaderValue,
    #[command(flatten)]
    section: SectionArgs,
    /// Replay only this many clients, those with the most requests. With --rate, this many clients take turns
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    clients: Option<u32>,
    /// Distribute the log's clients at random over this many
    #[arg(long, alias = "among", value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    spread_over_clients: Option<u32>,
    /// Strategy of prefetching: see below
    #[arg(long, value_name = "HOW", default_value = "none")]
    prefetch: Prefetch,
    /// Maximum length of a list of ppm
    #[arg(long, value_name = "N", default_value_t = 50)]
    files: usize,
    /// Minimum probability of an entry of a list
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    threshold: f32,
    /// Clients, or classes of clients out of 16, that must have gone from a page to an entry before ppm lists
    /// it. In the papers it is 1
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=16))]
    least_clients: u32,
    /// Time that ppm waits after a response
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "0s")]
    pause: Duration,
    /// Part of the log that lists are predicted from: before the section, or the whole log
    #[arg(long, value_name = "WHAT", default_value = "before")]
    learn: Learn,
    /// With no-avoidance and monitor: prefetch this path repeatedly instead of predicted ones. With --rate,
    /// the default is the requested path
    #[arg(long, value_name = "PATH", value_parser = path)]
    dummy: Option<String>,
    /// Send X-Lull: 1 with prefetches, so that the 'lull web' at --ahead-to schedules them. It needs
    /// --trust-forwarded there, to tell clients apart
    #[arg(long)]
    marked: bool,
    /// Path that the monitor requests [default: the dummy, or /]
    #[arg(long, value_name = "PATH", value_parser = path)]
    probe: Option<String>,
    /// Connections of a client for its own requests
    #[arg(long, value_name = "N", default_value_t = 6)]
    connections: usize,
    /// Timeout of a request. A request that fails sooner counts with this time as well
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "30s")]
    patience: Duration,
    /// Ignore the results of this first part, in which a budget grows
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "0s", requires = "rate")]
    settle: Duration,
    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Prefetch {
    None,
    NoAvoidance(usize),
    Ppm(usize, u32),
    Monitor(Option<Duration>),
    Nps,
}

impl FromStr for Prefetch {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        match (name, value) {
            ("none", None) => Ok(Prefetch::None),
            ("nps", None) => Ok(Prefetch::Nps),
            ("monitor", None) => Ok(Prefetch::Monitor(None)),
            ("monitor", Some(time)) => match parse_duration(time) {
                Ok(time) => Ok(Prefetch::Monitor(Some(time))),
                Err(error) => Err(error.to_string()),
            },
            ("no-avoidance", Some(files)) => match files.parse() {
                Ok(files) => Ok(Prefetch::NoAvoidance(files)),
                Err(_) => Err("write how many files for each page, as in no-avoidance=5".into()),
            },
            ("ppm", Some(value)) => {
                let (order, window) = order_and_window(value)?;
                Ok(Prefetch::Ppm(order, window))
            }
            _ => Err("it is none, no-avoidance=N, ppm=N/W, monitor, monitor=TIME or nps".into()),
        }
    }
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Learn {
    /// The possible knowledge of a server.
    Before,
    /// Like the paper's predictor.
    Whole,
}

fn path(text: &str) -> Result<String, &'static str> {
    let is_path = text.starts_with('/') && text.parse::<http::uri::PathAndQuery>().is_ok();
    if is_path { Ok(text.to_owned()) } else { Err("write a path, such as /page.html") }
}

fn codings(text: &str) -> Result<HeaderValue, &'static str> {
    HeaderValue::from_str(text).map_err(|_| "write a list, such as 'gzip, br, zstd'")
}

/// Replays a log.
pub(crate) fn replay(args: &ReplayArgs) -> anyhow::Result<ExitCode> {
    lull_cli::message::usage_error(|| {
        let (trace, advisor, contents) = input(args)?;
        let settings = settings(args);
        let bar = bar(trace.length);
        let report = replay::run(&settings, trace, advisor, &mut |progress| {
            bar.set_position(progress.now.as_millis() as u64);
            bar.set_message(format!("{} of {} answered", progress.answered, progress.due));
        });
        bar.finish_and_clear();
        let report = report?;
        let text = if args.json { to_json(&report, &contents)? } else { to_text(&report) };
        io::stdout().write_all(text.as_bytes()).context("cannot write")
    })
}

/// The requests, and the advisor for lists.
fn input(args: &ReplayArgs) -> anyhow::Result<(Trace, Option<Advisor>, Vec<Contents>)> {
    if args.dummy.is_some() && matches!(args.prefetch, Prefetch::Ppm(..) | Prefetch::Nps) {
        let text = "--dummy takes the place of lists that no-avoidance and monitor make: ppm and \
                    nps have others";
        return Err(UsageError(text.to_owned()).into());
    }
    let dummies = args.dummy.is_some() || args.rate.is_some();
    if let (Some(rate), Some(length)) = (args.rate, args.section.length) {
        if matches!(args.prefetch, Prefetch::Ppm(..) | Prefetch::Nps) {
            let text = "a constant rate has nothing to predict: replay a log, or use no-avoidance \
                        or monitor";
            return Err(UsageError(text.to_owned()).into());
        }
        if args.settle >= length {
            return Err(UsageError(
                "nothing is left to count: make --settle shorter than --length".to_owned(),
            )
            .into());
        }
        let clients = args.clients.unwrap_or(1000);
        return Ok((Trace::constant(rate, length, clients, &args.get), None, Vec::new()));
    }
    let parameters = match args.prefetch {
        Prefetch::None | Prefetch::Nps => None,
        Prefetch::Ppm(order, window) => {
            let paper = PpmParameters::paper(order, window);
            // Otherwise lists would be shorter than requested.
            let most = PpmParameters::MAX_FOLLOWERS_PER_CONTEXT;
            let followers_per_context = args.files.clamp(paper.followers_per_context, most);
            Some(PpmParameters { clients: args.least_clients, followers_per_context, ..paper })
        }
        _ if dummies => None,
        Prefetch::NoAvoidance(_) | Prefetch::Monitor(_) => Some(PpmParameters::shipped()),
    };
    let learned = match args.learn {
        Learn::Before => Learned::Before,
        Learn::Whole => Learned::Whole,
    };
    let mut advisor = parameters.map(|parameters| Advisor::new(parameters, learned));
    let reading = Reading::new(Section {
        begin: args.section.begin,
        length: args.section.length,
        speed: args.section.speed,
        busiest: args.clients,
        spread_over: args.spread_over_clients,
        seed: args.seed,
    });
    let mut logs = Logs::find(&args.logs, &args.how)?;
    let (_, ends) = logs.span()?;
    let Some((first, last)) = ends else {
        bail!("there is no request to replay: all logs are empty");
    };
    let mut reading = reading.between(first, last);
    let contents = logs.read_shown("reading", |entry| {
        let is_past = reading.take(entry);
        if let Some(advisor) = &mut advisor {
            advisor.learn(entry, is_past);
        }
    })?;
    if let Some(advisor) = &mut advisor {
        advisor.look_up(reading.documents());
    }
    Ok((reading.finish(), advisor, contents))
}

fn settings(args: &ReplayArgs) -> Settings {
    let dummy = args.dummy.clone().or_else(|| args.rate.map(|_| args.get.clone()));
    let probe = args.probe.clone().or_else(|| dummy.clone());
    Settings {
        to: args.to.clone(),
        ahead_to: args.ahead_to.clone().unwrap_or_else(|| args.to.clone()),
        mode: match args.prefetch {
            Prefetch::None => Mode::None,
            Prefetch::NoAvoidance(files) => Mode::NoAvoidance { files },
            Prefetch::Ppm(..) => Mode::WithPage { files: args.files, pause: args.pause },
            Prefetch::Monitor(threshold) => {
                Mode::Monitor { threshold, probe: probe.unwrap_or_else(|| "/".to_owned()) }
            }
            Prefetch::Nps => Mode::Hinted,
        },
        listed: match &dummy {
            Some(_) => Listed::Dummies,
            None => Listed::Predicted { threshold: args.threshold },
        },
        marked: args.marked,
        dummy: dummy.unwrap_or_else(|| "/".to_owned()),
        connections: args.connections.max(1),
        codings: args.accept_encoding.clone(),
        patience: args.patience,
        settle: args.settle,
        seed: args.seed,
    }
}

fn to_json(report: &Report, contents: &[Contents]) -> anyhow::Result<String> {
    let mut value = serde_json::to_value(report)?;
    value["logs"] = contents.iter().map(Contents::json).collect::<Value>();
    value["command"] = json!(format!("lull {}", crate::arguments().join(" ")));
    Ok(format!("{}\n", serde_json::to_string_pretty(&value)?))
}

fn to_text(report: &Report) -> String {
    let demand = &report.demand;
    let percent = |part: u64| 100.0 * part as f64 / demand.due.max(1) as f64;
    let mut text = format!(
        "{} requests by {} clients in {} s: {} answered, {} failed, {} without an answer\n",
        demand.due,
        report.clients,
        report.seconds,
        demand.answered,
        demand.failed,
        demand.unanswered
    );
    for (name, times) in
        [("all", &demand.all), ("pages", &demand.pages), ("not in the cache", &demand.network)]
    {
        text += &format!(
            "{name:>18}: mean {:.1} ms, median {:.1}, p95 {:.1}, p99 {:.1}, most {:.1}\n",
            times.mean_ms, times.p50_ms, times.p95_ms, times.p99_ms, times.max_ms
        );
    }
    text += &format!(
        "{:>18}: {:.1} % prefetched of {:.1} % that could be, {:.1} % asked for before\n",
        "from the cache",
        percent(demand.hits),
        percent(demand.reachable),
        percent(demand.repeated)
    );
    text += &format!("{:>18}: {:.3} Mbit/s\n", "demand", demand.mbit);
    let ahead = &report.ahead;
    if ahead.asked > 0 {
        text += &format!(
            "{:>18}: {:.3} Mbit/s, {} files, {} stopped, {} failed, {} of {} bytes used\n",
            "ahead",
            ahead.mbit,
            ahead.fetched,
            ahead.stopped,
            ahead.failed,
            ahead.used_bytes,
            ahead.bytes
        );
    }
    if let Some(monitor) = &report.monitor {
        let threshold = monitor.threshold_ms.map_or_else(
            || "no threshold known".to_owned(),
            |threshold| format!("late from {threshold:.1} ms on"),
        );
        text += &format!(
            "{:>18}: {:.1} requests a second on average, {} probes, {threshold}\n",
            "budget", monitor.budget_mean, monitor.probes
        );
    }
    let others: Vec<String> = report
        .statuses
        .iter()
        .filter(|(status, _)| **status != 200)
        .map(|(status, count)| format!("{count} with {status}"))
        .collect();
    if !others.is_empty() {
        text += &format!("{:>18}: {}\n", "other answers", others.join(", "));
    }
    text + &format!(
        "{:>18}: p99 {:.2} ms, most {:.2}\n",
        "sent late by", report.late.p99_ms, report.late.max_ms
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefetch_mode_is_one_word() {
        let ms = Duration::from_millis;
        for (text, expected) in [
            ("none", Some(Prefetch::None)),
            ("no-avoidance=70", Some(Prefetch::NoAvoidance(70))),
            ("ppm=2/10", Some(Prefetch::Ppm(2, 10))),
            ("monitor", Some(Prefetch::Monitor(None))),
            ("monitor=3ms", Some(Prefetch::Monitor(Some(ms(3))))),
            ("nps", Some(Prefetch::Nps)),
            ("no-avoidance", None),
            ("no-avoidance=many", None),
            ("ppm", None),
            ("ppm=2", None),
            ("ppm=9/1", None),
            ("ppm=2/99", None),
            ("monitor=3", None),
            ("nps=1", None),
            ("", None),
        ] {
            assert_eq!(text.parse().ok(), expected, "{text}");
        }
    }
}
