//! Steps that are made and taken over in slices.

use super::*;

/// Names that commits change.
const NAMES: [&str; 6] = ["a", "b", "d/a", "d/b", "d/e/a", "f"];

fn sliced(step_slice: usize) -> Bench {
    Bench::new(Config { step_slice, grace: Duration::from_secs(60), ..config() })
}

impl Bench {
    /// What reads find of names and folders, and what folders were in the state at `at`.
    fn some(&mut self, at: u64) -> Vec<String> {
        let folders = [None, Some(path("d")), Some(path("d/e"))];
        let mut all: Vec<_> =
            folders.iter().map(|folder| self.ask(What::Names(folder.clone()), 0)).collect();
        all.extend(NAMES.iter().map(|name| self.ask(What::Entry(path(name)), 0)));
        let was = folders.iter().map(|one| self.replica.names_at(Sequence(at), one.as_ref()));
        all.extend(was.map(|names| format!("{names:?}")));
        all
    }

    /// Goes on until the machine asks for nothing more at this time.
    pub(super) fn settle(&mut self) {
        for _ in 0..1_000 {
            self.disk();
            let now = reading(self.ms).local;
            if self.replica.poll_timeout().is_none_or(|at| at > now) {
                return;
            }
            self.wait(0);
        }
        panic!("it does not come to rest: {:?}", self.replica.writing);
    }

    fn bring_all(&mut self, sequence: u64, text: &str) {
        for one in text.split_whitespace().filter(|one| !one.ends_with('-')) {
            self.body(sequence, one, false);
        }
    }
}

#[test]
fn large_step_is_shown_at_once() {
    let mut bench = sliced(1);
    bench.commit(1, "a1 b2 d/a3 d/b4");
    bench.bring_all(1, "a1 b2 d/a3 d/b4");
    bench.settle();
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
    assert!(bench.replica.fold.is_open(), "it is not taken over");
    let shown = bench.some(1);
    assert_eq!(shown[..3], ["a:2 f:2", "-", "-"]);
    assert_eq!(shown[9..], before[9..], "the state before is what it was");
    assert_eq!((bench.read("f"), bench.read("b")), ("6".to_owned(), "-".to_owned()));
    let mut calls = 0;
    while bench.replica.fold.is_open() {
        bench.wait(0);
        assert_eq!(bench.some(1), shown);
        calls += 1;
    }
    assert!(calls > 2, "{calls}");
    bench.settle();
    assert_eq!(bench.replica.buffer.bytes(), Bytes(0));
}
