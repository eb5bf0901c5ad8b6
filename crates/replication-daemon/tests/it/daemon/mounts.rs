//! A replica's files in a folder, rule by rule.
//!
//! Only other processes access it: a process that waited for its own mount could not be ended.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path as FilePath, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use lull_cc::Bytes;
use lull_replication::origin::{Put, Transaction};
use lull_replication::replica::{Config, Order, Staleness};
use lull_replication::time::WallTime;
use lull_replication::types::{Metadata, Mode};
use lull_replication_daemon::fuse::{Ended, Mounted};
use lull_testing::{command, fuse, needs};

use super::site::{Site, body, path, patient, runtime};

pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// A process that accesses the mount.
pub(crate) struct Reader {
    process: Child,
    asked: ChildStdin,
    said: Receiver<String>,
}

impl Reader {
    pub(crate) fn new(folder: &FilePath) -> Self {
        let mut command = Command::new("python3");
        command.args(["-c", include_str!("reader.py")]).arg(folder);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("python3");
        let asked = process.stdin.take().expect("a pipe");
        let lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        let (sender, said) = channel();
        thread::spawn(move || {
            lines.map_while(Result::ok).take_while(|line| sender.send(line.clone()).is_ok()).count()
        });
        let mut reader = Reader { process, asked, said };
        // It takes a while to begin.
        assert_eq!(reader.ask("None"), "None");
        reader
    }

    pub(crate) fn begin(&mut self, what: &str) {
        writeln!(self.asked, "{what}").expect("it listens");
    }

    /// Its output within this time.
    pub(crate) fn said(&self, within: Duration) -> Option<String> {
        self.said.recv_timeout(within).ok()
    }

    #[track_caller]
    pub(crate) fn ask(&mut self, what: &str) -> String {
        self.begin(what);
        self.said(LIMIT).unwrap_or_else(|| panic!("no answer to {what}"))
    }

    #[track_caller]
    pub(crate) fn is_so(&mut self, what: &str) {
        assert_eq!(self.ask(what), "True", "{what}");
    }

    pub(crate) fn kill(&self, signal: &str) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().expect("kill").success());
    }

    /// Whether it ends soon.
    pub(crate) fn ends(&mut self) -> bool {
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(10) {
            if self.process.try_wait().expect("a child").is_some() {
                return true;
            }
            thread::sleep(Duration::from_millis(5));
        }
        false
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.ends();
    }
}

/// A mount of the first replica, and a reader there. Dropped in this order, it never outlives the parts that
/// it needs.
pub(crate) struct MountedSite {
    pub(crate) reader: Reader,
    pub(crate) mounted: Mounted,
    pub(crate) folder: PathBuf,
    pub(crate) gone: Arc<AtomicU32>,
    pub(crate) site: Site,
}

impl MountedSite {
    pub(crate) async fn new(patience: Option<Duration>, change: impl Fn(&mut Config)) -> Self {
        let site = Site::with(1, change).await;
        let folder = site.folder().join("mount");
        std::fs::create_dir(&folder).expect("a folder");
        let gone = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&gone);
        let on_end = move |ended| {
            assert!(matches!(ended, Ended::Unmounted), "{ended:?}");
            counted.fetch_add(1, Ordering::SeqCst);
        };
        let mounted = Mounted::open(&folder, site.replica(0).clone(), patience, on_end);
        let mounted = mounted.expect("it is mounted");
        MountedSite { reader: Reader::new(&folder), mounted, folder, gone, site }
    }

    /// With a lease of two seconds, with or without an origin.
    pub(crate) async fn leased() -> Self {
        MountedSite::new(Some(Duration::from_millis(300)), |config| {
            config.staleness.connected = Duration::from_secs(2);
            config.staleness.disconnected = Some(Duration::from_secs(2));
            config.ping = Duration::from_millis(50);
        })
        .await
    }

    /// Without an origin, until the lease of [`leased`](MountedSite::leased) is over.
    pub(crate) async fn outlive_the_lease(&mut self) {
        self.site.crash_origin();
        tokio::time::sleep(Duration::from_millis(2_500)).await;
    }

    pub(crate) async fn write(&mut self, files: &[(&str, Option<&[u8]>)]) {
        let sequence = self.site.write(files).await;
        self.site.reach(sequence).await;
    }

    /// Fills the space of a [`bare`] replica: speculation evicts nothing.
    pub(crate) async fn fill(&mut self) {
        self.write(&[("filler", Some(&body(9, 150_000)))]).await;
        let replica = self.site.replica(0).clone();
        patient("the filler", || replica.status().valid_bytes == 150_000).await;
    }

    pub(crate) async fn close(self) {
        drop(self.reader);
        self.mounted.close().await.expect("it is unmounted");
        let left = std::fs::read_dir(&self.folder).expect("the folder").count();
        assert_eq!(left, 0, "it is the folder that it was");
        assert_eq!(self.gone.load(Ordering::SeqCst), 0);
        self.site.stop().await;
    }
}

/// Such that no body comes unless it is read, once [`MountedSite::fill`] was called; and without an origin only
/// bodies are waited for.
pub(crate) fn bare(config: &mut Config) {
    config.staleness = Staleness {
        connected: Duration::from_millis(400),
        disconnected: None,
        ..Staleness::default()
    };
    config.ping = Duration::from_millis(50);
    config.quota = Some(Bytes(200_000));
}

/// Too large to be pushed then.
pub(crate) const LARGE: usize = 90_000;

#[test]
fn mounted_files_and_folders_equal_the_written_ones() {
    needs!(fuse(), command("python3"));
    runtime().block_on(async {
        let mut seen = MountedSite::new(None, |_| {}).await;
        let mut stager = seen.site.origin().bodies().stage();
        stager.write(b"#!/bin/sh\n").expect("a disk").expect("room");
        let payload = stager.finish().expect("a disk").expect("room");
        let modified = WallTime::from_nanos(1_234_567_890_123_456_789);
        let put = Put::Body(
            payload,
            Metadata { modified, mode: Mode::EXECUTABLE, ..Metadata::default() },
        );
        let changes = [(path("bin/run"), put)].into_iter().collect();
        seen.site.origin().write(Transaction { changes }).await.expect("written");
        let sizes = [0, 1_000, 65_536, 65_537, 300_000, 3_000_000];
        let bodies: Vec<(String, Vec<u8>)> =
            sizes.iter().map(|size| (format!("a/b/{size}"), body(3, *size))).collect();
        let files: Vec<(&str, Option<&[u8]>)> =
            bodies.iter().map(|(name, bytes)| (&**name, Some(&**bytes))).collect();
        seen.write(&files).await;

        let reader = &mut seen.reader;
        for size in sizes {
            reader.is_so(&format!("read('a/b/{size}') == body(3, {size})"));
            reader.is_so(&format!("os.stat(m + 'a/b/{size}').st_size == {size}"));
        }
        reader.is_so("os.pread(open_('a/b/3000000'), 9, 2999995) == body(3, 3000000)[-5:]");
        assert_eq!(reader.ask("sorted(os.listdir(m))"), "['a', 'bin']");
        assert_eq!(reader.ask("sorted(os.listdir(m + 'a'))"), "['b']");
        assert_eq!(reader.ask("len(os.listdir(m + 'a/b'))"), "6");
        assert_eq!(reader.ask("oct(os.stat(m + 'bin/run').st_mode)"), "'0o100755'");
        assert_eq!(reader.ask("os.stat(m + 'bin/run').st_mtime_ns"), "1234567890123456789");
        assert_eq!(reader.ask("oct(os.stat(m + 'a/b/0').st_mode)"), "'0o100644'");
        assert_eq!(reader.ask("oct(os.stat(m + 'a').st_mode)"), "'0o40555'");
        reader.is_so("all(one.inode() == one.stat().st_ino for one in os.scandir(m + 'a/b'))");
        reader.is_so("os.statvfs(m).f_files == 7");
        for (what, expected) in [
            ("read('none')", "ENOENT"),
            ("read('a/none')", "ENOENT"),
            ("read('a/b/0/none')", "ENOTDIR"),
            ("read('a')", "EISDIR"),
            ("os.listdir(m + 'bin/run')", "ENOTDIR"),
            ("read('n' * 256)", "ENAMETOOLONG"),
            ("os.stat(m + 'new\\nline')", "ENOENT"),
        ] {
            assert_eq!(reader.ask(what), expected, "{what}");
        }
        seen.close().await;
    });
}

#[test]
fn mount_is_read_only() {
    needs!(fuse(), command("python3"));
    runtime().block_on(async {
        let mut seen = MountedSite::new(None, |_| {}).await;
        seen.write(&[("a", Some(b"1"))]).await;
        for what in [
            "open(m + 'a', 'w')",
            "open(m + 'new', 'w')",
            "os.mkdir(m + 'b')",
            "os.unlink(m + 'a')",
            "os.rename(m + 'a', m + 'b')",
            "os.link(m + 'a', m + 'b')",
            "os.symlink('a', m + 'b')",
            "os.chmod(m + 'a', 0)",
            "os.truncate(m + 'a', 0)",
            "os.utime(m + 'a')",
        ] {
            assert_eq!(seen.reader.ask(what), "EROFS", "{what}");
        }
        seen.close().await;
    });
}

#[test]
fn handle_and_mapping_keep_their_version() {
    needs!(fuse(), command("python3"));
    runtime().block_on(async {
        let mut seen = MountedSite::new(None, |_| {}).await;
        seen.write(&[("a", Some(&body(1, 200_000))), ("b", Some(b"old"))]).await;
        let reader = &mut seen.reader;
        reader.ask("(a := open_('a')) and (b := open_('b'))");
        reader.ask("(mapped := mmap.mmap(a, 0, prot=mmap.PROT_READ)) and None");
        reader.is_so("os.fstat(open_('a')).st_ino == os.fstat(a).st_ino");
        seen.write(&[("a", Some(&body(2, 200_000))), ("b", None)]).await;
        let reader = &mut seen.reader;
        reader.is_so("read('a') == body(2, 200000)");
        reader.is_so("os.pread(a, 200000, 0) == body(1, 200000)");
        reader.is_so("mapped[:] == body(1, 200000)");
        assert_eq!(reader.ask("read('b')"), "ENOENT");
        assert_eq!(reader.ask("os.pread(b, 9, 0)"), "b'old'");
        reader.is_so("os.stat(m + 'a').st_ino != os.fstat(a).st_ino");
        seen.close().await;
    });
}

#[test]
fn kernel_caches_pages_of_one_version_only() {
    needs!(fuse(), command("python3"));
    runtime().block_on(async {
        let mut seen = MountedSite::new(None, |_| {}).await;
        for round in 0..20 {
            seen.write(&[("a", Some(&body(round, 100_000)))]).await;
            seen.reader.is_so(&format!("read('a') == body({round}, 100000)"));
            // From the pages: the body itself is not used.
            seen.reader.is_so(&format!("read('a') == body({round}, 100000)"));
        }
        seen.close().await;
    });
}

#[test]
fn listing_reflects_the_folder_at_open() {
    needs!(fuse(), command("python3"));
    runtime().block_on(async {
        let mut seen = MountedSite::new(None, |_| {}).await;
        let names = |prefix: &str| -> Vec<String> {
            // More than fits into one request of the kernel.
            (0..600).map(|number| format!("{prefix}-{}-{number}", "long".repeat(25))).collect()
        };
        let (old, new) = (names("old"), names("new"));
        let files: Vec<_> = old.iter().map(|name| (name.as_str(), Some(&b"1"[..]))).collect();
        seen.write(&files).await;
        seen.reader.ask("(names := os.scandir(m)) and (first := next(names).name)");
        let gone = old.iter().map(|name| (name.as_str(), None));
        let come = new.iter().map(|name| (name.as_str(), Some(&b"2"[..])));
        let files: Vec<_> = gone.chain(come).collect();
        seen.write(&files).await;
        let reader = &mut seen.reader;
        assert_eq!(reader.ask("len(set([one.name[:3] for one in names] + [first[:3]]))"), "1");
        assert_eq!(reader.ask("set(name[:3] for name in os.listdir(m))"), "{'new'}");
        assert_eq!(reader.ask("len(os.listdir(m))"), "600");
        seen.close().await;
    });
}

#[test]
fn names_need_the_lease() {
    needs!(fuse(), command("python3"));
    runtime().block_on(async {
        let mut seen = MountedSite::leased().await;
        seen.write(&[("a", Some(b"1")), ("d/a", Some(b"1"))]).await;
        let reader = &mut seen.reader;
        assert_eq!(reader.ask("read('a')"), "b'1'");
        reader.ask("(a := open_('a'))");
        assert_eq!(reader.ask("os.chdir(m + 'd')"), "None");
        seen.outlive_the_lease().await;
        let reader = &mut seen.reader;
        for what in [
            "read('a')",
            "os.stat(m + 'a')",
            "os.stat(m + 'none')",
            "os.listdir(m)",
            // The kernel looks up no name of these two.
            "os.stat(m)",
            "os.stat('.')",
        ] {
            assert_eq!(reader.ask(what), "ETIMEDOUT", "{what}");
        }
        assert_eq!(reader.ask("os.pread(a, 9, 0)"), "b'1'", "it was read when it was opened");
        seen.site.start_origin().await;
        patient("the lease", || seen.reader.ask("read('a')") == "b'1'").await;
        let there = "os.stat(m).st_ino == 1 and os.stat('.').st_ino == os.stat(m + 'd').st_ino";
        seen.reader.is_so(there);
        // A removed folder has no state to report.
        seen.write(&[("d/a", None)]).await;
        assert_eq!(seen.reader.ask("os.stat('.')"), "ESTALE");
        assert_eq!(seen.reader.ask("os.stat(m + 'd')"), "ENOENT");
        assert_eq!(seen.reader.ask("os.chdir('/')"), "None");
        seen.close().await;
    });
}

#[test]
fn operations_that_read_nothing_need_no_lease() {
    needs!(fuse(), command("python3"));
    runtime().block_on(async {
        let mut seen = MountedSite::new(None, |config| {
            config.staleness.connected = Duration::from_secs(2);
            config.staleness.disconnected = Some(Duration::from_secs(2));
            config.ping = Duration::from_millis(50);
        })
        .await;
        seen.write(&[("a", Some(b"1"))]).await;
        seen.outlive_the_lease().await;
        seen.reader.begin("os.stat(m)");
        assert_eq!(seen.reader.said(Duration::from_millis(300)), None, "a read waits");
        patient("it has come", || seen.site.replica(0).status().waiting > 0).await;
        let mut other = Reader::new(&seen.folder);
        other.is_so("os.statvfs(m).f_files == 1");
        for what in ["os.access(m, os.R_OK | os.X_OK)", "os.access(m + '.lull', os.R_OK)"] {
            other.is_so(what);
        }
        assert_eq!(other.ask("os.chdir(m)"), "None");
        assert_eq!(other.ask("os.chdir('/')"), "None");
        other.is_so("'@1' in os.listdir(m + '.lull')");
        // A second mount fails as well.
        let folder = seen.folder.clone();
        let check = tokio::task::spawn_blocking(move || Mounted::check(&folder));
        let checked = tokio::time::timeout(LIMIT, check).await.expect("at once").expect("no panic");
        let error = checked.expect_err("it is mounted").to_string();
        assert!(error.contains("fuse.lull mounted on it"), "{error}");
        // A waiting reader can be interrupted, and killed.
        let asked = "signal.setitimer(signal.ITIMER_REAL, 0.3) and os.stat(m)";
        assert_eq!(other.ask(asked), "interrupted");
        seen.reader.kill("-KILL");
        assert!(seen.reader.ends(), "it was killed");
        seen.reader = other;
        // And it is unmounted although a reader waits.
        seen.reader.begin("os.stat(m)");
        assert_eq!(seen.reader.said(Duration::from_millis(300)), None, "a read waits");
        patient("it has come", || seen.site.replica(0).status().waiting > 0).await;
        seen.mounted.close().await.expect("it is unmounted");
        assert!(seen.reader.said(LIMIT).expect("it goes on").starts_with('E'));
        seen.site.stop().await;
    });
}

#[test]
fn mode_controls_read_and_execute_permission() {
    needs!(fuse(), command("python3"));
    runtime().block_on(async {
        let mut seen = MountedSite::new(None, |_| {}).await;
        let mut stager = seen.site.origin().bodies().stage();
        stager.write(b"#!/bin/sh\nexit 7\n").expect("a disk").expect("room");
        let payload = stager.finish().expect("a disk").expect("room");
        let put = Put::Body(payload, Metadata { mode: Mode::EXECUTABLE, ..Metadata::default() });
        let mut stager = seen.site.origin().bodies().stage();
        stager.write(b"private").expect("a disk").expect("room");
        let payload = stager.finish().expect("a disk").expect("room");
        let mode = Mode::new(0o600);
        let private = Put::Body(payload, Metadata { mode, ..Metadata::default() });
        let changes = [(path("run"), put), (path("private"), private)].into_iter().collect();
        seen.site.origin().write(Transaction { changes }).await.expect("written");
        seen.write(&[("a", Some(b"#!/bin/sh\n"))]).await;
        let reader = &mut seen.reader;
        for (what, expected) in [
            ("os.access(m + 'a', os.R_OK)", "True"),
            ("os.access(m + 'a', os.X_OK)", "False"),
            ("os.access(m + 'a', os.W_OK)", "False"),
            ("os.access(m + 'run', os.R_OK | os.X_OK)", "True"),
            ("os.access(m + 'none', os.F_OK)", "False"),
            ("oct(os.stat(m + 'private').st_mode)", "'0o100600'"),
            ("open(m + 'private').read()", "'private'"),
            ("os.spawnv(os.P_WAIT, m + 'run', ['run'])", "7"),
            // The result of os.spawnv when nothing could be run.
            ("os.spawnv(os.P_WAIT, m + 'a', ['a'])", "127"),
        ] {
            assert_eq!(reader.ask(what), expected, "{what}");
        }
        // Also for a process without any rights in it.
        assert_eq!(reader.ask("os.chdir(m)"), "None");
        let asked = "os.waitpid(os.fork() or (os.setuid(65534), os._exit(\
            os.access('a', os.X_OK) or open('a', 'rb').read() != b'#!/bin/sh\\n')), 0)[1]";
        assert_eq!(reader.ask(asked), "0");
        let asked = "os.waitpid(os.fork() or (os.setgid(65534), os.setuid(65534), os._exit(\
            os.access('private', os.R_OK) or os.system('cat private 2>/dev/null') == 0)), 0)[1]";
        assert_eq!(reader.ask(asked), "0");
        assert_eq!(reader.ask("os.chdir('/')"), "None");
        seen.close().await;
    });
}

#[test]
fn blocked_open_gets_the_body_when_it_arrives() {
    needs!(fuse(), command("python3"));
    runtime().block_on(async {
        let mut seen = MountedSite::new(None, bare).await;
        seen.fill().await;
        seen.write(&[("a", Some(&body(1, LARGE)))]).await;
        seen.site.crash_origin();
        seen.reader.begin("read('a') == body(1, 90000)");
        assert_eq!(seen.reader.said(Duration::from_millis(300)), None, "it waits");
        seen.site.start_origin().await;
        assert_eq!(seen.reader.said(LIMIT).as_deref(), Some("True"));
        seen.close().await;
    });
}

#[test]
fn blocked_open_can_be_interrupted_without_blocking_others() {
    needs!(fuse(), command("python3"));
    for order in [Order::Conservative, Order::Aggressive] {
        runtime().block_on(async {
            let mut seen = MountedSite::new(None, |config| {
                bare(config);
                config.order = order;
            })
            .await;
            seen.fill().await;
            seen.write(&[("a", Some(&body(1, LARGE))), ("empty", Some(b""))]).await;
            // Read once, so that it is stored here.
            assert_eq!(seen.reader.ask("read('empty')"), "b''");
            seen.site.crash_origin();
            let asked = "signal.setitimer(signal.ITIMER_REAL, 0.3) and read('a')";
            assert_eq!(seen.reader.ask(asked), "interrupted");
            let mut other = Reader::new(&seen.folder);
            for signal in ["-TERM", "-KILL"] {
                let mut waiting = Reader::new(&seen.folder);
                waiting.begin("read('a')");
                assert_eq!(waiting.said(Duration::from_millis(300)), None, "it waits");
                patient("it has come", || seen.site.replica(0).status().waiting > 0).await;
                other.begin("os.stat(m + 'empty').st_size");
                let passed = other.said(match order {
                    Order::Aggressive => LIMIT,
                    Order::Conservative => Duration::from_millis(300),
                });
                let expected = (order == Order::Aggressive).then(|| "0".to_owned());
                assert_eq!(passed, expected, "{order:?}: reads pass others only if they may");
                waiting.kill(signal);
                assert!(waiting.ends(), "{signal} ends it");
                if expected.is_none() {
                    assert_eq!(other.said(LIMIT).as_deref(), Some("0"), "it was its turn");
                }
            }
            drop(other);
            seen.close().await;
        });
    }
}

#[test]
fn blocked_read_times_out_if_configured() {
    needs!(fuse(), command("python3"));
    runtime().block_on(async {
        let mut seen = MountedSite::new(Some(Duration::from_millis(200)), bare).await;
        seen.fill().await;
        seen.write(&[("a", Some(&body(1, LARGE)))]).await;
        seen.site.crash_origin();
        assert_eq!(seen.reader.ask("read('a')"), "ETIMEDOUT");
        assert_eq!(seen.reader.ask("os.stat(m + 'a').st_size"), "90000", "names need no body");
        seen.close().await;
    });
}

#[test]
fn overwritten_body_is_stale_after_the_grace_period() {
    needs!(fuse(), command("python3"));
    runtime().block_on(async {
        let grace = Duration::from_secs(2);
        let mut seen = MountedSite::new(None, |config| config.grace = grace).await;
        seen.write(&[("a", Some(&body(1, 3_000_000)))]).await;
        seen.reader.ask("(a := open_('a'))");
        let overwritten = Instant::now();
        seen.write(&[("a", Some(b"new"))]).await;
        let early = seen.reader.ask("os.pread(a, 5, 0) == body(1, 5)");
        if overwritten.elapsed() < grace {
            assert_eq!(early, "True");
        }
        tokio::time::sleep(grace + Duration::from_secs(1)).await;
        // A part that the kernel has not read so far.
        assert_eq!(seen.reader.ask("os.pread(a, 5, 2900000)"), "ESTALE");
        assert_eq!(seen.reader.ask("read('a')"), "b'new'");
        seen.close().await;
    });
}

#[test]
fn folder_time_changes_with_its_entries() {
    needs!(fuse(), command("python3"));
    runtime().block_on(async {
        let mut seen = MountedSite::new(None, |_| {}).await;
        seen.write(&[("a/b", Some(b"1"))]).await;
        seen.reader.ask("(before := os.stat(m + 'a').st_mtime_ns)");
        seen.reader.is_so("os.stat(m + 'a').st_mtime_ns == before");
        seen.write(&[("a/c", Some(b"1"))]).await;
        seen.reader.is_so("os.stat(m + 'a').st_mtime_ns > before");
        seen.close().await;
    });
}
