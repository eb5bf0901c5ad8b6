//! Visitors over TLS, with a harmless cookie or none, at a site of which a part identifies its users: by a
//! cookie with a path, or by a password.

use tempfile::TempDir;

use super::*;

const TEXT: &str = "document.querySelector('p').innerText";

/// Cookies of an anonymous visitor.
const HARMLESS: &str = "_ga=GA1.1.1; path=/";

/// The site, the proxy, and a browser.
struct Visitor {
    nginx: Pages,
    proxy: Proxy,
    chromium: Chromium,
    _folder: TempDir,
}

impl Visitor {
    fn with(cookie: &str) -> Self {
        Visitor::of(cookie, 0, ["/b", "/app/home"])
    }

    /// At a slow site, where home is prefetched.
    fn waiting(cookie: &str) -> Self {
        Visitor::of(cookie, 100, ["/app/home"; 2])
    }

    /// `rate` is the bytes per second of prefetches from the site, 0 for no limit. Earlier visitors went from
    /// a to one of `next`.
    fn of(cookie: &str, rate: u32, next: [&str; 2]) -> Self {
        let site = "limit_rate $rate;
            location = /app/home {
                gzip off;
                add_header Cache-Control max-age=200;
                return 200 '<!doctype html><html><head><title>h</title></head><body><p>home of $who</p>$rest</body></html>';
            }
            location = /dot {
                add_header Cache-Control max-age=3600;
            }
            location = /app/in {
                add_header Set-Cookie 'session=1; Path=/app; HttpOnly; Secure';
                return 200 in;
            }
            location = /app/form {
                absolute_redirect off;
                add_header Set-Cookie 'session=1; Path=/app; HttpOnly; Secure';
                return 303 /app/home;
            }
            location = /app/password {
                auth_basic x;
                auth_basic_user_file passwords;
                try_files /b =404;
            }";
        let rest = "<!-- and so on -->".repeat(60);
        let maps = format!(
            "default_type text/html; map $cookie_session$remote_user $who {{ default ann; '' nobody; }}
             map $host $rest {{ default '{rest}'; }}
             map $http_sec_purpose $rate {{ default 0; prefetch {rate}; }}"
        );
        let nginx = Nginx::start(&maps, site);
        for name in ["a", "b", "c"] {
            let page = format!(
                "<!doctype html><html><head><title>{name}</title></head><body><p>{name}</p>\
                 <a id=home href=/app/home>home</a>\
                 <form method=post action=/app/form><button id=in>in</button></form></body></html>"
            );
            nginx.put(name, page);
        }
        nginx.put("robots.txt", "");
        nginx.put("passwords", "ann:{PLAIN}secret\n");
        let nginx = Pages(nginx);

        let folder = tempfile::tempdir().unwrap();
        let certificate = crate::common::certificate(folder.path());
        let mut chromium = Chromium::trusting(&certificate.certificates);

        let access = Access::Token("secret".into());
        let nps = Nps::new(settings(access), model_of(next), None);
        let change = |config: &mut lull_web::proxy::Config| {
            config.background = Options::new().carrier(Carrier::UserSpace);
            config.sites[0].certificate = Some(certificate);
            // The first one is for the figures.
            config.listen = ["http://127.0.0.1:0", "https://127.0.0.1:0"]
                .into_iter()
                .map(|listen| listen.parse().unwrap())
                .collect();
        };
        let proxy = proxy_with(nginx.0.address, change, Some(Arc::new(nps)));
        // From a page where nothing is prefetched.
        chromium.goto(&url(&proxy, "/c"));
        chromium.run(&format!("document.cookie = '{cookie}'"));
        Visitor { nginx, proxy, chromium, _folder: folder }
    }

    /// Goes to a page from which home is prefetched, and waits until that has arrived.
    fn get_a_copy(&mut self) {
        let page = url(&self.proxy, "/a");
        self.chromium.goto(&page);
        self.nginx.wait_for_prefetch("/app/home", &mut self.chromium, &page);
        self.nginx.wait_for_prefetch("/b", &mut self.chromium, &page);
        for path in ["/app/home", "/b"] {
            self.chromium.wait_for_copy(path);
        }
    }

    /// The text of the home page after a click, and its delivery.
    fn go_home(&mut self) -> (Value, Value) {
        self.chromium.click("#home", &url(&self.proxy, "/app/home"));
        (self.chromium.run(TEXT), self.chromium.run(DELIVERY))
    }
}

fn url(proxy: &Proxy, path: &str) -> String {
    format!("https://{}{path}", proxy.server.addresses()[1].address)
}

#[test]
fn visitor_with_harmless_cookies_uses_the_cached_copy() {
    needs!(chromium::installed(), lull_testing::command("nginx"));
    let mut visitor = Visitor::with(HARMLESS);
    visitor.get_a_copy();
    assert_eq!(visitor.go_home(), ("home of nobody".into(), "cache".into()));
    assert_eq!(visitor.nginx.asked("/app/home").len(), 1);
    assert_eq!(status(&visitor.proxy)["refused"], 0);
}

#[test]
fn user_with_a_path_cookie_is_shown_the_page_of_the_user() {
    needs!(chromium::installed(), lull_testing::command("nginx"));
    let mut visitor = Visitor::with(HARMLESS);
    // Neither the current page nor its requests below `/.lull/` carry it.
    visitor.chromium.run("document.cookie = 'session=1; path=/app; secure'");
    visitor.get_a_copy();
    // The copy was not confirmed, because that request carried the cookie.
    assert_eq!(visitor.go_home(), ("home of ann".into(), "".into()));
}

#[test]
fn cookie_set_by_a_script_shows_the_page_of_the_user() {
    needs!(chromium::installed(), lull_testing::command("nginx"));
    for cookie in ["", HARMLESS] {
        let mut visitor = Visitor::with(cookie);
        visitor.get_a_copy();
        visitor.chromium.run("document.cookie = 'session=1; path=/; secure'");
        assert_eq!(visitor.go_home(), ("home of ann".into(), "".into()), "{cookie}");
    }
}

#[test]
fn going_back_after_a_sign_in_shows_the_page_of_the_user() {
    needs!(chromium::installed(), lull_testing::command("nginx"));
    for cookie in ["", HARMLESS] {
        let mut visitor = Visitor::with(cookie);
        // Without this the browser shows the page as it was left, without a request.
        visitor.chromium.before("addEventListener('unload', () => {})");
        visitor.get_a_copy();
        assert_eq!(visitor.go_home(), ("home of nobody".into(), "cache".into()), "{cookie}");
        visitor.chromium.goto(&url(&visitor.proxy, "/c"));
        visitor.chromium.run("fetch('/app/in', {method: 'POST'}).then(reply => reply.text())");
        visitor.chromium.back();
        assert_eq!(visitor.chromium.run(TEXT), "home of ann", "{cookie}");
    }
}

#[test]
fn sign_in_keeps_the_rest_of_the_cache() {
    const ENTRIES: usize = 300;
    needs!(chromium::installed(), lull_testing::command("nginx"));
    let mut visitor = Visitor::with(HARMLESS);
    // As many at once as on a page.
    let fetch_all = format!(
        "(async () => {{
            let good = 0;
            for (let number = 0; number < {ENTRIES}; number += 20) {{
                const all = await Promise.all(Array.from({{length: 20}}, async (_, at) => {{
                    const reply = await fetch('/dot?' + (number + at));
                    return await reply.text() === 'dot';
                }}));
                good += all.filter(Boolean).length;
            }}
            return good;
        }})()"
    );
    visitor.nginx.0.put("dot", "dot");
    visitor.get_a_copy();
    assert_eq!(visitor.chromium.run(&fetch_all), ENTRIES);
    let sign_in = "fetch('/app/in', {method: 'POST'})
        .then(reply => reply.headers.get('Clear-Site-Data'))";
    assert_eq!(visitor.chromium.run(sign_in), Value::Null);
    // The log may lag behind.
    let begun = Instant::now();
    while visitor.nginx.asked("/dot").len() < ENTRIES {
        let seen = visitor.nginx.asked("/dot").len();
        assert!(begun.elapsed() < TIMEOUT, "{seen} of {ENTRIES}");
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(visitor.chromium.run(&fetch_all), ENTRIES);
    assert_eq!(visitor.go_home(), ("home of ann".into(), "".into()));
    assert_eq!(visitor.nginx.asked("/dot").len(), ENTRIES, "they are still there");
}

#[test]
fn another_harmless_cookie_costs_no_page() {
    needs!(chromium::installed(), lull_testing::command("nginx"));
    let mut visitor = Visitor::with(HARMLESS);
    visitor.get_a_copy();
    assert_eq!(status(&visitor.proxy)["renewed"], 2, "two confirmations");
    visitor.chromium.run("document.cookie = '_gid=GA1.1.2; path=/'");
    assert_eq!(visitor.go_home(), ("home of nobody".into(), "cache".into()));
    assert_eq!(visitor.nginx.asked("/app/home").len(), 1);
    // On hover before the click, and on the next page, scripts renew copies as well.
    let renewed = status(&visitor.proxy)["renewed"].as_u64();
    assert!(renewed >= Some(3), "the navigation: {renewed:?}");
}

#[test]
fn sign_in_by_fetch_shows_the_page_of_the_user() {
    needs!(chromium::installed(), lull_testing::command("nginx"));
    for before in ["", "document.cookie = 'consent=1; path=/'"] {
        let mut visitor = Visitor::with(HARMLESS);
        visitor.get_a_copy();
        visitor.chromium.run(&format!("{before};0"));
        visitor.chromium.run("fetch('/app/in', {method: 'POST'}).then(reply => reply.text())");
        assert_eq!(visitor.go_home(), ("home of ann".into(), "".into()), "{before}");
        assert_eq!(visitor.nginx.asked("/app/home").len(), 2);
    }
}

#[test]
fn sign_in_by_form_shows_the_page_of_the_user() {
    needs!(chromium::installed(), lull_testing::command("nginx"));
    for cookie in ["", HARMLESS] {
        let mut visitor = Visitor::with(cookie);
        visitor.get_a_copy();
        // Its answer sets the cookie and redirects to the page, like at most sites.
        visitor.chromium.click("#in", &url(&visitor.proxy, "/app/home"));
        let shown = (visitor.chromium.run(TEXT), visitor.chromium.run(DELIVERY));
        assert_eq!(shown, ("home of ann".into(), "".into()), "{cookie}");
        assert_eq!(visitor.nginx.asked("/app/home").len(), 2);
    }
}

#[test]
fn sign_in_during_a_prefetch_shows_the_page_of_the_user() {
    needs!(chromium::installed(), lull_testing::command("nginx"));
    for cookie in ["", HARMLESS] {
        let mut visitor = Visitor::waiting(cookie);
        visitor.chromium.goto(&url(&visitor.proxy, "/a"));
        wait_for(&visitor.proxy, "the first bytes", |status| {
            status["prefetched_bytes"].as_u64() > Some(0)
        });
        visitor.chromium.run("fetch('/app/in', {method: 'POST'}).then(reply => reply.text())");
        assert_eq!(visitor.go_home(), ("home of ann".into(), "".into()), "{cookie}");
        let asked = visitor.nginx.asked("/app/home");
        let demand = asked.iter().filter(|line| !line.contains("prefetch")).count();
        assert_eq!(demand, 1, "{cookie}: {asked:?}");
    }
}

#[test]
fn http_password_shows_the_page_of_the_user() {
    needs!(chromium::installed(), lull_testing::command("nginx"));
    for cookie in ["", HARMLESS] {
        let mut visitor = Visitor::with(cookie);
        visitor.get_a_copy();
        let status = visitor.chromium.run(
            "new Promise(done => {
                const request = new XMLHttpRequest();
                request.open('GET', '/app/password', true, 'ann', 'secret');
                request.onload = () => done(request.status);
                request.send();
            })",
        );
        assert_eq!(status, 200);
        assert_eq!(visitor.go_home(), ("home of ann".into(), "".into()), "{cookie}");
        assert_eq!(visitor.nginx.asked("/app/home").len(), 2);
    }
}
