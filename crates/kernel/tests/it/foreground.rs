//! The traffic of other connections of this host is in the table of paths.

use std::net::{Ipv6Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use libbpf_rs::query::MapInfoIter;
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use lull_kernel::{Foreground, PathTable};
use lull_testing::{bound, bpf, command, needs};
use nix::sys::socket::{setsockopt, sockopt};

use crate::connection::{Connection, Loaded, enter, eventually, loopback};

/// The congestion control of the foreground.
const FOREGROUND: &str = "reno";

fn seen(lull: &Loaded, destination: &str) -> Foreground {
    let paths = lull.status().paths.unwrap();
    let path = paths.iter().find(|path| path.destination.to_string() == destination).unwrap();
    path.foreground.expect("the root cgroup takes the program")
}

#[test]
fn foreground_is_seen_on_its_path_alone() {
    needs!(bpf(), command("ip"));
    enter();
    let lull = Loaded::lull(PathTable::default());
    let mut background: Vec<Connection> = [loopback([0, 1]), loopback([1, 1])]
        .map(|address| Connection::open(&lull.0, address))
        .into();
    background.iter_mut().for_each(|connection| connection.carry(20_000));
    // Neither the background nor its handshake is foreground.
    assert_eq!(seen(&lull, "127.0.0.0/24"), Foreground::default());

    let mut foreground = Connection::open(FOREGROUND, loopback([0, 9]));
    let connected = seen(&lull, "127.0.0.0/24");
    assert!(connected.connected.is_some(), "{connected:?}");
    assert_eq!((connected.sent, connected.bytes), (None, 0));
    foreground.carry(30_000);
    let sent = seen(&lull, "127.0.0.0/24");
    assert_eq!((sent.connected, sent.bytes), (connected.connected, 30_000));
    assert!(sent.sent >= connected.connected, "{sent:?}");
    assert_eq!(seen(&lull, "127.0.1.0/24"), Foreground::default());
}

/// Bytes received and whether a connection was opened, by an entry of `bpf/receive_path_types.h`.
fn received(table: &MapHandle, key: &[u8]) -> (u64, bool) {
    let entry = table.lookup(key, MapFlags::ANY).unwrap().expect("the entry is there");
    let word = |at: usize| u64::from_ne_bytes(entry[at..at + 8].try_into().unwrap());
    // Behind lock, flag, epoch, time of use and key (48 bytes): times of the last connection and packet, and bytes.
    (word(64), word(48) > 0)
}

/// Congestion controls that tests have loaded at a time, at the most: each sees what this one does.
const MAX_LOADED: u64 = 20;

/// The test makes the entry of the path itself, as a download in the background does.
#[test]
fn received_foreground_is_in_the_table_of_downloads() {
    needs!(bpf(), command("ip"));
    enter();
    let lull = Loaded::lull(PathTable::default());
    let mut background = Connection::open(&lull.0, loopback([0, 1]));
    // Of the first thread: the namespace of this one may have the BPF file system of an earlier mount.
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let bpffs =
        mounts.lines().find_map(|line| line.split(' ').nth(1).filter(|_| line.contains(" bpf ")));
    let paths = format!("/proc/self/root{}/lull/{}/paths", bpffs.unwrap(), lull.0);
    let key = MapHandle::from_pinned_path(paths).unwrap().keys().next().expect("one path");
    // Others of this machine may have a table of their own.
    let is_table = |info: &libbpf_rs::query::MapInfo| info.name == "receive_paths";
    let tables: Vec<MapHandle> = MapInfoIter::default()
        .filter(is_table)
        .filter_map(|info| MapHandle::from_map_id(info.id).ok())
        .collect();
    for table in &tables {
        table.update(&key, &vec![0; table.value_size() as usize], MapFlags::ANY).unwrap();
    }
    let seen = || {
        let all = tables.iter().map(|table| received(table, &key));
        all.fold((0, false), |sum, one| (sum.0.max(one.0), sum.1 || one.1))
    };
    // The server's socket does not run lull, but its packets carry no data. A `lull` that another test has loaded
    // writes to the same table, and knows neither this connection nor this name: it would see the first bytes.
    background.carry_back(20_000);
    let unmarked = seen();
    assert!(unmarked.0 <= bound(20_000 * MAX_LOADED, 0) && !unmarked.1, "{unmarked:?}");
    setsockopt(&background.client, sockopt::Ipv4Tos, &(1 << 2)).unwrap();
    background.carry_back(20_000);
    assert_eq!(seen(), unmarked, "what a marked connection receives is no foreground");
    let mut foreground = Connection::open(FOREGROUND, loopback([0, 9]));
    assert_eq!(seen(), (unmarked.0, true));
    foreground.carry_back(30_000);
    let counted = seen().0 - unmarked.0;
    assert!((30_000..=bound(30_000 * MAX_LOADED, 30_000)).contains(&counted), "{counted}");
    for table in &tables {
        table.delete(&key).unwrap();
    }
}

#[test]
fn datagrams_and_ipv6_are_foreground_too() {
    needs!(bpf(), command("ip"));
    enter();
    let lull = Loaded::lull(PathTable::default());
    let _four = Connection::open(&lull.0, loopback([0, 1]));
    let _six = Connection::open(&lull.0, Ipv6Addr::LOCALHOST.into());
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.send_to(&[0; 700], socket.local_addr().unwrap()).unwrap();
    assert_eq!(seen(&lull, "127.0.0.0/24").bytes, 700);
    let mut six = Connection::open(FOREGROUND, Ipv6Addr::LOCALHOST.into());
    six.carry(5_000);
    assert_eq!(seen(&lull, "::/48").bytes, 5_000);
    // Other programs may mark their packets lower effort, and are no foreground either.
    setsockopt(&socket, sockopt::Ipv4Tos, &(1 << 2)).unwrap();
    socket.send_to(&[0; 700], socket.local_addr().unwrap()).unwrap();
    assert_eq!(seen(&lull, "127.0.0.0/24").bytes, 700);
}

/// A connection that sends a little now and then can be distinguished from a busy one.
#[test]
fn chatty_connection_has_few_recent_bytes() {
    needs!(bpf(), command("ip"));
    enter();
    let lull = Loaded::lull(PathTable::default());
    let _background = Connection::open(&lull.0, loopback([0, 1]));
    let mut foreground = Connection::open(FOREGROUND, loopback([0, 1]));
    for _ in 0..8 {
        foreground.carry(50);
        thread::sleep(Duration::from_millis(60));
    }
    let chatty = seen(&lull, "127.0.0.0/24");
    assert!(chatty.recent_bytes <= 150, "{chatty:?}");
    // On a busy machine a look takes longer than bytes stay recent, so the connection sends meanwhile.
    let (is_over, begun) = (AtomicBool::new(false), Instant::now());
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) && begun.elapsed() < Duration::from_secs(120) {
                foreground.carry(100_000);
            }
        });
        eventually("it is busy", || seen(&lull, "127.0.0.0/24").recent_bytes >= 100_000);
        is_over.store(true, Ordering::Relaxed);
    });
}
