//! Access logs as arguments, with their progress on a terminal.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lull_logs::{LogsError, TimeRange};
use lull_speculate::log::{ClientField, Entry, Network, Options, Template, Trust};

pub use lull_logs::{Contents, contents};

use crate::message::UsageError;

/// How to read logs, and which of their addresses are the clients'.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct LogArgs {
    /// Format of the lines, if Lull does not detect it: an nginx log_format, an Apache LogFormat, or
    /// json:client=FIELD,time=FIELD,url=FIELD,method=FIELD,status=FIELD,... for JSON logs whose field names differ
    #[arg(long, value_name = "FORMAT")]
    format: Option<Template>,
    /// Field with the client's address: x-forwarded-for, client (the format's own field, whatever a header
    /// says), or the name of a JSON field, a column or a variable
    #[arg(long, value_name = "FIELD")]
    client_field: Option<ClientField>,
    /// A proxy in front of the server, such as 10.0.0.5 or 10.0.0.0/8. The client is the last address in
    /// X-Forwarded-For that is not a proxy. May be repeated
    #[arg(long, value_name = "ADDRESS")]
    trusted_proxy: Vec<Network>,
}

impl LogArgs {
    /// Whether any of them is given.
    pub fn are_given(&self) -> bool {
        let LogArgs { format, client_field, trusted_proxy } = self;
        format.is_some() || client_field.is_some() || !trusted_proxy.is_empty()
    }

    fn options(&self) -> Options {
        let field = self.client_field.clone().unwrap_or_default();
        let trust = Trust { field, proxies: self.trusted_proxy.clone() };
        Options { template: self.format.clone(), trust }
    }
}

/// The logs of a command line. [`lull_logs::Logs`] reads them.
pub struct Logs(lull_logs::Logs);

impl Logs {
    /// Finds logs, and puts them into order.
    ///
    /// # Errors
    /// As for [`named`](Logs::named) and [`in_order`](Logs::in_order).
    pub fn find(paths: &[PathBuf], how: &LogArgs) -> anyhow::Result<Self> {
        Logs::named(paths, how)?.in_order()
    }

    /// The logs with these names, unread so far.
    ///
    /// # Errors
    /// If one cannot be a log.
    pub fn named(paths: &[PathBuf], how: &LogArgs) -> anyhow::Result<Self> {
        match lull_logs::Logs::named(paths, how.options()) {
            Ok(logs) => Ok(Logs(logs)),
            Err(error @ LogsError::StandardInputTwice) => Err(UsageError(error.to_string()).into()),
            Err(error) => Err(error.into()),
        }
    }

    /// The same without lines that name another site than these; if these are empty, all lines.
    pub fn of_sites(self, sites: &[String]) -> Self {
        Logs(self.0.of_sites(sites))
    }

    /// Checks whether they can be opened, if that does not block.
    ///
    /// # Errors
    /// If one cannot be opened.
    pub fn check(&self) -> anyhow::Result<()> {
        Ok(self.0.check()?)
    }

    /// Sorts several by their first times.
    ///
    /// # Errors
    /// If one cannot be read.
    pub fn in_order(self) -> anyhow::Result<Self> {
        Ok(Logs(self.0.in_order()?))
    }

    /// Reads all logs like [`read_while`](Logs::read_while), and shows the progress meanwhile.
    ///
    /// # Errors
    /// As for it.
    pub fn read_shown(
        &mut self,
        what: &'static str,
        take: impl FnMut(&Entry<'_>),
    ) -> anyhow::Result<Vec<Contents>> {
        let shown = self.show(what);
        Ok(shown.read(take)?)
    }

    /// Finds the first and last time of all logs: [`lull_logs::Logs::span`].
    ///
    /// # Errors
    /// As for it.
    pub fn span(&mut self) -> anyhow::Result<(Vec<Contents>, Option<TimeRange>)> {
        self.0.hold()?;
        let mut shown = self.show("looking");
        Ok(shown.span()?)
    }

    /// Reads all logs while `goes_on` is true: [`lull_logs::Logs::read_while`].
    ///
    /// # Errors
    /// As for it.
    pub fn read_while(
        &self,
        goes_on: &dyn Fn() -> bool,
        take: impl FnMut(&Entry<'_>),
    ) -> anyhow::Result<Vec<Contents>> {
        Ok(self.0.read_while(goes_on, take)?)
    }

    /// Shows the progress of each of the next passes on a terminal, until the result is dropped.
    pub fn show(&mut self, what: &'static str) -> Shown<'_> {
        let bar = if crate::text::is_terminal_output() {
            bar(what, self.0.bytes())
        } else {
            ProgressBar::hidden()
        };
        let counted = bar.clone();
        self.0.set_meter(Some(Arc::new(move |bytes| counted.inc(bytes))));
        Shown { logs: &mut self.0, bar }
    }
}

/// A progress bar over so many bytes, or without an end.
fn bar(what: &'static str, total: Option<u64>) -> ProgressBar {
    let (bar, template) = match total {
        Some(total) => (ProgressBar::new(total), "{prefix} [{bar:30}] {percent} %, {eta} left"),
        None => (ProgressBar::no_length(), "{prefix} {bytes}, {elapsed}"),
    };
    bar.set_draw_target(ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template(template).expect("the template is well formed");
    bar.set_style(style.progress_chars("=> "));
    bar.set_prefix(what);
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// Logs with a progress bar.
pub struct Shown<'a> {
    logs: &'a mut lull_logs::Logs,
    bar: ProgressBar,
}

impl std::ops::Deref for Shown<'_> {
    type Target = lull_logs::Logs;

    fn deref(&self) -> &lull_logs::Logs {
        self.logs
    }
}

impl std::ops::DerefMut for Shown<'_> {
    fn deref_mut(&mut self) -> &mut lull_logs::Logs {
        self.logs
    }
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        self.logs.set_meter(None);
        self.bar.finish_and_clear();
    }
}
