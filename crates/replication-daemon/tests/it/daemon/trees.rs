//! The contents of a tree: files, links, folders, their modes, times and names, from a folder to a mount.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path as FilePath;
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use lull_replication_daemon::http::client::{Client, ClientError};
use lull_replication_daemon::http::{Blocked, OriginHttp, ReplicaHttp, Serving};
use lull_testing::{command, fuse, needs, root};

use super::faces::{ask, listen};
use super::mounts::MountedSite;
use super::site::{Site, body, path, patient, runtime};

fn face(site: &Site) -> (Serving, Client) {
    let own = site.folder().join("origin");
    let face = OriginHttp::open_local(&own, site.origin().clone(), None).expect("a socket");
    (face, Client::new(own))
}

fn mode(path: &FilePath, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("its mode");
}

/// A tree with one entry of every published kind.
fn make(tree: &FilePath) {
    let at = |name: &str| tree.join(name);
    for folder in ["a/b", "empty/within", "private", "everybody"] {
        fs::create_dir_all(at(folder)).expect("folders");
    }
    for (name, bits) in
        [("plain", 0o644), ("program", 0o755), ("secret", 0o600), ("a/nobody", 0), ("a/b/c", 0o440)]
    {
        fs::write(at(name), name).expect("written");
        mode(&at(name), bits);
    }
    fs::write(at("private/file"), body(1, 300_000)).expect("written");
    for (name, target) in [
        ("relative", "a/b/c"),
        ("folder", "a/b"),
        ("a/up", "../plain"),
        ("absolute", "/etc/hostname"),
        ("a/out", "../../outside"),
        ("dangling", "nowhere"),
        ("loop", "loop"),
        ("deep", "folder/../../plain"),
    ] {
        symlink(target, at(name)).expect("a link");
    }
    let raw = |bytes: &[u8]| tree.join(OsStr::from_bytes(bytes));
    for name in [&b"no\xff text"[..], b"new\nline", b"back\\slash", "Straße".as_bytes()] {
        fs::write(raw(name), name).expect("written");
    }
    symlink(OsStr::from_bytes(b"no\xff text"), raw(b"\xfe")).expect("a link");
    let old = UNIX_EPOCH - Duration::from_millis(1_500);
    fs::File::open(at("program")).expect("a file").set_modified(old).expect("its time");
    let mut touch = Command::new("touch");
    touch.args(["-hd", "2001-02-03 04:05:06.789"]).arg(at("dangling"));
    assert!(touch.status().expect("touch").success());
    for (name, bits) in [("empty", 0o750), ("private", 0o700), ("everybody", 0o777)] {
        mode(&at(name), bits);
    }
}

/// The changes that `rsync` would make in `to`, to make it equal to `from`.
fn differs(from: &FilePath, to: &FilePath) -> String {
    let mut rsync = Command::new("rsync");
    rsync.args(["-aHAX", "--dry-run", "--itemize-changes", "--checksum", "--delete"]);
    // Otherwise a difference of a second counts as none.
    rsync.arg("--modify-window=-1");
    let said = rsync.arg(from.join("")).arg(to.join("")).output().expect("rsync");
    let errors = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.status.success(), "{errors}");
    String::from_utf8_lossy(&said.stdout).into_owned() + &errors
}

#[test]
fn mounted_tree_equals_the_published_one() {
    needs!(root(), fuse(), command("rsync"), command("python3"));
    runtime().block_on(async {
        let seen = MountedSite::new(None, |_| {}).await;
        let (face, client) = face(&seen.site);
        let tree = tempfile::tempdir().expect("a folder");
        make(tree.path());
        let below = path("tree");
        let publish = async || {
            let done = client.publish(tree.path(), Some(&below), false).await.expect("published");
            let here = ["replica-0".to_owned()];
            let limit = Some(super::site::LIMIT);
            client.wait_for_files(&here, done.sequence, Some(&below), limit).await.expect("there");
            done
        };
        let done = publish().await;
        let mounted = seen.folder.join("tree");
        assert_eq!(differs(tree.path(), &mounted), "");
        assert_eq!((done.put, publish().await.put), (19, 0));
        // Each becomes an entry of another kind.
        let at = |name: &str| tree.path().join(name);
        fs::remove_file(at("relative")).expect("deleted");
        fs::create_dir(at("relative")).expect("a folder");
        fs::remove_dir(at("empty/within")).expect("deleted");
        symlink("../plain", at("empty/within")).expect("a link");
        fs::remove_dir(at("everybody")).expect("deleted");
        fs::write(at("everybody"), "a file").expect("written");
        mode(&at("private"), 0o711);
        publish().await;
        assert_eq!(differs(tree.path(), &mounted), "");
        // An earlier state is unchanged.
        let earlier = seen.folder.join(format!(".lull/@{}/tree/empty", done.sequence.0));
        let stat = Command::new("stat").args(["-c", "%A"]).arg(earlier.join("within")).output();
        assert_eq!(stat.expect("stat").stdout, b"drwxr-xr-x\n");
        face.close().await;
        seen.mounted.close().await.expect("unmounted");
        seen.site.stop().await;
    });
}

/// With set-user-ID, a file of the origin's machine would run as root at each replica.
#[test]
fn set_id_and_sticky_bits_are_not_published() {
    runtime().block_on(async {
        let site = Site::new(0).await;
        let (face, client) = face(&site);
        let tree = tempfile::tempdir().expect("a folder");
        let at = |name: &str| tree.path().join(name);
        fs::write(at("program"), "1").expect("written");
        fs::create_dir(at("shared")).expect("a folder");
        mode(&at("program"), 0o6755);
        mode(&at("shared"), 0o3777);
        client.publish(tree.path(), None, false).await.expect("published");
        let objects: BTreeMap<_, _> = site.origin().tree().objects.into_iter().collect();
        let bits = |name: &str| objects[&path(name)].content.metadata.mode.bits();
        assert_eq!((bits("program"), bits("shared")), (0o755, 0o777));
        face.close().await;
        site.stop().await;
    });
}

#[test]
fn http_follows_links_within_the_tree_only() {
    // The tree has a file without permissions.
    needs!(root());
    runtime().block_on(async {
        let site = Site::new(1).await;
        let (local, client) = face(&site);
        let tree = tempfile::tempdir().expect("a folder");
        make(tree.path());
        fs::write(tree.path().join("a/b/index.html"), "<p>").expect("written");
        let done = client.publish(tree.path(), None, false).await.expect("published");
        site.reach(done.sequence).await;
        let (listener, address) = listen().await;
        let face = ReplicaHttp::open(listener, site.replica(0).clone(), Blocked::Wait);
        for (place, expected) in [
            ("relative", Some(&b"a/b/c"[..])),
            ("folder/c", Some(b"a/b/c")),
            ("folder/", Some(b"<p>")),
            ("a/up", Some(b"plain")),
            ("%FE", Some(b"no\xff text")),
            ("absolute", None),
            ("a/out", None),
            ("dangling", None),
            ("loop", None),
            // Two folders up from a/b is the root, as in the file system, and not above it.
            ("deep", Some(b"plain")),
            ("relative/c", None),
            ("folder", None),
            ("a/b", None),
            ("empty/within", None),
        ] {
            for method in ["GET", "HEAD"] {
                let answer = ask(address, method, &format!("/{place}"), "", b"").await;
                let status = if expected.is_some() { 200 } else { 404 };
                assert_eq!(answer.0, status, "{method} {place}");
                if let Some(expected) = expected.filter(|_| method == "GET") {
                    assert_eq!(answer.2, expected, "{place}");
                }
            }
        }
        face.close().await;
        local.close().await;
        site.stop().await;
    });
}

/// Each publication makes the link lead to a file that only it has.
#[test]
fn changing_link_always_leads_to_a_file() {
    runtime().block_on(async {
        let mut site = Site::new(1).await;
        let (local, client) = face(&site);
        let (listener, address) = listen().await;
        let face = ReplicaHttp::open(listener, site.replica(0).clone(), Blocked::Wait);
        let tree = tempfile::tempdir().expect("a folder");
        let link = tree.path().join("link");
        fs::write(tree.path().join("0"), "0").expect("written");
        symlink("0", &link).expect("a link");
        let first = client.publish(tree.path(), None, false).await.expect("published");
        site.reach(first.sequence).await;
        let publishing = async {
            for number in 1..40 {
                fs::remove_file(tree.path().join((number - 1).to_string())).expect("deleted");
                fs::remove_file(&link).expect("deleted");
                fs::write(tree.path().join(number.to_string()), "0").expect("written");
                symlink(number.to_string(), &link).expect("a link");
                client.publish(tree.path(), None, false).await.expect("published");
            }
        };
        tokio::pin!(publishing);
        let mut reads = 0;
        loop {
            tokio::select! {
                biased;
                answer = ask(address, "GET", "/link", "", b"") => {
                    assert!(answer.0 == 200 || answer.0 == 503, "{}", answer.1);
                    reads += u32::from(answer.0 == 200);
                }
                () = &mut publishing => break,
            }
        }
        assert!(reads > 0);
        let last = site.write(&[("end", Some(b"1"))]).await;
        site.reach(last).await;
        patient("it leads somewhere", || site.replica(0).status().objects == 3).await;
        face.close().await;
        local.close().await;
        site.stop().await;
    });
}

#[test]
fn all_unpublishable_entries_are_listed() {
    runtime().block_on(async {
        let site = Site::new(0).await;
        let (face, client) = face(&site);
        let tree = tempfile::tempdir().expect("a folder");
        let at = |name: &str| tree.path().join(name);
        fs::create_dir_all(at(".lull/within")).expect("folders");
        fs::create_dir_all(at("d")).expect("folders");
        fs::write(at(".lull/within/file"), "1").expect("written");
        fs::write(at("fine"), "1").expect("written");
        for pipe in ["d/pipe", "an\nother"] {
            nix::unistd::mkfifo(&at(pipe), nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        }
        let error = client.publish(tree.path(), None, false).await.expect_err("refused");
        let ClientError::Several(all) = &error else { panic!("{error}") };
        assert_eq!(all.len(), 3, "one for all that is below a folder: {error}");
        let said = error.to_string();
        assert_eq!(said.lines().count(), 4, "{said}");
        for words in
            ["3 entries", "d/pipe` is a socket, a pipe or", "an\\x0aother`", "reserved for Lull"]
        {
            assert!(said.contains(words), "no '{words}' in {said}");
        }
        assert_eq!(site.origin().last().0, 0, "nothing has happened");
        fs::remove_dir_all(at(".lull")).expect("deleted");
        fs::remove_file(at("an\nother")).expect("deleted");
        let error = client.publish(tree.path(), None, false).await.expect_err("refused");
        assert!(matches!(&error, ClientError::Kind(path) if path.ends_with("pipe")), "{error}");
        face.close().await;
        site.stop().await;
    });
}
