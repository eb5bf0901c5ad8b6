//! Text for people.

use std::io::{self, IsTerminal, Write};

use anyhow::Context;

pub use lull_logs::text::{count, plain};

/// Aligns the columns of a table: the first to the left, the others to the right, the last as it is.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            line += &match column {
                0 => format!("{cell:<width$}"),
                _ if column + 1 == columns => format!("  {cell}"),
                _ => format!("  {cell:>width$}"),
            };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// Writes text to standard output.
///
/// # Errors
/// If standard output cannot be written.
pub fn print_line(text: &str) -> anyhow::Result<()> {
    io::stdout().write_all(text.as_bytes()).context("cannot write")
}

/// Whether standard error is a terminal, so that progress can be shown.
pub fn is_terminal_output() -> bool {
    io::stderr().is_terminal()
}
