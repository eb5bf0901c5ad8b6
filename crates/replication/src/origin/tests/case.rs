//! Paths that differ only in case.

use super::*;

#[test]
fn case_clashes_are_refused_if_configured() {
    let config = Config { case_clashes: CaseClashes::Refuse, ..Config::default() };
    let clash = |one, other| Refused::Case(path(one), path(other));
    let mut bench = Bench::new(config);
    bench.committed("README1");
    assert_eq!(bench.refused("readme2"), clash("README", "readme"));
    assert_eq!(bench.committed("README3"), Sequence(2), "the same file again");
    assert_eq!(bench.committed("README- readme2"), Sequence(3), "a rename");
    assert_eq!(bench.refused("README4"), clash("readme", "README"), "and back again, without one");
    assert_eq!(bench.refused("a1 A2"), clash("a", "A"), "within a transaction");
    bench.committed("docs/a1");
    bench.committed("Docs/b2");
    assert_eq!(bench.refused("Docs/A1"), clash("docs/a", "Docs/A"));
    assert_eq!(bench.refused("DOCS1"), clash("docs", "DOCS"), "a file like a folder");
    assert_eq!(bench.refused("Readme/x1"), clash("readme", "Readme"), "a folder like a file");
    bench.committed("docs/");
    assert_eq!(bench.committed("docs/c1"), Sequence(7), "the folder is an object");
    assert_eq!(bench.committed("DOCS/ DOCS/d1"), Sequence(8), "of two folders nothing is lost");
    assert_eq!(bench.refused("dOCS1"), clash("DOCS", "dOCS"));
    bench.committed("empty/");
    assert_eq!(bench.refused("EMPTY1"), clash("empty", "EMPTY"));
    assert_eq!(bench.refused("Readme/"), clash("readme", "Readme"));
    // Restarted, with the present state.
    let image = bench.origin.image().clone();
    let bodies = [1, 2, 3].map(|body| (Digest([body; 32]), Bytes(10)));
    let empty = (Digest::EMPTY, Bytes(0));
    let mut bench = Bench::of(config, image, [&bodies[..], &[empty]].concat());
    assert_eq!(bench.refused("Readme2"), clash("readme", "Readme"));
    let mut bench = Bench::new(Config::default());
    bench.committed("README1");
    assert_eq!(bench.committed("readme2"), Sequence(2));
}

#[test]
fn case_clash_is_known_before_the_write() {
    let config = Config { case_clashes: CaseClashes::Refuse, ..Config::default() };
    let mut bench = Bench::new(config);
    bench.committed("README1");
    bench.committed("docs/a1");
    let content =
        Content { digest: Digest([9; 32]), size: Bytes(1), metadata: Metadata::default() };
    for (changes, expected) in [
        ("other1", ""),
        ("README2 other1", ""),
        ("readme2 other1", "readme|README|readme|README"),
        ("README- readme2", ""),
        // Of two, the first one by its bytes is accepted.
        ("b1 B2", "b|B|b|B"),
        ("Docs/A1 Docs/b1", "Docs/A|docs/a|Docs/A|docs/a"),
        ("DOCS1", "DOCS|docs/a|DOCS|docs"),
        ("docs/a- DOCS1", ""),
        ("Readme/x1", "Readme/x|README|Readme|README"),
    ] {
        let changes = transaction(changes).changes.into_iter();
        let changes = changes.map(|(path, put)| (path, (put != Put::Delete).then_some(content)));
        let changes = changes.collect();
        let clashes = bench.origin.case_clashes(&changes).into_iter();
        let clashes = clashes.map(|clash| {
            let (own, other) = clash.names();
            [clash.path, clash.other, own, other].map(|path| path.to_string()).join("|")
        });
        assert_eq!(clashes.collect::<Vec<_>>().join(" "), expected, "{changes:?}");
    }
    let allowed = Bench::new(Config::default()).origin;
    let both = [path("a"), path("A")].map(|path| (path, Some(content)));
    assert_eq!(allowed.case_clashes(&both.into()), []);
}
