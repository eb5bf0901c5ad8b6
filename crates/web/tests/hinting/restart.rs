//! What a process has found out of URLs holds for the next one.

use std::sync::atomic::AtomicBool;

use super::*;

#[test]
fn what_is_barred_for_a_day_is_so_after_a_restart() {
    let moved: Arc<AtomicBool> = Arc::default();
    let is_moved = Arc::clone(&moved);
    let address = upstream(move |mut peer| {
        while let Some(head) = peer.head() {
            let is_moved = is_moved.load(Ordering::Relaxed);
            match head.split(' ').nth(1).unwrap() {
                "/robots.txt" => peer.send("HTTP/1.1 404 None\r\nContent-Length: 0\r\n\r\n"),
                "/b" if is_moved => peer
                    .send("HTTP/1.1 302 Found\r\nLocation: /sign-in\r\nContent-Length: 0\r\n\r\n"),
                _ => peer.send(format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\r\n{PAGE}",
                    PAGE.len()
                )),
            }
        }
    });
    let kept: Arc<Mutex<Vec<u8>>> = Arc::default();
    let start = |model: Model| {
        let settings = Settings { monitor: quick(), ..Settings::default() };
        site_before(address, settings, |settings, save| {
            let (before, keep) = (kept.lock().unwrap().clone(), Arc::clone(&kept));
            Nps::new(settings, model, Some(save)).keeping_bars(
                &before,
                Box::new(move |bars| {
                    *keep.lock().unwrap() = bars.to_vec();
                    Ok(())
                }),
            )
        })
    };
    let site = start(empty_model());
    site.go(1..25, &["/a", "/b", "/a", "/c"]);
    assert!(site.list(99, "/a", &[]).contains(&"/b".into()));
    moved.store(true, Ordering::Relaxed);
    let get = "GET /b HTTP/1.1\r\nHost: site.example\r\nConnection: close\r\n\r\n";
    assert_eq!(site.proxy.exchange(get).status(), 302);
    let model = site.learned();

    // Nobody has seen there that it leads elsewhere.
    let site = start(model);
    assert_eq!(site.list(99, "/a", &[]), ["/c"]);
    assert_eq!(site.list(98, "/a", &[]), ["/c"]);
}
