use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::merkle::leaf_of;
use crate::message::{Ask, Tree};

fn kept(seconds: u64) -> Config {
    Config { grace: Duration::from_secs(seconds), ..config() }
}

impl Bench {
    /// A commit with its bodies.
    fn write(&mut self, sequence: u64, text: &str) {
        self.commit(sequence, text);
        self.bring(sequence, text);
        self.disk();
    }

    /// The bodies of a commit arrive.
    fn bring(&mut self, sequence: u64, text: &str) {
        for Change { path, content } in changes(text) {
            let Some(content) = content else { continue };
            let sequence = Sequence(sequence);
            let version = Some(Version { sequence, content });
            let (at, demand, lost) = (sequence, false, false);
            let message = BodyHeader { path, version, at, demand, lost };
            let frame = Frame { session: self.session(), message };
            let payload = Payload { digest: content.digest, size: content.size, bytes: () };
            self.replica.handle_body(reading(self.ms), frame, Some(payload));
        }
    }

    /// The queries about a tree since the last call, and its position.
    pub(super) fn asked(&mut self) -> Option<(Sequence, Ask)> {
        self.sent().into_iter().find_map(|one| match one {
            ToOrigin::Ask { of, part } => Some((of, part)),
            _ => None,
        })
    }

    /// Gets the answers to all its queries about a tree; returns the queries.
    pub(super) fn compare(&mut self, tree: &MerkleTree) -> Vec<Ask> {
        let mut all = Vec::new();
        while let Some((of, ask)) = self.asked() {
            all.push(ask.clone());
            for part in answer(tree, ask) {
                self.say(ToReplica::Tree { of, part });
            }
        }
        all
    }

    fn states(&self) -> Vec<u64> {
        self.replica.states().map(|(at, _)| at.0).collect()
    }

    /// The names of the root with the commits of their files; `?` if the state is not available.
    fn names_at(&self, at: u64) -> String {
        match self.replica.names_at(Sequence(at), None) {
            Some(Outcome::Names(names)) => {
                let told =
                    names.iter().map(|(name, entry)| format!("{}:{}", Escaped(name), told(entry)));
                told.collect::<Vec<_>>().join(" ")
            }
            Some(other) => panic!("the root is a folder: {other:?}"),
            None => "?".to_owned(),
        }
    }

    /// Where the body of a name in a state is.
    fn holding_at(&self, at: u64, name: &str) -> Holding {
        match self.replica.entry_at(Sequence(at), &path(name)) {
            Some(Outcome::Entry(Entry::File(version))) => {
                self.replica.holding(&path(name), &version)
            }
            other => panic!("no file: {other:?}"),
        }
    }
}

#[test]
fn past_state_is_listed_while_its_bodies_are_kept() {
    let mut bench = Bench::new(kept(20));
    bench.write(1, "a1 d/b2");
    bench.wait(5_000);
    bench.write(2, "a3 c4");
    bench.wait(5_000);
    bench.write(3, "d/b- c5");
    assert_eq!(bench.states(), [0, 1, 2, 3]);
    let told: Vec<_> = (0..5).map(|at| bench.names_at(at)).collect();
    assert_eq!(told, ["", "a:1 d:/", "a:2 c:2 d:/", "a:2 c:3", "?"]);
    assert_eq!(bench.holding_at(1, "a"), Holding::Here);
    assert_eq!(bench.replica.made(Sequence(2)), Some(reading(5_000).wall), "by the origin's clock");
    let absent = bench.replica.entry_at(Sequence(1), &path("c"));
    assert_eq!(absent, Some(Outcome::Absent));
    let folder = bench.replica.names_at(Sequence(2), Some(&path("d")));
    assert!(matches!(&folder, Some(Outcome::Names(names)) if names.len() == 1), "{folder:?}");
    assert_eq!(bench.replica.names_at(Sequence(3), Some(&path("d"))), Some(Outcome::Absent));
    // 1 was replaced at 5 s, 2 at 10 s.
    bench.wait(14_999);
    assert_eq!(bench.states(), [1, 2, 3]);
    bench.wait(1);
    bench.disk();
    assert_eq!(bench.states(), [2, 3]);
    assert_eq!(bench.names_at(2), "a:2 c:2 d:/");
    assert!(!bench.replica.has_body(&Digest([1; 32])), "both go together");
    bench.wait(5_000);
    assert_eq!((bench.states(), bench.names_at(3)), (vec![3], "a:2 c:3".to_owned()));
    assert_eq!(bench.replica.poll_timeout(), bench.replica.link_timeout(), "nothing is left");
}

#[test]
fn each_commit_of_a_step_is_a_state() {
    let mut bench = Bench::new(kept(20));
    bench.write(1, "a1");
    for (sequence, text) in [(2, "a2 b3"), (3, "a4"), (4, "b-")] {
        bench.commit(sequence, text);
    }
    bench.wait(10_000);
    bench.heartbeat(4);
    bench.disk();
    assert_eq!(bench.states(), [0, 1, 2, 3, 4]);
    let told: Vec<_> = (1..5).map(|at| bench.names_at(at)).collect();
    assert_eq!(told, ["a:1", "a:2 b:2", "a:3 b:2", "a:3"]);
    assert_eq!(bench.holding_at(1, "a"), Holding::Here);
    assert_eq!(bench.holding_at(2, "a"), Holding::Gone, "overwritten before it came");
    assert_eq!(bench.holding_at(3, "a"), Holding::Comes, "still current, so it can be fetched");
}

#[test]
fn old_body_is_kept_for_a_state_within_a_step() {
    for (quota, expected) in [(None, Holding::Here), (Some(Bytes(35)), Holding::Gone)] {
        let mut bench = Bench::new(Config { quota, ..kept(20) });
        bench.write(1, "a1");
        for (sequence, text) in [(2, "b2"), (3, "a3"), (4, "a4")] {
            bench.commit(sequence, text);
        }
        for (sequence, text) in [(3, "a3"), (4, "a4")] {
            bench.body(sequence, text, false);
            bench.disk();
        }
        assert_eq!(bench.states(), [0, 1], "the first one waits for its body");
        bench.body(2, "b2", true);
        bench.disk();
        assert_eq!(bench.states(), [0, 1, 2, 3, 4]);
        assert_eq!(bench.holding_at(3, "a"), expected, "{quota:?}");
        bench.wait(20_000);
        bench.disk();
        assert!(!bench.replica.has_body(&Digest([3; 32])), "{quota:?}");
    }
}

#[test]
fn state_is_listed_even_if_a_body_was_evicted() {
    let mut bench = Bench::new(Config { quota: Some(Bytes(25)), ..kept(20) });
    bench.write(1, "a1 b2");
    bench.write(2, "a-");
    bench.write(3, "c3");
    assert_eq!(bench.replica.take_counters().refused, 1);
    bench.wait(10_000);
    bench.heartbeat(3);
    bench.disk();
    assert_eq!(bench.read("c"), "Invalid");
    bench.body(3, "c3", true);
    bench.disk();
    assert_eq!(bench.names_at(1), "a:1 b:1");
    assert_eq!(bench.holding_at(1, "a"), Holding::Gone);
}

#[test]
fn only_the_current_state_exists_without_a_grace_period() {
    let mut bench = Bench::new(config());
    bench.write(1, "a1");
    bench.write(2, "a2");
    assert_eq!((bench.states(), bench.names_at(2)), (vec![2], "a:2".to_owned()));
    let replica = Replica::<()>::recover(reading(0), kept(20), Image::default(), []);
    assert_eq!(replica.states().count(), 0, "a new replica knows of none");
}

#[test]
fn resync_omits_the_states_that_it_skips() {
    let mut bench = Bench::new(kept(20));
    bench.write(1, "a1");
    bench.write(2, "b2");
    bench.replica.handle_disconnected(reading(0));
    let version = |sequence, body| Version { sequence: Sequence(sequence), content: content(body) };
    let (a, c) = ((path("a"), version(5, 5)), (path("c"), version(9, 6)));
    let tree = MerkleTree::new([(&a.0, a.1), (&c.0, c.1)]);
    let position = Position { sequence: Sequence(9), chain: Digest([9; 32]) };
    bench.connect(Start::Resync { position, stamp: reading(0).wall, root: tree.root() });
    while let Some((of, ask)) = bench.asked() {
        for part in answer(&tree, ask) {
            bench.say(ToReplica::Tree { of, part });
        }
    }
    bench.disk();
    assert_eq!(bench.replica.position(), Sequence(9));
    assert_eq!(bench.states(), [0, 1, 2, 9]);
    let told: Vec<_> = (1..10).map(|at| bench.names_at(at)).collect();
    assert_eq!(told, ["a:1", "a:1 b:2", "?", "?", "?", "?", "?", "?", "a:5 c:9"]);
    assert_eq!(bench.holding_at(2, "b"), Holding::Here);
}

#[test]
fn restarted_resync_reuses_received_leaves() {
    let mut bench = Bench::new(config());
    bench.replica.handle_disconnected(reading(0));
    let version = |sequence, body| Version { sequence: Sequence(sequence), content: content(body) };
    let [a, b, c] = ["a", "b", "c"].map(path);
    let old = MerkleTree::new([(&a, version(5, 5)), (&b, version(6, 6))]);
    let new = MerkleTree::new([(&a, version(5, 5)), (&b, version(7, 7)), (&c, version(8, 8))]);
    let start = |at, tree: &MerkleTree| {
        let position = Position { sequence: Sequence(at), chain: Digest([9; 32]) };
        Start::Resync { position, stamp: reading(0).wall, root: tree.root() }
    };
    bench.connect(start(6, &old));
    let mut late = Vec::new();
    while let Some((of, ask)) = bench.asked() {
        assert_eq!(of, Sequence(6));
        let is_last = matches!(ask, Ask::Entries(_));
        for part in answer(&old, ask) {
            match part {
                // Only one of the two leaves arrives in time.
                Tree::Entries { leaf, .. } if leaf != leaf_of(&a) => late.push(part),
                part => bench.say(ToReplica::Tree { of, part }),
            }
        }
        if is_last {
            break;
        }
    }
    bench.say(ToReplica::Welcome { start: start(8, &new), eager: false });
    for part in late {
        bench.say(ToReplica::Tree { of: Sequence(6), part });
    }
    assert!(bench.replica.is_connected(), "an earlier answer is valid");
    let mut entries = Vec::new();
    while let Some((of, ask)) = bench.asked() {
        assert_eq!(of, Sequence(8));
        if let Ask::Entries(leaves) = &ask {
            entries.extend(leaves.iter().copied());
        }
        for part in answer(&new, ask) {
            bench.say(ToReplica::Tree { of, part });
        }
    }
    entries.sort_unstable();
    let mut expected = [leaf_of(&b), leaf_of(&c)];
    expected.sort_unstable();
    assert_eq!(entries, expected);
    bench.disk();
    assert_eq!(bench.replica.position(), Sequence(8));
    let state = ["a", "b", "c"].map(|name| bench.state(name).map(|(sequence, _)| sequence));
    assert_eq!(state, [Some(5), Some(7), Some(8)]);
}

/// The first re-sync of a state with one file, in version 6.
fn one_file() -> (MerkleTree, Start) {
    let version = Version { sequence: Sequence(6), content: content(6) };
    let tree = MerkleTree::new([(&path("a"), version)]);
    let position = Position { sequence: Sequence(6), chain: Digest([9; 32]) };
    let start = Start::Resync { position, stamp: reading(0).wall, root: tree.root() };
    (tree, start)
}

#[test]
fn resync_waiting_for_the_disk_keeps_its_connection() {
    let mut bench = Bench::new(Config { silence: Duration::from_secs(10), ..config() });
    bench.replica.handle_disconnected(reading(0));
    let (tree, start) = one_file();
    bench.connect(start);
    bench.compare(&tree);
    let closes = |bench: &mut Bench| {
        let mut events = core::iter::from_fn(|| bench.replica.poll_event());
        events.any(|event| event == Event::Close)
    };
    for second in 0..11 {
        let effect = bench.replica.poll_effect();
        assert!(matches!(effect, Some(Effect::Commit(_))), "{second} s: {effect:?}");
        bench.replica.handle_committed(reading(bench.ms), Err(DiskFull));
        bench.wait(1_000);
        let next = bench.replica.poll_timeout();
        assert!(next > Some(reading(bench.ms).local), "{second} s: it asks again and again");
    }
    assert!(!closes(&mut bench), "all that the origin has to say was said");
    bench.disk();
    assert_eq!((bench.replica.position(), bench.state("a")), (Sequence(6), Some((6, false))));
    // Invalidations and heartbeats continue.
    bench.wait(9_999);
    assert!(!closes(&mut bench));
    bench.wait(1);
    assert!(closes(&mut bench));
}

#[test]
fn slow_message_does_not_count_as_silence() {
    let mut bench = Bench::new(Config { silence: Duration::from_secs(10), ..config() });
    let closes = |bench: &mut Bench| {
        let mut events = core::iter::from_fn(|| bench.replica.poll_event());
        events.any(|event| event == Event::Close)
    };
    for _ in 0..5 {
        bench.ms += 9_000;
        bench.replica.handle_received_bytes(reading(bench.ms).local);
        bench.wait(0);
        assert!(!closes(&mut bench), "bytes of it have come by {} ms", bench.ms);
    }
    // For example of a previous connection.
    bench.replica.handle_received_bytes(reading(0).local);
    bench.wait(9_999);
    assert!(!closes(&mut bench));
    bench.wait(1);
    assert!(closes(&mut bench));
}

#[test]
fn resync_reuses_leaves_received_before_a_disconnect() {
    let mut bench = Bench::new(config());
    bench.replica.handle_disconnected(reading(0));
    let (tree, start) = one_file();
    bench.connect(start.clone());
    let leaf = leaf_of(&path("a"));
    assert!(bench.compare(&tree).contains(&Ask::Entries(vec![leaf])));
    assert!(matches!(bench.replica.poll_effect(), Some(Effect::Commit(_))));
    bench.replica.handle_committed(reading(0), Err(DiskFull));
    bench.replica.handle_disconnected(reading(0));
    bench.wait(1_000);
    bench.connect(start);
    let branch = tree.branches()[0].0;
    assert_eq!(bench.compare(&tree), [Ask::Branches, Ask::Leaves(vec![branch])]);
    bench.disk();
    assert_eq!((bench.replica.position(), bench.state("a")), (Sequence(6), Some((6, false))));
}

#[test]
fn inconsistent_resync_is_never_visible_and_restarts() {
    let (tree, start) = one_file();
    let version = Version { sequence: Sequence(6), content: content(7) };
    let other = MerkleTree::new([(&path("a"), version)]);
    // Which questions are answered for a state other than the announced one.
    for wrong in 0..8_u8 {
        let mut bench = Bench::new(config());
        bench.replica.handle_disconnected(reading(0));
        bench.connect(start.clone());
        for question in 0..3 {
            let Some((of, ask)) = bench.asked() else { panic!("{wrong}: question {question}") };
            let from = if wrong & 1 << question == 0 { &tree } else { &other };
            for part in answer(from, ask) {
                bench.say(ToReplica::Tree { of, part });
            }
        }
        let closed = core::iter::from_fn(|| bench.replica.poll_event()).any(|e| e == Event::Close);
        // Of branches it only matters which of them differ.
        assert_eq!(closed, wrong & 6 != 0, "{wrong}");
        if closed {
            bench.disk();
            assert_eq!((bench.replica.position(), bench.state("a")), (Sequence::ZERO, None));
            bench.connect(start.clone());
            bench.compare(&tree);
        }
        bench.disk();
        let shown = (bench.replica.position(), bench.read("a"));
        assert_eq!(shown, (Sequence(6), "Stale".to_owned()), "no heartbeat has come yet");
        bench.heartbeat(6);
        bench.body(6, "a6", true);
        bench.disk();
        assert_eq!(bench.answers().pop().map(|(_, body)| body), Some("6".to_owned()), "{wrong}");
    }
}

/// The answer of an origin with that tree.
pub(super) fn answer(tree: &MerkleTree, ask: Ask) -> Vec<Tree> {
    match ask {
        Ask::Branches => vec![Tree::Branches(tree.branches())],
        Ask::Leaves(branches) => {
            branches.into_iter().map(|branch| Tree::Leaves(branch, tree.leaves(branch))).collect()
        }
        Ask::Entries(leaves) => leaves
            .into_iter()
            .map(|leaf| Tree::Entries { leaf, entries: tree.entries(leaf).to_vec(), more: false })
            .collect(),
    }
}

/// All files of a state, found by a walk through its folders.
fn walk(replica: &Replica<()>, at: u64, folder: &str, files: &mut BTreeMap<String, u64>) {
    let inner = Path::new(folder).ok();
    let Some(Outcome::Names(names)) = replica.names_at(Sequence(at), inner.as_ref()) else {
        panic!("no folder {folder} in {at}");
    };
    for (name, entry) in names {
        let name = Escaped(&name).to_string();
        let whole = if folder.is_empty() { name } else { format!("{folder}/{name}") };
        let looked_up = replica.entry_at(Sequence(at), &path(&whole));
        assert_eq!(looked_up, Some(Outcome::Entry(entry)), "{whole} in {at}");
        match entry {
            Entry::File(version) => {
                files.insert(whole, version.sequence.0);
            }
            Entry::Folder(_) => walk(replica, at, &whole, files),
        }
    }
}

/// Names of which none is a folder of another.
const NAMES: [&str; 7] = ["a", "b/a", "b/b/a", "b/b/c", "b.a", "c", "d/a"];

/// Whether each of these is written, deleted, or left alone; whether the bodies come; how long after.
fn commits() -> impl Strategy<Value = Vec<(Vec<Option<bool>>, bool, i64)>> {
    let change = prop_oneof![3 => Just(None), 2 => Just(Some(true)), 1 => Just(Some(false))];
    let changes = prop::collection::vec(change, NAMES.len());
    prop::collection::vec((changes, any::<bool>(), 0..12_000_i64), 1..40)
}

proptest! {
    #[test]
    fn every_listed_state_existed_at_the_origin(commits in commits()) {
        let mut bench = Bench::new(kept(15));
        let mut had = vec![BTreeMap::<String, u64>::new()];
        let mut shown = BTreeSet::new();
        for (number, (all, with_bodies, pause)) in commits.into_iter().enumerate() {
            let sequence = number as u64 + 1;
            let mut state = had.last().cloned().unwrap_or_default();
            let mut text = Vec::new();
            for (name, change) in NAMES.iter().zip(all) {
                match change {
                    Some(true) => {
                        state.insert((*name).to_owned(), sequence);
                        text.push(format!("{name}{}", sequence % 10));
                    }
                    Some(false) if state.remove(*name).is_some() => text.push(format!("{name}-")),
                    _ => {}
                }
            }
            if text.is_empty() {
                text.push("e1".to_owned());
                state.insert("e".to_owned(), sequence);
            }
            had.push(state);
            bench.commit(sequence, &text.join(" "));
            if with_bodies {
                bench.bring(sequence, &text.join(" "));
            }
            bench.disk();
            bench.wait(pause);
            bench.heartbeat(sequence);
            bench.disk();
            let states = bench.states();
            prop_assert_eq!(states.last(), Some(&bench.replica.position().0));
            for at in states {
                shown.insert(at);
                let mut files = BTreeMap::new();
                walk(&bench.replica, at, "", &mut files);
                prop_assert_eq!(&files, &had[at as usize], "state {}", at);
            }
        }
        let upto = bench.replica.position().0;
        prop_assert!((0..=upto).all(|at| shown.contains(&at)), "each was reported when it was new");
    }
}
