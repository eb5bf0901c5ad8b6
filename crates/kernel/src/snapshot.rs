//! The background of this machine at one moment, as `lull top` and `lull exporter` show it.
//!
//! [`read_background`](crate::read_background()) reads it as root. Another user gets it from `lull kernel serve`,
//! without the addresses and command lines of other users, or without a server reads what `/proc` and the cgroups
//! show.

use std::collections::HashMap;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::cgroup::Hierarchy;
use crate::error::{Error, Result};
use crate::jobs::{Job, jobs};
use crate::paths::{Phase, SharedPath};
use crate::sockets::Socket;
use crate::status::{Status, status};
use crate::udp::UdpSample;

/// The coverage of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Everything: root asked.
    All,
    /// Everything but addresses, processes and command lines of other users: `lull kernel serve` answered.
    User,
    /// Jobs without traffic and connections: there is no server.
    Jobs,
}

/// The background of this machine at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// When it was read, in microseconds of CLOCK_MONOTONIC.
    pub at_us: u64,
    /// Its coverage.
    pub scope: Scope,
    /// The jobs, the oldest first.
    pub jobs: Vec<JobSample>,
    /// Background connections, those of no job included.
    pub connections: Vec<ConnectionSample>,
    /// Paths that connections share.
    pub paths: Vec<PathSample>,
}

/// A job at one moment. Counts begin with the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSample {
    /// Its number, such as `1234.0`.
    pub id: String,
    /// The name that it was given.
    pub name: Option<String>,
    /// The congestion control of its connections.
    pub congestion: String,
    /// The user that all of its processes belong to.
    pub user: Option<u32>,
    /// Its processes; the one that started first comes first.
    pub processes: Vec<i32>,
    /// The command line of the first process.
    pub command: Option<String>,
    /// How long the first process has been running.
    pub age_seconds: u64,
    /// Whether its processes are frozen.
    pub is_paused: bool,
    /// Payload sent over TCP, retransmissions included.
    pub tcp_sent: Option<u64>,
    /// Payload received over TCP.
    pub tcp_received: Option<u64>,
    /// Payload sent over UDP.
    pub udp_sent: Option<u64>,
    /// UDP that yields, by network.
    #[serde(default)]
    pub udp: Vec<UdpSample>,
    /// Time that its connections have spent yielding, summed over connections.
    pub yielded_us: Option<u64>,
}

/// A background connection at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConnectionSample {
    /// Inode of its network namespace.
    pub network_namespace: u32,
    /// Inode of the socket; 0 once no process holds it.
    pub inode: u64,
    /// Number of its job.
    pub job: Option<String>,
    /// The process that holds it.
    pub pid: Option<i32>,
    /// Name of that process.
    pub process: Option<String>,
    /// Local address and port.
    pub local: Option<SocketAddr>,
    /// Remote address and port.
    pub remote: Option<SocketAddr>,
    /// State of the connection, as ss(8) calls it.
    pub state: String,
    /// The congestion control.
    pub congestion: String,
    /// Congestion window, in packets.
    pub window_packets: Option<f64>,
    /// Receive window, in bytes.
    pub receive_window: u32,
    /// Payload of a full packet, in bytes.
    pub mss: u32,
    /// Smoothed round-trip time; 0 before the first sample.
    pub srtt_us: u64,
    /// Round-trip time of the empty path.
    pub min_rtt_us: Option<u64>,
    /// Time spent yielding, if the connection keeps it itself.
    pub yielded_us: Option<u64>,
    /// Payload that the other side has acknowledged.
    pub bytes_acked: u64,
    /// Payload received in order.
    pub bytes_received: u64,
    /// Its path, as a place in [`Snapshot::paths`].
    pub path: Option<usize>,
}

/// A path that background connections share, at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathSample {
    /// The destination network.
    pub destination: Option<String>,
    /// Index of the egress interface.
    pub interface: u32,
    /// Inode of the network namespace, where a connection is open.
    pub network_namespace: Option<u32>,
    /// Connections that share it.
    pub connections: u32,
    /// How they use the window.
    pub phase: Phase,
    /// The window of all connections together, in packets.
    pub window_packets: f64,
    /// Round-trip time of the empty path.
    pub base_rtt_us: Option<u64>,
    /// Highest delivery rate that was measured.
    pub packets_per_second: u64,
    /// Payload that other connections of this host have sent there since the path is known.
    pub foreground_bytes: Option<u64>,
}

/// Everything; needs the rights of root.
pub(crate) fn read_all() -> Result<Snapshot> {
    assemble(&Hierarchy::open()?, jobs()?, status()?, Scope::All)
}

/// Jobs without traffic and connections; needs no rights.
pub(crate) fn read_jobs() -> Result<Snapshot> {
    assemble(&Hierarchy::open()?, jobs()?, Vec::new(), Scope::Jobs)
}

impl Snapshot {
    /// Without the data of other users that a user must not see: addresses, processes and command lines.
    pub(crate) fn for_user(mut self, uid: u32) -> Self {
        if uid == 0 {
            return self;
        }
        self.scope = Scope::User;
        let mut own = Vec::new();
        for job in &mut self.jobs {
            if job.user == Some(uid) {
                own.push(job.id.clone());
            } else {
                job.command = None;
                job.processes.clear();
                job.udp.iter_mut().for_each(|sample| sample.destination = None);
            }
        }
        let mut own_paths = vec![false; self.paths.len()];
        for connection in &mut self.connections {
            let is_own = match &connection.job {
                Some(job) => own.contains(job),
                None => connection.pid.is_some_and(|pid| user_of(pid) == Some(uid)),
            };
            if is_own {
                if let Some(path) = connection.path {
                    own_paths[path] = true;
                }
                continue;
            }
            connection.pid = None;
            connection.process = None;
            connection.local = None;
            connection.remote = None;
        }
        for (path, is_own) in self.paths.iter_mut().zip(own_paths) {
            if !is_own {
                path.destination = None;
            }
        }
        self
    }
}

fn assemble(
    hierarchy: &Hierarchy,
    jobs: Vec<Job>,
    controls: Vec<Status>,
    scope: Scope,
) -> Result<Snapshot> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map_err(Error::errno("read the clock"))?;
    let mut owners = Owners::default();
    // A process of a job inside a slice belongs to the job.
    for job in jobs.iter().filter(|job| job.is_slice).chain(jobs.iter().filter(|job| !job.is_slice))
    {
        owners.add(hierarchy, job);
    }
    let mut snapshot = Snapshot {
        at_us: now.tv_sec().unsigned_abs() * 1_000_000 + now.tv_nsec().unsigned_abs() / 1000,
        scope,
        jobs: jobs.into_iter().map(job_sample).collect(),
        connections: Vec::new(),
        paths: Vec::new(),
    };
    for control in controls {
        let first = snapshot.paths.len();
        let paths = control.paths.as_deref().unwrap_or_default();
        let places: HashMap<u64, usize> =
            paths.iter().enumerate().map(|(at, path)| (path.epoch, first + at)).collect();
        snapshot.paths.extend(paths.iter().map(path_sample));
        let connections = control.sockets.iter().map(|socket| {
            let path = socket.membership.and_then(|it| places.get(&it.epoch).copied());
            connection_sample(socket, &control.name, owners.job_of(socket), path)
        });
        snapshot.connections.extend(connections);
    }
    for job in &mut snapshot.jobs {
        let own = snapshot.connections.iter().filter(|one| one.job.as_ref() == Some(&job.id));
        let open: u64 = own.filter_map(|one| one.yielded_us).sum();
        job.yielded_us = job.yielded_us.map(|closed| closed + open);
    }
    for connection in &mut snapshot.connections {
        let path = connection.path.map(|at| &snapshot.paths[at]);
        connection.min_rtt_us = connection.min_rtt_us.or_else(|| path?.base_rtt_us);
    }
    Ok(snapshot)
}

/// Which job a socket belongs to: that of its process, or that of the cgroup in which it was made.
#[derive(Default)]
struct Owners {
    by_process: HashMap<i32, String>,
    by_cgroup: HashMap<u64, String>,
}

impl Owners {
    fn add(&mut self, hierarchy: &Hierarchy, job: &Job) {
        self.by_process.extend(job.processes.iter().map(|&pid| (pid, job.id.clone())));
        let mut inodes = Vec::new();
        list_inodes(&hierarchy.path_of(&job.cgroup), DEEPEST, &mut inodes);
        self.by_cgroup.extend(inodes.into_iter().map(|inode| (inode, job.id.clone())));
    }

    fn job_of(&self, socket: &Socket) -> Option<String> {
        let process = socket.owner.as_ref().and_then(|owner| self.by_process.get(&owner.pid));
        process.or_else(|| self.by_cgroup.get(&socket.cgroup)).cloned()
    }
}

/// Cgroups of a job that lie deeper belong to no job.
const DEEPEST: usize = 8;

/// The inodes of a cgroup and of those inside it.
fn list_inodes(directory: &Path, depth: usize, inodes: &mut Vec<u64>) {
    inodes.extend(fs::metadata(directory).map(|metadata| metadata.ino()));
    if depth == 0 {
        return;
    }
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            list_inodes(&entry.path(), depth - 1, inodes);
        }
    }
}

fn user_of(pid: i32) -> Option<u32> {
    fs::metadata(format!("/proc/{pid}")).ok().map(|metadata| metadata.uid())
}

/// The user of all processes.
fn common_user(processes: &[i32]) -> Option<u32> {
    let mut users = processes.iter().filter_map(|&pid| user_of(pid));
    let first = users.next()?;
    users.all(|user| user == first).then_some(first)
}

fn job_sample(job: Job) -> JobSample {
    JobSample {
        user: common_user(&job.processes),
        id: job.id,
        name: job.name,
        congestion: job.congestion,
        processes: job.processes,
        command: Some(job.command),
        age_seconds: job.age.as_secs(),
        is_paused: job.is_paused,
        tcp_sent: job.tcp_bytes,
        tcp_received: job.tcp_received,
        udp_sent: job.udp_bytes,
        udp: job.udp,
        yielded_us: job.yielded.map(|time| time.as_micros() as u64),
    }
}

fn path_sample(path: &SharedPath) -> PathSample {
    PathSample {
        destination: Some(path.destination.to_string()),
        interface: path.interface,
        network_namespace: path.network_namespace,
        connections: path.members,
        phase: path.phase,
        window_packets: path.window.as_f64(),
        base_rtt_us: path.base_rtt.map(|rtt| rtt.as_micros() as u64),
        packets_per_second: path.packets_per_second,
        foreground_bytes: path.foreground.map(|foreground| foreground.bytes),
    }
}

fn connection_sample(
    socket: &Socket,
    congestion: &str,
    job: Option<String>,
    path: Option<usize>,
) -> ConnectionSample {
    let nice = socket.yielding;
    ConnectionSample {
        network_namespace: socket.network_namespace,
        inode: socket.inode,
        job,
        pid: socket.owner.as_ref().map(|owner| owner.pid),
        process: socket.owner.as_ref().map(|owner| owner.command.clone()),
        local: Some(socket.local),
        remote: Some(socket.remote),
        state: socket.state.to_owned(),
        congestion: congestion.to_owned(),
        window_packets: socket.window.map(|window| window.as_f64()),
        receive_window: socket.receive_window,
        mss: socket.mss,
        srtt_us: socket.srtt.as_micros() as u64,
        min_rtt_us: nice.map(|nice| nice.min_rtt.as_micros() as u64),
        yielded_us: nice.map(|nice| nice.yielded.as_micros() as u64),
        bytes_acked: socket.bytes_acked,
        bytes_received: socket.bytes_received,
        path,
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn job(id: &str, user: Option<u32>) -> JobSample {
        JobSample {
            id: id.to_owned(),
            name: Some("backup".to_owned()),
            congestion: "lull".to_owned(),
            user,
            processes: vec![12],
            command: Some("restic backup".to_owned()),
            age_seconds: 1,
            is_paused: false,
            tcp_sent: Some(1),
            tcp_received: Some(2),
            udp_sent: Some(3),
            udp: vec![udp(Some("10.0.0.2".parse().unwrap()))],
            yielded_us: Some(4),
        }
    }

    fn udp(destination: Option<IpAddr>) -> UdpSample {
        UdpSample { destination, bytes: 3, marked: 1, dropped: 2, limit: None, rate: None }
    }

    fn connection(job: Option<&str>, path: Option<usize>) -> ConnectionSample {
        ConnectionSample {
            network_namespace: 1,
            inode: 2,
            job: job.map(str::to_owned),
            pid: Some(-1),
            process: Some("restic".to_owned()),
            local: Some(([10, 0, 0, 1], 1).into()),
            remote: Some(([10, 0, 0, 2], 2).into()),
            state: "ESTAB".to_owned(),
            congestion: "lull".to_owned(),
            window_packets: Some(2.0),
            receive_window: 3,
            mss: 1448,
            srtt_us: 4,
            min_rtt_us: None,
            yielded_us: None,
            bytes_acked: 5,
            bytes_received: 6,
            path,
        }
    }

    fn path() -> PathSample {
        PathSample {
            destination: Some("10.0.0.0/24".to_owned()),
            interface: 1,
            network_namespace: None,
            connections: 1,
            phase: Phase::Use,
            window_packets: 2.0,
            base_rtt_us: Some(3),
            packets_per_second: 4,
            foreground_bytes: Some(5),
        }
    }

    fn snapshot() -> Snapshot {
        Snapshot {
            at_us: 1,
            scope: Scope::All,
            jobs: vec![job("1.0", Some(1000)), job("2.0", Some(1001)), job("3.0", None)],
            connections: vec![
                connection(Some("1.0"), Some(0)),
                connection(Some("2.0"), Some(1)),
                connection(None, None),
            ],
            paths: vec![path(), path()],
        }
    }

    #[test]
    fn user_sees_no_addresses_of_other_users() {
        let seen = snapshot().for_user(1000);
        assert_eq!(seen.scope, Scope::User);
        assert_eq!(seen.jobs[0], job("1.0", Some(1000)));
        let masked = |id, user| JobSample {
            command: None,
            processes: vec![],
            udp: vec![udp(None)],
            ..job(id, user)
        };
        assert_eq!(seen.jobs[1..], [masked("2.0", Some(1001)), masked("3.0", None)]);
        assert_eq!(seen.connections[0], connection(Some("1.0"), Some(0)));
        for other in &seen.connections[1..] {
            assert_eq!((other.pid, &other.process), (None, &None));
            assert_eq!((other.local, other.remote), (None, None));
            assert_eq!(other.bytes_acked, 5);
        }
        assert_eq!(seen.paths, [path(), PathSample { destination: None, ..path() }]);
    }

    #[test]
    fn root_sees_everything_through_the_server() {
        assert_eq!(snapshot().for_user(0), snapshot());
    }

    #[test]
    fn snapshot_survives_its_text_form() {
        let text = serde_json::to_string(&snapshot()).unwrap();
        assert!(!text.contains('\n'));
        assert_eq!(serde_json::from_str::<Snapshot>(&text).unwrap(), snapshot());
    }
}
