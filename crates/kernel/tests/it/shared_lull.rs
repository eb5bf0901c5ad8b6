//! The controller of `lull_cc::lull`, whose mirror is `bpf/lull.h`.

use lull_cc::lull::{HostTraffic, Member, Path};
use lull_cc::{Ack, Timestamp};
use lull_testing::shared_trace::Foreground;
use lull_testing::trace::Event;

use crate::shared_state::SharedAlgorithm;

/// Bytes of a packet.
const PACKET: u32 = 1448;

/// The algorithm for [`crate::shared_state`].
pub(crate) struct Lull;

impl SharedAlgorithm for Lull {
    const MIRROR: &'static str = "lull";
    const ANSWER: usize = 13;
    type Path = Path;
    type Member = Member;

    fn path(&self) -> Path {
        Path::default()
    }

    fn join(&self, path: &mut Path, _: Timestamp) -> Member {
        // Of different weights.
        let weight = 1 + path.members() * 9;
        Member::join_with_weight(path, weight)
    }

    fn leave(&self, path: &mut Path, mut member: Member, _: Timestamp) {
        member.leave(path);
    }

    fn leads(&self, path: &Path, member: &Member) -> bool {
        member.leads(path)
    }

    fn yields(&self, path: &Path) -> bool {
        path.is_at_floor()
    }

    fn feed(&self, path: &mut Path, member: &mut Member, event: &Event) {
        match *event {
            // The kernel counts all losses together.
            Event::Ack(ack) => member.handle_ack(path, &Ack { lost_in_recovery: 0, ..ack }),
            Event::Loss(now, delivered) | Event::Mark(now, delivered) => {
                member.handle_loss(path, now, delivered);
            }
            Event::Timeout(now, delivered) => member.handle_timeout(path, now, delivered),
            Event::Idle(_) => {}
        }
    }

    fn foreground(&self, path: &mut Path, now: Timestamp, foreground: Foreground) {
        let seen = HostTraffic {
            connected_micros: foreground.connected.as_micros(),
            sent_micros: foreground.sent.as_micros(),
            bytes: foreground.bytes,
        };
        path.handle_foreground(now, seen);
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
            member.handle_send(path, now, delivered);
        }
    }

    fn answer(&self, path: &Path, member: &Member, ack: &Ack) -> Vec<u64> {
        let smoothed_rtt = ack.rtt_micros.map_or(0, |rtt| rtt.get());
        let pacing = member.pacing(smoothed_rtt, PACKET);
        vec![
            path.window().raw(),
            path.min_rtt_micros().into(),
            path.capacity(),
            path.members().into(),
            path.in_flight(),
            path.is_at_floor().into(),
            member.leads(path).into(),
            member.window().raw(),
            member.packets(ack.in_flight).into(),
            pacing.map_or(0, |pacing| pacing.rate.bytes_per_second()),
            pacing.map_or(0, |pacing| pacing.spacing_micros.into()),
            pacing.map_or(0, |pacing| pacing.burst.into()),
            member.is_apart().into(),
        ]
    }
}
