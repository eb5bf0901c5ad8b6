//! `lull lab report`: the results of all plans, as a page or as JSON.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use lull_lab::plan::{PlanError, PlanSet};
use lull_lab::report::Report;
use serde_json::{Value, json};

const EXAMPLES: &str = "\
Examples:
  lull lab report
      draw all plans from the records in report/, as the page report/index.html
  lull lab report out 'kernel-*' --out /tmp
      draw some plans from the records of runs with --out out
  lull lab report --figures plots nice-fig2
      draw the figures of one plan, as plots/nice-fig2-latency.svg and others
  lull lab report --json report
      {\"rows\": [{\"id\", \"verdict\", \"paper\", \"measured\", \"why\"}]} for all plans with checks
  lull lab report --cells kernel-matrix | jq -r '.plans[].cells[] | [.key, .metrics.kept] | @tsv'
      print a metric of every cell, for your own tables and plots

The verdict is 'met' if all cells of a plan are recorded and all of its checks are met, and 'missed'
otherwise; \"why\" gives the reason. Cells that an earlier version of a plan recorded count if their
definition is the same. If only the quick subset is recorded, the verdict is about that, and says so.

The exit code is 1 if a record cannot be read or the page cannot be written, and with --check also if a
verdict is 'missed'. It is 2 for an invalid plan or folder.";

/// The page's name.
const PAGE: &str = "index.html";

/// Draw the results of experiments beside the statements of the papers
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReportArgs {
    /// Folder of records [default: report], and plans: names, or patterns with * [default: all]
    #[arg(value_name = "DIR|PLAN")]
    what: Vec<String>,
    /// Folder for the page index.html [default: the folder of records]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Use only records of runs with --quick
    #[arg(long)]
    quick: bool,
    /// Print the verdicts as JSON, and write no page
    #[arg(long, conflicts_with = "out")]
    json: bool,
    /// Print the metrics of every cell and the results of the checks as JSON, and write no page
    #[arg(long, conflicts_with_all = ["out", "json"])]
    cells: bool,
    /// Draw the figures into this folder, each as a file PLAN-FIGURE.svg, and write no page
    #[arg(long, value_name = "DIR", conflicts_with_all = ["out", "json", "cells"])]
    figures: Option<PathBuf>,
    /// Exit with 1 if a verdict is 'missed'
    #[arg(long)]
    check: bool,
    /// Folder of plans [default: ./plans, or the plans that are built in]
    #[arg(long = "plans", value_name = "DIR")]
    folder: Option<PathBuf>,
}

/// Shows the results in the records of a folder.
pub(crate) fn report(args: ReportArgs) -> anyhow::Result<ExitCode> {
    crate::experiments::usage(try_report(&args))
}

fn try_report(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    let plan_set = PlanSet::open(args.folder.as_deref())?;
    let (folder, patterns) = folder_and_plans(&args.what, &plan_set)?;
    let mut experiments: Vec<Vec<_>> =
        plan_set.find(&patterns, true)?.into_iter().map(|quick| vec![quick]).collect();
    if !args.quick {
        for (plans, full) in experiments.iter_mut().zip(plan_set.find(&patterns, false)?) {
            plans.insert(0, full);
        }
    }
    let report = Report::read(experiments, &folder, crate::program().commit)?;
    if args.json {
        print(&json!({ "rows": report.rows() }))?;
    } else if args.cells {
        print(&json!({ "plans": report.cells() }))?;
    } else if let Some(out) = &args.figures {
        draw(&report, out)?;
    } else {
        let page = write_page(&report, args.out.as_deref().unwrap_or(&folder))?;
        let mut text = Vec::new();
        for entry in &report.entries {
            writeln!(
                text,
                "{:<10}  {}: {}",
                entry.standing.words(),
                entry.plan.id,
                entry.measured()
            )?;
        }
        writeln!(text, "page: {}", page.display())?;
        io::stdout().write_all(&text).context("cannot write")?;
    }
    let is_missed = report.rows().iter().any(|row| row.verdict != "met");
    Ok(if args.check && is_missed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn print(value: &Value) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(value)?;
    writeln!(io::stdout(), "{text}").context("cannot write")
}

/// Draws all figures, and prints their paths.
fn draw(report: &Report, out: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(out)
        .with_context(|| format!("the folder {} cannot be made", out.display()))?;
    for entry in &report.entries {
        for path in lull_lab::plot::draw(&entry.plan, &entry.cells, out)? {
            writeln!(io::stdout(), "{}", path.display()).context("cannot write")?;
        }
    }
    Ok(())
}

/// Which of the arguments is the folder of records: at most one may be a folder, all others are plans.
fn folder_and_plans(
    arguments: &[String],
    plan_set: &PlanSet,
) -> Result<(PathBuf, Vec<String>), PlanError> {
    let is_plan = |text: &str| text.contains('*') || plan_set.names().any(|name| name == text);
    let (folders, plans): (Vec<&String>, Vec<&String>) =
        arguments.iter().partition(|text| Path::new(text).is_dir());
    if let Some(stranger) = plans.iter().find(|text| !is_plan(text)) {
        return Err(PlanError::Selection(format!(
            "'{stranger}' is neither a folder of records nor a plan: see 'lull lab list'"
        )));
    }
    let folder = match &folders[..] {
        [] => PathBuf::from("report"),
        [one] => PathBuf::from(one),
        [first, second, ..] => {
            return Err(PlanError::Selection(format!(
                "there are two folders of records, '{first}' and '{second}': name one"
            )));
        }
    };
    if !folder.is_dir() {
        return Err(PlanError::Selection(format!(
            "there are no records in '{0}': 'lull lab run PLAN --out {0}' makes some",
            folder.display()
        )));
    }
    let all = vec!["*".to_owned()];
    Ok((folder, if plans.is_empty() { all } else { plans.into_iter().cloned().collect() }))
}

/// Writes the page, and returns its file.
fn write_page(report: &Report, out: &Path) -> anyhow::Result<PathBuf> {
    let path = out.join(PAGE);
    // Another program's page must not be replaced.
    let is_foreign = fs::read_to_string(&path)
        .is_ok_and(|text| !text.contains("<meta name=\"generator\" content=\"lull lab report\"/>"));
    if is_foreign {
        bail!(
            "{} was not written by lull lab report: choose another folder (--out)",
            path.display()
        );
    }
    let page = report.html()?;
    let write = || fs::create_dir_all(out).and_then(|()| fs::write(&path, page));
    write().with_context(|| format!("the page {} cannot be written", path.display()))?;
    Ok(path)
}
