//! The emulated topology: hosts on both sides, one bottleneck between them, or one for each right host.

use std::str::FromStr;
use std::time::Duration;

use lull_cc::{Bytes, Rate};
use lull_sim::queue::{Discipline, Limit};
use lull_sim::random::Random;
use serde::{Deserialize, Serialize};

use super::{Error, Trace};

/// Hosts on both sides of one bottleneck, or of one for each right host.
#[derive(Clone, Debug)]
pub struct Topology {
    /// Hosts on the left side, 1 to [`Topology::MAX_HOSTS`].
    pub left: usize,
    /// Hosts on the right side, 1 to [`Topology::MAX_HOSTS`].
    pub right: usize,
    /// The bottleneck from left to right.
    pub forward: Link,
    /// The bottleneck from right to left.
    pub reverse: Link,
    /// Whether each right host has a link of its own, with these two bottlenecks. Records add them up.
    pub separate: bool,
    /// How packets are captured.
    pub backend: Backend,
    /// The hosts' default congestion control (`net.ipv4.tcp_congestion_control`). None means
    /// [`Topology::PREFERRED_CONGESTION_CONTROL`] if the kernel allows it, otherwise the machine's default;
    /// the record says which.
    pub congestion_control: Option<String>,
    /// The largest packet, IP header included, in bytes.
    pub mtu: u32,
    /// The interval of the time series; none for no series.
    pub series: Option<Duration>,
    /// Whether to reduce the delays of the thread that moves packets, for measurements: short scheduling
    /// delays, locked memory, and no sleeping processors, as far as this user may.
    pub urgent: bool,
}

/// One direction of the bottleneck.
#[derive(Clone, Debug)]
pub struct Link {
    /// Its rate.
    pub rate: LinkRate,
    /// Propagation delay in this direction, after the bottleneck.
    pub delay: Duration,
    /// The buffer. The packet being sent does not count. Under priority, each class has this size.
    pub buffer: Buffer,
    /// The queue discipline.
    pub discipline: Discipline,
    /// The seed of the discipline's random numbers, together with the direction: the two directions differ,
    /// also with the same seed.
    pub seed: u64,
}

/// The rate of a link.
#[derive(Clone, Debug)]
pub enum LinkRate {
    /// A constant rate.
    Fixed(Rate),
    /// A trace.
    Trace(Trace),
}

impl LinkRate {
    /// The rate; for a trace, the average.
    pub fn mean(&self) -> Rate {
        match self {
            LinkRate::Fixed(rate) => *rate,
            LinkRate::Trace(trace) => trace.mean_rate(),
        }
    }
}

/// The size of a link's buffer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Buffer {
    /// This many bytes.
    Bytes(Bytes),
    /// This many packets.
    Packets(u64),
    /// This many times the bandwidth-delay product: rate × (forward delay + reverse delay). At least one
    /// packet.
    Bdp(f64),
}

/// How packets get from the hosts' kernels into the emulator. If its thread is on time, both backends give
/// the same figures. If it is late, packet sockets still have the kernel's timestamps of the arrivals. TUN
/// has none, so packets that came meanwhile count as arriving at once
/// ([`Window::arrival_error`](super::Window::arrival_error)). Records contain the backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backend {
    /// TUN if `/dev/net/tun` can be opened, otherwise packet sockets.
    #[default]
    Auto,
    /// One TUN device for each host.
    Tun,
    /// One pair of virtual Ethernet devices and one packet socket for each host; needs no device
    /// node, so it also works inside an unprivileged user namespace.
    Packet,
}

impl Default for Topology {
    /// One host on each side of the default link, both ways.
    fn default() -> Self {
        Topology::symmetric(Link::default())
    }
}

impl Default for Link {
    /// 10 Mbit/s, 25 ms one way, drop-tail with a buffer of one bandwidth-delay product.
    fn default() -> Self {
        Link {
            rate: LinkRate::Fixed(Rate::from_bits_per_second(10_000_000)),
            delay: Duration::from_millis(25),
            buffer: Buffer::Bdp(1.0),
            discipline: Discipline::DropTail,
            seed: 1,
        }
    }
}

impl Topology {
    /// The most hosts on one side.
    pub const MAX_HOSTS: usize = 1000;

    /// The hosts' default congestion control unless another one is configured: the one of most machines.
    pub const PREFERRED_CONGESTION_CONTROL: &'static str = "cubic";

    /// One host on each side of `link`, the same in both directions.
    pub fn symmetric(link: Link) -> Self {
        Topology {
            left: 1,
            right: 1,
            forward: link.clone(),
            reverse: link,
            separate: false,
            backend: Backend::Auto,
            congestion_control: None,
            mtu: 1500,
            series: None,
            urgent: true,
        }
    }

    /// The round-trip time of a small packet on an idle link: both propagation delays.
    pub fn round_trip(&self) -> Duration {
        self.forward.delay + self.reverse.delay
    }

    /// The size of the buffer at `link`, which belongs to this topology.
    pub fn limit(&self, link: &Link) -> Limit {
        match link.buffer {
            Buffer::Bytes(bytes) => Limit::Bytes(bytes.0),
            Buffer::Packets(packets) => Limit::Packets(packets),
            Buffer::Bdp(multiple) => {
                let product = link.rate.mean().bytes_in(self.round_trip()).0;
                let bytes = (product as f64 * multiple).round() as u64;
                Limit::Bytes(bytes.max(u64::from(self.mtu)))
            }
        }
    }

    /// The initial values of RED's random decisions and FQ-CoDel's hash of each direction of a link, forward first.
    /// Usually both directions have the same seed.
    pub(super) fn seeds(&self, link: usize) -> [u64; 2] {
        let first = 2 * link as u64;
        let seed = |link: &Link, direction| Random::of_part(link.seed, direction).bits();
        [seed(&self.forward, first), seed(&self.reverse, first + 1)]
    }

    /// The discipline of `link`, adapted to it.
    pub(super) fn discipline(&self, link: &Link) -> Discipline {
        suited(link.discipline, link.rate.mean(), u64::from(self.mtu))
    }

    /// # Errors
    /// [`Error::Topology`] if a value is invalid, in one line with the allowed values.
    pub fn validate(&self) -> Result<(), Error> {
        let error = |text: String| Err(Error::Topology(text));
        for (side, hosts) in [("left", self.left), ("right", self.right)] {
            if !(1..=Self::MAX_HOSTS).contains(&hosts) {
                let most = Self::MAX_HOSTS;
                return error(format!("{hosts} hosts on the {side} side: 1 to {most} are allowed"));
            }
        }
        // IPv6's smallest MTU (RFC 8200 §5), and Ethernet's jumbo frames.
        if !(1280..=9000).contains(&self.mtu) {
            return error(format!("an MTU of {} bytes: 1280 to 9000 are allowed", self.mtu));
        }
        if self.series.is_some_and(|interval| interval < Duration::from_millis(1)) {
            return error("a time series needs an interval of at least 1 ms".to_owned());
        }
        for link in [&self.forward, &self.reverse] {
            if link.rate.mean().bits_per_second() < 1000 {
                return error(format!("a rate of {}: the minimum is 1 kbit", link.rate.mean()));
            }
            if link.delay > Duration::from_secs(60) {
                return error(format!("a delay of {:?}: the maximum is 60 s", link.delay));
            }
            match link.buffer {
                Buffer::Bytes(bytes) if bytes.0 < u64::from(self.mtu) => {
                    return error(format!(
                        "a buffer of {bytes} holds no packet of {} B: give it more, or count in \
                         packets",
                        self.mtu
                    ));
                }
                Buffer::Packets(0) => {
                    return error(
                        "a buffer of 0 packets drops every packet: the minimum is 1".into(),
                    );
                }
                Buffer::Bdp(multiple) if !(multiple > 0.0 && multiple <= 1e6) => {
                    return error(format!("a buffer of {multiple} BDP: it must be more than 0"));
                }
                Buffer::Bdp(_) if self.round_trip().is_zero() => {
                    return error(
                        "without delay the bandwidth-delay product is 0: give the buffer in bytes \
                         (64kB) or packets (100p)"
                            .to_owned(),
                    );
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// A discipline with the parameters that depend on its link: RED's time for a packet, CoDel's largest packet.
pub fn suited(discipline: Discipline, rate: Rate, packet_bytes: u64) -> Discipline {
    match discipline {
        Discipline::Red(mut parameters) if parameters.packet_time_nanos == 0 => {
            let time = rate.time_for(Bytes(packet_bytes));
            parameters.packet_time_nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            Discipline::Red(parameters)
        }
        Discipline::Codel(mut parameters) => {
            parameters.max_packet = packet_bytes;
            Discipline::Codel(parameters)
        }
        Discipline::FqCodel(mut parameters) => {
            parameters.codel.max_packet = packet_bytes;
            Discipline::FqCodel(parameters)
        }
        Discipline::Tins(mut parameters) => {
            parameters.fq_codel.codel.max_packet = packet_bytes;
            Discipline::Tins(parameters)
        }
        other => other,
    }
}

/// A value that could not be read; it says which values are allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(String);

impl FromStr for Buffer {
    type Err = ParseError;

    /// Reads `1bdp`, `0.25bdp`, `100p`, `64kB`, `1MB`, `62500B`.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let error = || {
            ParseError(format!(
                "'{text}' is not a buffer: write 1bdp, 64kB or 100p (packets), for example"
            ))
        };
        let (number, unit) = split_number(text).ok_or_else(error)?;
        let whole = number.round() as u64;
        match unit.to_ascii_lowercase().as_str() {
            "bdp" if number > 0.0 => Ok(Buffer::Bdp(number)),
            "p" | "packets" if number.fract() == 0.0 && number > 0.0 => Ok(Buffer::Packets(whole)),
            "b" => Ok(Buffer::Bytes(Bytes(whole))),
            "kb" => Ok(Buffer::Bytes(Bytes((number * 1e3).round() as u64))),
            "mb" => Ok(Buffer::Bytes(Bytes((number * 1e6).round() as u64))),
            _ => Err(error()),
        }
    }
}

impl FromStr for Backend {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match text {
            "auto" => Ok(Backend::Auto),
            "tun" => Ok(Backend::Tun),
            "packet" => Ok(Backend::Packet),
            _ => Err(ParseError(format!("'{text}' is not a back end: write auto, tun or packet"))),
        }
    }
}

/// Reads a duration: `25ms`, `0.5s`, `300us`.
///
/// # Errors
/// One line with the allowed form.
pub fn parse_duration(text: &str) -> Result<Duration, ParseError> {
    let error = || {
        ParseError(format!("'{text}' is not a time: write a number and us, ms or s, as in 25ms"))
    };
    let (number, unit) = split_number(text).ok_or_else(error)?;
    let scale = match unit {
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return Err(error()),
    };
    let time = Duration::try_from_secs_f64(number * scale).map_err(|_| error())?;
    if time > MAX_DURATION {
        return Err(ParseError(format!("'{text}' is more than a year")));
    }
    Ok(time)
}

/// The longest duration that is read: sums of several cannot overflow.
const MAX_DURATION: Duration = Duration::from_secs(365 * 86_400);

/// The number at the beginning of `text`, and the rest.
fn split_number(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    Some((number.parse().ok()?, unit.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffer_is_parsed_with_its_unit() {
        for (text, buffer) in [
            ("1bdp", Buffer::Bdp(1.0)),
            ("0.25BDP", Buffer::Bdp(0.25)),
            ("100p", Buffer::Packets(100)),
            ("64kB", Buffer::Bytes(Bytes(64_000))),
            ("1.5MB", Buffer::Bytes(Bytes(1_500_000))),
            ("62500 B", Buffer::Bytes(Bytes(62_500))),
        ] {
            assert_eq!(text.parse(), Ok(buffer), "{text}");
        }
        for text in ["", "10", "bdp", "-1p", "1.5p", "0p", "0bdp", "10GB", "1e3p", "..p"] {
            assert!(text.parse::<Buffer>().is_err(), "{text}");
        }
    }

    #[test]
    fn duration_is_parsed_with_its_unit() {
        assert_eq!(parse_duration("25ms"), Ok(Duration::from_millis(25)));
        assert_eq!(parse_duration("0.5s"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("300us"), Ok(Duration::from_micros(300)));
        for text in
            ["", "25", "ms", "-1ms", "1h", "1e3ms", "10000000000s", "999999999999999999999s"]
        {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn bdp_counts_both_directions() {
        let mut topology = Topology::default();
        assert_eq!(topology.limit(&topology.forward), Limit::Bytes(62_500));
        topology.reverse.delay = Duration::from_millis(75);
        assert_eq!(topology.limit(&topology.forward), Limit::Bytes(125_000));
        topology.forward.buffer = Buffer::Bdp(0.001);
        assert_eq!(topology.limit(&topology.forward), Limit::Bytes(1500));
    }

    #[test]
    fn one_seed_gives_each_direction_its_own_sequence() {
        let topology = Topology::default();
        assert_eq!(topology.forward.seed, topology.reverse.seed);
        let [forward, reverse] = topology.seeds(0);
        assert_ne!(forward, reverse);
        // The same seeds in each run.
        assert_eq!(topology.seeds(0), [forward, reverse]);
        assert!(!topology.seeds(1).iter().any(|seed| [forward, reverse].contains(seed)));
        let mut other = Topology::default();
        other.forward.seed = 2;
        assert_ne!(other.seeds(0)[0], forward);
        assert_eq!(other.seeds(0)[1], reverse);
    }

    #[test]
    fn impossible_topology_is_rejected_before_set_up() {
        let mut spoilt: Vec<(&str, Topology)> = Vec::new();
        let mut spoil = |name, change: fn(&mut Topology)| {
            let mut topology = Topology::default();
            change(&mut topology);
            spoilt.push((name, topology));
        };
        spoil("no host", |t| t.left = 0);
        spoil("too many hosts", |t| t.right = Topology::MAX_HOSTS + 1);
        spoil("tiny buffer", |t| t.forward.buffer = Buffer::Bytes(Bytes(1499)));
        spoil("no packet", |t| t.reverse.buffer = Buffer::Packets(0));
        spoil("no buffer", |t| t.forward.buffer = Buffer::Bdp(f64::NAN));
        spoil("no delay", |t| {
            t.forward.delay = Duration::ZERO;
            t.reverse.delay = Duration::ZERO;
        });
        spoil("long delay", |t| t.forward.delay = Duration::from_secs(61));
        spoil("small MTU", |t| t.mtu = 1279);
        spoil("series", |t| t.series = Some(Duration::ZERO));
        for (name, topology) in spoilt {
            let error = topology.validate().expect_err(name).to_string();
            assert!(!error.contains('\n'), "{name}: {error}");
        }
        assert!(Topology::default().validate().is_ok());
    }
}
