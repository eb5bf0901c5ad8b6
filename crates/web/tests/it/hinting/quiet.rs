//! A site without requests for hints at the moment.

use super::*;

#[test]
fn reading_a_page_does_not_probe_the_server_each_epoch() {
    let site = site();
    site.go(1..25, &["/a", "/b"]);
    site.list(99, "/a", &[]);
    thread::sleep(Duration::from_secs(3));
    let before = site.asked("/probe");
    thread::sleep(Duration::from_secs(4));
    let reading = site.asked("/probe") - before;
    // One a second; on a slow machine also one more for a late one, over a connection whose first answer does
    // not count.
    assert!(reading <= 15, "{reading}");
    // A later client still gets hints.
    site.list(98, "/a", &[]);
}
