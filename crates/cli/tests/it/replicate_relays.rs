//! Relays as processes: an origin, a relay, a relay below it, and replicas of both.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::site::Site;
use crate::support::{eventually, finish, lull};

/// A port that is free at the moment.
fn address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

/// Writes files: a large one among them.
fn write(source: &Path, version: &str) {
    for (name, size) in [("page", 1_000), ("docs/a", 20_000), ("large", 400_000)] {
        let path = source.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, version.repeat(size)).unwrap();
    }
}

#[test]
fn three_levels_follow_each_publication() {
    let mut site = Site::new(&[], &[]);
    let [relay, lower] = [address(), address()];
    site.add_relay("relay", &["--relay", &relay]);
    site.add_relay("lower", &["--via", &relay, "--relay", &lower]);
    site.add_replica("paris", &["--via", &relay]);
    site.add_replica("london", &["--via", &lower]);
    let source = site.folder.path().join("source");
    write(&source, "1");
    // Also for replicas that the origin does not serve.
    site.publish(&source, &["--wait", "london", "--wait", "paris"]);
    let all = ["relay", "lower", "paris", "london"];
    for name in all {
        assert!(site.get(name, "/large").body == [b'1'; 400_000], "{name}");
        for file in ["page", "docs/a"] {
            let body = fs::read(source.join(file)).unwrap();
            assert!(site.get(name, &format!("/{file}")).body == body, "{file} at {name}");
        }
        assert_eq!(site.status(name)["connected"], true, "{name}");
    }
    // Each body has left the origin once: three files and a folder.
    let status = site.status("origin");
    assert_eq!((&status["pushed"], &status["demands"]), (&4.into(), &0.into()), "{status}");
    for (name, relay) in [("lower", "relay"), ("paris", "relay"), ("london", "lower")] {
        // Reports come every two seconds.
        eventually("the figures", || {
            let text = finish(&mut lull(&["status", &site.path("origin")])).ok();
            let begin = format!("{name}: up to date below {relay}");
            text.lines().any(|line| {
                line.contains(&begin)
                    && line.contains("stale by")
                    && line.contains("has 100.0 % of the bytes")
            })
        });
    }

    // SIGKILL.
    drop(site.replicas.remove("relay"));
    eventually("the loss", || peer(&site, "london")["connected"] == false);
    write(&source, "2");
    site.publish(&source, &[]);
    eventually("the end", || site.status("paris")["connected"] == false);
    // Without a connection, the files of before are shown.
    assert!(site.get("london", "/page").body == [b'1'; 1_000]);
    site.start_replica("relay", &["--relay", &relay]);
    for name in all {
        eventually("the new files", || site.get(name, "/large").body == [b'2'; 400_000]);
        assert!(site.get(name, "/page").body == [b'2'; 1_000], "{name}");
    }
}

/// What the origin knows of a replica.
fn peer(site: &Site, name: &str) -> Value {
    let status = site.status("origin");
    let mut all = status["replicas"].as_array().unwrap().iter();
    all.find(|one| one["name"] == name).unwrap().clone()
}

#[test]
fn child_of_a_killed_relay_finds_another_parent() {
    let mut site = Site::new(&[], &[]);
    let [one, two] = [address(), address()];
    site.add_relay("one", &["--relay", &one]);
    site.add_relay("two", &["--relay", &two]);
    site.add_replica("paris", &["--via", &one, "--via", &two, "--or-origin"]);
    let source = site.folder.path().join("source");
    write(&source, "1");
    site.publish(&source, &["--wait", "paris"]);
    assert_eq!(peer(&site, "paris")["below"], "one");

    // SIGKILL, of one after the other.
    for (lost, above, version) in [("one", "two".into(), "2"), ("two", Value::Null, "3")] {
        drop(site.replicas.remove(lost));
        write(&source, version);
        site.publish(&source, &["--wait", "paris"]);
        assert_eq!(site.get("paris", "/page").body, version.repeat(1_000).into_bytes());
        assert_eq!(peer(&site, "paris")["below"], above);
        assert_eq!(site.told("paris", "refused"), Vec::<String>::new());
    }
    let told = site.told("paris", "parent");
    let addresses = [&one, &two, &site.listen];
    assert_eq!(told, addresses.map(|address| format!("trying {address}")));
}

#[test]
fn revoked_replica_is_refused_by_the_relay() {
    let mut site = Site::new(&[], &[]);
    let relay = address();
    site.add_relay("relay", &["--relay", &relay]);
    site.add_replica("paris", &["--via", &relay]);
    eventually("a connection", || site.status("paris")["connected"] == true);
    drop(site.replicas.remove("paris"));
    finish(&mut lull(&["origin", "revoke", &site.path("origin"), "paris"])).ok();
    site.start_replica("paris", &["--via", &relay]);
    eventually("the refusal", || !site.told("paris", "refused").is_empty());
    assert!(site.told("paris", "refused")[0].contains("revoked"));
}

#[test]
fn relay_needs_its_ticket_and_a_parent_above() {
    let mut site = Site::new(&["paris"], &[]);
    drop(site.replicas.remove("paris"));
    let run = ["replica", "run", &site.path("paris"), "--relay", "127.0.0.1:0"];
    finish(&mut lull(&run)).fails(1, "lull origin ticket DIR NAME --relay");
    // The origin is no relay.
    let origin = site.listen.clone();
    site.start_replica("paris", &["--via", &origin]);
    thread::sleep(Duration::from_millis(500));
    assert_eq!(site.status("paris")["connected"], false);

    let [one, other] = [address(), address()];
    site.add_relay("one", &["--relay", &one, "--via", &other]);
    site.add_relay("other", &["--relay", &other, "--via", &one]);
    let is_told = |name| site.told(name, "refused").iter().any(|why| why.contains("loop"));
    eventually("the refusal", || is_told("one") || is_told("other"));
}
