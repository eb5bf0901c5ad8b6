//! UDP of a program, as `lull exec` reports it.

use lull_cc::Bytes;
use lull_kernel::{Traffic, Udp, UdpTraffic};
use serde_json::{Value, json};

use super::count;

pub(super) fn parse(text: &str) -> Result<Udp, &'static str> {
    match text {
        "pass" => Ok(Udp::Pass),
        "yield" => Ok(Udp::Yield),
        _ => Err("it is pass or yield"),
    }
}

/// The part of the closing sentence.
pub(super) fn clause(traffic: &Traffic) -> String {
    match &traffic.udp {
        None => format!("; {} over UDP, not slowed", Bytes(traffic.udp_bytes)),
        Some(udp) => format!(
            "; {} over UDP in the background, {} marked, {} dropped",
            Bytes(udp.bytes),
            count(udp.marked, "packet"),
            udp.dropped
        ),
    }
}

/// UDP that yielded without measurements, or not at all.
pub(super) fn notes(udp: &UdpTraffic) -> Vec<String> {
    let mut notes = Vec::new();
    if udp.unanswered > 0 {
        notes.push(format!(
            "{} answered no ICMP echo requests: UDP to each was held to 1 Mbit/s",
            count(udp.unanswered, "network")
        ));
    }
    if udp.other_namespaces > 0 {
        notes.push(format!(
            "UDP of other network namespaces, such as containers, was held to 1 Mbit/s to each of {}",
            count(udp.other_namespaces, "network")
        ));
    }
    if udp.uncontrolled > 0 {
        notes.push(format!(
            "{} over UDP not slowed: they went to more than 1024 networks at a time",
            count(udp.uncontrolled, "packet")
        ));
    }
    notes
}

pub(super) fn json(udp: &UdpTraffic) -> Value {
    json!({
        "bytes": udp.bytes,
        "packets_marked": udp.marked,
        "packets_dropped": udp.dropped,
        "packets_not_slowed": udp.uncontrolled,
        "networks_without_echo": udp.unanswered,
        "networks_of_other_namespaces": udp.other_namespaces,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn summary_reports_what_became_of_udp() {
        let udp = UdpTraffic { bytes: 3_000_000, marked: 1, dropped: 12, ..Default::default() };
        let traffic = Traffic {
            connections: 0,
            refused: 0,
            tcp_bytes: 0,
            tcp_received: 0,
            slows_received: true,
            unmarked: 0,
            udp_bytes: 3_000_000,
            udp: Some(udp),
            lived: Duration::ZERO,
            yielded: None,
        };
        let expected = "; 3.0 MB over UDP in the background, 1 packet marked, 12 dropped";
        assert_eq!(clause(&traffic), expected);
        assert_eq!(clause(&Traffic { udp: None, ..traffic }), "; 3.0 MB over UDP, not slowed");
        assert_eq!(notes(&udp), Vec::<String>::new());
        let found =
            notes(&UdpTraffic { unanswered: 2, uncontrolled: 1, other_namespaces: 1, ..udp });
        assert!(found[0].starts_with("2 networks answered no ICMP echo requests"), "{found:?}");
        assert_eq!(found.len(), 3, "{found:?}");
    }
}
