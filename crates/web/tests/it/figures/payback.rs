//! Lists end where visitors do not use what they prefetch.

use super::*;

/// Whether a list has something to be fetched at once.
fn fetches_at_once(list: &Value) -> bool {
    list["hints"].as_array().unwrap().iter().any(|hint| hint["pointed"] != true)
}

/// Asks as one visitor after the other until lists are, or are no longer, to be fetched at once.
#[track_caller]
fn until_fetched(site: &Site, expected: bool) {
    let begun = Instant::now();
    while fetches_at_once(&site.ask(100 + begun.elapsed().as_secs() as u32, "/a")) != expected {
        assert!(begun.elapsed() < 2 * LIMIT, "lists do not change: {}", site.status()["empty"]);
        thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn unused_prefetches_end_lists_until_a_page_is_used() {
    let site = site(Settings { access: token(), ..settings() });
    site.until_robots_are_known();
    site.go(1..25, &["/a", "/b"]);
    until_fetched(&site, true);
    // More than the 2 MB that are free, and than 8 % of what visitors have requested.
    let begun = Instant::now();
    let mut fetched = 0;
    while fetched < 5_000_000 {
        let visitor = 1 + (fetched / LENGTH) as u32 % 240;
        let answer = site.prefetch(visitor, "/b");
        fetched += if answer.status() == 200 { LENGTH } else { 0 };
        assert!(begun.elapsed() < 2 * LIMIT, "{fetched} bytes were prefetched");
    }
    until_fetched(&site, false);
    let reasons = site.status()["empty"].clone();
    assert!(reasons.as_array().unwrap().iter().any(|one| one[0] == "unused"), "{reasons}");
    // Each of these saves a tenth of a second, which is worth 2.5 MB and more.
    for visitor in 1..4 {
        site.beacon(visitor, "/b", true, 5.0);
    }
    until_fetched(&site, true);
}
