//! Connections for tests of a congestion control, and their network.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use lull_kernel::{Parameters, PathTable, Status};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, connect, setsockopt, socket, sockopt,
};

/// A loaded congestion control, unloaded however the test ends.
pub(crate) struct Loaded(pub(crate) String);

impl Loaded {
    /// Loads `lull` under a name of this test process.
    pub(crate) fn lull(table: PathTable) -> Self {
        let loaded = Loaded(format!("lull_t{}", std::process::id()));
        loaded.load(table);
        loaded
    }

    /// Loads it again.
    pub(crate) fn load(&self, table: PathTable) {
        lull_kernel::load(&self.0, Parameters::lull(table, false)).expect("it loads");
    }

    /// The data of `lull kernel status`.
    pub(crate) fn status(&self) -> Status {
        let mut all = self.statuses();
        all.retain(|status| status.is_loaded);
        all.pop().expect("it is loaded")
    }

    /// Sockets on unloaded controls.
    pub(crate) fn unloaded_sockets(&self) -> usize {
        let all = self.statuses();
        all.iter().filter(|status| !status.is_loaded).map(|status| status.sockets.len()).sum()
    }

    fn statuses(&self) -> Vec<Status> {
        let mut all = lull_kernel::status().expect("it is read");
        all.retain(|status| status.name == self.0);
        all
    }

    /// Destination and connections of each path.
    pub(crate) fn members(&self) -> Vec<(String, u32)> {
        let paths = self.status().paths.expect("it shares paths");
        paths.iter().map(|path| (path.destination.to_string(), path.members)).collect()
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        let _ = lull_kernel::unload(&self.0, true);
    }
}

/// A connection whose client runs the congestion control from before the handshake.
pub(crate) struct Connection {
    pub(crate) client: TcpStream,
    pub(crate) server: TcpStream,
}

impl Connection {
    /// Opens one to an address of this host.
    pub(crate) fn open(congestion: &str, address: IpAddr) -> Self {
        let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let listener = TcpListener::bind(any).expect("a listener");
        let port = listener.local_addr().expect("it has an address").port();
        let client = connect_with(congestion, SocketAddr::new(address, port));
        let (server, _) = listener.accept().expect("the connection is there");
        Connection { client, server }
    }

    /// Carries data from client to server.
    pub(crate) fn carry(&mut self, bytes: usize) {
        let mut client = self.client.try_clone().expect("a second handle");
        let writer = thread::spawn(move || client.write_all(&vec![1; bytes]));
        let mut buffer = vec![0; bytes];
        self.server.read_exact(&mut buffer).expect("all arrives");
        writer.join().expect("the writer ends").expect("all is sent");
    }

    /// Carries data from server to client.
    pub(crate) fn carry_back(&mut self, bytes: usize) {
        std::mem::swap(&mut self.client, &mut self.server);
        self.carry(bytes);
        std::mem::swap(&mut self.client, &mut self.server);
    }
}

/// Connects with a congestion control that is chosen before the handshake.
pub(crate) fn connect_with(congestion: &str, to: SocketAddr) -> TcpStream {
    let family = if to.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let socket = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).expect("a socket");
    setsockopt(&socket, sockopt::TcpCongestion, &OsString::from(congestion)).expect("it is loaded");
    connect(std::os::fd::AsRawFd::as_raw_fd(&socket), &SockaddrStorage::from(to))
        .expect("it connects");
    TcpStream::from(socket)
}

/// An address of the loopback device by its last two bytes.
pub(crate) fn loopback(last: [u8; 2]) -> IpAddr {
    Ipv4Addr::new(127, 0, last[0], last[1]).into()
}

/// Namespaces of this test with a loopback device.
pub(crate) fn enter() {
    lull_testing::enter_own_namespaces();
    run("ip link set lo up");
}

/// Runs a command that has to succeed, in the namespaces of this thread.
#[track_caller]
pub(crate) fn run(command: &str) {
    let mut words = command.split(' ');
    let status = Command::new(words.next().expect("a program")).args(words).status();
    assert!(status.is_ok_and(|status| status.success()), "{command}");
}

/// Waits until a condition holds.
#[track_caller]
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(120), "never: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}
