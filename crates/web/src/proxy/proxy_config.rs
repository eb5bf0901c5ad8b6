//! The configuration of a proxy: its sites, and what they share.

use std::num::NonZeroUsize;

use http::HeaderValue;

use super::acme::AcmeConfig;
use super::config::{AccessLog, Limits, Listen, Timeouts, Upstream};
use super::site_config::SiteConfig;

/// The configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The sites. A request for a host that none of them has is answered by 421.
    pub sites: Vec<SiteConfig>,
    /// How the sites that want it get their certificates.
    pub acme: Option<AcmeConfig>,
    /// Where clients connect.
    pub listen: Vec<Listen>,
    /// Where they connect, if anywhere, whose connections are in the background, whatever they request.
    pub listen_background: Option<Listen>,
    /// Whether `X-Forwarded-*` of clients is trusted: there is another proxy in front.
    pub trust_forwarded: bool,
    /// This proxy's name in `Via`. By default there is none, because nginx as an upstream stops compressing
    /// when it sees one.
    pub via: Option<HeaderValue>,
    /// Threads that carry the traffic. `None`: one for each core.
    pub threads: Option<NonZeroUsize>,
    /// Limits of load.
    pub limits: Limits,
    /// Time limits.
    pub timeouts: Timeouts,
    /// The destination of the access log, if any.
    pub access_log: Option<AccessLog>,
    /// How a marked connection is put in the background.
    pub background: lull_transport::Options,
}

impl Config {
    /// One site for all hosts in front of `upstream`, with the defaults of everything else and nothing to
    /// listen on.
    pub fn new(upstream: Upstream) -> Self {
        Config::of_sites(vec![SiteConfig::new(upstream)])
    }

    /// These sites, with the defaults of everything else and nothing to listen on.
    pub fn of_sites(sites: Vec<SiteConfig>) -> Self {
        Config {
            sites,
            acme: None,
            listen: Vec::new(),
            listen_background: None,
            trust_forwarded: false,
            via: None,
            threads: None,
            limits: Limits::default(),
            timeouts: Timeouts::default(),
            access_log: None,
            background: lull_transport::Options::new(),
        }
    }
}
