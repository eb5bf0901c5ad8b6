//! The results of a plan as a table for people.

use std::io::{self, Write};
use std::path::PathBuf;

use lull_lab::judge::{Results, Row};
use lull_lab::plan::{Metric, Plan};
use lull_lab::run::Outcome;
use serde_json::Value;

/// Rows that are shown at most; of more, only those that miss something.
const MOST_ROWS: usize = 60;

/// Writes the rows and the verdicts.
pub(crate) fn write(
    to: &mut impl Write,
    plan: &Plan,
    outcome: &Outcome,
    results: &Results,
    plots: &[PathBuf],
) -> io::Result<()> {
    writeln!(to, "\n{}: {}", plan.id, plan.title)?;
    writeln!(to, "{}", plan.paper.source)?;
    if let Some(value) = &plan.paper.value {
        writeln!(to, "to hold against: {value}")?;
    }
    write_rows(to, plan, results)?;
    for verdict in &results.verdicts {
        let word = match verdict.is_met {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "open",
        };
        writeln!(to, "{word:<6}  {}: {}", verdict.name, verdict.why)?;
    }
    for without in &results.without_value {
        writeln!(to, "without a value in any cell: {without}")?;
    }
    if let Some((key, late_ms)) = results.disturbed.first() {
        writeln!(
            to,
            "in doubt: in {} cells the emulator was late, worst by {late_ms:.1} ms ({key}): give \
             the machine less to do (--jobs)",
            results.disturbed.len()
        )?;
    }
    for failed in &outcome.failed {
        writeln!(to, "failed: {}: {}", failed.key, failed.error)?;
    }
    for plot in plots {
        writeln!(to, "plot: {}", plot.display())?;
    }
    writeln!(to, "record: {}", outcome.record.display())
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn write_rows(to: &mut impl Write, plan: &Plan, results: &Results) -> io::Result<()> {
    let all = results.rows.len();
    let rows: Vec<&Row> = if all <= MOST_ROWS {
        results.rows.iter().collect()
    } else {
        let missing = results.rows.iter().filter(|row| !row.missed.is_empty());
        missing.take(MOST_ROWS).collect()
    };
    if rows.len() < all {
        writeln!(to, "{} of {all} rows, those that miss something (all: --json)", rows.len())?;
    }
    // An axis of one value tells nothing.
    let axes: Vec<&str> = plan
        .axes
        .iter()
        .map(|axis| axis.name.as_str())
        .filter(|axis| {
            results.rows.iter().any(|row| row.values[*axis] != results.rows[0].values[*axis])
        })
        .collect();
    // Nor does a metric that no cell has.
    let has_value = |number: usize| results.rows.iter().any(|row| row.metrics[number].is_some());
    let metrics: Vec<(usize, &Metric)> = plan
        .metrics
        .iter()
        .enumerate()
        .filter(|(number, metric)| !metric.hidden && has_value(*number))
        .collect();
    let mut lines: Vec<Vec<String>> = vec![
        axes.iter()
            .map(|axis| (*axis).to_owned())
            .chain(
                metrics
                    .iter()
                    .map(|(_, metric)| metric.title.clone().unwrap_or_else(|| metric.name.clone())),
            )
            .chain([String::new()])
            .collect(),
        axes.iter()
            .map(|_| String::new())
            .chain(metrics.iter().map(|(_, metric)| metric.unit.clone()))
            .chain([String::new()])
            .collect(),
    ];
    for row in rows {
        let missed = row.missed.iter().map(|number| plan.checks[*number].name.as_str());
        let missed: Vec<&str> = missed.collect();
        let note =
            if missed.is_empty() { String::new() } else { format!("misses {}", missed.join(", ")) };
        lines.push(
            axes.iter()
                .map(|axis| text(&row.values[*axis]))
                .chain(metrics.iter().map(|(number, _)| {
                    row.metrics[*number].map_or_else(|| "-".to_owned(), number_text)
                }))
                .chain([note])
                .collect(),
        );
    }
    let columns = lines[0].len() - 1;
    let widths: Vec<usize> = (0..columns)
        .map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0))
        .collect();
    for line in lines.iter().filter(|line| line.iter().any(|cell| !cell.is_empty())) {
        let mut shown = String::new();
        for (column, cell) in line[..columns].iter().enumerate() {
            let width = widths[column];
            shown += &if column < axes.len() {
                format!("{cell:<width$}  ")
            } else {
                format!("{cell:>width$}  ")
            };
        }
        shown += &line[columns];
        writeln!(to, "{}", shown.trim_end())?;
    }
    Ok(())
}

/// Three digits behind the point, fewer of larger numbers.
fn number_text(number: f64) -> String {
    match number.abs() {
        0.0..10.0 => format!("{number:.3}"),
        10.0..1000.0 => format!("{number:.1}"),
        _ => format!("{number:.0}"),
    }
}
