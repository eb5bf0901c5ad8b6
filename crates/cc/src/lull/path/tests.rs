//! Tests of a path without its members.

use super::foreground::EXPLAINED_ROUNDS;
use super::*;
use crate::lull::HostTraffic;

const RTT: u32 = 50_000;
const FULL: u64 = 50 * ONE;

/// A path of 1000 packets a second and 50 ms whose buffer holds 12 ms, used by one leader.
fn shallow_path(window: u64) -> (Path, u64) {
    let mut path = Path::default();
    let mut now = 1_000_000;
    path.set_leader(now, Some(0), 10);
    for _ in 0..9 {
        now += u64::from(RTT);
        path.capacity.deliver(50);
        path.end_round(now, (RTT, RTT), false);
    }
    path.handle_loss(now, RTT + 12_000);
    path.capacity.confirm();
    path.phase = Phase::Use { rounds: 100 };
    path.window = window;
    path.window_before = window;
    assert!(path.delay.is_shallow() && path.full_window() == FULL && path.trigger() == 4_000);
    (path, now)
}

#[test]
fn loss_at_the_floor_does_not_measure_the_buffer() {
    let (mut path, now) = shallow_path(FULL);
    path.enter_floor(now, 100, 0);
    path.handle_loss(now, RTT + 300);
    assert_eq!(path.delay.full_queue(), 12_000);
}

#[test]
fn own_loss_removes_window_beyond_the_capacity() {
    let (mut path, now) = shallow_path(70 * ONE);
    path.handle_loss(now, RTT + 12_000);
    assert_eq!(path.window, FULL / 8 * 7);
    let (mut path, now) = shallow_path(FULL);
    path.handle_loss(now, RTT + 12_000);
    assert_eq!(path.window, FULL / 2);
}

#[test]
fn window_yields_to_queue_it_does_not_explain() {
    let (mut path, now) = shallow_path(56 * ONE);
    assert!(!path.handle_quarter(now, RTT + 9_000), "six of nine are its own");
    let (mut path, now) = shallow_path(FULL);
    assert!(!path.handle_quarter(now, RTT + 3_000));
    assert!(path.handle_quarter(now, RTT + 5_000));
    assert!(path.is_at_floor());
}

#[test]
fn return_in_shallow_buffer_adds_a_quarter_a_round() {
    let (mut path, now) = shallow_path(FULL);
    path.enter_floor(now, 100, 0);
    assert!(path.handle_sample(now, RTT));
    let mut windows = vec![path.window];
    for round in 1..40 {
        path.capacity.deliver(4);
        path.end_round(now + round * u64::from(RTT), (RTT, RTT), true);
        windows.push(path.window);
    }
    assert!(windows.windows(2).all(|pair| pair[1] <= pair[0] + 3 * ONE), "{windows:?}");
    assert!(windows.contains(&FULL), "{windows:?}");
}

#[test]
fn start_ends_with_the_first_quarter_that_has_a_queue() {
    let (mut path, now) = shallow_path(FULL);
    path.phase = Phase::Start;
    path.window = 80 * ONE;
    assert!(!path.handle_quarter(now, RTT + 3_000));
    assert!(path.handle_quarter(now, RTT + 5_000));
    assert_eq!(
        (path.phase, path.window),
        (Phase::Use { rounds: SETTLED_ROUNDS + 1 }, FULL / 8 * 7)
    );
}

#[test]
fn return_to_path_that_was_never_filled_is_a_start() {
    let (mut path, now) = shallow_path(FULL);
    path.enter_floor(now, 100, 0);
    let mut other = path.clone();
    assert!(path.handle_sample(now, RTT));
    assert_eq!(path.phase, Phase::Use { rounds: 0 });
    // A shorter way than any seen before: what was known of the path came from others' queue.
    assert!(other.handle_sample(now, RTT - 10_000));
    assert_eq!((other.phase, other.window), (Phase::Start, MIN_RETURN));
    assert_eq!(other.delay.full_queue(), 22_000);
}

/// The host's foreground sends 1.5 MB/s, which is more than the path carries, until the returned time.
fn send_from_host(path: &mut Path, now: u64, micros: u64, seen: &mut HostTraffic) -> u64 {
    for _ in 0..micros / 10_000 {
        seen.sent_micros = now.max(seen.sent_micros) + 10_000;
        seen.bytes += 15_000;
        path.handle_foreground(Timestamp::from_micros(seen.sent_micros), *seen);
    }
    now + micros
}

#[test]
fn queue_of_host_foreground_does_not_shrink_window() {
    let ((mut path, now), mut seen) = (shallow_path(FULL), HostTraffic::default());
    let now = send_from_host(&mut path, now, 1_000_000, &mut seen);
    path.window = FULL;
    assert_eq!(path.window(), Window::TWO, "the rest is left to the foreground");
    assert!(!path.handle_quarter(now, RTT + 5_000));
    assert_eq!(path.window, FULL);
    // Without the foreground, the same queue is of others.
    let now = now + 300_000;
    path.handle_foreground(Timestamp::from_micros(now), seen);
    assert_eq!(path.window().raw(), FULL);
    assert!(path.handle_quarter(now, RTT + 5_000));
}

#[test]
fn lasting_queue_of_host_foreground_ends_in_floor() {
    let ((mut path, now), mut seen) = (shallow_path(FULL), HostTraffic::default());
    let mut now = send_from_host(&mut path, now, 1_000_000, &mut seen);
    for round in 0..=EXPLAINED_ROUNDS {
        assert!(!path.is_at_floor(), "round {round}");
        now = send_from_host(&mut path, now, u64::from(RTT), &mut seen);
        path.capacity.deliver(2);
        path.end_round(now, (RTT + 5_000, RTT + 5_000), true);
    }
    assert!(path.is_at_floor());
}

#[test]
fn window_beside_host_passes_little_more_than_was_used() {
    let ((mut path, now), mut seen) = (shallow_path(FULL), HostTraffic::default());
    path.delay.forget_full_queue();
    path.capacity.doubt();
    let mut now = send_from_host(&mut path, now, 1_000_000, &mut seen);
    for _ in 0..100 {
        now = send_from_host(&mut path, now, u64::from(RTT), &mut seen);
        path.capacity.deliver(2);
        path.end_round(now, (RTT, RTT), true);
        assert!(path.usable_window() <= FULL / 4 * 5, "{} of {FULL}", path.usable_window());
    }
    // Such a window fills what the foreground leaves: the path carries no more.
    path.window = FULL + path.reserved;
    path.capacity.deliver(50);
    path.end_round(now + u64::from(RTT), (RTT + 20_000, RTT + 20_000), true);
    now += 2 * u64::from(RTT);
    path.capacity.deliver(50);
    path.window = FULL + path.reserved;
    path.end_round(now, (RTT + 20_000, RTT + 20_000), true);
    assert_eq!(path.window, FULL);
    assert!(path.capacity.is_confirmed());
}

#[test]
fn bursts_of_host_foreground_are_not_jitter() {
    for (sends, least) in [(true, 0), (false, 4_000)] {
        let ((mut path, mut now), mut seen) = (shallow_path(FULL), HostTraffic::default());
        path.delay.forget_full_queue();
        for step in 0..400 {
            let rtt = RTT + step * step % 11 * 800;
            now = if sends {
                send_from_host(&mut path, now, 12_000, &mut seen)
            } else {
                now + 12_000
            };
            path.handle_exact_sample(now, rtt);
        }
        let noise = path.delay.noise();
        assert!(noise >= least && (noise > 0) != sends, "{noise}, sends: {sends}");
    }
}
