//! Open files of a mount whose bodies have gone since.

use std::time::Duration;

use lull_cc::Bytes;
use lull_replication::types::Sequence;
use lull_testing::{command, fuse, needs};

use super::mounts::{LARGE, LIMIT, MountedSite, Reader, bare};
use super::site::{body, path, patient, runtime};

/// Of two large files.
const SIZE: usize = 3_000_000;
/// A further part of an open file than the kernel has read ahead.
const MORE: &str = "os.pread(a, 5, 2900000)";
/// Whether all of `b` can be read, of which the kernel caches nothing.
const OTHER: &str = "(os.posix_fadvise(b := open_('b'), 0, 0, os.POSIX_FADV_DONTNEED), os.close(b)) \
    and read('b') == body(2, 3000000)";
const SOON: Duration = Duration::from_millis(300);

/// The reader has `a` open and has read a part of it; then `b` evicted it.
async fn given_up() -> MountedSite {
    let mut seen = MountedSite::new(None, |config| {
        bare(config);
        // Space for one body, not for two.
        config.quota = Some(Bytes(4_000_000));
    })
    .await;
    seen.write(&[("a", Some(&body(1, SIZE))), ("b", Some(&body(2, SIZE)))]).await;
    seen.reader.ask("(a := open_('a'))");
    seen.reader.is_so("os.pread(a, 5, 0) == body(1, 5)");
    seen.reader.is_so("read('b') == body(2, 3000000)");
    let replica = seen.site.replica(0).clone();
    patient("one is given up", || replica.status().valid_objects == 1).await;
    seen
}

#[test]
fn evicted_body_of_an_open_file_is_fetched_again() {
    needs!(fuse(), command("python3"));
    runtime().block_on(async {
        let mut seen = given_up().await;
        seen.reader.is_so(&format!("{MORE} == body(1, {SIZE})[2900000:2900005]"));
        seen.close().await;
    });
}

#[test]
fn page_wait_blocks_no_other_reader_and_ends_by_a_signal() {
    needs!(fuse(), command("python3"));
    // A handled signal ends nothing: the read waits for the pages as well.
    let handled = format!("signal.setitimer(signal.ITIMER_REAL, 0.1) and {MORE}");
    for (asked, signal) in [(MORE, "-TERM"), (&handled, "-KILL")] {
        runtime().block_on(async {
            let mut seen = given_up().await;
            let mut other = Reader::new(&seen.folder);
            seen.site.crash_origin();
            seen.reader.begin(asked);
            assert_eq!(seen.reader.said(SOON), None, "it waits");
            let replica = seen.site.replica(0).clone();
            patient("it waits", || replica.status().waiting > 0).await;
            for is_there in [true, false] {
                other.is_so(OTHER);
                other.is_so("os.stat(m + 'a').st_size == 3000000 and len(os.listdir(m)) == 2");
                let found = replica.object(&path("b"), Sequence::ZERO, Some(LIMIT)).await;
                assert!(found.expect("it does not wait").1.is_some());
                // Then no process is left to take the awaited bytes.
                if is_there {
                    seen.reader.kill(signal);
                    assert!(seen.reader.ends(), "{signal} ends it");
                }
            }
            seen.site.start_origin().await;
            patient("the pages have come", || replica.status().waiting == 0).await;
            seen.reader = other;
            seen.reader.is_so(&format!("read('a') == body(1, {SIZE})"));
            seen.close().await;
        });
    }
}

#[test]
fn many_page_waits_leave_capacity_for_others() {
    const FILES: u8 = 100;
    needs!(fuse(), command("python3"));
    runtime().block_on(async {
        let mut seen = MountedSite::new(None, |config| {
            bare(config);
            config.quota = Some(Bytes(400_000));
        })
        .await;
        let bodies: Vec<_> = (0..FILES).map(|at| (at.to_string(), body(at, LARGE))).collect();
        let files: Vec<_> = bodies.iter().map(|(name, all)| (&**name, Some(&**all))).collect();
        seen.write(&files).await;
        // The last ones are stored then, and the kernel has nothing of any.
        seen.reader.ask(&format!("(all := [open_(str(at)) for at in range({FILES})]) and None"));
        seen.site.crash_origin();
        let forked = "[fork(lambda one=one: os.pread(one, 5, 0)) for one in all[:90]]";
        seen.reader.ask(&format!("(children := {forked}) and None"));
        tokio::time::sleep(SOON).await;
        let mut other = Reader::new(&seen.folder);
        other.is_so(&format!("read('99') == body(99, {LARGE})"));
        seen.reader.ask("[os.kill(child, signal.SIGKILL) for child in children]");
        seen.reader.ask("[os.waitpid(child, 0)[1] for child in children] and None");
        drop(other);
        seen.close().await;
    });
}
