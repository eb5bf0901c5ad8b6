//! Bodies that children get while they arrive at the relay.

use super::*;

const CHILD: ReplicaId = ReplicaId(2);

/// A relay that takes no names, and its child, which takes all. The file `a` was published.
fn tree() -> (Tree, Sequence, Digest) {
    let mut tree = Tree::taking(&[ORIGIN, 1], "other");
    tree.node(2).only = Subscription::default();
    tree.restart(2);
    tree.pass(500);
    let at = tree.write(&["a"]);
    tree.pass(500);
    let digest = payload(100).digest;
    assert!(!tree.node(1).bodies.contains_key(&digest));
    (tree, at, digest)
}

impl Tree {
    fn relay(&mut self) -> &mut Relay<()> {
        self.node(1).relay.as_mut().expect("it is a relay")
    }

    fn has_body(&mut self, at: usize, digest: &Digest) -> bool {
        self.node(at).bodies.contains_key(digest)
    }
}

#[test]
fn child_gets_a_body_before_the_relay_has_it() {
    let (mut tree, at, digest) = tree();
    assert_eq!(tree.relay().origin().poll_speculative(CHILD), None);
    assert!(tree.relay().handle_arriving(digest, false));
    tree.pass(100);
    assert!(tree.has_body(2, &digest) && !tree.has_body(1, &digest));
    tree.relay().handle_arrived(digest, false);
    let object = &tree.nodes[1].replica.image().objects[&path("a")];
    assert_eq!((object.version.sequence, object.valid), (at, true));
}

#[test]
fn body_that_is_cut_off_waits_for_the_child_again() {
    let (mut tree, _, digest) = tree();
    assert!(tree.relay().handle_arriving(digest, false));
    let body = tree.relay().origin().poll_speculative(CHILD).expect("the body");
    // The rest does not come.
    tree.relay().handle_arrived(digest, false);
    tree.relay().origin().handle_cut_off(CHILD, &body);
    let now = tree.now(2);
    tree.node(2).replica.handle_body(now, body, None);
    tree.pass(500);
    assert!(!tree.has_body(2, &digest));
    // A read at the relay has it fetched.
    assert!(tree.read(1, "a").is_ok());
    tree.pass(500);
    assert!(tree.has_body(2, &digest));
}

#[test]
fn overwritten_body_is_not_queued_again_when_cut_off() {
    let (mut tree, _, digest) = tree();
    assert!(tree.relay().handle_arriving(digest, false));
    let body = tree.relay().origin().poll_speculative(CHILD).expect("the body");
    tree.write(&["a"]);
    tree.pass(200);
    assert!(!tree.relay().origin().is_wanted(CHILD, &body));
    let before = tree.relay().origin().waiting(CHILD);
    tree.relay().handle_arrived(digest, false);
    tree.relay().origin().handle_cut_off(CHILD, &body);
    assert_eq!(tree.relay().origin().waiting(CHILD), before);
}

/// A body in the background may take hours, so a read of a child is not answered with it.
#[test]
fn read_gets_a_body_that_arrives_for_a_read() {
    let (mut tree, _, digest) = tree();
    // The relay's demand does not reach the origin.
    tree.node(1).is_cut = true;
    assert!(tree.relay().handle_arriving(digest, false));
    let now = tree.now(1);
    tree.relay().handle_arrived(digest, false);
    let session = tree.nodes[1].replica.session().expect("it is connected");
    let demand = Frame { session, message: ToOrigin::Demand(path("a")) };
    let Node { relay: Some(relay), replica, .. } = tree.node(1) else { panic!("a relay") };
    relay.handle_arriving(digest, false);
    relay.handle_child(now, replica, CHILD, demand);
    assert_eq!(relay.origin().poll_demand_in_turn(CHILD), None);
    relay.handle_replica(now, replica);
    let asks = |frame: Frame<ToOrigin>| frame.message == ToOrigin::Demand(path("a"));
    assert!(core::iter::from_fn(|| replica.poll_send()).any(asks));

    relay.handle_arriving(digest, true);
    let body = relay.origin().poll_demand_in_turn(CHILD).expect("the body");
    assert!(body.message.demand && !body.message.lost);
    // It is still wanted from the origin.
    relay.handle_replica(now, replica);
    assert!(
        !core::iter::from_fn(|| replica.poll_send())
            .any(|frame| matches!(frame.message, ToOrigin::Withdraw(_)))
    );
}
