//! A snapshot as metrics for Prometheus.
//!
//! Series are per job and per path, not per connection: connections come and go too often to be labels.

use std::sync::atomic::AtomicU64;

use lull_kernel::{JobSample, PathSample, Phase, Snapshot, UdpSample};
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::model::queueing_delay;

/// Labels of a job: its name, or its number if it has none.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfJob {
    job: String,
    congestion: String,
}

/// `action`: what the virtual queue did to a packet above the limit.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfAction {
    job: String,
    congestion: String,
    action: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfTraffic {
    job: String,
    congestion: String,
    protocol: &'static str,
}

/// Labels of a path: the destination network, and the index of the egress interface.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfPath {
    destination: String,
    interface: u32,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfPhase {
    destination: String,
    interface: u32,
    phase: &'static str,
}

type Gauges<Labels> = Family<Labels, Gauge<f64, AtomicU64>>;
type Counters<Labels> = Family<Labels, Counter>;
type SecondCounters<Labels> = Family<Labels, Counter<f64, AtomicU64>>;

/// Metrics of a snapshot in the text format of OpenMetrics 1.0.
///
/// # Panics
/// Never: it writes to memory.
pub fn metrics(snapshot: &Snapshot) -> String {
    let mut registry = Registry::default();
    register_jobs(&mut registry, snapshot);
    register_udp(&mut registry, snapshot);
    register_paths(&mut registry, snapshot);
    let mut text = String::new();
    text::encode(&mut text, &registry).expect("memory takes all text");
    text
}

fn register_jobs(registry: &mut Registry, snapshot: &Snapshot) {
    let jobs: Gauge = Gauge::default();
    jobs.set(i64::try_from(snapshot.jobs.len()).unwrap_or(i64::MAX));
    let (sent, received) = (Counters::<OfTraffic>::default(), Counters::<OfTraffic>::default());
    let yielding = SecondCounters::<OfJob>::default();
    let gauges: [Gauges<OfJob>; 6] = Default::default();
    let [processes, connections, paused, age, window, delay] = &gauges;
    for job in &snapshot.jobs {
        let labels = of_job(job);
        let traffic = |protocol| OfTraffic {
            job: labels.job.clone(),
            congestion: labels.congestion.clone(),
            protocol,
        };
        let count = |family: &Counters<OfTraffic>, protocol, bytes: Option<u64>| {
            if let Some(bytes) = bytes {
                family.get_or_create(&traffic(protocol)).inc_by(bytes);
            }
        };
        count(&sent, "tcp", job.tcp_sent);
        count(&sent, "udp", job.udp_sent);
        count(&received, "tcp", job.tcp_received);
        if let Some(micros) = job.yielded_us {
            yielding.get_or_create(&labels).inc_by(micros as f64 / 1e6);
        }
        let set = |family: &Gauges<OfJob>, value: f64| {
            family.get_or_create(&labels).set(value);
        };
        if !job.processes.is_empty() {
            set(processes, job.processes.len() as f64);
        }
        set(paused, f64::from(u8::from(job.is_paused)));
        set(age, job.age_seconds as f64);
        let own = snapshot.connections.iter().filter(|one| one.job.as_ref() == Some(&job.id));
        let own: Vec<_> = own.collect();
        set(connections, own.len() as f64);
        set(window, own.iter().filter_map(|one| one.window_packets).sum());
        if let Some(micros) = own.iter().filter_map(|one| queueing_delay(one)).max() {
            set(delay, micros as f64 / 1e6);
        }
    }
    registry.register("lull_jobs", "Jobs in the background", jobs);
    registry.register("lull_job_sent_bytes", "Payload that a job has sent", sent);
    let help = "Payload that a job has received";
    registry.register("lull_job_received_bytes", help, received);
    let help = "Time that closed connections of a job have spent yielding, summed over connections";
    registry.register("lull_job_yielding_seconds", help, yielding);
    let [processes, connections, paused, age, window, delay] = gauges;
    registry.register("lull_job_processes", "Processes of a job", processes);
    registry.register("lull_job_connections", "Open background connections of a job", connections);
    registry.register("lull_job_paused", "1 while the processes of a job are frozen", paused);
    registry.register("lull_job_age_seconds", "Age of the first process of a job", age);
    let help = "Sum of the congestion windows of a job, in packets";
    registry.register("lull_job_window_packets", help, window);
    let help = "Longest queueing delay of a job's connections: round-trip time above that of the empty path";
    registry.register("lull_job_queueing_delay_seconds", help, delay);
}

/// Jobs without `--udp yield` have none of these.
fn register_udp(registry: &mut Registry, snapshot: &Snapshot) {
    let bytes = Counters::<OfJob>::default();
    let packets = Counters::<OfAction>::default();
    let networks = Gauges::<OfJob>::default();
    for job in snapshot.jobs.iter().filter(|job| !job.udp.is_empty()) {
        let labels = of_job(job);
        let sum = |value: fn(&UdpSample) -> u64| job.udp.iter().map(value).sum::<u64>();
        bytes.get_or_create(&labels).inc_by(sum(|one| one.bytes));
        for (action, count) in [("mark", sum(|one| one.marked)), ("drop", sum(|one| one.dropped))] {
            let OfJob { job, congestion } = labels.clone();
            packets.get_or_create(&OfAction { job, congestion, action }).inc_by(count);
        }
        let limited = job.udp.iter().filter(|one| one.limit.is_some()).count();
        networks.get_or_create(&labels).set(limited as f64);
    }
    let help = "Bytes that a job has sent over UDP in the background (--udp yield)";
    registry.register("lull_job_udp_bytes", help, bytes);
    let help = "Packets over UDP above the limit of their network, by action: mark (ECN) or drop";
    registry.register("lull_job_udp_limited_packets", help, packets);
    let help = "Networks whose limit for a job's packets over UDP is known by echo requests";
    registry.register("lull_job_udp_measured_networks", help, networks);
}

fn register_paths(registry: &mut Registry, snapshot: &Snapshot) {
    let foreground = Counters::<OfPath>::default();
    let phases = Gauges::<OfPhase>::default();
    let gauges: [Gauges<OfPath>; 4] = Default::default();
    let [connections, window, rtt, rate] = &gauges;
    for path in &snapshot.paths {
        let labels = of_path(path);
        let add = |family: &Gauges<OfPath>, value: f64| {
            // Paths of several network namespaces may have the same labels.
            family.get_or_create(&labels).inc_by(value);
        };
        add(connections, f64::from(path.connections));
        add(window, path.window_packets);
        add(rate, path.packets_per_second as f64);
        if let Some(micros) = path.base_rtt_us {
            rtt.get_or_create(&labels).set(micros as f64 / 1e6);
        }
        if let Some(bytes) = path.foreground_bytes {
            foreground.get_or_create(&labels).inc_by(bytes);
        }
        for (phase, name) in PHASES {
            let labels = OfPhase {
                destination: labels.destination.clone(),
                interface: labels.interface,
                phase: name,
            };
            let is_it = f64::from(u8::from(path.phase == phase));
            phases.get_or_create(&labels).inc_by(is_it);
        }
    }
    let help =
        "Payload that other connections of this host have sent on a path, since the path is known";
    registry.register("lull_path_foreground_bytes", help, foreground);
    let help = "1 for what the background of a path does: start (searches for the capacity), floor (yields), use \
                (uses spare capacity)";
    registry.register("lull_path_phase", help, phases);
    let [connections, window, rtt, rate] = gauges;
    registry.register("lull_path_connections", "Background connections of a path", connections);
    let help = "Common window of the background of a path, in packets";
    registry.register("lull_path_window_packets", help, window);
    registry.register("lull_path_base_rtt_seconds", "Round-trip time of the empty path", rtt);
    let help = "Highest delivery rate of a path that was measured, in packets per second";
    registry.register("lull_path_peak_packets_per_second", help, rate);
}

const PHASES: [(Phase, &str); 3] =
    [(Phase::Start, "start"), (Phase::Floor, "floor"), (Phase::Use, "use")];

fn of_job(job: &JobSample) -> OfJob {
    let label = job.name.as_ref().unwrap_or(&job.id);
    OfJob { job: label.clone(), congestion: job.congestion.clone() }
}

fn of_path(path: &PathSample) -> OfPath {
    let destination = path.destination.clone().unwrap_or_else(|| "hidden".to_owned());
    OfPath { destination, interface: path.interface }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::tests::{connection, snapshot};

    #[test]
    fn snapshot_becomes_series_of_jobs_and_paths() {
        let mut snapshot = snapshot(vec![
            connection(5, Some("77.0"), "203.0.113.9:22"),
            connection(6, None, "203.0.113.9:23"),
        ]);
        snapshot.jobs[1].is_paused = true;
        let text = metrics(&snapshot);
        for line in [
            "lull_jobs 2",
            "lull_job_sent_bytes_total{job=\"backup\",congestion=\"lull\",protocol=\"tcp\"} 5000000",
            "lull_job_connections{job=\"backup\",congestion=\"lull\"} 1.0",
            "lull_job_queueing_delay_seconds{job=\"backup\",congestion=\"lull\"} 0.0123",
            "lull_job_paused{job=\"78.0\",congestion=\"lull\"} 1.0",
            "lull_path_phase{destination=\"203.0.113.0/24\",interface=\"2\",phase=\"use\"} 1.0",
            "lull_path_phase{destination=\"203.0.113.0/24\",interface=\"2\",phase=\"floor\"} 0.0",
            "lull_path_foreground_bytes_total{destination=\"203.0.113.0/24\",interface=\"2\"} 1000000",
            "lull_path_base_rtt_seconds{destination=\"203.0.113.0/24\",interface=\"2\"} 0.02",
            "lull_job_yielding_seconds_total{job=\"backup\",congestion=\"lull\"} 1.5",
            "# TYPE lull_job_sent_bytes counter",
            "# EOF",
        ] {
            assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
        }
        assert!(!text.contains("hidden"), "{text}");
        snapshot.paths[0].destination = None;
        assert!(metrics(&snapshot).contains("destination=\"hidden\""));
    }

    #[test]
    fn udp_of_a_job_becomes_series_of_that_job() {
        let mut snapshot = snapshot(Vec::new());
        let sample = |bytes, limit| UdpSample {
            destination: None,
            bytes,
            marked: 3,
            dropped: 4,
            limit,
            rate: None,
        };
        snapshot.jobs[0].udp = vec![sample(1_000, Some(3_000)), sample(500, None)];
        let text = metrics(&snapshot);
        let labels = "job=\"backup\",congestion=\"lull\"";
        for line in [
            format!("lull_job_udp_bytes_total{{{labels}}} 1500"),
            format!("lull_job_udp_limited_packets_total{{{labels},action=\"mark\"}} 6"),
            format!("lull_job_udp_limited_packets_total{{{labels},action=\"drop\"}} 8"),
            format!("lull_job_udp_measured_networks{{{labels}}} 1.0"),
        ] {
            assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
        }
        assert!(!text.contains("udp_bytes_total{job=\"78.0\""), "{text}");
    }

    #[test]
    fn unknown_traffic_has_no_series() {
        let mut snapshot = snapshot(Vec::new());
        for job in &mut snapshot.jobs {
            (job.tcp_sent, job.udp_sent, job.tcp_received) = (None, None, None);
        }
        let text = metrics(&snapshot);
        assert!(!text.contains("lull_job_sent_bytes_total{"), "{text}");
    }
}
