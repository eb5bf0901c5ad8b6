//! The evidence of visitors' pages about cookies: whether a cookie changes them.
//!
//! Each page of a visitor with unknown cookies is compared with the page that visitors without them get. The rules, and why
//! they are safe: ADR 13.
//!
//! - The reference of a page is a body that two clients without such cookies got. A page that differs between
//!   these visitors, for example by a nonce, has no reference and proves nothing.
//! - A *value* of a cookie is accepted after enough equal pages of enough clients. A value that many clients
//!   share cannot identify one of them.
//! - A cookie with mostly one client per value is never accepted. It is shown to the owner with its evidence.
//! - One page that differs suspends the cookie at once, until the reference has been checked again. If that
//!   has not changed, the cookie has made the difference, and is rejected permanently.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::learned_cookies::LearnedCookies;
use super::recent::Client;

/// A value is accepted once this many clients had equal pages with it, on this many URLs, this many times.
const ENOUGH_CLIENTS: usize = 5;
const ENOUGH_PAGES: usize = 5;
const ENOUGH_SAMPLES: u32 = 20;
/// The limits of the state: clients may send any names and values.
const MAX_PAGES: usize = 2048;
const MAX_NAMES: usize = 64;
const MAX_VALUES: usize = 16;
const MAX_CLIENTS: usize = 64;
const MAX_SUSPECTS: usize = 16;
/// When there is no room for a page, one look in this many makes some.
const RARELY: u64 = 16;
/// Longer names, and longer values than an option of a site contains, are ignored.
const MAX_NAME_BYTES: usize = 64;
const MAX_VALUE_BYTES: usize = 48;
/// Visitors with more unknown cookies do not count as evidence.
const MAX_COOKIES: usize = 8;

/// Parts of the names of cookies by which sites identify their users, in lower case.
const OF_SESSIONS: &[&str] = &[
    "account",
    "auth",
    "basket",
    "cart",
    "connect.sid",
    "csrf",
    "jwt",
    "login",
    "logged",
    "member",
    "pass",
    "remember",
    "saml",
    "secret",
    "sess",
    "sid",
    "sso",
    "ticket",
    "token",
    "uid",
    "user",
    "xsrf",
];

/// Whether a cookie's name is typical of a session. Such a cookie is neither accepted nor proposed.
fn is_of_a_session(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.starts_with("__host-") || OF_SESSIONS.iter().any(|part| name.contains(part))
}

/// A page that a visitor got.
#[derive(Clone, Copy, Debug)]
pub struct CookieSample<'a> {
    /// The hash of the URL, and of everything else by which replies differ for reasons other than cookies.
    pub page: u64,
    /// The hash of the body, and of the reply's caching fields.
    pub body: u64,
    /// The client that sent it.
    pub client: Client,
    /// The cookies of the request that are not known as harmless, with their values.
    pub cookies: &'a [(String, String)],
}

#[derive(Clone, Debug)]
struct Page {
    body: u64,
    /// The first client; another one has to get the same.
    first: Client,
    is_reference: bool,
    /// Other bodies that visitors with cookies got since, each with one of their cookies.
    suspects: Vec<(u64, String)>,
    looked: u64,
}

#[derive(Clone, Debug, Default)]
struct Value {
    clients: BTreeSet<u64>,
    pages: BTreeSet<u64>,
    same: u32,
}

#[derive(Clone, Debug, Default)]
struct Name {
    same: u64,
    clients: BTreeSet<u64>,
    values: HashMap<u64, Value>,
    suspected: u32,
    is_rejected: bool,
    is_http_only: bool,
}

impl Name {
    fn accepts(&self, value: &Value) -> bool {
        value.clients.len() >= ENOUGH_CLIENTS
            && value.pages.len() >= ENOUGH_PAGES
            && value.same >= ENOUGH_SAMPLES
    }

    fn verdict(&self, name: &str) -> CookieVerdict {
        if self.is_rejected {
            CookieVerdict::ChangesPages
        } else if is_of_a_session(name) || self.is_http_only {
            CookieVerdict::Session
        } else if self.suspected > 0 {
            CookieVerdict::Unknown
        } else if self.values.values().any(|value| self.accepts(value)) {
            CookieVerdict::Accepted
        } else if self.clients.len() >= ENOUGH_CLIENTS && self.same >= u64::from(ENOUGH_SAMPLES) {
            CookieVerdict::Proposed
        } else {
            CookieVerdict::Unknown
        }
    }
}

/// The knowledge about a cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CookieVerdict {
    /// Too little.
    Unknown,
    /// It changes pages.
    ChangesPages,
    /// It has the name or the protection of a cookie that identifies users.
    Session,
    /// Pages were the same, but its values are of one client each: the owner has to decide.
    Proposed,
    /// Values that many visitors share do not change pages.
    Accepted,
}

/// A cookie that is not on the list of harmless ones, with the knowledge about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CookieFigures {
    /// Its name.
    pub name: String,
    /// Pages that were the same as without it.
    pub same: u64,
    /// Clients with these cookies, at most 64.
    pub clients: usize,
    /// The conclusion.
    pub verdict: CookieVerdict,
}

/// The evidence about all cookies.
#[derive(Debug, Default)]
pub struct CookieEvidence {
    pages: HashMap<u64, Page>,
    names: BTreeMap<String, Name>,
    learned: LearnedCookies,
    looks: u64,
}

impl CookieEvidence {
    /// No evidence; accepted values are passed to `learned`.
    pub fn new(learned: LearnedCookies) -> Self {
        CookieEvidence { learned, ..CookieEvidence::default() }
    }

    /// A visitor got a page.
    pub fn saw(&mut self, sample: CookieSample<'_>) {
        self.looks += 1;
        if sample.cookies.is_empty() {
            self.handle_reference(&sample);
        } else if sample.cookies.len() <= MAX_COOKIES {
            self.handle_with_cookies(&sample);
        }
    }

    /// The site sets this cookie so that no script can read it.
    pub fn is_http_only(&mut self, name: &str) {
        if let Some(known) = self.name(name)
            && !std::mem::replace(&mut known.is_http_only, true)
        {
            self.publish(name);
        }
    }

    /// All observed cookies, the one of the most clients first.
    pub fn figures(&self) -> Vec<CookieFigures> {
        let mut all: Vec<_> = self
            .names
            .iter()
            .map(|(name, known)| CookieFigures {
                name: name.clone(),
                same: known.same,
                clients: known.clients.len(),
                verdict: known.verdict(name),
            })
            .collect();
        all.sort_by_key(|one| std::cmp::Reverse((one.clients, one.same)));
        all
    }

    fn handle_reference(&mut self, sample: &CookieSample<'_>) {
        let CookieSample { page: key, body, client, .. } = *sample;
        if !self.has_room(key) {
            return;
        }
        let looked = self.looks;
        let new = Page { body, first: client, is_reference: false, suspects: Vec::new(), looked };
        let page = self.pages.entry(key).or_insert_with(|| new.clone());
        page.looked = looked;
        let suspects = std::mem::take(&mut page.suspects);
        let is_unchanged = page.body == body;
        if is_unchanged {
            page.is_reference |= page.first != client;
        } else {
            *page = new;
        }
        for (_, name) in suspects {
            if let Some(known) = self.names.get_mut(&name) {
                known.suspected = known.suspected.saturating_sub(1);
                // Clients without the cookie got the same before and after.
                known.is_rejected |= is_unchanged;
                self.publish(&name);
            }
        }
    }

    fn handle_with_cookies(&mut self, sample: &CookieSample<'_>) {
        let Some(page) = self.pages.get_mut(&sample.page).filter(|page| page.is_reference) else {
            return;
        };
        page.looked = self.looks;
        let is_same = page.body == sample.body;
        for (name, value) in sample.cookies {
            if is_same {
                self.same(name, value, sample);
            } else {
                self.suspect(name, sample);
            }
            self.publish(name);
        }
    }

    fn same(&mut self, name: &str, value: &str, sample: &CookieSample<'_>) {
        let key = self.learned.key(name, value);
        let Some(known) = self.name(name) else { return };
        known.same += 1;
        if known.clients.len() < MAX_CLIENTS {
            known.clients.insert(sample.client.0);
        }
        let has_room = known.values.contains_key(&key) || known.values.len() < MAX_VALUES;
        if !has_room || value.len() > MAX_VALUE_BYTES {
            // A value of a single client makes room, so that those of many clients find room in the end.
            known.values.retain(|_, value| value.clients.len() > 1);
            return;
        }
        let of = known.values.entry(key).or_default();
        of.same = of.same.saturating_add(1);
        if of.clients.len() < MAX_CLIENTS {
            of.clients.insert(sample.client.0);
        }
        if of.pages.len() < MAX_CLIENTS {
            of.pages.insert(sample.page);
        }
    }

    fn suspect(&mut self, name: &str, sample: &CookieSample<'_>) {
        if self.name(name).is_none() {
            return;
        }
        let Some(page) = self.pages.get_mut(&sample.page) else { return };
        let is_new = !page.suspects.iter().any(|(_, other)| other == name);
        if is_new && page.suspects.len() < MAX_SUSPECTS {
            page.suspects.push((sample.body, name.to_owned()));
            if let Some(known) = self.names.get_mut(name) {
                known.suspected += 1;
            }
        }
    }

    /// The evidence about a cookie, if there is or will be space for it.
    fn name(&mut self, name: &str) -> Option<&mut Name> {
        if name.is_empty() || name.len() > MAX_NAME_BYTES {
            return None;
        }
        if !self.names.contains_key(name) && self.names.len() >= MAX_NAMES {
            let of_few = self.names.iter().filter(|(_, known)| !known.is_rejected);
            let least = of_few.min_by_key(|(_, known)| (known.clients.len(), known.same));
            let least = least.map(|(name, _)| name.clone())?;
            self.names.remove(&least);
            self.learned.forget(&least);
        }
        Some(self.names.entry(name.to_owned()).or_default())
    }

    /// Publishes the accepted values of a cookie.
    fn publish(&mut self, name: &str) {
        let Some(known) = self.names.get(name) else { return };
        let is_accepted = known.verdict(name) == CookieVerdict::Accepted;
        let accepted = known.values.iter().filter(|(_, value)| is_accepted && known.accepts(value));
        self.learned.accept(name, accepted.map(|(key, _)| *key));
    }

    /// Whether there is space for a page, perhaps in place of the least recently checked one. That search
    /// takes time, so only a share of new pages gets space: a frequently read page gets it soon. A page that
    /// a cookie may have changed stays until that is known.
    fn has_room(&mut self, key: u64) -> bool {
        if self.pages.len() < MAX_PAGES || self.pages.contains_key(&key) {
            return true;
        }
        if !self.looks.is_multiple_of(RARELY) {
            return false;
        }
        let idle = self.pages.iter().filter(|(_, page)| page.suspects.is_empty());
        let oldest = idle.min_by_key(|(_, page)| page.looked).map(|(key, _)| *key);
        oldest.is_some_and(|oldest| self.pages.remove(&oldest).is_some())
    }
}

#[cfg(test)]
mod tests;
