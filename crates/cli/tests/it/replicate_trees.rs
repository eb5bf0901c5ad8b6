//! `lull publish` of real trees, and of folders with entries that cannot be published.

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::site::{Site, is_as};
use crate::support::{finish, lull};
use lull_testing::{command, fuse, needs, root, skip};

/// Makes a folder, and does something in it.
fn folder(site: &Site, name: &str, script: &str) -> String {
    let folder = site.path(name);
    fs::create_dir(&folder).unwrap();
    finish(Command::new("sh").args(["-ec", script]).current_dir(&folder)).ok();
    folder
}

#[test]
fn unpublishable_folder_is_rejected_as_a_whole() {
    needs!(root(), command("mkfifo"), command("mknod"));
    let site = Site::new(&["paris"], &[]);
    let origin = site.path("origin");
    let publish = |folder: &str, more: &[&str]| {
        finish(lull(&["publish", folder, "--origin", &origin]).args(more))
    };
    // Folders with a path longer than Linux accepts in one call.
    let deep = "name=$(printf %0250d 0); for level in $(seq 17); do mkdir $name; cd -P $name; done; echo >file";
    for (number, (script, words)) in [
        ("mkfifo pipe", "pipe` is a socket, a pipe or a device"),
        ("mknod null c 1 3", "null` is a socket, a pipe or a device"),
        ("mknod disk b 7 0", "disk` is a socket, a pipe or a device"),
        ("mkdir .lull; echo >.lull/file", "is reserved for Lull: rename the file"),
        (deep, "`: the path has over 4095 bytes: shorten it"),
    ]
    .into_iter()
    .enumerate()
    {
        let script = format!("echo 1 >page; {script}");
        publish(&folder(&site, &number.to_string(), &script), &[]).fails(1, words);
    }
    let sockets = folder(&site, "sockets", "echo 1 >page");
    let socket = UnixListener::bind(format!("{sockets}/socket")).unwrap();
    publish(&sockets, &[]).fails(1, "socket` is a socket, a pipe or a device");
    drop(socket);
    // A path that is valid here may be too long at its destination.
    let short = deep.replace("seq 17", "seq 14");
    let into = vec!["n".repeat(250); 3].join("/");
    let long = folder(&site, "long", &short);
    publish(&long, &["--into", &into]).fails(1, "the path has over 4095 bytes: shorten it");
    assert_eq!(site.status("origin")["sequence"], 0, "nothing of all that has happened");
    let fine = publish(&long, &["--wait", "paris"]).ok();
    assert!(fine.starts_with("state 1: 1 files put"), "{fine}");
    // HTTP follows a link.
    let linked = folder(&site, "linked", "echo 1 >page; mkdir in; ln -s ../page in/copy");
    publish(&linked, &["--wait", "paris"]).ok();
    assert_eq!(site.get("paris", "/in/copy").body, b"1\n");
}

#[test]
fn names_special_on_other_systems_are_rejected_by_http() {
    let site = Site::new(&[], &[]);
    let long = ["d"; 4_096].join("/");
    let long_name = "n".repeat(256);
    for (name, words) in [
        ("", "the path is empty"),
        ("a/../b", "contains `.` or `..`"),
        ("a/%2e%2e/b", "contains `.` or `..`"),
        ("/etc/passwd", "the path is absolute"),
        ("a//b", "the path has an empty name"),
        ("a%00b", "a\\x00b`: the path contains a zero byte"),
        (&long_name, "over 255 bytes: shorten it"),
        (&long, "over 4095 bytes: shorten it"),
    ] {
        let answer = site.put(&format!("/{name}"), b"1");
        let said = String::from_utf8(answer.body).unwrap();
        assert_eq!(answer.status, 400, "{name:.40}: {said:.200}");
        assert!(said.contains(words) && said.lines().count() == 1, "{name:.40}: {said:.200}");
    }
    assert_eq!(site.status("origin")["sequence"], 0);
}

#[test]
fn name_that_is_not_utf8_is_written_and_read_by_http() {
    let site = Site::new(&["paris"], &[]);
    for name in ["a%FFb", "a%0Ab", "a%5Cxffb"] {
        let path = format!("/{name}");
        let put = site.put(&path, name.as_bytes());
        assert_eq!(put.status, 200);
        // A read with this waits until the replica has it.
        let seen = format!("Lull-Session: {}\r\n", put.header("lull-session").unwrap());
        assert_eq!(site.ask("paris", "GET", &path, &seen, b"").body, name.as_bytes());
    }
}

#[test]
fn names_differing_in_case_are_two_objects_by_default() {
    let clashing = "echo 1 >read.me; echo 2 >Read.Me";
    let site = Site::new(&["paris"], &[]);
    site.publish(Path::new(&folder(&site, "both", clashing)), &["--wait", "paris"]);
    let read = |name: &str| site.get("paris", name).body;
    assert_eq!((read("/read.me"), read("/Read.Me")), (b"1\n".to_vec(), b"2\n".to_vec()));

    let site = Site::with(&[], &[], &["--refuse-case-clashes"]);
    let origin = site.path("origin");
    let both = folder(&site, "both", clashing);
    let said = finish(&mut lull(&["publish", &both, "--origin", &origin]));
    said.fails(1, "`read.me` and `Read.Me` differ only in case: rename one");
    assert_eq!(site.status("origin")["sequence"], 0, "neither of them");
    let status = |name: &str| {
        let answer = site.put(name, b"1");
        (answer.status, String::from_utf8(answer.body).unwrap().contains("only in case"))
    };
    assert_eq!(status("/docs/Stra%C3%9Fe"), (200, false));
    assert_eq!(status("/docs/Stra%C3%9Fe"), (200, false), "it is the same");
    assert_eq!(status("/docs/STRASSE"), (409, true));
    assert_eq!(status("/Docs"), (409, true), "there is a folder");
    assert_eq!(status("/Docs/other"), (200, false), "of two folders nothing would be lost");
    assert_eq!(site.status("origin")["sequence"], 3);
}

/// The site of real pages beside this checkout, or beside one around it, in a folder.
fn real_site() -> Option<tempfile::TempDir> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let archive = "shared/data/site/site-shell-novice.tar.zst";
    let archive = here.ancestors().map(|one| one.join(archive)).find(|path| path.is_file())?;
    let folder = tempfile::tempdir().unwrap();
    let mut unpack = Command::new("tar");
    finish(unpack.arg("--zstd").arg("-xf").arg(archive).arg("-C").arg(folder.path())).ok();
    Some(folder)
}

/// A book of the documentation that comes with the compiler, if installed.
fn real_book() -> Option<PathBuf> {
    let said = Command::new("rustc").args(["--print", "sysroot"]).output().ok()?;
    let root = PathBuf::from(String::from_utf8(said.stdout).ok()?.trim());
    Some(root.join("share/doc/rust/html/reference")).filter(|book| book.is_dir())
}

/// Which of two names a listing contains, repeatedly until the end; in another process, which could be ended.
fn listed(place: &str, names: [&str; 2], end: &AtomicBool) -> Vec<[bool; 2]> {
    let mut all = Vec::new();
    let mut is_last = false;
    while !is_last {
        is_last = end.load(Ordering::Relaxed);
        let said = finish(Command::new("ls").arg(place).stdin(Stdio::null())).ok();
        all.push(names.map(|name| said.lines().any(|line| line == name)));
    }
    all
}

/// Publishes a copy of a tree, and then the same with a renamed folder, during reads.
fn is_the_same_in_a_mount(tree: &Path, folder: &str) {
    let (site, place) = Site::mounted(&[]);
    let source = PathBuf::from(site.path("source"));
    finish(Command::new("cp").args(["-r", "-L"]).arg(tree).arg(&source)).ok();
    site.publish(&source, &["--wait", "paris"]);
    assert!(is_as(&place.0, &source), "{}", tree.display());
    let renamed = "renamed-folder";
    fs::rename(source.join(folder), source.join(renamed)).unwrap();
    let end = AtomicBool::new(false);
    let seen = thread::scope(|scope| {
        let looking = scope.spawn(|| listed(&place.0, [folder, renamed], &end));
        let said = site.publish(&source, &["--wait", "paris"]);
        // All bodies exist under other names.
        assert!(said.ends_with("; 0 bytes sent\n") && !said.contains(" 0 deleted"), "{said}");
        assert!(is_as(&place.0, &source), "{}", tree.display());
        end.store(true, Ordering::Relaxed);
        looking.join().unwrap()
    });
    assert!(seen.iter().all(|[old, new]| old != new), "at once: {seen:?}");
    assert_eq!(seen.last(), Some(&[false, true]));
}

#[test]
fn real_site_is_equal_in_a_mount_after_a_rename() {
    needs!(fuse(), command("diff"), command("tar"), command("zstd"));
    match real_site() {
        Some(site) => is_the_same_in_a_mount(site.path(), "favicons"),
        None => skip("real_site_is_equal_in_a_mount_after_a_rename", "no site beside the tree"),
    }
}

#[test]
fn compiler_book_is_equal_in_a_mount_after_a_rename() {
    needs!(fuse(), command("diff"), command("rustc"));
    match real_book() {
        Some(book) => is_the_same_in_a_mount(&book, "types"),
        None => skip(
            "compiler_book_is_equal_in_a_mount_after_a_rename",
            "the compiler's documentation is not installed",
        ),
    }
}
