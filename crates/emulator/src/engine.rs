//! The thread that moves the packets.
//!
//! It sleeps in `ppoll` until a host sends or a packet is due, and never spins: a spinning thread takes a
//! core from the hosts of the emulated network.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{IoSliceMut, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lull_cc::Timestamp;
use lull_sim::queue::{Dropped, QueuedPacket, Verdict};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::EventFd;
use nix::sys::mman::{MlockAllFlags, mlockall};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};

use super::arrival::{Arrival, Arrivals, Calendar};
use super::bottleneck::{Bottleneck, Departure};
use super::commands::{Command, Commands};
use super::frame::{Frame, HEADROOM, Headers};
use super::goodput::Passed;
use super::host::{HARDWARE_ADDRESS, Host, Port};
use super::statistics::{FlowKey, Sample, WindowTally};
use super::{Error, Link, Topology, sys};

/// Packets read from one host before due deliveries are handled.
const READ_BATCH: usize = 64;
/// A system call that takes longer than this has slept.
const SLOW_CALL: Duration = Duration::from_micros(20);

/// The thread's result.
pub(super) struct Outcome {
    pub(super) windows: Vec<WindowTally>,
    pub(super) flows: Vec<FlowKey>,
    pub(super) series: [Vec<Sample>; 2],
    pub(super) cpu: Duration,
    pub(super) overruns: u64,
    pub(super) unroutable: u64,
}

/// The time series in progress of one direction.
#[derive(Default)]
struct Sampling {
    delay: Duration,
    packets: u32,
    dropped: u64,
    bytes: std::collections::BTreeMap<u32, u64>,
    samples: Vec<Sample>,
}

/// A direction of a link: its bottleneck, and the packets in flight after it.
struct Direction {
    /// 0 is forward, 1 reverse.
    side: usize,
    bottleneck: Bottleneck<Frame>,
    delay: Duration,
    flying: VecDeque<(Timestamp, Frame)>,
}

pub(super) struct Engine {
    ports: Vec<Port>,
    /// The number of hosts on the left; lower ports are theirs.
    left: usize,
    /// Hosts whose cable is unplugged.
    cut: Vec<bool>,
    urgent: bool,
    by_address: HashMap<IpAddr, usize>,
    /// Forward and reverse of the link between the sides, or of the link of each right host in turn.
    directions: Vec<Direction>,
    /// Forward, reverse: of all links.
    sampling: [Sampling; 2],
    /// Whether each right host has a link of its own.
    separate: bool,
    flow_numbers: HashMap<FlowKey, u32>,
    flows: Vec<FlowKey>,
    /// The passed bytes of each flow.
    passed: Vec<Passed>,
    /// Packets that have been read, each with its direction.
    arrivals: Arrivals<(usize, Frame)>,
    /// When there was last known to be nothing to read.
    idle_at: Timestamp,
    /// A buffer for the kernel's control messages about a packet.
    control: Vec<u8>,
    window: WindowTally,
    windows: Vec<WindowTally>,
    interval: Option<Duration>,
    next_sample: Timestamp,
    overruns: u64,
    unroutable: u64,
    origin: Instant,
    scratch: Box<[u8]>,
}

fn seconds(time: Timestamp) -> f64 {
    time.as_nanos() as f64 / 1e9
}

/// Keeps all processors from sleeping while it is held; none without root.
///
/// A sleeping processor has to be woken for the next packet. On a virtual machine, the hypervisor may have
/// given it to others by then. On a machine with busy neighbours a timer of a millisecond came 6 to 9 ms late
/// at the 99th percentile. 12 % of the processors' time was stolen. With this it was
/// 0.2 to 2.4 ms, and 0.5 to 3 %.
fn disable_idle_states() -> Option<File> {
    let mut quality = File::options().write(true).open("/dev/cpu_dma_latency").ok()?;
    // In microseconds, and only while the file is open.
    quality.write_all(&0i32.to_ne_bytes()).ok()?;
    Some(quality)
}

impl Engine {
    pub(super) fn new(topology: &Topology, hosts: &[Host], ports: Vec<Port>) -> Self {
        let direction = |side, link: &Link, seed| Direction {
            side,
            bottleneck: Bottleneck::new(
                topology.discipline(link).queue(topology.limit(link), seed),
                link.rate.clone(),
            ),
            delay: link.delay,
            flying: VecDeque::new(),
        };
        let links = if topology.separate { topology.right } else { 1 };
        let both = |number| {
            let [forward, reverse] = topology.seeds(number);
            [direction(0, &topology.forward, forward), direction(1, &topology.reverse, reverse)]
        };
        let addresses = hosts.iter().enumerate().flat_map(|(port, host)| {
            [(IpAddr::V4(host.v4()), port), (IpAddr::V6(host.v6()), port)]
        });
        Engine {
            cut: vec![false; ports.len()],
            urgent: topology.urgent,
            ports,
            left: topology.left,
            by_address: addresses.collect(),
            directions: (0..links).flat_map(both).collect(),
            sampling: Default::default(),
            separate: topology.separate,
            flow_numbers: HashMap::new(),
            flows: Vec::new(),
            passed: Vec::new(),
            arrivals: Arrivals::new(),
            idle_at: Timestamp::ZERO,
            control: nix::cmsg_space!(TimeSpec),
            window: WindowTally { name: "start".to_owned(), ..WindowTally::default() },
            windows: Vec::new(),
            interval: topology.series,
            next_sample: topology.series.map_or(Timestamp::FAR_FUTURE, |i| Timestamp::ZERO + i),
            overruns: 0,
            unroutable: 0,
            origin: Instant::now(),
            scratch: vec![0; HEADROOM + 65_536].into(),
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.origin.elapsed()
    }

    /// Runs until it is stopped.
    pub(super) fn run(
        mut self,
        commands: &Commands,
        wake: &Arc<EventFd>,
    ) -> Result<Outcome, Error> {
        let _hearing = commands.accept_commands();
        let _awake = self.urgent.then(disable_idle_states).flatten();
        if self.urgent {
            sys::set_short_slice();
            // A machine that reclaims unused file pages also reclaims the program's own. Code that runs once
            // in minutes would then wait for the disk, and packets with it.
            let _ = mlockall(MlockAllFlags::MCL_CURRENT);
        }
        // Otherwise the kernel may let a thread sleep 50 µs longer than requested.
        let _ = nix::sys::prctl::set_timerslack(1);
        let mut readable: Vec<usize> = Vec::new();
        loop {
            let more = self.read_arrivals(&readable)?;
            self.deliver()?;
            if !self.handle_commands(commands) {
                break;
            }
            self.wait(&mut readable, more, wake)?;
        }
        self.finish()
    }

    /// Reads arrived packets, and passes them to the bottlenecks; returns whether there is more to do at
    /// once.
    fn read_arrivals(&mut self, readable: &[usize]) -> Result<bool, Error> {
        // Packets that arrived before this moment are read now.
        let begun = self.now();
        let mut until = begun;
        let mut more = false;
        for &port in readable {
            if let Some(last) = self.read(port)? {
                more = true;
                // Remaining packets arrived later than that.
                until = until.min(last);
            }
        }
        if !more {
            self.idle_at = begun;
        }
        if !self.is_stamped() {
            until = self.now();
        }
        self.admit(until);
        Ok(more || !self.arrivals.is_empty())
    }

    /// Whether the kernel timestamps packets.
    fn is_stamped(&self) -> bool {
        matches!(self.ports.first(), Some(Port::Packet(_)))
    }

    /// Sleeps until a host has sent, a packet is due or a command has come; `more` if work is known to be
    /// there already.
    fn wait(&mut self, readable: &mut Vec<usize>, more: bool, wake: &EventFd) -> Result<(), Error> {
        let mut polled: Vec<PollFd<'_>> = self
            .ports
            .iter()
            .map(|port| PollFd::new(port.descriptor().as_fd(), PollFlags::POLLIN))
            .collect();
        polled.push(PollFd::new(wake.as_fd(), PollFlags::POLLIN));
        let now = self.now();
        let timeout = if more {
            Some(Duration::ZERO)
        } else {
            self.next_due().map(|due| due.saturating_since(now))
        };
        match ppoll(&mut polled, timeout.map(TimeSpec::from), None) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(Error::system("waiting for packets", error)),
        }
        readable.clear();
        for (port, polled) in polled[..self.ports.len()].iter().enumerate() {
            if polled.any() == Some(true) {
                readable.push(port);
            }
        }
        if polled[self.ports.len()].any() == Some(true) {
            let _ = wake.read();
        }
        let woke = self.now();
        if woke.saturating_since(now) > SLOW_CALL {
            self.idle_at = woke;
        }
        Ok(())
    }

    /// The earliest time of a delivery.
    fn next_due(&self) -> Option<Timestamp> {
        let due = |direction: &Direction| match direction.flying.front() {
            Some((due, _)) => Some(*due),
            None => direction.bottleneck.next().map(|at| at + direction.delay),
        };
        self.directions.iter().filter_map(due).min()
    }

    /// Executes commands; returns whether to continue.
    fn handle_commands(&mut self, commands: &Commands) -> bool {
        while let Some(command) = commands.take() {
            match command {
                Command::Stop => return false,
                Command::Snapshot(answer) => {
                    let mut window = self.window.clone();
                    self.close(&mut window);
                    // Fails only if the caller has gone.
                    let _ = answer.send((window, self.flows.clone()));
                }
                Command::Mark(name, answer) => {
                    self.begin_window(name);
                    let _ = answer.send(());
                }
                Command::Cut(port, is_cut, answer) => {
                    self.cut[port] = is_cut;
                    let _ = answer.send(());
                }
            }
        }
        true
    }

    /// Fills in values of a window that are known only at its end.
    fn close(&self, window: &mut WindowTally) {
        let now = self.now();
        let start = Timestamp::from_nanos((window.start_s * 1e9) as u64);
        window.end_s = seconds(now);
        for direction in &self.directions {
            let tally = &mut window.directions[direction.side];
            tally.capacity += direction.bottleneck.capacity(start, now).0;
        }
    }

    fn begin_window(&mut self, name: String) {
        let mut ended = std::mem::take(&mut self.window);
        self.close(&mut ended);
        self.window.name = name;
        self.window.start_s = ended.end_s;
        self.windows.push(ended);
    }

    /// Reads a host's packets. If there may be more, returns when the last of them arrived.
    fn read(&mut self, port: usize) -> Result<Option<Timestamp>, Error> {
        let mut calendar = None;
        if self.is_stamped() {
            let time = clock_gettime(ClockId::CLOCK_REALTIME)
                .map_err(|error| Error::system("reading the calendar's clock", error))?;
            calendar = Some(Calendar::new(time.into(), self.now()));
        }
        let mut last = Timestamp::ZERO;
        for _ in 0..READ_BATCH {
            let (end, stamp) = match self.receive(port) {
                Ok(received) => received,
                Err(Errno::EAGAIN) => return Ok(None),
                Err(Errno::EINTR) => continue,
                Err(error) => return Err(Error::system("reading a packet", error)),
            };
            let now = self.now();
            let (at, late) = match calendar.zip(stamp) {
                Some((calendar, stamp)) => (calendar.time_of(stamp).min(now), Duration::ZERO),
                None => (now, now.saturating_since(self.idle_at)),
            };
            last = last.max(at);
            if end > HEADROOM {
                self.arrive(port, end, at, late)?;
            }
        }
        Ok(Some(last))
    }

    /// Reads a packet of a host into the scratch buffer; returns its end there, and the kernel's timestamp.
    fn receive(&mut self, port: usize) -> nix::Result<(usize, Option<Duration>)> {
        let descriptor = match &self.ports[port] {
            Port::Tun(descriptor) => {
                let read = nix::unistd::read(descriptor, &mut self.scratch[HEADROOM..])?;
                return Ok((HEADROOM + read, None));
            }
            Port::Packet(descriptor) => descriptor.as_raw_fd(),
        };
        let mut room = [IoSliceMut::new(&mut self.scratch)];
        let control = Some(&mut self.control[..]);
        let message = recvmsg::<()>(descriptor, &mut room, control, MsgFlags::empty())?;
        let stamp = message.cmsgs()?.find_map(|said| match said {
            ControlMessageOwned::ScmTimestampns(time) => Some(Duration::from(time)),
            _ => None,
        });
        Ok((message.bytes, stamp))
    }

    /// A packet of `port` is in the scratch buffer, up to `end`. It arrived at `at`, or up to `late` before.
    fn arrive(
        &mut self,
        port: usize,
        end: usize,
        at: Timestamp,
        late: Duration,
    ) -> Result<(), Error> {
        let Some(headers) = Headers::parse(&self.scratch[HEADROOM..end]) else {
            return Ok(());
        };
        let Headers { key, payload, segment } = headers;
        let Some(&to) = self.by_address.get(&key.destination) else {
            // Kernels send multicast by themselves.
            self.unroutable += u64::from(!key.destination.is_multicast());
            return Ok(());
        };
        if self.cut[port] {
            return Ok(());
        }
        let flow = match self.flow_numbers.get(&key) {
            Some(&flow) => flow,
            None => {
                let flow = self.flows.len() as u32;
                self.flows.push(key);
                self.passed.push(Passed::default());
                self.flow_numbers.insert(key, flow);
                flow
            }
        };
        let buffer = self.scratch[..end].into();
        let frame = Frame { buffer, flow, port: to, payload, segment, marked: false };
        let first = |right| if self.separate { 2 * (right - self.left) } else { 0 };
        let direction = match (port < self.left, to < self.left) {
            (true, false) => first(to),
            (false, true) => first(port) + 1,
            // Hosts of one side are neighbours, without a link between them.
            _ => return self.send(frame),
        };
        self.arrivals.push(at, late, (direction, frame));
        Ok(())
    }

    /// Passes packets that arrived up to `until` to the bottlenecks, and advances these to that time.
    fn admit(&mut self, until: Timestamp) {
        for Arrival { at, late, packet: (direction, frame) } in self.arrivals.take_until(until) {
            self.window.arrival.record(late);
            self.advance(at);
            let Direction { side, bottleneck, .. } = &mut self.directions[direction];
            let verdict = bottleneck.arrive(at, frame);
            let backlog = bottleneck.backlog().0;
            if verdict != Verdict::Dropped {
                let longest = &mut self.window.directions[*side].longest_queue;
                *longest = backlog.max(*longest);
            }
            self.count_drops(direction);
        }
        self.advance(until);
    }

    /// Advances all bottlenecks to `now`, and takes the samples that were due.
    fn advance(&mut self, now: Timestamp) {
        while self.next_sample <= now {
            let at = self.next_sample;
            self.advance_to(at);
            self.sample(at);
            self.next_sample = at + self.interval.unwrap_or(Duration::MAX);
        }
        self.advance_to(now);
    }

    fn advance_to(&mut self, now: Timestamp) {
        let sampled = self.interval.is_some();
        let passed = &mut self.passed;
        for direction in &mut self.directions {
            let Direction { side, bottleneck, delay, flying } = direction;
            let (tally, sampling) = (&mut self.window.directions[*side], &mut self.sampling[*side]);
            bottleneck.advance(now, |departure| {
                let Departure { packet, waited, at } = departure;
                let bytes = packet.bytes().0;
                let new = match packet.segment {
                    Some(segment) => passed[packet.flow as usize].pass(segment, packet.payload),
                    None => packet.payload,
                };
                tally.count(packet.flow, packet.dscp(), |tally| {
                    tally.counts.packets += 1;
                    tally.counts.bytes += bytes;
                    tally.counts.payload_bytes += u64::from(packet.payload);
                    tally.counts.goodput_bytes += u64::from(new);
                    tally.counts.marked += u64::from(packet.marked);
                    tally.delay.record(waited);
                });
                if sampled {
                    sampling.delay += waited;
                    sampling.packets += 1;
                    *sampling.bytes.entry(packet.flow).or_default() += bytes;
                }
                flying.push_back((at + *delay, packet));
            });
        }
        for index in 0..self.directions.len() {
            self.count_drops(index);
        }
    }

    fn count_drops(&mut self, index: usize) {
        let direction = &mut self.directions[index];
        let (tally, sampling) =
            (&mut self.window.directions[direction.side], &mut self.sampling[direction.side]);
        for Dropped { packet, .. } in direction.bottleneck.effects.dropped.drain(..) {
            tally.count(packet.flow, packet.dscp(), |tally| tally.counts.dropped += 1);
            sampling.dropped += 1;
        }
    }

    fn sample(&mut self, at: Timestamp) {
        for (side, sampling) in self.sampling.iter_mut().enumerate() {
            let links = self.directions.iter().filter(|direction| direction.side == side);
            let mean = (sampling.packets > 0)
                .then(|| sampling.delay.as_secs_f64() * 1e3 / f64::from(sampling.packets));
            sampling.samples.push(Sample {
                time_s: seconds(at),
                queue_bytes: links.map(|direction| direction.bottleneck.backlog().0).sum(),
                queueing_delay_ms: mean,
                dropped: std::mem::take(&mut sampling.dropped),
                bytes: std::mem::take(&mut sampling.bytes).into_iter().collect(),
            });
            sampling.delay = Duration::ZERO;
            sampling.packets = 0;
        }
    }

    /// Delivers due packets.
    fn deliver(&mut self) -> Result<(), Error> {
        for index in 0..self.directions.len() {
            loop {
                let now = self.now();
                let flying = &mut self.directions[index].flying;
                if flying.front().is_none_or(|(due, _)| *due > now) {
                    break;
                }
                let Some((due, frame)) = flying.pop_front() else { break };
                self.window.timing.record(now.saturating_since(due));
                self.send(frame)?;
            }
        }
        Ok(())
    }

    /// Gives a packet to its destination host.
    fn send(&mut self, mut frame: Frame) -> Result<(), Error> {
        if self.cut[frame.port] {
            return Ok(());
        }
        let result = match &self.ports[frame.port] {
            Port::Tun(descriptor) => nix::unistd::write(descriptor, frame.packet()),
            Port::Packet(descriptor) => {
                let kind = if frame.is_v4() { libc::ETH_P_IP } else { libc::ETH_P_IPV6 };
                frame.buffer[..6].copy_from_slice(&HARDWARE_ADDRESS);
                frame.buffer[6..12].copy_from_slice(&HARDWARE_ADDRESS);
                frame.buffer[12..14].copy_from_slice(&(kind as u16).to_be_bytes());
                nix::unistd::write(descriptor, &frame.buffer)
            }
        };
        match result {
            Ok(_) => Ok(()),
            // The receiving host has no room: the record counts it.
            Err(Errno::EAGAIN | Errno::ENOBUFS | Errno::ENOMEM | Errno::EINTR) => {
                self.overruns += 1;
                Ok(())
            }
            // The host has switched its device off, like an unplugged cable.
            Err(Errno::EIO | Errno::ENETDOWN) => Ok(()),
            Err(error) => Err(Error::system("delivering a packet", error)),
        }
    }

    fn finish(mut self) -> Result<Outcome, Error> {
        self.begin_window(String::new());
        for port in &self.ports {
            if let Port::Packet(socket) = port {
                self.overruns += sys::packet_socket_drops(socket)
                    .map_err(|error| Error::system("reading a socket's statistics", error))?;
            }
        }
        let cpu = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
            .map_err(|error| Error::system("reading the thread's processor time", error))?;
        Ok(Outcome {
            windows: self.windows,
            flows: self.flows,
            series: self.sampling.map(|sampling| sampling.samples),
            cpu: cpu.into(),
            overruns: self.overruns,
            unroutable: self.unroutable,
        })
    }
}
