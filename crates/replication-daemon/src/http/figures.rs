//! The status of a daemon: JSON, the text format of Prometheus, and a page.

use core::fmt::Write;

use serde::Serialize;

use crate::daemon::{OriginStatus, OutageStatus, PeerStatus, ReplicaStatus};

/// The kind of a document for Prometheus.
pub(super) const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(super) fn json(status: &impl Serialize) -> String {
    // It consists of numbers and texts only, so this cannot fail.
    serde_json::to_string_pretty(status).map(|text| text + "\n").unwrap_or_default()
}

/// One figure, with a value for each set of labels.
fn figure(
    to: &mut String,
    name: &str,
    kind: &str,
    help: &str,
    values: impl IntoIterator<Item = (String, f64)>,
) {
    let _ = writeln!(to, "# HELP lull_{name} {help}\n# TYPE lull_{name} {kind}");
    for (labels, value) in values {
        let _ = writeln!(to, "lull_{name}{labels} {value}");
    }
}

fn alone(value: f64) -> [(String, f64); 1] {
    [(String::new(), value)]
}

fn truth(holds: bool) -> [(String, f64); 1] {
    alone(f64::from(u8::from(holds)))
}

const DISK_FULL: &str = "1 for a minute after the disk had no room.";

pub(super) fn of_origin(status: &OriginStatus) -> String {
    let mut text = String::new();
    let to = &mut text;
    figure(to, "origin_sequence", "gauge", "The last state.", alone(status.sequence as f64));
    figure(to, "origin_objects", "gauge", "Objects.", alone(status.objects as f64));
    figure(to, "origin_bytes", "gauge", "Bytes of all objects.", alone(status.bytes as f64));
    figure(to, "origin_lost_bodies", "gauge", "Bodies that are lost.", alone(status.lost as f64));
    figure(to, "origin_disk_full", "gauge", DISK_FULL, truth(status.disk_full));
    let help = "1 while the authority is being replaced.";
    figure(to, "origin_rotating", "gauge", help, truth(status.rotating));
    let kept = alone(status.overwritten_bytes as f64);
    figure(to, "origin_overwritten_bytes", "gauge", "Bytes kept for rollbacks.", kept);
    figure(to, "origin_pushed_total", "counter", "Bodies pushed.", alone(status.pushed as f64));
    figure(to, "origin_demands_total", "counter", "Demand reads.", alone(status.demands as f64));
    let of_each = |value: fn(&PeerStatus) -> Option<f64>| -> Vec<(String, f64)> {
        let all = status.replicas.iter().filter_map(move |one| Some((label(one), value(one)?)));
        all.collect()
    };
    let connected = of_each(|one| Some(f64::from(u8::from(one.connected))));
    figure(to, "replica_connected", "gauge", "1 while it is connected.", connected);
    let unheard = of_each(|one| Some(f64::from(u8::from(one.unheard))));
    let help =
        "1 while it was not heard since the start of the origin: what is told of it is the least.";
    figure(to, "replica_unheard", "gauge", help, unheard);
    let lag = of_each(|one| one.lag.map(|lag| lag as f64));
    let help = "Commits that it does not show yet; at least so many, if it is unheard.";
    figure(to, "replica_lag", "gauge", help, lag);
    let staleness = of_each(|one| one.staleness_seconds);
    let help = "How stale it may be at most; until it has said that, the time since the start of the origin, \
                which is the least.";
    figure(to, "replica_staleness_seconds", "gauge", help, staleness);
    let renews = of_each(|one| Some(f64::from(u8::from(one.to_renew))));
    let help = "1 while it has to get a new certificate.";
    figure(to, "replica_to_renew", "gauge", help, renews);
    let away = of_each(|one| one.away_seconds);
    let help = "Since it was heard; if it is unheard, since the start of the origin at least.";
    figure(to, "replica_away_seconds", "gauge", help, away);
    let masked = of_each(|one| one.masked_seconds);
    let help = "For how long of that it may have answered all reads, at most.";
    figure(to, "replica_masked_seconds", "gauge", help, masked);
    let valid = of_each(|one| share(one.valid_objects, one.objects));
    figure(to, "replica_valid_objects_ratio", "gauge", "The share of objects it has.", valid);
    let valid = of_each(|one| share(one.valid_bytes, one.bytes));
    figure(to, "replica_valid_bytes_ratio", "gauge", "The share of bytes it has.", valid);
    let skew = of_each(|one| one.skew_seconds.map(|(least, most)| least.abs().max(most.abs())));
    let help = "How far its clock is off at most: the more, the longer ago it has said so.";
    figure(to, "replica_skew_seconds", "gauge", help, skew);
    let queue = of_each(|one| one.queue.map(|queue| queue as f64));
    let help = "Bodies that wait, where that is known: not if it is unheard.";
    figure(to, "replica_queue", "gauge", help, queue);
    let sent = status.replicas.iter().flat_map(|one| {
        let name = escaped(&one.name);
        [
            ("control", one.control_bytes),
            ("demand", one.demand_bytes),
            ("speculative", one.speculative_bytes),
        ]
        .map(|(channel, bytes)| {
            (format!("{{replica=\"{name}\",channel=\"{channel}\"}}"), bytes as f64)
        })
    });
    figure(to, "replica_sent_bytes_total", "counter", "Bytes sent.", sent);
    text
}

/// A part of a whole; 1 if the whole is 0.
fn share(part: Option<u64>, whole: Option<u64>) -> Option<f64> {
    let (part, whole) = (part?, whole?);
    Some(if whole == 0 { 1.0 } else { part as f64 / whole as f64 })
}

fn label(one: &PeerStatus) -> String {
    format!("{{replica=\"{}\"}}", escaped(&one.name))
}

/// Escaped for labels of the text format.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

pub(super) fn of_replica(status: &ReplicaStatus) -> String {
    let mut text = String::new();
    let to = &mut text;
    let help = "1 while the origin talks to it.";
    figure(to, "connected", "gauge", help, truth(status.connected));
    let help = "1 while the origin refuses it, for a reason that its status tells.";
    figure(to, "refused", "gauge", help, truth(status.refused.is_some()));
    figure(to, "disk_full", "gauge", DISK_FULL, truth(status.disk_full));
    figure(to, "sequence", "gauge", "The state that is read.", alone(status.sequence as f64));
    let help = "Commits that were received, and are not applied yet.";
    figure(to, "buffered", "gauge", help, alone(status.buffered as f64));
    let staleness = status.staleness_seconds.map(|seconds| (String::new(), seconds));
    figure(to, "staleness_seconds", "gauge", "How stale it may be at most.", staleness);
    let away = status.away_seconds.map(|seconds| (String::new(), seconds));
    figure(to, "away_seconds", "gauge", "Since there is no connection.", away);
    let masked = status.masked_seconds.map(|seconds| (String::new(), seconds));
    let help = "For how long of that all reads were answered, as if there was one.";
    figure(to, "masked_seconds", "gauge", help, masked);
    let last = |value: fn(&OutageStatus) -> f64| {
        status.last_outage.as_ref().map(|outage| (String::new(), value(outage)))
    };
    let help = "Since the last loss of the connection that is over began.";
    figure(to, "last_outage_age_seconds", "gauge", help, last(|one| one.began_seconds_ago));
    figure(
        to,
        "last_outage_seconds",
        "gauge",
        "How long it lasted.",
        last(|one| one.lasted_seconds),
    );
    let help = "For how long of that all reads were answered.";
    figure(to, "last_outage_masked_seconds", "gauge", help, last(|one| one.masked_seconds));
    let help = "Reads answered because there was no connection.";
    figure(to, "masked_reads_total", "counter", help, alone(status.masked as f64));
    let skew = status.skew_seconds.into_iter().flat_map(|(least, most)| {
        [("least", least), ("most", most)]
            .map(|(bound, seconds)| (format!("{{bound=\"{bound}\"}}"), seconds))
    });
    figure(to, "skew_seconds", "gauge", "How far its clock is ahead of the origin's.", skew);
    figure(to, "objects", "gauge", "Objects.", alone(status.objects as f64));
    figure(
        to,
        "valid_objects",
        "gauge",
        "Those that are here.",
        alone(status.valid_objects as f64),
    );
    figure(to, "bytes", "gauge", "Bytes of all objects.", alone(status.bytes as f64));
    figure(to, "valid_bytes", "gauge", "Those that are here.", alone(status.valid_bytes as f64));
    figure(to, "reads_waiting", "gauge", "Reads that wait.", alone(status.waiting as f64));
    figure(to, "demands_total", "counter", "Demand reads.", alone(status.demands as f64));
    let received = [("demand", status.demand_bytes), ("speculative", status.speculative_bytes)];
    let received =
        received.map(|(channel, bytes)| (format!("{{channel=\"{channel}\"}}"), bytes as f64));
    figure(to, "received_bytes_total", "counter", "Bytes of bodies.", received);
    let said = alone(status.control_bytes as f64);
    figure(to, "sent_bytes_total", "counter", "Bytes sent to the origin.", said);
    text
}

/// The activity of a replica, in words.
fn state_of(one: &PeerStatus) -> (&'static str, String) {
    let (class, mut text) = match one {
        one if !one.admitted => ("off", "not admitted".to_owned()),
        one if !one.connected => {
            let least = if one.unheard { " at least" } else { "" };
            let since =
                one.away_seconds.map_or_else(String::new, |time| format!(" for {time:.0} s"));
            ("away", format!("away{since}{least}"))
        }
        one if one.lag == Some(0) => ("here", "up to date".to_owned()),
        _ => ("late", "catching up".to_owned()),
    };
    if let Some(time) = one.masked_seconds.filter(|_| one.admitted) {
        // A lower bound has no upper bound.
        let _ = if one.unheard {
            write!(text, ", masked for all of that at most")
        } else {
            write!(text, ", masked for {time:.0} s at most")
        };
    }
    if one.to_renew {
        text += ", to get a certificate";
    }
    if let Some(at) = one.to_reach {
        let _ = write!(text, ", old session tokens wait for it to reach state {at}");
    }
    (class, text)
}

/// A value that is only a lower bound.
fn at_least(so: bool, figure: String) -> String {
    if so { format!("≥ {figure}") } else { figure }
}

/// The error of a clock.
fn skew_of((least, most): (f64, f64)) -> String {
    format!("{:+.0} to {:+.0} ms", 1e3 * least, 1e3 * most)
}

/// The page of an origin.
pub(super) fn page(status: &OriginStatus) -> String {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
    let percent = |share: Option<f64>| or_dash(share.map(|one| format!("{:.1} %", 100.0 * one)));
    let mut rows = String::new();
    for one in &status.replicas {
        let (class, state) = state_of(one);
        let _ = write!(
            rows,
            "<tr class={class}><th scope=row>{}<td>{state}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}\
             <td>{}<td>{}",
            of_html(&one.name),
            or_dash(one.lag.map(|lag| at_least(one.unheard, lag.to_string()))),
            or_dash(
                one.staleness_seconds
                    .map(|time| { at_least(one.stale_at_least, format!("{time:.1} s")) })
            ),
            percent(share(one.valid_objects, one.objects)),
            percent(share(one.valid_bytes, one.bytes)),
            or_dash(one.skew_seconds.map(skew_of)),
            or_dash(one.queue.map(|queue| queue.to_string())),
            amount(one.control_bytes),
            amount(one.demand_bytes),
            amount(one.speculative_bytes),
        );
    }
    if rows.is_empty() {
        rows.push_str(
            "<tr><td colspan=11>No replica yet: <code>lull origin ticket</code> lets one in.",
        );
    }
    let mut troubles = String::new();
    if status.lost > 0 {
        let _ = write!(
            troubles,
            "<p class=away>{} bodies are lost: publish their files again.",
            status.lost
        );
    }
    if status.disk_full {
        troubles += "<p class=away>The disk had no room within the last minute: writes are refused until \
                     it has.";
    }
    if status.rotating {
        troubles += "<p>The authority is being replaced: when no replica has to get a certificate, \
                     <code>lull origin rotate --finish</code> ends that.";
    }
    format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta http-equiv=refresh content=2>\
         <meta name=viewport content='width=device-width'><title>Lull origin</title><style>\
         body{{font:16px/1.5 system-ui;max-width:75rem;margin:2rem auto;padding:0 1rem;\
         color:#223;background:#fbfbf9}}h1{{font-weight:500}}table{{border-collapse:collapse;\
         width:100%}}th,td{{text-align:right;padding:.4rem .6rem;border-bottom:1px solid #dde}}\
         th:first-child,td:nth-child(2){{text-align:left}}td:nth-child(2){{font-weight:600}}\
         .here td:nth-child(2){{color:#287a3e}}.late td:nth-child(2){{color:#9a6700}}\
         p.away,.away td:nth-child(2),.off td:nth-child(2){{color:#b3261e}}\
         @media(prefers-color-scheme:dark){{body{{color:#dde;background:#181a1f}}\
         th,td{{border-color:#334}}.here td:nth-child(2){{color:#6fce8a}}\
         .late td:nth-child(2){{color:#e3b341}}\
         p.away,.away td:nth-child(2),.off td:nth-child(2){{color:#ff8a80}}}}</style>\
         <h1>State @{}</h1><p>{} objects, {}; {} more for rollbacks. {} bodies pushed, {} read on demand, \
         {} overtaken in the queue.</p>{troubles}<table><thead><tr><th scope=col>Replica\
         <th scope=col>State<th scope=col>Commits behind<th scope=col>Stale by\
         <th scope=col>Objects here<th scope=col>Bytes here<th scope=col>Clock ahead by\
         <th scope=col>Bodies queued<th scope=col>Control\
         <th scope=col>On demand<th scope=col>Background<tbody>{rows}</table>\n",
        status.sequence,
        status.objects,
        amount(status.bytes),
        amount(status.overwritten_bytes),
        status.pushed,
        status.demands,
        status.absorbed,
    )
}

fn amount(bytes: u64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1_000.0 && unit + 1 < units.len() {
        value /= 1_000.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", units[unit]) }
}

fn of_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replica_names_are_escaped_in_labels_and_html() {
        assert_eq!(escaped("a\"b\\c\n"), "a\\\"b\\\\c\\n");
        assert_eq!(of_html("<b>&\""), "&lt;b>&amp;&quot;");
    }

    #[test]
    fn origin_page_shows_all_values_of_each_replica() {
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
            away_seconds: Some(40.0),
            masked_seconds: Some(30.0),
            to_reach: Some(7),
            queue: Some(0),
            ..PeerStatus::default()
        };
        let unheard = PeerStatus {
            name: "oslo".to_owned(),
            admitted: true,
            unheard: true,
            lag: Some(2),
            staleness_seconds: Some(50.0),
            stale_at_least: true,
            away_seconds: Some(50.0),
            masked_seconds: Some(50.0),
            ..PeerStatus::default()
        };
        let status = OriginStatus {
            life: 1,
            sequence: 5,
            log_after: 0,
            objects: 8,
            bytes: 1_000,
            overwritten_bytes: 4_400,
            lost: 2,
            disk_full: true,
            rotating: true,
            writing: 0,
            pushed: 0,
            demands: 0,
            absorbed: 0,
            resyncs: 0,
            replicas: vec![here, away, unheard],
        };
        let page = page(&status);
        for words in [
            "<td>catching up<td>3<td>1.3 s<td>75.0 %<td>90.0 %<td>-12 to +3 ms<td>77\
             <td>1.1 kB<td>2.2 kB<td>3.3 kB",
            "away for 40 s, masked for 30 s at most, to get a certificate, old session tokens wait for it to reach \
             state 7<td>–<td>–<td>–<td>–<td>–<td>0",
            "away for 50 s at least, masked for all of that at most<td>≥ 2<td>≥ 50.0 s<td>–<td>–<td>–<td>–<td>",
            "4.4 kB more for rollbacks",
            "2 bodies are lost",
            "The disk had no room",
            "<code>lull origin rotate --finish</code>",
        ] {
            assert!(page.contains(words), "no {words} in {page}");
        }
        let metrics = of_origin(&status);
        for line in [
            "lull_replica_away_seconds{replica=\"london\"} 40\n",
            "lull_replica_to_renew{replica=\"london\"} 1\n",
            "lull_replica_unheard{replica=\"london\"} 0\n",
            "lull_replica_unheard{replica=\"oslo\"} 1\n",
            "lull_replica_away_seconds{replica=\"oslo\"} 50\n",
            "lull_replica_staleness_seconds{replica=\"oslo\"} 50\n",
            "lull_replica_lag{replica=\"oslo\"} 2\n",
            "lull_replica_queue{replica=\"london\"} 0\n",
            "lull_origin_overwritten_bytes 4400\n",
            "lull_origin_lost_bodies 2\n",
            "lull_origin_disk_full 1\n",
        ] {
            assert!(metrics.contains(line), "no {line} in {metrics}");
        }
        assert!(!metrics.contains("lull_replica_queue{replica=\"oslo\"}"), "nobody knows that");
    }

    #[test]
    fn replica_metrics_are_valid_prometheus_text() {
        let status = ReplicaStatus {
            replica: 3,
            life: 1,
            connected: false,
            refused: Some("it was revoked".to_owned()),
            away_seconds: Some(4.5),
            masked_seconds: Some(2.0),
            last_outage: Some(OutageStatus {
                began_seconds_ago: 2_520.0,
                lasted_seconds: 2_400.5,
                masked_seconds: 180.0,
            }),
            sequence: 7,
            buffered: 4,
            staleness_seconds: None,
            skew_seconds: Some((-0.25, 0.5)),
            objects: 9,
            valid_objects: 8,
            bytes: 1_000,
            valid_bytes: 900,
            buffered_bodies: 4,
            buffered_valid_bodies: 1,
            buffered_bytes: 400,
            buffered_valid_bytes: 150,
            disk_full: true,
            waiting: 2,
            control_bytes: 11,
            demand_bytes: 22,
            speculative_bytes: 33,
            demands: 5,
            masked: 6,
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
            ("away_seconds", "gauge", &[("", "4.5")]),
            ("masked_seconds", "gauge", &[("", "2")]),
            ("last_outage_age_seconds", "gauge", &[("", "2520")]),
            ("last_outage_seconds", "gauge", &[("", "2400.5")]),
            ("last_outage_masked_seconds", "gauge", &[("", "180")]),
            ("masked_reads_total", "counter", &[("", "6")]),
            (
                "skew_seconds",
                "gauge",
                &[("{bound=\"least\"}", "-0.25"), ("{bound=\"most\"}", "0.5")],
            ),
            ("objects", "gauge", &[("", "9")]),
            ("valid_objects", "gauge", &[("", "8")]),
            ("bytes", "gauge", &[("", "1000")]),
            ("valid_bytes", "gauge", &[("", "900")]),
            ("reads_waiting", "gauge", &[("", "2")]),
            ("demands_total", "counter", &[("", "5")]),
            (
                "received_bytes_total",
                "counter",
                &[("{channel=\"demand\"}", "22"), ("{channel=\"speculative\"}", "33")],
            ),
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

    #[test]
    fn amounts_have_three_or_four_digits() {
        for (bytes, expected) in
            [(0, "0 B"), (999, "999 B"), (1_500, "1.5 kB"), (2_000_000, "2.0 MB")]
        {
            assert_eq!(amount(bytes), expected);
        }
    }
}
