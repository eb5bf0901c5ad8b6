//! Pages that only lead to another one, by `<meta http-equiv=refresh>` or by a redirect. They are never
//! prefetched, but a link to one counts as a link to its target.

use std::collections::HashMap;
use std::sync::Mutex;

use http::header::LOCATION;
use http::{request, response};

use super::cached_pages::own_path;
use super::lock::lock;
use crate::policy::fields;

/// Number of redirect stubs that are remembered, without those with longer URLs. Beyond that all are
/// forgotten, and learned again.
const MAX_STUBS: usize = 1024;
const MAX_URL_BYTES: usize = 1024;
/// A stub leads to a page once it has led there this many times in a row: some lead to another page each
/// time.
const ENOUGH: u32 = 2;

#[derive(Clone, Debug, Default)]
struct Stub {
    target: String,
    times: u32,
}

/// Redirect stubs by their URLs.
#[derive(Debug, Default)]
pub(super) struct RedirectStubs(Mutex<HashMap<String, Stub>>);

impl RedirectStubs {
    /// The page at `url` refreshes to another one.
    pub(super) fn refreshes(&self, url: &str) {
        let mut stubs = lock(&self.0);
        if url.len() <= MAX_URL_BYTES && !stubs.contains_key(url) {
            if stubs.len() >= MAX_STUBS {
                stubs.clear();
            }
            stubs.insert(url.to_owned(), Stub::default());
        }
    }

    /// A visitor goes to `target`, from the page at `from` if that is known.
    pub(super) fn goes_on(&self, from: Option<&str>, target: &str) {
        let Some(from) = from else { return };
        if let Some(stub) = lock(&self.0).get_mut(from)
            && target.len() <= MAX_URL_BYTES
        {
            if stub.target == target {
                stub.times = stub.times.saturating_add(1);
            } else {
                *stub = Stub { target: target.to_owned(), times: 1 };
            }
        }
    }

    /// The reply to a request: a redirect to a page of the same site leads there.
    pub(super) fn replied(&self, url: &str, request: &request::Parts, head: &response::Parts) {
        let location = fields::single(&head.headers, LOCATION);
        let Some(location) = location.filter(|_| head.status.is_redirection()) else { return };
        let target = match location.starts_with('/') && !location.starts_with("//") {
            true => Some(location.split('#').next().unwrap_or(location)),
            false => own_path(request, location),
        };
        if let Some(target) = target.filter(|target| *target != url) {
            self.refreshes(url);
            self.goes_on(Some(url), target);
        }
    }

    /// A stub that leads to `target`, if there is one.
    pub(super) fn leading_to(&self, target: &str) -> Option<String> {
        let stubs = lock(&self.0);
        let mut leading =
            stubs.iter().filter(|(_, stub)| stub.target == target && stub.times >= ENOUGH);
        // The same target each time.
        leading.by_ref().map(|(url, _)| url).min().cloned()
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};

    use super::*;

    #[test]
    fn stub_stands_for_its_page_after_two_visits_in_a_row() {
        let stubs = RedirectStubs::default();
        stubs.goes_on(Some("/stub"), "/page");
        stubs.refreshes("/stub");
        for (target, expected) in [
            ("/page", false),
            ("/page", true),
            ("/other", false),
            ("/page", false),
            ("/page", true),
        ] {
            stubs.goes_on(Some("/stub"), target);
            assert_eq!(stubs.leading_to("/page").is_some(), expected, "{target}");
        }
        assert_eq!(stubs.leading_to("/page").as_deref(), Some("/stub"));
        stubs.goes_on(Some("/page"), "/third");
        stubs.goes_on(None, "/third");
        assert_eq!(stubs.leading_to("/third"), None);
    }

    #[test]
    fn redirect_within_the_site_is_a_stub() {
        for (status, location, target) in [
            (302, "/page", Some("/page")),
            (301, "https://site.example/page#a", Some("/page")),
            (302, "https://other.example/page", None),
            (302, "//site.example/page", None),
            (200, "/page", None),
            (302, "/stub", None),
        ] {
            let stubs = RedirectStubs::default();
            let request = Request::get("/stub").header("host", "site.example").body(()).unwrap();
            let reply =
                Response::builder().status(status).header("location", location).body(()).unwrap();
            let (request, reply) = (request.into_parts().0, reply.into_parts().0);
            for _ in 0..2 {
                stubs.replied("/stub", &request, &reply);
            }
            let found = target.and_then(|target| stubs.leading_to(target));
            assert_eq!(found.as_deref(), target.map(|_| "/stub"), "{status} {location}");
            assert_eq!(stubs.leading_to("/stub"), None);
        }
    }

    #[test]
    fn memory_is_bounded_for_any_redirects() {
        let stubs = RedirectStubs::default();
        for number in 0..10_000 {
            stubs.refreshes(&format!("/{number}"));
            stubs.goes_on(Some(&format!("/{number}")), &"x".repeat(number));
        }
        assert!(lock(&stubs.0).len() <= MAX_STUBS);
    }
}
