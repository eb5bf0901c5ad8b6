//! The section of logs to be played, and its speed.

use std::time::Duration;

use lull_emulator::parse_duration;

use crate::values::positive;

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SectionArgs {
    /// Start of the section, as time since the first request of the log
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "0s")]
    pub(crate) begin: Duration,
    /// Length of the section, by the clock of the log [default: to the end]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) length: Option<Duration>,
    /// Speed relative to the log
    #[arg(long, value_name = "NUMBER", default_value = "1", value_parser = positive)]
    pub(crate) speed: f64,
}
