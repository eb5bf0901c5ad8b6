//! `lull origin` and `lull replica` on disks that fill up: that is reported, nothing is seen in part, no
//! acknowledged write is lost, and work continues when there is space.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use crate::gate::free_address;
use crate::site::{Site, SmallDisk};
use crate::support::{eventually, eventually_within, finish, lull};
use lull_testing::{command, needs, root};

/// Small bodies are in the database, larger ones in files, and the largest go there as they arrive.
const SIZES: [usize; 3] = [2_000, 300_000, 1_500_000];

fn body(number: usize) -> Vec<u8> {
    (number as u64).to_le_bytes().repeat(SIZES[number % 3] / 8)
}

/// The acknowledged writes, by name, with the token of a session that has seen each.
type Written = BTreeMap<String, (Vec<u8>, String)>;

/// Writes an object; returns whether there was room for it.
fn write(site: &Site, written: &mut Written, name: &str, number: usize) -> bool {
    let answer = site.put(name, &body(number));
    match answer.status {
        200 => {
            let token = answer.header("lull-session").unwrap().to_owned();
            written.insert(name.to_owned(), (body(number), token));
            true
        }
        507 => {
            let said = String::from_utf8_lossy(&answer.body).into_owned();
            assert_eq!(said, "the disk is full: free space, then it continues by itself\n");
            false
        }
        _ => panic!("{name}: {answer:?}"),
    }
}

/// Whether a replica shows all of it to a session that has seen it; shown objects are complete.
fn shows(site: &Site, name: &str, written: &Written) -> bool {
    written.iter().all(|(path, (body, token))| {
        let answer = site.ask(name, "GET", path, &format!("Lull-Session: {token}\r\n"), b"");
        assert!([200, 503].contains(&answer.status), "{path}: {}", answer.head);
        assert!(answer.status != 200 || answer.body == *body, "all of {path}");
        answer.status == 200
    })
}

fn sequence(site: &Site, name: &str) -> usize {
    site.status(name)["sequence"].as_u64().unwrap() as usize
}

#[test]
fn full_origin_rejects_whole_writes_and_continues() {
    needs!(root(), command("mount"), command("cp"));
    let mut site = Site::new(&["paris"], &[]);
    site.origin = None;
    let disk = SmallDisk::under(&site, "origin", 8);
    site.start_origin();
    let mut written = Written::new();
    let put = |site: &Site, written: &mut Written, numbers: std::ops::Range<usize>| {
        let names = numbers.map(|number| (format!("/{number}"), number));
        names.filter(|(name, number)| !write(site, written, name, *number)).collect::<Vec<_>>()
    };
    let mut refused = put(&site, &mut written, 0..30);
    disk.fill();
    refused.extend(put(&site, &mut written, 30..60));
    assert!(written.len() > 3 && refused.len() > 15, "{refused:?}");
    // Not every write needs to report it.
    let words = "the disk is full: free space; until then writes are rejected";
    eventually("it is reported", || site.told("origin", "full") == [words]);
    assert_eq!(site.status("origin")["disk_full"], true);
    let status = finish(&mut lull(&["status", &site.path("origin")])).ok();
    assert!(status.contains("\n  the disk was full within the last minute"), "{status}");
    let folder = site.path("public");
    fs::create_dir(&folder).unwrap();
    fs::write(format!("{folder}/page"), "1").unwrap();
    fs::write(format!("{folder}/image"), body(62)).unwrap();
    let (own, into) = (site.path("origin"), ["--into", "public"]);
    let publish = || finish(lull(&["publish", &folder, "--origin", &own]).args(into));
    publish().fails(1, "the disk is full: free space");
    // Refused writes had no effect.
    assert_eq!(sequence(&site, "origin"), written.len());
    eventually("all of it", || sequence(&site, "paris") == written.len());
    assert!(shows(&site, "paris", &written));
    for (name, _) in refused.iter().chain(&[("/public/page".to_owned(), 0)]) {
        assert_eq!(site.get("paris", name).status, 404, "{name}");
    }
    // It starts again from a full disk, and reports that once more.
    site.origin = None;
    site.start_origin();
    assert_eq!(sequence(&site, "origin"), written.len());
    assert!(!write(&site, &mut written, "/large", 65));
    eventually("it is reported", || site.told("origin", "full") == [words]);
    disk.grow(96);
    for (name, number) in &refused {
        assert!(write(&site, &mut written, name, *number), "there is room for {name}");
    }
    assert!(publish().ok().contains("2 files put"));
    // The disk has the acknowledged writes: a new session gets all of them.
    site.origin = None;
    site.start_origin();
    assert_eq!(sequence(&site, "origin"), written.len() + 1);
    site.add_replica("london", &[]);
    for name in ["paris", "london"] {
        assert!(shows(&site, name, &written), "{name}");
        eventually("what was published", || site.get(name, "/public/page").body == b"1");
    }
    assert_eq!(site.status("origin")["lost"], 0);
}

#[test]
fn new_origin_on_full_disk_is_not_created() {
    needs!(root(), command("mount"), command("cp"));
    let site = Site::new(&[], &[]);
    fs::create_dir(site.path("new")).unwrap();
    let disk = SmallDisk::under(&site, "new", 1);
    disk.fill();
    let new = site.path("new");
    let init = || finish(&mut lull(&["origin", "init", &new]));
    let said = init();
    said.fails(1, "");
    assert!(said.err.contains("disk is full") || said.err.contains("No space left"), "{said:?}");
    disk.grow(16);
    init().ok();
}

#[test]
fn full_replica_continues_and_catches_up() {
    needs!(root(), command("mount"), command("cp"));
    let arguments = ["--blocked", "error", "--patience", "0.3"];
    let mut site = Site::new(&["paris"], &arguments);
    drop(site.replicas.remove("paris"));
    let disk = SmallDisk::under(&site, "paris", 8);
    site.start_replica("paris", &arguments);
    let (mut before, mut after) = (Written::new(), Written::new());
    for number in 0..3 {
        assert!(write(&site, &mut before, &format!("/{number}"), number));
    }
    assert!(write(&site, &mut after, "/overwritten", 3));
    eventually("what there is room for", || {
        shows(&site, "paris", &before) && shows(&site, "paris", &after)
    });
    for number in 4..30 {
        assert!(write(&site, &mut after, &format!("/{number}"), number));
    }
    // Its body was small, and is large now.
    assert!(write(&site, &mut after, "/overwritten", 32));
    let told = || site.told("paris", "full");
    eventually_within(Duration::from_secs(120), "a full disk", || !told().is_empty());
    // Stored objects are shown; newer state waits. Neither is seen in part.
    let goes_on = |site: &Site| {
        for (path, (body, _)) in &before {
            let answer = site.get("paris", path);
            assert!(answer.status == 200 && answer.body == *body, "{path}: {}", answer.head);
        }
        let answer = site.get("paris", "/overwritten");
        let whole = [body(3), body(32)].contains(&answer.body);
        assert!(whole || answer.status == 503, "{}", answer.head);
        shows(site, "paris", &after)
    };
    assert!(!goes_on(&site), "there is no room for all");
    // Bodies leave space for commits, which wait for them or for a session that has to see them.
    let last = format!("Lull-Session: {}\r\n", after["/overwritten"].1);
    let sees_all = || site.ask("paris", "GET", "/0", &last, b"").status == 200;
    eventually("it receives all changes", sees_all);
    assert_eq!(sequence(&site, "paris"), before.len() + after.len() + 1);
    disk.fill();
    assert!(!goes_on(&site));
    assert_eq!(
        told(),
        ["the disk is full: free space; until then reads of newer state wait"],
        "once"
    );
    assert_eq!(site.status("paris")["disk_full"], true);
    // After a kill, it continues with the same content.
    drop(site.replicas.remove("paris"));
    site.start_replica("paris", &arguments);
    eventually("a heartbeat", || site.get("paris", "/1").status == 200);
    assert!(!goes_on(&site));
    disk.grow(96);
    eventually_within(Duration::from_secs(120), "all of it", || goes_on(&site));
    let all = (before.len() + after.len()) as u64;
    let status = site.status("paris");
    assert_eq!((&status["valid_objects"], &status["objects"]), (&all.into(), &all.into()));
}

/// The replica below goes on with what it has, and gets the rest when there is room at the relay.
#[test]
fn full_relay_continues_and_catches_up() {
    needs!(root(), command("mount"), command("cp"));
    let mut site = Site::new(&[], &[]);
    let relay = free_address();
    site.add_relay("relay", &["--relay", &relay]);
    drop(site.replicas.remove("relay"));
    let disk = SmallDisk::under(&site, "relay", 8);
    site.start_replica("relay", &["--relay", &relay]);
    let arguments = ["--via", &relay, "--blocked", "error", "--patience", "0.3"];
    site.add_replica("paris", &arguments);
    let (mut before, mut after) = (Written::new(), Written::new());
    for number in 0..3 {
        assert!(write(&site, &mut before, &format!("/{number}"), number));
    }
    eventually("what there is room for", || shows(&site, "paris", &before));
    for number in 3..30 {
        assert!(write(&site, &mut after, &format!("/{number}"), number));
    }
    let told = || site.told("relay", "full");
    eventually_within(Duration::from_secs(120), "a full disk", || !told().is_empty());
    // Each file of the earlier state is whole, at both.
    for name in ["relay", "paris"] {
        for (path, (body, _)) in &before {
            let answer = site.get(name, path);
            let is_whole = answer.status == 200 && answer.body == *body;
            assert!(is_whole || answer.status == 503, "{path} at {name}: {}", answer.head);
        }
    }
    disk.grow(96);
    for name in ["relay", "paris"] {
        let has_all = || shows(&site, name, &before) && shows(&site, name, &after);
        eventually_within(Duration::from_secs(120), "all of it", has_all);
    }
    assert_eq!(told().len(), 1);
}

#[test]
fn writes_to_watched_folder_wait_for_room_at_origin() {
    needs!(root(), command("mount"), command("cp"));
    let mut site = Site::new(&["paris"], &[]);
    site.origin = None;
    let disk = SmallDisk::under(&site, "origin", 8);
    let folder = site.path("watched");
    fs::create_dir(&folder).unwrap();
    site.start_origin_with(&["--watch", &folder]);
    // As many megabytes as exist, and ten more.
    let numbers = || (0..12).map(|number| 3 * number + 2);
    for number in numbers() {
        fs::write(format!("{folder}/{number}"), body(number)).unwrap();
    }
    for event in ["full", "waits"] {
        eventually(event, || !site.told("origin", event).is_empty());
    }
    disk.grow(96);
    let is_there = |number: usize| site.get("paris", &format!("/{number}")).body == body(number);
    eventually_within(Duration::from_secs(120), "all of it", || numbers().all(is_there));
    assert_eq!(site.told("origin", "full").len(), 1);
}
