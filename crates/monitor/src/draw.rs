//! Draws a view: two lines of sums, the table, and a line of keys.

use core::net::SocketAddr;

use lull_kernel::Scope;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row as Cells, Table as Columns, Widget};

use crate::model::activity::Activity;
use crate::model::table::{Grouping, Table};
use crate::model::view::{Row, View};
use crate::text::{bits_per_second, delay, percent, shorten, si, window};

/// Whether there are colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Palette {
    /// Colours of the terminal.
    Colour,
    /// Bold and reversed text only (<https://no-color.org>).
    Plain,
}

impl Palette {
    fn activity(self, activity: Option<Activity>) -> Style {
        let (Palette::Colour, Some(activity)) = (self, activity) else { return Style::new() };
        match activity {
            Activity::Using => Style::new().fg(Color::Green),
            Activity::Yielding => Style::new().fg(Color::Yellow),
            Activity::Starting => Style::new().fg(Color::Cyan),
            Activity::Idle => Style::new().fg(Color::DarkGray),
            Activity::Paused => Style::new().fg(Color::Magenta),
        }
    }

    fn hint(self) -> Style {
        match self {
            Palette::Colour => Style::new().fg(Color::DarkGray),
            Palette::Plain => Style::new(),
        }
    }
}

const COLUMNS: usize = 11;
const HEADER: [&str; COLUMNS] =
    ["job", "process", "peer", "dir", "bit/s", "win", "delay", "state", "bytes", "share", "fg"];
/// At 80 columns, one between each. The first three share what a wider terminal has.
const WIDTHS: [u16; COLUMNS] = [8, 9, 15, 4, 5, 4, 5, 5, 5, 5, 5];
const NARROWEST: u16 = 80;

/// Lines that are not rows of the table: two of sums, the header, and the keys.
const OTHER_LINES: u16 = 4;

const KEYS: &str =
    "q quit  s sort  r reverse  / filter  p pause  j jobs/connections  arrows scroll";

/// Rows of the table that fit on a screen.
pub(crate) fn fitting(height: u16) -> usize {
    usize::from(height.saturating_sub(OTHER_LINES))
}

/// Draws the whole screen.
pub fn draw(frame: &mut Frame<'_>, view: &View, table: &Table, palette: Palette) {
    let area = frame.area();
    let [body, keys] = Layout::vertical([Constraint::Fill(1), Constraint::Length(1)]).areas(area);
    paint(frame.buffer_mut(), body, view, table, palette);
    let line = match table.is_typing {
        true => Line::from(format!("filter: {}_  (Enter keeps it, Esc clears it)", table.filter)),
        false => Line::styled(KEYS, palette.hint()),
    };
    frame.render_widget(line, keys);
}

/// The same as text without colours, all rows on lines of `width` characters, without keys.
pub fn render(view: &View, table: &Table, width: u16) -> String {
    let rows = table.rows(view).len();
    let height = u16::try_from(rows).unwrap_or(u16::MAX - OTHER_LINES) + OTHER_LINES - 1;
    let area = Rect::new(0, 0, width.max(NARROWEST), height);
    let mut buffer = Buffer::empty(area);
    paint(&mut buffer, area, view, table, Palette::Plain);
    let line =
        |y: u16| -> String { (0..area.width).map(|x| buffer[(x, y)].symbol()).collect::<String>() };
    (0..height).map(|y| line(y).trim_end().to_owned() + "\n").collect()
}

fn paint(buffer: &mut Buffer, area: Rect, view: &View, table: &Table, palette: Palette) {
    let [sums, rest] = Layout::vertical([Constraint::Length(2), Constraint::Fill(1)]).areas(area);
    Paragraph::new(vec![first_line(view), second_line(view, table)]).render(sums, buffer);
    let rows = table.rows(view);
    let fit = usize::from(rest.height.saturating_sub(1));
    let first = table.first(rows.len(), fit);
    let widths = widths(area.width);
    let shown = rows[first..].iter().take(fit);
    let mut header = HEADER;
    if table.grouping == Grouping::Jobs {
        header[1] = "command";
    }
    let header = (0..COLUMNS).map(|at| align(at, header[at].to_owned(), Style::new()));
    let columns =
        Columns::new(shown.map(|row| cells(row, &widths, palette)), widths.map(Constraint::Length))
            .header(Cells::new(header).style(Style::new().add_modifier(Modifier::REVERSED)))
            .column_spacing(1);
    Widget::render(columns, rest, buffer);
}

fn widths(width: u16) -> [u16; COLUMNS] {
    let mut widths = WIDTHS;
    let mut extra = width.saturating_sub(NARROWEST);
    // A port, then an IPv6 address; a command line; a long name.
    for (column, most) in [(2, 6), (1, 11), (0, 12), (2, 26), (1, 60)] {
        let more = extra.min(most);
        widths[column] += more;
        extra -= more;
    }
    widths
}

fn first_line(view: &View) -> Line<'static> {
    let totals = &view.totals;
    let count = |number: usize, what: &str| {
        format!("{number} {what}{}", if number == 1 { "" } else { "s" })
    };
    Line::from(vec![
        Span::styled("lull top", Style::new().add_modifier(Modifier::BOLD)),
        Span::raw(format!(
            ": {}, {}; send {}, receive {}",
            count(totals.jobs, "job"),
            count(totals.connections, "connection"),
            bits_per_second(totals.sent_per_second),
            bits_per_second(totals.received_per_second),
        )),
    ])
}

fn second_line(view: &View, table: &Table) -> Line<'static> {
    let mut text = format!(
        "host's foreground {}; sorted by {}",
        bits_per_second(view.totals.foreground_per_second),
        table.sort.word()
    );
    if table.is_reversed {
        text += ", reversed";
    }
    if !table.filter.is_empty() {
        text += &format!("; filter '{}'", table.filter);
    }
    text += match view.scope {
        Scope::All => "",
        Scope::User => "; others hidden",
        Scope::Jobs => "; no server, so jobs only",
    };
    let mut spans = vec![Span::raw(text)];
    if table.is_paused {
        spans.push(Span::raw("; "));
        spans.push(Span::styled("PAUSED", Style::new().add_modifier(Modifier::REVERSED)));
    }
    Line::from(spans)
}

fn cells(row: &Row, widths: &[u16; COLUMNS], palette: Palette) -> Cells<'static> {
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let style = palette.activity(row.activity);
    let process = match (&row.process, row.pid) {
        (Some(name), _) => name.clone(),
        (None, Some(pid)) => pid.to_string(),
        (None, None) => "-".to_owned(),
    };
    let texts: [String; COLUMNS] = [
        row.job_label().to_owned(),
        process,
        peer(row, usize::from(widths[2])),
        row.direction.word().to_owned(),
        or_none(row.bytes_per_second.map(|bytes| si(8.0 * bytes))),
        or_none(row.window_packets.map(window)),
        or_none(row.queueing_delay_us.map(delay)),
        row.activity.map_or("-", Activity::word).to_owned(),
        si(row.bytes as f64),
        or_none(row.spare_share.map(percent)),
        or_none(row.foreground_per_second.map(|bytes| si(8.0 * bytes))),
    ];
    let cells = texts.into_iter().enumerate().map(|(at, text)| {
        let text = shorten(&text, usize::from(widths[at]));
        align(at, text, if at == 7 { style } else { Style::new() })
    });
    Cells::new(cells.collect::<Vec<_>>())
}

/// Words to the left, numbers to the right.
fn align(column: usize, text: String, style: Style) -> Cell<'static> {
    let alignment = match column {
        0..4 | 7 => Alignment::Left,
        _ => Alignment::Right,
    };
    Cell::from(Line::styled(text, style).alignment(alignment))
}

/// The remote address, with its port if there is room; or how many connections the row stands for.
fn peer(row: &Row, width: usize) -> String {
    match (row.peer, row.connections) {
        (Some(peer), _) => {
            let whole = plain(peer).to_string();
            if whole.chars().count() <= width { whole } else { plain(peer).ip().to_string() }
        }
        (None, 0) => "-".to_owned(),
        (None, 1) => "1 connection".to_owned(),
        (None, many) => format!("{many} connections"),
    }
}

/// IPv4 addresses of IPv6 sockets in the form of IPv4.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests;
