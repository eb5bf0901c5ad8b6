//! `lull replica run --mount`: every program sees a published folder in another one.
//!
//! Only other processes access it, so that each can be ended, whatever its mount does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::site::{MountPoint, Site, is_as};
use crate::support::{Kept, eventually, finish, lull};
use lull_testing::{command, fuse, needs};

fn terminate(process: &mut Kept) -> bool {
    let asked = Command::new("kill").args(["-TERM", &process.pid()]).status().unwrap();
    asked.success() && process.0.wait().unwrap().success()
}

/// A site whose replica `paris` shows the documentation in a mount.
fn mounted() -> (Site, MountPoint, PathBuf) {
    let (site, place) = Site::mounted(&["--keep", "600"]);
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    site.publish(&docs, &["--wait", "paris"]);
    (site, place, docs)
}

#[test]
fn published_folder_is_mounted_until_a_signal() {
    needs!(fuse(), command("diff"));
    let (mut site, place, docs) = mounted();
    assert!(is_as(&place.0, &docs));
    // HTTP continues beside it, and both show the same.
    assert_eq!(site.get("paris", "/web.md").body, fs::read(docs.join("web.md")).unwrap());
    finish(Command::new("sh").args(["-c", "! echo x >\"$1/new\" 2>&1", "sh", &place.0])).ok();
    // A program in it does not prevent its end.
    let mut within = Command::new("sh");
    within.args(["-c", "cd \"$1\" && exec sleep 60", "sh", &place.0]);
    let within = Kept::spawn(&mut within);
    eventually("it is there", || {
        let at = fs::read_link(format!("/proc/{}/cwd", within.pid()));
        at.is_ok_and(|at| at == Path::new(&place.0))
    });
    assert!(terminate(site.replicas.get_mut("paris").unwrap()));
    assert_eq!(place.mounted(), 0);
    assert_eq!(fs::read_dir(&place.0).unwrap().count(), 0);
}

#[test]
fn earlier_publication_stays_a_folder_until_restart() {
    needs!(fuse(), command("diff"), command("ls"));
    let (mut site, place, docs) = mounted();
    let next = PathBuf::from(site.path("next"));
    assert!(Command::new("cp").arg("-r").arg(&docs).arg(&next).status().unwrap().success());
    fs::remove_file(next.join("web.md")).unwrap();
    fs::write(next.join("new.md"), "new").unwrap();
    fs::write(next.join("algorithm.md"), "another").unwrap();
    site.publish(&next, &["--wait", "paris"]);
    let (first, second) = (format!("{}/.lull/@1", place.0), format!("{}/.lull/@2", place.0));
    assert!(is_as(&place.0, &next), "and no `.lull` is listed beside its files");
    assert!(is_as(&first, &docs) && is_as(&second, &next));
    // A folder of this name at the top is rejected as a whole.
    fs::create_dir(next.join(".lull")).unwrap();
    fs::write(next.join(".lull/mine"), "mine").unwrap();
    let (source, origin) = (next.to_str().unwrap(), site.path("origin"));
    let said = finish(&mut lull(&["publish", source, "--origin", &origin]));
    said.fails(1, "`.lull` at the root is reserved for Lull: rename the file");
    assert_eq!(site.status("origin")["sequence"], 2);
    // Past states are not on the disk.
    drop(site.replicas.remove("paris"));
    site.start_replica("paris", &["--mount", &place.0]);
    fs::remove_dir_all(next.join(".lull")).unwrap();
    assert!(is_as(&second, &next));
    let listed = finish(Command::new("ls").arg(format!("{}/.lull", place.0))).ok();
    assert_eq!(listed, "@2\n");
    assert!(terminate(site.replicas.get_mut("paris").unwrap()));
}

#[test]
fn mount_left_by_a_killed_replica_is_replaced() {
    needs!(fuse(), command("diff"));
    let (mut site, place, docs) = mounted();
    for _ in 0..2 {
        // It is killed with -9 when it is dropped.
        drop(site.replicas.remove("paris"));
        assert_eq!(place.mounted(), 1, "it is left");
        site.start_replica("paris", &["--mount", &place.0]);
        assert_eq!(place.mounted(), 1, "none is hidden below the other");
        assert!(is_as(&place.0, &docs));
    }
    assert!(terminate(site.replicas.get_mut("paris").unwrap()));
    assert_eq!(place.mounted(), 0);
}

#[test]
fn folder_that_cannot_be_a_mount_point_is_reported() {
    needs!(fuse());
    let mut site = Site::new(&["paris"], &[]);
    drop(site.replicas.remove("paris"));
    let (folder, none, file) = (site.path("paris"), site.path("none"), site.path("token"));
    for (place, words) in [
        (&folder, "is not empty: name an empty folder"),
        (&none, "create the folder first"),
        (&file, "is not a folder"),
    ] {
        let said = finish(&mut lull(&["replica", "run", &folder, "--mount", place]));
        said.fails(1, words);
    }
}
