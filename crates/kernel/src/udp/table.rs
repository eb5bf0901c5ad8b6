//! The maps of `bpf/udp.bpf.c`.

use std::mem::offset_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use lull_cc::Timestamp;
use lull_cc::datagram::{Allowance, Counts, PACKET_BYTES};
use serde::{Deserialize, Serialize};

use super::UdpTraffic;
use crate::error::{Error, Result};
use crate::skeletons::udp::types::{path_key, udp_counters, udp_path, virtual_queue};

/// A path, as the kernel writes it.
pub(super) type Key = [u8; size_of::<path_key>()];

/// The maps that the loader uses.
pub(super) struct Tables {
    pub(super) paths: MapHandle,
    pub(super) allowances: MapHandle,
    pub(super) wakes: MapHandle,
}

/// A path in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The destination of the latest packet, and when it was sent.
    pub(super) destination: IpAddr,
    pub(super) seen: Timestamp,
    pub(super) counts: Counts,
    marked: u64,
    dropped: u64,
}

impl Tables {
    /// The entry of a path; `None` if it has none.
    pub(super) fn entry(&self, key: &Key) -> Option<Entry> {
        parse(&self.paths.lookup(key, MapFlags::LOCK).ok()??)
    }

    /// Writes what a path allows.
    pub(super) fn allow(&self, key: &Key, allowance: &Allowance) -> Result<()> {
        let words = [
            allowance.written,
            allowance.limit,
            allowance.rate,
            // VIRTUAL_QUEUE_NOT_KNOWN of bpf/virtual_queue_types.h.
            allowance.delivered.unwrap_or(u64::MAX),
        ];
        let value = words.map(u64::to_ne_bytes).concat();
        self.allowances
            .update(key, &value, MapFlags::ANY)
            .map_err(Error::bpf("write what a path allows"))
    }

    /// Removes the paths without a packet since `before`.
    pub(super) fn remove_idle(&self, before: Timestamp) {
        for key in self.paths.keys() {
            let Ok(key) = Key::try_from(key) else { continue };
            if self.entry(&key).is_none_or(|entry| entry.seen < before) {
                let _ = self.paths.delete(&key);
                let _ = self.allowances.delete(&key);
            }
        }
    }
}

/// The network namespace of a path.
pub(super) fn network_namespace(key: &Key) -> u64 {
    let at = offset_of!(path_key, network_namespace);
    u64::from_ne_bytes(*key[at..].first_chunk().expect("a key has this field"))
}

/// The egress interface of a path.
pub(super) fn interface(key: &Key) -> u32 {
    let at = offset_of!(path_key, interface);
    u32::from_ne_bytes(*key[at..].first_chunk().expect("a key has this field"))
}

/// Whether a key is that of no path: the kernel says so that the table is full.
pub(super) fn is_of_none(key: &Key) -> bool {
    key.iter().all(|&byte| byte == 0)
}

fn parse(bytes: &[u8]) -> Option<Entry> {
    const QUEUE: usize = offset_of!(udp_path, queue);
    let long = |at: usize| Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
    let word = |at: usize| Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
    let address: [u8; 16] = *bytes.get(offset_of!(udp_path, destination)..)?.first_chunk()?;
    let destination = match word(offset_of!(udp_path, is_ipv6))? {
        0 => Ipv4Addr::new(address[0], address[1], address[2], address[3]).into(),
        _ => Ipv6Addr::from(address).into(),
    };
    let marked = long(offset_of!(udp_path, marked))?;
    let dropped = long(offset_of!(udp_path, dropped))?;
    Some(Entry {
        marked,
        dropped,
        destination,
        seen: Timestamp::from_micros(long(offset_of!(udp_path, seen_us))?),
        counts: Counts {
            passed: long(QUEUE + offset_of!(virtual_queue, passed))?,
            refused: marked + dropped,
        },
    })
}

/// UDP that a background sends to one network, at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UdpSample {
    /// The destination of the latest packet.
    pub destination: Option<IpAddr>,
    /// Bytes that have left, with headers from IP on.
    pub bytes: u64,
    /// Packets that have left with the mark Congestion Experienced.
    pub marked: u64,
    /// Packets that were dropped.
    pub dropped: u64,
    /// Bytes that the path may hold; `None` without measurements in the last two seconds.
    pub limit: Option<u64>,
    /// Bytes per second that may leave, likewise.
    pub rate: Option<u64>,
}

impl UdpSample {
    /// Whether other traffic uses the path, so that only pairs of packets pass.
    pub fn is_at_floor(&self) -> bool {
        self.limit.is_some_and(|limit| limit <= 2 * PACKET_BYTES)
    }
}

/// The paths of a background whose maps are these, at a time of CLOCK_MONOTONIC.
pub(crate) fn samples(
    paths: &impl MapCore,
    allowances: &impl MapCore,
    now: Timestamp,
) -> Vec<UdpSample> {
    let sample = |key: Vec<u8>| {
        let bytes = paths.lookup(&key, MapFlags::LOCK).ok()??;
        let entry = parse(&bytes)?;
        let value = allowances.lookup(&key, MapFlags::ANY).ok()?.unwrap_or_default();
        let words = value.chunks_exact(8).map(|word| word.try_into().map(u64::from_ne_bytes));
        let words: Vec<u64> = words.collect::<Result<_, _>>().ok()?;
        let allowance = match words[..] {
            [written, limit, rate, _] => Allowance { written, limit, rate, delivered: None },
            _ => Allowance::default(),
        };
        let is_fresh = allowance.is_fresh(now);
        Some(UdpSample {
            destination: Some(entry.destination),
            bytes: entry.counts.passed,
            marked: entry.marked,
            dropped: entry.dropped,
            limit: is_fresh.then_some(allowance.limit),
            rate: is_fresh.then_some(allowance.rate),
        })
    };
    paths.keys().filter_map(sample).collect()
}

/// The counters of a background, without what only its loader knows.
pub(crate) fn read_counters(map: &impl MapCore) -> Result<UdpTraffic> {
    let bytes = map
        .lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
        .map_err(Error::bpf("read the counters of UDP"))?
        .unwrap_or_default();
    let long = |at: usize| {
        bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |it| u64::from_ne_bytes(*it))
    };
    Ok(UdpTraffic {
        bytes: long(offset_of!(udp_counters, passed)),
        marked: long(offset_of!(udp_counters, marked)),
        dropped: long(offset_of!(udp_counters, dropped)),
        uncontrolled: long(offset_of!(udp_counters, uncontrolled)),
        ..UdpTraffic::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_of_a_path_is_read_field_by_field() {
        let mut bytes = vec![0; size_of::<udp_path>()];
        let mut set = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        set(offset_of!(udp_path, destination), &[10, 9, 8, 7]);
        set(offset_of!(udp_path, seen_us), &5u64.to_ne_bytes());
        set(offset_of!(udp_path, marked), &1u64.to_ne_bytes());
        set(offset_of!(udp_path, dropped), &2u64.to_ne_bytes());
        let passed = offset_of!(udp_path, queue) + offset_of!(virtual_queue, passed);
        set(passed, &9_000u64.to_ne_bytes());
        let counts = Counts { passed: 9_000, refused: 3 };
        let seen = Timestamp::from_micros(5);
        let destination = [10, 9, 8, 7].into();
        let expected = Entry { destination, seen, counts, marked: 1, dropped: 2 };
        assert_eq!(parse(&bytes), Some(expected));
        bytes[offset_of!(udp_path, is_ipv6)] = 1;
        let destination = Ipv6Addr::from([0x0a09, 0x0807, 0, 0, 0, 0, 0, 0]).into();
        assert_eq!(parse(&bytes), Some(Entry { destination, ..expected }));
        assert_eq!(parse(&bytes[..40]), None);
    }
}
