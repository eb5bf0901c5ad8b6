//! The S3 endpoint and the NFS export of a replica as a process.

use std::fs;
use std::path::Path;
use std::process::Command;

use lull_testing::{command, needs};

use crate::site::{Site, request};
use crate::support::{eventually, finish};

/// A replica with one more address, and that address.
fn site_with(option: &str, event: &str) -> (Site, String) {
    let site = Site::new(&["paris"], &[option, "127.0.0.1:0"]);
    eventually("the address", || !site.told("paris", event).is_empty());
    let text = site.told("paris", event).remove(0);
    let begin = text.find("127.0.0.1:").expect("an address");
    let address = text[begin..].split([',', ' ']).next().expect("an address");
    let address = address.to_owned();
    (site, address)
}

fn docs() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

#[test]
fn s3_option_serves_published_files() {
    let (site, address) = site_with("--s3", "s3");
    site.publish(&docs(), &["--wait", "paris"]);
    let get = |path: &str| request(&address, "GET", path, "", b"").unwrap();
    let page = get("/lull/how-to/mount.md");
    assert_eq!((page.status, page.body), (200, fs::read(docs().join("how-to/mount.md")).unwrap()));
    let listed = get("/lull?list-type=2&prefix=how-to/m&delimiter=/");
    let listed = String::from_utf8(listed.body).unwrap();
    assert!(listed.contains("<Key>how-to/mount.md</Key>"), "{listed}");
    assert!(!listed.contains("index.md"), "{listed}");
}

#[test]
fn nfs_programs_read_the_export() {
    needs!(command("nfs-ls"), command("nfs-cat"), command("nfs-cp"));
    let (site, address) = site_with("--nfs", "nfs");
    site.publish(&docs(), &["--wait", "paris"]);
    let port = address.rsplit(':').next().expect("a port");
    let url = |path: &str| format!("nfs://127.0.0.1/{path}?nfsport={port}&mountport={port}");
    let listed = finish(Command::new("nfs-ls").arg(url("how-to"))).ok();
    for entry in fs::read_dir(docs().join("how-to")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(listed.contains(&name), "{name} is not in {listed}");
    }
    // libnfs mounts the folder before the last slash, and refuses an empty one.
    for path in ["how-to/mount.md", "/SUMMARY.md"] {
        let bytes = fs::read(docs().join(path.trim_start_matches('/'))).unwrap();
        let shown = finish(Command::new("nfs-cat").arg(url(path))).ok();
        assert_eq!(shown.as_bytes(), bytes, "{path}");
        // nfs-cp does not overwrite.
        let copy = site.path(&format!("copy of {}", bytes.len()));
        finish(Command::new("nfs-cp").args([&url(path), &copy])).ok();
        assert_eq!(fs::read(&copy).unwrap(), bytes, "{path}");
    }
    let own = docs().join("SUMMARY.md");
    let refused = finish(Command::new("nfs-cp").arg(own).arg(url("how-to/new")));
    assert!(!refused.status.success());
}
