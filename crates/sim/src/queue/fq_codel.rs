//! Flow queues, served in turn, each under CoDel (RFC 8290).

use std::collections::VecDeque;

use lull_cc::{Bytes, Timestamp};
use serde::{Deserialize, Serialize};

use super::codel::Control;
use super::{Cause, CodelParameters, Dequeued, Effects, Fifo, Limit, QueuedPacket, Verdict};
use crate::random::mix;

/// FQ-CoDel's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FqCodelParameters {
    /// CoDel within each flow queue.
    pub codel: CodelParameters,
    /// Flow queues that packets are hashed into.
    pub flows: u32,
    /// Bytes that a flow queue may send before the next one's turn.
    pub quantum: u32,
}

impl Default for FqCodelParameters {
    fn default() -> Self {
        FqCodelParameters {
            // RFC 8290 §5.2.2: target and interval as in CoDel; §5.2.6: ECN is on.
            codel: CodelParameters { ecn: true, ..CodelParameters::default() },
            // RFC 8290 §5.2.4.
            flows: 1024,
            // RFC 8290 §5.2.3: one packet of Ethernet's MTU with its header.
            quantum: 1514,
        }
    }
}

/// RFC 8290 §4.1: the most packets that one overflow drops.
const DROP_BATCH: u64 = 64;

/// Which list of the scheduler a flow queue is on (RFC 8290 §4.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum List {
    /// On none: it is empty and was not served recently.
    #[default]
    None,
    /// It became active just now and is served first.
    New,
    /// It has used its first quantum, or has become empty.
    Old,
}

#[derive(Clone, Debug)]
struct Flow<P> {
    fifo: Fifo<P>,
    control: Control,
    credits: i64,
    list: List,
}

impl<P> Default for Flow<P> {
    fn default() -> Self {
        Flow { fifo: Fifo::default(), control: Control::default(), credits: 0, list: List::None }
    }
}

/// Flow queues under CoDel with deficit round robin between them and precedence for flows that
/// send less than a quantum per round.
#[derive(Clone, Debug)]
pub struct FqCodel<P> {
    parameters: FqCodelParameters,
    limit: Limit,
    seed: u64,
    flows: Vec<Flow<P>>,
    new: VecDeque<usize>,
    old: VecDeque<usize>,
    packets: u64,
    bytes: u64,
}

impl<P: QueuedPacket> FqCodel<P> {
    /// Empty flow queues that hold at most `limit` together; `seed` perturbs the hash (RFC 8290
    /// §4.1).
    ///
    /// # Panics
    /// If the parameters have no flow queue or no quantum.
    pub fn new(parameters: FqCodelParameters, limit: Limit, seed: u64) -> Self {
        assert!(parameters.flows > 0, "FQ-CoDel needs at least one flow queue");
        assert!(parameters.quantum > 0, "FQ-CoDel needs a quantum of at least one byte");
        FqCodel {
            parameters,
            limit,
            seed: mix(seed),
            flows: (0..parameters.flows).map(|_| Flow::default()).collect(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            packets: 0,
            bytes: 0,
        }
    }

    /// The flow queue that packets of `flow` go into.
    pub fn flow_queue(&self, flow: u64) -> usize {
        (mix(flow ^ self.seed) % self.flows.len() as u64) as usize
    }

    pub(super) fn enqueue(
        &mut self,
        now: Timestamp,
        packet: P,
        effects: &mut Effects<P>,
    ) -> Verdict {
        let index = self.flow_queue(packet.flow());
        self.packets += 1;
        self.bytes += packet.bytes().0;
        let flow = &mut self.flows[index];
        flow.fifo.push(now, packet);
        if flow.list == List::None {
            // §4.1: a queue that was not active is new and starts with a full quantum.
            flow.list = List::New;
            flow.credits = i64::from(self.parameters.quantum);
            self.new.push_back(index);
        }
        while !self.limit.allows(self.packets, self.bytes) {
            self.drop_from_fattest(effects);
        }
        // The arriving packet is the last of its queue: it was dropped only if everything before it was.
        if self.flows[index].fifo.len() == 0 { Verdict::Dropped } else { Verdict::Queued }
    }

    /// §4.1: half of the packets of the queue with the most bytes, at most 64, from its head.
    fn drop_from_fattest(&mut self, effects: &mut Effects<P>) {
        let Some(fattest) = self.flows.iter_mut().max_by_key(|flow| flow.fifo.bytes) else {
            return;
        };
        let batch = fattest.fifo.len().div_ceil(2).min(DROP_BATCH);
        for _ in 0..batch {
            // The waiting time does not matter here: the packet is gone.
            if let Some(dequeued) = fattest.fifo.pop(Timestamp::ZERO) {
                self.packets -= 1;
                self.bytes -= dequeued.packet.bytes().0;
                effects.drop(dequeued.packet, Cause::Overflow);
            }
        }
    }

    /// §4.2: new queues before old ones; a queue without credits or packets moves on.
    pub(super) fn dequeue(
        &mut self,
        now: Timestamp,
        effects: &mut Effects<P>,
    ) -> Option<Dequeued<P>> {
        loop {
            let index = *self.new.front().or_else(|| self.old.front())?;
            let flow = &mut self.flows[index];
            let list = if flow.list == List::New { &mut self.new } else { &mut self.old };
            if flow.credits <= 0 {
                flow.credits += i64::from(self.parameters.quantum);
                list.pop_front();
                flow.list = List::Old;
                self.old.push_back(index);
                continue;
            }
            let dropped_before = effects.dropped.len();
            let dequeued =
                flow.control.dequeue(&self.parameters.codel, &mut flow.fifo, now, effects);
            for dropped in &effects.dropped[dropped_before..] {
                self.packets -= 1;
                self.bytes -= dropped.packet.bytes().0;
            }
            let Some(dequeued) = dequeued else {
                list.pop_front();
                if flow.list == List::New && !self.old.is_empty() {
                    // §4.2: a new queue that becomes empty moves to the old ones. Otherwise it could return
                    // at once as new and starve them.
                    flow.list = List::Old;
                    self.old.push_back(index);
                } else {
                    flow.list = List::None;
                }
                continue;
            };
            let bytes = dequeued.packet.bytes().0;
            flow.credits -= bytes as i64;
            self.packets -= 1;
            self.bytes -= bytes;
            return Some(dequeued);
        }
    }

    pub(super) fn packets(&self) -> u64 {
        self.packets
    }

    pub(super) fn bytes(&self) -> Bytes {
        Bytes(self.bytes)
    }
}
