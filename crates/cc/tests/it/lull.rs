//! Properties of connections that share a path, for any behaviour of the network.

use core::time::Duration;

use lull_cc::lull::{Member, Path};
use lull_cc::{Ack, Timestamp, Window};
use lull_testing::trace::{Event, History, seed};

const EVENTS: usize = 50_000;

/// Up to eight connections of one path. Each has its own history; they end and start again.
struct Crowd {
    path: Path,
    members: Vec<(Member, History, Timestamp, u32)>,
    random: u64,
    /// The latest time of any event, and whether clocks jump ahead.
    latest: Timestamp,
    jumps: bool,
}

impl Crowd {
    fn new(seed: u64, is_wild: bool) -> Self {
        let mut path = Path::default();
        let count = 1 + seed % 8;
        let history = |i| {
            let seed = seed.wrapping_mul(100) + i;
            if is_wild { History::wild(seed) } else { History::plausible(seed) }
        };
        let members =
            (0..count).map(|i| (Member::join(&mut path), history(i), Timestamp::ZERO, 0)).collect();
        Crowd { path, members, random: seed, latest: Timestamp::ZERO, jumps: seed % 4 == 3 }
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.random >> 33) % limit
    }

    /// The next event of some connection.
    fn step(&mut self) {
        let chosen = self.below(self.members.len() as u64) as usize;
        let what = self.below(100);
        let path = &mut self.path;
        let (member, history, now, delivered) = &mut self.members[chosen];
        if what == 0 {
            member.leave(path);
            *member = Member::join(path);
            return;
        }
        if what < 10 {
            member.handle_send(path, *now, *delivered);
            return;
        }
        match history.next().expect("a history has no end") {
            Event::Ack(ack) => {
                // Clocks of processors differ a little, and one jumps ahead when its machine was suspended.
                let at = match what {
                    10..15 => Timestamp::from_micros(ack.now.as_micros().saturating_sub(50_000)),
                    15..20 => self.latest,
                    20 if self.jumps => ack.now + Duration::from_secs(3600),
                    _ => ack.now,
                };
                self.latest = self.latest.max(at);
                (*now, *delivered) = (at, ack.delivered);
                member.handle_ack(path, &Ack { now: at, ..ack });
                let most = path.window().max(Window::TWO);
                assert!(member.window() <= most, "{member:?} has more than {most:?}");
                if path.is_at_floor() {
                    assert_eq!(member.packets(0), 2, "only pairs from here on: {member:?}");
                }
            }
            Event::Loss(at, count) | Event::Mark(at, count) => member.handle_loss(path, at, count),
            Event::Timeout(at, count) => member.handle_timeout(path, at, count),
            Event::Idle(_) => {}
        }
    }
}

fn crowds() -> impl Iterator<Item = Crowd> {
    let seed = seed();
    (0..16).map(move |i| Crowd::new(seed.wrapping_add(i), i % 2 == 1))
}

#[test]
fn any_history_of_shared_path_keeps_its_bounds() {
    for mut crowd in crowds() {
        for _ in 0..EVENTS {
            crowd.step();
            let path = &crowd.path;
            assert_eq!(path.members() as usize, crowd.members.len());
            assert!(path.window().raw() > 0 && path.window().packets() <= 1 << 20);
            for (member, ..) in &crowd.members {
                assert!(member.packets(0) >= 2, "{member:?}");
                let pace = member.pacing(50_000, 1448).expect("there is a round-trip time");
                // A pair in 10 s is the minimum progress.
                assert!(pace.rate.bytes_per_second() >= 2 * 1448 / 10, "{member:?}");
            }
        }
        for (member, ..) in &mut crowd.members {
            member.leave(&mut crowd.path);
        }
        assert_eq!((crowd.path.members(), crowd.path.in_flight()), (0, 0));
    }
}

/// An acknowledgement of a whole window, one packet of which has the round-trip time `rtt`.
fn ack(now_micros: u64, delivered: u32, packets: u32, rtt: u32) -> Ack {
    Ack {
        now: Timestamp::from_micros(now_micros),
        delivered,
        prior_delivered: delivered - packets,
        acked: packets,
        in_flight: packets,
        rtt_micros: core::num::NonZeroU32::new(rtt),
        ..Ack::default()
    }
}

/// Instead of Theorem 1 of the OSDI paper: all connections together have no more in flight than the window of
/// the path and a pair for each.
#[test]
fn connections_together_stay_within_one_window() {
    let mut path = Path::default();
    let mut members: Vec<_> = (0..64).map(|_| Member::join(&mut path)).collect();
    let (mut now, mut delivered, mut largest) = (1_000_000, vec![0; 64], 0);
    for round in 0..400 {
        now += 50_000;
        for (member, delivered) in members.iter_mut().zip(&mut delivered) {
            let at = Timestamp::from_micros(now);
            member.handle_send(&mut path, at, *delivered);
            let packets = member.packets(0);
            *delivered += packets;
            // A queue each 40 rounds.
            let rtt = if round % 40 == 39 { 80_000 } else { 50_000 };
            member.handle_ack(&mut path, &ack(now, *delivered, packets, rtt));
        }
        let together: u64 = members.iter().map(|member| u64::from(member.packets(0))).sum();
        let most = path.window().packets() + 2 * members.len() as u64;
        assert!(together <= most, "{together} of {most} in round {round}");
        largest = largest.max(path.window().packets());
    }
    assert!(largest > 100, "the test shows nothing: {path:?}");
}

/// One connection on a path of a constant rate: rounds of its window, and pairs with their pauses.
struct Lone {
    path: Path,
    member: Member,
    now: u64,
    delivered: u32,
    /// Microseconds that the path takes for a packet, and its round-trip time.
    packet: u64,
    rtt: u64,
    random: u64,
}

impl Lone {
    fn new(seed: u64) -> Self {
        let mut path = Path::default();
        let member = Member::join(&mut path);
        let mut lone =
            Lone { path, member, now: 1_000_000, delivered: 0, packet: 0, rtt: 0, random: seed };
        // 100 kbit/s to 100 Mbit/s, 2 to 300 ms.
        lone.packet = 120 << lone.below(10);
        lone.rtt = 2_000 + lone.below(298_000);
        lone
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.random >> 33) % limit
    }

    /// Sends what the window allows, all of which meets a queue of others of so many microseconds and its own. Returns
    /// the packets.
    fn round(&mut self, others: u64) -> u64 {
        self.member.handle_send(&mut self.path, Timestamp::from_micros(self.now), self.delivered);
        let packets = self.member.packets(0);
        let own = (u64::from(packets) * self.packet).saturating_sub(self.rtt + others);
        let rtt = self.rtt + others + own;
        let is_pair = !self.member.leads(&self.path) || self.path.is_at_floor();
        let pace = self.member.pacing(self.rtt as u32, 1448);
        self.delivered += packets;
        let ack = ack(self.now + rtt, self.delivered, packets, rtt as u32);
        self.member.handle_ack(&mut self.path, &ack);
        self.now += rtt;
        if let Some(pace) = pace.filter(|_| is_pair && self.path.is_at_floor()) {
            let pause = 2 * 1448 * 1_000_000 / pace.rate.bytes_per_second();
            self.now += pause.saturating_sub(rtt);
        }
        u64::from(packets)
    }

    /// A round beside others, whose queue changes.
    fn round_beside_others(&mut self) -> u64 {
        // A queue of constant length would be a longer path.
        let least = 30_000 + 20 * self.packet;
        let queue = least + self.below(least);
        self.round(queue)
    }
}

/// What others lose, instead of Theorem 1 of the OSDI paper: while they keep a queue, the background sends four of its
/// windows at most, then pairs at the pace of the minimum progress, and a few trials of a longer path.
#[test]
fn queue_of_others_meets_few_windows_and_then_pairs() {
    let mut filled = 0;
    for number in 0..200 {
        let mut lone = Lone::new(seed().wrapping_add(number));
        for _ in 0..60 + lone.below(300) {
            lone.round(0);
        }
        let before = lone.path.window().packets();
        let (mut sent, mut rounds) = (0, 0);
        while !lone.path.is_at_floor() && rounds < 40 {
            sent += lone.round_beside_others();
            rounds += 1;
        }
        let setting = format!("{number}: {before} packets, {} us, {} us", lone.packet, lone.rtt);
        println!("{setting}: {sent} in {rounds} rounds");
        assert!(lone.path.is_at_floor() && sent <= 4 * before + 16, "{setting}: {sent}");
        filled += u32::from(before > 30);
        let (since, mut pairs) = (lone.now, 0);
        while lone.now < since + 60_000_000 {
            pairs += lone.round_beside_others();
        }
        let most = 2 * (lone.now - since) / (200 * lone.packet).min(1_000_000);
        println!("{setting}: {pairs} of {most}");
        assert!(pairs <= most + most / 8 + 150, "{setting}: {pairs} of {most}");
    }
    assert!(filled > 50, "the test shows nothing: {filled}");
}

/// A suspended machine's clock jumps ahead, clocks of processors differ, and 32 bits of microseconds overflow.
#[test]
fn window_is_regained_after_jumps_of_the_clock() {
    let hour = 3_600_000_000;
    for (start, jump) in [(1_000_000, hour), (1_000_000, -100), ((1 << 32) - 3_000_000, 0)] {
        for number in 0..50 {
            let mut lone = Lone::new(seed().wrapping_add(number));
            lone.now = start;
            for _ in 0..300 {
                lone.round(0);
            }
            let before = lone.path.window().packets();
            lone.now = lone.now.saturating_add_signed(jump);
            for _ in 0..300 {
                lone.round(0);
            }
            let after = lone.path.window().packets();
            assert!(after >= before / 2, "{number}, {jump}: {after} of {before}");
        }
    }
}

#[test]
fn connection_that_ends_frees_the_lead() {
    let mut path = Path::default();
    let mut first = Member::join(&mut path);
    let mut second = Member::join(&mut path);
    let start = |member: &mut Member, path: &mut Path, now| {
        member.handle_ack(path, &ack(now, 2, 2, 50_000));
    };
    start(&mut first, &mut path, 1_000_000);
    start(&mut second, &mut path, 1_000_001);
    let mut delivered = 2;
    for round in 1..20 {
        let packets = first.packets(0);
        delivered += packets;
        first.handle_ack(&mut path, &ack(1_000_000 + round * 50_000, delivered, packets, 50_000));
    }
    let window = path.window();
    assert!(first.packets(0) > 20 && second.packets(0) == 2);
    first.leave(&mut path);
    second.handle_send(&mut path, Timestamp::from_micros(2_000_000), 2);
    assert_eq!(second.window(), window, "the window passes on");
}

/// A connection often begins with a short request; then full packets follow, which need longer on the link.
#[test]
fn small_packet_does_not_set_the_lowest_rtt() {
    let mut path = Path::default();
    let mut member = Member::join(&mut path);
    let small = |now, delivered, rtt| Ack { is_small: true, ..ack(now, delivered, 2, rtt) };
    member.handle_ack(&mut path, &small(1_000_000, 2, 30_000));
    assert_eq!(path.min_rtt_micros(), 30_000, "there is nothing better");
    member.handle_ack(&mut path, &ack(1_030_000, 4, 2, 30_600));
    assert_eq!(path.min_rtt_micros(), 30_600);
    member.handle_ack(&mut path, &small(1_060_000, 6, 30_000));
    assert_eq!(path.min_rtt_micros(), 30_600);
}

/// The pair that ends the floor belongs to a connection that must not send before its next turn.
#[test]
fn sleeping_connection_reserves_no_window() {
    let mut path = Path::default();
    let mut first = Member::join(&mut path);
    let mut second = Member::join(&mut path);
    second.handle_ack(&mut path, &ack(999_999, 2, 2, 50_000));
    let (mut now, mut delivered) = (1_000_000, 2);
    let mut round = |path: &mut Path, elapsed: u64, rtt| {
        now += elapsed;
        first.handle_send(path, Timestamp::from_micros(now), delivered);
        now += u64::from(rtt);
        let packets = first.packets(0);
        delivered += packets;
        first.handle_ack(path, &ack(now, delivered, packets, rtt));
        now
    };
    for rtt in [50_000; 20].into_iter().chain([90_000; 20]) {
        round(&mut path, 0, rtt);
    }
    assert!(path.is_at_floor());
    let now = round(&mut path, 5_000_000, 50_000);
    assert!(!path.is_at_floor() && path.window().packets() >= 4, "{path:?}");
    second.handle_send(&mut path, Timestamp::from_micros(now + 100_000), 2);
    assert_eq!(second.window(), path.window());
}
