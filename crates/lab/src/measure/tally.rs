//! Results from the sockets of a group.

use std::time::Instant;

use crate::plan::Group;
use crate::record::{ActionRecord, GroupRecord, Latency, Transfers, megabits, rounded};
use lull_emulator::traffic::{Probes, Tally, Transfer, Work};

/// Fills in the results of a group between two tallies.
pub(super) fn fill(
    record: &mut GroupRecord,
    group: &Group,
    (from, before): (Instant, &Tally),
    (to, after): (Instant, &Tally),
) {
    let seconds = (to - from).as_secs_f64();
    record.goodput_mbit = megabits(after.received - before.received, seconds);
    record.retransmitted = after.retransmitted.saturating_sub(before.retransmitted);
    let samples = after.samples - before.samples;
    if samples > 0 {
        let srtt = (after.srtt_sum - before.srtt_sum).as_secs_f64() / samples as f64;
        record.srtt_ms = Some(rounded(srtt * 1e3));
        let windows = after.window_sum - before.window_sum;
        record.window = Some(rounded(windows as f64 / samples as f64));
    }
    match group.kind.work() {
        Some(Work::Bulk { .. }) => record.divide(flows(before, after, group.count), seconds),
        Some(Work::Requests { .. }) => record.latency = latency(before, after, from, to),
        Some(Work::Probes(probes)) => record.transfers = Some(transfers(probes, after, from)),
        Some(Work::Command { .. }) | None => {}
    }
}

/// Bytes that each connection of a group received. Connections that received none are included; those of an
/// earlier activity are not.
fn flows(before: &Tally, after: &Tally, count: u32) -> Vec<u64> {
    let mut flows: Vec<u64> = after
        .by_flow
        .iter()
        .map(|(flow, bytes)| bytes - before.by_flow.get(flow).copied().unwrap_or(0))
        .filter(|bytes| *bytes > 0)
        .collect();
    let silent = (count as usize).saturating_sub(flows.len());
    flows.extend(std::iter::repeat_n(0, silent));
    flows
}

/// The transfers of probes that began at `from` or later and have ended.
fn transfers(probes: &Probes, after: &Tally, from: Instant) -> Transfers {
    let of = |action: usize| {
        let is_own = |one: &&Transfer| one.action == action && one.asked >= from;
        let own = || after.transfers.iter().filter(is_own);
        ActionRecord {
            seconds: own().map(|one| rounded(one.time.as_secs_f64())).collect(),
            beside_mbit: match probes.actions[action].secondary {
                None => Vec::new(),
                Some(_) => {
                    own().map(|one| megabits(one.received_beside, one.time.as_secs_f64())).collect()
                }
            },
        }
    };
    let actions = probes.actions.iter().enumerate();
    Transfers {
        bytes: probes.bytes,
        actions: actions.map(|(number, action)| (action.name.clone(), of(number))).collect(),
    }
}

/// Latencies of the requests that were made and answered between `from` and `to`; none if there are no such
/// requests.
fn latency(before: &Tally, after: &Tally, from: Instant, to: Instant) -> Option<Latency> {
    let latencies = after
        .answered
        .iter()
        .filter(|answered| answered.asked >= from && answered.asked <= to)
        .map(|answered| answered.latency.as_secs_f64() * 1e3)
        .collect();
    let unanswered = after.open.iter().filter(|asked| **asked >= from).count() as u64;
    Latency::of(latencies, unanswered, after.failed - before.failed)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use lull_emulator::traffic::Answered;

    #[test]
    fn connections_without_a_byte_count_as_flows() {
        let flow = |port: u16| std::net::SocketAddr::from(([10, 1, 0, 1], port));
        let mut before = Tally::default();
        before.by_flow.insert(flow(1), 100);
        before.by_flow.insert(flow(2), 50);
        let mut after = before.clone();
        // The first has ended before, the second continues, the third is new, a fourth is silent.
        after.by_flow.insert(flow(2), 80);
        after.by_flow.insert(flow(3), 10);
        let mut flows = flows(&before, &after, 3);
        flows.sort_unstable();
        assert_eq!(flows, [0, 10, 30]);
    }

    #[test]
    fn only_requests_made_during_measurement_count() {
        let from = Instant::now();
        let at = |seconds| from + Duration::from_secs(seconds);
        let answered = |asked, millis| Answered { asked, latency: Duration::from_millis(millis) };
        let after = Tally {
            answered: vec![
                answered(from - Duration::from_secs(1), 9000),
                answered(at(1), 100),
                answered(at(2), 300),
            ],
            open: vec![from - Duration::from_secs(1), at(9)],
            failed: 3,
            ..Tally::default()
        };
        let before = Tally { failed: 1, ..Tally::default() };
        let latency = latency(&before, &after, from, at(10)).unwrap();
        assert_eq!((latency.count, latency.unanswered, latency.failed), (2, 1, 2));
        assert_eq!((latency.mean_ms, latency.p50_ms, latency.p99_ms), (200.0, 100.0, 300.0));
    }
}
