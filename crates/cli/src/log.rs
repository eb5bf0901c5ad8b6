//! Log lines of the commands that run as services.
//!
//! Events are logged through [`tracing`], with a level and a target such as `lull::web`. The variable `RUST_LOG`
//! selects them: `warn` for warnings and errors only, `lull::replication=warn,info` to select by target.

use std::fmt;

use anyhow::Context;
use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;

/// A library that logs each attempt to connect, also those that Lull reports with their cause. Silent unless
/// `RUST_LOG` names it.
const NATS: &str = "async_nats";
/// Targets whose messages are whole lines.
const OWN_TARGET: &str = "lull::";

/// Logs to `writer` from now on, in every thread. Each line is one write.
///
/// # Errors
/// If `RUST_LOG` cannot be read.
pub fn start<W>(writer: W) -> anyhow::Result<()>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let text = std::env::var("RUST_LOG").ok().filter(|text| !text.is_empty());
    let subscriber = subscriber(filter(text.as_deref().unwrap_or("info"))?, writer);
    tracing::subscriber::set_global_default(subscriber).context("the log was started before")
}

fn filter(text: &str) -> anyhow::Result<Targets> {
    let filter: Targets = text.parse().with_context(|| {
        format!(
            "RUST_LOG is '{text}': write a level (error, warn, info, debug, trace), or TARGET=LEVEL"
        )
    })?;
    Ok(if text.contains(NATS) { filter } else { filter.with_target(NATS, LevelFilter::OFF) })
}

fn subscriber<W>(filter: Targets, writer: W) -> impl Subscriber + Send + Sync
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let lines = tracing_subscriber::fmt::layer()
        .event_format(Lines)
        // A closed standard error is not a failure.
        .log_internal_errors(false)
        .with_writer(writer);
    tracing_subscriber::registry().with(lines.with_filter(filter))
}

/// Prints a message of Lull as it is. Messages of libraries get their level and target in front.
struct Lines;

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let metadata = event.metadata();
        if !metadata.target().starts_with(OWN_TARGET) {
            write!(writer, "lull: {} {}: ", metadata.level(), metadata.target())?;
        }
        context.format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Collects what is written.
    #[derive(Clone, Default)]
    struct Output(Arc<Mutex<Vec<u8>>>);

    impl Write for Output {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(directives: &str) -> String {
        let output = Output::default();
        let made = output.clone();
        let subscriber = subscriber(filter(directives).unwrap(), move || made.clone());
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(target: "lull::web", "{}", "lull: listening on http://[::1]:80");
            tracing::warn!(target: "lull::replication", "{}", "lull: the disk is full");
            tracing::error!(target: "hyper::server", code = 3, "broken");
            tracing::error!(target: "async_nats::connector", "authorization violation");
        });
        let bytes = output.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    const WEB: &str = "lull: listening on http://[::1]:80\n";
    const ORIGIN: &str = "lull: the disk is full\n";
    const HYPER: &str = "lull: ERROR hyper::server: broken code=3\n";
    const CLIENT: &str = "lull: ERROR async_nats::connector: authorization violation\n";

    #[test]
    fn messages_are_plain_lines() {
        assert_eq!(logged("info"), [WEB, ORIGIN, HYPER].concat());
    }

    #[test]
    fn filter_selects_by_level_and_target() {
        assert_eq!(logged("warn"), [ORIGIN, HYPER].concat());
        assert_eq!(logged("lull::web=info"), WEB);
        assert_eq!(logged("off,lull::replication=warn"), ORIGIN);
        assert_eq!(logged("off,async_nats=error"), CLIENT);
    }

    #[test]
    fn wrong_filter_is_an_error() {
        let error = filter("lull=loud").unwrap_err().to_string();
        assert!(error.contains("RUST_LOG is 'lull=loud'"), "{error}");
    }
}
