//! Minimum progress: the lowest rate of a connection at any delay.
//!
//! Nice's smallest window is a pair of packets each 96 round trips. With a full buffer of one second that is
//! a pair in 96 s, and applications time out. Apache expects 500 bytes a second, nginx a byte in 60 s, and
//! scp the answer to a keep-alive in 45 s. So a pair is sent at least once a second. When a host has many
//! connections in the background, they share four pairs a second, but each has a pair in ten seconds.
//!
//! The cost to the foreground: 24 kbit/s for each connection with data, and 96 kbit/s for each host up to 40
//! connections.
//!
//! `bpf/nice_minimum_progress.h` is the mirror for the kernel; change both together.

/// The pause between two pairs of a connection that does not share the minimum.
const MIN_PAUSE_MICROS: u64 = 1_000_000;
/// The additional pause for each further connection of the host, once there are four.
const PAUSE_PER_CONNECTION_MICROS: u64 = 250_000;
/// The longest pause. An `fq` queue discipline drops packets that are due later than that.
const MAX_PAUSE_MICROS: u64 = 10_000_000;

/// The longest pause between two pairs of packets in microseconds, for `connections` connections in the
/// background of this host, at a round-trip time of `rtt_micros`. At least two round trips: a pair is never
/// sent before the last one can have returned.
pub const fn longest_pause_micros(connections: u32, rtt_micros: u32) -> u64 {
    let mut pause = connections as u64 * PAUSE_PER_CONNECTION_MICROS;
    if pause < MIN_PAUSE_MICROS {
        pause = MIN_PAUSE_MICROS;
    }
    if pause > MAX_PAUSE_MICROS {
        pause = MAX_PAUSE_MICROS;
    }
    let round_trips = 2 * rtt_micros as u64;
    if round_trips > pause { round_trips } else { pause }
}

/// The lowest rate in bytes per second: a pair of packets of `packet_bytes` bytes in each longest
/// pause.
pub const fn lowest_rate(connections: u32, rtt_micros: u32, packet_bytes: u32) -> u64 {
    2 * packet_bytes as u64 * 1_000_000 / longest_pause_micros(connections, rtt_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_connection_sends_a_pair_a_second() {
        assert_eq!(lowest_rate(1, 50_000, 1448), 2 * 1448);
        assert_eq!(lowest_rate(0, 50_000, 1448), 2 * 1448);
    }

    #[test]
    fn forty_connections_share_four_pairs_a_second() {
        for connections in 4..=40 {
            let all = u64::from(connections) * lowest_rate(connections, 50_000, 1448);
            assert!(all <= 8 * 1448, "{connections}: {all} bytes a second");
        }
        assert_eq!(longest_pause_micros(u32::MAX, 0), MAX_PAUSE_MICROS);
    }

    #[test]
    fn pair_waits_for_the_last_one_on_a_long_path() {
        assert_eq!(longest_pause_micros(1, 3_000_000), 6_000_000);
    }
}
