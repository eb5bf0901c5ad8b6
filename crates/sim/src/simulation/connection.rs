//! Connections of a simulation and their timers.

use std::collections::VecDeque;

use lull_cc::Timestamp;

use crate::events::EventQueue;
use crate::memory::bytes_of;
use crate::packet::{AckHeader, Body, Packet};
use crate::tcp::{Receiver, Sender};

use super::Event;

/// Both ends of a connection and the routes between them.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
    /// The starts of the routes in the list of all routes.
    pub(super) forward: u32,
    pub(super) backward: u32,
    pub(super) header_bytes: u16,
    pub(super) source: u32,
    pub(super) client: u32,
    pub(super) dscp: u8,
    /// The group of its packets in statistics.
    pub(super) group: u8,
    /// The receiver's advertised window.
    pub(super) window: u32,
    pub(super) selective: Selective,
    pub(super) echoes: Echoes,
}

/// The arrival times of acknowledgements at the sender, with their time stamps. The sender echoes the last
/// one. Packets have no room for that.
#[derive(Debug, Default)]
pub(super) struct Echoes {
    arrived: VecDeque<(Timestamp, u32)>,
    last: u32,
}

impl Echoes {
    /// An acknowledgement with this time stamp reaches the sender.
    pub(super) fn arrive(&mut self, now: Timestamp, clock: u32) {
        self.arrived.push_back((now, clock));
    }

    /// The time stamp that a segment sent at `sent` echoes. Segments arrive in order.
    pub(super) fn of_segment(&mut self, sent: Timestamp) -> u32 {
        while let Some(&(arrived, clock)) = self.arrived.front()
            && arrived <= sent
        {
            self.last = clock;
            self.arrived.pop_front();
        }
        self.last
    }
}

/// Acknowledgements in flight that have blocks. Most have none, and packets have no room for them.
#[derive(Debug, Default)]
pub(super) struct Selective {
    headers: VecDeque<AckHeader>,
    /// The number of the first.
    first: u32,
}

impl Selective {
    /// Returns the number of an acknowledgement that is sent.
    pub(super) fn send(&mut self, header: AckHeader) -> u32 {
        self.headers.push_back(header);
        self.first.wrapping_add(self.headers.len() as u32 - 1)
    }

    /// An acknowledgement has arrived. They all use the same route: earlier ones that have not arrived were
    /// lost.
    pub(super) fn arrive(&mut self, number: u32) -> AckHeader {
        let before = number.wrapping_sub(self.first);
        self.first = number.wrapping_add(1);
        self.headers.drain(..before as usize);
        self.headers.pop_front().expect("what arrives was sent, and no packet overtakes another")
    }
}

/// The purpose of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimerKind {
    Retransmission,
    Pacing,
    Acknowledgement,
}

/// The times at which the events of a place's timers are scheduled.
///
/// A deadline that moves back, as that of the retransmission timer does with each acknowledgement, schedules
/// nothing: the existing event finds it later, and is scheduled again. An event with another time is
/// obsolete, and skipped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timers([Timestamp; 3]);

impl Timers {
    const NONE: Timers = Timers([Timestamp::FAR_FUTURE; 3]);

    /// Makes sure that an event is scheduled at `deadline` or before.
    pub(super) fn arm(
        &mut self,
        events: &mut EventQueue<Event>,
        kind: TimerKind,
        slot: u32,
        deadline: Timestamp,
    ) {
        let scheduled = &mut self.0[kind as usize];
        if deadline < *scheduled {
            *scheduled = deadline;
            events.insert(deadline, Event::Timer(kind, slot));
        }
    }

    /// An event has come; returns whether it is the scheduled one.
    pub(super) fn expire(&mut self, kind: TimerKind, now: Timestamp) -> bool {
        let scheduled = &mut self.0[kind as usize];
        let is_scheduled = *scheduled == now;
        if is_scheduled {
            *scheduled = Timestamp::FAR_FUTURE;
        }
        is_scheduled
    }
}

/// A place that connections use one after the other.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    /// The number of the current connection: it identifies packets of an earlier one.
    pub(super) generation: u8,
    pub(super) timers: Timers,
    pub(super) connection: Option<Connection>,
}

/// All connections. Slots are reused, so that memory depends on the open connections, not on all past ones.
#[derive(Debug, Default)]
pub(super) struct Connections {
    slots: Vec<ConnectionSlot>,
    free: Vec<u32>,
}

impl Connections {
    /// Puts a connection into a free place.
    pub(super) fn add(&mut self, connection: Connection) -> u32 {
        if let Some(at) = self.free.pop() {
            let slot = &mut self.slots[at as usize];
            slot.connection = Some(connection);
            return at;
        }
        let at = u32::try_from(self.slots.len()).expect("four thousand million connections");
        self.slots.push(ConnectionSlot {
            generation: 0,
            timers: Timers::NONE,
            connection: Some(connection),
        });
        at
    }

    /// Removes the connection from its place. Packets of it that are still in flight will be ignored.
    pub(super) fn remove(&mut self, at: u32) -> Option<Connection> {
        let slot = &mut self.slots[at as usize];
        slot.generation = slot.generation.wrapping_add(1);
        slot.timers = Timers::NONE;
        self.free.push(at);
        slot.connection.take()
    }

    pub(super) fn slot(&mut self, at: u32) -> &mut ConnectionSlot {
        &mut self.slots[at as usize]
    }

    /// Prefetches the memory that a packet at its destination will need.
    pub(super) fn touch(&self, packet: &Packet) {
        if let Body::Datagram(_) = packet.body {
            return;
        }
        let slot = &self.slots[packet.owner.slot() as usize];
        let Some(connection) = &slot.connection else { return };
        match packet.body {
            Body::Ack { .. } | Body::Selective(_) => connection.sender.touch(),
            _ => connection.receiver.touch(),
        }
    }

    /// The same for a timer, which most often is one of the sender's.
    pub(super) fn touch_sender(&self, at: u32) {
        if let Some(connection) = self.get(at) {
            connection.sender.touch();
        }
    }

    /// All open connections.
    pub(super) fn connections(&self) -> impl Iterator<Item = &Connection> {
        self.slots.iter().filter_map(|slot| slot.connection.as_ref())
    }

    /// Memory of all places, in use or not.
    pub(super) fn slot_bytes(&self) -> u64 {
        bytes_of::<ConnectionSlot>(self.slots.len())
    }

    pub(super) fn get(&self, at: u32) -> Option<&Connection> {
        self.slots[at as usize].connection.as_ref()
    }
}
