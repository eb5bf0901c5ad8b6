//! While the server's own times are being learned, nothing is prefetched.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::{LIMIT, empty_model, learning, site_with};

#[test]
fn prefetches_of_earlier_lists_are_rejected_while_learning() {
    let site = site_with(learning(), empty_model());
    site.go(1..25, &["/a", "/b"]);
    assert_eq!(site.list(99, "/a", &[]), ["/b"]);
    let prefetch =
        |visitor| site.get(visitor, "/b", "X-Lull: 1\r\n").header("x-lull").map(str::to_owned);
    assert_eq!(prefetch(30).as_deref(), Some("1"));
    site.proxy.server.upstream_changed();
    let begun = Instant::now();
    // Lists that were granted just before are still used.
    while prefetch(31).as_deref() != Some("0") {
        assert!(begun.elapsed() < LIMIT, "it is not learned again");
        assert_ne!(site.ask(98, "/a", &[], false)["wait"], json!(null));
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(site.ask(32, "/a", &[], false)["hints"], json!([]));
    // Until it is known.
    while prefetch(33).as_deref() != Some("1") {
        assert!(begun.elapsed() < 2 * LIMIT, "no prefetch passes any more");
        site.ask(97, "/a", &[], false);
        thread::sleep(Duration::from_millis(220));
    }
}
