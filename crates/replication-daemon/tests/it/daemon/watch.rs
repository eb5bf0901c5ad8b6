//! A watched folder: the origin follows the changes of a real one.

mod random;
mod unclosed;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{self, Seek, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path as FilePath, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use lull_replication::types::{Digest, Kind, Sequence};
use lull_replication_daemon::watch::{WatchEvent, WatchOptions, Watched};
use lull_testing::{needs, root};
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::site::{LIMIT, Site, body, patient, runtime};

/// Types of files, as in `st_mode`.
const S_IFMT: u32 = 0o170_000;
const S_IFREG: u32 = 0o100_000;
const S_IFLNK: u32 = 0o120_000;
const S_IFDIR: u32 = 0o040_000;

/// Objects by their names, with their bytes, modes, and times. The mode includes the type, as in `st_mode`.
type Files = BTreeMap<String, (Digest, u32, i64)>;

struct Watching {
    site: Site,
    folder: PathBuf,
    options: WatchOptions,
    watched: Option<Watched>,
    told: Arc<Mutex<Vec<WatchEvent>>>,
    /// The number of events, including those about to be sent.
    tells: Arc<AtomicUsize>,
}

impl Watching {
    /// An origin with a folder that has these files.
    async fn new(files: &[(&str, &[u8])]) -> Self {
        Self::with(WatchOptions::default(), files).await
    }

    async fn with(options: WatchOptions, files: &[(&str, &[u8])]) -> Self {
        let site = Site::new(0).await;
        let folder = site.folder().join("watched");
        fs::create_dir(&folder).expect("a folder");
        let (told, tells) = Default::default();
        let mut watching = Watching { site, folder, options, watched: None, told, tells };
        for (name, bytes) in files {
            watching.write(name, bytes);
        }
        watching.start();
        watching
    }

    fn start(&mut self) {
        let told = Arc::clone(&self.told);
        let tells = Arc::clone(&self.tells);
        let on_event = move |event| {
            tells.fetch_add(1, Ordering::Relaxed);
            told.lock().expect("no panic").push(event);
        };
        let own = self.site.folder().join("origin");
        let watched =
            Watched::open(&self.folder, &own, self.site.origin().clone(), self.options, on_event);
        self.watched = Some(watched.expect("it is watched"));
    }

    async fn end(&mut self) {
        self.watched.take().expect("it is watched").close().await;
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("below the folder")).expect("folders");
        fs::write(path, bytes).expect("written");
    }

    fn last(&self) -> Sequence {
        self.site.origin().last()
    }

    /// The origin's objects, without folders.
    fn committed(&self) -> Files {
        let mut all = self.everything();
        all.retain(|_, (_, mode, _)| *mode & S_IFMT != S_IFDIR);
        all
    }

    /// The origin's objects.
    fn everything(&self) -> Files {
        let objects = self.site.origin().tree().objects;
        let content =
            |(path, version): (lull_replication::Path, lull_replication::types::Version)| {
                let content = version.content;
                let metadata = content.metadata;
                let kind = match metadata.kind {
                    Kind::File => S_IFREG,
                    Kind::Link => S_IFLNK,
                    Kind::Folder => S_IFDIR,
                };
                let mode = kind | u32::from(metadata.mode.bits());
                (path.to_string(), (content.digest, mode, metadata.modified.as_nanos()))
            };
        objects.into_iter().map(content).collect()
    }

    /// Waits until the origin equals the folder.
    async fn wait_until_equal(&self) {
        let mut both = (Files::new(), Files::new());
        let is_so = || {
            both = (self.everything(), files(&self.folder));
            both.0 == both.1
        };
        patient("the origin has what is in the folder", is_so).await;
    }

    /// Waits until the origin equals the folder, with the second of these names, and with the first until
    /// then: never others.
    async fn changes<const N: usize, S>(&self, both: [[S; N]; 2])
    where
        String: PartialEq<S>,
    {
        patient("the new names", || {
            let names: Vec<_> = self.committed().into_keys().collect();
            assert!(both.iter().any(|both| names == both), "{names:?}");
            names == both[1]
        })
        .await;
        self.wait_until_equal().await;
    }

    /// Waits for an event.
    async fn told(&self, is_it: impl Fn(&WatchEvent) -> bool) {
        patient("told", || self.told.lock().expect("no panic").iter().any(&is_it)).await;
    }

    /// Runs an action, with so many other changes in `folder` that the kernel's queue overflows.
    fn unheard(&self, folder: &FilePath, act: impl FnOnce()) {
        let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").expect("a limit");
        let limit: usize = limit.trim().parse().expect("a number");
        // It reads no events while it waits to report one.
        let told = self.told.lock().expect("no panic");
        let tells = self.tells.load(Ordering::Relaxed);
        let pipe = nix::unistd::mkfifo(&self.path("out"), nix::sys::stat::Mode::S_IRWXU);
        pipe.expect("a pipe");
        let begun = Instant::now();
        while self.tells.load(Ordering::Relaxed) == tells {
            assert!(begun.elapsed() < LIMIT, "it never reports the pipe");
            thread::sleep(Duration::from_millis(1));
        }
        fs::remove_file(self.path("out")).expect("deleted");
        act();
        // Two equal events in a row would count as one.
        let paths = ["x", "y"].map(|name| folder.join(name));
        for number in 0..=limit {
            fs::write(&paths[number % 2], "1").expect("written");
        }
        for path in paths {
            fs::remove_file(path).expect("deleted");
        }
        drop(told);
    }

    fn skipped(&self) -> Vec<String> {
        let told = self.told.lock().expect("no panic");
        let skipped = told.iter().filter(|event| matches!(event, WatchEvent::Skipped { .. }));
        skipped.map(ToString::to_string).collect()
    }

    async fn close(mut self) {
        self.end().await;
        self.site.stop().await;
    }
}

/// The contents of a folder.
fn files(folder: &FilePath) -> Files {
    found(folder).expect("a folder in which nothing happens")
}

/// The contents of a folder that may change meanwhile.
fn found(folder: &FilePath) -> io::Result<Files> {
    let mut all = Files::new();
    let mut rest = vec![folder.to_owned()];
    while let Some(next) = rest.pop() {
        for entry in fs::read_dir(next)? {
            let path = entry?.path();
            let metadata = path.symlink_metadata()?;
            let bytes = match metadata.mode() & S_IFMT {
                S_IFDIR => {
                    rest.push(path.clone());
                    Vec::new()
                }
                S_IFLNK => fs::read_link(&path)?.into_os_string().into_vec(),
                S_IFREG => fs::read(&path)?,
                _ => continue,
            };
            let name = path.strip_prefix(folder).expect("below it").as_os_str().as_bytes();
            let name = lull_replication::Path::from_bytes(name).expect("a name").to_string();
            let mode = metadata.mode() & (S_IFMT | 0o777);
            let modified = metadata.mtime() * 1_000_000_000 + metadata.mtime_nsec();
            all.insert(name, (Digest::of(&bytes), mode, modified));
        }
    }
    Ok(all)
}

#[test]
fn watched_folder_is_committed_initially_and_on_changes() {
    runtime().block_on(async {
        let large = body(1, 3_000_000);
        let begin: [(&str, &[u8]); 3] = [("a", b"a"), ("d/e/b", b"b"), ("large", &large)];
        // A change of the modification time alone is reported like a write.
        let quiet = Duration::from_secs(1);
        let options = WatchOptions { quiet, ..WatchOptions::default() };
        let watching = Watching::with(options, &begin).await;
        watching.told(|event| matches!(event, WatchEvent::Watching(_))).await;
        assert_eq!(watching.everything(), files(&watching.folder));
        assert_eq!(watching.last(), Sequence(1), "as one transaction");
        let path = |name: &str| watching.path(name);

        watching.write("a", b"another");
        watching.write("new/folders/in/a/row/file", b"just written");
        watching.wait_until_equal().await;
        // In a new folder.
        watching.write("new/folders/second", b"2");
        fs::remove_file(path("d/e/b")).expect("deleted");
        watching.wait_until_equal().await;
        fs::rename(path("a"), path("d/e/moved")).expect("moved");
        fs::set_permissions(path("large"), Permissions::from_mode(0o755)).expect("its mode");
        fs::hard_link(path("large"), path("hard")).expect("a link");
        symlink("../large", path("d/link")).expect("a link");
        symlink("/etc/hostname", path("d/out")).expect("a link");
        symlink("nowhere", path("dangling")).expect("a link");
        fs::create_dir_all(path("empty/folders")).expect("folders");
        fs::set_permissions(path("empty"), Permissions::from_mode(0o750)).expect("its mode");
        watching.wait_until_equal().await;
        let (digest, mode, _) = watching.committed()["d/link"];
        assert_eq!((digest, mode), (Digest::of(b"../large"), S_IFLNK | 0o777));
        fs::remove_file(path("hard")).expect("deleted");
        fs::remove_dir(path("empty/folders")).expect("deleted");
        fs::remove_file(path("dangling")).expect("deleted");
        symlink("elsewhere", path("dangling")).expect("a link");
        watching.write("large", b"small");
        watching.wait_until_equal().await;
        // From elsewhere, over a file, like editors and rsync.
        let elsewhere = watching.site.folder().join("elsewhere");
        fs::write(&elsewhere, "complete").expect("written");
        fs::rename(&elsewhere, path("new/folders/second")).expect("moved");
        fs::remove_dir_all(path("d")).expect("deleted");
        watching.wait_until_equal().await;
        // A folder that was moved out is no longer watched; another folder may get its name.
        fs::rename(path("new"), &elsewhere).expect("moved");
        fs::create_dir(path("new")).expect("a folder");
        fs::write(elsewhere.join("outside"), "1").expect("written");
        watching.write("new/inside", b"1");
        watching.wait_until_equal().await;
        assert_eq!(watching.skipped(), [""; 0]);
        let same = watching.last();
        let file = File::open(path("large")).expect("a file");
        file.set_modified(std::time::UNIX_EPOCH).expect("set");
        watching.wait_until_equal().await;
        assert_eq!(watching.last(), same.next());
        watching.close().await;
    });
}

#[test]
fn folder_rename_is_one_transaction() {
    runtime().block_on(async {
        let names: Vec<_> = (0..300).map(|number| format!("old/{}/{number}", number % 7)).collect();
        let files: Vec<_> = names.iter().map(|name| (name.as_str(), name.as_bytes())).collect();
        let watching = Watching::new(&files).await;
        watching.told(|event| matches!(event, WatchEvent::Watching(_))).await;
        for (number, (from, to)) in
            [("old", "new"), ("new", "old"), ("old", "d")].iter().enumerate()
        {
            fs::rename(watching.path(from), watching.path(to)).expect("renamed");
            // Never by half.
            patient("the new names", || {
                let committed = watching.committed();
                assert_eq!(committed.len(), 300);
                let moved = committed.keys().filter(|name| name.starts_with(to)).count();
                assert!(moved == 0 || moved == 300, "{moved} are there");
                moved == 300
            })
            .await;
            assert_eq!(watching.last(), Sequence(2 + number as u64));
        }
        // And it is watched under its new name.
        watching.write("d/3/more", b"more");
        watching.wait_until_equal().await;
        watching.close().await;
    });
}

#[test]
fn repeatedly_written_file_is_committed_eventually() {
    runtime().block_on(async {
        let watching = Watching::new(&[("a", b"0")]).await;
        watching.told(|event| matches!(event, WatchEvent::Watching(_))).await;
        let end = AtomicBool::new(false);
        let (mut writes, mut pauses) = (0, 0);
        let in_place = watching.path("in-place");
        thread::scope(|scope| {
            // A replacement large enough to be written while it is read.
            let other = scope.spawn(|| {
                let mut file = File::create(&in_place).expect("a file");
                while !end.load(Ordering::Relaxed) {
                    file.rewind().expect("rewound");
                    file.write_all(&vec![writes_of(&file); 5_000_000]).expect("written");
                    file = File::options().write(true).open(&in_place).expect("it");
                }
            });
            let begun = Instant::now();
            while writes < 500 || begun.elapsed() < Duration::from_secs(3) {
                let before = Instant::now();
                watching.write("a", &body(1, writes));
                writes += 1;
                thread::sleep(Duration::from_millis(1));
                // On a busy disk it may be committed meanwhile.
                pauses += usize::from(before.elapsed() > Duration::from_millis(50));
            }
            end.store(true, Ordering::Relaxed);
            other.join().expect("no panic");
        });
        watching.wait_until_equal().await;
        let commits = watching.last().0 as usize;
        let most = writes / 5 + pauses;
        assert!(commits <= most, "{commits} commits of {writes} writes, {pauses} of them late");
        watching.close().await;
    });
}

/// Changes with each write.
fn writes_of(file: &File) -> u8 {
    let modified = file.metadata().and_then(|metadata| metadata.modified()).expect("a time");
    let since = modified.duration_since(std::time::UNIX_EPOCH).expect("later");
    (since.as_micros() % 251) as u8
}

#[test]
fn unpublishable_entry_is_reported_once_and_blocks_nothing() {
    runtime().block_on(async {
        let watching = Watching::new(&[("a", b"a"), (".lull/mine", b"mine")]).await;
        let path = |name: &str| watching.path(name);
        let pipe = nix::unistd::mkfifo(&path("pipe"), nix::sys::stat::Mode::S_IRWXU);
        pipe.expect("a pipe");
        let socket = UnixListener::bind(path("socket")).expect("a socket");
        fs::write(path("new\nline"), "1").expect("written");
        fs::write(watching.folder.join(OsStr::from_bytes(b"\xff")), "1").expect("written");
        watching.write("b", b"b");
        let names = |watching: &Watching| watching.committed().into_keys().collect::<Vec<_>>();
        let expected = ["\\xff", "a", "b", "new\\x0aline"];
        patient("the others", || names(&watching) == expected).await;
        patient("all are reported", || watching.skipped().len() >= 3).await;
        // Nothing of them has changed.
        watching.write("c", b"c");
        fs::set_permissions(path("socket"), Permissions::from_mode(0o700)).expect("its mode");
        let expected = ["\\xff", "a", "b", "c", "new\\x0aline"];
        patient("the others", || names(&watching) == expected).await;
        let told = watching.skipped();
        assert_eq!(told.len(), 3, "{told:?}");
        for words in ["pipe`: it is a socket, a pipe", "socket`: it is a socket", "rename"] {
            assert!(told.iter().any(|line| line.contains(words)), "no '{words}' in {told:?}");
        }
        assert!(told.iter().all(|line| line.lines().count() == 1), "{told:?}");
        drop(socket);
        fs::remove_file(watching.path("socket")).expect("deleted");
        watching.write("socket", b"a file");
        let expected = ["\\xff", "a", "b", "c", "new\\x0aline", "socket"];
        patient("the file", || names(&watching) == expected).await;
        watching.close().await;
    });
}

#[test]
fn changes_made_while_stopped_are_committed_at_start() {
    runtime().block_on(async {
        let mut watching = Watching::new(&[("a", b"a"), ("b", b"b"), ("c", b"c")]).await;
        watching.wait_until_equal().await;
        watching.end().await;
        watching.write("a", b"other");
        watching.write("new", b"new");
        fs::remove_file(watching.path("b")).expect("deleted");
        let before = watching.last();
        watching.start();
        watching.wait_until_equal().await;
        assert_eq!(watching.last(), before.next(), "at once");
        // A disk that is not mounted looks like a folder without files.
        watching.end().await;
        let (folder, away) = (watching.folder.clone(), watching.site.folder().join("away"));
        fs::rename(&folder, &away).expect("moved");
        fs::create_dir(&folder).expect("a folder");
        watching.start();
        watching.told(|event| matches!(event, WatchEvent::Empty(_))).await;
        assert_eq!(watching.last(), before.next(), "nothing is deleted");
        watching.write("first", b"1");
        patient("the first", || watching.committed().contains_key("first")).await;
        // So does one that is taken away.
        fs::rename(&folder, watching.site.folder().join("gone")).expect("moved");
        watching.told(|event| matches!(event, WatchEvent::Gone(_))).await;
        assert_eq!(watching.committed().len(), 4);
        watching.close().await;
    });
}

#[test]
fn emptied_folder_is_empty_despite_lost_events() {
    runtime().block_on(async {
        let watching = Watching::new(&[("a", b"a"), ("d/b", b"b")]).await;
        watching.told(|event| matches!(event, WatchEvent::Watching(_))).await;
        watching.unheard(&watching.folder, || {
            fs::remove_file(watching.path("a")).expect("deleted");
            fs::remove_dir_all(watching.path("d")).expect("deleted");
        });
        watching.told(|event| matches!(event, WatchEvent::Lost)).await;
        watching.wait_until_equal().await;
        assert_eq!(watching.everything(), Files::new());
        watching.close().await;
    });
}

/// A mounted file system.
struct Mount(PathBuf);

impl Mount {
    fn new(what: &FilePath, kind: Option<&str>, flags: MsFlags, at: &FilePath) -> Self {
        mount(Some(what), at, kind, flags, None::<&str>).expect("mounted");
        Mount(at.to_owned())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        umount2(&self.0, MntFlags::MNT_DETACH).expect("unmounted");
    }
}

#[test]
fn silently_unmounted_disk_deletes_no_file() {
    needs!(root());
    runtime().block_on(async {
        let mut watching = Watching::new(&[]).await;
        watching.end().await;
        let elsewhere = watching.site.folder().join("elsewhere");
        fs::create_dir(&elsewhere).expect("a folder");
        let disk = FilePath::new("lull-test");
        let disk = Mount::new(disk, Some("tmpfs"), MsFlags::empty(), &watching.folder);
        // It has a second mount, so the kernel does not report its removal.
        let kept = Mount::new(&watching.folder, None, MsFlags::MS_BIND, &elsewhere);
        watching.write("a", b"a");
        watching.start();
        watching.wait_until_equal().await;
        watching.unheard(&elsewhere, || drop(disk));
        watching.told(|event| matches!(event, WatchEvent::Empty(_))).await;
        assert_eq!(watching.committed().len(), 1, "nothing is deleted");
        drop(kept);
        watching.close().await;
    });
}

#[test]
fn file_written_during_a_folder_rename_is_never_missing() {
    runtime().block_on(async {
        let large = body(1, 20_000_000);
        let watching = Watching::new(&[("old/a", b"a"), ("old/log", &large)]).await;
        watching.told(|event| matches!(event, WatchEvent::Watching(_))).await;
        let mut log = File::options().append(true).open(watching.path("old/log")).expect("it");
        let end = AtomicBool::new(false);
        let seen = thread::scope(|scope| {
            scope.spawn(|| {
                while !end.load(Ordering::Relaxed) {
                    log.write_all(b"one more line\n").expect("written");
                    thread::sleep(Duration::from_millis(1));
                }
                drop(log);
            });
            fs::rename(watching.path("old"), watching.path("new")).expect("renamed");
            let begun = Instant::now();
            let mut seen = BTreeSet::new();
            while begun.elapsed() < Duration::from_millis(2_500) {
                seen.insert(watching.committed().into_keys().collect::<Vec<_>>());
                thread::sleep(Duration::from_millis(2));
            }
            end.store(true, Ordering::Relaxed);
            seen
        });
        watching.wait_until_equal().await;
        let both = [["new/a", "new/log"], ["old/a", "old/log"]];
        assert!(seen.iter().all(|names| both.iter().any(|both| names == both)), "{seen:?}");
        watching.close().await;
    });
}

#[test]
fn rewritten_and_renamed_file_of_any_size_is_never_missing() {
    runtime().block_on(async {
        // Only changes within a moment are one transaction, and a busy disk can delay a close for longer.
        let mut runs = 0;
        while !renamed_when_written_anew().await {
            runs += 1;
            assert!(runs < 20, "all runs were held up");
        }
    });
}

/// Rewrites large files and renames them, both of which must become one transaction; or returns that this
/// took too long to require it.
async fn renamed_when_written_anew() -> bool {
    let files = [("d/a", "1"), ("d/b", "2"), ("old", "3")];
    let files = files.map(|(name, text)| (name, text.as_bytes()));
    let watching = Watching::new(&files).await;
    watching.told(|event| matches!(event, WatchEvent::Watching(_))).await;
    let path = |name: &str| watching.path(name);
    // More bodies than fit into one transaction: one file, and two of a folder.
    let large = [("old", 1, 70_000_000), ("d/a", 2, 40_000_000), ("d/b", 3, 40_000_000)];
    let open = large.map(|(name, seed, size)| {
        // Not truncated first: a file system may write such a file to the disk before it is closed.
        let mut file = File::options().write(true).open(path(name)).expect("a file");
        file.write_all(&body(seed, size)).expect("written");
        file
    });
    let before = watching.last();
    let begun = Instant::now();
    drop(open);
    fs::rename(path("old"), path("new")).expect("renamed");
    fs::rename(path("d"), path("e")).expect("renamed");
    let at_once = begun.elapsed() < Duration::from_millis(50);
    watching.changes([["d/a", "d/b", "old"], ["e/a", "e/b", "new"]]).await;
    if at_once {
        assert_eq!(watching.last(), before.next(), "at once");
    }
    watching.close().await;
    at_once
}

#[test]
fn folder_renamed_during_a_large_read_is_one_transaction() {
    runtime().block_on(async {
        let watching = Watching::new(&[("big", b"1"), ("z/x", b"1")]).await;
        watching.told(|event| matches!(event, WatchEvent::Watching(_))).await;
        let path = |name: &str| watching.path(name);
        for (number, from, to) in [(2, "z", "y"), (3, "y", "z"), (4, "z", "y")] {
            // Both are closed at once, and it is renamed while the first of them is read, as far as can be
            // known from here.
            let mut big = File::create(path("big")).expect("a file");
            big.write_all(&body(number, 200_000_000)).expect("written");
            drop(big);
            watching.write(&format!("{from}/x"), &[number]);
            thread::sleep(Duration::from_millis(40 * u64::from(number)));
            fs::rename(path(from), path(to)).expect("renamed");
            let both = [from, to].map(|folder| ["big".to_owned(), format!("{folder}/x")]);
            watching.changes(both).await;
        }
        watching.close().await;
    });
}

#[test]
fn origin_does_not_watch_itself_or_a_file() {
    runtime().block_on(async {
        let site = Site::new(0).await;
        let own = site.folder().join("origin");
        for (folder, words) in [
            (own.clone(), "contain each other"),
            (site.folder().to_owned(), "contain each other"),
            (own.join("bodies"), "contain each other"),
            (own.join("state.redb"), "is not a readable folder"),
            (site.folder().join("none"), "is not a readable folder"),
        ] {
            let error = Watched::open(
                &folder,
                &own,
                site.origin().clone(),
                WatchOptions::default(),
                |_| {},
            );
            let error = error.expect_err("refused").to_string();
            assert!(error.contains(words), "{error}");
        }
        site.stop().await;
    });
}
