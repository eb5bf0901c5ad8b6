//! Values of one moment as metrics, in the text format of Prometheus (version 0.0.4).
//!
//! The daemons keep their own counters. For each scrape they list their values here, and [`Metrics::text`] writes
//! them. Metrics and rows keep their order, so equal values give equal texts.
//!
//! ```
//! use lull_metrics::{Metrics, labels};
//!
//! let mut metrics = Metrics::new("lull_origin");
//! metrics.gauge("objects", "Objects.", 3.0);
//! let sent = [("demand", 7), ("speculative", 9)];
//! let sent = sent.map(|(channel, bytes)| (labels([("channel", channel)]), bytes));
//! metrics.counters("sent_bytes", "Bytes sent.", sent);
//! assert_eq!(
//!     metrics.text(),
//!     "# HELP lull_origin_objects Objects.\n\
//!      ## TYPE lull_origin_objects gauge\n\
//!      lull_origin_objects 3\n\
//!      ## HELP lull_origin_sent_bytes_total Bytes sent.\n\
//!      ## TYPE lull_origin_sent_bytes_total counter\n\
//!      lull_origin_sent_bytes_total{channel=\"demand\"} 7\n\
//!      lull_origin_sent_bytes_total{channel=\"speculative\"} 9\n"
//! );
//! ```

mod metrics;

pub use metrics::{Histogram, Labels, Metrics, labels};
pub use prometheus_client::encoding::prometheus_text::CONTENT_TYPE;
