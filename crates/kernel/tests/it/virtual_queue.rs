//! `bpf/virtual_queue.h` and `lull_cc::datagram::VirtualQueue` decide alike.

use lull_cc::Timestamp;
use lull_cc::datagram::{Allowance, Packet, VirtualQueue};

use crate::mirror::compile;

const PACKETS: usize = 200_000;
/// `VIRTUAL_QUEUE_NOT_KNOWN` of `bpf/virtual_queue_types.h`.
const NOT_KNOWN: u64 = u64::MAX;

/// xorshift64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    /// A value of any magnitude.
    fn any(&mut self) -> u64 {
        let bits = self.below(64);
        self.below(u64::MAX) >> bits
    }
}

/// Packets at usual times and sizes, with an allowance that changes now and then, and some extreme values.
fn history(seed: u64) -> Vec<(Timestamp, Packet, Allowance)> {
    let mut random = Random(seed);
    let (mut now, mut passed) = (1_000_000, 0);
    let mut allowance = Allowance::default();
    let mut packets = Vec::new();
    for _ in 0..PACKETS {
        now += random.below(3_000) * random.below(2);
        let mut bytes = 40 + random.below(1_461) * (1 + random.below(2) * random.below(40));
        match random.below(200) {
            0 => now += random.below(4_000_000),
            1 => now = now.saturating_sub(random.below(100_000)),
            2 => bytes = random.any(),
            3..15 => {
                allowance = Allowance {
                    written: now,
                    limit: random.below(200_000),
                    rate: random.below(12_500_000),
                    delivered: (random.below(3) > 0).then(|| passed - random.below(passed + 1) / 8),
                };
            }
            15 => {
                let [written, limit, rate, delivered] = [(); 4].map(|()| random.any());
                let delivered = Some(delivered).filter(|&it| it != NOT_KNOWN);
                allowance = Allowance { written, limit, rate, delivered };
            }
            _ => {}
        }
        passed += bytes.min(100_000) / 2;
        let packet = Packet { bytes, is_ecn_capable: random.below(2) == 0 };
        packets.push((Timestamp::from_micros(now), packet, allowance));
    }
    packets
}

#[test]
fn virtual_queue_and_its_mirror_decide_alike() {
    let mirror = compile("virtual_queue");
    let mut verdicts = [0_u64; 3];
    for seed in 1..=4 {
        let history = history(seed);
        let words = history.iter().flat_map(|(now, packet, allowance)| {
            [
                now.as_micros(),
                packet.bytes,
                packet.is_ecn_capable.into(),
                allowance.written,
                allowance.limit,
                allowance.rate,
                allowance.delivered.unwrap_or(NOT_KNOWN),
            ]
        });
        let answers = mirror.run(&words.collect::<Vec<_>>());
        assert_eq!(answers.len(), 5 * history.len());
        let mut queue = VirtualQueue::default();
        for (at, ((now, packet, allowance), answer)) in
            history.iter().zip(answers.chunks_exact(5)).enumerate()
        {
            let verdict = queue.admit(*now, *packet, allowance) as usize;
            verdicts[verdict] += 1;
            let [level, updated, corrected, passed] = queue.state();
            let expected = [verdict as u64, level, updated, corrected, passed];
            assert_eq!(answer, expected, "packet {at} of {seed}: {packet:?} {allowance:?}");
        }
    }
    assert!(verdicts.iter().all(|&times| times > 1_000), "{verdicts:?}");
}
