//! Which section of logs is played, and how fast.

use std::time::Duration;

use lull_emulator::parse_duration;

use super::replay::positive;

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SectionArgs {
    /// Where in the log to begin, since its first request
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "0s")]
    pub(crate) begin: Duration,
    /// How long, by the log's clock [default: to its end]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) length: Option<Duration>,
    /// How many times as fast as the log was
    #[arg(long, value_name = "NUMBER", default_value = "1", value_parser = positive)]
    pub(crate) speed: f64,
}
