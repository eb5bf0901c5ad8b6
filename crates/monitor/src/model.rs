//! Turns snapshots into views.

pub(crate) mod activity;
pub(crate) mod table;
mod udp;
pub(crate) mod view;

use core::net::SocketAddr;
use std::collections::BTreeMap;

use lull_kernel::{ConnectionSample, JobSample, PathSample, Snapshot};

use activity::{Activity, Direction, Interval};
use view::{Row, Totals, View, sum};

/// The snapshot that rates are relative to.
#[derive(Clone, Debug, Default)]
pub struct Model {
    before: Option<Snapshot>,
}

impl Model {
    /// Takes the next snapshot, and shows what has happened since the last one.
    pub fn handle_snapshot(&mut self, now: Snapshot) -> View {
        let change = Change::between(self.before.as_ref(), &now);
        let mut connections: Vec<Row> = now
            .connections
            .iter()
            .map(|connection| change.row(connection, job_of(&now, connection)))
            .collect();
        connections.extend(udp::rows(self.before.as_ref(), &now, change.seconds));
        let jobs = change.job_rows(&now, &connections);
        let mut rows = connections;
        rows.extend(jobs.iter().filter(|row| row.connections == 0).cloned());
        let view = View {
            interval_seconds: change.seconds,
            scope: now.scope,
            totals: change.totals(&now),
            connections: rows,
            jobs,
        };
        self.before = Some(now);
        view
    }
}

fn job_of<'a>(snapshot: &'a Snapshot, connection: &ConnectionSample) -> Option<&'a JobSample> {
    let id = connection.job.as_ref()?;
    snapshot.jobs.iter().find(|job| job.id == *id)
}

/// Round-trip time above that of the empty path, in microseconds.
pub(crate) fn queueing_delay(connection: &ConnectionSample) -> Option<u64> {
    let empty = connection.min_rtt_us.filter(|_| connection.srtt_us > 0)?;
    Some(connection.srtt_us.saturating_sub(empty))
}

/// The properties of a connection that do not change while it is open.
type Identity = (u32, u64, Option<SocketAddr>, Option<SocketAddr>);

fn identity(connection: &ConnectionSample) -> Identity {
    (connection.network_namespace, connection.inode, connection.local, connection.remote)
}

/// The properties of a path that do not change while it is known. Its place in the snapshot distinguishes
/// paths that this user must not see.
type PathIdentity = (Option<u32>, u32, Option<String>, usize);

fn path_identity((place, path): (usize, &PathSample)) -> PathIdentity {
    let place = if path.destination.is_some() { 0 } else { place };
    (path.network_namespace, path.interface, path.destination.clone(), place)
}

/// Two snapshots, side by side.
struct Change<'a> {
    seconds: Option<f64>,
    before: BTreeMap<Identity, &'a ConnectionSample>,
    paths: &'a [PathSample],
    foreground: Vec<Option<f64>>,
}

impl<'a> Change<'a> {
    fn between(before: Option<&'a Snapshot>, now: &'a Snapshot) -> Self {
        let elapsed = before.map(|before| now.at_us.saturating_sub(before.at_us));
        let seconds = elapsed.filter(|&micros| micros > 0).map(|micros| micros as f64 / 1e6);
        let known = before.iter().flat_map(|before| &before.connections);
        let bytes_before: BTreeMap<PathIdentity, Option<u64>> = before
            .iter()
            .flat_map(|before| before.paths.iter().enumerate())
            .map(|path| (path_identity(path), path.1.foreground_bytes))
            .collect();
        let foreground = now.paths.iter().enumerate().map(|path| {
            let before = (*bytes_before.get(&path_identity(path))?)?;
            // A path that was forgotten in between begins at zero again.
            Some(path.1.foreground_bytes?.saturating_sub(before) as f64 / seconds?)
        });
        Change {
            seconds,
            before: known.map(|one| (identity(one), one)).collect(),
            paths: &now.paths,
            foreground: foreground.collect(),
        }
    }

    /// Bytes that a connection has sent and received in the interval. A connection that is new has done so since.
    fn bytes(&self, now: &ConnectionSample) -> (u64, u64) {
        let before = self.before.get(&identity(now));
        let (sent, received) = before.map_or((0, 0), |one| (one.bytes_acked, one.bytes_received));
        (now.bytes_acked.saturating_sub(sent), now.bytes_received.saturating_sub(received))
    }

    fn per_second(&self, bytes: u64) -> Option<f64> {
        self.seconds.map(|seconds| bytes as f64 / seconds)
    }

    fn interval(&self, now: &ConnectionSample, bytes: u64) -> Interval {
        let before = self.before.get(&identity(now)).and_then(|before| before.yielded_us);
        let yielded = now.yielded_us.map(|micros| micros.saturating_sub(before.unwrap_or(0)));
        Interval {
            bytes,
            yielding: yielded.zip(self.seconds).map(|(micros, time)| micros as f64 / 1e6 / time),
            phase: now.path.map(|at| self.paths[at].phase),
        }
    }

    fn row(&self, now: &ConnectionSample, job: Option<&JobSample>) -> Row {
        let (sent, received) = self.bytes(now);
        let direction = match self.seconds {
            Some(_) if sent + received > 0 => Direction::of(sent, received),
            _ => Direction::of(now.bytes_acked, now.bytes_received),
        };
        let (moved, bytes, window) = match direction {
            Direction::Send => (sent, now.bytes_acked, now.window_packets),
            Direction::Receive => {
                let packets = f64::from(now.receive_window) / f64::from(now.mss.max(1));
                (received, now.bytes_received, Some(packets))
            }
        };
        let rate = self.per_second(moved);
        let is_paused = job.is_some_and(|job| job.is_paused);
        let activity = match (is_paused, self.seconds) {
            (true, _) => Some(Activity::Paused),
            (false, Some(_)) => Some(self.interval(now, sent + received).activity()),
            (false, None) => None,
        };
        Row {
            job: now.job.clone(),
            name: job.and_then(|job| job.name.clone()),
            process: now.process.clone(),
            pid: now.pid,
            peer: now.remote,
            connections: 1,
            udp: None,
            direction,
            bytes_per_second: rate,
            window_packets: window,
            queueing_delay_us: queueing_delay(now),
            activity,
            bytes,
            spare_share: rate
                .filter(|_| direction == Direction::Send)
                .and_then(|rate| Some(rate / self.spare(now)?))
                .map(|share| share.min(1.0)),
            foreground_per_second: now.path.and_then(|at| self.foreground[at]),
        }
    }

    /// Bytes per second that the host's foreground leaves of the highest rate of the path.
    fn spare(&self, now: &ConnectionSample) -> Option<f64> {
        let at = now.path?;
        let capacity = self.paths[at].packets_per_second as f64 * f64::from(now.mss);
        let spare = capacity - self.foreground[at].unwrap_or(0.0);
        (spare > 0.0).then_some(spare)
    }

    fn job_rows(&self, now: &Snapshot, connections: &[Row]) -> Vec<Row> {
        let mut rows: Vec<Row> = now
            .jobs
            .iter()
            .map(|job| {
                let own: Vec<Row> = connections
                    .iter()
                    .filter(|row| row.job.as_ref() == Some(&job.id))
                    .cloned()
                    .collect();
                job_row(job, Row::sum(&own))
            })
            .collect();
        let without: Vec<Row> =
            connections.iter().filter(|row| row.job.is_none()).cloned().collect();
        rows.extend(Row::sum(&without));
        rows
    }

    fn totals(&self, now: &Snapshot) -> Totals {
        let moved = now.connections.iter().map(|connection| self.bytes(connection));
        let (sent, received) =
            moved.fold((0, 0), |(sent, received), one| (sent + one.0, received + one.1));
        Totals {
            jobs: now.jobs.len(),
            connections: now.connections.len(),
            sent_per_second: self.per_second(sent),
            received_per_second: self.per_second(received),
            foreground_per_second: sum(self.foreground.iter().copied()),
        }
    }
}

/// The row of a job. Its bytes include connections that are closed.
fn job_row(job: &JobSample, sum: Option<Row>) -> Row {
    let (sent, received) = (job.tcp_sent.unwrap_or(0), job.tcp_received.unwrap_or(0));
    let idle = if job.is_paused { Activity::Paused } else { Activity::Idle };
    let row = sum.unwrap_or(Row {
        job: Some(job.id.clone()),
        name: job.name.clone(),
        process: None,
        pid: None,
        peer: None,
        connections: 0,
        udp: None,
        direction: Direction::of(sent, received),
        bytes_per_second: None,
        window_packets: None,
        queueing_delay_us: None,
        activity: Some(idle),
        bytes: 0,
        spare_share: None,
        foreground_per_second: None,
    });
    let total = match row.direction {
        Direction::Send => sent,
        Direction::Receive => received,
    };
    Row {
        process: job.command.clone(),
        pid: job.processes.first().copied(),
        bytes: row.bytes.max(total),
        ..row
    }
}

#[cfg(test)]
pub(crate) mod tests;
