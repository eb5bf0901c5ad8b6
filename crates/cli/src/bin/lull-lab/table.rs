//! The results of a plan as a table for people.

use std::io::{self, Write};
use std::path::PathBuf;

use lull_lab::judge::{Column, Results, Table, TableRow};
use lull_lab::plan::Plan;
use lull_lab::record::Failed;
use lull_lab::run::Outcome;

/// Number of rows shown, at most; of more, only those that miss a check.
const MAX_ROWS: usize = 60;

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
    write_rows(to, &results.table(plan))?;
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
    // The cause of one failed cell often affects many.
    let mut failures: Vec<(&Failed, usize)> = Vec::new();
    for failed in &outcome.failed {
        match failures.iter_mut().find(|(first, _)| first.error == failed.error) {
            Some((_, others)) => *others += 1,
            None => failures.push((failed, 0)),
        }
    }
    for (failed, others) in failures {
        let more = if others == 0 { String::new() } else { format!(" and {others} more") };
        writeln!(to, "failed: {}{more}: {}", failed.key, failed.error)?;
    }
    for plot in plots {
        writeln!(to, "plot: {}", plot.display())?;
    }
    writeln!(to, "record: {}", outcome.record.display())
}

fn write_rows(to: &mut impl Write, table: &Table) -> io::Result<()> {
    let all = table.rows.len();
    let rows: Vec<&TableRow> = if all <= MAX_ROWS {
        table.rows.iter().collect()
    } else {
        let missing = table.rows.iter().filter(|row| !row.missed.is_empty());
        missing.take(MAX_ROWS).collect()
    };
    if rows.len() < all {
        writeln!(to, "{} of {all} rows, only those that miss a check (all: --json)", rows.len())?;
    }
    let axes = table.axes.len();
    let heading = |text: fn(&Column) -> &str| -> Vec<String> {
        let names = table.axes.iter().map(|axis| axis.name.as_str());
        let metrics = table.metrics.iter().map(text);
        names.chain(metrics).chain([""]).map(str::to_owned).collect()
    };
    let mut lines = vec![heading(|metric| &metric.title), heading(|metric| &metric.unit)];
    lines[1][..axes].fill(String::new());
    for row in rows {
        let note = match &row.missed[..] {
            [] => String::new(),
            missed => format!("misses {}", missed.join(", ")),
        };
        let metrics = row.metrics.iter().map(|value| value.clone().unwrap_or_else(|| "-".into()));
        lines.push(row.values.iter().cloned().chain(metrics).chain([note]).collect());
    }
    let columns = lines[0].len() - 1;
    let widths: Vec<usize> = (0..columns)
        .map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0))
        .collect();
    for line in lines.iter().filter(|line| line.iter().any(|cell| !cell.is_empty())) {
        let mut shown = String::new();
        for (column, cell) in line[..columns].iter().enumerate() {
            let width = widths[column];
            shown += &if column < axes {
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
