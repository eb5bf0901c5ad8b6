//! Names of copies, and which navigation is shown a copy of a service worker.
//!
//! A service worker sees no cookies, so it never decides by itself. The browser sends the navigation to the
//! proxy while it wakes the worker (navigation preload), as it would without one: with the visitor's cookies,
//! and with the names of the stored copies. The proxy has given these names. A name contains the URL, the
//! age, and a proof that the proxy made it. So nothing is stored here for a copy, and a forged name is
//! invalid.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use http::header::{CACHE_CONTROL, HeaderName, PRAGMA, RANGE};
use http::{HeaderMap, request};
use lull_cc::Timestamp;

use super::fields;
use super::freshness::MAX_TTL;
use super::recent::{Client, RecentClients};

/// The name of a copy: in the reply to a prefetch, that of its contents; in the reply to a navigation, that
/// of the copy to show.
pub const COPY: HeaderName = HeaderName::from_static("x-lull-copy");
/// In the reply to a navigation: that the service worker is still wanted.
pub const STAYS: HeaderName = HeaderName::from_static("x-lull-worker");
/// The field in which browsers report that a service worker is starting, with the value that the worker has
/// set: its copies.
const PRELOAD: HeaderName = HeaderName::from_static("service-worker-navigation-preload");
/// The prefix of our worker's field; another one is the site's.
const OWN_PREFIX: &str = "lull";
/// More names than the worker keeps are not read.
const MAX_NAMES: usize = 32;

/// Removes Lull's service worker value from a request; `None` if there is none.
pub fn take_names(headers: &mut HeaderMap) -> Option<String> {
    let said = fields::single(headers, PRELOAD)?;
    let names = said.strip_prefix(OWN_PREFIX)?;
    if !names.is_empty() && !names.starts_with(' ') {
        return None;
    }
    let names = names.trim().to_owned();
    headers.remove(PRELOAD);
    Some(names)
}

/// Whether a request has a field of our service worker.
pub fn has_names(headers: &HeaderMap) -> bool {
    fields::single(headers, PRELOAD)
        .and_then(|said| said.strip_prefix(OWN_PREFIX))
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}

/// Whether a navigation accepts an earlier response: neither a reload nor a part.
pub(super) fn takes_copies(head: &request::Parts) -> bool {
    ![CACHE_CONTROL, PRAGMA, RANGE].iter().any(|name| head.headers.contains_key(name))
}

/// Names copies, and recognises them until the process ends.
#[derive(Debug)]
pub(super) struct Copies {
    key: RandomState,
    /// Clients whose copies the site had cleared (`Clear-Site-Data`), for as long as one of their copies may
    /// live.
    cleared: RecentClients,
}

impl Default for Copies {
    fn default() -> Self {
        Copies { key: RandomState::new(), cleared: RecentClients::kept_for(MAX_TTL) }
    }
}

impl Copies {
    /// The name of a copy of `url`, as the request has it, that was requested then and lives for `ttl` from
    /// then on.
    pub(super) fn name(&self, url: &str, ttl: Duration, now: Timestamp) -> String {
        let (born, ttl) = (micros(now), u64::try_from(ttl.as_micros()).unwrap_or(u64::MAX));
        format!("{born:x}-{ttl:x}-{:016x}", self.check(url, born, ttl))
    }

    /// Notes that the site has cleared this client's copies.
    pub(super) fn clear(&mut self, client: Client, now: Timestamp) {
        self.cleared.record(client, now);
    }

    /// How long the copy of `url` with that name still lives, in whole seconds as browsers count them. `None`
    /// if it has expired, or the name is not that of such a copy.
    pub(super) fn left(&self, name: &str, url: &str, now: Timestamp) -> Option<Duration> {
        self.ttl_left(name, url, None, now).filter(|left| left.as_secs() > 0)
    }

    /// The first of `names` that belongs to `url` and may be shown to an anonymous user of this client.
    pub(super) fn find<'a>(
        &self,
        names: &'a str,
        url: &str,
        client: Client,
        now: Timestamp,
    ) -> Option<&'a str> {
        let cleared = self.cleared.last(client, now).map(micros);
        let may_show = |name: &&str| {
            let left = self.ttl_left(name, url, cleared, now);
            left.is_some_and(|left| !left.is_zero())
        };
        names.split(' ').take(MAX_NAMES).find(may_show)
    }

    /// `None` if the name is not that of a copy of `url`, or of one from before the copies were cleared.
    fn ttl_left(
        &self,
        name: &str,
        url: &str,
        cleared: Option<u64>,
        now: Timestamp,
    ) -> Option<Duration> {
        let mut parts = name.split('-').map(|part| u64::from_str_radix(part, 16).ok());
        let (born, ttl, check) = (parts.next()??, parts.next()??, parts.next()??);
        if parts.next().is_some() || check != self.check(url, born, ttl) {
            return None;
        }
        if cleared.is_some_and(|cleared| born <= cleared) {
            return None;
        }
        let ttl = Duration::from_micros(ttl).min(MAX_TTL);
        Some(ttl.saturating_sub(Duration::from_micros(micros(now).checked_sub(born)?)))
    }

    fn check(&self, url: &str, born: u64, ttl: u64) -> u64 {
        self.key.hash_one((url, born, ttl))
    }
}

fn micros(now: Timestamp) -> u64 {
    now.saturating_since(Timestamp::ZERO).as_micros().try_into().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn copy_is_found_by_name_and_url_until_it_expires() {
        let copies = Copies::default();
        let name = copies.name("/b?x=1", Duration::from_secs(200), at(10));
        let other = copies.name("/c", Duration::from_secs(200), at(10));
        let names = format!("{other} {name}");
        let find = |url: &str, now| copies.find(&names, url, Client(1), at(now)).map(str::to_owned);
        for (url, now, expected) in [
            ("/b?x=1", 10, true),
            ("/b?x=1", 209, true),
            ("/b?x=1", 210, false),
            ("/b", 11, false),
            ("/b?x=2", 11, false),
            // From before the start of the proxy.
            ("/b?x=1", 9, false),
        ] {
            assert_eq!(find(url, now), expected.then(|| name.clone()), "{url} {now}");
            let left = copies.left(&name, url, at(now));
            assert_eq!(left, expected.then(|| Duration::from_secs(210 - now)), "{url} {now}");
        }
        assert_eq!(find("/c", 11), Some(other.clone()));
    }

    #[test]
    fn forged_copy_name_is_rejected() {
        let copies = Copies::default();
        let name = copies.name("/b", Duration::from_secs(60), at(10));
        let longer = name.replacen("-3938700-", "-3938701-", 1);
        assert_ne!(name, longer);
        let of_another = Copies::default().name("/b", Duration::from_secs(60), at(10));
        for name in [longer.as_str(), &of_another, "", "-", "--", "1-2-3", "x-y-z", &name[1..]] {
            let found = copies.find(name, "/b", Client(1), at(11));
            assert_eq!(found, None, "{name}");
        }
    }

    #[test]
    fn cleared_copy_is_not_shown_to_its_client() {
        let mut copies = Copies::default();
        let hour = Duration::from_secs(3600);
        let name = copies.name("/b", hour, at(10));
        copies.clear(Client(1), at(11));
        let find = |client, now| copies.find(&name, "/b", Client(client), at(now)).is_some();
        assert!(!find(1, 12) && find(2, 12));
        // Whatever lifetime a copy claims, it ends before the note does.
        assert!(!find(1, 310) && !find(2, 310) && !find(1, 320));
    }

    #[test]
    fn preload_field_of_another_worker_passes_unchanged() {
        for (said, expected) in [
            ("lull", Some("")),
            ("lull 1-2-3 4-5-6", Some("1-2-3 4-5-6")),
            ("true", None),
            ("lullaby", None),
            ("1-2-3", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(PRELOAD, HeaderValue::from_static(said));
            assert_eq!(has_names(&headers), expected.is_some(), "{said}");
            assert_eq!(take_names(&mut headers).as_deref(), expected, "{said}");
            assert_eq!(headers.contains_key(PRELOAD), expected.is_none(), "{said}");
        }
    }
}
