//! The controller of `lull_cc::receive`, whose mirror is `bpf/receive.h`.

use lull_cc::lull::HostTraffic;
use lull_cc::receive::{Arrival, Download, Downloads};
use lull_cc::{Ack, Timestamp};
use lull_testing::shared_trace::Foreground;
use lull_testing::trace::Event;

use crate::shared_state::SharedAlgorithm;

/// The algorithm for [`crate::shared_state`].
pub(crate) struct Receive;

/// Packets, and one in this many of them without time stamps.
const WITHOUT_TIME_STAMPS: u32 = 3;

/// An acknowledgement as an arrival.
fn arrival(ack: &Ack) -> Arrival {
    let rtt = u64::from(ack.rtt_micros.map_or(0, |rtt| rtt.get()));
    let sent = ack.now.as_micros().wrapping_sub(rtt);
    let has_echo = !ack.delivered.is_multiple_of(WITHOUT_TIME_STAMPS);
    Arrival {
        now: ack.now,
        packets: ack.delivered,
        echo: has_echo.then_some((sent / 1000) as u32),
        clock: (ack.now.as_micros() / 1000) as u32,
        advertised: ack.in_flight.wrapping_add(ack.acked),
        granted: ack.in_flight,
        blocks: ack.lost,
    }
}

impl SharedAlgorithm for Receive {
    const MIRROR: &'static str = "receive";
    const ANSWER: usize = 14;
    const BEGINS_BY_SENDING: bool = false;
    type Path = Downloads;
    type Member = Download;

    fn path(&self) -> Downloads {
        Downloads::default()
    }

    fn join(&self, path: &mut Downloads, _: Timestamp) -> Download {
        let weight = 1 + path.path().members() * 9;
        Download::join(path, weight)
    }

    fn leave(&self, path: &mut Downloads, mut member: Download, _: Timestamp) {
        member.leave(path);
    }

    fn leads(&self, path: &Downloads, member: &Download) -> bool {
        member.leads(path)
    }

    fn yields(&self, path: &Downloads) -> bool {
        path.path().is_at_floor()
    }

    fn feed(&self, path: &mut Downloads, member: &mut Download, event: &Event) {
        let Event::Ack(ack) = event else { return };
        let arrival = arrival(ack);
        if let Some(echo) = arrival.echo {
            member.handle_echo(ack.now, echo);
        }
        member.handle_arrival(path, &arrival);
    }

    fn foreground(&self, path: &mut Downloads, now: Timestamp, foreground: Foreground) {
        let seen = HostTraffic {
            connected_micros: foreground.connected.as_micros(),
            sent_micros: foreground.sent.as_micros(),
            bytes: foreground.bytes,
        };
        path.handle_foreground(now, seen);
    }

    fn send(&self, _: &mut Downloads, _: &mut Download, _: Timestamp, _: u32, _: u32) {}

    fn answer(&self, path: &Downloads, member: &Download, _: &Ack) -> Vec<u64> {
        vec![
            path.path().window().raw(),
            path.path().min_rtt_micros().into(),
            path.path().capacity(),
            path.path().members().into(),
            path.in_flight(),
            path.active().into(),
            path.spare(),
            path.path().is_at_floor().into(),
            member.leads(path).into(),
            member.packets().into(),
            member.part().into(),
            member.last_rtt_micros().into(),
            member.has_pair().into(),
            path.weight(),
        ]
    }
}
