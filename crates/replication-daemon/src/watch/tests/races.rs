//! Changes in a real folder exactly during a scan, at an origin.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path as FilePath;
use std::sync::Arc;

use lull_replication::time::LocalTime;
use lull_replication::types::Digest;
use tempfile::TempDir;
use tokio::runtime::Handle as Runtime;
use tokio::task::block_in_place;

use crate::daemon::{Clock, MachineClock, OriginDaemon, OriginOptions, create_origin};
use crate::watch::commit::MAX_BYTES;
use crate::watch::events::Events;
use crate::watch::index::Index;
use crate::watch::plan::Plan;
use crate::watch::repair::Stray;
use crate::watch::scan_result::{Depth, Names};
use crate::watch::{Ended, Watcher};

/// An origin with a watcher of a folder, which runs step by step.
struct Bench {
    folder: TempDir,
    daemon: OriginDaemon,
    watcher: Watcher,
    _wake: UnixStream,
}

impl Bench {
    async fn new(files: &[(&str, &[u8])]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("origin");
        create_origin(&own, MachineClock.read().wall).unwrap();
        let options = OriginOptions::new(own, "127.0.0.1:0");
        let daemon = OriginDaemon::start(options, Arc::new(MachineClock), |_| {}).await.unwrap();
        let root = folder.path().canonicalize().unwrap().join("watched");
        fs::create_dir(&root).unwrap();
        let (wake, woken) = UnixStream::pair().unwrap();
        let watcher = Watcher {
            events: Events::new(root.clone()).unwrap(),
            root,
            origin: daemon.handle(),
            runtime: Runtime::current(),
            heard: Vec::new(),
            plan: Plan::default(),
            index: Index::default(),
            comparison: None,
            compare: std::time::Duration::MAX,
            next_slice: LocalTime::default(),
            stray: Stray::default(),
            woken,
            stop: Arc::default(),
            full: None,
            waits: None,
            on_event: Box::new(|_| {}),
        };
        let mut bench = Bench { folder, daemon, watcher, _wake: wake };
        for (name, bytes) in files {
            bench.write(name, bytes);
        }
        bench.scan(&[""]);
        assert_eq!(bench.committed().len(), files.len());
        bench
    }

    fn root(&self) -> &FilePath {
        &self.watcher.root
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.root().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    fn rename(&self, from: &str, to: &str) {
        fs::rename(self.root().join(from), self.root().join(to)).unwrap();
    }

    /// Scans these names and commits the result.
    fn scan(&mut self, names: &[&str]) {
        let names: Names = names.iter().map(|name| (name.into(), Depth::Whole)).collect();
        let worked = block_in_place(|| self.watcher.work(names));
        assert!(matches!(worked, Ok(_) | Err(Ended::Stopped)));
    }

    /// Handles the events so far, as one batch.
    fn batch(&mut self) {
        assert!(self.watcher.read_events().is_ok());
        let now = MachineClock.read().local;
        for happened in self.watcher.heard.drain(..) {
            self.watcher.plan.handle(now, happened);
        }
        let later = now.plus(std::time::Duration::from_secs(1));
        let names = self.watcher.plan.take(later).expect("something has happened");
        let worked = block_in_place(|| self.watcher.work(names));
        assert!(worked.is_ok());
    }

    /// The committed files, with their bytes by hash.
    fn committed(&self) -> BTreeMap<String, Digest> {
        let objects = self.daemon.handle().tree().objects.into_iter();
        let objects = objects.filter(|(_, version)| !version.content.is_folder());
        objects.map(|(path, version)| (path.to_string(), version.content.digest)).collect()
    }

    fn names(&self) -> Vec<String> {
        self.committed().into_keys().collect()
    }

    fn commits(&self) -> u64 {
        self.daemon.handle().last().0
    }

    async fn close(self) {
        self.daemon.stop().await.unwrap();
        drop(self.folder);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn folder_renamed_during_a_full_scan_is_never_missing() {
    let mut bench = Bench::new(&[("d/a", b"a"), ("d/b/c", b"c")]).await;
    // The root's listing contains it, and it is gone when it is scanned.
    bench.watcher.events.between = Some(|folder| {
        if folder.ends_with("watched/d") {
            fs::rename(folder, folder.with_file_name("e")).unwrap();
        }
    });
    bench.scan(&[""]);
    assert_eq!(bench.names(), ["e/a", "e/b/c"]);
    assert_eq!(bench.commits(), 2, "as one transaction");
    // And it is watched under its new name.
    bench.watcher.events.between = None;
    bench.write("e/b/d", b"d");
    bench.batch();
    assert_eq!(bench.names(), ["e/a", "e/b/c", "e/b/d"]);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn file_in_a_folder_renamed_during_a_scan_is_never_missing() {
    let mut bench = Bench::new(&[("a/b", b"b"), ("z/x", b"x")]).await;
    // It is written at the moment in which a folder is created, and is scanned after that.
    bench.watcher.events.between = Some(|folder| {
        if folder.ends_with("watched/new") && folder.with_file_name("z").exists() {
            fs::rename(folder.with_file_name("z"), folder.with_file_name("y")).unwrap();
        }
    });
    bench.write("z/x", b"another");
    bench.write("new/file", b"file");
    bench.batch();
    assert_eq!(bench.names(), ["a/b", "new/file", "y/x"]);
    assert_eq!(bench.commits(), 2, "as one transaction");
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn file_renamed_again_while_it_is_read_is_never_missing() {
    let mut bench = Bench::new(&[("old", b"1")]).await;
    bench.write("old", b"another");
    bench.rename("old", "new");
    bench.watcher.events.between = Some(|path| {
        if path.ends_with("new") {
            fs::rename(path, path.with_file_name("newer")).unwrap();
        }
    });
    bench.batch();
    assert_eq!(bench.names(), ["newer"]);
    assert_eq!(bench.commits(), 2, "as one transaction");
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn endlessly_renamed_folder_blocks_nothing() {
    let mut bench = Bench::new(&[("d/a", b"a")]).await;
    bench.watcher.events.between = Some(|folder| {
        for (from, to) in [("d", "e"), ("e", "d")] {
            if folder.ends_with(from) {
                fs::rename(folder, folder.with_file_name(to)).unwrap();
                return;
            }
        }
    });
    bench.write("other", b"other");
    bench.rename("d", "e");
    bench.batch();
    let names = bench.names();
    assert!(names.contains(&"other".to_owned()), "{names:?}");
    assert!(names.iter().any(|name| name.ends_with("/a")), "{names:?}");
    bench.watcher.events.between = None;
    bench.batch();
    assert_eq!(bench.names().len(), 2);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_changes_outside_a_rename_are_split() {
    let half = vec![1; MAX_BYTES as usize / 2 + 1];
    let mut other = half.clone();
    other[0] = 2;
    let mut bench = Bench::new(&[("d/a", b"a"), ("d/b", b"b")]).await;
    bench.write("d/a", &half);
    bench.write("d/b", &other);
    bench.rename("d", "e");
    bench.batch();
    assert_eq!(bench.names(), ["e/a", "e/b"]);
    assert_eq!(bench.commits(), 2, "as one transaction");
    assert_eq!(bench.committed()["e/b"], Digest::of(&other));
    // Nothing was removed, so none of these was renamed.
    for (number, name) in ["x", "y", "z"].iter().enumerate() {
        other[1] = number as u8 + 2;
        bench.write(name, &other);
    }
    bench.batch();
    assert_eq!(bench.commits(), 5, "one for each");
    // They are rewritten at the moment of a move, which happens with the first of them.
    for (number, name) in ["x", "y", "z"].iter().enumerate() {
        other[1] = number as u8 + 10;
        bench.write(name, &other);
    }
    bench.rename("e", "d");
    bench.batch();
    assert_eq!(bench.names(), ["d/a", "d/b", "x", "y", "z"]);
    assert_eq!(bench.commits(), 8, "one for each");
    bench.close().await;
}

/// Bytes that this thread has read.
fn bytes_read() -> u64 {
    let counts = fs::read_to_string("/proc/thread-self/io").unwrap();
    let read = counts.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap();
    read.parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn comparison_reads_only_files_that_differ() {
    const SIZE: usize = 50_000;
    let mut bench = Bench::new(&[("d/first", b"1")]).await;
    let outside = bench.folder.path().join("outside");
    for number in 0..40 {
        bench.write(&format!("d/{number}"), &[number; SIZE]);
    }
    fs::hard_link(bench.root().join("d/7"), &outside).unwrap();
    // Later than the tick of the file system's clock.
    std::thread::sleep(std::time::Duration::from_millis(50));
    bench.batch();
    assert_eq!(bench.names().len(), 41);
    let before = bytes_read();
    bench.scan(&[""]);
    let all = bytes_read() - before;
    assert!(all < SIZE as u64, "a scan of everything has read {all} bytes");
    // No event reports this.
    fs::write(&outside, [99; SIZE]).unwrap();
    let before = bytes_read();
    for _ in 0..1_000 {
        let compared = block_in_place(|| bench.watcher.compare());
        assert!(compared.is_ok());
        if bench.watcher.comparison.is_none() {
            break;
        }
    }
    // Once for the hash, and once for the store.
    let one = bytes_read() - before;
    assert!((2 * SIZE as u64..3 * SIZE as u64).contains(&one), "it has read {one} bytes");
    assert_eq!(bench.committed()["d/7"], Digest::of(&[99; SIZE]));
    bench.close().await;
}
