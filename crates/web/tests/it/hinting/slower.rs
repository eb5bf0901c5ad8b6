//! A server whose answers take longer than before: under load, or permanently.

use super::*;

#[test]
fn slowed_server_gets_no_more_prefetches() {
    let site = site();
    site.go(1..25, &["/a", "/b"]);
    site.list(99, "/a", &[]);
    site.delay.store(400, Ordering::Relaxed);
    // Halved repeatedly, down to nothing.
    site.until_there_is_none();
}

#[test]
fn slower_server_is_learned_again_on_relearn() {
    let site = site_with(learning(), empty_model());
    site.go(1..25, &["/a", "/b"]);
    site.list(99, "/a", &[]);
    site.delay.store(150, Ordering::Relaxed);
    site.until_there_is_none();

    // Logs are rotated under load, too.
    site.proxy.server.reload();
    for _ in 0..20 {
        assert_eq!(site.ask(99, "/a", &[], false)["hints"], json!([]));
        site.visit(1, "/probe");
    }

    site.proxy.server.upstream_changed();
    let begun = Instant::now();
    while site.ask(99, "/a", &[], false)["hints"] == json!([]) {
        assert!(begun.elapsed() < 2 * LIMIT, "no list comes again");
        // So it needs no requests of its own, for a hundredth of the time.
        site.visit(1, "/probe");
    }
}
