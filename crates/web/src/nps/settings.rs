//! What an owner can set for a site.

use std::path::PathBuf;
use std::time::Duration;

use http::HeaderValue;
use lull_speculate::budget::Parameters;

use super::access::Access;
use super::byte_caps::ByteCaps;
use crate::policy;

/// What an owner can set.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Of the rules: harmless cookies, and what is said about URLs.
    pub rules: policy::Settings,
    /// The site's names, as they stand in the address bar ([`site_name`](super::site_name)); what the proxy asks itself it
    /// asks by the first one. Requests for other hosts pass as they are. None: whatever name clients
    /// say, it is the same site.
    pub hosts: Vec<HeaderValue>,
    /// Whether the proxy gives the site requests for its own hosts only, so that names need no look.
    pub is_routed: bool,
    /// Whether `X-Forwarded-For` and `X-Forwarded-Proto` are believed, as by the proxy.
    pub trust_forwarded: bool,
    /// How many proxies stand before the one that comes to this one. Each adds an address to
    /// `X-Forwarded-For`, and the client's is the one before these.
    pub forwarded_before: usize,
    /// How the monitor works.
    pub monitor: MonitorSettings,
    /// How much is fetched ahead at most.
    pub caps: ByteCaps,
    /// What is worth less is not hinted.
    pub least_worth: LeastWorth,
    /// The share of visitors, of 10,000, who get no hints, to be compared with the others.
    pub held_back: u16,
    /// Have browsers fetch pages by speculation rules, where they can, instead of by `fetch`.
    pub speculation_rules: bool,
    /// Have browsers that need one fetch pages by a service worker, from where the proxy listens
    /// [in the background](crate::proxy::Config::listen_background).
    pub service_worker: Option<ServiceWorker>,
    /// Only predict, and count how often that was right: no script, no hints, no prefetches.
    pub shadow: bool,
    /// The kill switch: as long as this file is there, pages get no script, lists stay empty, and
    /// prefetches are refused.
    pub off_file: Option<PathBuf>,
    /// Who may look at the figures.
    pub access: Access,
}

/// What fetching something ahead is worth at least: seconds of waiting that it saves on average for each
/// megabyte that it costs.
///
/// It sets no pace, which is the budget's and Nice's to do (SSR §3.1.2 has no threshold); it spares
/// visitors and owners bytes that hardly anybody will use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LeastWorth(pub f32);

impl Default for LeastWorth {
    /// Whoever waits for a megabyte waits for 0.8 s at 10 Mbit/s. In the background it may cost twenty times
    /// as much.
    fn default() -> Self {
        LeastWorth(0.04)
    }
}

impl LeastWorth {
    /// Whether a priority, in seconds a byte, comes up to it.
    pub(super) fn is_met_by(self, priority: f32) -> bool {
        priority * 1e6 >= self.0
    }
}

/// How the monitor works.
#[derive(Clone, Debug, Default)]
pub struct MonitorSettings {
    /// What stands for the site: paths of public objects. Empty: what visitors want most.
    pub objects: Vec<String>,
    /// Of the budget. `None`: what Lull ships, for as many objects as there are.
    pub parameters: Option<Parameters>,
}

/// What an owner can set of the service worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceWorker {
    /// How long it stays in a browser without having anything to fetch. It leaves by its own clock;
    /// the proxy need not be there any more.
    pub life: Duration,
}

impl Default for ServiceWorker {
    /// An hour.
    fn default() -> Self {
        ServiceWorker { life: Duration::from_secs(3600) }
    }
}
