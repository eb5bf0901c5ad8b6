//! Files known by their fingerprints.

use std::fs::{self, File};
use std::io::Write;
use std::time::Duration;

use super::*;
use crate::daemon::{Clock, MachineClock};
use crate::source::Fingerprint;
use crate::watch::index::Index;

struct Folder {
    folder: tempfile::TempDir,
    index: Index,
}

impl Folder {
    fn new() -> Self {
        Folder { folder: tempfile::tempdir().unwrap(), index: Index::default() }
    }

    fn fingerprint(&self, name: &str) -> Fingerprint {
        Fingerprint::of(&self.folder.path().join(name).metadata().unwrap())
    }

    fn write(&self, name: &str) {
        File::create(self.folder.path().join(name)).unwrap().write_all(b"1").unwrap();
    }

    /// The file is read this long after now.
    fn read(&mut self, name: &str, later: Duration) {
        use std::os::unix::fs::MetadataExt;
        let names = self.folder.path().join(name).metadata().unwrap().nlink();
        let fingerprint = self.fingerprint(name);
        let begun = MachineClock.read().wall.plus(later);
        let content = content(1, false);
        self.index.read((&name.into(), &path(name)), fingerprint, content, names, begun);
    }

    fn is_known(&mut self, name: &str) -> bool {
        let fingerprint = self.fingerprint(name);
        self.index.content(&path(name), &fingerprint).is_some()
    }
}

#[test]
fn closed_file_is_known_until_it_changes() {
    let mut folder = Folder::new();
    folder.write("a");
    assert!(!folder.is_known("a"));
    folder.index.closed(&"a".into());
    folder.read("a", Duration::from_millis(50));
    assert!(folder.is_known("a"));
    // The same bytes, and the same length.
    std::thread::sleep(Duration::from_millis(20));
    folder.write("a");
    assert!(!folder.is_known("a"));
    // Closed by a program that has it mapped: its time is meaningless.
    folder.read("a", Duration::from_secs(61));
    assert!(folder.is_known("a"));
    folder.index.closed(&"a".into());
    assert!(!folder.is_known("a"));
}

#[test]
fn possibly_mapped_file_is_read_again_for_a_minute() {
    let mut folder = Folder::new();
    folder.write("a");
    folder.read("a", Duration::from_secs(59));
    assert!(!folder.is_known("a"));
    folder.read("a", Duration::from_secs(61));
    assert!(folder.is_known("a"));
    folder.index.closed(&"a".into());
    folder.index.written(&"a".into());
    folder.read("a", Duration::from_secs(59));
    assert!(!folder.is_known("a"), "it is open again");
}

#[test]
fn all_names_of_a_file_are_found_by_its_inode() {
    let mut folder = Folder::new();
    folder.write("a");
    folder.write("other");
    folder.read("a", Duration::from_secs(61));
    folder.read("other", Duration::from_secs(61));
    for name in ["b", "d"] {
        fs::hard_link(folder.folder.path().join("a"), folder.folder.path().join(name)).unwrap();
    }
    folder.read("b", Duration::from_secs(61));
    let inode = folder.fingerprint("b").inode;
    let scanned = |name: &str| -> Names { [(name.into(), Depth::Mode)].into() };
    let read = |name: &str| [(Name::from(name), inode)].into();
    let others = folder.index.others(&read("b"), &scanned("b"));
    assert_eq!(names(Some(others)), ["a (mode)"], "it was read when it was the only one");
    assert!(!folder.is_known("a"), "its bytes have changed, too");
    folder.read("d", Duration::from_secs(61));
    let others = folder.index.others(&read("a"), &scanned("a"));
    assert_eq!(names(Some(others)), ["b (mode)", "d (mode)"]);
    let all = [(Name::new(), Depth::Whole)].into();
    assert_eq!(folder.index.others(&read("a"), &all), Names::new(), "they were looked at");
    // Removed names are dropped.
    folder.index.retain_found(&scanned("b"), &BTreeMap::new());
    let others = folder.index.others(&read("a"), &scanned("a"));
    assert_eq!(names(Some(others)), ["d (mode)"]);
}
