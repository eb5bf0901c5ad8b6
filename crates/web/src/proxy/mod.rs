//! A streaming reverse proxy for unmodified servers and browsers.
//!
//! Requests come over HTTP/1.1 or HTTP/2, with TLS or without, and go over persistent HTTP/1.1 connections to
//! one upstream. Bodies are streamed in both directions, no faster than the other side reads them. `headers`
//! restricts requests; `client_timeouts`, `streams` and `limits` restrict clients.
//!
//! A request with `X-Lull` is a prefetch: its connection is put in the background before its answer leaves,
//! and back by the next request without it.
//!
//! The rest of NPS is a [`Site`], which sees each request and may change its answer: [`crate::nps`].

mod access_log;
mod acme;
mod address;
mod body;
mod client_timeouts;
mod config;
mod connection;
mod counter;
mod drive;
mod error;
mod event;
mod fetch;
mod headers;
mod health;
mod hosted_site;
mod http2_request;
mod idle_compression;
mod inline_compression;
mod io;
mod keep_alive;
mod limits;
mod link;
mod location;
mod metrics;
mod multiplexed;
mod parked;
mod pool;
mod prefetch;
mod proxy_config;
mod recoding;
mod replace_sites;
mod reply;
mod request_body;
mod scheduler;
mod server;
mod service;
mod serving;
mod signals;
mod site;
mod site_config;
mod site_counters;
mod site_setup;
mod sockets;
mod spool;
mod streams;
mod target_escape;
mod thread_counters;
mod tls;
mod totals;
mod traffic_thread;
mod tunnel;
mod upload;
mod upstream;
mod upstream_access;
mod upstream_group;
mod websocket;
mod worker;

pub use access_log::VisitLog;
pub use acme::AcmeConfig;
pub use address::Address;
pub use body::{Body, BoxError};
pub use config::{AccessLog, CertificateFiles, Limits, Listen, Timeouts, Upstream};
pub use connection::Connection;
pub use error::{Error, Failure, Result};
pub use event::{Event, Listener};
pub use fetch::{Codings, Fetched, Fetcher};
pub use headers::{SEC_PURPOSE, X_LULL};
pub use metrics::{Metrics, ServerState};
pub use proxy_config::Config;
pub use replace_sites::{MakeHook, NextSite};
pub use request_body::RequestBody;
pub use scheduler::{PrefetchPriority, SchedulerTotals, UpstreamScheduler};
pub use server::Server;
pub use signals::Signals;
pub use site::{Answerer, Decision, Exchange, Outcome, Site};
pub use site_config::{ErrorPage, HeaderRules, HealthCheck, Route, SiteConfig, UpstreamConfig};
pub use sockets::Inherited;
pub use tls::check_certificate;
pub use totals::Totals;
pub use upstream_group::MAX_SERVERS;
