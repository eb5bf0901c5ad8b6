//! A site that nobody asks for hints at the moment.

use super::*;

/// How often the monitor asks in so many seconds.
fn asks(site: &Site, seconds: u64) -> usize {
    let before = site.asked("/probe");
    thread::sleep(Duration::from_secs(seconds));
    site.asked("/probe") - before
}

#[test]
fn who_reads_a_page_is_no_reason_to_ask_the_server_in_each_epoch() {
    let site = site();
    site.go(1..25, &["/a", "/b"]);
    site.list(99, "/a", &[]);
    let at_once = asks(&site, 1);
    thread::sleep(Duration::from_secs(2));
    // One a second, and one more for each that was late.
    let reading = asks(&site, 4);
    assert!((1..=8).contains(&reading), "{reading}");
    assert!(at_once > reading, "{at_once}, {reading}");
    // Who asks then finds it as ready as before.
    assert_ne!(site.ask(98, "/a", &[], false)["hints"], json!([]));
    let again = asks(&site, 1);
    assert!(again > reading, "{again}, {reading}");
}
