//! Probes beside the scheduler, for a server that others use as well.

use lull_web::nps::Access;

use super::*;

#[test]
fn late_probes_withhold_lists_beside_the_scheduler() {
    let monitor = MonitorSettings { objects: vec!["/probe".into()], parameters: None };
    let access = Access::Token("secret".into());
    let site = site_with(Settings { monitor, access, ..Settings::default() }, empty_model());
    site.go(1..25, &["/a", "/b"]);
    // The scheduler needs no usual time.
    assert_eq!(site.list(30, "/a", &[]), ["/b"]);
    let begun = Instant::now();
    for visitor in (30..90).cycle() {
        let status = site.get(1, "/.lull/status", "Authorization: Bearer secret\r\n");
        let status: Value = serde_json::from_slice(&status.body).unwrap_or_default();
        if status["objects"][0]["threshold"].is_number() && status["paused"] == false {
            break;
        }
        assert!(begun.elapsed() < RARELY + LIMIT, "the usual time is not known: {status}");
        site.ask(visitor, "/a", &[], false);
        thread::sleep(Duration::from_millis(100));
    }
    // Only the probes are late: visitors request other pages.
    site.delay.store(2_000, Ordering::Relaxed);
    site.until_there_is_none();
    site.delay.store(0, Ordering::Relaxed);
    assert_eq!(site.list(99, "/a", &[]), ["/b"]);
}
