//! Counts that other models of the same site have not got yet.

use std::collections::BTreeMap;

use super::contexts::Pages;
use super::top_n::counted_pages;
use crate::observe::{Step, UrlId, Visit};

/// The most contexts, and the most followers of all together. While the way to the other models is closed,
/// further ones are not remembered, and known ones are counted on.
const MAX_CONTEXTS: usize = 1 << 16;
const MAX_FOLLOWERS: usize = 1 << 18;

/// How often a URL followed a context.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FollowerChange<U> {
    pub(crate) url: U,
    /// In events of the time of the exchange.
    pub(crate) weight: f32,
    /// A bit for each of 16 classes of clients.
    pub(crate) classes: u16,
}

/// How often a context occurred, and what followed it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ContextChange<U> {
    pub(crate) times: u32,
    pub(crate) followers: Vec<FollowerChange<U>>,
}

/// The counts.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    contexts: BTreeMap<Pages, ContextChange<UrlId>>,
    followers: usize,
    followers_per_context: usize,
    /// Answers, visits of pages, and those of them that were not the first of a session.
    answers: u32,
    pages: (u32, u32),
}

impl Pending {
    pub(super) fn new(followers_per_context: usize) -> Self {
        Pending {
            contexts: BTreeMap::new(),
            followers: 0,
            followers_per_context,
            answers: 0,
            pages: (0, 0),
        }
    }

    fn entry(&mut self, pages: Pages) -> Option<&mut ContextChange<UrlId>> {
        if self.contexts.len() >= MAX_CONTEXTS && !self.contexts.contains_key(&pages) {
            return None;
        }
        let none = || ContextChange { times: 0, followers: Vec::new() };
        Some(self.contexts.entry(pages).or_insert_with(none))
    }

    /// A context occurs.
    pub(super) fn occur(&mut self, pages: Pages) {
        if let Some(context) = self.entry(pages) {
            context.times = context.times.saturating_add(1);
        }
    }

    /// A URL follows a context.
    pub(super) fn follow(&mut self, pages: Pages, url: UrlId, weight: f32, class: u16) {
        let (all, most) = (self.followers, self.followers_per_context);
        let Some(context) = self.entry(pages) else { return };
        if let Some(one) = context.followers.iter_mut().find(|one| one.url == url) {
            one.weight += weight;
            one.classes |= class;
        } else if all < MAX_FOLLOWERS && context.followers.len() < most {
            context.followers.push(FollowerChange { url, weight, classes: class });
            self.followers += 1;
        }
    }

    /// A visit was learned.
    pub(super) fn note_visit(&mut self, visit: &Visit, history: &[Step]) {
        self.answers = self.answers.saturating_add(1);
        let (pages, behind) = counted_pages(visit, history);
        self.pages.0 = self.pages.0.saturating_add(pages);
        self.pages.1 = self.pages.1.saturating_add(behind);
    }

    /// Takes the answers, the visits of pages, and those of them that were not the first of a session.
    pub(crate) fn take_visits(&mut self) -> (u32, (u32, u32)) {
        (core::mem::take(&mut self.answers), core::mem::take(&mut self.pages))
    }

    /// Takes one context.
    pub(crate) fn take_context(&mut self) -> Option<(Pages, ContextChange<UrlId>)> {
        let (pages, context) = self.contexts.pop_first()?;
        self.followers -= context.followers.len();
        Some((pages, context))
    }

    /// Whether there is a context to take.
    pub(crate) fn has_context(&self) -> bool {
        !self.contexts.is_empty()
    }

    /// Its memory, without the allocator's overhead.
    pub(super) fn resident(&self) -> usize {
        self.contexts.len() * size_of::<(Pages, ContextChange<UrlId>)>()
            + self.followers * size_of::<FollowerChange<UrlId>>()
    }
}
