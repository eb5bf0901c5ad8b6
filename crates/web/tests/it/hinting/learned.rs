//! Knowledge from comparing pages: the cookies and the URLs that change them.

use std::sync::atomic::AtomicBool;

use super::*;

/// A site whose pages are dark for visitors with `theme=dark` while `has_themes`, and show the number of
/// votes.
struct Compared {
    site: Site,
    has_themes: Arc<AtomicBool>,
}

impl Compared {
    fn start() -> Self {
        let has_themes: Arc<AtomicBool> = Arc::default();
        let votes = AtomicU64::new(0);
        let themes = Arc::clone(&has_themes);
        let address = upstream(move |mut peer| {
            while let Some(head) = peer.head() {
                let path = head.split(' ').nth(1).unwrap().to_owned();
                if path == "/robots.txt" {
                    peer.send("HTTP/1.1 404 None\r\nContent-Length: 0\r\n\r\n");
                    continue;
                }
                if path == "/choose/5" {
                    votes.fetch_add(1, Ordering::Relaxed);
                }
                let is_dark = header(&head, "cookie").is_some_and(|all| all.contains("theme=dark"));
                let theme =
                    if is_dark && themes.load(Ordering::Relaxed) { "dark" } else { "light" };
                let votes = if path == "/poll" { votes.load(Ordering::Relaxed) } else { 0 };
                let page = format!("{PAGE}{path} {theme} {votes}");
                peer.send(format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\r\n{page}",
                    page.len()
                ));
            }
        });
        let settings = Settings { monitor: quick(), ..Settings::default() };
        let site = site_before(address, settings, |settings, save| {
            Nps::new(settings, empty_model(), Some(save))
        });
        Compared { site, has_themes }
    }

    fn with_theme(&self, visitor: u32, page: u32) -> bool {
        let cookie = "Cookie: _ga=1; theme=dark\r\n";
        let answer = self.site.visit_with(visitor, &format!("/page/{page}"), cookie);
        answer.text().contains("<script")
    }

    fn all_read(&self) {
        for page in 0..6 {
            for visitor in [1, 2] {
                self.site.visit(visitor, &format!("/page/{page}"));
            }
            for visitor in 10..16 {
                self.with_theme(visitor, page);
            }
        }
    }
}

#[test]
fn cookie_that_changes_no_page_is_accepted_until_one_differs() {
    let compared = Compared::start();
    compared.site.visit(1, "/page/0");
    assert!(!compared.with_theme(10, 0));
    compared.all_read();
    assert!(compared.with_theme(20, 1));
    // A value that was not seen is as unknown as any cookie.
    let other = "Cookie: theme=light\r\n";
    assert!(!compared.site.visit_with(21, "/page/1", other).text().contains("<script"));
    // The site begins to have themes: one page is enough.
    compared.has_themes.store(true, Ordering::Relaxed);
    compared.with_theme(22, 3);
    assert!(!compared.with_theme(23, 1));
    compared.site.visit(1, "/page/3");
    compared.has_themes.store(false, Ordering::Relaxed);
    compared.all_read();
    assert!(!compared.with_theme(24, 1));
}

#[test]
fn session_cookie_is_not_accepted_despite_equal_pages() {
    let compared = Compared::start();
    for round in 0..3 {
        compared.all_read();
        for page in 0..6 {
            for visitor in 10..16 {
                let cookie = "Cookie: theme=dark; session=abc\r\n";
                let answer = compared.site.visit_with(visitor, &format!("/page/{page}"), cookie);
                assert!(!answer.text().contains("<script"), "{round}");
            }
        }
    }
}

/// The link leads to the stub, which is never prefetched, and the visit is to the page behind it.
#[test]
fn page_after_a_stub_is_hinted_with_the_url_of_the_stub() {
    let address = upstream(|mut peer| {
        while let Some(head) = peer.head() {
            let path = head.split(' ').nth(1).unwrap();
            let reply = match path {
                "/robots.txt" => "HTTP/1.1 404 None\r\nContent-Length: 0\r\n\r\n".to_owned(),
                "/moved" => {
                    "HTTP/1.1 302 Found\r\nLocation: /new\r\nContent-Length: 0\r\n\r\n".to_owned()
                }
                path => {
                    let refresh = "<meta http-equiv=refresh content='0; url=/target'>";
                    let page = if path == "/stub" {
                        PAGE.replace("<title>", &format!("{refresh}<title>"))
                    } else {
                        PAGE.to_owned()
                    };
                    format!(
                        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\r\n{page}",
                        page.len()
                    )
                }
            };
            peer.send(reply);
        }
    });
    let settings = Settings { monitor: quick(), ..Settings::default() };
    let site = site_before(address, settings, |settings, save| {
        Nps::new(settings, empty_model(), Some(save))
    });
    for visitor in 1..25 {
        site.visit(visitor, "/index");
        site.visit(visitor, "/stub");
        site.visit_with(visitor, "/target", "Referer: http://site.example/stub\r\n");
        site.visit(visitor, "/index");
        assert_eq!(site.get(visitor, "/moved", "").status(), 302);
        site.visit(visitor, "/new");
    }
    let hints = site.hints(99, "/index", &[]);
    let by =
        |url: &str| hints.iter().find(|hint| hint["url"] == url).map(|hint| hint["by"].clone());
    assert_eq!(by("/target"), Some(json!("/stub")), "{hints:?}");
    assert_eq!(by("/new"), Some(json!("/moved")), "{hints:?}");
    assert_eq!((by("/stub"), by("/moved")), (None, None), "{hints:?}");
}

#[test]
fn url_whose_get_changes_another_page_is_never_hinted() {
    let site = Compared::start().site;
    for visitor in 1..25 {
        for page in ["/start", "/poll", "/choose/5", "/poll", "/about", "/poll"] {
            site.visit(visitor, page);
        }
    }
    let list = site.list(99, "/poll", &[]);
    assert!(list.contains(&"/about".to_owned()), "{list:?}");
    assert!(!list.contains(&"/choose/5".to_owned()), "{list:?}");
    // Nor is it prefetched for a manual request.
    assert_eq!(site.get(99, "/choose/5", "X-Lull: 1\r\n").status(), 204);
    assert_eq!(site.get(99, "/about", "X-Lull: 1\r\n").status(), 200);
}
