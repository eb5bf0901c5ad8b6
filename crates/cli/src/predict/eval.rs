//! `lull predict eval`: the quality of predictors on a user's log.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use lull_lab::plot::{Curve, curves};
use lull_speculate::evaluate::{
    Bootstrap, Evaluation, Evaluator, Interval, Measured, NamedPredictor, Plan, Point,
};
use lull_speculate::observe::{ClientHasher, Limits, Observer};
use lull_speculate::predict::{Ppm, PpmParameters, Predictor, TopN};
use serde_json::{Map, Value, json};

use super::{print_line, table};
use lull_cli::logs::contents::{self, Contents};
use lull_cli::logs::{LogArgs, Logs};

const EXAMPLES: &str = "\
Examples:
  lull predict eval access.log.1 access.log
      train on the first half of the time, and measure on the rest
  lull predict eval --split 0.7 --json access.log
      train on 70 % of the time, and print JSON
  lull predict eval --plot rates.svg access.log
      also draw the hit rate over the prefetched bytes

The log is split by time. The first part only trains; learning continues throughout. A third of the rest
is a validation slice, for choosing parameters. The results are those of the last part. Each client has a
cache for its session. A list is prefetched after the current page, so the parts of that page are no hits
and cost nothing. The first page of a session counts as a miss. Single figures are for lists of the ten
most probable pages. Intervals hold 95 % of 500 draws of the clients: a difference whose interval contains 0
may be chance. Standard input is held in memory.

The exit code is 1 if a log cannot be read, no request is left to measure, or the plot cannot be written;
and 2 if the arguments are wrong.";

/// Single figures are for lists of this length.
const LENGTH: usize = 10;
/// The part of the time after training that is the validation slice.
const VALIDATION: f64 = 1.0 / 3.0;
/// Bytes per page at which predictors are compared.
const BYTES: [f64; 7] = [1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5];

/// Measure the quality of predictors on access logs
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Access logs; - is standard input
    #[arg(required = true, value_name = "LOG")]
    logs: Vec<PathBuf>,
    #[command(flatten)]
    how: LogArgs,
    /// Use only requests for this site, if the log has several, as those of Caddy and Apache may. May be
    /// repeated
    #[arg(long, value_name = "HOST")]
    site: Vec<String>,
    /// Part of the time that only trains
    #[arg(long, value_name = "PART", default_value = "0.5", value_parser = super::share,
          allow_negative_numbers = true)]
    split: f64,
    /// File for a plot of the hit rate over prefetched bytes, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let mut logs = Logs::find(&args.logs, &args.how)?.of_sites(&args.site);
    let (contents, ends) = logs.span()?;
    let Some((first, last)) = ends else {
        bail!("there is no request to measure by: all logs are empty");
    };
    if first == last {
        bail!("all requests are within one second, which cannot be split: name more logs");
    }
    let plan = Plan::split(first, last, args.split, (1.0 - args.split) * VALIDATION);
    let evaluation = measure(&logs.show("measuring"), &plan);
    let result = Results { contents, evaluation: evaluation?, split: args.split };
    if result.test().first().is_none_or(|one| one.pages == 0) {
        bail!(
            "no client asked for a page that it did not have in the last part of the log's time: name more \
             logs, or train on less (--split){}",
            result
                .contents
                .iter()
                .filter_map(Contents::unread)
                .map(|why| format!("; {why}"))
                .collect::<String>()
        );
    }
    if let Some(path) = &args.plot {
        draw(result.test(), path)?;
    }
    let text = if args.json {
        format!("{}\n", serde_json::to_string_pretty(&result.json())?)
    } else {
        result.text(args.plot.as_deref())
    };
    print_line(&text)
}

/// Everything that is measured: the default, the baselines, and the papers' grid.
fn compared_predictors() -> Vec<(String, Box<dyn Predictor>)> {
    let ppm = |parameters| Box::new(Ppm::new(parameters)) as Box<dyn Predictor>;
    let shipped = PpmParameters::shipped();
    let mut all: Vec<(String, Box<dyn Predictor>)> = vec![
        ("default".to_owned(), ppm(shipped)),
        ("markov".to_owned(), ppm(PpmParameters::markov())),
        ("top_n".to_owned(), Box::new(TopN::new(shipped.half_life))),
    ];
    for order in 1..=3 {
        // PPM-1/1 is another name of the Markov model.
        for window in [1, 5, 10].into_iter().filter(|window| (order, *window) != (1, 1)) {
            all.push((format!("{order}/{window}"), ppm(PpmParameters::paper(order, window))));
        }
    }
    all
}

fn measure(logs: &lull_logs::Logs, plan: &Plan) -> anyhow::Result<Evaluation> {
    let mut predictors = compared_predictors();
    let mut named: Vec<NamedPredictor<'_>> = predictors
        .iter_mut()
        .map(|(name, predictor)| NamedPredictor { name: name.clone(), predictor: &mut **predictor })
        .collect();
    // Nothing is kept, and the same log has the same results each time.
    let mut observer = Observer::new(ClientHasher::new([0; 16]), Limits::default());
    let mut evaluator = Evaluator::new(&mut observer, &mut named, plan);
    logs.read(|entry| evaluator.take(entry))?;
    Ok(evaluator.finish())
}

/// Draws the curve of each important predictor; the grid would hide them.
fn draw(slice: &[Measured], path: &Path) -> anyhow::Result<()> {
    let shown = ["default", "markov", "top_n", "1/5", "2/5", "2/10"];
    let curve = |one: &Measured| {
        let point = |point: &Point| (point.bytes_per_page / 1e3, point.page_hit_rate);
        Curve { name: title(&one.name), points: one.by_priority.iter().map(point).collect() }
    };
    let all: Vec<Curve> = shown
        .iter()
        .filter_map(|name| slice.iter().find(|one| one.name == *name))
        .map(curve)
        .collect();
    let title = "Pages that were prefetched before their request";
    let svg = curves(title, "prefetched per page, kB", "page hit rate", &all)?;
    fs::write(path, svg).with_context(|| format!("the plot {} cannot be written", path.display()))
}

/// The title of a predictor for users.
fn title(name: &str) -> String {
    match name {
        "top_n" => "top-N".to_owned(),
        grid if grid.contains('/') => format!("PPM-{grid}"),
        other => other.to_owned(),
    }
}

struct Results {
    contents: Vec<Contents>,
    evaluation: Evaluation,
    split: f64,
}

impl Results {
    /// How far the rates of the last part may differ by chance.
    fn chance(&self) -> Option<&Bootstrap> {
        self.evaluation.bootstraps.last()
    }

    /// The last part.
    fn test(&self) -> &[Measured] {
        self.evaluation.slices.last().map_or(&[], Vec::as_slice)
    }

    fn json(&self) -> Value {
        let validation = self.evaluation.slices.first().map_or(&[] as &[Measured], Vec::as_slice);
        let chance = self.evaluation.bootstraps.first();
        let test_from = self.split + (1.0 - self.split) * VALIDATION;
        let mut value = slice_json(self.test(), self.chance());
        value["validation"] = slice_json(validation, chance);
        value["slices"] = json!({
            "train": [0.0, self.split],
            "validation": [self.split, test_from],
            "test": [test_from, 1.0],
        });
        value["list_length"] = json!(LENGTH);
        value["visits"] = json!(self.evaluation.visits);
        value["ignored"] = json!(self.evaluation.ignored);
        value["logs"] = self.contents.iter().map(Contents::json).collect();
        value
    }

    fn text(&self, plot: Option<&Path>) -> String {
        let mut text = contents::text(&self.contents);
        let test = self.test();
        if let Some(first) = test.first() {
            let from = self.split + (1.0 - self.split) * VALIDATION;
            text += &format!(
                "the last {:.0} % of the time: {} pages, {} requests that clients did not have\n\n",
                (1.0 - from) * 100.0,
                first.pages,
                first.requests
            );
        }
        let mut columns: Vec<String> = [
            "lists of 10",
            "pages",
            "95 %",
            "all",
            "precision",
            "recall",
            "wasted",
            "kB/page",
            "|",
        ]
        .map(str::to_owned)
        .to_vec();
        columns.extend(BYTES.map(|bytes| format!("{} kB", bytes / 1e3)));
        columns.push(String::new());
        let mut rows = vec![columns];
        let chance = self.chance();
        for (which, one) in test.iter().enumerate() {
            let Some(point) = headline(one) else { continue };
            let interval = chance.and_then(|chance| chance.with_lists_of(which, LENGTH));
            let mut row = vec![
                title(&one.name),
                format!("{:.3}", point.page_hit_rate),
                interval.map_or(String::new(), |one| format!("{:.3}-{:.3}", one.low, one.high)),
                format!("{:.3}", point.hit_rate),
                format!("{:.3}", point.precision),
                format!("{:.3}", point.recall),
                lull_cc::Bytes(point.wasted_bytes).to_string(),
                format!("{:.1}", point.bytes_per_page / 1e3),
                "|".to_owned(),
            ];
            row.extend(BYTES.map(|bytes| format!("{:.3}", one.page_hit_rate_at(bytes))));
            row.push(String::new());
            rows.push(row);
        }
        text += &table(&rows);
        if let Some(difference) = chance.and_then(|chance| default_less_markov(test, chance)) {
            text += &format!(
                "\ndefault less Markov, pages: {:+.3} to {:+.3} (95 %)\n",
                difference.low, difference.high
            );
        }
        text += "\npages, all: share of requests outside the cache that were prefetched; \
                 precision: share of prefetches that were\nused; recall: the same without the \
                 first page of a session; after the line: hit rate at so many bytes per page\n";
        if let Some(plot) = plot {
            text += &format!("plot: {}\n", plot.display());
        }
        text
    }
}

/// The point of the single figures.
fn headline(one: &Measured) -> Option<&Point> {
    one.by_length.iter().find(|point| point.length == Some(LENGTH))
}

/// The advantage of the default over the simplest predictor.
fn default_less_markov(slice: &[Measured], chance: &Bootstrap) -> Option<Interval> {
    let place = |name| slice.iter().position(|one| one.name == name);
    chance.difference_with_lists_of((place("default")?, place("markov")?), LENGTH)
}

/// The predictors of a slice by name, and the papers' grid.
fn slice_json(slice: &[Measured], chance: Option<&Bootstrap>) -> Value {
    let named = |name: &str| {
        let which = slice.iter().position(|one| one.name == name)?;
        Some(measured_json(&slice[which], which, chance))
    };
    let mut predictors = Map::new();
    // The paper's aggressive one (Nice §6.1).
    for (key, name) in
        [("ppm", "2/10"), ("markov", "markov"), ("top_n", "top_n"), ("default", "default")]
    {
        predictors.insert(key.to_owned(), json!(named(name)));
    }
    let mut grid = Map::new();
    for order in 1..=3 {
        for window in [1, 5, 10] {
            let key = format!("{order}/{window}");
            let name = if key == "1/1" { "markov" } else { &key };
            grid.insert(key.clone(), json!(named(name)));
        }
    }
    json!({
        "predictors": predictors,
        "ppm_grid": grid,
        "default_less_markov_interval":
            chance.and_then(|chance| default_less_markov(slice, chance)),
    })
}

fn measured_json(one: &Measured, which: usize, chance: Option<&Bootstrap>) -> Value {
    let point = headline(one);
    let equal = BYTES.map(|bytes| {
        json!({
            "bytes_per_page": bytes,
            "page_hit_rate": one.page_hit_rate_at(bytes),
            "page_hit_interval": chance.map(|chance| chance.at(which, bytes)),
        })
    });
    json!({
        "hit_rate": point.map(|point| point.hit_rate),
        "page_hit_rate": point.map(|point| point.page_hit_rate),
        "page_hit_interval": chance.and_then(|chance| chance.with_lists_of(which, LENGTH)),
        "precision": point.map(|point| point.precision),
        "recall": point.map(|point| point.recall),
        "bytes_per_page": point.map(|point| point.bytes_per_page),
        "wasted_bytes": point.map(|point| point.wasted_bytes),
        "pages": one.pages,
        "requests": one.requests,
        "by_length": one.by_length,
        "by_priority": one.by_priority,
        "at_equal_bytes": equal,
    })
}
