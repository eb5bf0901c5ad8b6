//! The progress of a run: a bar on a terminal, lines elsewhere.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lull_lab::run::Event;

use lull_cli::text::is_terminal_output;

/// Shows the events of a run on the standard error.
#[derive(Debug)]
pub(crate) struct Progress {
    plan: String,
    seed: u64,
    bar: ProgressBar,
    cells: usize,
    ended: usize,
    since: Instant,
    /// Approximate time of the plans after it.
    after: Duration,
}

impl Progress {
    /// For a plan; the plans after it take about `after`.
    pub(crate) fn new(plan: &str, seed: u64, after: Duration) -> Self {
        let target = if is_terminal_output() {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(Some(0), target);
        let style = ProgressStyle::with_template("{prefix} [{bar:30}] {pos}/{len}, {msg}")
            .expect("the template is well formed");
        bar.set_style(style.progress_chars("=> "));
        bar.set_prefix(plan.to_owned());
        let since = Instant::now();
        Progress { plan: plan.to_owned(), seed, bar, cells: 0, ended: 0, since, after }
    }

    /// The rest of its time, and that of all plans.
    fn left(&self, own: Duration) -> String {
        let mut text = format!("about {} left", duration(own));
        if !self.after.is_zero() {
            text = format!("{text}, {} with the plans after it", duration(own + self.after));
        }
        text
    }

    fn print_line(&self, text: &str) {
        // The run continues if the output is closed.
        if is_terminal_output() {
            self.bar.suspend(|| drop(writeln!(io::stderr(), "{text}")));
        } else {
            let _ = writeln!(io::stderr(), "{text}");
        }
    }

    pub(crate) fn show(&mut self, event: &Event) {
        match event {
            Event::Planned { recorded, cells, disturbed, time, older, others } => {
                self.cells += *cells;
                self.bar.set_length(self.cells as u64);
                let mut text = format!(
                    "{}: {}, about {}, seed {}",
                    self.plan,
                    count(*cells),
                    duration(*time),
                    self.seed
                );
                if *disturbed > 0 {
                    let which = if disturbed == cells { "all" } else { &disturbed.to_string() };
                    text = format!("{text}; {which} because the emulator was late before");
                }
                if *recorded > 0 {
                    text = format!("{text}; {recorded} more are recorded already");
                }
                if let Some((cells, commit)) = older {
                    let which = if cells == recorded { "all" } else { &cells.to_string() };
                    text = format!(
                        "{text}, {which} of them by another program, of commit {commit} (--fresh runs \
                         them again)"
                    );
                }
                self.print_line(&text);
                if *others > 0 {
                    let which = if *others == 1 { "another is" } else { "others are" };
                    self.print_line(&format!(
                        "{}: {which} under way on this machine: the measurements of both are \
                         unreliable",
                        self.plan
                    ));
                }
                self.bar.set_message(self.left(*time));
            }
            Event::Refused { cells, why } => {
                self.ended += *cells;
                self.bar.inc(*cells as u64);
                self.print_line(&format!("{}: {} cannot be run: {why}", self.plan, count(*cells)));
            }
            Event::Pruned { cells } => {
                self.print_line(&format!(
                    "{}: dropped {} from the record",
                    self.plan,
                    count(*cells)
                ));
            }
            Event::Began { .. } => {}
            Event::Ended { key, failure, left } => {
                self.ended += 1;
                self.bar.inc(1);
                let left = self.left(*left);
                self.bar.set_message(left.clone());
                if let Some(failure) = failure {
                    self.print_line(&format!("{}: {key}: failed: {failure}", self.plan));
                } else if !is_terminal_output() {
                    let (ended, cells) = (self.ended, self.cells);
                    self.print_line(&format!("{}: {ended} of {cells}, {left}: {key}", self.plan));
                }
            }
        }
    }

    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
        if self.cells > 0 {
            self.print_line(&format!("{}: done in {}", self.plan, duration(self.since.elapsed())));
        }
    }
}

/// Shows the progress of a replay of this length.
pub(crate) fn bar(length: Duration) -> ProgressBar {
    let target = if is_terminal_output() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let bar = ProgressBar::with_draw_target(Some(length.as_millis() as u64), target);
    let style = ProgressStyle::with_template("replaying [{bar:30}] {percent} %, {eta} left, {msg}")
        .expect("the template is well formed");
    bar.set_style(style.progress_chars("=> "));
    bar
}

/// A number of cells.
pub(crate) fn count(cells: usize) -> String {
    if cells == 1 { "1 cell".to_owned() } else { format!("{cells} cells") }
}

/// A time in human form.
pub(crate) fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{:.1} h", seconds as f64 / 3600.0),
    }
}
