//! Users who sign in, before and after a prefetch.

use super::*;

/// A reply's status and headers about the copy: its lifetime, and the others.
fn said(answer: &Answer) -> (u16, Option<&str>) {
    (answer.status(), answer.header("cache-control"))
}

#[test]
fn copy_is_confirmed_with_cookies_of_anonymous_users() {
    let site = fronted(|_| page("Cache-Control: max-age=200\r\n", PAGE));
    let copy = site.prefetch("/app/home");
    assert_eq!((copy.status(), copy.header("vary")), (200, Some("Cookie")));
    let tag = copy.header("etag").unwrap();
    let asked = site.asked("/app/home").len();
    for (more, expected) in [
        ("Cookie: _ga=1\r\n", 304),
        ("", 304),
        // For the path, so that neither the current page nor its request for hints had it.
        ("Cookie: _ga=1; session=1\r\n", 204),
        ("Cookie: lull_auth=1\r\n", 204),
        ("Authorization: Basic eA==\r\n", 204),
        ("Sec-Fetch-Site: cross-site\r\n", 204),
    ] {
        let answer = site.asks_again("/app/home", "2", tag, more);
        assert_eq!(answer.status(), expected, "{more}");
        if expected == 204 {
            assert_eq!(said(&answer), (204, Some("no-store")), "the browser drops the copy");
        } else {
            let control = answer.header("cache-control").unwrap();
            assert!(control.starts_with("private, max-age="), "{control}");
            assert_eq!(answer.header("etag"), Some(tag));
        }
    }
    // URLs without a copy in the browser, and forged copies.
    assert_eq!(said(&site.proxy.exchange(prefetch("/b", "2", ""))), (204, Some("no-store")));
    assert_eq!(site.asks_again("/b", "2", tag, "").status(), 204);
    assert_eq!(site.asked("/app/home").len(), asked, "the origin hears of none of these");
    assert_eq!(site.asked("/b").len(), 0);
}

#[test]
fn navigation_uses_the_copy_while_its_user_is_anonymous() {
    let site = fronted(|head| {
        let who = if head.contains("session=") { "ann" } else { "nobody" };
        page("", &PAGE.replace("b</body>", &format!("{who}</body>")))
    });
    let copy = site.prefetch("/b");
    let tag = format!("If-None-Match: {}, \"of-the-site\"\r\n", copy.header("etag").unwrap());
    assert_eq!(site.visit("/b", &format!("{tag}Cookie: _ga=1\r\n")).status(), 304);
    assert_eq!(site.visit("/b", &tag).status(), 304);
    assert_eq!(site.asked("/b").len(), 1);
    let signed_in = site.visit("/b", &format!("{tag}Cookie: _ga=1; session=1\r\n"));
    assert_eq!(signed_in.status(), 200);
    assert!(signed_in.text().contains("ann</body>"), "{signed_in:?}");
    let reload = site.visit("/b", &format!("{tag}Cache-Control: max-age=0\r\n"));
    assert_eq!(reload.status(), 200);
    for asked in &site.asked("/b")[1..] {
        // The origin's own tags are passed on.
        assert!(header(asked, "if-none-match").unwrap().contains("of-the-site"), "{asked}");
        assert!(!asked.contains("lull-"), "{asked}");
    }
}

#[test]
fn copy_of_another_process_leads_to_the_page() {
    let site = fronted(|_| page("", PAGE));
    let tag = fronted(|_| page("", PAGE)).prefetch("/b").header("etag").unwrap().to_owned();
    assert_eq!(site.visit("/b", &format!("If-None-Match: {tag}\r\n")).status(), 200);
    assert_eq!(header(&site.asked("/b")[0], "if-none-match"), None);
    assert_eq!(site.asks_again("/b", "2", &tag, "").status(), 204);
}

#[test]
fn part_of_a_page_is_still_revalidated_by_the_origin() {
    let site = fronted(|head| {
        if header(head, "if-none-match") == Some("\"of-the-site\"") {
            return "HTTP/1.1 304 Same\r\nETag: \"of-the-site\"\r\n\r\n".to_owned();
        }
        "HTTP/1.1 200 OK\r\nContent-Type: text/css\r\nETag: \"of-the-site\"\r\nContent-Length: 1\r\n\r\nx"
            .to_owned()
    });
    let copy = site.prefetch("/a.css");
    let tag = format!("If-None-Match: {}\r\n", copy.header("etag").unwrap());
    let signed_in = site.visit("/a.css", &format!("{tag}Cookie: session=1\r\n"));
    assert_eq!((signed_in.status(), signed_in.header("etag")), (304, Some("\"of-the-site\"")));
    assert_eq!(site.asked("/a.css").len(), 2);
}

#[test]
fn reply_with_a_sign_in_passes_unchanged() {
    let settings = Settings { trust_forwarded: true, ..Settings::default() };
    let site = fronted_with(settings, NO_ROBOTS, |peer, _| {
        peer.send(page("Set-Cookie: session=0123456789abcdef; HttpOnly\r\n", PAGE));
    });
    for cookies in ["", "Cookie: _ga=1\r\n"] {
        let answer = site.visit("/in", &format!("X-Forwarded-Proto: https\r\n{cookies}"));
        assert_eq!(answer.header("set-cookie"), Some("session=0123456789abcdef; HttpOnly"));
        assert_eq!(answer.header("clear-site-data"), None, "{cookies}");
    }
}

#[test]
fn browser_is_marked_when_its_user_gives_a_password() {
    let site = fronted(|head| {
        if head.starts_with("GET /app/in ") && header(head, "authorization").is_none() {
            return "HTTP/1.1 401 Who\r\nWWW-Authenticate: Basic realm=\"x\"\r\nContent-Length: 0\r\n\r\n"
                .to_owned();
        }
        page("", PAGE)
    });
    let copy = site.prefetch("/b");
    assert_eq!(site.visit("/app/in", "").status(), 401);
    let signed_in = site.visit("/app/in", "Authorization: Basic eA==\r\n");
    let cookie = signed_in.header("set-cookie").unwrap();
    assert!(cookie.starts_with("lull_auth=1; Path=/; HttpOnly"), "{cookie}");
    assert_eq!(signed_in.header("clear-site-data"), None);
    let more = "Cookie: a=1; lull_auth=1\r\n";
    let again = site.visit("/app/in", &format!("Authorization: Basic eA==\r\n{more}"));
    assert_eq!((again.status(), again.header("set-cookie")), (200, None));
    assert_eq!(header(site.asked("/app/in").last().unwrap(), "cookie"), Some("a=1"));
    // It has no script, and no copy is shown with it.
    let tag = format!("If-None-Match: {}\r\n", copy.header("etag").unwrap());
    let page = site.visit("/b", &format!("{tag}Cookie: lull_auth=1\r\n"));
    assert_eq!(page.status(), 200);
    assert!(!page.text().contains("<script"), "{page:?}");
    assert_eq!(header(site.asked("/b").last().unwrap(), "cookie"), None);
}
