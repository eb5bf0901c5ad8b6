//! The site's robots.txt, kept up to date.

use std::sync::atomic::Ordering;
use std::time::Duration;

use http::header::{HeaderValue, LOCATION};
use http::{StatusCode, Uri};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::notices::Notices;
use super::site_rules::SiteRules;
use crate::policy::Robots;
use crate::proxy::{Codings, Event, Failure, Fetcher};

/// The user agent of the request.
pub(super) const AGENT: &str = "lull/0.1 (reverse proxy of this site)";

/// RFC 9309 §2.4: not used for longer than a day. A site with a change waits this long, or reports it.
const EVERY: Duration = Duration::from_secs(3600);
/// Pauses after failures: short at first, for a server that is being started, then longer and longer.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(60);
/// Number of failures in a row after which the owner gets a notice.
const FAILURES: u32 = 3;
/// The maximum number of bytes read of it: RFC 9309 §2.5 requires half a MiB at least.
const MAX_FILE_BYTES: usize = 512 << 10;
/// RFC 9309 §2.3.1.2: five redirects at least; here they stay within the site.
const REDIRECTS: usize = 5;

/// Why the content of robots.txt is unknown.
#[derive(Debug, thiserror::Error)]
enum Unknown {
    #[error("{0}")]
    NoAnswer(Failure),
    #[error("the server answers {0} to /robots.txt for the name {1}: name the site by --site")]
    Status(StatusCode, String),
    #[error("it redirects to {0}, but the site is {1}: name the site by --site")]
    Elsewhere(String, String),
    #[error("too many redirects: serve /robots.txt without redirects, or name the site by --site")]
    Redirects,
}

/// Requests robots.txt now, and repeatedly. While it cannot be read nothing is prefetched (RFC 9309
/// §2.3.1.4).
pub(super) async fn refresh(
    rules: &SiteRules,
    again_at_once: &Notify,
    notices: &Notices,
    mut fetcher: Fetcher,
) {
    let (mut again, mut failures, mut is_told) = (RETRY_PAUSE, 0_u32, false);
    loop {
        let found = ask(&mut fetcher).await;
        notices.set_robots_trouble(found.as_ref().err().map(Unknown::to_string));
        match found {
            Ok(robots) => {
                rules.policy().set_robots(robots);
                (again, failures, is_told) = (RETRY_PAUSE, 0, false);
                wait(again_at_once, EVERY).await;
            }
            Err(why) => {
                rules.policy().set_robots(Robots::default());
                failures = failures.saturating_add(1);
                if failures >= FAILURES && !is_told && !is_reported_elsewhere(&why) {
                    is_told = true;
                    notices.report(&Event::RobotsUnknown { why: why.to_string() });
                }
                wait(again_at_once, again).await;
                again = (again * 2).min(MAX_RETRY_PAUSE);
            }
        }
    }
}

/// Waits this long, or until the owner has changed the file.
async fn wait(again_at_once: &Notify, time: Duration) {
    let _ = timeout(time, again_at_once.notified()).await;
}

/// Whether another event reports it to the owner.
fn is_reported_elsewhere(why: &Unknown) -> bool {
    matches!(why, Unknown::NoAnswer(Failure::Unreachable | Failure::ConnectTimeout))
}

/// The rules of robots.txt.
async fn ask(fetcher: &mut Fetcher) -> Result<Robots, Unknown> {
    let text = |name: &HeaderValue| String::from_utf8_lossy(name.as_bytes()).into_owned();
    // With another name than the site's, if the upstream must get one.
    let (host, site) = (text(fetcher.host()), text(fetcher.site()));
    let mut path = "/robots.txt".to_owned();
    for _ in 0..=REDIRECTS {
        let fetched = fetcher
            .get(&path, AGENT, Codings::Identity, MAX_FILE_BYTES)
            .await
            .map_err(Unknown::NoAnswer)?;
        let status = fetched.status;
        if !status.is_redirection() {
            let robots = Robots::fetched(status.as_u16(), &fetched.body);
            return if robots.is_known() { Ok(robots) } else { Err(Unknown::Status(status, host)) };
        }
        let location = fetched.headers.get(LOCATION).and_then(|location| location.to_str().ok());
        let location = location.unwrap_or("nowhere");
        // Other hosts have other rules.
        let Some((to, is_secure)) = led(location, &site) else {
            return Err(Unknown::Elsewhere(location.chars().take(200).collect(), site));
        };
        path = to;
        if let Some(is_secure) = is_secure {
            // If TLS ends in front of the proxy, this informs it of HTTPS.
            fetcher.secure().store(is_secure, Ordering::Relaxed);
        }
    }
    Err(Unknown::Redirects)
}

/// The target of a redirect within the site called `host`, and whether it uses HTTPS, if it says so.
fn led(location: &str, host: &str) -> Option<(String, Option<bool>)> {
    if location.starts_with('/') && !location.starts_with("//") {
        return Some((location.to_owned(), None));
    }
    let to: Uri = location.parse().ok()?;
    let is_secure = match to.scheme_str()? {
        "https" => true,
        "http" => false,
        _ => return None,
    };
    // One side may name a port that the other leaves out.
    let bare = |host: &str| {
        let port = [":443", ":80"].into_iter().find_map(|port| host.strip_suffix(port));
        port.unwrap_or(host).to_ascii_lowercase()
    };
    let is_here = bare(to.authority()?.as_str()) == bare(host);
    let path = to.path_and_query().map_or("/", |path| path.as_str());
    is_here.then(|| (path.to_owned(), Some(is_secure)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn robots_redirect_is_followed_within_the_site() {
        for (location, expected) in [
            ("/robots", Some(("/robots", None))),
            ("https://www.site.example/robots.txt", Some(("/robots.txt", Some(true)))),
            ("https://WWW.site.example:443/robots.txt", Some(("/robots.txt", Some(true)))),
            ("http://www.site.example:80/r?a", Some(("/r?a", Some(false)))),
            ("https://www.site.example", Some(("/", Some(true)))),
            ("https://site.example/robots.txt", None),
            ("https://www.site.example:8443/robots.txt", None),
            ("https://ann@www.site.example/robots.txt", None),
            ("//www.site.example/robots.txt", None),
            ("ftp://www.site.example/robots.txt", None),
            ("robots", None),
            ("", None),
        ] {
            let expected = expected.map(|(path, secure)| (path.to_owned(), secure));
            assert_eq!(led(location, "www.site.example"), expected, "{location}");
        }
        assert!(led("https://127.0.0.1:8080/x", "127.0.0.1:8080").is_some());
    }
}
