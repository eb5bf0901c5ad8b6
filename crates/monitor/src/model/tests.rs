//! Views of made-up snapshots.

use lull_kernel::{ConnectionSample, JobSample, PathSample, Phase, Scope, Snapshot};

use super::table::{Grouping, Key, Sort, Table};
use super::*;

pub(crate) fn job(id: &str, name: Option<&str>) -> JobSample {
    JobSample {
        id: id.to_owned(),
        name: name.map(str::to_owned),
        congestion: "lull".to_owned(),
        user: Some(1000),
        processes: vec![120],
        command: Some("restic backup /data".to_owned()),
        age_seconds: 1,
        is_paused: false,
        tcp_sent: Some(5_000_000),
        tcp_received: Some(2_000),
        udp_sent: Some(0),
        udp: Vec::new(),
        yielded_us: Some(1_500_000),
    }
}

pub(crate) fn connection(inode: u64, job: Option<&str>, peer: &str) -> ConnectionSample {
    ConnectionSample {
        network_namespace: 1,
        inode,
        job: job.map(str::to_owned),
        pid: Some(120),
        process: Some("restic".to_owned()),
        local: Some("10.0.0.1:40000".parse().unwrap()),
        remote: Some(peer.parse().unwrap()),
        state: "ESTAB".to_owned(),
        congestion: "lull".to_owned(),
        window_packets: Some(12.5),
        receive_window: 65_160,
        mss: 1448,
        srtt_us: 32_300,
        min_rtt_us: Some(20_000),
        yielded_us: None,
        bytes_acked: 1_000_000,
        bytes_received: 1_000,
        path: None,
    }
}

pub(crate) fn path(phase: Phase) -> PathSample {
    PathSample {
        destination: Some("203.0.113.0/24".to_owned()),
        interface: 2,
        network_namespace: Some(1),
        connections: 1,
        phase,
        window_packets: 12.5,
        base_rtt_us: Some(20_000),
        packets_per_second: 1000,
        foreground_bytes: Some(1_000_000),
    }
}

pub(crate) fn snapshot(connections: Vec<ConnectionSample>) -> Snapshot {
    Snapshot {
        at_us: 10_000_000,
        scope: Scope::All,
        jobs: vec![job("77.0", Some("backup")), job("78.0", None)],
        connections,
        paths: vec![path(Phase::Use)],
    }
}

/// The view two seconds after a snapshot that `change` makes the second one of.
pub(crate) fn after(before: &Snapshot, change: impl FnOnce(&mut Snapshot)) -> View {
    let mut model = Model::default();
    model.handle_snapshot(before.clone());
    let mut now = before.clone();
    now.at_us += 2_000_000;
    change(&mut now);
    model.handle_snapshot(now)
}

fn one_on_path() -> Snapshot {
    let mut one = connection(5, Some("77.0"), "203.0.113.9:22");
    one.path = Some(0);
    snapshot(vec![one])
}

#[test]
fn rate_is_bytes_over_the_interval() {
    let view = after(&one_on_path(), |now| now.connections[0].bytes_acked += 500_000);
    assert_eq!(view.interval_seconds, Some(2.0));
    let row = &view.connections[0];
    assert_eq!((row.direction, row.bytes_per_second), (Direction::Send, Some(250_000.0)));
    assert_eq!((row.bytes, row.queueing_delay_us), (1_500_000, Some(12_300)));
    assert_eq!((row.name.as_deref(), row.activity), (Some("backup"), Some(Activity::Using)));
    assert_eq!(view.totals.sent_per_second, Some(250_000.0));
    assert_eq!(view.totals.received_per_second, Some(0.0));
}

#[test]
fn first_view_has_no_rates() {
    let view = Model::default().handle_snapshot(one_on_path());
    let row = &view.connections[0];
    assert_eq!((row.bytes_per_second, row.activity, row.spare_share), (None, None, None));
    assert_eq!((view.interval_seconds, view.totals.sent_per_second), (None, None));
}

#[test]
fn direction_is_that_of_most_bytes() {
    let view = after(&one_on_path(), |now| {
        now.connections[0].bytes_acked += 1_000;
        now.connections[0].bytes_received += 900_000;
    });
    let row = &view.connections[0];
    assert_eq!((row.direction, row.bytes_per_second), (Direction::Receive, Some(450_000.0)));
    assert_eq!((row.window_packets, row.bytes), (Some(45.0), 901_000));
    assert_eq!(row.spare_share, None, "the capacity is that of sending");
}

/// 1000 packets/s of 1448 bytes, of which the foreground has 448 kB/s.
#[test]
fn share_is_relative_to_spare_capacity() {
    let view = after(&one_on_path(), |now| {
        now.connections[0].bytes_acked += 1_000_000;
        now.paths[0].foreground_bytes = Some(1_896_000);
    });
    let row = &view.connections[0];
    assert_eq!(row.foreground_per_second, Some(448_000.0));
    assert_eq!(row.spare_share, Some(0.5));
    assert_eq!(view.totals.foreground_per_second, Some(448_000.0));
}

#[test]
fn foreground_that_takes_all_leaves_no_share() {
    let view = after(&one_on_path(), |now| {
        now.connections[0].bytes_acked += 1;
        now.paths[0].foreground_bytes = Some(9_000_000);
        now.paths[0].phase = Phase::Floor;
    });
    let row = &view.connections[0];
    assert_eq!((row.spare_share, row.activity), (None, Some(Activity::Yielding)));
}

#[test]
fn nice_yields_by_its_own_time() {
    let mut before = snapshot(vec![connection(5, Some("77.0"), "203.0.113.9:22")]);
    before.connections[0].yielded_us = Some(7_000_000);
    let activity = |more: u64| {
        let view = after(&before, |now| {
            now.connections[0].bytes_acked += 1;
            now.connections[0].yielded_us = Some(7_000_000 + more);
        });
        view.connections[0].activity
    };
    assert_eq!(activity(1_500_000), Some(Activity::Yielding));
    assert_eq!(activity(500_000), Some(Activity::Using));
}

#[test]
fn paused_job_is_shown_as_paused() {
    let view =
        after(&one_on_path(), |now| now.jobs.iter_mut().for_each(|job| job.is_paused = true));
    assert!(view.connections.iter().all(|row| row.activity == Some(Activity::Paused)));
    assert!(view.jobs.iter().all(|row| row.activity == Some(Activity::Paused)));
}

/// The inode of a socket is given to another one after it was closed.
#[test]
fn new_connection_with_an_old_inode_counts_from_zero() {
    let view = after(&one_on_path(), |now| {
        now.connections[0].remote = Some("203.0.113.10:22".parse().unwrap());
        now.connections[0].bytes_acked = 600_000;
    });
    assert_eq!(view.connections[0].bytes_per_second, Some(300_000.0));
}

#[test]
fn counts_that_fall_give_no_negative_rate() {
    let view = after(&one_on_path(), |now| {
        now.connections[0].bytes_acked = 0;
        now.paths[0].foreground_bytes = Some(0);
    });
    assert_eq!(view.connections[0].bytes_per_second, Some(0.0));
    assert_eq!(view.totals.foreground_per_second, Some(0.0));
}

#[test]
fn job_sums_its_connections_and_keeps_closed_bytes() {
    let mut before = one_on_path();
    before.connections.push(connection(6, Some("77.0"), "203.0.113.9:23"));
    before.connections.push(connection(7, None, "203.0.113.9:24"));
    let view = after(&before, |now| {
        now.connections.iter_mut().for_each(|one| one.bytes_acked += 100_000);
    });
    let [backup, other, without] = &view.jobs[..] else { panic!("{:?}", view.jobs) };
    assert_eq!((backup.connections, backup.bytes_per_second), (2, Some(100_000.0)));
    assert_eq!((backup.bytes, backup.window_packets), (5_000_000, Some(25.0)));
    assert_eq!(backup.process.as_deref(), Some("restic backup /data"));
    assert_eq!((other.connections, other.activity), (0, Some(Activity::Idle)));
    assert_eq!((without.job.as_deref(), without.connections), (None, 1));
    // Each connection, and the job that has none.
    assert_eq!(view.connections.len(), 4);
}

fn labels(table: &Table, view: &View) -> Vec<String> {
    table
        .rows(view)
        .iter()
        .map(|row| row.peer.map_or("-".to_owned(), |peer| peer.to_string()))
        .collect()
}

#[test]
fn rows_are_sorted_filtered_and_reversed() {
    let mut before = snapshot(vec![
        connection(5, Some("77.0"), "203.0.113.9:1"),
        connection(6, Some("78.0"), "203.0.113.9:2"),
        connection(7, None, "203.0.113.9:3"),
    ]);
    before.connections[2].process = Some("NGINX".to_owned());
    let view = after(&before, |now| {
        for (connection, bytes) in now.connections.iter_mut().zip([2, 3, 1]) {
            connection.bytes_acked += bytes;
        }
    });
    let ports = |table: &Table| {
        labels(table, &view).iter().map(|it| it[12..].to_owned()).collect::<Vec<_>>()
    };
    let mut table = Table::default();
    assert_eq!(ports(&table), ["2", "1", "3"]);
    table.handle_key(Key::Char('r'));
    assert_eq!(ports(&table), ["3", "1", "2"]);
    table.handle_key(Key::Char('r'));
    table.sort = Sort::Peer;
    assert_eq!(ports(&table), ["1", "2", "3"]);
    for key in "/nginx".chars().map(Key::Char).chain([Key::Enter]) {
        assert!(!table.handle_key(key));
    }
    assert_eq!(ports(&table), ["3"]);
    assert!(table.handle_key(Key::Char('q')));
}

#[test]
fn keys_type_the_filter_until_it_is_kept() {
    let mut table = Table::default();
    for key in [Key::Char('/'), Key::Char('q'), Key::Char('p'), Key::Backspace] {
        assert!(!table.handle_key(key));
    }
    assert_eq!((table.filter.as_str(), table.is_typing, table.is_paused), ("q", true, false));
    assert!(!table.handle_key(Key::Escape));
    assert_eq!((table.filter.as_str(), table.is_typing), ("", false));
    table.handle_key(Key::Char('p'));
    table.handle_key(Key::Char('j'));
    assert!(table.is_paused);
    assert_eq!(table.grouping, Grouping::Jobs);
    assert!(table.handle_key(Key::Quit));
}

#[test]
fn scrolling_stops_at_the_end() {
    let mut table = Table::default();
    for _ in 0..3 {
        table.handle_key(Key::PageDown);
    }
    table.clamp(12, 5);
    assert_eq!(table.first(12, 5), 7);
    table.handle_key(Key::Up);
    assert_eq!(table.first(12, 5), 6);
    assert_eq!(table.first(3, 5), 0);
}
