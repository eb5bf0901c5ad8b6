//! Rows for UDP that yields: one per job and network.

use core::net::{IpAddr, SocketAddr};
use std::collections::BTreeMap;

use lull_kernel::{JobSample, Snapshot, UdpSample};

use super::activity::{Activity, Direction};
use super::view::{Refused, Row};

/// The packets of the virtual queue have this length.
const PACKET_BYTES: f64 = 1500.0;

/// The bytes of each job and network so far.
type Bytes<'a> = BTreeMap<(&'a str, IpAddr), u64>;

fn bytes(snapshot: &Snapshot) -> Bytes<'_> {
    let samples = |job: &'_ JobSample| -> Vec<(IpAddr, u64)> {
        job.udp.iter().filter_map(|one| Some((one.destination?, one.bytes))).collect()
    };
    let of_job = |job| samples(job).into_iter().map(|(to, bytes)| ((job.id.as_str(), to), bytes));
    snapshot.jobs.iter().flat_map(of_job).collect()
}

/// The rows of a snapshot, which came so many seconds after the one before.
pub(super) fn rows(before: Option<&Snapshot>, now: &Snapshot, seconds: Option<f64>) -> Vec<Row> {
    let known = before.map(bytes).unwrap_or_default();
    let of_job = |job| {
        let known = &known;
        let row = move |sample| row(job, sample, known, seconds);
        job_samples(job).map(row)
    };
    now.jobs.iter().flat_map(of_job).collect()
}

fn job_samples(job: &JobSample) -> impl Iterator<Item = &UdpSample> {
    job.udp.iter().filter(|sample| sample.bytes > 0)
}

fn row(job: &JobSample, sample: &UdpSample, known: &Bytes<'_>, seconds: Option<f64>) -> Row {
    let before = sample.destination.and_then(|to| known.get(&(job.id.as_str(), to)).copied());
    let sent = before.map(|before| sample.bytes.saturating_sub(before));
    let rate = sent.zip(seconds).map(|(bytes, seconds)| bytes as f64 / seconds);
    let activity = match sent {
        _ if job.is_paused => Some(Activity::Paused),
        None => None,
        Some(_) if sample.is_at_floor() => Some(Activity::Yielding),
        Some(0) => Some(Activity::Idle),
        Some(_) if sample.limit.is_none() => Some(Activity::Starting),
        Some(_) => Some(Activity::Using),
    };
    Row {
        job: Some(job.id.clone()),
        name: job.name.clone(),
        process: Some("(UDP)".to_owned()),
        pid: None,
        peer: sample.destination.map(|to| SocketAddr::new(to, 0)),
        connections: 1,
        udp: Some(Refused { packets_marked: sample.marked, packets_dropped: sample.dropped }),
        direction: Direction::Send,
        bytes_per_second: rate,
        window_packets: sample.limit.map(|limit| limit as f64 / PACKET_BYTES),
        queueing_delay_us: None,
        activity,
        bytes: sample.bytes,
        spare_share: None,
        foreground_per_second: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Model;
    use crate::model::tests::job;
    use lull_kernel::Scope;

    fn sample(bytes: u64, limit: Option<u64>) -> UdpSample {
        let destination = Some("203.0.113.7".parse().unwrap());
        UdpSample { destination, bytes, marked: 3, dropped: 4, limit, rate: limit }
    }

    fn snapshot(at_us: u64, sample: UdpSample) -> Snapshot {
        let job = JobSample { udp: vec![sample], ..job("1.0", Some("sync")) };
        Snapshot { at_us, scope: Scope::All, jobs: vec![job], connections: vec![], paths: vec![] }
    }

    #[test]
    fn udp_of_a_job_is_a_row_with_marks_and_drops() {
        let mut model = Model::default();
        let view = model.handle_snapshot(snapshot(1_000_000, sample(1_000, None)));
        assert_eq!((view.connections.len(), view.jobs.len()), (1, 1));
        assert_eq!(view.connections[0].activity, None);
        for (at, bytes, limit, rate, activity) in [
            (2_000_000, 2_000, None, 1_000.0, Activity::Starting),
            (3_000_000, 6_000, Some(15_000), 4_000.0, Activity::Using),
            (4_000_000, 6_500, Some(3_000), 500.0, Activity::Yielding),
            (5_000_000, 6_500, Some(15_000), 0.0, Activity::Idle),
        ] {
            let view = model.handle_snapshot(snapshot(at, sample(bytes, limit)));
            let row = &view.connections[0];
            assert_eq!((row.bytes_per_second, row.activity), (Some(rate), Some(activity)));
            assert_eq!(row.window_packets, limit.map(|limit| limit as f64 / 1500.0));
            assert_eq!(row.udp, Some(Refused { packets_marked: 3, packets_dropped: 4 }));
            assert_eq!(view.jobs[0].udp, row.udp, "the row of the job has the sums");
        }
    }
}
