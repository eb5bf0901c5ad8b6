//! Reads that cannot be answered, with processes that redirect to each other.

use std::net::TcpListener;

use crate::site::{Daemon, Site, request};
use crate::support::eventually;

#[test]
fn mutually_blocked_replicas_report_the_reason() {
    let mut site = Site::new(&["paris", "london"], &[]);
    assert_eq!(site.put("/page", b"one").status, 200);
    for name in ["paris", "london"] {
        eventually("it is there", || site.get(name, "/page").body == b"one");
        drop(site.replicas.remove(name));
    }
    // A free port for the second one.
    let second = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let delta = ["--delta", "1", "--delta-disconnected", "1", "--patience", "0.2", "--blocked"];
    let onward = format!("http://{second}/");
    site.start_replica("paris", &[&delta[..], &[&onward]].concat());
    let first = site.addresses["paris"].clone();
    let (folder, back) = (site.path("london"), format!("http://{first}"));
    let run = ["replica", "run", &folder, "--http", &second];
    let mut london = Daemon::start(&[&run[..], &delta, &[&back]].concat());
    london.wait_for("http");
    let get = |address: &str, place: &str| request(address, "GET", place, "", b"").unwrap();
    for address in [&first, &second] {
        eventually("it is there", || get(address, "/page").body == b"one");
    }
    site.origin = None;
    for (from, to, at) in [(&first, &second, &*onward), (&second, &first, &format!("{back}/"))] {
        eventually("the reads wait", || get(from, "/page?a=b").status == 307);
        let sent = get(from, "/page?a=b");
        let place = sent.header("location").unwrap().strip_prefix(at).unwrap().to_owned();
        assert!(place.starts_with("page?a=b&lull-session="), "{place}");
        let end = get(to, &format!("/{place}"));
        assert_eq!((end.status, end.header("location")), (503, None), "{end:?}");
        assert!(end.header("retry-after").is_some(), "{end:?}");
        let said = String::from_utf8(end.body).unwrap();
        assert!(said.starts_with("the lease has expired"), "{said}");
    }
}
