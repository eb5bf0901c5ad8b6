//! Background sockets on this machine's kernel, over loopback.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::{
    IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket,
};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};
use std::{env, fs};

use lull_cc::NiceParameters;
use lull_kernel::{Choice, Ending, RegisteredControl, register_control, run};
use lull_testing::{PublicCopy, bpf, needs, root};
use lull_transport::{
    Background, Carrier, Dscp, Error, Options, Phase, TcpInfo, background, controlled_sockets,
};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, connect, getsockopt, setsockopt, socket,
    sockopt,
};
use socket2::{Domain, Protocol, Socket, Type};

/// No congestion control has this name.
const MISSING: &str = "lull-missing";
/// Lower effort as the byte of the IP header (RFC 8622).
const LE: i32 = 4;

/// A variant of `nice` under its own name, until the end of the test.
fn registered(suffix: &str) -> (String, RegisteredControl) {
    let name = format!("lt{suffix}{}", std::process::id() % 1_000_000);
    let held = register_control(&name, &NiceParameters::refined()).unwrap();
    (name, held)
}

fn user_space() -> Options {
    Options::new().congestion_control(MISSING)
}

fn loopback() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Both ends of a connection over loopback.
fn pair() -> (TcpStream, TcpStream) {
    let (listener, address) = loopback();
    let stream = TcpStream::connect(address).unwrap();
    (stream, listener.accept().unwrap().0)
}

/// The same over MPTCP, at an address of the loopback.
fn multipath_pair(address: IpAddr) -> io::Result<(TcpStream, TcpStream)> {
    let address = SocketAddr::from((address, 0));
    let make = || Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::MPTCP));
    let listener = make()?;
    listener.bind(&address.into())?;
    listener.listen(1)?;
    let stream = make()?;
    stream.connect(&listener.local_addr()?)?;
    Ok((stream.into(), listener.accept()?.0.into()))
}

/// In both versions of IP.
const LOOPBACKS: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

fn congestion_control(socket: impl AsFd) -> String {
    getsockopt(&socket.as_fd(), sockopt::TcpCongestion).unwrap().into_string().unwrap()
}

fn tos(socket: impl AsFd) -> i32 {
    getsockopt(&socket.as_fd(), sockopt::Ipv4Tos).unwrap()
}

fn traffic_class(socket: impl AsFd) -> i32 {
    getsockopt(&socket.as_fd(), sockopt::Ipv6TClass).unwrap()
}

fn max_pacing_rate(socket: impl AsFd) -> u64 {
    TcpInfo::of(socket).unwrap().max_pacing_rate
}

/// Waits until `is_done`, ten seconds at most.
fn wait_until(what: &str, mut is_done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !is_done() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Writes for `time` and returns how much the stream accepted.
fn write_for(stream: &mut TcpStream, time: Duration) -> usize {
    stream.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
    let end = Instant::now() + time;
    let mut written = 0;
    while Instant::now() < end {
        match stream.write(&[0; 16_384]) {
            Ok(bytes) => written += bytes,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => panic!("{error}"),
        }
    }
    written
}

/// Reads everything until the end.
fn drain(mut stream: TcpStream) -> thread::JoinHandle<u64> {
    thread::spawn(move || {
        let mut buffer = [0; 65_536];
        let mut total = 0;
        while let Ok(read @ 1..) = stream.read(&mut buffer) {
            total += read as u64;
        }
        total
    })
}

#[test]
fn kernel_carries_where_nice_is_registered() {
    needs!(bpf());
    let (name, _held) = registered("k");
    let (stream, peer) = pair();
    let mut stream = Options::new().congestion_control(&name).stream(stream).unwrap();
    assert_eq!(stream.carrier(), Carrier::Kernel);
    assert_eq!(congestion_control(&stream), name);
    assert_eq!(max_pacing_rate(&stream), u64::MAX);
    let received = drain(peer);
    stream.write_all(&[0; 100_000]).unwrap();
    drop(stream);
    assert_eq!(received.join().unwrap(), 100_000);
}

#[test]
fn foreground_after_background_gets_ten_packets_at_once() {
    needs!(bpf());
    let (name, _held) = registered("t");
    let (stream, _peer) = pair();
    let stream = Options::new().congestion_control(&name).stream(stream).unwrap();
    assert_eq!(TcpInfo::of(&stream).unwrap().cwnd, 2);
    setsockopt(&stream.as_fd(), sockopt::TcpCongestion, &OsString::from("reno")).unwrap();
    assert_eq!(TcpInfo::of(&stream).unwrap().cwnd, 10);
}

#[test]
fn user_space_carries_where_nice_is_missing() {
    let (stream, peer) = pair();
    let mut stream = user_space().stream(stream).unwrap();
    assert_eq!(stream.carrier(), Carrier::UserSpace);
    assert_eq!(congestion_control(&stream), "reno");
    let received = drain(peer);
    let written = write_for(&mut stream, Duration::from_secs(1));
    let nice = stream.user_space_nice().unwrap();
    assert!(nice.nice().rounds() > 10, "{} rounds", nice.nice().rounds());
    // Buffered data still drains, and each round in it changes the pacing rate.
    wait_until("the socket never has the pace of its state", || {
        let rate = stream.user_space_nice().unwrap().rate();
        max_pacing_rate(&stream) == rate.bytes_per_second()
    });
    drop(stream);
    assert_eq!(received.join().unwrap(), written as u64);
}

#[test]
fn carrier_can_be_requested() {
    let (stream, _peer) = pair();
    let options = user_space().carrier(Carrier::Kernel);
    let error = options.stream(stream).unwrap_err();
    assert!(matches!(error, Error::NoKernelCarrier { .. }), "{error}");
    assert!(error.to_string().contains("lull kernel load"), "{error}");

    needs!(bpf());
    let (name, _held) = registered("a");
    let (stream, _peer) = pair();
    let options = Options::new().congestion_control(&name).carrier(Carrier::UserSpace);
    assert_eq!(options.stream(stream).unwrap().carrier(), Carrier::UserSpace);
}

/// The hooks of `lull exec` let an option succeed, and set their own.
#[test]
fn overruled_congestion_control_is_detected() {
    const TEST: &str = "overruled_congestion_control_is_detected";
    const ASKED_FOR: &str = "LULL_TEST_ASKED_FOR";
    needs!(bpf());
    if let Ok(name) = env::var(ASKED_FOR) {
        let options = Options::new().congestion_control(&name);
        let (stream, _peer) = pair();
        let error = options.clone().carrier(Carrier::Kernel).stream(stream).unwrap_err();
        assert!(matches!(&error, Error::Overruled { runs, .. } if runs == "reno"), "{error}");
        let (stream, _peer) = pair();
        let stream = options.stream(stream).unwrap();
        assert_eq!((stream.carrier(), &*congestion_control(&stream)), (Carrier::UserSpace, "reno"));
        assert_ne!(max_pacing_rate(&stream), u64::MAX);
        return;
    }
    // A program's runner receives its signals, too.
    if !in_process_of_its_own(TEST, None) {
        return;
    }
    let (name, _held) = registered("o");
    let program = env::current_exe().unwrap();
    let asked_for = format!("{ASKED_FOR}={name}");
    let test = format!("sockets::{TEST}");
    let words = ["env", &asked_for, program.to_str().unwrap(), "--exact", &test, "--nocapture"];
    let choice = Choice {
        congestion: "reno".to_owned(),
        dscp: lull_kernel::Dscp::None,
        automatic: None,
        network_honours_le: false,
        name: None,
        weight: None,
        direction: lull_kernel::Direction::Send,
        udp: lull_kernel::Udp::Pass,
        hours: None,
        mapped_by_parent: false,
        no_receive_hook: false,
    };
    let outcome = run(&words.map(OsString::from), &choice, None).unwrap();
    assert_eq!(outcome.ending, Ending::Exited(0));
}

#[test]
fn kernel_carries_mptcp_connections() {
    needs!(bpf());
    let (name, _held) = registered("m");
    for address in LOOPBACKS {
        let Ok((stream, _peer)) = multipath_pair(address) else {
            let why = format!("no MPTCP to {address}");
            return lull_testing::skip("kernel_carries_mptcp_connections", &why);
        };
        let before = (congestion_control(&stream), tos(&stream));
        let stream = Options::new().congestion_control(&name).stream(stream).unwrap();
        assert_eq!((stream.carrier(), tos(&stream)), (Carrier::Kernel, LE));
        assert_eq!(congestion_control(&stream), name);
        let stream = stream.into_foreground().unwrap();
        assert_eq!((congestion_control(&stream), tos(&stream)), before);
    }
}

/// The kernel does not pace it.
#[test]
fn user_space_leaves_mptcp_unchanged() {
    for address in LOOPBACKS {
        let Ok((stream, _peer)) = multipath_pair(address) else {
            let test = "user_space_leaves_mptcp_unchanged";
            return lull_testing::skip(test, &format!("no MPTCP to {address}"));
        };
        let before = (congestion_control(&stream), tos(&stream));
        let error = user_space().guard(&stream).unwrap_err();
        assert!(matches!(error, Error::NoPacing(_)), "{error}");
        assert!(error.to_string().contains("MPTCP"), "{error}");
        let error = user_space().prepare(&stream).unwrap_err();
        assert!(matches!(error, Error::NoPacing(_)), "{error}");
        assert_eq!(tos(&stream), before.1);
        // An unprivileged user may not restore a congestion control that is restricted.
        if root().is_ok() {
            assert_eq!(congestion_control(&stream), before.0);
        }
    }
}

/// A listener has no connection to control: class, congestion control and pacing rate are restored.
#[test]
fn failed_guard_leaves_the_socket_unchanged() {
    needs!(root());
    let (listener, address) = loopback();
    let state =
        |socket: &TcpListener| (congestion_control(socket), tos(socket), max_pacing_rate(socket));
    let before = state(&listener);
    assert!(matches!(user_space().guard(&listener), Err(Error::NotConnected)));
    assert_eq!(state(&listener), before);
    // It still makes foreground connections.
    let _client = TcpStream::connect(address).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    assert_eq!((congestion_control(&accepted), tos(&accepted)), (before.0, before.1));
    assert_eq!(max_pacing_rate(&accepted), before.2);
}

#[test]
fn packets_are_marked_over_ipv4_and_ipv6() {
    let (stream, _peer) = pair();
    assert_eq!(tos(background(stream).unwrap()), LE);
    let (stream, _peer) = pair();
    assert_eq!(tos(user_space().dscp(Dscp::None).stream(stream).unwrap()), 0);

    let Ok(listener) = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)) else {
        return lull_testing::skip("packets_are_marked_over_ipv4_and_ipv6", "no IPv6");
    };
    let stream = user_space().connect(listener.local_addr().unwrap()).unwrap();
    assert_eq!(traffic_class(&stream), LE);
    // An IPv6 socket with IPv4 traffic.
    let (listener, address) = loopback();
    let SocketAddr::V4(v4) = address else { unreachable!() };
    let stream = user_space().connect((v4.ip().to_ipv6_mapped(), v4.port()).into()).unwrap();
    assert_eq!((traffic_class(&stream), tos(&stream)), (LE, LE));
    drop(listener);
}

#[test]
fn accepted_connection_inherits_the_kernel_carrier() {
    needs!(bpf());
    let (name, _held) = registered("l");
    let (listener, address) = loopback();
    let listener = Options::new().congestion_control(&name).listener(listener).unwrap();
    assert_eq!(listener.carrier(), Carrier::Kernel);
    let _client = TcpStream::connect(address).unwrap();
    // By any way of accepting.
    let (plain, _) = TcpListener::accept(&listener).unwrap();
    assert_eq!((congestion_control(&plain), tos(&plain)), (name.clone(), LE));
    let _client = TcpStream::connect(address).unwrap();
    let (stream, _) = listener.accept().unwrap();
    assert_eq!((stream.carrier(), congestion_control(&stream)), (Carrier::Kernel, name));
}

#[test]
fn accepted_connection_is_controlled_by_user_space() {
    let (listener, address) = loopback();
    let listener = user_space().listener(listener).unwrap();
    assert_eq!(listener.carrier(), Carrier::UserSpace);
    let _client = TcpStream::connect(address).unwrap();
    let (stream, peer) = listener.accept().unwrap();
    assert_eq!((stream.carrier(), tos(&stream)), (Carrier::UserSpace, LE));
    assert!(peer.ip().is_loopback());
    assert!(stream.user_space_nice().is_some());
    // A connection accepted past it is slow, not unlimited.
    let _client = TcpStream::connect(address).unwrap();
    let (plain, _) = TcpListener::accept(&listener).unwrap();
    assert_eq!(max_pacing_rate(&plain), 28_960);
}

#[test]
fn dropped_guard_ends_the_control() {
    let (mut stream, peer) = pair();
    let guard = user_space().guard(&stream).unwrap();
    let received = drain(peer);
    write_for(&mut stream, Duration::from_millis(300));
    drop(guard);
    // One sample may be in progress.
    thread::sleep(Duration::from_millis(50));
    let rate = max_pacing_rate(&stream);
    write_for(&mut stream, Duration::from_millis(500));
    assert_eq!(max_pacing_rate(&stream), rate);
    assert_ne!(rate, u64::MAX);
    stream.shutdown(Shutdown::Both).unwrap();
    received.join().unwrap();
}

/// A socket that the application itself made and connected.
#[test]
fn prepared_stream_is_restored_in_the_foreground() {
    let (_listener, address) = loopback();
    for options in [user_space(), Options::new()] {
        let made = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None);
        let socket = TcpStream::from(made.unwrap());
        let before = (congestion_control(&socket), tos(&socket), max_pacing_rate(&socket));
        let prepared = options.prepare(&socket).unwrap();
        connect(socket.as_raw_fd(), &SockaddrStorage::from(address)).unwrap();
        let stream = prepared.stream(socket).unwrap();
        assert_eq!((stream.carrier(), tos(&stream)), (prepared.carrier(), LE));
        match stream.into_foreground() {
            Ok(socket) => assert_eq!(
                (congestion_control(&socket), tos(&socket), max_pacing_rate(&socket)),
                before
            ),
            // The machine's own congestion control may be restricted to root.
            Err(error) => assert!(error.to_string().contains("restore"), "{error}"),
        }
    }
}

#[test]
fn stream_in_the_foreground_is_unchanged() {
    let (stream, peer) = pair();
    let before = congestion_control(&stream);
    let mut stream = user_space().stream(stream).unwrap();
    assert_ne!(max_pacing_rate(&stream), u64::MAX);
    write_for(&mut stream, Duration::from_millis(50));
    match stream.into_foreground() {
        Ok(stream) => {
            thread::sleep(Duration::from_millis(50));
            assert_eq!(max_pacing_rate(&stream), u64::MAX);
            assert_eq!((congestion_control(&stream), tos(&stream)), (before, 0));
        }
        // An unprivileged user may not restore a congestion control that is restricted.
        Err(error) => assert!(root().is_err(), "{error}"),
    }
    drop(peer);
}

/// With the kernel's carrier, too: it is then unlimited.
#[test]
fn kernel_carrier_releases_a_stream() {
    needs!(bpf());
    let (name, _held) = registered("f");
    let (stream, peer) = pair();
    let before = congestion_control(&stream);
    let mut stream = Options::new().congestion_control(&name).stream(stream).unwrap();
    assert_eq!((congestion_control(&stream), tos(&stream)), (name, LE));
    let received = drain(peer);
    stream.write_all(&[0; 100_000]).unwrap();
    let mut stream = stream.into_foreground().unwrap();
    assert_eq!((congestion_control(&stream), tos(&stream)), (before, 0));
    assert_eq!(max_pacing_rate(&stream), u64::MAX);
    stream.write_all(&[0; 1_000_000]).unwrap();
    drop(stream);
    assert_eq!(received.join().unwrap(), 1_100_000);
}

/// Also if this crate connected it, and it was always a background one.
#[test]
fn connection_remembers_its_foreground_control() {
    needs!(root());
    let (listener, address) = loopback();
    let default = congestion_control(&listener);
    let stream = user_space().connect(address).unwrap().into_foreground().unwrap();
    assert_eq!((congestion_control(&stream), tos(&stream)), (default, 0));
}

/// All sockets that the process has under control are closed, and the thread ends. Runs in a separate
/// process, since the other tests have sockets under control, too.
#[test]
fn closed_sockets_leave_no_work() {
    if !in_process_of_its_own("closed_sockets_leave_no_work", None) {
        return;
    }
    let threads = || fs::read_dir("/proc/self/task").unwrap().count();
    let before = threads();
    let (stream, peer) = pair();
    let (reset, reset_peer) = pair();
    let stream = user_space().stream(stream).unwrap();
    let reset = user_space().stream(reset).unwrap();
    assert_eq!((controlled_sockets(), threads()), (2, before + 1));
    // Closed by this process.
    drop(stream);
    wait_until("one is closed", || controlled_sockets() == 1);
    drop(peer);
    // Closed by the other end and by this process, while the descriptor is still open.
    drop(reset_peer);
    reset.shutdown(Shutdown::Both).unwrap();
    wait_until("both are closed", || controlled_sockets() == 0);
    wait_until("the thread has ended", || threads() == before);
    // And a new one starts when there is work again.
    let (stream, _peer) = pair();
    let stream = user_space().stream(stream).unwrap();
    assert_eq!(controlled_sockets(), 1);
    drop((stream, reset));
    wait_until("all are closed", || controlled_sockets() == 0);
}

/// The application is done, the kernel is not: the pacing rate is still controlled, and the connection ends
/// when all data has arrived.
#[test]
fn data_left_by_a_closed_stream_is_sent_in_background() {
    let (stream, peer) = pair();
    let mut stream = user_space().stream(stream).unwrap();
    stream.set_nonblocking(true).unwrap();
    let mut written = 0;
    while let Ok(bytes) = stream.write(&[0; 65_536]) {
        written += bytes as u64;
    }
    assert!(written > 100_000, "{written}");
    drop(stream);
    // 28 packets a second would take minutes.
    let start = Instant::now();
    assert_eq!(drain(peer).join().unwrap(), written);
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
}

#[test]
fn non_tcp_socket_is_rejected() {
    for carrier in [None, Some(Carrier::Kernel), Some(Carrier::UserSpace)] {
        let options = carrier.map_or(Options::new(), |carrier| Options::new().carrier(carrier));
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        assert!(matches!(options.stream(udp), Err(Error::NotTcp)));
        let (unix, _other) = UnixStream::pair().unwrap();
        assert!(matches!(options.stream(unix), Err(Error::NotTcp)));
        let file = fs::File::open("/dev/null").unwrap();
        assert!(matches!(options.stream(file), Err(Error::NotTcp)));
    }
    let (listener, _) = loopback();
    assert!(matches!(user_space().stream(listener), Err(Error::NotConnected)));
    for name in ["", "a-name-of-16-chars"] {
        let (stream, _peer) = pair();
        let error = Options::new().congestion_control(name).stream(stream).unwrap_err();
        assert!(matches!(error, Error::BadName { .. }), "{error}");
    }
}

#[test]
fn connection_refused_is_an_error() {
    let (listener, address) = loopback();
    drop(listener);
    let error = user_space().connect(address).unwrap_err();
    assert_eq!(error.to_string(), "cannot connect: Connection refused (os error 111)");
}

/// `nobody` may not load anything, but can use the user-space carrier.
#[test]
fn unprivileged_process_can_use_the_background() {
    if !in_process_of_its_own("unprivileged_process_can_use_the_background", Some(65_534)) {
        return;
    }
    assert!(root().is_err());
    let (listener, address) = loopback();
    let mut stream: Background<TcpStream> = user_space().connect(address).unwrap();
    assert_eq!((stream.carrier(), tos(&stream)), (Carrier::UserSpace, LE));
    let received = drain(listener.accept().unwrap().0);
    write_for(&mut stream, Duration::from_millis(500));
    assert!(stream.user_space_nice().unwrap().nice().rounds() > 5);
    assert_eq!(TcpInfo::of(&stream).unwrap().phase, Phase::Open);
    stream.shutdown(Shutdown::Both).unwrap();
    received.join().unwrap();
}

/// `true` in a process that runs only this test, as user `uid` if that is given and this one is root; `false`
/// in this process, after that one has passed.
fn in_process_of_its_own(test: &str, uid: Option<u32>) -> bool {
    const MARK: &str = "LULL_TEST_ALONE";
    if env::var_os(MARK).is_some() {
        return true;
    }
    // A copy in a place that every user may read.
    let copy = PublicCopy::of(&env::current_exe().unwrap());
    let mut command = Command::new(copy.program());
    command
        .args(["--exact", &format!("sockets::{test}"), "--nocapture"])
        .env(MARK, "1")
        .current_dir("/");
    if let (Some(uid), Ok(())) = (uid, root()) {
        command.uid(uid).gid(uid);
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}{complained}");
    false
}
