//! The thread that drives all sockets of a cell.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::{Duration, Instant};

use lull_transport::{Guard, TcpInfo};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::EventFd;

mod probes;

use super::requests::{Client, Server, SocketState};
use super::socket::{Role, connecting, listener};
use super::{Answered, Placed, Tally, TrafficError, Work, sys};
use crate::random::Random;
use probes::{Prober, Sending};

/// How often the senders' round-trip times are sampled.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);
/// How long a client waits after a connection was refused or reset.
const RETRY: Duration = Duration::from_millis(500);
/// Chunks that one socket may write or read before the others.
const TURN: usize = 16;
const CHUNK: usize = 64 * 1024;
/// The token of the descriptor that wakes the thread.
const WAKE: u64 = 0;

/// Commands from other threads.
pub(super) enum Order {
    Begin(usize),
    End(usize),
    /// Whether a group has done all its work.
    IsDone(usize, Sender<bool>),
    Tally(Sender<(Instant, Vec<Tally>)>),
    Stop,
}

/// Work that is due at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum DueWork {
    Sample,
    /// A connection or a client of a group starts, in the group's n-th activity.
    Begin {
        group: usize,
        activity: u32,
    },
    /// A group of probes begins its next action.
    Probe {
        group: usize,
        activity: u32,
    },
    /// A client with its own connection makes its next request.
    Ask {
        token: u64,
    },
}

#[derive(Debug)]
enum Socket {
    Listener(TcpListener),
    Sender(TcpStream),
    Receiver { stream: TcpStream, peer: SocketAddr },
    Client(Client),
    Server(Server),
    Probe(Sending),
}

impl Socket {
    fn descriptor(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Listener(listener) => listener.as_fd(),
            Socket::Sender(stream) | Socket::Receiver { stream, .. } => stream.as_fd(),
            Socket::Client(client) => client.stream.as_fd(),
            Socket::Server(server) => server.stream.as_fd(),
            Socket::Probe(sending) => sending.stream.as_fd(),
        }
    }

    /// The events that it waits for.
    fn interest(&self) -> EpollFlags {
        let sending = match self {
            Socket::Listener(_) | Socket::Receiver { .. } => false,
            // A sender never receives data, and learns of errors in any case.
            Socket::Sender(_) => return EpollFlags::EPOLLOUT,
            // Neither does a probe's sender, which has data to send only for some time.
            Socket::Probe(sending) if sending.has_more() => return EpollFlags::EPOLLOUT,
            Socket::Probe(_) => return EpollFlags::empty(),
            Socket::Client(client) => client.is_asking(),
            Socket::Server(server) => server.is_sending(),
        };
        let writing = if sending { EpollFlags::EPOLLOUT } else { EpollFlags::empty() };
        EpollFlags::EPOLLIN | writing
    }
}

#[derive(Debug)]
struct Entry {
    group: usize,
    socket: Socket,
    interest: EpollFlags,
    /// The thread of this program that controls a sender, if any.
    guard: Option<Guard>,
}

#[derive(Debug)]
struct State {
    placed: Placed,
    address: SocketAddr,
    active: bool,
    /// Counts how often it has started.
    activity: u32,
    tally: Tally,
    /// For a group of probes, its next actions.
    prober: Option<Prober>,
}

#[derive(Debug)]
pub(super) struct Engine {
    epoll: Epoll,
    wake: Arc<EventFd>,
    groups: Vec<State>,
    entries: BTreeMap<u64, Entry>,
    next_token: u64,
    due: BinaryHeap<Reverse<(Instant, u64, DueWork)>>,
    sequence: u64,
    random: Random,
    scratch: Vec<u8>,
}

fn system(what: &'static str) -> impl Fn(Errno) -> TrafficError {
    move |errno| TrafficError::system(what)(errno.into())
}

impl Engine {
    pub(super) fn new(
        groups: Vec<Placed>,
        seed: u64,
        wake: Arc<EventFd>,
    ) -> Result<Self, TrafficError> {
        let epoll =
            Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(system("making an epoll"))?;
        epoll
            .add(&wake, EpollEvent::new(EpollFlags::EPOLLIN, WAKE))
            .map_err(system("watching a descriptor"))?;
        let mut engine = Engine {
            epoll,
            wake,
            groups: Vec::new(),
            entries: BTreeMap::new(),
            next_token: WAKE + 1,
            due: BinaryHeap::new(),
            sequence: 0,
            random: Random::new(seed),
            scratch: vec![0; CHUNK],
        };
        for (group, placed) in groups.into_iter().enumerate() {
            // Data go from `from` to `to`: either the connecting side sends them, or it receives them.
            let listener = match placed.work {
                Work::Requests { .. } => listener(&placed, &placed.from, Role::Data)?,
                _ => listener(&placed, &placed.to, Role::Sink)?,
            };
            let address =
                listener.local_addr().map_err(TrafficError::system("asking for an address"))?;
            let (tally, prober) = (Tally::default(), Prober::new(&placed));
            let (active, activity) = (false, 0);
            engine.groups.push(State { placed, address, active, activity, tally, prober });
            engine.add(group, Socket::Listener(listener))?;
        }
        Ok(engine)
    }

    fn add(&mut self, group: usize, socket: Socket) -> Result<u64, TrafficError> {
        let token = self.next_token;
        self.next_token += 1;
        let interest = socket.interest();
        self.epoll
            .add(socket.descriptor(), EpollEvent::new(interest, token))
            .map_err(system("watching a socket"))?;
        self.entries.insert(token, Entry { group, socket, interest, guard: None });
        Ok(token)
    }

    fn schedule(&mut self, at: Instant, due: DueWork) {
        self.sequence += 1;
        self.due.push(Reverse((at, self.sequence, due)));
    }

    /// Runs until it is stopped.
    pub(super) fn run(mut self, orders: &Receiver<Order>) -> Result<(), TrafficError> {
        self.schedule(Instant::now() + SAMPLE_INTERVAL, DueWork::Sample);
        let mut events = [EpollEvent::empty(); 128];
        loop {
            let ready = self
                .epoll
                .wait(&mut events, self.timeout())
                .or_else(|errno| if errno == Errno::EINTR { Ok(0) } else { Err(errno) })
                .map_err(system("waiting for sockets"))?;
            for event in &events[..ready] {
                match event.data() {
                    WAKE => drop(self.wake.read()),
                    token => self.turn(token)?,
                }
            }
            let now = Instant::now();
            while let Some(&Reverse((at, _, due))) = self.due.peek() {
                if at > now {
                    break;
                }
                self.due.pop();
                self.handle_due(due)?;
            }
            if !self.handle_commands(orders)? {
                return Ok(());
            }
        }
    }

    /// The time until the next due work, in whole milliseconds, rounded up, for epoll.
    fn timeout(&self) -> EpollTimeout {
        let Some(Reverse((at, ..))) = self.due.peek() else { return EpollTimeout::NONE };
        let wait = at.saturating_duration_since(Instant::now());
        let millis = wait.as_micros().div_ceil(1000).min(1000);
        EpollTimeout::from(u16::try_from(millis).unwrap_or(1000))
    }

    /// Executes commands; returns whether to continue.
    fn handle_commands(&mut self, orders: &Receiver<Order>) -> Result<bool, TrafficError> {
        loop {
            match orders.try_recv() {
                Err(TryRecvError::Empty) => return Ok(true),
                Err(TryRecvError::Disconnected) | Ok(Order::Stop) => {
                    (0..self.groups.len()).for_each(|group| self.end(group));
                    return Ok(false);
                }
                Ok(Order::Begin(group)) => self.begin(group),
                Ok(Order::End(group)) => self.end(group),
                Ok(Order::IsDone(group, answer)) => {
                    let prober = self.groups[group].prober.as_ref();
                    let _ = answer.send(prober.is_some_and(Prober::is_done));
                }
                Ok(Order::Tally(answer)) => {
                    // Fails only if the caller has gone.
                    let _ = answer.send((Instant::now(), self.tallies()));
                }
            }
        }
    }

    fn begin(&mut self, group: usize) {
        let state = &mut self.groups[group];
        state.active = true;
        state.activity += 1;
        let activity = state.activity;
        let spread = state.placed.spread;
        if self.begin_probes(group) {
            return;
        }
        let now = Instant::now();
        for _ in 0..self.groups[group].placed.count {
            let at = now + self.random.within(spread);
            self.schedule(at, DueWork::Begin { group, activity });
        }
    }

    fn end(&mut self, group: usize) {
        self.groups[group].active = false;
        let tokens: Vec<u64> = self
            .entries
            .iter()
            .filter(|(_, entry)| {
                entry.group == group
                    && matches!(
                        entry.socket,
                        Socket::Sender(_)
                            | Socket::Client(_)
                            | Socket::Server(_)
                            | Socket::Probe(_)
                    )
            })
            .map(|(token, _)| *token)
            .collect();
        for token in tokens {
            if let Some(entry) = self.entries.get(&token) {
                // If the option is refused, closing sends the rest, which takes little time.
                let _ = sys::set_abort_on_close(&entry.socket.descriptor());
            }
            self.remove(token);
        }
    }

    /// Closes a socket.
    fn remove(&mut self, token: u64) {
        let Some(entry) = self.entries.remove(&token) else { return };
        if let (Socket::Sender(_) | Socket::Server(_) | Socket::Probe(_), Ok(information)) =
            (&entry.socket, TcpInfo::of(entry.socket.descriptor()))
        {
            let tally = &mut self.groups[entry.group].tally;
            tally.retransmitted += u64::from(information.retransmitted);
        }
        // Closing alone would be enough; this cannot fail for a registered descriptor.
        let _ = self.epoll.delete(entry.socket.descriptor());
    }

    fn tallies(&self) -> Vec<Tally> {
        let mut tallies: Vec<Tally> = self.groups.iter().map(|state| state.tally.clone()).collect();
        for entry in self.entries.values() {
            let tally = &mut tallies[entry.group];
            match &entry.socket {
                Socket::Client(client) if client.is_waiting() => tally.open.push(client.asked),
                sending @ (Socket::Sender(_) | Socket::Server(_) | Socket::Probe(_)) => {
                    let information = TcpInfo::of(sending.descriptor());
                    tally.retransmitted +=
                        information.map_or(0, |information| u64::from(information.retransmitted));
                }
                _ => {}
            }
        }
        tallies
    }

    fn handle_due(&mut self, due: DueWork) -> Result<(), TrafficError> {
        match due {
            DueWork::Sample => {
                self.sample();
                self.schedule(Instant::now() + SAMPLE_INTERVAL, DueWork::Sample);
            }
            DueWork::Begin { group, activity } => {
                let state = &self.groups[group];
                if state.active && state.activity == activity {
                    self.connect(group)?;
                }
            }
            DueWork::Probe { group, activity } => {
                let state = &self.groups[group];
                if state.active && state.activity == activity {
                    self.probe(group)?;
                }
            }
            DueWork::Ask { token } => {
                let mut failed = false;
                if let Some(entry) = self.entries.get_mut(&token)
                    && let Socket::Client(client) = &mut entry.socket
                {
                    failed = client.ask(Instant::now()).is_err();
                }
                if failed {
                    self.lose(token);
                } else {
                    self.watch(token)?;
                }
            }
        }
        Ok(())
    }

    fn sample(&mut self) {
        for entry in self.entries.values() {
            let stream = match &entry.socket {
                Socket::Sender(stream) => stream,
                Socket::Server(server) if server.is_sending() => &server.stream,
                _ => continue,
            };
            let Ok(information) = TcpInfo::of(stream) else { continue };
            if information.srtt_micros == 0 {
                continue;
            }
            let tally = &mut self.groups[entry.group].tally;
            tally.srtt_sum += Duration::from_micros(information.srtt_micros.into());
            tally.window_sum += u64::from(information.cwnd);
            tally.samples += 1;
        }
    }

    /// A new connection of a group.
    fn connect(&mut self, group: usize) -> Result<(), TrafficError> {
        let asked = Instant::now();
        let State { placed, address, tally, .. } = &mut self.groups[group];
        let address = *address;
        let ends = |stream: &TcpStream| {
            stream.local_addr().map_err(TrafficError::system("asking for an address"))
        };
        let socket = match placed.work {
            Work::Requests { bytes, .. } => {
                let stream = connecting(placed, &placed.to, Role::Sink, address)?;
                tally.flows.insert((address, ends(&stream)?));
                Socket::Client(Client::new(stream, asked, bytes))
            }
            _ => {
                let stream = connecting(placed, &placed.from, Role::Data, address)?;
                tally.flows.insert((ends(&stream)?, address));
                Socket::Sender(stream)
            }
        };
        self.add(group, socket)?;
        Ok(())
    }

    /// Registers a socket's present events with epoll.
    fn watch(&mut self, token: u64) -> Result<(), TrafficError> {
        let Some(entry) = self.entries.get_mut(&token) else { return Ok(()) };
        let interest = entry.socket.interest();
        if interest != entry.interest {
            entry.interest = interest;
            let mut event = EpollEvent::new(interest, token);
            self.epoll
                .modify(entry.socket.descriptor(), &mut event)
                .map_err(system("watching a socket"))?;
        }
        Ok(())
    }

    /// Runs a socket as far as possible.
    fn turn(&mut self, token: u64) -> Result<(), TrafficError> {
        let Some(entry) = self.entries.get_mut(&token) else { return Ok(()) };
        let group = entry.group;
        let tally = &mut self.groups[group].tally;
        match &mut entry.socket {
            Socket::Listener(listener) => {
                return accept(listener).and_then(|accepted| {
                    accepted
                        .into_iter()
                        .try_for_each(|(stream, peer)| self.accepted(group, stream, peer))
                });
            }
            Socket::Sender(stream) => {
                // Writable for the first time: it is connected, or the connection failed.
                if entry.guard.is_none()
                    && let Some(options) = self.groups[group].placed.user_space()
                    && stream.peer_addr().is_ok()
                {
                    entry.guard = Some(options.guard(&*stream)?);
                }
                if write(stream, &self.scratch).is_err() {
                    self.lose(token);
                }
            }
            Socket::Probe(sending) => {
                if sending.turn(&self.scratch).is_err() {
                    self.lose(token);
                }
            }
            Socket::Receiver { stream, peer } => {
                let (peer, (read, ended)) = (*peer, read(stream, &mut self.scratch));
                tally.received += read;
                if self.groups[group].prober.is_none() {
                    *self.groups[group].tally.by_flow.entry(peer).or_default() += read;
                }
                if ended {
                    self.remove(token);
                }
                self.probe_received(group, peer, read);
            }
            Socket::Server(server) => {
                if server.turn(&mut self.scratch) == SocketState::Ended {
                    self.remove(token);
                }
            }
            Socket::Client(client) => match client.turn(&mut self.scratch, &mut tally.received) {
                SocketState::Waiting => {}
                SocketState::Ended => self.lose(token),
                SocketState::Answered => {
                    let asked = client.asked;
                    tally.answered.push(Answered { asked, latency: asked.elapsed() });
                    self.pause(token);
                }
            },
        }
        self.watch(token)
    }

    /// After an object a client thinks, with its connection or without.
    fn pause(&mut self, token: u64) {
        let Some(entry) = self.entries.get(&token) else { return };
        let group = entry.group;
        let state = &self.groups[group];
        let activity = state.activity;
        let Work::Requests { think, persistent, .. } = state.placed.work else { return };
        let at = Instant::now() + self.random.exponential(think);
        if persistent {
            self.schedule(at, DueWork::Ask { token });
        } else {
            self.remove(token);
            self.schedule(at, DueWork::Begin { group, activity });
        }
    }

    /// A connection failed: it is opened again after a delay, if its group is still active.
    fn lose(&mut self, token: u64) {
        let Some(entry) = self.entries.get(&token) else { return };
        let group = entry.group;
        let state = &mut self.groups[group];
        state.tally.failed += 1;
        let activity = state.activity;
        if state.prober.is_some() {
            self.remove(token);
            self.lose_probe(group, token);
            return;
        }
        self.remove(token);
        self.schedule(Instant::now() + RETRY, DueWork::Begin { group, activity });
    }

    fn accepted(
        &mut self,
        group: usize,
        stream: TcpStream,
        peer: SocketAddr,
    ) -> Result<(), TrafficError> {
        let placed = &self.groups[group].placed;
        let mut guard = None;
        let socket = match placed.work {
            Work::Requests { bytes, persistent, .. } => {
                guard = placed.user_space().map(|options| options.guard(&stream)).transpose()?;
                Socket::Server(Server::new(stream, bytes, persistent))
            }
            _ => Socket::Receiver { stream, peer },
        };
        let token = self.add(group, socket)?;
        if let Some(entry) = self.entries.get_mut(&token) {
            entry.guard = guard;
        }
        Ok(())
    }
}

/// All connections that wait at a listener.
fn accept(listener: &TcpListener) -> Result<Vec<(TcpStream, SocketAddr)>, TrafficError> {
    let mut accepted = Vec::new();
    loop {
        match listener.accept() {
            Ok((stream, peer)) => {
                stream
                    .set_nonblocking(true)
                    .map_err(TrafficError::system("setting an option of a socket"))?;
                accepted.push((stream, peer));
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(accepted),
            // The other side has gone already.
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
            Err(error) => return Err(TrafficError::system("accepting a connection")(error)),
        }
    }
}

/// Writes as much as the socket accepts.
fn write(mut stream: &TcpStream, chunk: &[u8]) -> io::Result<()> {
    for _ in 0..TURN {
        match stream.write(chunk) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads all available data: returns the bytes, and whether the connection has ended.
fn read(mut stream: &TcpStream, scratch: &mut [u8]) -> (u64, bool) {
    let mut all = 0;
    for _ in 0..TURN {
        match stream.read(scratch) {
            Ok(0) => return (all, true),
            Ok(read) => all += read as u64,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(_) => return (all, true),
        }
    }
    (all, false)
}
