//! Uploads over a model of a link: a queue of 1.25 MB/s behind 50 ms, with a buffer of one bandwidth-delay product.

use super::*;
use crate::datagram::{Packet, Verdict, VirtualQueue};

const BYTES_PER_MS: u64 = 1_250;
const BASE_MICROS: u64 = 50_000;
const BUFFER: u64 = 62_500;

/// A link, a sender that always has packets, and the virtual queue between them.
#[derive(Default)]
struct Model {
    now: u64,
    uploads: Uploads,
    queue: VirtualQueue,
    allowance: Allowance,
    refused: u64,
    /// Bytes in the bottleneck's queue, and those of the uploads.
    backlog: u64,
    own: u64,
    /// Echoes on their way: when they arrive, their probe, and its round-trip time.
    echoes: Vec<(u64, u32, u64)>,
    answers: bool,
}

/// The observations of an interval.
#[derive(Debug, Default)]
struct Observed {
    passed: u64,
    /// The sum of the backlog, and its maximum.
    backlog: u64,
    highest: u64,
}

impl Model {
    fn new() -> Self {
        Model { now: 1_000_000, answers: true, ..Model::default() }
    }

    fn at(&self) -> Timestamp {
        Timestamp::from_micros(self.now)
    }

    /// One millisecond in which the sender offers packets, and others keep `others` bytes in the queue.
    fn step(&mut self, offered: u64, others: u64, seen: &mut Observed) {
        self.now += 1_000;
        let before = self.queue.passed();
        for _ in 0..offered {
            let packet = Packet { bytes: PACKET_BYTES, is_ecn_capable: false };
            let verdict = self.queue.admit(self.at(), packet, &self.allowance);
            self.refused += u64::from(verdict == Verdict::Drop);
        }
        let passed = self.queue.passed() - before;
        self.own = (self.own + passed).min(BUFFER - others);
        self.backlog = self.own + others;
        self.poll();
        // A queue serves all in the order of their arrival.
        let served = (BYTES_PER_MS * self.own).div_ceil(self.backlog.max(1));
        self.own = self.own.saturating_sub(served.max(u64::from(others == 0) * BYTES_PER_MS));
        self.backlog = self.own + others;
        seen.passed += passed;
        seen.backlog += self.backlog;
        seen.highest = seen.highest.max(self.backlog);
    }

    fn poll(&mut self) {
        let now = self.at();
        let counts = Counts { passed: self.queue.passed(), refused: self.refused };
        self.uploads.handle_counts(now, counts);
        let arrived: Vec<_> = self.echoes.extract_if(.., |echo| echo.0 <= self.now).collect();
        for (_, number, rtt) in arrived {
            let rtt = u32::try_from(rtt).unwrap().try_into().unwrap();
            self.uploads.handle_reply(now, number, rtt);
            self.allowance = self.uploads.allowance(now);
        }
        if let Some(number) = self.uploads.poll(now) {
            let rtt = BASE_MICROS + self.backlog * 1_000 / BYTES_PER_MS;
            if self.answers && self.backlog < BUFFER {
                self.echoes.push((self.now + rtt, number, rtt));
            }
            if self.uploads.last_rtt_micros().is_some() {
                self.allowance = self.uploads.allowance(now);
            }
        }
    }

    fn run(&mut self, millis: u64, offered: u64, others: u64) -> Observed {
        let mut seen = Observed::default();
        for _ in 0..millis {
            self.step(offered, others, &mut seen);
        }
        seen
    }
}

#[test]
fn greedy_sender_alone_uses_the_link_without_a_queue() {
    let mut model = Model::new();
    model.run(5_000, 3, 0);
    let seen = model.run(10_000, 3, 0);
    assert!(seen.passed > 10_000 * BYTES_PER_MS * 85 / 100, "{seen:?} {:?}", model.allowance);
    assert!(seen.backlog / 10_000 < BUFFER / 5, "{seen:?}");
}

#[test]
fn uploads_yield_to_the_queue_of_others_and_return() {
    let mut model = Model::new();
    model.run(10_000, 3, 0);
    model.run(2_000, 3, BUFFER * 5 / 8);
    assert!(model.uploads.path().is_at_floor());
    let seen = model.run(10_000, 3, BUFFER * 5 / 8);
    assert!(seen.passed < 10_000 * BYTES_PER_MS * 3 / 100, "{seen:?}");
    assert!(seen.passed > 5 * PACKET_BYTES, "no connection times out: {seen:?}");
    model.run(5_000, 3, 0);
    let seen = model.run(10_000, 3, 0);
    assert!(seen.passed > 10_000 * BYTES_PER_MS * 85 / 100, "{seen:?} {:?}", model.allowance);
}

#[test]
fn path_without_echoes_has_a_megabit_per_second() {
    let mut model = Model { answers: false, ..Model::new() };
    model.run(1_000, 3, 0);
    let seen = model.run(10_000, 3, 0);
    assert_eq!(model.allowance, Allowance::default());
    assert!(seen.passed <= 10 * 125_000 + 15_000, "{seen:?}");
    assert!(seen.passed >= 10 * 120_000, "{seen:?}");
}

#[test]
fn end_of_echoes_leads_to_the_floor() {
    let mut model = Model::new();
    model.run(10_000, 3, 0);
    model.answers = false;
    model.run(3_000, 3, 0);
    let seen = model.run(10_000, 3, 0);
    assert!(seen.passed < 10_000 * BYTES_PER_MS * 3 / 100, "{seen:?}");
    assert!(seen.passed > 5 * PACKET_BYTES, "{seen:?}");
}

#[test]
fn idle_uploads_send_no_probes() {
    let mut model = Model::new();
    assert_eq!(model.uploads.next_time(model.at()), None);
    model.run(2_000, 1, 0);
    assert!(model.uploads.next_time(model.at()).is_some());
    let sent = model.uploads.next_number;
    model.run(5_000, 0, 0);
    assert_eq!(model.uploads.next_time(model.at()), None);
    assert!(model.uploads.next_number - sent < 100);
    model.run(100, 1, 0);
    assert!(model.uploads.next_time(model.at()).is_some());
}

#[test]
fn small_sender_is_never_slowed() {
    let mut model = Model::new();
    // A packet in 15 ms is 0.8 Mbit/s.
    for _ in 0..2_000 {
        model.run(1, 1, 0);
        model.run(14, 0, 0);
    }
    assert_eq!(model.refused, 0);
}

#[test]
fn probes_take_a_hundredth_of_the_path() {
    let mut model = Model::new();
    model.run(5_000, 3, 0);
    let before = model.uploads.next_number;
    model.run(10_000, 3, 0);
    let sent = u64::from(model.uploads.next_number - before);
    assert!(sent > 10, "{sent}");
    assert!(sent * PROBE_BYTES < 10_000 * BYTES_PER_MS / 90, "{sent}");
}

#[test]
fn any_history_keeps_an_allowance_of_two_packets() {
    let mut random = 88_172_645_463_325_252_u64;
    let mut next = |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let mut uploads = Uploads::default();
    let (mut now, mut counts) = (1_u64, Counts::default());
    for _ in 0..100_000 {
        now += next(60_000) * next(3);
        let at = Timestamp::from_micros(now);
        counts.passed += next(60_000) * next(2);
        counts.refused += next(3) / 2;
        uploads.handle_counts(at, counts);
        let number = uploads.poll(at).unwrap_or(uploads.next_number);
        if next(3) == 0 {
            let number = number.wrapping_sub(next(5) as u32);
            let rtt = NonZeroU32::new(1 + next(300_000) as u32).unwrap();
            uploads.handle_reply(at, number, rtt);
        }
        let allowance = uploads.allowance(at);
        if uploads.last_rtt_micros().is_some() {
            assert!(allowance.limit >= 2 * PACKET_BYTES && allowance.rate > 0, "{allowance:?}");
            assert!(allowance.delivered.is_none_or(|it| it <= counts.passed), "{allowance:?}");
        }
    }
}
