//! A server with one page from a file, and another one made by a program that loads the server.

use super::*;

/// The time of the program without load.
const USUAL: Duration = Duration::from_millis(20);

#[test]
fn slow_page_throttles_while_the_most_popular_is_fast() {
    let load: Arc<AtomicU64> = Arc::default();
    let slow = Arc::clone(&load);
    let address = upstream(move |mut peer| {
        while let Some(head) = peer.head() {
            match head.split(' ').nth(1).unwrap() {
                "/robots.txt" => {
                    peer.send("HTTP/1.1 404 None\r\nContent-Length: 0\r\n\r\n");
                    continue;
                }
                "/app" => {
                    let load = Duration::from_millis(slow.load(Ordering::Relaxed));
                    thread::sleep(USUAL + load);
                }
                _ => {}
            }
            peer.send(format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\r\n{PAGE}",
                PAGE.len()
            ));
        }
    });
    // No objects are configured.
    let parameters = Parameters { document: 3, ..Parameters::shipped(1) };
    let monitor = MonitorSettings { objects: Vec::new(), parameters: Some(parameters) };
    let settings = Settings { monitor, ..Settings::default() };
    let site = site_before(address, settings, |settings, save| {
        Nps::new(settings, empty_model(), Some(save))
    });
    site.go(1..25, &["/", "/b", "/", "/app"]);
    site.list(99, "/", &[]);
    load.store(400, Ordering::Relaxed);
    let begun = Instant::now();
    let mut dry = 0;
    for visitor in 0.. {
        if dry >= 20 {
            break;
        }
        let is_empty = site.ask(100 + visitor % 100, "/", &[], false)["hints"] == json!([]);
        dry = if is_empty { dry + 1 } else { 0 };
        assert!(begun.elapsed() < 2 * LIMIT, "there are still lists");
        thread::sleep(Duration::from_millis(100));
    }
}

/// Twenty answers of 150 ms at a hundredth of the time would take four minutes.
#[test]
fn site_of_slow_pages_gets_a_list_within_a_minute() {
    let site = site_with(learning(), empty_model());
    site.delay.store(150, Ordering::Relaxed);
    site.go(1..25, &["/a", "/b"]);
    assert_eq!(site.list(30, "/a", &[]), ["/b"]);
    // From then on it probes as rarely as usual.
    let before = site.asked("/probe");
    for visitor in 40..60 {
        site.ask(visitor, "/a", &[], false);
        thread::sleep(Duration::from_millis(100));
    }
    assert!(site.asked("/probe") - before < 10, "{before} {}", site.asked("/probe"));
}
