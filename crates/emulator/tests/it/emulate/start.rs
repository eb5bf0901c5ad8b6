//! The delivery of a new emulator's first packets.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use lull_emulator::{Backend, Emulator, Link, Topology};
use lull_testing::{needs, root};

/// Keeps a processor busy, so that the kernel's worker threads are delayed.
fn spin(done: &AtomicBool) {
    while !done.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
}

/// A device without a carrier drops packets and reports success, so the emulator would count them as delivered.
#[test]
fn first_packets_are_delivered_on_busy_processors() {
    needs!(root());
    let link = Link { delay: Duration::from_millis(1), ..Link::default() };
    let topology = Topology { backend: Backend::Packet, ..Topology::symmetric(link) };
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 * thread::available_parallelism().unwrap().get() {
            scope.spawn(|| spin(&done));
        }
        let lost: Vec<u32> = (0..20).map(|_| lost_of_first_packets(&topology)).collect();
        done.store(true, Ordering::Relaxed);
        assert_eq!(lost, [0; 20]);
    });
}

/// Sends five packets each way through a new emulator at once. Returns how many are lost.
fn lost_of_first_packets(topology: &Topology) -> u32 {
    let emulator = Emulator::start(topology).unwrap();
    let sockets = emulator.hosts().iter().map(|host| {
        let socket = host.enter(|| UdpSocket::bind((host.v4(), 9))).unwrap().unwrap();
        // The socket's buffer holds all packets, so a longer wait only delays a failure.
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        socket
    });
    let sockets: Vec<UdpSocket> = sockets.collect();
    let (left, right) = (emulator.left(0).v4(), emulator.right(0).v4());
    for _ in 0..5 {
        sockets[0].send_to(&[1], (right, 9)).unwrap();
        sockets[1].send_to(&[1], (left, 9)).unwrap();
    }
    let received =
        |socket: &UdpSocket| (0..5).take_while(|_| socket.recv(&mut [0]).is_ok()).count() as u32;
    let lost = 10 - sockets.iter().map(received).sum::<u32>();
    assert_eq!(emulator.finish().unwrap().overruns, 0);
    lost
}
