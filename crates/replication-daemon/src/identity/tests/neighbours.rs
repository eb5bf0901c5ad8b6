//! Connections between neighbours.

use lull_replication::types::Digest;

use super::*;

fn certificate_of(replica: &ReplicaIdentity) -> Digest {
    fingerprint(&replica.shown().0[0])
}

#[test]
fn neighbours_accept_only_named_certificates() {
    let mut world = World::new();
    let (one, other) = (world.join("berlin"), world.join("paris"));
    let stranger = world.join("oslo");
    let connect = |from: &ReplicaIdentity, to: &ReplicaIdentity, named: [Digest; 2]| {
        let [server, client] = named;
        let how = from.connect_to_neighbour(clock(0), Arc::new(move |shown| *shown == server));
        let accepts = to.accept_neighbours(clock(0), Arc::new(move |shown| *shown == client));
        shake(how.expect("good keys"), accepts.expect("good keys"))
    };
    let (a, b, c) = (certificate_of(&one), certificate_of(&other), certificate_of(&stranger));
    assert!(connect(&one, &other, [b, a]).is_ok());
    assert!(connect(&one, &stranger, [b, a]).is_err(), "another one answers");
    assert!(connect(&stranger, &other, [b, a]).is_err(), "another one asks");
    assert!(connect(&one, &other, [c, a]).is_err());
    assert!(connect(&one, &other, [b, c]).is_err());
}
