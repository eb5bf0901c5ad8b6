//! The stand-in of `bpf/lull.h` in Rust, until `lull_cc` has the algorithm.

use lull_cc::{Ack, Timestamp};
use lull_testing::shared_trace::Foreground;
use lull_testing::trace::Event;

use crate::shared_state::SharedAlgorithm;

const ONE: u64 = 1 << 16;
const TWO: u64 = 2 * ONE;
const WINDOW_LIMIT: u64 = ONE << 20;
const RTT_LIMIT: u32 = (1 << 24) - 1;
const STALE: u64 = 200_000;
const PAUSE_PER_MEMBER: u64 = 50_000;
const PAUSES: core::ops::RangeInclusive<u64> = 100_000..=2_000_000;
const TOLERANCE: u32 = 1_000;

/// What all flows of a path share.
#[derive(Debug, Default)]
pub(crate) struct Path {
    window: u64,
    rate: u64,
    leader_seen: u64,
    changed: u64,
    connected: u64,
    base_rtt: u32,
    members: u32,
    leader: u32,
    last_member: u32,
}

/// What a flow has of its own.
#[derive(Debug, Default)]
pub(crate) struct Member {
    window: u64,
    number: u32,
    rtt: u32,
    pause: u32,
    cut_end: u32,
}

impl Path {
    fn leads(&self, member: &Member) -> bool {
        member.number != 0 && self.leader == member.number
    }

    fn settle(&self, member: &mut Member) {
        member.window = if self.leads(member) { self.window } else { ONE };
        let pause = u64::from(self.members) * PAUSE_PER_MEMBER;
        member.pause = pause.clamp(*PAUSES.start(), *PAUSES.end()) as u32;
    }

    fn take_lead(&mut self, member: &mut Member, now: u64, delivered: u32) {
        let stale = (4 * u64::from(self.base_rtt)).max(STALE);
        let is_led = self.leader != 0 && now < self.leader_seen + stale;
        if self.leader == member.number || is_led {
            return;
        }
        self.leader = member.number;
        self.leader_seen = now;
        self.changed = now;
        member.cut_end = delivered;
    }

    fn give_up_lead(&mut self, member: &Member) {
        if self.leads(member) {
            self.leader = 0;
        }
    }

    fn cut(&mut self, member: &mut Member, window: u64, now: u64, delivered: u32) {
        self.window = window.max(TWO);
        self.changed = now;
        member.cut_end = delivered;
    }

    fn handle_loss(&mut self, member: &mut Member, now: u64, delivered: u32, prior: u32) {
        if self.leads(member) && is_after(prior, member.cut_end) {
            self.cut(member, self.window / 2, now, delivered);
        }
        self.settle(member);
    }

    fn handle_timeout(&mut self, member: &mut Member, now: u64, delivered: u32) {
        if self.leads(member) {
            self.cut(member, TWO, now, delivered);
        }
        self.give_up_lead(member);
        self.settle(member);
    }

    fn measure(&mut self, member: &mut Member, ack: &Ack) {
        if let Some(rtt) = ack.rtt_micros {
            member.rtt = rtt.get().min(RTT_LIMIT);
            if self.base_rtt == 0 || member.rtt < self.base_rtt {
                self.base_rtt = member.rtt;
            }
        }
        if let Some(interval) = ack.interval_micros {
            let packets = u64::from(ack.delivered.wrapping_sub(ack.prior_delivered));
            self.rate = self.rate.max(packets * 1_000_000 / u64::from(interval.get()));
        }
    }

    fn handle_ack(&mut self, member: &mut Member, ack: &Ack) {
        let now = ack.now.as_micros();
        self.measure(member, ack);
        self.take_lead(member, now, ack.delivered);
        if self.leads(member) {
            self.leader_seen = now;
            self.lead(member, ack, now);
        }
        self.settle(member);
    }

    fn lead(&mut self, member: &mut Member, ack: &Ack, now: u64) {
        let queue = member.rtt.wrapping_sub(self.base_rtt);
        if ack.lost > 0 {
            self.handle_loss(member, now, ack.delivered, ack.prior_delivered);
        } else if ack.rtt_micros.is_some() && queue > self.base_rtt / 4 + TOLERANCE {
            if is_after(ack.prior_delivered, member.cut_end) {
                self.cut(member, self.window - self.window / 8, now, ack.delivered);
            }
        } else if !ack.app_limited {
            self.window = (self.window + (u64::from(ack.acked) << 15)).min(WINDOW_LIMIT);
        } else if ack.in_flight <= ack.acked {
            self.give_up_lead(member);
        }
    }
}

/// Whether a wrapping count has reached another.
fn is_after(count: u32, other: u32) -> bool {
    count.wrapping_sub(other) as i32 >= 0
}

/// The algorithm for [`crate::shared_state`].
pub(crate) struct StandIn;

impl SharedAlgorithm for StandIn {
    const MIRROR: &'static str = "lull";
    const ANSWER: usize = 11;
    type Path = Path;
    type Member = Member;

    fn path(&self) -> Path {
        Path { window: TWO, ..Path::default() }
    }

    fn join(&self, path: &mut Path, _: Timestamp) -> Member {
        path.members += 1;
        path.last_member = path.last_member.checked_add(1).unwrap_or(1);
        let mut member = Member { number: path.last_member, ..Member::default() };
        path.settle(&mut member);
        member
    }

    fn leave(&self, path: &mut Path, member: Member, _: Timestamp) {
        path.give_up_lead(&member);
        path.members = path.members.saturating_sub(1);
    }

    fn leads(&self, path: &Path, member: &Member) -> bool {
        path.leads(member)
    }

    fn feed(&self, path: &mut Path, member: &mut Member, event: &Event) {
        match *event {
            Event::Ack(ref ack) => path.handle_ack(member, ack),
            Event::Loss(now, delivered) | Event::Mark(now, delivered) => {
                path.handle_loss(member, now.as_micros(), delivered, delivered);
            }
            Event::Timeout(now, delivered) => {
                path.handle_timeout(member, now.as_micros(), delivered);
            }
            Event::Idle(_) => {
                path.give_up_lead(member);
                path.settle(member);
            }
        }
    }

    fn foreground(&self, path: &mut Path, now: Timestamp, foreground: Foreground) {
        let connected = foreground.connected.as_micros();
        if connected != path.connected {
            path.window = (path.window / 4).max(TWO);
            path.changed = now.as_micros();
        }
        path.connected = connected;
    }

    fn send(
        &self,
        path: &mut Path,
        member: &mut Member,
        now: Timestamp,
        delivered: u32,
        in_flight: u32,
    ) {
        if in_flight == 0 {
            path.take_lead(member, now.as_micros(), delivered);
        }
        path.settle(member);
    }

    fn answer(&self, path: &Path, member: &Member, ack: &Ack) -> Vec<u64> {
        let srtt = ack.rtt_micros.map_or(0, |rtt| u64::from(rtt.get()));
        let is_small = member.window < TWO;
        let packets = if !is_small {
            member.window >> 16
        } else if ack.in_flight > 0 {
            ack.in_flight.into()
        } else {
            2
        };
        let pace = match (srtt, is_small) {
            (0, _) => 0,
            (_, true) => (2 * 1448 * 1_000_000 / u64::from(member.pause)).max(1),
            (_, false) => ((member.window >> 16) * 1448 * 1_250_000 / srtt).max(1),
        };
        vec![
            path.window,
            path.rate,
            path.base_rtt.into(),
            path.members.into(),
            path.leader.into(),
            path.changed,
            member.number.into(),
            member.window,
            packets,
            pace,
            (member.rtt / 4).min(20_000).into(),
        ]
    }
}
