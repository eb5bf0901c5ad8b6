//! Which rows are shown, in which order, and what keys change of that.

use core::cmp::Ordering;
use core::net::SocketAddr;

use super::activity::{Activity, Direction};
use super::view::{Row, View};

/// The unit of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Grouping {
    /// A connection.
    #[default]
    Connections,
    /// A job.
    Jobs,
}

/// The order of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// The highest rate first.
    #[default]
    Rate,
    /// Most bytes first.
    Bytes,
    /// The longest queueing delay first.
    Delay,
    /// The largest window first.
    Window,
    /// By job.
    Job,
    /// By process.
    Process,
    /// By remote address.
    Peer,
}

impl Sort {
    const ALL: [Sort; 7] =
        [Sort::Rate, Sort::Bytes, Sort::Delay, Sort::Window, Sort::Job, Sort::Process, Sort::Peer];

    fn next(self) -> Self {
        let at = Self::ALL.iter().position(|&one| one == self).unwrap_or(0);
        Self::ALL[(at + 1) % Self::ALL.len()]
    }

    /// One word.
    pub fn word(self) -> &'static str {
        match self {
            Sort::Rate => "rate",
            Sort::Bytes => "bytes",
            Sort::Delay => "delay",
            Sort::Window => "window",
            Sort::Job => "job",
            Sort::Process => "process",
            Sort::Peer => "peer",
        }
    }

    fn compare(self, a: &Row, b: &Row) -> Ordering {
        let number =
            |a: Option<f64>, b: Option<f64>| b.unwrap_or(-1.0).total_cmp(&a.unwrap_or(-1.0));
        match self {
            Sort::Rate => number(a.bytes_per_second, b.bytes_per_second),
            Sort::Window => number(a.window_packets, b.window_packets),
            Sort::Bytes => b.bytes.cmp(&a.bytes),
            Sort::Delay => b.queueing_delay_us.cmp(&a.queueing_delay_us),
            Sort::Job => a.job_label().cmp(b.job_label()),
            Sort::Process => a.process.cmp(&b.process),
            Sort::Peer => a.peer.cmp(&b.peer),
        }
    }
}

/// A key, as far as the table knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Char(char),
    Quit,
    Enter,
    Escape,
    Backspace,
    Up,
    Down,
    PageUp,
    PageDown,
}

/// Which rows are shown, in which order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// The unit of a row.
    pub grouping: Grouping,
    /// The order of rows.
    pub sort: Sort,
    /// The other way round.
    pub is_reversed: bool,
    /// Rows without this text are left out; letters match in both cases.
    pub filter: String,
    /// The view stays as it is.
    pub is_paused: bool,
    /// Keys are added to the filter.
    pub(crate) is_typing: bool,
    /// Rows above the first one that is shown.
    pub(crate) offset: usize,
}

/// Rows that a page key moves by.
const PAGE: usize = 10;

impl Table {
    /// A table that shows rows with the text `filter`, in an order.
    pub fn new(grouping: Grouping, sort: Sort, filter: String) -> Self {
        Table { grouping, sort, filter, ..Table::default() }
    }

    /// The same filter and order for other rows.
    pub fn grouped(&self, grouping: Grouping) -> Self {
        Table { grouping, ..self.clone() }
    }

    /// Follows a key. Returns whether the program ends.
    pub(crate) fn handle_key(&mut self, key: Key) -> bool {
        if key == Key::Quit {
            return true;
        }
        if self.is_typing {
            match key {
                Key::Char(c) => self.filter.push(c),
                Key::Backspace => _ = self.filter.pop(),
                Key::Escape => (self.is_typing, self.filter) = (false, String::new()),
                Key::Enter => self.is_typing = false,
                _ => {}
            }
            self.offset = 0;
            return false;
        }
        match key {
            Key::Char('q') | Key::Escape => return true,
            Key::Char('s') => self.sort = self.sort.next(),
            Key::Char('r') => self.is_reversed = !self.is_reversed,
            Key::Char('/') => self.is_typing = true,
            Key::Char('p' | ' ') => self.is_paused = !self.is_paused,
            Key::Char('j') => {
                self.grouping = match self.grouping {
                    Grouping::Connections => Grouping::Jobs,
                    Grouping::Jobs => Grouping::Connections,
                };
            }
            Key::Up => self.offset = self.offset.saturating_sub(1),
            Key::Down => self.offset += 1,
            Key::PageUp => self.offset = self.offset.saturating_sub(PAGE),
            Key::PageDown => self.offset += PAGE,
            _ => {}
        }
        false
    }

    /// The rows that match the filter, in order.
    pub fn rows<'a>(&self, view: &'a View) -> Vec<&'a Row> {
        let rows = match self.grouping {
            Grouping::Connections => &view.connections,
            Grouping::Jobs => &view.jobs,
        };
        let filter = self.filter.to_lowercase();
        let mut rows: Vec<&Row> = rows.iter().filter(|row| matches(row, &filter)).collect();
        rows.sort_by(|a, b| {
            let order = self.sort.compare(a, b);
            // Rows that are equal in this keep a place of their own from one snapshot to the next.
            let ties = || (&a.job, a.pid, a.peer).cmp(&(&b.job, b.pid, b.peer));
            if self.is_reversed { order.reverse() } else { order }.then_with(ties)
        });
        rows
    }

    /// Rows above the first one that is shown, if so many are there and fit.
    pub(crate) fn first(&self, rows: usize, fit: usize) -> usize {
        self.offset.min(rows.saturating_sub(fit))
    }

    /// Forgets to have been scrolled beyond the end.
    pub(crate) fn clamp(&mut self, rows: usize, fit: usize) {
        self.offset = self.first(rows, fit);
    }
}

fn matches(row: &Row, filter: &str) -> bool {
    if filter.is_empty() {
        return true;
    }
    let texts = [
        row.job.clone(),
        row.name.clone(),
        row.process.clone(),
        row.pid.map(|pid| pid.to_string()),
        row.peer.as_ref().map(SocketAddr::to_string),
        row.activity.map(Activity::word).map(str::to_owned),
        Some(Direction::word(row.direction).to_owned()),
    ];
    texts.into_iter().flatten().any(|text| text.to_lowercase().contains(filter))
}
