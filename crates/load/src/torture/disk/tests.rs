use super::*;

fn name(text: &str) -> &OsStr {
    OsStr::new(text)
}

/// The contents of a path, read as a whole.
fn read(disk: &Disk, path: &str) -> Result<Vec<u8>, Errno> {
    let node = path.split('/').try_fold(ROOT, |folder, part| disk.look_up(folder, name(part)))?;
    Ok(disk.file(node)?.read(0, 1 << 20))
}

fn file(disk: &mut Disk, folder: u64, called: &str, bytes: &[u8]) -> u64 {
    let node = disk.make(folder, name(called), Kind::File, 0o644).unwrap();
    disk.file_mut(node).unwrap().write(0, bytes);
    node
}

#[test]
fn bytes_and_their_name_need_a_sync() {
    for (file_synced, folder_synced, expected) in [
        (true, true, Ok(b"bytes".to_vec())),
        (false, true, Ok(Vec::new())),
        (true, false, Err(Errno::ENOENT)),
        (false, false, Err(Errno::ENOENT)),
    ] {
        let mut disk = Disk::default();
        let node = file(&mut disk, ROOT, "a", b"bytes");
        if file_synced {
            disk.sync(node).unwrap();
        }
        if folder_synced {
            disk.sync(ROOT).unwrap();
        }
        disk.file_mut(node).unwrap().write(0, b"later");
        assert!(!disk.cut(None));
        assert_eq!(read(&disk, "a"), expected, "{file_synced} {folder_synced}");
    }
}

#[test]
fn unsynced_folder_loses_its_entries() {
    let mut disk = Disk::default();
    let folder = disk.make(ROOT, name("b"), Kind::Folder, 0o755).unwrap();
    let node = file(&mut disk, folder, "a", b"1");
    disk.sync(node).unwrap();
    disk.sync(folder).unwrap();
    disk.cut(None);
    assert_eq!(read(&disk, "b/a"), Err(Errno::ENOENT));
    // And unreachable data take no space.
    assert_eq!(disk.nodes.len(), 1);
}

#[test]
fn rename_is_atomic() {
    for synced in [None, Some("from"), Some("to")] {
        let mut disk = Disk::default();
        let [from, to] = ["from", "to"]
            .map(|called| disk.make(ROOT, name(called), Kind::Folder, 0o755).unwrap());
        let node = file(&mut disk, from, "a", b"1");
        disk.sync_all();
        disk.rename((from, name("a")), (to, name("b"))).unwrap();
        match synced {
            Some("from") => disk.sync(from).unwrap(),
            Some(_) => disk.sync(to).unwrap(),
            None => disk.sync(node).unwrap(),
        }
        disk.cut(None);
        let moved = (read(&disk, "from/a").is_ok(), read(&disk, "to/b").is_ok());
        assert_eq!(moved, (synced.is_none(), synced.is_some()), "{synced:?}");
    }
}

#[test]
fn kept_rename_never_leaves_the_old_name() {
    let mut disk = Disk::default();
    let [from, to] =
        ["from", "to"].map(|called| disk.make(ROOT, name(called), Kind::Folder, 0o755).unwrap());
    disk.sync_all();
    file(&mut disk, from, "a", b"1");
    disk.rename((from, name("a")), (to, name("b"))).unwrap();
    file(&mut disk, from, "c", b"2");
    disk.sync(to).unwrap();
    // The deed in `from` that it depends on is kept; the later one is not.
    disk.cut(None);
    let there = ["from/a", "from/c", "to/b"].map(|path| read(&disk, path).is_ok());
    assert_eq!(there, [false, false, true]);
}

#[test]
fn removed_file_returns_unless_its_folder_was_synced() {
    for synced in [false, true] {
        let mut disk = Disk::default();
        file(&mut disk, ROOT, "a", b"1");
        disk.sync_all();
        disk.remove(ROOT, name("a"), false).unwrap();
        assert_eq!(read(&disk, "a"), Err(Errno::ENOENT));
        if synced {
            disk.sync(ROOT).unwrap();
        }
        disk.cut(None);
        assert_eq!(read(&disk, "a").is_ok(), !synced);
    }
}

#[test]
fn truncated_file_reads_zeros_when_it_grows() {
    let mut disk = Disk::default();
    let node = file(&mut disk, ROOT, "a", &[7; 10_000]);
    disk.sync_all();
    disk.file_mut(node).unwrap().set_length(4_100);
    disk.file_mut(node).unwrap().set_length(9_000);
    let mut expected = vec![7; 4_100];
    expected.resize(9_000, 0);
    assert_eq!(read(&disk, "a"), Ok(expected.clone()));
    disk.sync(node).unwrap();
    disk.cut(None);
    assert_eq!(read(&disk, "a"), Ok(expected));
}

#[test]
fn torn_write_mixes_old_and_new_sectors() {
    let mut disk = Disk::default();
    let node = file(&mut disk, ROOT, "a", &[1; 8_192]);
    disk.sync_all();
    disk.file_mut(node).unwrap().write(0, &[2; 8_192]);
    let mut random = Random::new(3);
    assert!(disk.cut(Some(&mut random)));
    let bytes = read(&disk, "a").unwrap();
    let sectors: Vec<&[u8]> = bytes.chunks(512).collect();
    assert!(sectors.iter().all(|sector| sector.iter().all(|byte| *byte == sector[0])));
    let new = sectors.iter().filter(|sector| sector[0] == 2).count();
    assert!((1..16).contains(&new), "{new} of 16");
    // Data on the disk by then stay there.
    assert!(!disk.cut(Some(&mut random)));
    assert_eq!(read(&disk, "a"), Ok(bytes));
}

#[test]
fn torn_disk_keeps_synced_data_and_a_prefix_of_names() {
    for seed in 0..200 {
        let mut disk = Disk::default();
        let kept = file(&mut disk, ROOT, "kept", b"1");
        disk.sync(kept).unwrap();
        disk.sync(ROOT).unwrap();
        for called in ["a", "b", "c"] {
            disk.make(ROOT, name(called), Kind::File, 0o644).unwrap();
        }
        disk.cut(Some(&mut Random::new(seed)));
        assert_eq!(read(&disk, "kept"), Ok(b"1".to_vec()));
        let there = ["a", "b", "c"].map(|called| read(&disk, called).is_ok());
        assert!(there.is_sorted_by(|one, next| one >= next), "{there:?}");
    }
}

#[test]
fn lying_disk_returns_to_an_earlier_state_as_a_whole() {
    let mut disk = Disk::default();
    let node = file(&mut disk, ROOT, "a", b"0");
    disk.sync_all();
    disk.fault = DiskFault::Lies { one_in: 4 };
    for number in 1..=9_u8 {
        disk.file_mut(node).unwrap().write(0, &[b'0' + number]);
        disk.sync(node).unwrap();
    }
    disk.cut(None);
    assert_eq!(read(&disk, "a"), Ok(b"8".to_vec()));
}

#[test]
fn names_are_rejected_as_the_kernel_expects() {
    let mut disk = Disk::default();
    let folder = disk.make(ROOT, name("folder"), Kind::Folder, 0o755).unwrap();
    let node = file(&mut disk, folder, "a", b"1");
    assert_eq!(disk.make(folder, name("a"), Kind::File, 0), Err(Errno::EEXIST));
    assert_eq!(disk.remove(ROOT, name("folder"), true), Err(Errno::ENOTEMPTY));
    assert_eq!(disk.remove(ROOT, name("folder"), false), Err(Errno::EISDIR));
    assert_eq!(disk.remove(folder, name("a"), true), Err(Errno::ENOTDIR));
    assert_eq!(disk.remove(folder, name("b"), false), Err(Errno::ENOENT));
    assert_eq!(disk.link(folder, ROOT, name("b")), Err(Errno::EPERM));
    disk.link(node, ROOT, name("b")).unwrap();
    // Both are names of one file: the rename does nothing.
    disk.rename((ROOT, name("b")), (folder, name("a"))).unwrap();
    assert_eq!((read(&disk, "b"), read(&disk, "folder/a")), (Ok(b"1".to_vec()), Ok(b"1".to_vec())));
}
