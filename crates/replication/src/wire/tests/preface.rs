//! The first bytes of connections.

use super::*;

#[test]
fn peer_with_only_earlier_versions_is_rejected_at_once() {
    for newest in 1..OLDEST {
        let theirs = Preface { oldest: 1, newest, channel: Channel::Control };
        let refused = Preface::ours(Channel::Control).agree(theirs);
        assert_eq!(refused, Err(WireError::Version { oldest: 1, newest }));
    }
}

#[test]
fn preface_round_trips_and_others_are_rejected() {
    let bodies = [Channel::Demand, Channel::Speculative];
    let others = [Channel::Control, Channel::Enrolment, Channel::Fetch, Channel::Exchange];
    for channel in bodies.into_iter().chain(others) {
        let ours = Preface::ours(channel);
        assert_eq!(Preface::decode(ours.encode()), Ok(ours));
    }
    assert_eq!(Preface::decode(*b"GET / HTTP/1"), Err(WireError::Stranger));
    let mut bytes = Preface::ours(Channel::Demand).encode();
    bytes[8] = 6;
    assert_eq!(Preface::decode(bytes), Err(WireError::Channel(6)));
    bytes[4..8].copy_from_slice(&[2, 0, 1, 0]);
    bytes[8] = 0;
    assert_eq!(Preface::decode(bytes), Err(WireError::Version { oldest: 2, newest: 1 }));
}
