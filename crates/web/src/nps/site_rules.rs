//! The rules of a site, its settings and its clock: nearly every request needs them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use http::request;
use lull_cc::Timestamp;

use super::clock::{Clock, wall};
use super::heads::asked_host;
use super::kill_switch;
use super::lock::lock;
use super::settings::Settings;
use super::sharing::Sharing;
use super::site_names;
use crate::policy::{Harmless, Policy};

/// Settings, policy and kill switch of a site.
#[derive(Debug)]
pub(super) struct SiteRules {
    pub(super) settings: Settings,
    policy: Mutex<Policy>,
    clock: Clock,
    /// Whether the file of the kill switch exists.
    is_off: AtomicBool,
}

impl SiteRules {
    pub(super) fn new(settings: Settings, sharing: Option<&Sharing>) -> Self {
        let mut policy = Policy::new(settings.rules.clone());
        if let Some(sharing) = sharing {
            policy.share_bars(sharing.bars_key());
        }
        SiteRules {
            policy: Mutex::new(policy),
            clock: Clock::start(),
            is_off: AtomicBool::new(kill_switch::is_there(settings.off_file.as_ref())),
            settings,
        }
    }

    pub(super) fn policy(&self) -> MutexGuard<'_, Policy> {
        lock(&self.policy)
    }

    /// Cookies that do not identify a visitor.
    pub(super) fn harmless(&self) -> &Harmless {
        &self.settings.rules.harmless
    }

    /// The URL by the site's name for the page: without the parts of the query that identify no page.
    pub(super) fn name_of<'a>(&self, url: &'a str) -> &'a str {
        self.settings.rules.urls.name_of(url)
    }

    /// The time since the start, on a monotonic clock.
    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Whether the kill switch is on: nothing is prefetched.
    pub(super) fn is_off(&self) -> bool {
        self.is_off.load(Ordering::Relaxed)
    }

    /// Sets the kill switch.
    pub(super) fn set_off(&self, is_off: bool) {
        self.is_off.store(is_off, Ordering::Relaxed);
    }

    /// Whether pages get the script, and prefetches pass.
    pub(super) fn is_active(&self) -> bool {
        !self.settings.shadow && !self.is_off()
    }

    /// Whether a request is for a host of the site.
    pub(super) fn is_own_host(&self, head: &request::Parts) -> bool {
        let names = &self.settings.hosts;
        let is_same = |host| names.iter().any(|name| site_names::is_same(name.as_bytes(), host));
        self.settings.is_routed || names.is_empty() || asked_host(head).is_some_and(is_same)
    }

    /// Takes over URLs that an earlier process barred, as it saved them.
    pub(super) fn take_bars(&self, before: &[u8]) {
        self.policy().take_bars(before, self.now(), wall());
    }
}
