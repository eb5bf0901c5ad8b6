//! Steps that are made and taken over in slices.

use proptest::prelude::*;

use super::*;

/// Names changed by commits.
const NAMES: [&str; 6] = ["a", "b", "d/a", "d/b", "d/e/a", "f"];

fn sliced(step_slice: usize) -> Bench {
    Bench::new(Config { step_slice, grace: Duration::from_secs(60), ..config() })
}

impl Bench {
    /// The results of reads: each object, each folder, and these in the state at `at`.
    fn all(&mut self, at: u64) -> Vec<String> {
        let mut all: Vec<_> = NAMES.iter().map(|name| self.read(name)).collect();
        let folders = [None, Some(path("d")), Some(path("d/e"))];
        all.extend(NAMES.iter().map(|name| self.ask(ReadTarget::Entry(path(name)), 0)));
        all.extend(folders.iter().map(|folder| self.ask(ReadTarget::Names(folder.clone()), 0)));
        all.push(self.ask(ReadTarget::Folder(None), 0));
        let past = self.replica.states().any(|(state, _)| state == Sequence(at));
        all.push(past.to_string());
        let was = folders.iter().map(|one| self.replica.names_at(Sequence(at), one.as_ref()));
        all.extend(was.map(|names| format!("{names:?}")));
        let was = NAMES.iter().map(|name| self.replica.entry_at(Sequence(at), &path(name)));
        all.extend(was.map(|entry| format!("{entry:?}")));
        all
    }

    /// The same without the reads that take over the whole step.
    fn some(&mut self, at: u64) -> Vec<String> {
        let folders = [None, Some(path("d")), Some(path("d/e"))];
        let mut all: Vec<_> =
            folders.iter().map(|folder| self.ask(ReadTarget::Names(folder.clone()), 0)).collect();
        all.extend(NAMES.iter().map(|name| self.ask(ReadTarget::Entry(path(name)), 0)));
        let was = folders.iter().map(|one| self.replica.names_at(Sequence(at), one.as_ref()));
        all.extend(was.map(|names| format!("{names:?}")));
        all
    }

    /// Continues until the machine asks for nothing more at this time.
    pub(super) fn run_to_rest(&mut self) {
        for _ in 0..1_000 {
            self.disk();
            let now = reading(self.ms).local;
            if self.replica.poll_timeout().is_none_or(|at| at > now) {
                return;
            }
            self.wait(0);
        }
        panic!("it does not come to rest: {:?}", self.replica.apply.writing);
    }

    fn bring_all(&mut self, sequence: u64, text: &str) {
        for one in text.split_whitespace().filter(|one| !one.ends_with('-')) {
            self.body(sequence, one, false);
        }
    }
}

#[test]
fn large_step_becomes_visible_at_once() {
    let mut bench = sliced(1);
    bench.commit(1, "a1 b2 d/a3 d/b4");
    bench.bring_all(1, "a1 b2 d/a3 d/b4");
    bench.run_to_rest();
    let before = bench.some(1);
    bench.commit(2, "a5 b- d/a- d/b- f6");
    bench.bring_all(2, "a5 f6");
    for _ in 0..100 {
        if bench.replica.position() == Sequence(2) {
            break;
        }
        assert_eq!(bench.some(1), before, "nothing of it is shown");
        bench.disk();
        if bench.replica.position() == Sequence(1) {
            bench.wait(0);
        }
    }
    assert!(bench.replica.apply.fold.is_open(), "it is not taken over");
    let shown = bench.some(1);
    assert_eq!(shown[..3], ["a:2 f:2", "-", "-"]);
    assert_eq!(shown[9..], before[9..], "the state before is what it was");
    assert_eq!((bench.read("f"), bench.read("b")), ("6".to_owned(), "-".to_owned()));
    let mut calls = 0;
    while bench.replica.apply.fold.is_open() {
        bench.wait(0);
        assert_eq!(bench.some(1), shown);
        calls += 1;
    }
    assert!(calls > 2, "{calls}");
    bench.run_to_rest();
    assert_eq!(bench.replica.apply.buffer.bytes(), Bytes(0));
}

/// An event of a replica.
#[derive(Clone, Debug)]
enum Act {
    /// A commit, and which of its bodies have arrived.
    Commit(Vec<(usize, u8)>, u8),
    /// The bodies of the last commit arrive.
    Bring,
    /// A body is found damaged.
    Miss(u8),
    Wait(i64),
}

fn act() -> impl Strategy<Value = Act> {
    let changes = prop::collection::btree_map(0..NAMES.len(), 0..8_u8, 1..6);
    prop_oneof![
        6 => (changes, any::<u8>()).prop_map(|(all, come)| Act::Commit(all.into_iter().collect(), come)),
        3 => Just(Act::Bring),
        1 => (1..8_u8).prop_map(Act::Miss),
        2 => prop_oneof![Just(100_i64), Just(11_000)].prop_map(Act::Wait),
    ]
}

fn text(changes: &[(usize, u8)]) -> Vec<String> {
    let body = |body: &u8| if *body == 0 { "-".to_owned() } else { body.to_string() };
    changes.iter().map(|(name, number)| format!("{}{}", NAMES[*name], body(number))).collect()
}

proptest! {
    /// Slices of one or two changes, with reads in between, have the same result as one step.
    #[test]
    fn sliced_step_equals_one_call(
        acts in prop::collection::vec(act(), 1..25),
        slice in 1..3_usize,
    ) {
        let (mut whole, mut parts) = (sliced(256), sliced(slice));
        let (mut last, mut commits) = (Vec::new(), 0);
        for act in acts {
            for bench in [&mut whole, &mut parts] {
                match &act {
                    Act::Commit(changes, come) => {
                        let text = text(changes);
                        bench.commit(commits + 1, &text.join(" "));
                        for (at, one) in text.iter().enumerate() {
                            if come & (1 << at) != 0 && !one.ends_with('-') {
                                bench.body(commits + 1, one, false);
                            }
                        }
                    }
                    Act::Bring => bench.bring_all(commits, &last.join(" ")),
                    Act::Miss(body) => {
                        let digest = content(*body).digest;
                        bench.replica.handle_missing(reading(bench.ms), &digest);
                    }
                    Act::Wait(ms) => bench.wait(*ms),
                }
            }
            if let Act::Commit(changes, _) = &act {
                (last, commits) = (text(changes), commits + 1);
            }
            for bench in [&mut whole, &mut parts] {
                bench.heartbeat(commits);
            }
            whole.run_to_rest();
            let before = parts.replica.position().0;
            for _ in 0..1_000 {
                parts.disk();
                if parts.replica.position() == whole.replica.position() {
                    prop_assert_eq!(parts.some(before), whole.some(before));
                }
                let now = reading(parts.ms).local;
                if parts.replica.poll_timeout().is_none_or(|at| at > now) {
                    break;
                }
                parts.wait(0);
            }
            parts.run_to_rest();
            prop_assert_eq!(parts.all(before), whole.all(before));
            prop_assert_eq!(&parts.replica.image, &whole.replica.image);
            prop_assert_eq!(parts.replica.bodies.stock, whole.replica.bodies.stock);
            prop_assert_eq!(&parts.replica.bodies.without_body, &whole.replica.bodies.without_body);
            for bench in [&mut whole, &mut parts] {
                bench.answers();
                bench.sent();
            }
        }
    }
}
