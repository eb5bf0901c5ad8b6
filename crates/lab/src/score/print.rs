//! The score as a table.

use std::fmt::Write;

use super::measures::{CellScore, Line, Spread};
use super::{Report, Verdict};

/// Writes the table: one line per group and controller, and with `with_cells` one per cell below it.
pub fn table(report: &Report, with_cells: bool) -> String {
    let mut text = String::new();
    let seeds: Vec<String> = report.seeds.iter().map(u64::to_string).collect();
    // Writing to a string cannot fail.
    let _ = write!(text, "set {}, seeds {}", report.set, seeds.join(", "));
    let without: Vec<&str> = report.without.iter().map(|part| part.name()).collect();
    let _ = match without.is_empty() {
        true => writeln!(text),
        false => writeln!(text, ", lull without {}", without.join(", ")),
    };
    let _ = writeln!(
        text,
        "{:15}  {:8}  {:>5}  {:>13}  {:>13}  {:>13}  {:>13}  {:>13}  {:>13}",
        "group", "cc", "cells", "kept", "reaped", "return", "mean", "p99", "rtt"
    );
    for line in &report.lines {
        write_line(&mut text, line);
        if with_cells {
            let is_own = |one: &&CellScore| one.group == line.group && one.scheme == line.scheme;
            report.cells.iter().filter(is_own).for_each(|cell| write_cell(&mut text, cell));
        }
    }
    for targets in &report.targets {
        let _ = writeln!(text, "{targets}");
    }
    text
}

/// Writes a line per target, and with `with_cells` one per cell beyond its limit below it.
pub fn verdict_table(verdicts: &[Verdict], with_cells: bool) -> String {
    let mut text =
        format!("{:6}  {:>5}  {:>8}  {:>13}  target\n", "", "cells", "at limit", "median worst");
    for verdict in verdicts {
        let word = if verdict.is_met { "met" } else { "MISSED" };
        let share = 100 * verdict.at_limit / verdict.cells.max(1);
        let spread = verdict.spread.map_or_else(
            || "-".to_owned(),
            |Spread { median, worst }| format!("{} {}", number(median), number(worst)),
        );
        let _ = writeln!(
            text,
            "{word:6}  {:>5}  {share:>6} %  {spread:>13}  {}",
            verdict.cells, verdict.target
        );
        for (cell, value) in verdict.misses.iter().filter(|_| with_cells) {
            let _ = writeln!(text, "    {cell}: {}", number(*value).trim_start());
        }
    }
    text
}

fn write_line(text: &mut String, line: &Line) {
    let _ = write!(text, "{:15}  {:8}  {:>5}", line.group, line.scheme, line.cells);
    for spread in [line.kept, line.reaped, line.return_ratio, line.mean, line.p99, line.rtt] {
        let shown = match spread {
            Some(Spread { median, worst }) => format!("{} {}", number(median), number(worst)),
            None => "-".to_owned(),
        };
        let _ = write!(text, "  {shown:>13}");
    }
    text.push('\n');
}

fn write_cell(text: &mut String, cell: &CellScore) {
    let _ = write!(text, "    {}:", cell.cell);
    let values = [
        ("kept", cell.kept),
        ("reaped", cell.reaped),
        ("return", cell.return_ratio),
        ("mean", cell.mean),
        ("p99", cell.p99),
        ("rtt", cell.rtt),
    ];
    for (name, value) in values {
        if let Some(value) = value {
            let _ = write!(text, " {name} {}", number(value).trim_start());
        }
    }
    text.push('\n');
}

/// Three digits behind the point, in a width of six.
fn number(value: f64) -> String {
    if value < 99.9 { format!("{value:6.3}") } else { format!("{value:6.1}") }
}
