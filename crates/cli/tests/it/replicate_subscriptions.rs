//! Replicas that subscribe to some files, as processes.

use std::fs;

use crate::site::Site;
use crate::support::{eventually, finish, lull};

#[test]
fn bytes_outside_the_subscription_are_not_in_transit() {
    // It is connected before the first publication.
    let mut site = Site::new(&["paris"], &["--only", "docs/**", "--only", "dosc/**"]);
    eventually("a connection", || site.status("paris")["connected"] == true);
    let source = site.folder.path().join("source");
    for (name, size) in [("docs/a", 1_000), ("large/b", 300_000)] {
        let path = source.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, vec![b'x'; size]).unwrap();
    }
    assert!(site.told("paris", "unmatched").is_empty(), "nothing is known about the files");
    site.publish(&source, &["--wait", "paris"]);
    eventually("the report", || {
        site.status("origin")["replicas"][0]["unsubscribed_bytes"] == 300_000
    });
    for name in ["paris", "origin"] {
        let text = finish(&mut lull(&["status", &site.path(name)])).ok();
        assert!(text.contains("300000 bytes are not subscribed to"), "{text}");
        assert!(!text.contains("in transit"), "{text}");
    }
    let text = finish(&mut lull(&["status", &site.path("origin")])).ok();
    assert!(text.contains("has 100.0 % of the subscribed bytes"), "{text}");
    eventually("the warning", || !site.told("paris", "unmatched").is_empty());
    // Once, and not after the next publication or connection.
    fs::write(source.join("docs/c"), b"more").unwrap();
    site.publish(&source, &["--wait", "paris"]);
    site.origin = None;
    site.start_origin();
    eventually("a connection", || {
        !site.told("paris", "disconnected").is_empty() && site.status("paris")["connected"] == true
    });
    site.publish(&source, &["--wait", "paris"]);
    let told = site.told("paris", "unmatched");
    assert!(told.len() == 1 && told[0].contains("--only dosc/**"), "{told:?}");
}

#[test]
fn metered_replica_receives_only_what_is_read() {
    let site = Site::new(&["paris"], &["--metered"]);
    eventually("a connection", || site.status("paris")["connected"] == true);
    let source = site.folder.path().join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("read"), vec![b'r'; 200_000]).unwrap();
    fs::write(source.join("unread"), vec![b'u'; 300_000]).unwrap();
    site.publish(&source, &["--wait", "paris"]);
    assert_eq!(site.get("paris", "/read").body, [b'r'; 200_000]);
    let saved = |name: &str| match name {
        "paris" => site.status("paris"),
        _ => site.status("origin")["replicas"][0].clone(),
    };
    for name in ["paris", "origin"] {
        eventually("the report", || saved(name)["saved_bytes"] == 300_000);
        assert_eq!(saved(name)["metered"], true);
        assert_eq!(saved(name)["speculative_bytes"], 0, "no body was pushed");
        let text = finish(&mut lull(&["status", &site.path(name)])).ok();
        assert!(text.contains("the link is metered, files come when they are read"), "{text}");
        assert!(text.contains("300000 bytes were not transferred"), "{text}");
        assert!(!text.contains("in transit") && !text.contains("--only"), "{text}");
    }
    assert!(site.told("paris", "unmatched").is_empty());
    // It shows the next state at once, although it has no body of it.
    fs::write(source.join("unread"), b"new").unwrap();
    site.publish(&source, &["--wait", "paris"]);
    assert_eq!(site.get("paris", "/unread").body, b"new");
}

#[test]
fn file_is_pushed_over_a_priced_link_once_it_is_read_often() {
    // A read of 100 kB.
    let site = Site::new(&["paris"], &["--price-per-gb", "10000", "--delta", "2"]);
    eventually("a connection", || site.status("paris")["connected"] == true);
    let source = site.folder.path().join("source");
    fs::create_dir(&source).unwrap();
    let write = |text: u8| {
        fs::write(source.join("read"), vec![text; 50_000]).unwrap();
        fs::write(source.join("large"), vec![text; 500_000]).unwrap();
    };
    write(b'1');
    site.publish(&source, &["--wait", "paris"]);
    assert_eq!(site.status("paris")["speculative_bytes"], 0, "there are no readers");
    for _ in 0..20 {
        assert_eq!(site.get("paris", "/read").body, [b'1'; 50_000]);
        assert_eq!(site.get("paris", "/large").body, [b'1'; 500_000]);
    }
    // The origin learns of the reads with the next message.
    let mut version = b'1';
    eventually("a pushed body", || {
        version += 1;
        write(version);
        site.publish(&source, &["--wait", "paris"]);
        site.status("paris")["speculative_bytes"] == 50_000
    });
    let status = site.status("paris");
    assert_eq!(status["reads_per_gb"], 10_000.0, "{status}");
    assert_eq!(status["saved_bytes"], 500_000, "the large one is never worth it: {status}");
    let text = finish(&mut lull(&["status", &site.path("origin")])).ok();
    assert!(text.contains("files below 10000 reads per GB come when they are read"), "{text}");
    assert_eq!(site.get("paris", "/large").body, vec![version; 500_000]);
}

#[test]
fn price_and_metered_link_need_valid_values() {
    let site = Site::new(&[], &[]);
    for (arguments, words) in [
        (&["--price-per-gb", "0"][..], "a number of reads above 0"),
        (&["--price-per-gb", "cheap"], "a number of reads above 0"),
        (&["--metered", "--only", "docs/**"], "cannot be used with"),
        (&["--metered", "--price-per-gb", "1"], "cannot be used with"),
        (&["--price-per-hour", "10"], "--link-rate"),
        (&["--link-rate", "1mbit"], "--price-per-hour"),
        (&["--only", "."], "`.` matches no file"),
    ] {
        let said = finish(lull(&["replica", "run", &site.path("none")]).args(arguments));
        assert_eq!(said.status.code(), Some(2), "{said:?}");
        assert!(said.err.contains(words), "{said:?}");
    }
}
