//! Relays as processes: an origin, a relay, a relay below it, and replicas of both.

use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::gate::{Gate, free_address};
use crate::site::Site;
use crate::support::{eventually, finish, lull};

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
    let [relay, lower] = [free_address(), free_address()];
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
    // Without a connection, the earlier files are shown.
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
fn child_of_a_killed_relay_finds_another_and_returns() {
    let mut site = Site::new(&[], &[]);
    let [one, two] = [free_address(), free_address()];
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
    let told = |site: &Site| site.told("paris", "parent");
    let addresses = [&one, &two, &site.listen];
    assert_eq!(told(&site), addresses.map(|address| format!("trying {address}")));

    // The first one is back.
    site.start_replica("one", &["--relay", &one]);
    eventually("the return", || peer(&site, "paris")["below"] == "one");
    assert_eq!(told(&site).last(), Some(&format!("trying {one}")));
    write(&source, "4");
    site.publish(&source, &["--wait", "paris"]);
    assert_eq!(site.get("paris", "/page").body, [b'4'; 1_000]);
}

#[test]
fn relay_with_wrong_bytes_is_named_and_left() {
    let mut site = Site::new(&[], &[]);
    let [one, two] = [free_address(), free_address()];
    site.add_relay("one", &["--relay", &one]);
    site.add_relay("two", &["--relay", &two]);
    let gate = Gate::open(&one, u64::MAX);
    // Behind the handshake, and what the control channel carries.
    gate.wrong_from.store(60_000, Ordering::Relaxed);
    site.add_replica("paris", &["--via", &gate.address, "--via", &two]);
    eventually("a connection", || peer(&site, "paris")["below"] == "one");
    let source = site.folder.path().join("source");
    write(&source, "1");
    site.publish(&source, &["--wait", "paris"]);
    assert!(site.get("paris", "/large").body == [b'1'; 400_000]);
    let told = site.told("paris", "wrong-bytes");
    assert!(told.len() == 1 && told[0].starts_with(&gate.address), "{told:?}");
    assert_eq!(peer(&site, "paris")["below"], "two");
}

#[test]
fn revoked_replica_is_refused_by_the_relay() {
    let mut site = Site::new(&[], &[]);
    let relay = free_address();
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

    let [one, other] = [free_address(), free_address()];
    site.add_relay("one", &["--relay", &one, "--via", &other]);
    site.add_relay("other", &["--relay", &other, "--via", &one]);
    let is_told = |name| site.told(name, "refused").iter().any(|why| why.contains("loop"));
    eventually("the refusal", || is_told("one") || is_told("other"));
}

/// The relay loses what is in its memory: of the rest, nothing comes again, at no level.
#[test]
fn killed_relay_passes_on_the_rest_while_it_arrives() {
    const LARGE: u64 = 24_000_000;
    /// Bytes in a receiver's memory that are not written, and pieces inside the gate.
    const IN_FLIGHT: u64 = (1 << 20) + 4 * 65_536;
    let received =
        |site: &Site, name: &str| site.status(name)["speculative_bytes"].as_u64().unwrap();
    let mut site = Site::new(&[], &[]);
    let gate = Gate::open(&site.listen, LARGE / 2);
    let relay = free_address();
    let of_relay = ["--relay", &relay, "--origin", &gate.address];
    site.add_relay("relay", &of_relay);
    site.add_replica("paris", &["--via", &relay]);
    eventually("the connections", || site.status("paris")["connected"] == true);
    let source = site.folder.path().join("source");
    fs::create_dir(&source).unwrap();
    let bytes: Vec<u8> = (0..LARGE / 8).flat_map(|at| (at * at).to_le_bytes()).collect();
    fs::write(source.join("large"), &bytes).unwrap();
    site.publish(&source, &[]);
    eventually("the first half", || received(&site, "paris") > LARGE / 2 - IN_FLIGHT);

    // SIGKILL.
    drop(site.replicas.remove("relay"));
    gate.each.store(LARGE / 4, Ordering::Relaxed);
    site.start_replica("relay", &of_relay);
    eventually("a part of the rest", || received(&site, "paris") > LARGE / 8 * 5);
    let status = site.status("relay");
    assert_eq!(status["valid_bytes"], 0, "the relay lacks the end: {status}");
    gate.each.store(u64::MAX, Ordering::Relaxed);
    for name in ["paris", "relay"] {
        eventually("all of it", || site.status(name)["valid_bytes"] == LARGE);
        assert!(site.get(name, "/large").body == bytes, "{name}");
    }
    let again = gate.carried.load(Ordering::Relaxed) - LARGE;
    // Hashes, TLS and the control channel take half a percent.
    assert!(again < IN_FLIGHT + LARGE / 200, "{again} bytes more left the origin");
    let again = received(&site, "paris") - LARGE;
    assert!(again <= 2 * 65_536, "{again} bytes came again from the relay");
}
