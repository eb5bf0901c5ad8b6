//! Changes that do not end with a `close` of the file at its name.

use std::fs::{self, File, FileTimes, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, UNIX_EPOCH};

use lull_replication_daemon::watch::{WatchEvent, WatchOptions};
use nix::unistd::truncate;

use super::super::site::{patient, runtime};
use super::super::sys::Mapping;
use super::Watching;

const SECOND: Duration = Duration::from_secs(1);
/// Longer than any test.
const NEVER: Duration = Duration::from_secs(3_600);

/// Watches with events, or with a comparison.
async fn watching(quiet: Duration, compare: Duration, files: &[(&str, &[u8])]) -> Watching {
    let watching = Watching::with(WatchOptions { quiet, compare }, files).await;
    watching.told(|event| matches!(event, WatchEvent::Watching(_))).await;
    watching
}

#[test]
fn file_truncated_by_its_path_is_published() {
    runtime().block_on(async {
        let watching = watching(SECOND, NEVER, &[("a", b"0123456789")]).await;
        truncate(&watching.path("a"), 3).expect("truncated");
        watching.wait_until_equal().await;
        truncate(&watching.path("a"), 5_000).expect("extended");
        watching.wait_until_equal().await;
        watching.close().await;
    });
}

#[test]
fn write_through_one_hard_link_changes_all_names() {
    runtime().block_on(async {
        let watching = watching(NEVER, NEVER, &[("a", b"1"), ("d/b", b"1"), ("c", b"1")]).await;
        for other in ["d/x", "y"] {
            fs::hard_link(watching.path("a"), watching.path(other)).expect("a link");
        }
        watching.wait_until_equal().await;
        let before = watching.last();
        watching.write("d/x", b"written by another name");
        watching.wait_until_equal().await;
        assert_eq!(watching.last(), before.next(), "all names at once");
        fs::set_permissions(watching.path("y"), Permissions::from_mode(0o640)).expect("its mode");
        watching.wait_until_equal().await;
        fs::remove_file(watching.path("y")).expect("deleted");
        watching.write("a", b"again");
        watching.wait_until_equal().await;
        watching.close().await;
    });
}

/// The kernel reports such a write under the name by which the file was opened.
#[test]
fn write_by_a_removed_name_is_published() {
    runtime().block_on(async {
        let files: [(&str, &[u8]); 4] = [("a", b"1"), ("d/b", b"2"), ("c", b"3"), ("e/c", b"4")];
        let watching = watching(SECOND, NEVER, &files).await;
        let path = |name: &str| watching.path(name);
        let open = |name: &str| File::options().append(true).open(path(name)).expect("a file");
        // Removed; replaced by another file; removed with its folder.
        let mut files = [open("a"), open("c"), open("e/c")];
        fs::hard_link(path("a"), path("d/a")).expect("a link");
        fs::hard_link(path("c"), path("d/c")).expect("a link");
        fs::hard_link(path("e/c"), path("d/e")).expect("a link");
        fs::remove_file(path("a")).expect("removed");
        fs::rename(path("d/b"), path("c")).expect("replaced");
        fs::remove_dir_all(path("e")).expect("removed");
        watching.wait_until_equal().await;
        for file in &mut files {
            file.write_all(b"more").expect("written");
            watching.wait_until_equal().await;
        }
        drop(files);
        watching.wait_until_equal().await;
        watching.close().await;
    });
}

#[test]
fn file_that_stays_open_is_published_when_it_is_quiet() {
    runtime().block_on(async {
        let watching = watching(SECOND, NEVER, &[("a", b"1")]).await;
        let mut log = File::create(watching.path("log")).expect("a file");
        for line in 0..20 {
            writeln!(log, "{line}").expect("written");
            log.sync_all().expect("synced");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(!watching.committed().contains_key("log"), "it was not quiet for a second");
        watching.wait_until_equal().await;
        writeln!(log, "later").expect("written");
        watching.wait_until_equal().await;
        watching.close().await;
    });
}

#[test]
fn mode_and_time_are_published_without_a_write() {
    runtime().block_on(async {
        let watching = watching(NEVER, NEVER, &[("a", b"1")]).await;
        for mode in [0o600, 0o444, 0o750, 0o644] {
            let mode = Permissions::from_mode(mode);
            fs::set_permissions(watching.path("a"), mode).expect("its mode");
            watching.wait_until_equal().await;
        }
        let old = UNIX_EPOCH - Duration::new(5, 7);
        let file = File::open(watching.path("a")).expect("a file");
        let both = FileTimes::new().set_modified(old).set_accessed(UNIX_EPOCH);
        file.set_times(both).expect("its times");
        watching.wait_until_equal().await;
        assert_eq!(watching.committed()["a"].2, -5_000_000_007);
        watching.close().await;
    });
}

/// The kernel reports it like a write (`fsnotify_change` of Linux).
#[test]
fn modification_time_alone_is_published() {
    runtime().block_on(async {
        let watching = watching(SECOND, NEVER, &[("a", b"1")]).await;
        let file = File::open(watching.path("a")).expect("a file");
        file.set_modified(UNIX_EPOCH).expect("its time");
        watching.wait_until_equal().await;
        assert_eq!(watching.committed()["a"].2, 0);
        watching.close().await;
    });
}

#[test]
fn mapped_file_is_published_by_a_comparison() {
    runtime().block_on(async {
        let half = Duration::from_millis(500);
        let watching = watching(NEVER, half, &[("a", &[0; 10_000])]).await;
        let file = File::options().read(true).write(true).open(watching.path("a"));
        let mut mapping = Mapping::new(file.expect("a file"), 10_000).expect("mapped");
        for byte in 1..4 {
            // The second write to a dirty page does not change the file's time.
            mapping.write(5_000, byte);
            watching.wait_until_equal().await;
        }
        drop(mapping);
        watching.close().await;
    });
}

#[test]
fn comparison_finds_changes_without_events() {
    runtime().block_on(async {
        let half = Duration::from_millis(500);
        let mut watching = watching(NEVER, half, &[("a", b"1"), ("d/b", b"2")]).await;
        // By a name outside of the folder.
        let outside = watching.site.folder().join("outside");
        fs::hard_link(watching.path("d/b"), &outside).expect("a link");
        fs::write(&outside, "other").expect("written");
        watching.wait_until_equal().await;
        let repaired = |event: &WatchEvent| matches!(event, WatchEvent::Repaired(1));
        watching.told(repaired).await;
        // By a write that does not go through the folder.
        let sequence = watching.site.write(&[("a", Some(b"by another way"))]).await;
        patient("it is undone", || watching.last() > sequence).await;
        watching.wait_until_equal().await;
        let sequence = watching.site.write(&[("not/there", Some(b"by another way"))]).await;
        patient("it is deleted", || watching.last() > sequence).await;
        watching.wait_until_equal().await;
        // Nothing differs: nothing is written.
        let last = watching.last();
        tokio::time::sleep(half * 4).await;
        assert_eq!(watching.last(), last);
        watching.close().await;
    });
}
