//! The status of a daemon as JSON, and as metrics for Prometheus.

use lull_metrics::{Labels, Metrics, labels};
use serde::Serialize;

use crate::daemon::{OriginStatus, OutageStatus, PeerStatus, ReplicaStatus};

pub(super) use lull_metrics::CONTENT_TYPE as PROMETHEUS;

pub(super) fn json(status: &impl Serialize) -> String {
    // It consists of numbers and texts only, so this cannot fail.
    serde_json::to_string_pretty(status).map(|text| text + "\n").unwrap_or_default()
}

fn truth(holds: bool) -> f64 {
    f64::from(u8::from(holds))
}

/// A row without labels, if there is a value.
fn alone(value: Option<f64>) -> impl Iterator<Item = (Labels, f64)> {
    value.map(|value| (Labels::new(), value)).into_iter()
}

const DISK_FULL: &str = "1 for a minute after the disk was full.";

pub(super) fn of_origin(status: &OriginStatus) -> String {
    let mut to = Metrics::new("lull");
    to.gauge("origin_sequence", "The last state.", status.sequence as f64);
    to.gauge("origin_objects", "Objects.", status.objects as f64);
    to.gauge("origin_bytes", "Bytes of all objects.", status.bytes as f64);
    to.gauge("origin_lost_bodies", "Bodies that are missing or corrupt.", status.lost as f64);
    to.gauge("origin_disk_full", DISK_FULL, truth(status.disk_full));
    let help = "1 while the bucket for large bodies does not answer.";
    to.gauge("origin_store_away", help, truth(status.store_away.is_some()));
    let log = status.log.as_ref();
    let help = "1 while the log in NATS does not answer.";
    to.gauge("origin_log_away", help, truth(log.is_some_and(|log| log.away.is_some())));
    let help = "The last message of the log in NATS.";
    to.gauge("origin_log_messages", help, log.map_or(0, |log| log.last) as f64);
    let help = "Origins that stand by.";
    to.gauge("origin_standbys", help, log.map_or(0, |log| log.standbys.len()) as f64);
    let help = "1 while the certificate authority is being replaced.";
    to.gauge("origin_rotating", help, truth(status.rotating));
    let kept = status.overwritten_bytes as f64;
    to.gauge("origin_overwritten_bytes", "Bytes kept for rollbacks.", kept);
    to.counter("origin_pushed", "Bodies pushed.", status.pushed);
    to.counter("origin_demands", "Demand reads.", status.demands);
    of_peers(&status.replicas, &mut to);
    to.text()
}

/// The origin's knowledge of its replicas.
fn of_peers(replicas: &[PeerStatus], to: &mut Metrics) {
    let of_each = |value: fn(&PeerStatus) -> Option<f64>| -> Vec<(Labels, f64)> {
        let all = replicas.iter();
        all.filter_map(|one| Some((labels([("replica", &one.name)]), value(one)?))).collect()
    };
    let connected = of_each(|one| Some(truth(one.connected)));
    to.gauges("replica_connected", "1 while it is connected.", connected);
    let never_connected = of_each(|one| Some(truth(one.never_connected)));
    let help = "1 while it has not connected since the start of the origin: its other metrics are lower \
         bounds.";
    to.gauges("replica_never_connected", help, never_connected);
    let lag = of_each(|one| one.lag.map(|lag| lag as f64));
    let help = "Commits that it has not applied; a lower bound if it has never connected.";
    to.gauges("replica_lag", help, lag);
    let staleness = of_each(|one| one.staleness_seconds);
    let help = "Upper bound of the replica's staleness; before its first report the time since the \
                start of the origin, a lower bound.";
    to.gauges("replica_staleness_seconds", help, staleness);
    let renews = of_each(|one| Some(truth(one.to_renew)));
    to.gauges("replica_to_renew", "1 while it needs a new certificate.", renews);
    let away = of_each(|one| one.silent_seconds);
    let help =
        "Time since its last message; if it has never connected, since the start of the origin.";
    to.gauges("replica_silent_seconds", help, away);
    let masked = of_each(|one| one.served_while_disconnected_seconds);
    let help = "The part of its silent time in which it may have answered all reads, at most.";
    to.gauges("replica_served_while_disconnected_seconds", help, masked);
    let valid = of_each(|one| share(one.valid_objects, one.subscribed_objects()));
    let help = "Share of the objects in its subscription that the replica has.";
    to.gauges("replica_valid_objects_ratio", help, valid);
    let valid = of_each(|one| share(one.valid_bytes, one.subscribed_bytes()));
    let help = "Share of the bytes of these objects that the replica has.";
    to.gauges("replica_valid_bytes_ratio", help, valid);
    let skew = of_each(|one| one.skew_seconds.map(|(least, most)| least.abs().max(most.abs())));
    let help = "Upper bound of the offset of the replica's clock; it grows with the time since the last \
                report.";
    to.gauges("replica_skew_seconds", help, skew);
    let queue = of_each(|one| one.queue.map(|queue| queue as f64));
    let help = "Bodies in its queue; missing if it has never connected.";
    to.gauges("replica_queue", help, queue);
    let sent = replicas.iter().flat_map(|one| {
        [
            ("control", one.control_bytes),
            ("demand", one.demand_bytes),
            ("speculative", one.speculative_bytes),
        ]
        .map(|(channel, bytes)| (labels([("replica", &one.name), ("channel", channel)]), bytes))
    });
    to.counters("replica_sent_bytes", "Bytes sent to the replica.", sent);
}

/// A part of a whole; 1 if the whole is 0.
pub(super) fn share(part: Option<u64>, whole: Option<u64>) -> Option<f64> {
    let (part, whole) = (part?, whole?);
    Some(if whole == 0 { 1.0 } else { part as f64 / whole as f64 })
}

pub(super) fn of_replica(status: &ReplicaStatus) -> String {
    let mut to = Metrics::new("lull");
    to.gauge("connected", "1 while the origin sends messages.", truth(status.connected));
    let help = "1 while the origin rejects the replica; its status has the reason.";
    to.gauge("refused", help, truth(status.refused.is_some()));
    to.gauge("disk_full", DISK_FULL, truth(status.disk_full));
    to.gauge("sequence", "The state that readers see.", status.sequence as f64);
    let help = "Commits that were received and are not applied.";
    to.gauge("buffered", help, status.buffered as f64);
    let help = "Upper bound of the replica's staleness.";
    to.gauges("staleness_seconds", help, alone(status.staleness_seconds));
    to.gauges(
        "disconnected_seconds",
        "Time without a connection.",
        alone(status.disconnected_seconds),
    );
    let help = "The part of the time without a connection in which all reads were answered.";
    to.gauges(
        "served_while_disconnected_seconds",
        help,
        alone(status.served_while_disconnected_seconds),
    );
    let last = |value: fn(&OutageStatus) -> f64| alone(status.last_outage.as_ref().map(value));
    let help = "Time since the last finished outage began.";
    to.gauges("last_outage_age_seconds", help, last(|one| one.began_seconds_ago));
    to.gauges(
        "last_outage_seconds",
        "Duration of the last finished outage.",
        last(|one| one.lasted_seconds),
    );
    let help = "The part of that outage in which all reads were answered.";
    to.gauges("last_outage_served_seconds", help, last(|one| one.served_seconds));
    let help = "Reads answered because there was no connection.";
    to.counter("reads_while_disconnected", help, status.reads_while_disconnected);
    let skew = status.skew_seconds.into_iter().flat_map(|(least, most)| {
        [("least", least), ("most", most)]
            .map(|(bound, seconds)| (labels([("bound", bound)]), seconds))
    });
    to.gauges("skew_seconds", "Offset of the replica's clock from the origin's.", skew);
    to.gauge("objects", "Objects.", status.objects as f64);
    to.gauge("valid_objects", "Objects whose body is stored here.", status.valid_objects as f64);
    to.gauge("bytes", "Bytes of all objects.", status.bytes as f64);
    to.gauge("valid_bytes", "The part of these that is stored here.", status.valid_bytes as f64);
    let help = "Objects outside its subscription that are not stored here, folders included.";
    to.gauge("unsubscribed_objects", help, status.unsubscribed_objects as f64);
    let help = "Bytes of objects outside its subscription that are not stored here.";
    to.gauge("unsubscribed_bytes", help, status.unsubscribed_bytes as f64);
    to.gauge("reads_waiting", "Reads that wait.", status.waiting as f64);
    to.counter("demands", "Demand reads.", status.demands);
    let received = [("demand", status.demand_bytes), ("speculative", status.speculative_bytes)];
    let received = received.map(|(channel, bytes)| (labels([("channel", channel)]), bytes));
    let neighbour = status.neighbour_bytes.map(|bytes| (labels([("channel", "neighbour")]), bytes));
    let received = received.into_iter().chain(neighbour);
    to.counters("received_bytes", "Bytes of bodies.", received);
    let help = "Replicas that it exchanges pieces with.";
    to.gauges("neighbours", help, alone(status.neighbours.map(|count| count as f64)));
    let given = status.given_bytes.map(|bytes| (Vec::new(), bytes));
    to.counters("given_bytes", "Bytes of bodies sent to neighbours.", given);
    to.counter("sent_bytes", "Bytes sent to the origin.", status.control_bytes);
    to.text()
}

#[cfg(test)]
pub(super) mod tests {
    use crate::shared_log::LogStatus;

    use super::*;

    /// An origin with a replica that is connected, one that is away, and one that was never heard.
    pub(in super::super) fn sample() -> OriginStatus {
        let here = PeerStatus {
            name: "paris".to_owned(),
            admitted: true,
            connected: true,
            lag: Some(3),
            staleness_seconds: Some(1.3),
            skew_seconds: Some((-0.012, 0.003)),
            objects: Some(8),
            valid_objects: Some(6),
            bytes: Some(1_000),
            valid_bytes: Some(900),
            only: vec!["docs/**".to_owned()],
            unsubscribed_objects: Some(2),
            unsubscribed_bytes: Some(60),
            queue: Some(77),
            control_bytes: 1_100,
            demand_bytes: 2_200,
            speculative_bytes: 3_300,
            ..PeerStatus::default()
        };
        let away = PeerStatus {
            name: "london".to_owned(),
            admitted: true,
            to_renew: true,
            silent_seconds: Some(40.0),
            served_while_disconnected_seconds: Some(30.0),
            to_reach: Some(7),
            queue: Some(0),
            ..PeerStatus::default()
        };
        let never_connected = PeerStatus {
            name: "oslo".to_owned(),
            admitted: true,
            never_connected: true,
            lag: Some(2),
            staleness_seconds: Some(50.0),
            stale_at_least: true,
            silent_seconds: Some(50.0),
            served_while_disconnected_seconds: Some(50.0),
            ..PeerStatus::default()
        };
        OriginStatus {
            life: 1,
            sequence: 5,
            log_after: 0,
            objects: 8,
            bytes: 1_000,
            overwritten_bytes: 4_400,
            lost: 2,
            disk_full: true,
            store: Some("s3://pages/site".to_owned()),
            store_away: Some("`s3://pages/site` refuses <access>".to_owned()),
            log: Some(LogStatus {
                log: "nats://n1:4222/pages".to_owned(),
                last: 17,
                replicas: 3,
                writer: "a:1".to_owned(),
                standbys: vec!["b:1".to_owned()],
                away: Some("the log <n1> does not answer".to_owned()),
            }),
            rotating: true,
            writing: 0,
            pushed: 0,
            demands: 0,
            absorbed: 0,
            resyncs: 0,
            replicas: vec![here, away, never_connected],
        }
    }

    #[test]
    fn origin_metrics_have_a_row_for_each_known_value() {
        let metrics = of_origin(&sample());
        for line in [
            "lull_replica_valid_objects_ratio{replica=\"paris\"} 1\n",
            "lull_replica_silent_seconds{replica=\"london\"} 40\n",
            "lull_replica_to_renew{replica=\"london\"} 1\n",
            "lull_replica_never_connected{replica=\"london\"} 0\n",
            "lull_replica_never_connected{replica=\"oslo\"} 1\n",
            "lull_replica_silent_seconds{replica=\"oslo\"} 50\n",
            "lull_replica_staleness_seconds{replica=\"oslo\"} 50\n",
            "lull_replica_lag{replica=\"oslo\"} 2\n",
            "lull_replica_queue{replica=\"london\"} 0\n",
            "lull_origin_overwritten_bytes 4400\n",
            "lull_origin_lost_bodies 2\n",
            "lull_origin_disk_full 1\n",
            "lull_origin_store_away 1\n",
            "lull_origin_log_away 1\n",
            "lull_origin_log_messages 17\n",
            "lull_origin_standbys 1\n",
        ] {
            assert!(metrics.contains(line), "no {line} in {metrics}");
        }
        assert!(
            !metrics.contains("lull_replica_queue{replica=\"oslo\"}"),
            "the queue of a replica that has never connected is unknown"
        );
    }

    #[test]
    fn replica_metrics_are_valid_prometheus_text() {
        let status = ReplicaStatus {
            replica: 3,
            life: 1,
            connected: false,
            refused: Some("it was revoked".to_owned()),
            disconnected_seconds: Some(4.5),
            served_while_disconnected_seconds: Some(2.0),
            last_outage: Some(OutageStatus {
                began_seconds_ago: 2_520.0,
                lasted_seconds: 2_400.5,
                served_seconds: 180.0,
            }),
            sequence: 7,
            buffered: 4,
            staleness_seconds: None,
            skew_seconds: Some((-0.25, 0.5)),
            objects: 9,
            valid_objects: 8,
            bytes: 1_000,
            valid_bytes: 900,
            metered: false,
            reads_per_gb: None,
            saved_bytes: None,
            only: Vec::new(),
            unsubscribed_objects: 1,
            unsubscribed_bytes: 60,
            buffered_bodies: 4,
            buffered_valid_bodies: 1,
            buffered_bytes: 400,
            buffered_valid_bytes: 150,
            disk_full: true,
            waiting: 2,
            control_bytes: 11,
            demand_bytes: 22,
            speculative_bytes: 33,
            neighbours: Some(2),
            neighbour_bytes: Some(44),
            given_bytes: Some(55),
            demands: 5,
            reads_while_disconnected: 6,
            missing: 0,
        };
        let text = of_replica(&status);
        let expected = [
            ("connected", "gauge", &[("", "0")][..]),
            ("refused", "gauge", &[("", "1")]),
            ("disk_full", "gauge", &[("", "1")]),
            ("sequence", "gauge", &[("", "7")]),
            ("buffered", "gauge", &[("", "4")]),
            ("staleness_seconds", "gauge", &[]),
            ("disconnected_seconds", "gauge", &[("", "4.5")]),
            ("served_while_disconnected_seconds", "gauge", &[("", "2")]),
            ("last_outage_age_seconds", "gauge", &[("", "2520")]),
            ("last_outage_seconds", "gauge", &[("", "2400.5")]),
            ("last_outage_served_seconds", "gauge", &[("", "180")]),
            ("reads_while_disconnected_total", "counter", &[("", "6")]),
            (
                "skew_seconds",
                "gauge",
                &[("{bound=\"least\"}", "-0.25"), ("{bound=\"most\"}", "0.5")],
            ),
            ("objects", "gauge", &[("", "9")]),
            ("valid_objects", "gauge", &[("", "8")]),
            ("bytes", "gauge", &[("", "1000")]),
            ("valid_bytes", "gauge", &[("", "900")]),
            ("unsubscribed_objects", "gauge", &[("", "1")]),
            ("unsubscribed_bytes", "gauge", &[("", "60")]),
            ("reads_waiting", "gauge", &[("", "2")]),
            ("demands_total", "counter", &[("", "5")]),
            (
                "received_bytes_total",
                "counter",
                &[
                    ("{channel=\"demand\"}", "22"),
                    ("{channel=\"speculative\"}", "33"),
                    ("{channel=\"neighbour\"}", "44"),
                ],
            ),
            ("neighbours", "gauge", &[("", "2")]),
            ("given_bytes_total", "counter", &[("", "55")]),
            ("sent_bytes_total", "counter", &[("", "11")]),
        ];
        let mut lines = text.lines();
        for (name, kind, values) in expected {
            let help = lines.next().and_then(|line| line.strip_prefix("# HELP lull_"));
            let help = help.and_then(|rest| rest.strip_prefix(name)).unwrap_or_default();
            assert!(help.starts_with(' ') && help.ends_with('.'), "{name}: {text}");
            assert_eq!(lines.next(), Some(&*format!("# TYPE lull_{name} {kind}")));
            for (labels, value) in values {
                assert_eq!(lines.next(), Some(&*format!("lull_{name}{labels} {value}")));
            }
        }
        assert_eq!(lines.next(), None);
        assert!(text.ends_with('\n'));
    }
}
