//! The changes of objects by a scan.

use super::*;

#[test]
fn scan_result_becomes_the_commit() {
    let version =
        |body, executable| Version { sequence: Sequence(1), content: content(body, executable) };
    let committed = [
        ("same", version(1, false)),
        ("mode", version(2, false)),
        ("bytes", version(3, false)),
        ("touched", version(4, false)),
        ("written", version(5, false)),
        ("gone", version(6, false)),
        ("time", version(10, false)),
        ("hidden/file", version(7, false)),
        ("restless", version(8, false)),
    ];
    let committed = committed.map(|(name, version)| (path(name), version)).into();
    let mut files: BTreeMap<Path, Content> = [
        ("same", content(1, false)),
        ("mode", content(2, true)),
        ("bytes", content(9, false)),
        ("touched", content(4, true)),
        ("time", content(10, false)),
        ("written", content(9, false)),
        ("new", content(9, false)),
        ("begun", content(9, false)),
    ]
    .map(|(name, content)| (path(name), content))
    .into();
    if let Some(time) = files.get_mut(&path("time")) {
        time.metadata.modified = WallTime::from_nanos(9);
    }
    let seen = ScanResult {
        files,
        restless: [Name::from("restless")].into(),
        hidden: [Name::from("hidden")].into(),
        ..ScanResult::default()
    };
    let mode = |name: &str| (Name::from(name), Depth::Mode);
    let names: Names = [mode("touched"), mode("written"), mode("begun")].into();
    let changes = |lost: &[u8]| {
        let lost = lost.iter().map(|body| content(*body, false).digest).collect();
        let changes = seen.changes(&names, &committed, &lost).into_iter();
        changes.map(|(path, to)| (path.to_string(), to.is_some())).collect::<Vec<_>>()
    };
    let all = [
        ("bytes", true),
        ("gone", false),
        ("mode", true),
        ("new", true),
        ("time", true),
        ("touched", true),
    ];
    let mut all: Vec<_> = all.map(|(name, is)| (name.to_owned(), is)).into();
    assert_eq!(changes(&[]), all);
    // A body that the origin has lost is uploaded again.
    all.insert(4, ("same".to_owned(), true));
    assert_eq!(changes(&[1, 6]), all);
}
