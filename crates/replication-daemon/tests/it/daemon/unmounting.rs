//! How mounts end.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use lull_replication::replica::Config;
use lull_replication::time::Reading;
use lull_replication_daemon::daemon::{Clock, MachineClock};
use lull_replication_daemon::fuse::{Ended, Mounted};
use lull_testing::{command, fuse, needs};

use super::mounts::{LARGE, LIMIT, MountedSite, Reader, bare};
use super::site::{Site, body, patient, runtime};

#[test]
fn busy_mount_is_unmounted_and_its_reads_fail() {
    needs!(fuse(), command("python3"));
    runtime().block_on(async {
        let mut seen = MountedSite::new(None, bare).await;
        seen.fill().await;
        seen.write(&[("a", Some(&body(1, LARGE))), ("empty", Some(b""))]).await;
        let mut other = Reader::new(&seen.folder);
        assert_eq!(other.ask("os.chdir(m)"), "None");
        seen.site.crash_origin();
        seen.reader.begin("read('a')");
        assert_eq!(seen.reader.said(Duration::from_millis(300)), None, "it waits");
        seen.mounted.close().await.expect("it is unmounted");
        let said = seen.reader.said(LIMIT).expect("it goes on");
        assert!(said.starts_with('E'), "{said}");
        nothing_waits(&seen.site).await;
        assert_eq!(other.ask("os.stat('empty')"), "ENOTCONN");
        assert_eq!(std::fs::read_dir(&seen.folder).expect("the folder").count(), 0);
        seen.site.stop().await;
    });
}

/// A read in a mount that has ended blocks nothing.
async fn nothing_waits(site: &Site) {
    let replica = site.replica(0);
    patient("nothing waits", || replica.status().waiting == 0).await;
    assert_eq!(site.read(0, "filler").await, Some(body(9, 150_000)));
}

#[test]
fn forced_external_unmount_ends_waiting_reads() {
    needs!(fuse(), command("python3"));
    runtime().block_on(async {
        let mut seen = MountedSite::new(None, bare).await;
        seen.fill().await;
        seen.write(&[("a", Some(&body(1, LARGE)))]).await;
        seen.site.crash_origin();
        seen.reader.begin("read('a')");
        let replica = seen.site.replica(0).clone();
        patient("it waits", || replica.status().waiting == 1).await;
        // Lazily: it is in use.
        let mut umount = Command::new("umount");
        let ended = umount.args(["--force", "--lazy"]).arg(&seen.folder).status();
        assert!(ended.expect("umount").success());
        let said = seen.reader.said(LIMIT).expect("it goes on");
        assert!(said.starts_with('E'), "{said}");
        let gone = Arc::clone(&seen.gone);
        patient("told", || gone.load(Ordering::SeqCst) == 1).await;
        nothing_waits(&seen.site).await;
        seen.mounted.close().await.expect("there is nothing to be done");
        seen.site.stop().await;
    });
}

#[test]
fn external_unmount_is_reported_and_can_be_remounted() {
    needs!(fuse(), command("python3"));
    runtime().block_on(async {
        let mut seen = MountedSite::new(None, |_| {}).await;
        seen.write(&[("a", Some(b"1"))]).await;
        let twice = Mounted::open(&seen.folder, seen.site.replica(0).clone(), None, |_| {});
        let error = twice.expect_err("one at a time").to_string();
        assert!(error.contains("fuse.lull mounted on it"), "{error}");
        // By force, for other mount namespaces may have copies of it.
        let mut umount = Command::new("umount");
        let ended = umount.arg("--force").arg(&seen.folder).status().expect("umount");
        assert!(ended.success());
        let gone = Arc::clone(&seen.gone);
        patient("told", || gone.load(Ordering::SeqCst) == 1).await;
        seen.mounted.close().await.expect("there is nothing to be done");
        let again = Mounted::open(&seen.folder, seen.site.replica(0).clone(), None, |_| {});
        let again = again.expect("it is mounted again");
        assert_eq!(seen.reader.ask("read('a')"), "b'1'");
        drop(again);
        assert_eq!(std::fs::read_dir(&seen.folder).expect("the folder").count(), 0);
        seen.site.stop().await;
    });
}

/// Panics when a thread of a mount reads it, once it is switched on.
#[derive(Debug, Default)]
struct Panicking(AtomicBool);

impl Clock for Panicking {
    fn read(&self) -> Reading {
        let by_mount = thread::current().name() == Some("lull-mount");
        assert!(!by_mount || !self.0.load(Ordering::SeqCst), "on purpose");
        MachineClock.read()
    }
}

#[test]
fn panicking_mount_thread_is_reported_as_such() {
    needs!(fuse(), command("python3"));
    runtime().block_on(async {
        let clock = Arc::new(Panicking::default());
        let site = Site::on(Arc::clone(&clock) as Arc<dyn Clock>, 1, Config::default()).await;
        let folder = site.folder().join("mount");
        std::fs::create_dir(&folder).expect("a folder");
        let (sender, ended) = channel();
        let on_end = move |ended| sender.send(ended).expect("it is waited for");
        let mounted = Mounted::open(&folder, site.replica(0).clone(), None, on_end);
        let mounted = mounted.expect("it is mounted");
        let mut reader = Reader::new(&folder);
        clock.0.store(true, Ordering::SeqCst);
        assert!(reader.ask("os.stat(m + 'a')").starts_with('E'));
        let ended = ended.recv_timeout(LIMIT).expect("it ends");
        assert!(matches!(ended, Ended::Failed(_)), "{ended:?}");
        mounted.close().await.expect("it is unmounted");
        assert_eq!(std::fs::read_dir(&folder).expect("the folder").count(), 0);
    });
}
