//! The messages between neighbours, and those that name them.

use core::net::{IpAddr, SocketAddr};

use super::*;

pub(super) fn address() -> impl Strategy<Value = SocketAddr> {
    let of = |(ip, port): (IpAddr, u16)| SocketAddr::new(ip.to_canonical(), port);
    let is_usable = |(ip, _): &(IpAddr, u16)| {
        !ip.to_canonical().is_unspecified() && !ip.to_canonical().is_multicast()
    };
    (any::<IpAddr>(), 1..=u16::MAX).prop_filter("no host", is_usable).prop_map(of)
}

pub(super) fn neighbour() -> impl Strategy<Value = Neighbour> {
    (any::<u32>(), digest(), address()).prop_map(|(replica, certificate, address)| Neighbour {
        replica: ReplicaId(replica),
        certificate,
        address,
    })
}

fn to_neighbour() -> impl Strategy<Value = ToNeighbour> {
    (digest(), 0..=MAX_BODY_BYTES.0, any::<u32>())
        .prop_map(|(digest, size, number)| ToNeighbour::Ask { digest, size: Bytes(size), number })
}

fn from_neighbour() -> impl Strategy<Value = FromNeighbour> {
    prop_oneof![
        (any::<u32>(), vec(any::<u8>(), 0..300))
            .prop_map(|(number, bytes)| FromNeighbour::Piece { number, bytes }),
        Just(FromNeighbour::Absent),
    ]
}

#[test]
fn addresses_of_no_host_are_rejected() {
    for bad in ["0.0.0.0:1", "[::]:1", "224.0.0.1:1", "[ff02::1]:1", "192.0.2.1:0"] {
        let message = ToOrigin::Share(bad.parse().expect("an address"));
        let mut bytes = Vec::new();
        encode(&Frame { session: Session::default(), message }, &mut bytes).expect("it is short");
        let mut decoder = Frames::<ToOrigin>::default();
        decoder.extend(&bytes);
        assert_eq!(decoder.next(), Err(WireError::Value("address")), "{bad}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn messages_of_neighbours_round_trip(
        questions in frames(to_neighbour()),
        answers in frames(from_neighbour()),
        parts in vec(1..3_000_usize, 1..5),
    ) {
        there_and_back(&questions, &parts)?;
        there_and_back(&answers, &parts)?;
    }
}
