//! The cells of the score: network, queue and traffic of each simulation.

use std::fmt;

use serde::Serialize;

/// Which of the sets of cells runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Set {
    /// The cells that controllers may be tuned on.
    #[default]
    Tuned,
    /// The cells that no controller was tuned on.
    HeldOut,
    /// The cells of the targets for downloads; most groups have none.
    Downloads,
}

impl Set {
    /// The first seed of the set; further seeds follow it.
    pub fn first_seed(self) -> u64 {
        match self {
            Set::Tuned => 7,
            Set::HeldOut => 101,
            Set::Downloads => 201,
        }
    }

    /// The bottlenecks that most groups use; the first two also serve the shorter lists.
    pub(super) fn networks(self) -> Vec<Network> {
        let pairs: &[(u64, u64)] = match self {
            Set::Tuned => &[(10, 50), (100, 20), (100, 200), (1, 100)],
            Set::HeldOut => &[(20, 30), (50, 80), (5, 120), (200, 10)],
            Set::Downloads => &[(10, 20), (10, 50), (10, 200), (100, 20), (100, 50), (100, 200)],
        };
        pairs.iter().copied().map(Network::from).collect()
    }

    /// The bottlenecks of the groups that measure requests.
    pub(super) fn request_networks(self) -> [Network; 3] {
        let third = match self {
            Set::Tuned | Set::Downloads => (10, 20),
            Set::HeldOut => (5, 120),
        };
        let networks = self.networks();
        [networks[0], networks[1], third.into()]
    }
}

impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Set::Tuned => "tuned",
            Set::HeldOut => "held-out",
            Set::Downloads => "downloads",
        })
    }
}

/// Rate and delay of a bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Network {
    /// Its rate in Mbit/s.
    pub mbit: u64,
    /// The round-trip time without queues, in milliseconds.
    pub rtt_ms: u64,
}

impl From<(u64, u64)> for Network {
    fn from((mbit, rtt_ms): (u64, u64)) -> Self {
        Network { mbit, rtt_ms }
    }
}

/// The queue at the bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Queue {
    /// First in, first out, with a buffer in percent of the bandwidth-delay product (BDP).
    DropTail {
        /// The buffer's size in percent of the BDP.
        percent_of_bdp: u64,
    },
    /// RED with a buffer of 2 BDP.
    Red,
    /// CoDel with a buffer of 4 BDP.
    Codel,
    /// FQ-CoDel with a buffer of 4 BDP.
    FqCodel,
    /// Two classes as CAKE has them, each FQ-CoDel with a buffer of 4 BDP. Background packets are of the lower class.
    Tins,
}

impl Queue {
    pub(super) const fn bdp(times: u64) -> Self {
        Queue::DropTail { percent_of_bdp: times * 100 }
    }

    /// A tenth of the BDP.
    pub(super) const TINY: Queue = Queue::DropTail { percent_of_bdp: 10 };

    /// A quarter of the BDP.
    pub(super) const SHALLOW: Queue = Queue::DropTail { percent_of_bdp: 25 };
}

/// How the bottleneck serves its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Link {
    /// At a constant rate.
    Steady,
    /// With random pauses at a constant mean rate, in both directions, as Wi-Fi has them.
    Pausing {
        /// The longest pause in milliseconds.
        longest_ms: u64,
    },
    /// At a rate that changes at random, with grants and outages, as cellular links have them.
    Cellular,
    /// At the rate of a recorded trace.
    Recorded {
        /// The trace's file, relative to the folder of data.
        file: &'static str,
    },
}

/// A property that sets a cell apart from a plain one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Variation {
    /// Nothing.
    Plain,
    /// Both ends and the queue support ECN.
    Ecn,
    /// A CUBIC download fills the way back, where acknowledgements wait behind it.
    TwoWay,
    /// The foreground's downloads have half, one, two and four times the background's round-trip time.
    MixedRtts,
}

/// The foreground traffic, which the background must not slow down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Foreground {
    /// None: the background has the link alone.
    None,
    /// Four downloads with pauses between them, under this controller.
    Bulk(ForegroundControl),
    /// One CUBIC download that fills the link before the background starts.
    Established,
    /// Two CUBIC downloads with a pause between them: the first fills the link before the background starts.
    Earlier,
    /// One CUBIC download that starts beside a running background and never ends.
    Lasting,
    /// Requests of 100 kB, which use a third of the link.
    Requests,
    /// Documents of random size that arrive at random and use 40 % of the link.
    Documents,
    /// Datagrams at 70 % of the rate, on and off for random times.
    Datagrams,
}

/// The congestion controller of a foreground download.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ForegroundControl {
    /// CUBIC.
    Cubic,
    /// Reno.
    Reno,
    /// BBR.
    Bbr,
}

/// One simulation's setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cell {
    /// The bottleneck.
    pub network: Network,
    /// Its queue.
    pub queue: Queue,
    /// How the queue is served.
    pub link: Link,
    /// The property that sets it apart.
    pub variation: Variation,
    /// The traffic that is measured for interference.
    pub foreground: Foreground,
    /// Hosts that send background traffic.
    pub hosts: usize,
    /// The foreground's connections are of the same host as the background.
    pub foreground_is_local: bool,
    /// Background connections of each host.
    pub connections: usize,
    /// The seed of everything random in the cell.
    pub seed: u64,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Network { mbit, rtt_ms } = self.network;
        write!(f, "{mbit} Mbit/s x {rtt_ms} ms, ")?;
        match self.queue {
            Queue::DropTail { percent_of_bdp } => {
                write!(f, "{} BDP", percent_of_bdp as f64 / 100.0)?;
            }
            Queue::Red => f.write_str("RED")?,
            Queue::Codel => f.write_str("CoDel")?,
            Queue::FqCodel => f.write_str("FQ-CoDel")?,
            Queue::Tins => f.write_str("tins")?,
        }
        match self.link {
            Link::Steady => {}
            Link::Pausing { longest_ms } => write!(f, ", pauses up to {longest_ms} ms")?,
            Link::Cellular => f.write_str(", cellular")?,
            Link::Recorded { file } => write!(f, ", {file}")?,
        }
        match self.variation {
            Variation::Plain => {}
            Variation::Ecn => f.write_str(", ECN")?,
            Variation::TwoWay => f.write_str(", two-way")?,
            Variation::MixedRtts => f.write_str(", mixed RTTs")?,
        }
        if self.foreground_is_local {
            f.write_str(", same host")?;
        }
        match self.hosts {
            1 => write!(f, ", {} conn.", self.connections)?,
            hosts => write!(f, ", {hosts} hosts x {} conn.", self.connections)?,
        }
        write!(f, ", seed {}", self.seed)
    }
}
