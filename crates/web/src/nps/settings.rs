//! The owner's settings for a site.

use std::path::PathBuf;
use std::time::Duration;

use http::HeaderValue;
use lull_speculate::budget::Parameters;

use super::access::Access;
use super::byte_caps::ByteCaps;
use crate::policy;

/// The settings of an owner.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Of the policy: harmless cookies, and rules for URLs.
    pub rules: policy::Settings,
    /// The site's names, as in the address bar ([`site_name`](super::site_name)). The proxy's own requests
    /// use the first one. Requests for other hosts pass unchanged. If there are none, every host in a request
    /// is the site.
    pub hosts: Vec<HeaderValue>,
    /// Whether the proxy gives the site requests for its own hosts only, so that names need no look.
    pub is_routed: bool,
    /// Whether `X-Forwarded-For` and `X-Forwarded-Proto` are trusted, as by the proxy.
    pub trust_forwarded: bool,
    /// Number of proxies in front of the one that connects to this one. Each adds an address to
    /// `X-Forwarded-For`, and the client's address precedes these.
    pub forwarded_before: usize,
    /// Whether visitors come through a shared cache that keeps pages and passes requests with `X-Lull` on, such as a
    /// content delivery network (CDN). Otherwise such visitors get no script and no hints.
    pub behind_cdn: bool,
    /// How the monitor works.
    pub monitor: MonitorSettings,
    /// Limits of prefetched bytes.
    pub caps: ByteCaps,
    /// Pages below this value are not hinted.
    pub min_benefit: MinBenefit,
    /// The control group, in parts of 10,000 visitors: they get no hints and are compared with the others.
    pub held_back: u16,
    /// Make browsers prefetch pages by speculation rules, where they can, instead of by `fetch`.
    pub speculation_rules: bool,
    /// Make browsers that need it prefetch pages by a service worker, from the port where the proxy listens
    /// [in the background](crate::proxy::Config::listen_background).
    pub service_worker: Option<ServiceWorker>,
    /// Only predict, and count how often that was correct: no script, no hints, no prefetches.
    pub shadow: bool,
    /// The kill switch: while this file exists, pages get no script, lists stay empty, and prefetches are
    /// refused.
    pub off_file: Option<PathBuf>,
    /// The users who may read the dashboard.
    pub access: Access,
    /// How proxies of the site share what they learn, if there are several.
    pub share: Option<ShareSettings>,
}

/// How several proxies of a site share what they learn.
#[derive(Clone, PartialEq, Eq)]
pub struct ShareSettings {
    /// The addresses of the NATS servers, such as `nats://nats.example.org:4222`.
    pub servers: Vec<String>,
    /// The name of the site in subjects and streams: letters, digits and `-`.
    pub name: String,
    /// The key of the model, which all proxies of the site have.
    pub key: [u8; 16],
}

impl std::fmt::Debug for ShareSettings {
    /// Without the key, and without passwords in addresses.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShareSettings").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The minimum value of a prefetch: the average seconds of waiting that it saves per megabyte.
///
/// It does not control the rate, which the budget and Nice do (SSR §3.1.2 has no threshold). It saves
/// visitors and owners bytes that are hardly ever used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MinBenefit(pub f32);

impl Default for MinBenefit {
    /// A megabyte takes 0.8 s at 10 Mbit/s. In the background it may cost twenty times as much as a byte that
    /// a visitor waits for.
    fn default() -> Self {
        MinBenefit(0.04)
    }
}

impl MinBenefit {
    /// Whether a priority, in seconds per byte, reaches it.
    pub(super) fn accepts(self, priority: f32) -> bool {
        priority * 1e6 >= self.0
    }
}

/// How the monitor works.
#[derive(Clone, Debug, Default)]
pub struct MonitorSettings {
    /// The monitored objects: paths of public objects. Empty: the most popular ones.
    pub objects: Vec<String>,
    /// Parameters of the budget. `None`: those of Lull, for the number of objects.
    pub parameters: Option<Parameters>,
}

/// The owner's settings for the service worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceWorker {
    /// How long it stays in a browser without a prefetch. It removes itself by its own clock, also without
    /// the proxy.
    pub life: Duration,
}

impl Default for ServiceWorker {
    /// An hour.
    fn default() -> Self {
        ServiceWorker { life: Duration::from_secs(3600) }
    }
}
