//! The lab's disk, mounted: programs see files, and a power cut loses unsynced writes.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};

use lull_load::torture::LabDisk;
use lull_testing::{fuse, needs};

#[test]
fn programs_use_the_disk_like_any_other() {
    needs!(fuse());
    let folder = tempfile::tempdir().unwrap();
    let disk = LabDisk::mount(folder.path()).unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir_all(path("a/b")).unwrap();
    let mut options = OpenOptions::new();
    options.create(true).truncate(true).read(true).write(true);
    let file = options.open(path("a/b/c")).unwrap();
    file.write_all_at(b"0123456789", 100_000).unwrap();
    file.set_len(100_005).unwrap();
    let mut bytes = [0; 8];
    assert_eq!(file.read_at(&mut bytes, 99_998).unwrap(), 7);
    assert_eq!(&bytes[..7], b"\0\x0001234");
    // The lock that databases use.
    file.try_lock().unwrap();
    let other = File::open(path("a/b/c")).unwrap();
    assert!(other.try_lock().is_err());
    drop(file);
    other.try_lock().unwrap();
    fs::rename(path("a/b/c"), path("a/d")).unwrap();
    fs::hard_link(path("a/d"), path("e")).unwrap();
    // An entry holds its folder open.
    let mut names: Vec<_> = fs::read_dir(path("a"))
        .unwrap()
        .map(|one| one.map(|one| (one.file_name(), one.file_type().unwrap().is_dir())).unwrap())
        .collect();
    names.sort();
    assert_eq!(names, [("b".into(), true), ("d".into(), false)]);
    let listener = UnixListener::bind(path("socket")).unwrap();
    UnixStream::connect(path("socket")).unwrap().write_all(b"x").unwrap();
    let mut said = Vec::new();
    listener.accept().unwrap().0.read_to_end(&mut said).unwrap();
    assert_eq!(said, b"x");
    fs::remove_file(path("socket")).unwrap();
    fs::remove_dir(path("a/b")).unwrap();
    assert_eq!(fs::metadata(path("e")).unwrap().len(), 100_005);
    drop((other, listener));
    drop(disk);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn power_cut_loses_unsynced_writes() {
    needs!(fuse());
    let folder = tempfile::tempdir().unwrap();
    let disk = LabDisk::mount(folder.path()).unwrap();
    let path = |name: &str| folder.path().join(name);
    let mut kept = File::create(path("kept")).unwrap();
    kept.write_all(b"synced").unwrap();
    kept.sync_data().unwrap();
    fs::write(path("lost"), b"never").unwrap();
    File::open(folder.path()).unwrap().sync_all().unwrap();
    kept.write_all(b", not synced").unwrap();
    fs::rename(path("kept"), path("moved")).unwrap();
    drop(kept);
    assert_eq!(fs::read(path("moved")).unwrap(), b"synced, not synced");
    disk.cut(None);
    assert_eq!(fs::read(path("kept")).unwrap(), b"synced");
    assert_eq!(fs::read(path("lost")).unwrap(), b"");
    assert!(!path("moved").exists());
}
