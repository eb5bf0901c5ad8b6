//! Connections of this host that share a path share one state in the kernel.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lull_kernel::PathTable;
use lull_testing::{bound, bpf, command, needs};
use nix::sched::{CloneFlags, setns};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{setsockopt, sockopt};
use nix::unistd::Pid;

use crate::connection::{Connection, Loaded, connect_with, enter, eventually, loopback, run};

/// Name and setting of a child process that [`sender`] is.
const SENDER: &str = "LULL_TEST_SENDER";

#[test]
fn connections_to_one_network_share_a_path() {
    needs!(bpf(), command("ip"));
    enter();
    let lull = Loaded::lull(PathTable::default());
    let mut connections: Vec<Connection> =
        ["127.0.0.1", "127.0.0.200", "127.0.1.1", "::1", "::ffff:127.0.0.7"]
            .map(|address| Connection::open(&lull.0, address.parse().unwrap()))
            .into();
    connections.iter_mut().for_each(|connection| connection.carry(20_000));
    let expected = [("127.0.0.0/24", 3), ("127.0.1.0/24", 1), ("::/48", 1)];
    assert_eq!(lull.members(), expected.map(|(name, count)| (name.to_owned(), count)));
    let status = lull.status();
    assert_eq!(status.unshared_connections(), 0);
    for path in status.paths.unwrap() {
        assert!(path.base_rtt.is_some(), "{path:?}");
        assert!(path.window.as_f64() >= 2.0, "{path:?}");
        assert_eq!(path.network_namespace, Some(status.sockets[0].network_namespace));
    }
    drop(connections);
    eventually("connections leave", || lull.members().iter().all(|(_, members)| *members == 0));
}

/// The same address is another host in another network namespace.
#[test]
fn network_namespaces_do_not_share_a_path() {
    needs!(bpf(), command("ip"));
    enter();
    let lull = Loaded::lull(PathTable::default());
    let here = Connection::open(&lull.0, loopback([0, 1]));
    thread::scope(|scope| {
        scope.spawn(|| {
            enter();
            let there = Connection::open(&lull.0, loopback([0, 1]));
            let paths = lull.status().paths.unwrap();
            assert_eq!(paths.len(), 2, "{paths:?}");
            assert_ne!(paths[0].network_namespace, paths[1].network_namespace);
            drop(there);
        });
    });
    drop(here);
}

#[test]
fn connection_runs_nice_while_the_table_is_full() {
    needs!(bpf(), command("ip"));
    enter();
    let lull = Loaded::lull(PathTable { paths: 1, ..PathTable::default() });
    let mut first = Connection::open(&lull.0, loopback([0, 1]));
    let mut second = Connection::open(&lull.0, loopback([1, 1]));
    first.carry(20_000);
    second.carry(200_000);
    let status = lull.status();
    assert_eq!((status.unshared_connections(), status.sockets.len()), (1, 2));
    // Its state of Nice is in another map, which is not pinned.
    assert_eq!(lull.unloaded_sockets(), 0);
    assert_eq!(lull.members(), [("127.0.0.0/24".to_owned(), 1)]);
    drop(first);
    // The unused entry is replaced.
    eventually("it joins a path", || {
        second.carry(1_000);
        lull.status().unshared_connections() == 0
    });
    assert_eq!(lull.members(), [("127.0.1.0/24".to_owned(), 1)]);
}

#[test]
fn unused_path_is_forgotten_after_its_time() {
    needs!(bpf(), command("ip"));
    enter();
    let lull = Loaded::lull(PathTable { kept_seconds: 1, ..PathTable::default() });
    let mut used = Connection::open(&lull.0, loopback([0, 1]));
    drop(Connection::open(&lull.0, loopback([1, 1])));
    // Its connection is open, and silent: it joins again when it continues.
    let mut silent = Connection::open(&lull.0, loopback([2, 1]));
    assert_eq!(lull.members().len(), 3);
    let known = |name: &str| lull.members().iter().any(|(path, _)| path == name);
    let mut last = 3;
    eventually("unused paths are forgotten", || {
        used.carry(1_000);
        // A new path causes a scan of the table.
        drop(Connection::open(&lull.0, loopback([last, 1])));
        last += 1;
        !known("127.0.1.0/24") && !known("127.0.2.0/24")
    });
    assert!(lull.members().contains(&("127.0.0.0/24".to_owned(), 1)));
    silent.carry(1_000);
    assert!(lull.members().contains(&("127.0.2.0/24".to_owned(), 1)));
}

/// A child process of the tests below, which sends to the address in [`SENDER`] until it is killed.
#[test]
fn sender() {
    let Ok(setting) = std::env::var(SENDER) else { return };
    let (congestion, address) = setting.split_once(' ').unwrap();
    let mut client = connect_with(congestion, address.parse().unwrap());
    // Once it is killed, the connection stays until the rest is sent, at the lowest rate if the machine is busy.
    setsockopt(&client, sockopt::SndBuf, &20_000).unwrap();
    while io::Write::write_all(&mut client, &[1; 100_000]).is_ok() {}
}

#[test]
fn killed_leader_leaves_and_another_connection_leads() {
    needs!(bpf(), command("ip"));
    enter();
    let lull = Loaded::lull(PathTable::default());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut senders: Vec<Sender> = (0..4).map(|_| spawn_sender(&lull.0, address)).collect();
    let servers: Vec<TcpStream> = (0..4).map(|_| listener.accept().unwrap().0).collect();
    for server in servers {
        thread::spawn(move || read_all(server));
    }
    for left in (0..4).rev() {
        let mut at = None;
        eventually("a connection leads", || {
            let pid = leader(&lull);
            at = senders.iter().position(|sender| Some(sender.0.id() as i32) == pid);
            at.is_some()
        });
        let killed = senders.remove(at.unwrap());
        let pid = killed.0.id() as i32;
        drop(killed);
        eventually("it leaves", || lull.members() == [("127.0.0.0/24".to_owned(), left)]);
        assert_ne!(leader(&lull), Some(pid));
    }
}

/// A stopped process keeps its connection, and sends nothing.
#[test]
fn stopped_leader_passes_the_lead_on() {
    needs!(bpf(), command("ip"));
    enter();
    let lull = Loaded::lull(PathTable::default());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let senders: Vec<Sender> = (0..3).map(|_| spawn_sender(&lull.0, address)).collect();
    for server in (0..3).map(|_| listener.accept().unwrap().0) {
        thread::spawn(move || read_all(server));
    }
    let mut stopped = Pid::from_raw(0);
    eventually("a connection leads", || {
        let pid = leader(&lull).map(Pid::from_raw);
        stopped = pid.unwrap_or(stopped);
        senders.iter().any(|sender| Some(sender.0.id() as i32) == pid.map(Pid::as_raw))
    });
    kill(stopped, Signal::SIGSTOP).unwrap();
    eventually("another one leads", || leader(&lull).is_some_and(|pid| pid != stopped.as_raw()));
    // Connections lead in turn, but not one that is silent.
    for _ in 0..20 {
        thread::sleep(Duration::from_millis(100));
        assert_ne!(leader(&lull), Some(stopped.as_raw()));
    }
    kill(stopped, Signal::SIGCONT).unwrap();
    eventually("it leads again", || leader(&lull) == Some(stopped.as_raw()));
}

/// The process whose connection leads the first path.
fn leader(lull: &Loaded) -> Option<i32> {
    let status = lull.status();
    let at = status.paths.as_ref()?.first()?.leader?;
    status.sockets[at].owner.clone().map(|owner| owner.pid)
}

/// Without time stamps, round-trip times are those of segments that were sent once.
#[test]
fn path_is_measured_without_timestamps() {
    needs!(bpf(), command("ip"));
    enter();
    std::fs::write("/proc/sys/net/ipv4/tcp_timestamps", "0").unwrap();
    let lull = Loaded::lull(PathTable::default());
    let mut connection = Connection::open(&lull.0, loopback([0, 1]));
    eventually("its rate is known", || {
        connection.carry(200_000);
        let paths = lull.status().paths.expect("it shares paths");
        paths[0].base_rtt.is_some() && paths[0].packets_per_second > 0
    });
}

#[test]
fn connections_to_more_networks_than_the_table_has_run_nice() {
    needs!(bpf(), command("ip"));
    enter();
    setrlimit(Resource::RLIMIT_NOFILE, 20_000, 20_000).expect("root may raise it");
    const COUNT: usize = 5_000;
    let table = PathTable::default();
    let beyond = COUNT - table.paths as usize;
    let lull = Loaded::lull(table);
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut connections = Vec::new();
    for number in 0..COUNT {
        let network = Ipv4Addr::new(127, 1 + (number / 250) as u8, (number % 250) as u8, 1);
        let client = connect_with(&lull.0, SocketAddr::new(network.into(), port));
        let (server, _) = listener.accept().unwrap();
        connections.push(Connection { client, server });
    }
    assert_eq!(lull.status().unshared_connections(), beyond);
    assert_eq!(lull.members().len(), COUNT - beyond);
    for connection in &mut connections {
        connection.carry(1_000);
    }
}

/// Reads until the sender has ended, in any way.
fn read_all(mut server: TcpStream) {
    let _ = io::copy(&mut server, &mut io::sink());
}

/// Killed when it is dropped.
struct Sender(Child);

impl Drop for Sender {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn spawn_sender(congestion: &str, address: SocketAddr) -> Sender {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "shared_paths::sender"]).stdout(Stdio::null());
    Sender(command.env(SENDER, format!("{congestion} {address}")).spawn().unwrap())
}

#[test]
fn connections_survive_unload_and_reload() {
    needs!(bpf(), command("ip"));
    enter();
    let lull = Loaded::lull(PathTable::default());
    let mut old = Connection::open(&lull.0, loopback([0, 1]));
    assert!(lull_kernel::unload(&lull.0, false).is_err(), "it is in use");
    lull_kernel::unload(&lull.0, true).unwrap();
    old.carry(200_000);
    assert_eq!(lull.unloaded_sockets(), 1);
    lull.load(PathTable::default());
    let mut new = Connection::open(&lull.0, loopback([0, 1]));
    new.carry(20_000);
    old.carry(20_000);
    // Each version has its own table.
    assert_eq!(lull.members(), [("127.0.0.0/24".to_owned(), 1)]);
    drop((old, new));
    eventually("it leaves", || lull.members() == [("127.0.0.0/24".to_owned(), 0)]);
}

#[test]
fn connection_joins_another_path_after_a_route_change() {
    needs!(bpf(), command("ip"));
    enter();
    for link in ["1", "2"] {
        run(&format!("ip link add a{link} type veth peer name b{link}"));
        run(&format!("ip link set a{link} up"));
    }
    run("ip addr add 10.1.0.1/32 dev lo");
    run("ip netns add far");
    for line in ["link set lo up", "addr add 10.2.0.1/32 dev lo"] {
        run(&format!("ip -n far {line}"));
    }
    for link in ["1", "2"] {
        run(&format!("ip link set b{link} netns far"));
        run(&format!("ip -n far link set b{link} up"));
    }
    run("ip route add 10.2.0.1 dev a1 src 10.1.0.1");
    run("ip -n far route add 10.1.0.1 dev b1 src 10.2.0.1");
    let lull = Loaded::lull(PathTable::default());
    let listener = thread::spawn(|| {
        let far = File::open("/run/netns/far").unwrap();
        setns(far, CloneFlags::CLONE_NEWNET).unwrap();
        TcpListener::bind("10.2.0.1:7000").unwrap()
    });
    let listener = listener.join().unwrap();
    let client = connect_with(&lull.0, "10.2.0.1:7000".parse().unwrap());
    let mut connection = Connection { client, server: listener.accept().unwrap().0 };
    connection.carry(20_000);
    let before = lull.status().paths.unwrap();
    assert_eq!((before.len(), before[0].members), (1, 1), "{before:?}");
    run("ip route replace 10.2.0.1 dev a2 src 10.1.0.1");
    run("ip -n far route replace 10.1.0.1 dev b2 src 10.2.0.1");
    eventually("it moves", || {
        connection.carry(1_000);
        let paths = lull.status().paths.unwrap();
        paths.iter().any(|path| path.interface != before[0].interface && path.members == 1)
    });
    let members: Vec<u32> = lull.status().paths.unwrap().iter().map(|path| path.members).collect();
    assert_eq!(members.iter().sum::<u32>(), 1, "{members:?}");
}

/// Bytes that a receiver takes, which reads little and seldom, until a time.
fn read_slowly(server: &mut TcpStream, end: Instant) -> usize {
    let mut buffer = vec![0; 8_000];
    let mut bytes = 0;
    while Instant::now() < end {
        bytes += server.read(&mut buffer).expect("the connection is there");
        thread::sleep(Duration::from_millis(10));
    }
    bytes
}

/// Bytes that four connections with slow receivers carry in three seconds.
fn carried_to_slow_receivers(lull: &Loaded) -> Vec<usize> {
    let connections: Vec<Connection> =
        (0..4).map(|_| Connection::open(&lull.0, loopback([0, 1]))).collect();
    let end = Instant::now() + Duration::from_secs(3);
    thread::scope(|scope| {
        let readers = connections.into_iter().map(|Connection { mut client, mut server }| {
            setsockopt(&server, sockopt::RcvBuf, &20_000).expect("a small buffer");
            scope.spawn(move || {
                // Ends with an error when the receiver has gone.
                let writer = thread::spawn(move || while client.write_all(&[0; 8_000]).is_ok() {});
                let bytes = read_slowly(&mut server, end);
                drop(server);
                writer.join().expect("the writer ends");
                bytes
            })
        });
        let readers: Vec<_> = readers.collect();
        readers.into_iter().map(|reader| reader.join().expect("it ends")).collect()
    })
}

/// A leader that its receiver slows down is limited by neither its application nor its window.
#[test]
fn leader_with_slow_receiver_leaves_window_to_others() {
    needs!(bpf(), command("ip"));
    enter();
    run("ip link set lo mtu 1500");
    let lull = Loaded::lull(PathTable::default());
    // If some receivers get no processor for as long, the others have more. A second leader comes after five seconds, and
    // would hide the defect, so no trial takes longer.
    let mut trials = Vec::new();
    for _ in 0..bound(8, 1) {
        let bytes = carried_to_slow_receivers(&lull);
        let (all, most) =
            (bytes.iter().sum::<usize>(), *bytes.iter().max().expect("there are four"));
        trials.push(bytes);
        if all > 2 * most {
            return;
        }
    }
    panic!("one has more than all others: {trials:?}");
}
