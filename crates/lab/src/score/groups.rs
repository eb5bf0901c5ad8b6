//! Groups of cells, each about one property of a controller.
//!
//! Every group has two sets of cells. Controllers are tuned on one and judged on the other, whose rates,
//! round-trip times and seeds differ. Some groups have a third one, of the targets for downloads.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use super::cells::{Cell, Foreground, ForegroundControl, Link, Network, Queue, Set, Variation};

/// Cells that test one property of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    /// CUBIC downloads at buffers of 1 and 4 BDP.
    Bulk,
    /// CUBIC downloads at a quarter of the BDP.
    Shallow,
    /// CUBIC downloads at 16 BDP.
    Deep,
    /// CUBIC downloads under RED and CoDel.
    Aqm,
    /// CUBIC downloads under FQ-CoDel.
    Fq,
    /// Reno downloads.
    Reno,
    /// BBR downloads.
    Bbr,
    /// CUBIC downloads beside 256 background connections.
    Many,
    /// CUBIC downloads at a tenth of the BDP.
    Tiny,
    /// CUBIC downloads of other round-trip times than the background's.
    Mixed,
    /// CUBIC downloads under RED and CoDel with ECN.
    Ecn,
    /// CUBIC downloads under two classes, as CAKE has them.
    Tins,
    /// CUBIC downloads while the way back is full as well.
    TwoWay,
    /// CUBIC downloads beside four background hosts.
    Hosts,
    /// A background that starts beside a download, and knows nothing of the path.
    Late,
    /// 64 background connections that start at once beside a CUBIC download.
    Crowd,
    /// A CUBIC download that never ends.
    Lasting,
    /// Datagrams.
    Udp,
    /// CUBIC downloads over a link with pauses.
    Jitter,
    /// Requests of 100 kB.
    Requests,
    /// Documents of random size.
    Documents,
    /// The same requests, from the host of the background.
    LocalRequests,
    /// The same documents, from the host of the background.
    LocalDocuments,
    /// No foreground, over steady links and links with pauses.
    Idle,
    /// No foreground, over recorded links.
    Recorded,
    /// CUBIC downloads over recorded links.
    RecordedBulk,
    /// No foreground and CUBIC downloads, over links whose rate changes at random.
    Cellular,
    /// No foreground and CUBIC downloads, over links within a building.
    Lan,
}

impl Group {
    /// All groups, in the order of the table.
    pub const ALL: [Group; 28] = [
        Group::Bulk,
        Group::Shallow,
        Group::Deep,
        Group::Aqm,
        Group::Fq,
        Group::Reno,
        Group::Bbr,
        Group::Many,
        Group::Tiny,
        Group::Mixed,
        Group::Ecn,
        Group::Tins,
        Group::TwoWay,
        Group::Hosts,
        Group::Late,
        Group::Crowd,
        Group::Lasting,
        Group::Udp,
        Group::Jitter,
        Group::Requests,
        Group::Documents,
        Group::LocalRequests,
        Group::LocalDocuments,
        Group::Idle,
        Group::Recorded,
        Group::RecordedBulk,
        Group::Cellular,
        Group::Lan,
    ];

    /// The group's name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Group::Bulk => "bulk",
            Group::Shallow => "shallow",
            Group::Deep => "deep",
            Group::Aqm => "aqm",
            Group::Fq => "fq",
            Group::Reno => "reno",
            Group::Bbr => "bbr",
            Group::Many => "many",
            Group::Tiny => "tiny",
            Group::Mixed => "mixed",
            Group::Ecn => "ecn",
            Group::Tins => "tins",
            Group::TwoWay => "two-way",
            Group::Hosts => "hosts",
            Group::Late => "late",
            Group::Crowd => "crowd",
            Group::Lasting => "lasting",
            Group::Udp => "udp",
            Group::Jitter => "jitter",
            Group::Requests => "requests",
            Group::Documents => "documents",
            Group::LocalRequests => "local-requests",
            Group::LocalDocuments => "local-documents",
            Group::Idle => "idle",
            Group::Recorded => "recorded",
            Group::RecordedBulk => "recorded-bulk",
            Group::Cellular => "cellular",
            Group::Lan => "lan",
        }
    }

    /// Whether its cells read traces from the folder of data.
    pub fn needs_data(self) -> bool {
        matches!(self, Group::Recorded | Group::RecordedBulk)
    }

    /// The group's cells of a set, with this seed.
    pub fn cells(self, set: Set, seed: u64) -> Vec<Cell> {
        if set == Set::Downloads {
            return self.download_cells(seed);
        }
        let all = &set.networks()[..];
        let two = &all[..2];
        let cubic = Foreground::Bulk(ForegroundControl::Cubic);
        let grid = |networks: &[Network], queues: &[Queue], connections: &[usize], foreground| {
            grid(networks, queues, connections, foreground, seed)
        };
        let wide = [Queue::SHALLOW, Queue::bdp(1), Queue::bdp(4), Queue::Codel];
        match self {
            Group::Bulk => grid(all, &[Queue::bdp(1), Queue::bdp(4)], &[1, 8, 64], cubic),
            Group::Shallow => grid(all, &[Queue::SHALLOW], &[1, 8, 64], cubic),
            Group::Deep => grid(all, &[Queue::bdp(16)], &[1, 8, 64], cubic),
            Group::Aqm => grid(all, &[Queue::Red, Queue::Codel], &[1, 8, 64], cubic),
            Group::Fq => grid(all, &[Queue::FqCodel], &[1, 8, 64], cubic),
            Group::Reno => grid(two, &wide, &[1, 8], Foreground::Bulk(ForegroundControl::Reno)),
            Group::Bbr => grid(two, &wide, &[1, 8, 64], Foreground::Bulk(ForegroundControl::Bbr)),
            Group::Many => grid(two, &wide[..3], &[256], cubic),
            Group::Tiny => grid(two, &[Queue::TINY], &[1, 8, 64], cubic),
            Group::Mixed => {
                let cells = grid(two, &wide[1..3], &[1, 8], cubic);
                varied(cells, Variation::MixedRtts)
            }
            Group::Ecn => {
                let cells = grid(two, &[Queue::Red, Queue::Codel], &[1, 8, 64], cubic);
                varied(cells, Variation::Ecn)
            }
            Group::Tins => grid(two, &[Queue::Tins], &[1, 8, 64], cubic),
            Group::TwoWay => {
                let cells = grid(two, &wide[1..3], &[1, 8], cubic);
                varied(cells, Variation::TwoWay)
            }
            Group::Hosts => {
                let mut cells = grid(two, &wide[..3], &[1, 16], cubic);
                cells.iter_mut().for_each(|cell| cell.hosts = 4);
                cells
            }
            Group::Late => {
                let queues = [Queue::SHALLOW, Queue::bdp(1), Queue::bdp(4)];
                grid(all, &queues, &[1, 8], Foreground::Earlier)
            }
            Group::Crowd => {
                grid(all, &[Queue::bdp(1), Queue::bdp(4)], &[64], Foreground::Established)
            }
            Group::Lasting => lasting(set, seed),
            Group::Udp => {
                let queues =
                    [Queue::SHALLOW, Queue::bdp(1), Queue::bdp(4), Queue::Red, Queue::Codel];
                grid(two, &queues, &[1, 8], Foreground::Datagrams)
            }
            Group::Jitter => pausing(set, cubic, seed),
            Group::Requests => {
                grid(&set.request_networks(), &wide, &[1, 8, 64], Foreground::Requests)
            }
            Group::Documents => {
                grid(&set.request_networks(), &wide, &[1, 8, 64], Foreground::Documents)
            }
            Group::LocalRequests => local(Group::Requests.cells(set, seed)),
            Group::LocalDocuments => local(Group::Documents.cells(set, seed)),
            Group::Idle => idle(set, seed),
            Group::Recorded => recorded(set, Foreground::None, seed),
            Group::RecordedBulk => recorded(set, cubic, seed),
            Group::Cellular => cellular(set, seed),
            Group::Lan => lan(set, seed),
        }
    }

    /// The group's part of the grid of [`Set::Downloads`]: each network and queue, with 1, 8 and 64 connections.
    fn download_cells(self, seed: u64) -> Vec<Cell> {
        let cubic = Foreground::Bulk(ForegroundControl::Cubic);
        let all = [Queue::SHALLOW, Queue::bdp(1), Queue::bdp(4), Queue::Codel, Queue::FqCodel];
        let (queues, foreground) = match self {
            Group::Shallow => (&all[..1], cubic),
            Group::Bulk => (&all[1..3], cubic),
            Group::Aqm => (&all[3..4], cubic),
            Group::Fq => (&all[4..], cubic),
            Group::Bbr => (&all[..], Foreground::Bulk(ForegroundControl::Bbr)),
            Group::Idle => (&all[1..2], Foreground::None),
            _ => return Vec::new(),
        };
        let networks = Set::Downloads.networks();
        let mut cells = grid(&networks, queues, &[1, 8, 64], foreground, seed);
        if self == Group::Idle {
            cells.extend(pausing(Set::Downloads, foreground, seed));
        }
        cells
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// There is no group of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no group '{0}': the groups are {names}", names = names())]
pub struct UnknownGroupError(String);

fn names() -> String {
    Group::ALL.map(Group::name).join(", ")
}

impl FromStr for Group {
    type Err = UnknownGroupError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Group::ALL.into_iter().find(|group| group.name() == text);
        found.ok_or_else(|| UnknownGroupError(text.to_owned()))
    }
}

/// Every combination, over a steady link with one background host.
fn grid(
    networks: &[Network],
    queues: &[Queue],
    connections: &[usize],
    foreground: Foreground,
    seed: u64,
) -> Vec<Cell> {
    let mut cells = Vec::new();
    for &network in networks {
        for &queue in queues {
            for &connections in connections {
                cells.push(Cell {
                    network,
                    queue,
                    link: Link::Steady,
                    variation: Variation::Plain,
                    foreground,
                    hosts: 1,
                    foreground_is_local: false,
                    connections,
                    seed,
                });
            }
        }
    }
    cells
}

/// The same cells, with the foreground on the background's host.
fn local(mut cells: Vec<Cell>) -> Vec<Cell> {
    cells.iter_mut().for_each(|cell| cell.foreground_is_local = true);
    cells
}

/// Networks on which a download never ends.
fn lasting(set: Set, seed: u64) -> Vec<Cell> {
    let networks = set.networks();
    let third = match set {
        Set::Tuned => (2, 60),
        Set::HeldOut | Set::Downloads => (5, 120),
    };
    let networks = [networks[0], networks[1], third.into()];
    grid(&networks, &[Queue::bdp(1), Queue::bdp(8)], &[1, 8], Foreground::Lasting, seed)
}

fn varied(mut cells: Vec<Cell>, variation: Variation) -> Vec<Cell> {
    cells.iter_mut().for_each(|cell| cell.variation = variation);
    cells
}

/// Links whose rate changes at random, with the buffers of cellular links.
fn cellular(set: Set, seed: u64) -> Vec<Cell> {
    let networks: [Network; 2] = match set {
        Set::Tuned | Set::Downloads => [(4, 50), (20, 40)].map(Network::from),
        Set::HeldOut => [(2, 70), (10, 60)].map(Network::from),
    };
    let cubic = Foreground::Bulk(ForegroundControl::Cubic);
    let foregrounds = [Foreground::None, cubic].into_iter();
    let mut cells: Vec<Cell> = foregrounds
        .flat_map(|foreground| grid(&networks, &[Queue::bdp(20)], &[1, 8], foreground, seed))
        .collect();
    cells.iter_mut().for_each(|cell| cell.link = Link::Cellular);
    cells
}

/// Links within a building. A BDP is 8 packets at 100 Mbit/s, and 83 at 1 Gbit/s.
fn lan(set: Set, seed: u64) -> Vec<Cell> {
    let (slow, fast) = match set {
        Set::Tuned | Set::Downloads => (12, 2),
        Set::HeldOut => (24, 4),
    };
    let cubic = Foreground::Bulk(ForegroundControl::Cubic);
    let alone = Foreground::None;
    let mut cells = grid(&[(100, 1).into()], &[Queue::bdp(slow)], &[1, 8], alone, seed);
    cells.extend(grid(&[(1000, 1).into()], &[Queue::bdp(fast)], &[1, 8], alone, seed));
    cells.extend(grid(&[(100, 1).into()], &[Queue::bdp(slow)], &[1, 8], cubic, seed));
    cells
}

/// Links with pauses, at 4 BDP.
fn pausing(set: Set, foreground: Foreground, seed: u64) -> Vec<Cell> {
    let (network, pauses): (_, &[u64]) = match set {
        Set::Tuned => ((20, 30), &[2, 4, 8, 16]),
        Set::HeldOut => ((40, 60), &[3, 6, 12, 20]),
        Set::Downloads => ((10, 50), &[2, 4, 8, 16]),
    };
    let with_pauses = |&longest_ms: &u64| {
        let mut cells = grid(&[network.into()], &[Queue::bdp(4)], &[1, 8], foreground, seed);
        cells.iter_mut().for_each(|cell| cell.link = Link::Pausing { longest_ms });
        cells
    };
    pauses.iter().flat_map(with_pauses).collect()
}

/// Links without other traffic: with pauses, steady, and steady within a building.
fn idle(set: Set, seed: u64) -> Vec<Cell> {
    let none = Foreground::None;
    let mut cells = pausing(set, none, seed);
    cells.extend(grid(&set.networks(), &[Queue::bdp(1)], &[1, 8], none, seed));
    let local = match set {
        Set::Tuned => [((100, 1), 12), ((1000, 1), 2)],
        Set::HeldOut | Set::Downloads => [((200, 1), 6), ((500, 2), 3)],
    };
    for (network, times) in local {
        cells.extend(grid(&[network.into()], &[Queue::bdp(times)], &[1, 8], none, seed));
    }
    cells
}

/// Recorded Wi-Fi and cellular links, with the buffers that such links have.
fn recorded(set: Set, foreground: Foreground, seed: u64) -> Vec<Cell> {
    // The rate is about the trace's mean. It sizes the buffer only.
    let links: &[((u64, u64), u64, &'static str)] = match set {
        Set::Tuned => &[
            ((20, 30), 4, "jitter/wifi4.trace.gz"),
            ((20, 30), 4, "jitter/wifi8.trace.gz"),
            ((6, 50), 20, "mahimahi/Verizon-LTE-short.up.gz"),
            ((3, 50), 20, "mahimahi/ATT-LTE-driving-2016.up.gz"),
            ((1, 50), 20, "mahimahi/TMobile-UMTS-driving.up.gz"),
        ],
        Set::HeldOut | Set::Downloads => &[
            ((5, 50), 20, "mahimahi/Verizon-LTE-short.down.gz"),
            ((5, 50), 20, "mahimahi/ATT-LTE-driving-2016.down.gz"),
            ((2, 50), 20, "mahimahi/TMobile-UMTS-driving.down.gz"),
        ],
    };
    let over = |&(network, times, file): &((u64, u64), u64, &'static str)| {
        let queue = Queue::bdp(times);
        let mut cells = grid(&[network.into()], &[queue], &[1, 8], foreground, seed);
        cells.iter_mut().for_each(|cell| cell.link = Link::Recorded { file });
        cells
    };
    links.iter().flat_map(over).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn score_sets_share_no_cell() {
        for group in Group::ALL {
            let (tuned, held_out) = (group.cells(Set::Tuned, 7), group.cells(Set::HeldOut, 7));
            assert!(!tuned.is_empty() && !held_out.is_empty(), "{group}");
            assert!(tuned.iter().all(|cell| !held_out.contains(cell)), "{group}");
        }
    }

    #[test]
    fn download_cells_are_the_whole_grid() {
        let count = |group: Group| group.cells(Set::Downloads, 201).len();
        let beside_cubic: usize =
            [Group::Shallow, Group::Bulk, Group::Aqm, Group::Fq].map(count).iter().sum();
        // Two rates, three round-trip times, five queues, three numbers of connections.
        assert_eq!(beside_cubic, 2 * 3 * 5 * 3);
        assert_eq!(count(Group::Bbr), beside_cubic);
        assert_eq!(Group::ALL.map(count).iter().sum::<usize>(), 2 * beside_cubic + 18 + 8);
    }

    #[test]
    fn group_names_parse_to_their_groups() {
        for group in Group::ALL {
            assert_eq!(group.name().parse(), Ok(group));
        }
        let error = "bulky".parse::<Group>().unwrap_err().to_string();
        assert!(error.contains("'bulky'") && error.contains("shallow"), "{error}");
    }

    #[test]
    fn only_groups_that_need_data_read_traces() {
        for group in Group::ALL {
            let is_recorded = |cell: &Cell| matches!(cell.link, Link::Recorded { .. });
            let reads = group.cells(Set::Tuned, 7).iter().any(is_recorded);
            assert_eq!(reads, group.needs_data(), "{group}");
        }
    }
}
