//! Commits that are told in parts.

use super::*;

impl Bench {
    /// How many changes the parts of commits have that are told, and whether more follow.
    fn parts(&mut self) -> Vec<(usize, bool)> {
        let part = |message| match message {
            ToReplica::Invalidation { changes, more, .. } => Some((changes.len(), more)),
            _ => None,
        };
        self.told().into_iter().filter_map(part).collect()
    }
}

#[test]
fn large_commits_go_in_parts() {
    let mut bench = Bench::new(Config { part: 2, ..Config::default() });
    bench.hello(Some(bench.origin.last()));
    bench.told();
    bench.committed("a1 b2 c3 d4 e5");
    assert_eq!(bench.parts(), [(2, true), (2, true), (1, false)]);
}

#[test]
fn no_part_of_a_commit_takes_a_slow_line_for_long() {
    let mut bench = Bench::new(Config::default());
    bench.hello(Some(bench.origin.last()));
    bench.told();
    let name = |number: usize| format!("{number:060}1");
    let names: Vec<String> = (0..512).map(name).collect();
    bench.committed(&names.join(" "));
    let told = bench.told();
    let changes = told.iter().filter_map(|message| match message {
        ToReplica::Invalidation { changes, .. } => Some(changes.len()),
        _ => None,
    });
    assert_eq!(changes.sum::<usize>(), 512, "all of them are told");
    for message in told {
        let mut frame = Vec::new();
        let message = Frame { session: bench.session(), message };
        crate::wire::encode(&message, &mut frame).expect("within the limits");
        assert!(frame.len() < 17 * 1024, "{} bytes", frame.len());
    }
    // One that is longer goes by itself.
    let mut bench = Bench::new(Config { part_bytes: Bytes(100), ..Config::default() });
    bench.hello(Some(bench.origin.last()));
    bench.told();
    bench.committed(&format!("a1 {}1 b2", "long".repeat(30)));
    assert_eq!(bench.parts(), [(1, true), (1, true), (1, false)]);
}
