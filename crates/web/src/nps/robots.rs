//! The site's robots.txt, kept up to date.

use std::time::Duration;

use tokio::time::sleep;

use super::Shared;
use crate::policy::Robots;
use crate::proxy::Fetcher;

/// Who asks.
pub(super) const AGENT: &str = "lull/0.1 (reverse proxy of this site)";

/// RFC 9309 §2.4: not used for longer than a day. A site that changes its mind waits this long.
const EVERY: Duration = Duration::from_secs(3600);
/// After a failure it is asked again: soon at first, as a server that is being started, then less
/// and less often.
const AGAIN: Duration = Duration::from_millis(500);
const AGAIN_AT_MOST: Duration = Duration::from_secs(60);
/// What is read of it: RFC 9309 §2.5 has half a MiB at least.
const LONGEST: usize = 512 << 10;
/// RFC 9309 §2.3.1.2: five redirects at least; ours stay within the site.
const REDIRECTS: usize = 5;

/// Asks for robots.txt now, and again and again. While it cannot be read nothing is fetched ahead
/// (RFC 9309 §2.3.1.4).
pub(super) async fn keep(shared: &Shared, mut fetcher: Fetcher) {
    let mut again = AGAIN;
    loop {
        let found = ask(&mut fetcher).await;
        let is_known = found.is_some();
        shared.policy().set_robots(found.unwrap_or_default());
        if is_known {
            again = AGAIN;
            sleep(EVERY).await;
        } else {
            sleep(again).await;
            again = (again * 2).min(AGAIN_AT_MOST);
        }
    }
}

/// What robots.txt says; `None` if the server cannot tell.
async fn ask(fetcher: &mut Fetcher) -> Option<Robots> {
    let mut path = "/robots.txt".to_owned();
    for _ in 0..=REDIRECTS {
        let fetched = fetcher.get(&path, AGENT, LONGEST).await.ok()?;
        match fetched.status.as_u16() {
            status @ 200..=299 => return Some(Robots::fetched(status, &fetched.body)),
            status @ 400..=499 => return Some(Robots::fetched(status, b"")),
            300..=399 => {
                let location = fetched.headers.get(http::header::LOCATION)?.to_str().ok()?;
                // Elsewhere other rules hold, and none of them are the site's.
                path = location.strip_prefix('/').filter(|rest| !rest.starts_with('/'))?.into();
                path.insert(0, '/');
            }
            _ => return None,
        }
    }
    None
}
