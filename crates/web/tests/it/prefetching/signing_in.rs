//! Who signs in, before and after something was fetched ahead.

use super::in_halves::UnderWay;
use super::*;

#[test]
fn a_sign_in_ends_a_prefetch_that_is_under_way() {
    let settings = Settings { trust_forwarded: true, ..Settings::default() };
    let (in_halves, go) = in_halves("text/plain");
    let site = fronted_with(settings, NO_ROBOTS, move |peer, head| {
        if head.starts_with("GET /slow ") {
            in_halves(peer);
        } else if head.starts_with("GET /sign-in ") {
            peer.send(page("Set-Cookie: session=1\r\n", PAGE));
        } else {
            peer.send(page("", PAGE));
        }
    });
    site.until_robots_are_known();
    let https = "X-Forwarded-Proto: https\r\nX-Forwarded-For: 192.0.2.7\r\n";
    let (mark, other_mark) = (site.mark("/b", https), site.mark("/slow", https));
    let slow = UnderWay::begin(&site, "/slow", &other_mark, https);

    let signed_in = site.visit("/sign-in", &format!("{https}Cookie: _ga=1\r\n"));
    assert_eq!(signed_in.header("clear-site-data"), Some("\"cache\""));
    // At once: who goes there now is given what has come by the browser, whatever it has cleared.
    slow.assert_cut_off();
    let _ = go.send(());
    // Nor does the client get another one.
    let again = site.proxy.exchange(prefetch("/b", &mark, https));
    assert_eq!(again.status(), 204);
    // Somebody else is not concerned, but for the mark, which is this one's.
    let other = https.replace("192.0.2.7", "192.0.2.8");
    assert_eq!(site.proxy.exchange(prefetch("/b", &mark, &other)).status(), 204);
    let mark = site.mark("/b", &other);
    assert_eq!(site.proxy.exchange(prefetch("/b", &mark, &other)).status(), 200);
}

#[test]
fn who_stays_signed_in_keeps_the_cache_whoever_else_is_behind_the_address() {
    let settings = Settings { trust_forwarded: true, ..Settings::default() };
    // Each reply to somebody who signs in, or is signed in, has the next session.
    let site = fronted_with(settings, NO_ROBOTS, |peer, head| {
        let session =
            header(head, "cookie").and_then(|all| all.split_once("session=")?.1.parse().ok());
        let is_asked = head.starts_with("GET /in ");
        match session.or(is_asked.then_some(1_000_000_000_000_000_u64)) {
            Some(number) => {
                peer.send(page(&format!("Set-Cookie: session={}\r\n", number + 1), PAGE));
            }
            None => peer.send(page("", PAGE)),
        }
    });
    site.until_robots_are_known();
    let https = "X-Forwarded-Proto: https\r\nX-Forwarded-For: 192.0.2.7\r\n";
    // Elsewhere nobody was given anything.
    let elsewhere = https.replace("192.0.2.7", "192.0.2.8");
    assert_eq!(site.visit("/in", &elsewhere).header("clear-site-data"), None);
    let bobs_mark = || site.visit("/b/.lull/mark", &format!("{https}Cookie: _ga=1\r\n"));
    assert_eq!(bobs_mark().status(), 200);
    let ann = |path: &str, more: &str| {
        let answer = site.visit(path, &format!("{https}Sec-Fetch-Dest: document\r\n{more}"));
        let session = answer.header("set-cookie").unwrap().to_owned();
        (answer.header("clear-site-data").is_some(), session)
    };
    let (clears, mut session) = ann("/in", "");
    assert!(clears);
    for _ in 0..3 {
        // Bob gets no mark that would be refused anyway, so there is nothing new to clear.
        assert_eq!(bobs_mark().status(), 204);
        let (clears, next) = ann("/a", &format!("Cookie: {session}\r\n"));
        assert!(!clears && next != session);
        session = next;
    }
}

#[test]
fn who_signs_in_by_http_has_the_copies_cleared() {
    let settings = Settings { trust_forwarded: true, ..Settings::default() };
    let site = fronted_with(settings, NO_ROBOTS, |peer, head| {
        if head.starts_with("GET /app/in ") && header(head, "authorization").is_none() {
            peer.send(
                "HTTP/1.1 401 Who\r\nWWW-Authenticate: Basic realm=\"x\"\r\nContent-Length: 0\r\n\r\n",
            );
        } else {
            peer.send(page("", PAGE));
        }
    });
    site.until_robots_are_known();
    let https = "X-Forwarded-Proto: https\r\nX-Forwarded-For: 192.0.2.7\r\n";
    let copy = || site.proxy.exchange(prefetch("/app/home", "1", https));
    assert_eq!((copy().status(), copy().header("vary")), (200, Some("Cookie")));
    assert_eq!(site.visit("/app/in", https).status(), 401);
    // From now on browsers may send a password there unasked.
    assert_eq!(copy().status(), 204);
    // Who was given nothing has nothing to clear.
    let other = https.replace("192.0.2.7", "192.0.2.8");
    let another = site.visit("/app/in", &format!("{other}Authorization: Basic eA==\r\n"));
    assert_eq!((another.status(), another.header("clear-site-data")), (200, None));
    let signed_in = site.visit("/app/in", &format!("{https}Authorization: Basic eA==\r\n"));
    assert_eq!(signed_in.header("clear-site-data"), Some("\"cache\""));
    let elsewhere = || site.proxy.exchange(prefetch("/elsewhere", "1", https));
    // One that was under way would bring a copy back.
    assert_eq!(elsewhere().status(), 204);
    let again = site.visit("/app/in", &format!("{https}Authorization: Basic eA==\r\n"));
    assert_eq!(again.header("clear-site-data"), None);
}

#[test]
fn a_mark_goes_by_what_a_navigation_there_would_carry() {
    let settings = Settings { trust_forwarded: true, ..Settings::default() };
    let site = fronted_with(settings, NO_ROBOTS, |peer, _| peer.send(page("", PAGE)));
    site.until_robots_are_known();
    let https = "X-Forwarded-Proto: https\r\n";
    for (more, status, begin) in [
        ("", 200, "1"),
        ("Cookie: _ga=1\r\n", 200, "2-"),
        // Of the path, so that neither the page at hand nor its question for hints had it.
        ("Cookie: _ga=1; session=1\r\n", 204, ""),
        ("Authorization: Basic eA==\r\n", 204, ""),
        ("Sec-Fetch-Site: cross-site\r\n", 204, ""),
    ] {
        let answer = site.visit("/app/home/.lull/mark", &format!("{https}{more}"));
        assert_eq!(answer.status(), status, "{more}");
        assert!(answer.text().starts_with(begin), "{more} {answer:?}");
        assert_eq!(answer.header("cache-control"), Some("no-store"), "{more}");
    }
    let without_https = site.visit("/app/home/.lull/mark", "Cookie: _ga=1\r\n");
    assert_eq!(without_https.status(), 204);

    let mark = site.mark("/app/home", https);
    let copy = site.proxy.exchange(prefetch("/app/home", &mark, https));
    assert_eq!((copy.status(), copy.header("vary")), (200, None));
    assert_eq!(copy.header("cache-control"), Some("private, max-age=60"));
    // What is asked for below the root, and below a path that ends in a slash, has two.
    for path in ["/", "/app/"] {
        let mark = site.mark(path, https);
        assert_eq!(site.proxy.exchange(prefetch(path, &mark, https)).status(), 200, "{path}");
    }
    for path in ["/app", "/app/other", "/"] {
        let refused = site.proxy.exchange(prefetch(path, &mark, https));
        assert_eq!(refused.status(), 204, "{path}");
    }
    assert_eq!(site.asked("/app/home/.lull/mark").len(), 0);
}
