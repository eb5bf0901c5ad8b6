//! Findings of a process about URLs hold for the next one.

use std::sync::atomic::AtomicBool;

use super::*;

/// A server whose `/b` redirects once this is set.
fn moving(moved: &Arc<AtomicBool>) -> SocketAddr {
    let is_moved = Arc::clone(moved);
    upstream(move |mut peer| {
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
    })
}

const GET: &str = "GET /b HTTP/1.1\r\nHost: site.example\r\nConnection: close\r\n\r\n";

#[test]
fn bar_of_a_day_survives_a_restart() {
    let moved: Arc<AtomicBool> = Arc::default();
    let address = moving(&moved);
    let kept: Arc<Mutex<Vec<u8>>> = Arc::default();
    let start = |model: Model| {
        let settings = Settings { monitor: quick(), ..Settings::default() };
        site_before(address, settings, |settings, save| {
            let (before, keep) = (kept.lock().unwrap().clone(), Arc::clone(&kept));
            Nps::new(settings, model, Some(save)).with_saved_bars(
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
    assert_eq!(site.proxy.exchange(GET).status(), 302);
    let model = site.learned();

    // No visitor has seen there that it leads elsewhere.
    let site = start(model);
    assert_eq!(site.list(99, "/a", &[]), ["/c"]);
    assert_eq!(site.list(98, "/a", &[]), ["/c"]);
}

#[test]
fn urls_barred_during_log_import_are_persisted() {
    let kept: Arc<Mutex<Vec<u8>>> = Arc::default();
    let keep = Arc::clone(&kept);
    let learn: Learn = Box::new(|_, is_ending| {
        while !is_ending.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(10));
        }
        None
    });
    let address = moving(&Arc::new(true.into()));
    let site = site_before(address, Settings::default(), |settings, save| {
        Nps::learning(settings, learn, Some(save)).with_saved_bars(
            &[],
            Box::new(move |bars| {
                *keep.lock().unwrap() = bars.to_vec();
                Ok(())
            }),
        )
    });
    assert_eq!(site.proxy.exchange(GET).status(), 302);
    drop(site.proxy);
    site.nps.stop();
    assert!(!kept.lock().unwrap().is_empty());
}
