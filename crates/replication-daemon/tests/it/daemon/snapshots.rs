//! Past states, below `.lull` in a mount.

use std::time::Duration;

use lull_testing::{command, fuse, needs};

use super::mounts::{LARGE, LIMIT, MountedSite, bare};
use super::site::{body, runtime};

#[test]
fn past_state_is_a_folder() {
    needs!(fuse(), command("python3"));
    runtime().block_on(async {
        let mut seen = MountedSite::new(None, |_| {}).await;
        let (first, second) = (body(1, 200_000), body(2, 300_000));
        seen.write(&[("a", Some(b"1")), ("d/b", Some(&first)), ("d/c", Some(b"c"))]).await;
        seen.write(&[("d/b", Some(&second)), ("d/c", None), ("e/f", Some(b"f"))]).await;
        seen.write(&[("a", Some(b"3")), ("d/b", None)]).await;
        let reader = &mut seen.reader;
        for (what, expected) in [
            ("sorted(os.listdir(m))", "['a', 'e']"),
            ("sorted(os.listdir(m + '.lull'))[-3:]", "['@1', '@2', '@3']"),
            ("sorted(os.listdir(m + '.lull/@1'))", "['a', 'd']"),
            ("sorted(os.listdir(m + '.lull/@1/d'))", "['b', 'c']"),
            ("sorted(os.listdir(m + '.lull/@2'))", "['a', 'd', 'e']"),
            ("sorted(os.listdir(m + '.lull/@2/d'))", "['b']"),
            ("sorted(os.listdir(m + '.lull/@3'))", "['a', 'e']"),
            ("read('.lull/@1/d/b') == body(1, 200000)", "True"),
            ("read('.lull/@2/d/b') == body(2, 300000)", "True"),
            ("os.stat(m + '.lull/@2/d/b').st_size", "300000"),
            ("read('.lull/@1/d/c')", "b'c'"),
            ("[read(f'.lull/@{at}/a') for at in (1, 2, 3)]", "[b'1', b'1', b'3']"),
            ("read('.lull/@2/e/f')", "b'f'"),
            // Names that are in none of them, and names that are no states.
            ("read('.lull/@1/e/f')", "ENOENT"),
            ("read('.lull/@3/d/b')", "ENOENT"),
            ("os.listdir(m + '.lull/@3/d')", "ENOENT"),
            ("os.listdir(m + '.lull/@4')", "ENOENT"),
            ("os.listdir(m + '.lull/@01')", "ENOENT"),
            ("os.listdir(m + '.lull/1')", "ENOENT"),
            ("os.listdir(m + '.lull/@1/.lull')", "ENOENT"),
            ("os.listdir(m + 'e/.lull')", "ENOENT"),
            ("read('.lull/@1/a/b')", "ENOTDIR"),
            ("read('.lull/@1')", "EISDIR"),
            ("read('.lull/@1/' + 'n' * 256)", "ENAMETOOLONG"),
            ("os.mkdir(m + '.lull/@9')", "EROFS"),
            ("open(m + '.lull/@1/a', 'w')", "EROFS"),
            // A version is one file in all states. A folder is different in each, otherwise it would seem to
            // be within itself.
            ("len(set(os.stat(m + f'.lull/@{at}/a').st_ino for at in (1, 2, 3)))", "2"),
            ("os.stat(m + '.lull/@3/a').st_ino == os.stat(m + 'a').st_ino", "True"),
            (
                "len(set(os.stat(m + at).st_ino for at in ('', '.lull', '.lull/@1', '.lull/@3')))",
                "4",
            ),
            ("all(o.inode() == o.stat().st_ino for o in os.scandir(m + '.lull/@2'))", "True"),
            // When they were made.
            (
                "os.stat(m + '.lull/@1').st_mtime < os.stat(m + '.lull/@2/d').st_mtime \
                 < os.stat(m + '.lull/@3').st_mtime",
                "True",
            ),
        ] {
            assert_eq!(reader.ask(what), expected, "{what}");
        }
        seen.close().await;
    });
}

#[test]
fn past_state_is_readable_without_the_origin() {
    needs!(fuse(), command("python3"));
    runtime().block_on(async {
        let mut seen = MountedSite::leased().await;
        seen.write(&[("a", Some(b"1"))]).await;
        seen.write(&[("a", Some(b"2"))]).await;
        seen.outlive_the_lease().await;
        for (what, expected) in [
            ("read('a')", "ETIMEDOUT"),
            ("os.listdir(m)", "ETIMEDOUT"),
            ("read('.lull/@1/a')", "b'1'"),
            ("read('.lull/@2/a')", "b'2'"),
            ("os.listdir(m + '.lull/@2')", "['a']"),
            ("os.stat(m + '.lull/@1/a').st_size", "1"),
        ] {
            assert_eq!(seen.reader.ask(what), expected, "{what}");
        }
        seen.close().await;
    });
}

#[test]
fn unfetched_overwritten_body_is_stale_in_a_past_state() {
    needs!(fuse(), command("python3"));
    runtime().block_on(async {
        let mut seen = MountedSite::new(None, bare).await;
        seen.fill().await;
        seen.write(&[("a", Some(&body(1, LARGE)))]).await;
        seen.write(&[("a", Some(&body(2, LARGE)))]).await;
        for (what, expected) in
            [("os.stat(m + '.lull/@2/a').st_size", "90000"), ("read('.lull/@2/a')", "ESTALE")]
        {
            assert_eq!(seen.reader.ask(what), expected, "{what}");
        }
        seen.site.crash_origin();
        seen.reader.begin("read('.lull/@3/a') == body(2, 90000)");
        assert_eq!(seen.reader.said(Duration::from_millis(300)), None, "it waits");
        seen.site.start_origin().await;
        assert_eq!(seen.reader.said(LIMIT).as_deref(), Some("True"));
        seen.close().await;
    });
}

#[test]
fn past_state_expires_with_its_overwritten_bodies() {
    needs!(fuse(), command("python3"));
    runtime().block_on(async {
        let grace = Duration::from_secs(2);
        let mut seen = MountedSite::new(None, |config| config.grace = grace).await;
        seen.write(&[("a", Some(&body(1, 3_000_000))), ("b", Some(b"b"))]).await;
        let reader = &mut seen.reader;
        assert_eq!(reader.ask("os.chdir(m + '.lull/@1')"), "None");
        assert_eq!(reader.ask("sorted(os.listdir('.'))"), "['a', 'b']");
        reader.ask("(a := open_('.lull/@1/a'))");
        seen.write(&[("a", Some(b"new"))]).await;
        tokio::time::sleep(grace + Duration::from_secs(1)).await;
        for (what, expected) in [
            ("os.listdir(m + '.lull')", "['@2']"),
            ("read('.lull/@1/b')", "ENOENT"),
            ("os.listdir('.')", "ESTALE"),
            ("os.stat('b')", "ESTALE"),
            ("os.pread(a, 5, 2900000)", "ESTALE"),
            ("read('.lull/@2/a')", "b'new'"),
        ] {
            assert_eq!(seen.reader.ask(what), expected, "{what}");
        }
        seen.close().await;
    });
}
