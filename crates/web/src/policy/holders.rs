//! Who may have copies that a sign-in has to clear.
//!
//! A copy is in a browser's cache, and nobody tells when it goes. So a client counts from when it was
//! given a mark, or sent a copy, for as long as that copy may live; and for as long after the start
//! everybody counts, because of the process that was there before.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use http::HeaderMap;
use lull_cc::Timestamp;

use super::cookies;
use super::fields;
use super::freshness::LONGEST_TTL;
use super::sign_ins::{Client, REMEMBERED_FOR, SignIns};
use crate::authentication;

/// From the head of a copy's reply to the end of the copy: it has a minute to arrive.
pub(super) const LONGEST_LIFE: Duration = LONGEST_TTL.saturating_add(Duration::from_secs(60));

/// Whether what a reply clears is where this site's pages lie when somebody goes to them. Browsers keep
/// a cache apart for its frames within other sites, and fetch ahead with cookies that are not taken over
/// before somebody goes there.
pub(super) fn clears_for_pages(headers: &HeaderMap) -> bool {
    fields::single(headers, "sec-fetch-dest") == Some("document")
        && !headers.contains_key("sec-purpose")
}

/// Clients that may have copies.
#[derive(Debug)]
pub(super) struct Holders {
    /// Of copies that lack `Vary: Cookie`, or of marks by which they may come to some.
    unvaried: SignIns,
    /// Of copies in the browser's cache, whatever they vary on.
    any: SignIns,
    /// Clients, by the credentials that they sent, whose copies were cleared then.
    cleared: SignIns,
    /// Clients, by cookies that tell one browser there from the others: with each it had nothing that
    /// lacks `Vary: Cookie`.
    empty_with: SignIns,
    key: RandomState,
}

impl Default for Holders {
    fn default() -> Self {
        Holders {
            unvaried: SignIns::with_a_past(REMEMBERED_FOR),
            any: SignIns::with_a_past(LONGEST_LIFE),
            cleared: SignIns::kept_for(LONGEST_LIFE),
            empty_with: SignIns::kept_for(REMEMBERED_FOR),
            key: RandomState::new(),
        }
    }
}

impl Holders {
    /// A client was given a mark by which copies lack `Vary: Cookie`, or was sent such a copy.
    pub(super) fn unvaried(&mut self, client: Client, now: Timestamp) {
        self.unvaried.note(client, now);
    }

    /// Whether a client that is to be given a mark can be remembered.
    pub(super) fn has_room_for(&mut self, client: Client, now: Timestamp) -> bool {
        self.unvaried.has_room_for(client, now)
    }

    /// Whether who sends this may have copies that lack `Vary: Cookie`. `None` if the client has none
    /// at all; of several people behind its address, `Some(false)` is said of one that was cleared since
    /// it was given any.
    pub(super) fn may_have_unvaried(
        &self,
        client: Client,
        headers: &HeaderMap,
        now: Timestamp,
    ) -> Option<bool> {
        let since = self.unvaried.last(client, now)?;
        let is_empty = |cookie| {
            let one = self.one_with(client, cookie);
            self.empty_with.noted(one).is_some_and(|at| at > since)
        };
        Some(!cookies::telling(headers).any(is_empty))
    }

    /// Takes note of the cookies in the reply to who has nothing any more that lacks `Vary: Cookie`.
    pub(super) fn is_empty<'a>(
        &mut self,
        client: Client,
        set: impl Iterator<Item = (&'a str, &'a str)>,
        now: Timestamp,
    ) {
        for cookie in set {
            let one = self.one_with(client, cookie);
            self.empty_with.note(one, now);
        }
    }

    /// Who has this cookie, of those behind an address.
    fn one_with(&self, client: Client, cookie: (&str, &str)) -> Client {
        Client(self.key.hash_one((client, cookie)))
    }

    /// A client was sent a copy that its browser keeps.
    pub(super) fn sent_a_copy(&mut self, client: Client, now: Timestamp) {
        self.any.note(client, now);
    }

    /// Whether the copies of a client that sends these credentials (`Authorization`) are to be cleared
    /// now: there may be some that came after the last time. Each page clears them, as people behind one
    /// address may share a password, and then nothing tells whose browser was cleared. While credentials
    /// come from there it gets no new copies, so that this ends some minutes later. What is in a page clears them
    /// once for each name.
    pub(super) fn are_to_be_cleared(
        &mut self,
        client: Client,
        headers: &HeaderMap,
        now: Timestamp,
    ) -> bool {
        let Some(since) = self.any.last(client, now) else { return false };
        let name = authentication::name_of_credentials(headers);
        let who = Client(self.key.hash_one((client, name)));
        let was_cleared = self.cleared.noted(who).is_some_and(|at| at > since);
        if was_cleared && !clears_for_pages(headers) {
            return false;
        }
        self.cleared.note(who, now);
        true
    }
}
