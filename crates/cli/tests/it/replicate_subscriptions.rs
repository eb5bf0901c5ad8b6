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
