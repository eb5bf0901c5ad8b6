//! Metrics with their rows, in order.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, prometheus_text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

/// The labels of a row: their names and values.
pub type Labels = Vec<(&'static str, String)>;

/// Labels from names and texts.
pub fn labels<const N: usize>(all: [(&'static str, &str); N]) -> Labels {
    all.map(|(name, value)| (name, value.to_owned())).into()
}

/// The metrics of a daemon at one moment.
#[derive(Debug)]
pub struct Metrics(Registry);

/// A histogram that was counted elsewhere.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    /// Upper bounds in ascending order, each with the number of observations up to it.
    pub buckets: Vec<(f64, u64)>,
    /// The number of observations.
    pub count: u64,
    /// Their sum.
    pub sum: f64,
}

impl Metrics {
    /// No metrics so far. All names will begin with `prefix` and an underscore.
    pub fn new(prefix: &str) -> Self {
        Metrics(Registry::with_prefix(prefix))
    }

    /// Adds a counter. Its name gets the suffix `_total`.
    pub fn counter(&mut self, name: &str, help: &'static str, value: u64) {
        self.counters(name, help, [(Labels::new(), value)]);
    }

    /// Adds a counter with a value for each set of labels.
    pub fn counters(
        &mut self,
        name: &str,
        help: &'static str,
        rows: impl IntoIterator<Item = (Labels, u64)>,
    ) {
        self.add(name, help, MetricType::Counter, rows, Value::Count);
    }

    /// Adds a gauge.
    pub fn gauge(&mut self, name: &str, help: &'static str, value: f64) {
        self.gauges(name, help, [(Labels::new(), value)]);
    }

    /// Adds a gauge with a value for each set of labels, possibly for none.
    pub fn gauges(
        &mut self,
        name: &str,
        help: &'static str,
        rows: impl IntoIterator<Item = (Labels, f64)>,
    ) {
        self.add(name, help, MetricType::Gauge, rows, Value::Level);
    }

    /// Adds a histogram for each set of labels.
    pub fn histograms(
        &mut self,
        name: &str,
        help: &'static str,
        rows: impl IntoIterator<Item = (Labels, Histogram)>,
    ) {
        self.add(name, help, MetricType::Histogram, rows, Value::Histogram);
    }

    fn add<T>(
        &mut self,
        name: &str,
        help: &'static str,
        kind: MetricType,
        rows: impl IntoIterator<Item = (Labels, T)>,
        value: fn(T) -> Value,
    ) {
        let rows = rows.into_iter().map(|(labels, it)| (labels, value(it))).collect();
        self.0.register_collector(Box::new(Metric { name: name.to_owned(), help, kind, rows }));
    }

    /// All of them as text of the type [`CONTENT_TYPE`](crate::CONTENT_TYPE).
    ///
    /// # Panics
    /// Never: it writes to memory.
    pub fn text(&self) -> String {
        let mut text = String::new();
        prometheus_text::encode(&mut text, &self.0).expect("memory takes all text");
        text
    }
}

#[derive(Debug)]
struct Metric {
    name: String,
    help: &'static str,
    kind: MetricType,
    rows: Vec<(Labels, Value)>,
}

#[derive(Debug)]
enum Value {
    Count(u64),
    Level(f64),
    Histogram(Histogram),
}

impl Collector for Metric {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut metric = encoder.encode_descriptor(&self.name, self.help, None, self.kind)?;
        for (labels, value) in &self.rows {
            value.encode(metric.encode_family(labels)?)?;
        }
        Ok(())
    }
}

impl Value {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        match self {
            Value::Count(count) => encoder.encode_counter::<NoLabelSet, _, u64>(count, None),
            Value::Level(level) => match whole(*level) {
                Some(level) => encoder.encode_gauge(&level),
                None => encoder.encode_gauge(level),
            },
            Value::Histogram(Histogram { buckets, count, sum }) => {
                let mut below = 0;
                let each = buckets.iter().map(|&(end, up_to)| {
                    let own = up_to - below;
                    below = up_to;
                    (end, own)
                });
                let each: Vec<_> = each.collect();
                encoder.encode_histogram::<NoLabelSet>(*sum, *count, &each, None)
            }
        }
    }
}

/// A level without a fraction, which is then shown as `7` rather than `7.0`.
fn whole(level: f64) -> Option<i64> {
    /// Up to this number a float has all integers.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    (level.fract() == 0.0 && level.abs() <= EXACT).then_some(level as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_values_are_escaped() {
        let mut metrics = Metrics::new("a");
        metrics.gauges("b", "C.", [(labels([("name", "a\"b\\c\n")]), 1.5)]);
        let expected = "a_b{name=\"a\\\"b\\\\c\\n\"} 1.5\n";
        assert!(metrics.text().ends_with(expected), "{}", metrics.text());
    }

    #[test]
    fn histogram_has_cumulative_buckets_and_infinity() {
        let mut metrics = Metrics::new("lull");
        let buckets = vec![(0.005, 1), (1.0, 3)];
        let times = Histogram { buckets, count: 4, sum: 12.25 };
        metrics.histograms("wait_seconds", "Waits.", [(labels([("group", "a")]), times)]);
        assert_eq!(
            metrics.text(),
            "# HELP lull_wait_seconds Waits.\n\
             # TYPE lull_wait_seconds histogram\n\
             lull_wait_seconds_bucket{group=\"a\",le=\"0.005\"} 1\n\
             lull_wait_seconds_bucket{group=\"a\",le=\"1\"} 3\n\
             lull_wait_seconds_bucket{group=\"a\",le=\"+Inf\"} 4\n\
             lull_wait_seconds_sum{group=\"a\"} 12.25\n\
             lull_wait_seconds_count{group=\"a\"} 4\n"
        );
    }

    #[test]
    fn metric_without_rows_has_a_head() {
        let mut metrics = Metrics::new("lull");
        metrics.gauges("age_seconds", "Age.", []);
        assert_eq!(metrics.text(), "# HELP lull_age_seconds Age.\n# TYPE lull_age_seconds gauge\n");
    }

    #[test]
    fn levels_without_a_fraction_are_whole_numbers() {
        for (level, expected) in [
            (7.0, Some(7)),
            (-2.0, Some(-2)),
            (0.5, None),
            (f64::NAN, None),
            (f64::INFINITY, None),
            (1e300, None),
        ] {
            assert_eq!(whole(level), expected, "{level}");
        }
    }
}
