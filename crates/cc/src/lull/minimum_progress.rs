//! How long connections pause between pairs of packets, so that no program gives up, and within a pair.

/// The floor's pause between pairs, in packet times: a pair in this time is 1 % of the path.
pub(super) const PAUSE_PACKETS: u64 = 200;
/// The longest pause between two pairs of a lone connection: 2.9 kB/s. An SSH server answers every 98 kB, and an
/// SSH client that asks for answers gives up after 60 s.
const LONE_PAUSE_MICROS: u64 = 1_000_000;
/// The shortest pause between pairs of several connections, in packet times: 1.3 % of the path.
const SHARED_PAUSE_PACKETS: u64 = 150;
/// So many connections have each what a lone one has, whatever the path carries and however long it is: beside a
/// foreground that never pauses, the known rate is less than the path's, and the known round-trip time has its queue.
const FULL_PROGRESS: u32 = 4;
/// Up to so many connections share what these have: 1.9 kB/s each. With more, it would be too little for an SSH client
/// that asks for answers, and too much for a slow path.
const SERVED: u32 = 6;
/// The longest pause between two pairs of a connection: 580 B/s. Apache's default minimum is 500 B/s, and some
/// servers close a connection after 20 s without data.
const MAX_SLEEP_MICROS: u64 = 5_000_000;
/// Connections that have a pair in this time whatever the path carries: beside a foreground that never pauses, the
/// known rate is less than the path's.
const FEW: u32 = 16;
/// It is longer for more connections: those beyond the few send at most a pair in so many packet times together, 4 %
/// of the path.
const CROWD_PAUSE_PACKETS: u64 = 50;
/// The longest pause between two pairs of a connection, whatever their number.
const MAX_CROWD_SLEEP_MICROS: u64 = 10_000_000;

/// Packets further apart would be acknowledged one by one, by the receiver's timer.
pub(super) const MAX_SPACING_MICROS: u32 = 20_000;
/// The packets of a pair are so far apart that the pair shows jitter as well.
const MIN_SPACING_MICROS: u32 = 12_000;

/// In a trial, four packets leave within the 40 ms for which a receiver holds an acknowledgement back, and the fourth
/// just before they end: it is not delayed.
pub(super) const TRIAL_SPACING_MICROS: u32 = 13_000;

/// How far apart the packets of a pair leave, in microseconds, where the last round-trip time was `rtt`.
pub(super) fn pair_spacing(rtt: u32) -> u32 {
    (rtt / 4).max(MIN_SPACING_MICROS).min(rtt / 2).min(MAX_SPACING_MICROS)
}

/// From a pair of any connection to the next one, in microseconds, at the most.
pub(super) fn longest_pause(members: u32) -> u64 {
    let parts = if members <= SERVED { members.clamp(1, FULL_PROGRESS) } else { 1 };
    LONE_PAUSE_MICROS / u64::from(parts)
}

/// From a pair of any connection to the next one, in microseconds, on a path that takes `packet` microseconds
/// for a packet and has `members` connections.
pub(super) fn pause(packet: u64, members: u32) -> u64 {
    let shared = (SHARED_PAUSE_PACKETS * packet).min(longest_pause(members));
    let needed = LONE_PAUSE_MICROS / u64::from(members.max(1));
    (PAUSE_PACKETS * packet).min(shared.max(needed))
}

/// From a pair to the next one of the same connection, in microseconds, at the most.
pub(super) fn longest_sleep(packet: u64, members: u32) -> u64 {
    let crowd = CROWD_PAUSE_PACKETS * packet * u64::from(members.saturating_sub(FEW));
    crowd.clamp(MAX_SLEEP_MICROS, MAX_CROWD_SLEEP_MICROS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes per second of each connection at the floor, and the part of the path that all use.
    fn progress(mbit: u64, members: u32) -> (f64, f64) {
        let packet = 12_000 / mbit;
        let sleep =
            (pause(packet, members) * u64::from(members)).min(longest_sleep(packet, members));
        let share = 2.0 * (packet * u64::from(members)) as f64 / sleep as f64;
        (2.0 * 1448.0 / (sleep as f64 / 1e6), share)
    }

    /// A packet takes 200 ms where the background has never had more than what a full foreground left.
    #[test]
    fn ssh_clients_of_six_connections_wait_below_a_minute() {
        for packet in [120, 1_200, 6_000, 12_000, 200_000] {
            for members in 1..=6 {
                let sleep = (pause(packet, members) * u64::from(members))
                    .min(longest_sleep(packet, members));
                let bytes = 2.0 * 1448.0 / (sleep as f64 / 1e6);
                assert!(98_000.0 / bytes < 51.0, "{packet} us, {members}: {bytes} B/s");
            }
        }
        for (mbit, most) in [(1, 0.1), (2, 0.05), (10, 0.015), (100, 0.015)] {
            let (_, share) = progress(mbit, 4);
            assert!(share < most, "{mbit} Mbit/s: {share}");
        }
    }

    #[test]
    fn up_to_sixteen_connections_reach_the_minimum_of_apache() {
        for (mbit, members) in [(1, 8), (1, 16), (2, 16), (10, 16), (10, 64), (100, 64)] {
            let (bytes, share) = progress(mbit, members);
            assert!(
                bytes > 550.0 && share < 0.08,
                "{mbit} Mbit/s, {members}: {bytes} B/s, {share}"
            );
        }
    }

    #[test]
    fn crowd_on_a_slow_path_has_a_pair_in_ten_seconds() {
        let (bytes, share) = progress(1, 64);
        assert!(bytes > 280.0 && share < 0.16, "{bytes} B/s, {share}");
    }
}
