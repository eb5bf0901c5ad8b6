//! A disk that does not answer, for example over a network.

use super::*;

#[test]
fn stalled_disk_blocks_neither_hints_nor_shutdown() {
    let (_held, never) = channel::<()>();
    let settings = Settings { monitor: quick(), ..Settings::default() };
    let site = site_by(settings, |settings, _| {
        let hangs = move |_: &[u8]| {
            let _ = never.recv();
            Ok(())
        };
        Nps::new(settings, empty_model(), Some(Box::new(hangs)))
    });
    site.go(1..25, &["/a", "/b"]);
    assert_eq!(site.list(30, "/a", &[]), ["/b"]);
    let begun = Instant::now();
    site.nps.stop();
    assert!(begun.elapsed() < LIMIT, "{:?}", begun.elapsed());
    let told = site.proxy.told(|event| matches!(event, Event::ModelUnsaved { .. }));
    assert_eq!(told, 1);
}
