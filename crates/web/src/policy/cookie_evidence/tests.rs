//! Which cookies are accepted, and what revokes that.

use proptest::prelude::*;

use super::*;

/// The site: the body of each of its pages.
struct Site {
    evidence: CookieEvidence,
    learned: LearnedCookies,
    version: u64,
}

impl Site {
    fn new() -> Self {
        let learned = LearnedCookies::default();
        Site { evidence: CookieEvidence::new(learned.clone()), learned, version: 0 }
    }

    fn sees(&mut self, client: u64, page: u64, body: u64, cookies: &[(&str, &str)]) {
        let cookies: Vec<_> =
            cookies.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        self.evidence.saw(CookieSample { page, body, client: Client(client), cookies: &cookies });
    }

    /// The body of a page without cookies.
    fn body(&self, page: u64) -> u64 {
        page * 1000 + self.version
    }

    /// Two clients without cookies read all pages.
    fn is_read(&mut self) {
        for page in 0..8 {
            for client in [1, 2] {
                self.sees(client, page, self.body(page), &[]);
            }
        }
    }

    /// Six clients with these cookies get the pages that all others get.
    fn is_read_with(&mut self, cookie: impl Fn(u64) -> (&'static str, String)) {
        for client in 10..16 {
            for page in 0..8 {
                let (name, value) = cookie(client);
                self.sees(client, page, self.body(page), &[(name, &value)]);
            }
        }
    }

    fn verdict(&self, name: &str) -> Option<CookieVerdict> {
        self.evidence.figures().into_iter().find(|one| one.name == name).map(|one| one.verdict)
    }
}

fn theme(_: u64) -> (&'static str, String) {
    ("theme", "dark".to_owned())
}

#[test]
fn shared_value_is_accepted_if_pages_are_the_same() {
    let mut site = Site::new();
    site.is_read();
    assert!(!site.learned.has("theme", "dark"));
    site.is_read_with(theme);
    assert!(site.learned.has("theme", "dark"));
    assert_eq!(site.verdict("theme"), Some(CookieVerdict::Accepted));
    // Another value or another cookie was not seen.
    assert!(!site.learned.has("theme", "light") && !site.learned.has("other", "dark"));
}

#[test]
fn too_little_evidence_accepts_nothing() {
    for (clients, pages, rounds) in [(4, 8, 10), (6, 4, 10), (5, 3, 1)] {
        let mut site = Site::new();
        site.is_read();
        for client in 10..10 + clients {
            for page in 0..pages {
                for _ in 0..rounds {
                    site.sees(client, page, site.body(page), &[("theme", "dark")]);
                }
            }
        }
        assert!(!site.learned.has("theme", "dark"), "{clients} {pages} {rounds}");
    }
}

#[test]
fn value_of_one_client_is_proposed_and_never_accepted() {
    let mut site = Site::new();
    site.is_read();
    for _ in 0..50 {
        site.is_read_with(|client| ("visitor", format!("v{client}")));
    }
    assert!((10..16).all(|client| !site.learned.has("visitor", &format!("v{client}"))));
    assert_eq!(site.verdict("visitor"), Some(CookieVerdict::Proposed));
}

#[test]
fn session_cookie_is_neither_accepted_nor_proposed() {
    for name in ["PHPSESSID", "connect.sid", "logged_in", "__Host-x", "cartId", "XSRF-TOKEN"] {
        let mut site = Site::new();
        site.is_read();
        site.is_read_with(|_| (name, "1".to_owned()));
        assert!(!site.learned.has(name, "1"));
        assert_eq!(site.verdict(name), Some(CookieVerdict::Session), "{name}");
    }
    let mut site = Site::new();
    site.is_read();
    site.is_read_with(theme);
    site.evidence.is_http_only("theme");
    assert!(!site.learned.has("theme", "dark"));
    assert_eq!(site.verdict("theme"), Some(CookieVerdict::Session));
}

#[test]
fn one_different_page_revokes_the_cookie_at_once() {
    let mut site = Site::new();
    site.is_read();
    site.is_read_with(theme);
    site.sees(30, 3, 77, &[("theme", "dark")]);
    assert!(!site.learned.has("theme", "dark"));
    // The cookie was the cause: a visitor without it gets the earlier body.
    site.sees(1, 3, site.body(3), &[]);
    site.is_read_with(theme);
    assert!(!site.learned.has("theme", "dark"));
    assert_eq!(site.verdict("theme"), Some(CookieVerdict::ChangesPages));
}

#[test]
fn one_different_value_revokes_all_values() {
    let mut site = Site::new();
    site.is_read();
    site.is_read_with(theme);
    site.sees(30, 3, 77, &[("theme", "light")]);
    assert!(!site.learned.has("theme", "dark"));
}

#[test]
fn edited_page_suspends_the_cookie_for_a_moment() {
    let mut site = Site::new();
    site.is_read();
    site.is_read_with(theme);
    site.version = 1;
    site.sees(30, 3, site.body(3), &[("theme", "dark")]);
    assert!(!site.learned.has("theme", "dark"));
    site.sees(1, 3, site.body(3), &[]);
    assert!(site.learned.has("theme", "dark"));
}

#[test]
fn pages_that_differ_for_all_clients_prove_nothing() {
    let mut site = Site::new();
    let mut nonce = 0;
    for _ in 0..50 {
        for page in 0..8 {
            for (client, cookies) in [(1, &[][..]), (2, &[]), (page + 10, &[("theme", "dark")])] {
                nonce += 1;
                site.sees(client, page, nonce, cookies);
            }
        }
    }
    assert!(!site.learned.has("theme", "dark"));
    assert_eq!(site.verdict("theme"), None);
}

#[test]
fn one_client_alone_makes_no_reference() {
    let mut site = Site::new();
    for page in 0..8 {
        for _ in 0..3 {
            site.sees(1, page, site.body(page), &[]);
        }
    }
    site.is_read_with(theme);
    assert!(!site.learned.has("theme", "dark"));
}

proptest! {
    /// For all acts of visitors and all times of edits: a value that has changed a compared page is not
    /// accepted once that is known.
    #[test]
    fn cookie_that_changes_a_page_is_soon_revoked(
        steps in proptest::collection::vec((0_u64..12, 0_u64..8, 0_u8..4, 0_u8..40), 0..800),
    ) {
        let mut site = Site::new();
        for (client, page, kind, edit) in steps {
            site.version += u64::from(edit == 0);
            let body = site.body(page);
            match kind {
                0 | 1 => site.sees(client, page, body, &[]),
                // It changes only one page.
                2 => site.sees(client, page, body + u64::from(page == 7) * 500, &[("theme", "dark")]),
                _ => site.sees(client, page, body, &[("other", "x")]),
            }
        }
        site.is_read();
        site.sees(99, 7, site.body(7) + 500, &[("theme", "dark")]);
        prop_assert!(!site.learned.has("theme", "dark"));
        site.is_read();
        prop_assert_eq!(site.verdict("theme"), Some(CookieVerdict::ChangesPages));
    }

    #[test]
    fn memory_is_bounded_for_any_cookies(
        names in proptest::collection::vec(("[a-z]{1,3}", "[a-z]{1,2}"), 500),
    ) {
        let mut site = Site::new();
        site.is_read();
        for (n, (name, value)) in names.iter().enumerate() {
            site.sees(n as u64, n as u64 % 8, site.body(n as u64 % 8), &[(name, value)]);
            site.sees(n as u64, n as u64, 5, &[]);
        }
        let evidence = &site.evidence;
        prop_assert!(evidence.names.len() <= MAX_NAMES && evidence.pages.len() <= MAX_PAGES);
        prop_assert!(evidence.names.values().all(|name| name.values.len() <= MAX_VALUES));
    }
}
