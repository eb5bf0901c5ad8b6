//! Rate, delay, buffer, class and trace of real flows.

use std::ffi::CStr;
use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use lull_cc::{Bytes, Timestamp};
use lull_emulator::{
    Backend, Buffer, Counts, Discipline, Emulator, Host, Link, LinkRate, Signals, Spread, Topology,
    Trace, contain, read_trace, set_dscp,
};
use lull_testing::{Missing, bound, needs, root};
use lull_transport::TcpInfo;

use super::bulk::Bulk;

/// 10 Mbit/s; of each 1500 bytes 1448 are payload of TCP with timestamps.
pub(super) const PAYLOAD_RATE: f64 = 10e6 / 8.0 * 1448.0 / 1500.0;

/// The codepoint of the lower-effort class.
const LOWER_EFFORT: u8 = 1;

/// The allowed wake-up time of processors.
const LATENCY: &str = "/dev/cpu_dma_latency";

fn file(path: &str) -> Result<(), Missing> {
    let opened = fs::File::open(path).map(drop);
    opened.map_err(|error| Missing::new(format!("{path}: {error}")))
}

fn tun() -> Result<(), Missing> {
    root().and_then(|()| file("/dev/net/tun"))
}

/// With deliveries later than this (p99), the flow has seen a different path.
const DISTURBED_MS: f64 = 1.0;

/// Judges the first of three runs that was not disturbed, or the last.
fn fills_the_link(backend: Backend, congestion_control: &'static CStr, ipv6: bool) {
    for is_last in [false, false, true] {
        let topology = Topology { backend, ..Topology::default() };
        let emulator = Emulator::start(&topology).unwrap();
        let bulk = Bulk { ipv6, ..Bulk::new(congestion_control) };
        let received = bulk.run(emulator.left(0), emulator.right(0));
        let record = emulator.finish().unwrap();
        let payload_rate = if ipv6 { PAYLOAD_RATE * 1428.0 / 1448.0 } else { PAYLOAD_RATE };
        let share = received / payload_rate;
        let arrivals = record.total.arrival_error.unwrap();
        let deliveries = record.total.timing_error.unwrap();
        eprintln!(
            "{backend:?} {congestion_control:?}: {:.3} Mbit/s, {share:.4} of the payload rate, \
             arrivals {arrivals:?}, deliveries {deliveries:?}, processor {:.3} s",
            received * 8.0 / 1e6,
            record.cpu_s,
        );
        assert_eq!(record.overruns, 0);
        assert_eq!(record.unroutable, 0);
        if backend == Backend::Packet {
            // The kernel timestamps packets that arrive while the thread does not run.
            assert!(arrivals.p99_ms < bound(5.0, 0.5), "{arrivals:?}");
        }
        assert!(share < bound(1.2, 1.005), "{share}");
        if is_last || deliveries.p99_ms < bound(f64::MAX, DISTURBED_MS) {
            assert!(share >= bound(0.3, 0.97), "{share}");
            return;
        }
    }
}

#[test]
fn flow_fills_10_mbit_at_50_ms_over_tun() {
    needs!(tun());
    fills_the_link(Backend::Tun, c"reno", false);
    fills_the_link(Backend::Tun, c"cubic", true);
    fills_the_link(Backend::Tun, c"bbr", false);
}

#[test]
fn flow_fills_10_mbit_at_50_ms_over_packet_sockets() {
    needs!(root());
    fills_the_link(Backend::Packet, c"reno", true);
    fills_the_link(Backend::Packet, c"cubic", false);
}

#[test]
fn round_trip_adds_at_most_half_a_millisecond() {
    needs!(tun());
    for backend in [Backend::Tun, Backend::Packet] {
        let mut topology = Topology { backend, ..Topology::default() };
        topology.forward.delay = Duration::from_millis(10);
        topology.reverse.delay = Duration::from_millis(40);
        let emulator = Emulator::start(&topology).unwrap();
        let (left, right) = (emulator.left(0), emulator.right(0));
        let listener = right.enter(|| TcpListener::bind((right.v4(), 0))).unwrap().unwrap();
        let address = listener.local_addr().unwrap();
        let echo = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut byte = [0];
            while stream.read(&mut byte).unwrap() == 1 {
                stream.write_all(&byte).unwrap();
            }
        });
        let mut stream = left
            .enter(|| TcpStream::connect_timeout(&address, Duration::from_secs(5)))
            .unwrap()
            .unwrap();
        stream.set_nodelay(true).unwrap();
        for _ in 0..30 {
            stream.write_all(&[1]).unwrap();
            stream.read_exact(&mut [0]).unwrap();
        }
        let micros = TcpInfo::of(&stream).unwrap().min_rtt_micros;
        let min_rtt = Duration::from_micros(micros.into());
        drop(stream);
        echo.join().unwrap();
        eprintln!("{backend:?}: min RTT {min_rtt:?}");
        assert!(min_rtt >= Duration::from_millis(50), "{min_rtt:?}");
        assert!(
            min_rtt <= bound(Duration::from_millis(90), Duration::from_micros(50_500)),
            "{min_rtt:?}"
        );
    }
}

/// Sends `packets` datagrams of 1500 bytes with their headers at once. Returns how many arrive, and how long
/// sending took, which is long if other processes have the processor meanwhile.
fn burst(emulator: &Emulator, packets: u32) -> (u32, Duration) {
    let (left, right) = (emulator.left(0), emulator.right(0));
    let receiver = right.enter(|| UdpSocket::bind((right.v4(), 0))).unwrap().unwrap();
    let sender = left.enter(|| UdpSocket::bind((left.v4(), 0))).unwrap().unwrap();
    let address = receiver.local_addr().unwrap();
    receiver.set_nonblocking(true).unwrap();
    let begun = Instant::now();
    for _ in 0..packets {
        sender.send_to(&[0; 1472], address).unwrap();
    }
    let took = begun.elapsed();
    // The receiver's buffer holds all of them.
    let (mut received, mut buffer) = (0, [0; 2000]);
    while begun.elapsed() < Duration::from_secs(30) {
        while receiver.recv(&mut buffer).is_ok() {
            received += 1;
        }
        let sent = emulator.statistics().unwrap().forward.all;
        if sent.packets + sent.dropped >= packets.into() && u64::from(received) >= sent.packets {
            break;
        }
        thread::sleep(Duration::from_millis(5));
    }
    (received, took)
}

/// The first result of a test whose packets were sent as one burst.
fn first_with_burst<T>(mut test: impl FnMut() -> Option<T>) -> T {
    (0..20).find_map(|_| test()).expect("this machine is too busy to tell")
}

#[test]
fn burst_drops_packets_only_when_buffer_is_full() {
    needs!(tun());
    // So slow that no packet is sent during the burst: one packet takes 12 ms.
    let link = Link {
        rate: LinkRate::Fixed("1mbit".parse().unwrap()),
        delay: Duration::from_millis(5),
        ..Link::default()
    };
    for (buffer, fits) in [
        (Buffer::Packets(10), 10),
        (Buffer::Bytes(Bytes(15_000)), 10),
        (Buffer::Bytes(Bytes(14_999)), 9),
        // 1 Mbit/s × 10 ms are 1250 bytes; twelve of these hold ten packets.
        (Buffer::Bdp(12.0), 10),
    ] {
        for backend in [Backend::Tun, Backend::Packet] {
            let link = Link { buffer, ..link.clone() };
            let topology = Topology { backend, ..Topology::symmetric(link) };
            let (received, record) = first_with_burst(|| {
                let emulator = Emulator::start(&topology).unwrap();
                let (received, took) = burst(&emulator, 30);
                let record = emulator.finish().unwrap();
                let counts = &record.total.forward.all;
                // The kernel of a host occasionally sends its own packet, for IPv6.
                let is_whole = counts.packets + counts.dropped == 30 && counts.dropped > 0;
                (took < Duration::from_millis(10) && is_whole).then_some((received, record))
            });
            let forward = &record.total.forward;
            let context = format!("{buffer:?} {backend:?}: {forward:?}");
            // It drops only when the buffer is full, at any timing of the emulator's thread.
            assert_eq!(forward.longest_queue_bytes, fits * 1500, "{context}");
            // The packet being sent does not count. If the thread reads the second half of the burst late,
            // the link has sent some of the first half.
            assert!(forward.all.packets > fits, "{context}");
            assert!(forward.all.packets <= bound(29, fits + 1), "{context}");
            assert_eq!(u64::from(received), forward.all.packets, "{context}");
            assert_eq!(record.overruns, 0);
        }
    }
}

#[test]
fn goodput_counts_each_byte_of_a_connection_once() {
    needs!(root());
    // The buffer is so small that the first windows overflow it.
    let link = Link { buffer: Buffer::Packets(8), ..Link::default() };
    let emulator = Emulator::start(&Topology::symmetric(link)).unwrap();
    let (left, right) = (emulator.left(0), emulator.right(0));
    let listener = right.enter(|| TcpListener::bind((right.v4(), 0))).unwrap().unwrap();
    let address = listener.local_addr().unwrap();
    let receiver = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        std::io::copy(&mut stream, &mut std::io::sink()).unwrap()
    });
    let mut stream = left.enter(|| TcpStream::connect(address)).unwrap().unwrap();
    let bytes = 1_000_000;
    stream.write_all(&vec![0; bytes as usize]).unwrap();
    drop(stream);
    assert_eq!(receiver.join().unwrap(), bytes);
    let forward = emulator.finish().unwrap().total.forward;
    let [flow] = &forward.flows[..] else { panic!("{:?}", forward.flows) };
    assert!(flow.counts.dropped > 0, "{flow:?}");
    assert_eq!(flow.counts.goodput_bytes, bytes, "{flow:?}");
    assert!(flow.counts.payload_bytes >= bytes, "{flow:?}");
}

#[test]
fn lower_class_gets_the_rest_of_the_link() {
    needs!(tun());
    let mut topology = Topology { left: 2, right: 2, ..Topology::default() };
    topology.forward.discipline = "priority".parse::<Discipline>().unwrap();
    let emulator = Emulator::start(&topology).unwrap();
    let (high, low) = thread::scope(|scope| {
        let low = scope.spawn(|| {
            let bulk = Bulk { dscp: LOWER_EFFORT, ..Bulk::new(c"cubic") };
            bulk.run(emulator.left(1), emulator.right(1))
        });
        let high = Bulk::new(c"cubic").run(emulator.left(0), emulator.right(0));
        (high, low.join().unwrap())
    });
    let record = emulator.finish().unwrap();
    eprintln!("high {:.4}, low {:.4} of the payload rate", high / PAYLOAD_RATE, low / PAYLOAD_RATE);
    assert!(high / PAYLOAD_RATE >= bound(0.5, 0.97), "{high}");
    assert!(low / PAYLOAD_RATE < bound(0.4, 0.02), "{low}");
    let classes: Vec<_> = record.total.forward.classes.iter().map(|class| class.dscp).collect();
    assert_eq!(classes, [0, LOWER_EFFORT]);
}

/// A trace like that of a telephone in a train: 6 Mbit/s, 24, and a tunnel, repeatedly.
fn train() -> String {
    let slow = (1..=500).step_by(2).map(|millis| (millis, 1));
    let fast = (501..=1100).map(|millis| (millis, 2));
    let times = slow.chain(fast).flat_map(|(millis, packets)| vec![millis; packets]);
    // The last time ends the tunnel, and is the length of the cycle.
    times.chain([1400]).map(|millis| format!("{millis}\n")).collect()
}

#[test]
fn flow_gets_the_rate_of_a_trace() {
    needs!(tun());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("train.down");
    fs::write(&file, train()).unwrap();
    let trace = read_trace(&file).unwrap();
    assert_eq!((trace.name(), trace.cycle()), ("train.down", Duration::from_millis(1400)));
    let mut topology = Topology::default();
    topology.forward.rate = LinkRate::Trace(trace.clone());
    topology.forward.buffer = Buffer::Packets(2000);
    topology.series = Some(Duration::from_millis(100));
    let emulator = Emulator::start(&topology).unwrap();
    // Datagrams at 36 Mbit/s, more than the link ever has.
    let (left, right) = (emulator.left(0), emulator.right(0));
    let receiver = right.enter(|| UdpSocket::bind((right.v4(), 0))).unwrap().unwrap();
    let sender = left.enter(|| UdpSocket::bind((left.v4(), 0))).unwrap().unwrap();
    sender.connect(receiver.local_addr().unwrap()).unwrap();
    let start = Instant::now();
    let mut sent = 0;
    while start.elapsed() < Duration::from_secs(4) {
        // A late thread catches up.
        while sent < 3 * start.elapsed().as_millis() + 20 {
            sender.send(&[0; 1472]).unwrap();
            sent += 1;
        }
        thread::sleep(Duration::from_millis(5));
    }
    let record = emulator.finish().unwrap();
    let forward = &record.total.forward;
    let seconds = record.total.seconds();
    let end = Timestamp::from_nanos((seconds * 1e9) as u64);
    // The trace's opportunity at 0 passed before any packet arrived.
    let expected = trace.opportunities_until(end) - trace.opportunities_until(Timestamp::ZERO);
    assert_eq!(forward.capacity_bytes, expected * Trace::OPPORTUNITY_BYTES);
    eprintln!("{:.4} of the trace's {:.0} kB", forward.utilisation(), expected as f64 * 1.5);
    assert!(forward.utilisation() > bound(0.8, 0.99), "{}", forward.utilisation());
    // The series adds up to the whole.
    let series = record.series.unwrap();
    let sampled: u64 = series.forward.iter().flat_map(|sample| &sample.bytes).map(|b| b.1).sum();
    let last = series.forward.last().unwrap();
    assert!((seconds - last.time_s) < bound(2.0, 0.1));
    assert!(
        sampled <= forward.all.bytes
            && sampled as f64 > forward.all.bytes as f64 * bound(0.5, 0.95)
    );
}

#[test]
fn windows_add_up_to_the_total() {
    needs!(tun());
    let emulator = first_with_burst(|| {
        let emulator = Emulator::start(&Topology::default()).unwrap();
        assert_eq!(burst(&emulator, 10).0, 10);
        emulator.mark("second").unwrap();
        let (received, took) = burst(&emulator, 20);
        assert_eq!(received, 20);
        (took < Duration::from_millis(1)).then_some(emulator)
    });
    let snapshot = emulator.statistics().unwrap();
    assert_eq!((snapshot.name.as_str(), snapshot.forward.all.packets), ("second", 20));
    let record = emulator.finish().unwrap();
    let names: Vec<_> = record.windows.iter().map(|window| window.name.as_str()).collect();
    assert_eq!(names, ["start", "second"]);
    let packets = record.windows.iter().map(|window| window.forward.all.packets);
    assert_eq!(packets.collect::<Vec<_>>(), [10, 20]);
    assert_eq!(record.total.forward.all.packets, 30);
    assert_eq!(record.total.forward.flows.len(), 2);
    assert_eq!(record.total.forward.all.payload_bytes, 30 * 1472);
    // 20 packets of 1.2 ms each at once: the last one waits for 19.
    let longest = record.total.forward.all.queueing_delay.unwrap().max_ms;
    assert!((bound(0.0, 20.0)..23.5).contains(&longest), "{longest}");
}

#[test]
fn hosts_of_one_side_bypass_the_bottleneck() {
    needs!(tun());
    let mut link = Link { delay: Duration::from_secs(1), ..Link::default() };
    link.discipline = Discipline::DropTail;
    let emulator = Emulator::start(&Topology { left: 2, ..Topology::symmetric(link) }).unwrap();
    let (one, two) = (emulator.left(0), emulator.left(1));
    let listener = two.enter(|| TcpListener::bind((two.v6(), 0))).unwrap().unwrap();
    let address = listener.local_addr().unwrap();
    let start = Instant::now();
    let stream = one.enter(|| TcpStream::connect(address)).unwrap().unwrap();
    assert!(start.elapsed() < bound(Duration::from_secs(60), Duration::from_millis(1900)));
    drop(stream);
    let total = emulator.finish().unwrap().total;
    assert_eq!((total.forward.all.packets, total.reverse.all.packets), (0, 0));
}

#[test]
fn separate_links_have_their_own_rate_and_queue() {
    needs!(tun());
    // A packet of 1500 bytes takes 1.2 ms.
    let link = Link { delay: Duration::from_millis(1), ..Link::default() };
    let link = Link { buffer: Buffer::Packets(100), ..link };
    let topology = Topology { right: 2, separate: true, ..Topology::symmetric(link) };
    let emulator = Emulator::start(&topology).unwrap();
    let left = emulator.left(0);
    let receivers = [0, 1].map(|index| {
        let right = emulator.right(index);
        let socket = right.enter(|| UdpSocket::bind((right.v4(), 9))).unwrap().unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        socket
    });
    let sender = left.enter(|| UdpSocket::bind((left.v4(), 0))).unwrap().unwrap();
    for _ in 0..50 {
        for receiver in &receivers {
            sender.send_to(&[0; 1472], receiver.local_addr().unwrap()).unwrap();
        }
    }
    for receiver in receivers.iter().flat_map(|receiver| [receiver; 50]) {
        receiver.recv(&mut [0; 1472]).unwrap();
    }
    let total = emulator.finish().unwrap().total;
    assert_eq!((total.forward.all.packets, total.forward.all.dropped), (100, 0));
    // The capacities are added. A common queue would have 120 ms at the end.
    let expected = 2.0 * total.seconds() * 10e6 / 8.0;
    assert!((total.forward.capacity_bytes as f64 / expected - 1.0).abs() < 0.01);
    let longest = total.forward.all.queueing_delay.unwrap().max_ms;
    assert!((bound(0.0, 40.0)..61.0).contains(&longest), "{longest}");
}

#[test]
fn host_with_cut_link_is_isolated() {
    needs!(tun());
    let link = Link { delay: Duration::from_millis(1), ..Link::default() };
    let topology = Topology { right: 2, urgent: false, ..Topology::symmetric(link) };
    let emulator = Emulator::start(&topology).unwrap();
    let socket = |host: &Host| {
        let socket = host.enter(|| UdpSocket::bind((host.v4(), 9))).unwrap().unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        socket
    };
    let (left, right) = (emulator.left(0), [emulator.right(0), emulator.right(1)]);
    let (sender, receivers) = (socket(left), right.map(socket));
    let heard = |to: usize| {
        let mut bytes = [0; 8];
        sender.send_to(b"there", (right[to].v4(), 9)).unwrap();
        let there = receivers[to].recv(&mut bytes).is_ok();
        receivers[to].send_to(b"back", (left.v4(), 9)).unwrap();
        [there, sender.recv(&mut bytes).is_ok()]
    };
    assert_eq!([heard(0), heard(1)], [[true; 2]; 2]);
    emulator.set_cut(right[0], true).unwrap();
    assert_eq!([heard(0), heard(1)], [[false; 2], [true; 2]]);
    emulator.set_cut(right[0], false).unwrap();
    emulator.set_cut(left, true).unwrap();
    assert_eq!([heard(0), heard(1)], [[false; 2]; 2]);
    emulator.set_cut(left, false).unwrap();
    assert_eq!([heard(0), heard(1)], [[true; 2]; 2]);
}

#[test]
fn unknown_congestion_control_is_reported() {
    needs!(root());
    let congestion_control = Some("no_such_algorithm".to_owned());
    let error = Emulator::start(&Topology { congestion_control, ..Topology::default() })
        .map(drop)
        .unwrap_err()
        .to_string();
    assert!(error.starts_with("'no_such_algorithm' cannot be"), "{error}");
}

/// Code that runs once in minutes must not wait for the disk.
#[test]
fn emulator_stays_in_memory_while_it_runs() {
    needs!(tun());
    let emulator = Emulator::start(&Topology::default()).unwrap();
    let locked = || -> u64 {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let locked = status.lines().find_map(|line| line.strip_prefix("VmLck:")).unwrap();
        locked.trim().trim_end_matches(" kB").parse().unwrap()
    };
    // Its thread does that at its start.
    let begun = Instant::now();
    while locked() <= 1000 {
        assert!(begun.elapsed() < Duration::from_secs(20), "{} kB", locked());
        thread::sleep(Duration::from_millis(5));
    }
    emulator.finish().unwrap();
}

#[test]
fn socket_made_on_a_host_belongs_to_it() {
    needs!(tun());
    let emulator = Emulator::start(&Topology::default()).unwrap();
    let (left, right) = (emulator.left(0), emulator.right(0));
    let output = left.command("cat").arg("/proc/self/net/dev").output().unwrap();
    assert!(String::from_utf8(output.stdout).unwrap().contains("lull0"));
    let sender = left.enter(|| UdpSocket::bind((left.v4(), 0))).unwrap().unwrap();
    set_dscp(&sender, LOWER_EFFORT).unwrap();
    sender.send_to(&[0; 10], (right.v4(), 9)).unwrap();
    let begun = Instant::now();
    while emulator.statistics().unwrap().forward.classes.is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(30), "the packet is never forwarded");
        thread::sleep(Duration::from_millis(5));
    }
    let record = emulator.finish().unwrap();
    assert_eq!(record.total.forward.classes[0].dscp, LOWER_EFFORT);
}

/// The share of one flow on a link with active queue management, as a part of the payload rate, its packet
/// counts, and their delays.
fn under(link: Link, ecn: &str) -> (f64, Counts, Spread) {
    let emulator = Emulator::start(&Topology::symmetric(link)).unwrap();
    let (left, right) = (emulator.left(0), emulator.right(0));
    for host in [left, right] {
        host.set_sysctl("net.ipv4.tcp_ecn", ecn).unwrap();
    }
    let share = Bulk::new(c"cubic").run(left, right) / PAYLOAD_RATE;
    let counts = emulator.finish().unwrap().total.forward.all;
    let delay = counts.queueing_delay.unwrap();
    let (marked, dropped) = (counts.marked, counts.dropped);
    eprintln!("{share:.3} of the payload rate, {marked} marked, {dropped} dropped, {delay:?}");
    (share, counts, delay)
}

#[test]
fn managed_queue_marks_ecn_and_keeps_delay_low() {
    needs!(tun());
    let link = Link {
        buffer: Buffer::Packets(1000),
        discipline: "fq-codel".parse().unwrap(),
        ..Link::default()
    };
    let (share, counts, delay) = under(link, "1");
    assert!(counts.marked > 0 && counts.dropped == 0, "{counts:?}");
    assert!(share > bound(0.3, 0.85), "{share}");
    assert!(delay.p50_ms < bound(60.0, 25.0), "{delay:?}");
}

/// The buffer is 120 ms long, and under drop-tail one flow keeps more than half of it full. RED's lower
/// threshold is a third of it (Nice §4.2, experiment 4), CoDel's target 5 ms (RFC 8289 §3.2). RED's average
/// covers 500 packets, 0.6 s here. It continues to cut after the first burst has ended, so within seconds the
/// link is not full.
#[test]
fn red_and_codel_signal_before_the_buffer_is_full() {
    needs!(tun());
    for (queue, ecn, least, longest_ms) in
        [("red", "0", 0.5, 60.0), ("red-ecn", "1", 0.5, 60.0), ("codel", "0", 0.85, 25.0)]
    {
        let link = Link {
            buffer: Buffer::Packets(100),
            discipline: queue.parse().unwrap(),
            ..Link::default()
        };
        let (share, counts, delay) = under(link, ecn);
        assert!(share > bound(0.3, least), "{queue}: {share}");
        assert!(delay.p50_ms < bound(90.0, longest_ms), "{queue}: {delay:?}");
        assert_eq!(counts.marked > 0, ecn == "1", "{queue}: {counts:?}");
        assert!(counts.marked + counts.dropped > 0, "{queue}: {counts:?}");
    }
}

#[test]
fn multithreaded_process_cannot_be_contained() {
    let error = contain(Signals::Pass, |_| 0).unwrap_err();
    assert!(error.to_string().contains("at the start of main"), "{error}");
}

/// The lowest request to the kernel, in microseconds: by this program, or by another one.
#[test]
fn processors_stay_awake_while_an_emulator_measures() {
    needs!(tun(), file(LATENCY));
    let mut quality = fs::File::open(LATENCY).unwrap();
    let emulator = Emulator::start(&Topology::default()).unwrap();
    // The thread starts a moment later.
    let asked_for_none = (0..100).any(|_| {
        thread::sleep(Duration::from_millis(10));
        let mut microseconds = [0; 4];
        quality.seek(SeekFrom::Start(0)).unwrap();
        // A read beside another one of the same device may get nothing.
        quality.read_exact(&mut microseconds).is_ok() && i32::from_ne_bytes(microseconds) == 0
    });
    assert!(asked_for_none);
    emulator.finish().unwrap();
}
