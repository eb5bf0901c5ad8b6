//! Publications with a deadline for replicas below relays.

use core::time::Duration;

use super::*;
use crate::origin::{Arrival, Distribution, DistributionId};

impl Tree {
    /// All replicas are to have the last state within `ms`.
    fn distribute(&mut self, within: &str, ms: u64) -> DistributionId {
        let now = self.now(ORIGIN);
        let wanted = Distribution {
            at: self.origin.last().sequence,
            within: within.as_bytes().to_vec(),
            deadline: Some(now.local.plus(Duration::from_millis(ms))),
            replicas: (1..=self.nodes.len() as u32).map(ReplicaId).collect(),
        };
        self.origin.distribute(now, wanted)
    }

    /// Lets time pass, with the rounds of distributions.
    fn pass_rounds(&mut self, ms: i64) {
        for _ in 0..ms / 500 {
            self.pass(500);
            self.go_on();
        }
    }

    fn go_on(&mut self) {
        let now = self.now(ORIGIN);
        let is_due =
            |origin: &Origin<()>| origin.distribution_timeout().is_some_and(|at| at <= now.local);
        while self.origin.has_more() || is_due(&self.origin) {
            self.origin.go_on(now);
        }
        self.deliver_all();
    }

    fn arrivals(&self, id: DistributionId) -> Vec<Arrival> {
        self.origin.distribution(self.now(ORIGIN), id).expect("it is known").arrivals
    }

    /// Whether bodies leave the background on the connection to a node.
    fn is_urgent(&mut self, at: usize) -> bool {
        let (id, parent) = (ReplicaId(at as u32), self.node(at).parent);
        if parent == ORIGIN {
            return self.origin.is_urgent(id);
        }
        let now = self.now(parent);
        let Node { relay: Some(relay), replica, .. } = self.node(parent) else { return false };
        while relay.origin().has_more() {
            relay.go_on(now, replica);
        }
        relay.origin().is_urgent(id)
    }
}

#[test]
fn distribution_ends_for_replicas_on_all_levels() {
    let mut tree = Tree::new(&[ORIGIN, 1, 2, 1]);
    tree.write(&["a", "b"]);
    tree.pass(6_000);
    tree.write(&["b", "c"]);
    let id = tree.distribute("", 600_000);
    tree.pass_rounds(8_000);
    for arrival in tree.arrivals(id) {
        assert!(arrival.done.is_some() && arrival.has_all, "{arrival:?}");
        assert!(!arrival.is_urgent && arrival.late_by.is_none(), "{arrival:?}");
    }
}

#[test]
fn late_replica_below_relays_gets_the_publication_first() {
    let mut tree = Tree::new(&[ORIGIN, 1, 2, 1]);
    tree.pass(6_000);
    tree.node(3).is_cut = true;
    tree.write(&["docs/a"]);
    tree.write(&["other"]);
    let id = tree.distribute("docs/", 2_000);
    tree.pass_rounds(1_000);
    assert_eq!([1, 2, 3, 4].map(|at| tree.is_urgent(at)), [false; 4]);
    tree.pass_rounds(4_000);
    // The relays have all of it, so only the last connection is urgent.
    assert_eq!([1, 2, 3, 4].map(|at| tree.is_urgent(at)), [false, false, true, false]);
    assert_eq!(tree.arrivals(id).iter().filter(|one| one.is_urgent).count(), 1);
    tree.node(3).is_cut = false;
    let next = |tree: &mut Tree| {
        let relay = tree.node(2).relay.as_mut().expect("a relay").origin();
        let body = relay.poll_speculative(ReplicaId(3)).expect("it lacks two");
        (body.message.path, relay.is_urgent(ReplicaId(3)))
    };
    assert_eq!(next(&mut tree), (path("docs/a"), true));
    assert_eq!(next(&mut tree), (path("other"), false));
    tree.disconnect(3);
    tree.pass_rounds(8_000);
    assert_eq!([1, 2, 3, 4].map(|at| tree.is_urgent(at)), [false; 4]);
    assert!(tree.arrivals(id).iter().all(|one| one.done.is_some()));
    assert!(tree.nodes.iter().all(|node| node.replica.stock().valid_objects == 2));
}

#[test]
fn urgency_follows_a_replica_to_another_relay() {
    let mut tree = Tree::new(&[ORIGIN, ORIGIN, 1, 2]);
    tree.pass(6_000);
    tree.node(3).is_cut = true;
    tree.write(&["a"]);
    tree.distribute("", 1_000);
    tree.pass_rounds(3_000);
    assert_eq!([1, 2, 3].map(|at| tree.is_urgent(at)), [false, false, true]);
    tree.disconnect(3);
    tree.node(3).parent = 2;
    tree.pass_rounds(1_000);
    // It says hello to the other one, and gets nothing.
    tree.node(3).is_cut = false;
    let at = tree.write(&["b"]);
    tree.pass_rounds(6_000);
    assert_eq!([1, 2, 3].map(|at| tree.is_urgent(at)), [false; 3]);
    assert_eq!(tree.node(3).replica.position(), at);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Whatever happens meanwhile.
    #[test]
    fn distribution_ends_and_nothing_stays_urgent(
        acts in vec((act(), any::<bool>(), 0..8_000_u64), 1..25),
    ) {
        let mut tree = Tree::new(&[ORIGIN, 1, 1, 2]);
        tree.deliver_all();
        let mut last = None;
        for (act, distributes, ms) in acts {
            if distributes {
                last = Some(tree.distribute(if ms % 2 == 0 { "" } else { "a" }, ms));
            }
            match act {
                Act::Write(count) => {
                    tree.write(&["a", "b", "c"][..=count]);
                }
                Act::Pass(ms) => tree.pass_rounds(ms.max(500)),
                Act::Cut(at, is_cut) => tree.node(at).is_cut = is_cut,
                Act::Restart(at) => tree.restart(at),
                Act::Empty(at) => {
                    let incarnation = tree.node(at).disk.incarnation;
                    tree.node(at).disk = Image { incarnation, ..Image::default() };
                    tree.node(at).bodies.clear();
                    tree.restart(at);
                }
                Act::Clock(at, ms) => tree.node(at).ahead = ms * 1_000_000,
                Act::Disconnect(at) => tree.disconnect(at),
            }
        }
        (1..=4).for_each(|at| tree.node(at).is_cut = false);
        tree.pass_rounds(40_000);
        for arrival in last.map(|id| tree.arrivals(id)).unwrap_or_default() {
            prop_assert!(arrival.done.is_some() && !arrival.is_urgent, "{arrival:?}");
        }
        prop_assert_eq!([1, 2, 3, 4].map(|at| tree.is_urgent(at)), [false; 4]);
        for node in &tree.nodes {
            let stock = node.replica.stock();
            prop_assert_eq!(stock.valid_objects, stock.objects);
        }
    }
}

/// The distribution begins when the connection to the relay is cut.
#[test]
fn distribution_ends_after_a_cut_at_its_start() {
    let mut tree = Tree::new(&[ORIGIN, 1, 1, 2]);
    tree.deliver_all();
    tree.write(&["a"]);
    tree.write(&["a"]);
    tree.write(&["a", "b"]);
    let id = tree.distribute("a", 971);
    tree.node(1).is_cut = true;
    tree.pass_rounds(1_000);
    tree.node(1).is_cut = false;
    tree.pass_rounds(40_000);
    for arrival in tree.arrivals(id) {
        assert!(arrival.done.is_some() && !arrival.is_urgent, "{arrival:?}");
    }
}
