//! Names that the kernel remembers of a mount.

use std::time::Duration;

use lull_replication::origin::{Put, Transaction};
use lull_replication::time::WallTime;
use lull_replication::types::{Content, Metadata, Mode};
use lull_testing::{command, fuse, needs, root, skip};

use super::mounts::MountedSite;
use super::site::{path, runtime};

/// The order and the lease hold with remembered names: a name is looked up again after each state, and after
/// the lease.
#[test]
fn names_are_cached_until_the_state_changes() {
    needs!(fuse(), command("python3"));
    runtime().block_on(async {
        let mut seen = MountedSite::leased().await;
        let (remembers, _) = seen.mounted.lookups();
        if !remembers {
            skip("names_are_remembered", "Linux before 6.16 remembers no names of a mount");
            return seen.close().await;
        }
        seen.write(&[("d/a", Some(b"0")), ("d/b", Some(b"0"))]).await;
        let many = "[read('d/a') for _ in range(200)] == [b'0'] * 200";
        let before = seen.mounted.lookups().1;
        assert_eq!(seen.reader.ask(many), "True");
        let asked = seen.mounted.lookups().1 - before;
        // Two names, again after each lease of two seconds; otherwise it would be 400.
        assert!(asked < 100, "{asked} names were looked up");
        for round in 1..20_u8 {
            let text = round.to_string();
            seen.write(&[("d/a", Some(text.as_bytes())), ("d/b", Some(text.as_bytes()))]).await;
            let both = format!("(read('d/b'), read('d/a')) == (b'{text}', b'{text}')");
            assert_eq!(seen.reader.ask(&both), "True", "round {round}");
        }
        seen.write(&[("d/a", None)]).await;
        assert_eq!(seen.reader.ask("os.path.exists(m + 'd/a')"), "False");
        // Nothing is cached for longer than the lease.
        assert_eq!(seen.reader.ask("os.path.exists(m + 'd/b')"), "True");
        seen.site.crash_origin();
        tokio::time::sleep(Duration::from_millis(2_500)).await;
        assert!(
            seen.reader.ask("os.path.exists(m + 'd/b')").contains("False"),
            "it cannot be told"
        );
        seen.close().await;
    });
}

#[test]
fn cached_name_gives_no_access_to_a_private_folder() {
    needs!(root(), fuse(), command("python3"));
    runtime().block_on(async {
        let mut seen = MountedSite::new(None, |_| {}).await;
        let folder = Content::folder(WallTime::default(), Mode::new(0o700));
        let mut stager = seen.site.origin().bodies().stage();
        stager.write(b"1").expect("a disk").expect("room");
        let file = Put::Body(stager.finish().expect("a disk").expect("room"), Metadata::default());
        let mut stager = seen.site.origin().bodies().stage();
        stager.write(b"").expect("a disk").expect("room");
        let empty = stager.finish().expect("a disk").expect("room");
        let folder = Put::Body(empty, folder.metadata);
        let changes = [(path("d"), folder), (path("d/a"), file)].into();
        let written = seen.site.origin().write(Transaction { changes }).await.expect("written");
        seen.site.reach(written).await;
        assert_eq!(seen.reader.ask("read('d/a')"), "b'1'");
        let other = "os.waitpid(os.fork() or (os.setgid(65534), os.setuid(65534), os._exit(\
            os.path.exists(m + 'd/a') or os.access(m + 'd', os.X_OK))), 0)[1]";
        assert_eq!(seen.reader.ask(other), "0");
        seen.close().await;
    });
}
