//! The origin's knowledge of replicas below relays.

use super::*;
use crate::message::{BelowReport, Delivered, MAX_BELOW};

impl Tree {
    fn has_arrived(&self, at: usize, name: &str, sequence: Sequence) -> bool {
        let id = ReplicaId(at as u32);
        let shows = self.origin.progress(id).is_some_and(|(to, _)| to >= sequence);
        shows && self.origin.has_arrived(id, &path(name), sequence)
    }

    /// A message to the origin, as if this node had sent it.
    fn claim(&mut self, at: usize, message: ToOrigin) {
        let session = self.nodes[at - 1].replica.session().expect("it is connected");
        let now = self.now(ORIGIN);
        self.origin.handle_frame(now, ReplicaId(at as u32), Frame { session, message });
    }

    fn above(&self, at: usize) -> Option<ReplicaId> {
        self.origin.relay_above(ReplicaId(at as u32))
    }
}

fn report_on(replica: u32, relay: u32, committed: Sequence) -> BelowReport {
    BelowReport {
        replica: ReplicaId(replica),
        relay: ReplicaId(relay),
        connected: true,
        committed,
        delivered: Delivered::new(committed, []),
        waiting: 0,
        report: None,
    }
}

#[test]
fn reports_of_all_levels_reach_the_origin() {
    let mut tree = Tree::new(&[ORIGIN, 1, 2]);
    tree.pass(2_000);
    let at = tree.write(&["a", "b"]);
    assert!(!tree.has_arrived(3, "a", at));
    tree.pass(5_000);
    let now = tree.now(ORIGIN);
    for (node, above) in [(1, None), (2, Some(ReplicaId(1))), (3, Some(ReplicaId(2)))] {
        let id = ReplicaId(node as u32);
        assert_eq!(tree.above(node), above);
        assert_eq!(tree.origin.progress(id), Some((at, true)), "node {node}");
        assert!(tree.has_arrived(node, "a", at) && tree.has_arrived(node, "b", at));
        let (_, report) = tree.origin.report(id).expect("a report");
        assert_eq!((report.stock.objects, report.stock.valid_objects), (2, 2), "node {node}");
        let stale = tree.origin.staleness(now, id).expect("it is known");
        assert!(stale < core::time::Duration::from_secs(6), "node {node}: {stale:?}");
        assert_eq!(tree.origin.away(now, id), None);
    }
}

#[test]
fn body_below_arrives_when_its_replica_has_it() {
    let mut tree = Tree::new(&[ORIGIN, 1, 2]);
    let first = tree.write(&["a"]);
    tree.pass(5_000);
    assert!(tree.has_arrived(3, "a", first));
    tree.node(3).is_cut = true;
    let at = tree.write(&["b"]);
    tree.pass(3_000);
    assert!(tree.has_arrived(2, "b", at) && !tree.has_arrived(3, "b", at));
    tree.node(3).is_cut = false;
    tree.pass(30_000);
    assert!(tree.has_arrived(3, "b", at));
}

/// Otherwise a wait for any later commit would not end.
#[test]
fn missing_body_below_delays_no_other_commit() {
    let mut tree = Tree::new(&[ORIGIN, 1]);
    tree.pass(1_000);
    let at = tree.write(&["a"]);
    let now = tree.now(ORIGIN);
    tree.origin.handle_missing(now, &payload(100).digest);
    let later = tree.write(&["b"]);
    tree.pass(70_000);
    assert!(tree.has_arrived(2, "b", later));
    // Its body is lost at the origin, so nothing is to come.
    assert!(tree.has_arrived(2, "a", at));
    let delivered = Delivered::new(Sequence(100), (2..90).map(Sequence));
    assert!(delivered.has(Sequence(1)) && !delivered.has(Sequence(2)));
    assert!(!delivered.has(Sequence(50)) && !delivered.has(Sequence(95)));
}

/// The body of the next version is at the relay before its commit is.
#[test]
fn overwritten_missing_body_is_not_waited_for() {
    let mut tree = Tree::new(&[ORIGIN, 1]);
    tree.write(&["a", "b"]);
    tree.pass(1_000);
    let same = tree.origin.image().objects[&path("b")].content;
    // Lost before the relay has it.
    tree.write(&["a"]);
    let now = tree.now(ORIGIN);
    tree.origin.handle_missing(now, &payload(200).digest);
    tree.pass(70_000);
    let changes = [(path("a"), Put::Stored(same))].into();
    let now = tree.now(ORIGIN);
    tree.origin.handle_transaction(now, TransactionId(99), Transaction { changes });
    tree.run_origin_disk(now);
    tree.pass(5_000);
    let at = tree.origin.last().sequence;
    assert_eq!(at, Sequence(3));
    assert!(tree.has_arrived(2, "a", at));
}

#[test]
fn replicas_below_a_lost_relay_are_away() {
    let mut tree = Tree::new(&[ORIGIN, 1, 2]);
    tree.pass(5_000);
    let id = ReplicaId(3);
    assert_eq!(tree.origin.progress(id).map(|(_, connected)| connected), Some(true));
    let session = tree.nodes[0].replica.session().expect("it is connected");
    tree.origin.handle_disconnected(ReplicaId(1), session);
    assert_eq!(tree.origin.progress(id).map(|(_, connected)| connected), Some(false));
    tree.ms += 2_000;
    let now = tree.now(ORIGIN);
    assert!(tree.origin.away(now, id) >= Some(core::time::Duration::from_secs(2)));
}

#[test]
fn relay_reports_only_on_replicas_vouched_for_below_it() {
    // Two relays with a replica each, a third one alone, and a replica at the origin.
    let mut tree = Tree::new(&[ORIGIN, ORIGIN, 1, 2, ORIGIN]);
    let at = tree.write(&["a"]);
    tree.pass(5_000);
    let known = [3, 4, 5].map(|one| tree.origin.progress(ReplicaId(one)));
    assert_eq!(known, [Some((at, true)); 3]);
    let later = tree.write(&["a"]);
    for replica in 3..=6 {
        let all = vec![report_on(replica, 2, later)];
        tree.claim(2, ToOrigin::Below(all));
    }
    let progress = |tree: &Tree, one| tree.origin.progress(ReplicaId(one)).map(|(to, _)| to);
    // The one below the first relay, the one at the origin, and one that never was.
    let others = [3, 5, 6].map(|one| progress(&tree, one));
    assert_eq!(others, [Some(at), Some(at), None]);
    // About its own replica a relay may lie, but not about the relay that serves it.
    assert_eq!(progress(&tree, 4), Some(later));
    tree.claim(2, ToOrigin::Below(vec![report_on(4, 1, later)]));
    assert_eq!(tree.above(4), Some(ReplicaId(2)));
    // Commits that the origin never made.
    tree.claim(2, ToOrigin::Below(vec![report_on(4, 2, later.next())]));
    let events: Vec<_> = core::iter::from_fn(|| tree.origin.poll_event()).collect();
    assert!(events.contains(&Event::Close(ReplicaId(2))), "{events:?}");
}

#[test]
fn replica_that_moves_is_reported_by_its_new_parent() {
    let mut tree = Tree::new(&[ORIGIN, ORIGIN, 1, 2]);
    tree.pass(5_000);
    assert_eq!(tree.above(3), Some(ReplicaId(1)));
    for (parent, above) in [(2, Some(ReplicaId(2))), (ORIGIN, None), (1, Some(ReplicaId(1)))] {
        let session = tree.node(3).replica.session().expect("it is connected");
        tree.origin.handle_disconnected(ReplicaId(3), session);
        tree.disconnect(3);
        tree.node(3).parent = parent;
        let at = tree.write(&["a"]);
        tree.pass(8_000);
        assert_eq!(tree.above(3), above, "below {parent}");
        assert_eq!(tree.origin.progress(ReplicaId(3)), Some((at, true)), "below {parent}");
        // A relay notices that it is gone.
        let gone = BelowReport { connected: false, ..report_on(3, 1, Sequence::ZERO) };
        tree.claim(1, ToOrigin::Below(vec![gone]));
        let is_told = parent == 1;
        let (to, _) = tree.origin.progress(ReplicaId(3)).expect("it was reported");
        assert_eq!(to, if is_told { Sequence::ZERO } else { at }, "below {parent}");
    }
}

#[test]
fn reports_are_bounded_by_the_pings() {
    let parents: Vec<usize> = [ORIGIN].into_iter().chain([1; 150]).collect();
    let mut tree = Tree::new(&parents);
    tree.pass(4_000);
    let mut largest = 0;
    for _ in 0..60 {
        tree.ms += 50;
        for at in 1..=tree.nodes.len() {
            let now = tree.now(at);
            tree.node(at).replica.handle_timeout(now);
        }
        let now = tree.now(1);
        let Node { relay, replica, .. } = tree.node(1);
        relay.as_mut().expect("it is a relay").handle_replica(now, replica);
        let sent: Vec<_> = core::iter::from_fn(|| replica.poll_send()).collect();
        let is_ping = |frame: &&Frame<ToOrigin>| matches!(frame.message, ToOrigin::Ping { .. });
        let pings = sent.iter().filter(is_ping).count();
        let reports = sent.iter().filter_map(|frame| match &frame.message {
            ToOrigin::Below(all) => Some(all.len()),
            _ => None,
        });
        let reports: Vec<_> = reports.collect();
        assert!(reports.len() <= pings);
        largest = reports.into_iter().fold(largest, usize::max);
        tree.node(1).up.extend(sent);
        tree.deliver_all();
    }
    assert_eq!(largest, MAX_BELOW);
    // Each of them got its turn.
    for at in 2..=tree.nodes.len() {
        assert_eq!(tree.above(at), Some(ReplicaId(1)));
    }
}
