//! Connections that start together in a cgroup are admitted one after the other.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use lull_kernel::{Admission, admit};
use lull_testing::{bpf, command, needs};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, connect, getsockopt, socket, sockopt,
};

use crate::connection::{enter, run};

/// The work of a child process, [`connector`]: a cgroup to enter, an address, and how many connections to
/// open at once.
const CONNECTOR: &str = "LULL_TEST_CONNECTOR";

/// A cgroup of a test, removed when it is dropped.
struct TestCgroup(PathBuf);

impl TestCgroup {
    fn new() -> Self {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let root = mounts
            .lines()
            .map(|line| line.split(' ').collect::<Vec<_>>())
            .find(|fields| fields[2] == "cgroup2")
            .expect("cgroup v2 is mounted")[1]
            .to_owned();
        let path = PathBuf::from(root).join(format!("lull_test.{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        TestCgroup(path)
    }

    fn admit(&self, admission: Admission) {
        admit(File::open(&self.0).unwrap().as_fd(), admission).unwrap();
    }

    /// The results of connections of a child process in this cgroup, in the order in which they were opened.
    fn connect(&self, to: SocketAddr, count: usize) -> Vec<Attempt> {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "admission::connector", "--nocapture"])
            .env(CONNECTOR, format!("{} {to} {count}", self.0.display()))
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}");
        let results: Vec<Attempt> = text.lines().filter_map(Attempt::parse).collect();
        assert_eq!(results.len(), count, "{text}");
        results
    }
}

/// An attempt to connect.
#[derive(Debug)]
struct Attempt {
    /// Milliseconds from its own beginning.
    took: u64,
    /// Milliseconds from the beginning of the first one.
    at: u64,
    /// `connected`, or an error.
    outcome: String,
}

impl Attempt {
    fn print(&self) {
        println!("RESULT {} {} {}", self.took, self.at, self.outcome);
    }

    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split_once("RESULT ")?.1.splitn(3, ' ');
        Some(Attempt {
            took: fields.next()?.parse().ok()?,
            at: fields.next()?.parse().ok()?,
            outcome: fields.next()?.to_owned(),
        })
    }
}

impl Drop for TestCgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// A child process of the tests below.
#[test]
fn connector() {
    let Ok(setting) = std::env::var(CONNECTOR) else { return };
    let [cgroup, address, count] = setting.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{setting}")
    };
    fs::write(format!("{cgroup}/cgroup.procs"), std::process::id().to_string()).unwrap();
    let address: SocketAddr = address.parse().unwrap();
    let sockets: Vec<(Instant, OwnedFd)> =
        (0..count.parse().unwrap()).map(|_| (Instant::now(), begin(address))).collect();
    let mut results: Vec<Option<Attempt>> = sockets.iter().map(|_| None).collect();
    while results.iter().any(Option::is_none) {
        for at in ready(&sockets, &results) {
            let (begun, socket) = &sockets[at];
            let millis = |begun: &Instant| begun.elapsed().as_millis() as u64;
            let (took, at_time) = (millis(begun), millis(&sockets[0].0));
            results[at] = Some(Attempt { took, at: at_time, outcome: outcome(socket) });
        }
    }
    println!();
    results.iter().flatten().for_each(Attempt::print);
}

fn begin(address: SocketAddr) -> OwnedFd {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Inet, SockType::Stream, flags, None).unwrap();
    let begun = connect(std::os::fd::AsRawFd::as_raw_fd(&socket), &SockaddrStorage::from(address));
    assert_eq!(begun, Err(Errno::EINPROGRESS));
    socket
}

/// The sockets that have a result now and had none before.
fn ready<T>(sockets: &[(Instant, OwnedFd)], results: &[Option<T>]) -> Vec<usize> {
    let open: Vec<usize> = (0..sockets.len()).filter(|&at| results[at].is_none()).collect();
    let mut polled: Vec<PollFd<'_>> =
        open.iter().map(|&at| PollFd::new(sockets[at].1.as_fd(), PollFlags::POLLOUT)).collect();
    poll(&mut polled, PollTimeout::from(100u16)).unwrap();
    let has_events =
        |polled: &PollFd<'_>| polled.revents().is_some_and(|events| !events.is_empty());
    open.into_iter().zip(&polled).filter(|(_, polled)| has_events(polled)).map(|it| it.0).collect()
}

fn outcome(socket: &OwnedFd) -> String {
    match getsockopt(socket, sockopt::SocketError).unwrap() {
        0 => "connected".to_owned(),
        error => Errno::from_raw(error).to_string(),
    }
}

/// A server that accepts all connections. One that did not would drop SYNs when its queue of 129 is full.
fn accepting() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || listener.incoming().collect::<Vec<_>>());
    address
}

/// When all of them were connected, from the beginning of the first one, in milliseconds.
fn connected_at(attempts: &[Attempt]) -> Vec<u64> {
    assert!(attempts.iter().all(|attempt| attempt.outcome == "connected"), "{attempts:?}");
    attempts.iter().map(|attempt| attempt.at).collect()
}

#[test]
fn connections_that_start_together_are_spread_out() {
    needs!(bpf(), command("ip"));
    enter();
    let address = accepting();
    let cgroup = TestCgroup::new();
    let admission =
        Admission { gap: Duration::from_millis(20), longest: Duration::from_millis(600) };
    cgroup.admit(admission);
    let times = connected_at(&cgroup.connect(address, 32));
    // None comes before its time, which the kernel counts in ticks of up to ten milliseconds.
    assert!(times[4] >= 60, "{times:?}");
    assert!(times[31] >= 350, "{times:?}");
    // The longest wait is approached, and not exceeded.
    let times = connected_at(&cgroup.connect(address, 100));
    assert!(times[99] >= 500, "{times:?}");
    assert!(times[99] <= lull_testing::bound(20_000, 650), "{times:?}");
}

/// Packets received from a device.
fn received(device: &str) -> u64 {
    let counts = fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let line = counts.lines().find_map(|line| line.trim().strip_prefix(device)?.strip_prefix(':'));
    line.unwrap().split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Delayed connections give up no earlier than others, and send no more SYNs.
#[test]
fn held_connection_does_not_give_up_early() {
    needs!(bpf(), command("ip"));
    enter();
    run("ip link add va type veth peer name vb");
    // Then only packets of this test are on the link.
    let _ = fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
    run("ip link set va up");
    run("ip link set vb up");
    run("ip addr add 10.1.0.1/24 dev va");
    run("ip neigh add 10.1.0.2 lladdr 02:00:00:00:00:02 dev va");
    fs::write("/proc/sys/net/ipv4/tcp_syn_retries", "1").unwrap();
    let cgroup = TestCgroup::new();
    cgroup.admit(Admission { gap: Duration::from_millis(30), ..Admission::default() });
    let address = "10.1.0.2:7000".parse().unwrap();
    let alone = cgroup.connect(address, 1).remove(0);
    let syns = received("vb");
    let together = cgroup.connect(address, 4);
    for attempt in [&alone].into_iter().chain(&together) {
        assert!(attempt.outcome.contains("ETIMEDOUT"), "{attempt:?}");
        // Timers are randomly late; without more retries it would be a tenth of the time.
        assert!(2 * attempt.took >= alone.took, "{attempt:?} {alone:?}");
    }
    assert!(syns >= 2, "{syns}");
    let more = received("vb") - syns;
    assert!(more <= 4 * syns, "{more} SYNs of four connections, {syns} of one");
}

/// Connections to other networks do not wait for each other.
#[test]
fn paths_admit_connections_independently() {
    needs!(bpf(), command("ip"));
    enter();
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let cgroup = TestCgroup::new();
    let admission = Admission { gap: Duration::from_secs(30), longest: Duration::from_secs(30) };
    cgroup.admit(admission);
    for network in 0..3 {
        let times =
            connected_at(&cgroup.connect(SocketAddr::from(([127, 0, network, 1], port)), 1));
        assert!(times[0] < 25_000, "{times:?}");
    }
}
