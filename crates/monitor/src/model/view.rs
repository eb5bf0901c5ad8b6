//! The background of a machine over the last interval.

use core::net::SocketAddr;

use lull_kernel::Scope;
use serde::Serialize;

use super::activity::{Activity, Direction};

/// The background of a machine over the last interval. Rates are absent until there are two snapshots.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct View {
    /// Length of the interval in seconds.
    pub interval_seconds: Option<f64>,
    /// The part of the machine that this user may see.
    pub scope: Scope,
    /// Sums over the machine.
    pub totals: Totals,
    /// One row per connection, and one per job without connections.
    pub connections: Vec<Row>,
    /// One row per job, and one for all connections of no job.
    pub jobs: Vec<Row>,
}

/// Sums over the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Totals {
    /// Jobs with at least one process.
    pub jobs: usize,
    /// Background connections.
    pub connections: usize,
    /// Bytes per second that background connections send.
    pub sent_per_second: Option<f64>,
    /// Bytes per second that background connections receive.
    pub received_per_second: Option<f64>,
    /// Bytes per second that other connections of this host send on paths of the background.
    pub foreground_per_second: Option<f64>,
}

/// A connection or a job over the last interval. What is unknown or must not be seen is absent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Number of the job.
    pub job: Option<String>,
    /// Name of the job.
    pub name: Option<String>,
    /// Name of the process; command line in the row of a job.
    pub process: Option<String>,
    /// Number of the process.
    pub pid: Option<i32>,
    /// Remote address.
    pub peer: Option<SocketAddr>,
    /// Connections in this row.
    pub connections: usize,
    /// UDP packets to a network that were marked or dropped, where the row is not TCP.
    pub udp: Option<Refused>,
    /// Direction of most bytes.
    pub direction: Direction,
    /// Bytes per second in that direction.
    pub bytes_per_second: Option<f64>,
    /// Window in packets in that direction.
    pub window_packets: Option<f64>,
    /// Round-trip time above that of the empty path.
    pub queueing_delay_us: Option<u64>,
    /// Its present activity.
    pub activity: Option<Activity>,
    /// Bytes in that direction so far.
    pub bytes: u64,
    /// Rate as a part of the capacity that the host's foreground leaves.
    pub spare_share: Option<f64>,
    /// Bytes per second that other connections of this host send on the same path.
    pub foreground_per_second: Option<f64>,
}

impl Row {
    /// Name or number of the job.
    pub fn job_label(&self) -> &str {
        self.name.as_deref().or(self.job.as_deref()).unwrap_or("-")
    }

    /// Joins rows of one job; `None` without rows.
    pub(super) fn sum(rows: &[Row]) -> Option<Row> {
        let first = rows.first()?;
        let in_direction = |direction| rows.iter().filter(move |row| row.direction == direction);
        let bytes =
            |direction| in_direction(direction).map(|row| row.bytes_per_second.unwrap_or(0.0));
        let weight = |direction| bytes(direction).sum::<f64>();
        let total = |direction| in_direction(direction).map(|row| row.bytes).sum::<u64>();
        let (sent, received) = (weight(Direction::Send), weight(Direction::Receive));
        let direction = if sent == received {
            Direction::of(total(Direction::Send), total(Direction::Receive))
        } else if received > sent {
            Direction::Receive
        } else {
            Direction::Send
        };
        let share = sum(in_direction(direction).map(|row| row.spare_share));
        Some(Row {
            job: first.job.clone(),
            name: first.name.clone(),
            process: first.process.clone(),
            pid: first.pid,
            peer: None,
            connections: rows.iter().map(|row| row.connections).sum(),
            udp: Refused::sum(rows),
            direction,
            bytes_per_second: sum(in_direction(direction).map(|row| row.bytes_per_second)),
            window_packets: sum(in_direction(direction).map(|row| row.window_packets)),
            queueing_delay_us: rows.iter().filter_map(|row| row.queueing_delay_us).max(),
            activity: rows.iter().filter_map(|row| row.activity).min(),
            bytes: total(direction),
            spare_share: share.map(|share| share.min(1.0)),
            foreground_per_second: rows
                .iter()
                .filter_map(|row| row.foreground_per_second)
                .max_by(f64::total_cmp),
        })
    }
}

/// UDP packets above the allowed rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// Packets that got the mark Congestion Experienced.
    pub packets_marked: u64,
    /// Packets that were dropped.
    pub packets_dropped: u64,
}

impl Refused {
    fn sum(rows: &[Row]) -> Option<Refused> {
        rows.iter().filter_map(|row| row.udp).reduce(|a, b| Refused {
            packets_marked: a.packets_marked + b.packets_marked,
            packets_dropped: a.packets_dropped + b.packets_dropped,
        })
    }
}

/// The sum of the values that are known; `None` if none is.
pub(super) fn sum(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    values.flatten().reduce(|a, b| a + b)
}
