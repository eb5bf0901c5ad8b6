//! The table of paths: the shared knowledge of the connections of a path.

use std::collections::HashMap;
use std::fmt;
use std::mem::offset_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use lull_cc::Window;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::skeletons::lull::types::{lull_path, path_foreground, path_key, shared_path};
use crate::sockets::{Membership, Socket};

/// Fractional bits of a rate in the table: `LULL_RATE_SHIFT` of bpf/lull_capacity.h.
const RATE_SHIFT: u32 = 8;

/// A path of this host, and the state that its background connections share.
#[derive(Clone, Debug)]
pub struct SharedPath {
    /// The destinations that count as one.
    pub destination: Prefix,
    /// Distinguishes it from an earlier path to the same destination.
    pub(crate) epoch: u64,
    /// Index of the egress interface; 0 without a route.
    pub interface: u32,
    /// Inode of the network namespace, if a connection of the path is open.
    pub network_namespace: Option<u32>,
    /// Connections that share it.
    pub members: u32,
    /// How the connections use the window.
    pub phase: Phase,
    /// The index in [`crate::Status::sockets`] of the connection that uses the window.
    pub leader: Option<usize>,
    /// The window of all connections together.
    pub window: Window,
    /// Lowest round-trip time; `None` before the first sample.
    pub base_rtt: Option<Duration>,
    /// Highest delivery rate in packets per second.
    pub packets_per_second: u64,
    /// The traffic of other connections of this host there; `None` if that is not watched.
    pub foreground: Option<Foreground>,
}

/// The phase of a path's background connections: `enum lull_phase` of bpf/lull_types.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// They search for the capacity, which is unknown.
    Start,
    /// They yield: other traffic uses the path.
    Floor,
    /// They use the spare capacity of the path.
    Use,
}

impl Phase {
    fn of(number: u32) -> Self {
        match number {
            0 => Phase::Start,
            1 => Phase::Floor,
            _ => Phase::Use,
        }
    }
}

/// The traffic of this host's foreground connections on a path, since it is in the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Foreground {
    /// When the last one began to connect, since the machine started; `None` if none did.
    pub connected: Option<Duration>,
    /// When the last packet with data left.
    pub sent: Option<Duration>,
    /// Bytes of data.
    pub bytes: u64,
    /// Bytes of data in the last whole tenth of a second before that packet; 0 after a pause.
    pub recent_bytes: u64,
}

/// `PATH_KEY_APART` of bpf/path_key.h: the path of a single host, or of 64 bits of IPv6.
const APART: u32 = 0x100;

/// A prefix of addresses: a destination network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// Its first address.
    pub address: IpAddr,
    /// Bits that are the same in all of its addresses.
    pub length: u8,
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

/// Reads a pinned table of paths, which `sockets` use.
/// `is_watched`: the foreground is.
pub(crate) fn read(path: &Path, sockets: &[Socket], is_watched: bool) -> Result<Vec<SharedPath>> {
    let table = MapHandle::from_pinned_path(path).map_err(Error::bpf("open the table of paths"))?;
    let members: HashMap<Membership, usize> = sockets
        .iter()
        .enumerate()
        .filter_map(|(at, socket)| Some((socket.membership?, at)))
        .collect();
    let mut paths = Vec::new();
    for key in table.keys() {
        // An entry may be removed between its key and its value.
        let value =
            table.lookup(&key, MapFlags::LOCK).map_err(Error::bpf("read the table of paths"))?;
        if let Some(entry) = value.as_deref().and_then(Entry::parse) {
            let described = entry.describe(&members, sockets);
            paths.push(SharedPath {
                foreground: described.foreground.filter(|_| is_watched),
                ..described
            });
        }
    }
    paths.sort_by_key(|path| (path.interface, path.destination.address));
    Ok(paths)
}

/// `struct shared_path` of bpf/shared_path_types.h, as far as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    epoch: u64,
    destination: Prefix,
    interface: u32,
    window: u64,
    rate: u64,
    base_rtt: u32,
    members: u32,
    phase: Phase,
    leader: u32,
    foreground: Foreground,
}

impl Entry {
    /// `None` for an unused entry.
    fn parse(bytes: &[u8]) -> Option<Self> {
        const KEY: usize = offset_of!(shared_path, key);
        const STATE: usize = offset_of!(shared_path, state);
        const FOREGROUND: usize = offset_of!(shared_path, foreground);
        let time = |micros| (micros != 0).then(|| Duration::from_micros(micros));
        let long = |at: usize| Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
        let word = |at: usize| Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
        let prefix: [u8; 8] = *bytes.get(KEY + offset_of!(path_key, prefix)..)?.first_chunk()?;
        let epoch = long(offset_of!(shared_path, epoch))?;
        if epoch == 0 {
            return None;
        }
        Some(Entry {
            epoch,
            destination: destination(word(KEY + offset_of!(path_key, family))?, prefix),
            interface: word(KEY + offset_of!(path_key, interface))?,
            window: long(STATE + offset_of!(lull_path, window))?,
            rate: long(STATE + offset_of!(lull_path, capacity.peak))?
                .max(long(STATE + offset_of!(lull_path, capacity.peak_before))?)
                >> RATE_SHIFT,
            base_rtt: lowest([
                word(STATE + offset_of!(lull_path, delay.empty.now))?,
                word(STATE + offset_of!(lull_path, delay.empty.before))?,
            ]),
            members: word(STATE + offset_of!(lull_path, members))?,
            phase: Phase::of(word(STATE + offset_of!(lull_path, phase))?),
            leader: word(STATE + offset_of!(lull_path, lead.leader))?,
            foreground: Foreground {
                connected: time(long(FOREGROUND + offset_of!(path_foreground, connected_us))?),
                sent: time(long(FOREGROUND + offset_of!(path_foreground, data_us))?),
                bytes: long(FOREGROUND + offset_of!(path_foreground, bytes))?,
                recent_bytes: long(FOREGROUND + offset_of!(path_foreground, last_bytes))?,
            },
        })
    }

    fn describe(&self, members: &HashMap<Membership, usize>, sockets: &[Socket]) -> SharedPath {
        let leader = Membership { epoch: self.epoch, number: self.leader };
        let is_member = |socket: &&Socket| socket.membership.is_some_and(|m| m.epoch == self.epoch);
        SharedPath {
            destination: self.destination,
            epoch: self.epoch,
            interface: self.interface,
            network_namespace: sockets.iter().find(is_member).map(|it| it.network_namespace),
            members: self.members,
            phase: self.phase,
            leader: members.get(&leader).copied(),
            window: Window::from_raw(self.window),
            base_rtt: (self.base_rtt != 0).then(|| Duration::from_micros(self.base_rtt.into())),
            packets_per_second: self.rate,
            foreground: Some(self.foreground),
        }
    }
}

/// The lowest of the existing values, like `lull_lowest_get` of bpf/lull_delay.h; 0 without one.
fn lowest(values: [u32; 2]) -> u32 {
    values.into_iter().filter(|value| *value != 0).min().unwrap_or(0)
}

/// The prefixes of `path_key_with` in bpf/path_key.h.
fn destination(family: u32, prefix: [u8; 8]) -> Prefix {
    let is_apart = family & APART != 0;
    if family & !APART == libc::AF_INET as u32 {
        let [a, b, c, d, ..] = prefix;
        let length = if is_apart { 32 } else { 24 };
        return Prefix { address: Ipv4Addr::new(a, b, c, d).into(), length };
    }
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&prefix);
    Prefix { address: Ipv6Addr::from(bytes).into(), length: if is_apart { 64 } else { 48 } }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(family: u32, prefix: [u8; 8]) -> Vec<u8> {
        let mut bytes = vec![0; size_of::<shared_path>()];
        let mut set = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        let key = offset_of!(shared_path, key);
        let state = offset_of!(shared_path, state);
        set(offset_of!(shared_path, epoch), &7u64.to_ne_bytes());
        set(key + offset_of!(path_key, prefix), &prefix);
        set(key + offset_of!(path_key, interface), &3u32.to_ne_bytes());
        set(key + offset_of!(path_key, family), &family.to_ne_bytes());
        set(state + offset_of!(lull_path, members), &2u32.to_ne_bytes());
        set(state + offset_of!(lull_path, phase), &1u32.to_ne_bytes());
        set(state + offset_of!(lull_path, window), &(1u64 << 16).to_ne_bytes());
        set(state + offset_of!(lull_path, capacity.peak_before), &(900u64 << 8).to_ne_bytes());
        set(state + offset_of!(lull_path, capacity.peak), &(800u64 << 8).to_ne_bytes());
        bytes
    }

    #[test]
    fn table_entry_is_read_field_by_field() {
        let bytes = entry(libc::AF_INET as u32, [10, 9, 8, 0, 0, 0, 0, 0]);
        let path = Entry::parse(&bytes).unwrap().describe(&HashMap::new(), &[]);
        assert_eq!(path.destination.to_string(), "10.9.8.0/24");
        assert_eq!((path.interface, path.members, path.leader), (3, 2, None));
        assert_eq!((path.window, path.phase), (Window::ONE, Phase::Floor));
        assert_eq!((path.base_rtt, path.packets_per_second), (None, 900));
        let bytes = entry(libc::AF_INET6 as u32, [0x20, 1, 0xd, 0xb8, 0, 5, 0, 0]);
        let prefix = Entry::parse(&bytes).unwrap().destination;
        assert_eq!(prefix.to_string(), "2001:db8:5::/48");
        let bytes = entry(libc::AF_INET as u32 | APART, [10, 9, 8, 7, 0, 0, 0, 0]);
        assert_eq!(Entry::parse(&bytes).unwrap().destination.to_string(), "10.9.8.7/32");
    }

    #[test]
    fn unused_or_short_entries_are_left_out() {
        let bytes = entry(libc::AF_INET as u32, [0; 8]);
        assert_eq!(Entry::parse(&vec![0; bytes.len()]), None);
        assert_eq!(Entry::parse(&bytes[..40]), None);
    }
}
