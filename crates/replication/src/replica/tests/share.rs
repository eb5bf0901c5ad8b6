//! A replica that exchanges pieces with neighbours.

use super::*;
use crate::message::WITH_NEIGHBOURS;

#[test]
fn only_a_parent_that_knows_neighbours_is_told_the_address() {
    let address = "192.0.2.1:7000".parse().expect("an address");
    for (version, share, expected) in [
        (WITH_NEIGHBOURS, Some(address), true),
        (WITH_NEIGHBOURS, None, false),
        (WITH_NEIGHBOURS - 1, Some(address), false),
    ] {
        let mut bench = Bench::new(config());
        bench.replica.handle_disconnected(reading(0));
        bench.replica.set_protocol(version);
        bench.replica.set_share(share);
        bench.connect(Start::Log);
        let sent = bench.sent().into_iter().filter(|one| *one == ToOrigin::Share(address)).count();
        assert_eq!(sent == 1, expected, "{version} {share:?}");
        assert_eq!(bench.replica.may_exchange(), version == WITH_NEIGHBOURS);
        // A parent that names neighbours without being asked violates the protocol.
        bench.say(ToReplica::Neighbours(Vec::new()));
        assert_eq!(bench.replica.is_connected(), version == WITH_NEIGHBOURS);
    }
}
