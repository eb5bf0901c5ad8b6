//! Options of the proxy as a whole: where it listens, its limits and its timeouts.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use http::HeaderValue;
use lull_cli::arguments::{background, dscp, seconds};
use lull_transport::Dscp;
use lull_web::proxy::{AccessLog, Config, Limits, Listen, SiteConfig, Timeouts};

/// The arguments that all sites share.
#[derive(Debug, clap::Args)]
pub(super) struct ServerArgs {
    /// Address for clients: HOST:PORT, http://HOST:PORT or https://HOST:PORT. Without a scheme it is https if
    /// there is a certificate. May be repeated
    #[arg(long, value_name = "ADDR")]
    pub(super) listen: Vec<Listen>,
    /// Trust X-Forwarded-* headers of clients. Use it only if every client comes through another proxy. N
    /// such proxies are in a row [default: 1], each of which appends an address. Also removes the limit per
    /// address
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true,
        default_missing_value = "1")]
    pub(super) trust_forwarded: Option<NonZeroUsize>,
    /// Add this name to Via. If nginx is the upstream, it then stops compressing
    #[arg(long, value_name = "NAME")]
    via: Option<HeaderValue>,
    /// Write an access log in Combined format; - is standard output
    #[arg(long, value_name = "FILE")]
    access_log: Option<PathBuf>,
    /// Threads for traffic [default: one per core]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    timeouts: TimeoutArgs,
    #[command(flatten)]
    background: BackgroundArgs,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Limits")]
struct LimitArgs {
    /// Maximum number of open client connections [default: half of the limit of open files]
    #[arg(long, value_name = "N")]
    max_connections: Option<NonZeroUsize>,
    /// The same for each IPv4 address or IPv6 /64 [default: an eighth of --max-connections]
    #[arg(long, value_name = "N")]
    max_connections_per_address: Option<NonZeroUsize>,
    /// Maximum number of concurrent requests to the upstream [default: a quarter of the limit of open files]
    #[arg(long, value_name = "N")]
    max_upstream_requests: Option<NonZeroUsize>,
    /// Maximum number of idle connections to the upstream
    #[arg(long, value_name = "N", default_value_t = Limits::default().upstream_idle)]
    keepalive: usize,
    /// Maximum size of the headers of a request or response, in bytes, 8192 or more
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().header_bytes,
        value_parser = header_bytes)]
    max_header: usize,
    /// Maximum length of a request target, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().uri_bytes)]
    max_uri: usize,
    /// Maximum number of concurrent requests on one HTTP/2 connection
    #[arg(long, value_name = "N", default_value_t = Limits::default().h2_streams)]
    max_streams: u32,
    /// Minimum rate of a request body, in bytes per second, averaged over the time of --client-timeout
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().body_rate)]
    min_body_rate: u64,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Timeouts, in seconds")]
struct TimeoutArgs {
    /// Connection to the upstream
    #[arg(long, value_name = "S", default_value = "5", value_parser = seconds)]
    connect_timeout: Duration,
    /// Start of the upstream's response, and each next part of it
    #[arg(long, value_name = "S", default_value = "60", value_parser = seconds)]
    upstream_timeout: Duration,
    /// Idle connection to the upstream; use less than the upstream's own timeout
    #[arg(long, value_name = "S", default_value = "4", value_parser = seconds)]
    keepalive_timeout: Duration,
    /// TLS handshake, and a request head from its first byte
    #[arg(long, value_name = "S", default_value = "10", value_parser = seconds)]
    header_timeout: Duration,
    /// Client that neither sends its announced body nor reads its response
    #[arg(long, value_name = "S", default_value = "30", value_parser = seconds)]
    client_timeout: Duration,
    /// Idle connection of a client
    #[arg(long, value_name = "S", default_value = "75", value_parser = seconds)]
    idle_timeout: Duration,
    /// Current requests after a signal to end
    #[arg(long, value_name = "S", default_value = "30", value_parser = seconds)]
    drain_timeout: Duration,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "How prefetches are sent")]
struct BackgroundArgs {
    /// Congestion control of prefetches. If the kernel does not have it, Lull paces them itself [default: lull;
    /// or nice, if only that is loaded]
    #[arg(long, value_name = "NAME")]
    cc: Option<String>,
    /// DSCP of prefetches: le or none
    #[arg(long, value_name = "DSCP", default_value = "le", value_parser = dscp)]
    dscp: Dscp,
}

fn header_bytes(text: &str) -> Result<usize, &'static str> {
    let bytes = text.parse().ok().filter(|bytes| (8192..=1 << 20).contains(bytes));
    bytes.ok_or("write a number of bytes from 8192 to 1048576")
}

impl ServerArgs {
    /// The proxy with these sites.
    pub(super) fn config(self, sites: Vec<SiteConfig>) -> Config {
        let mut config = Config::of_sites(sites);
        config.listen = self.listen;
        config.trust_forwarded = self.trust_forwarded.is_some();
        config.via = self.via;
        config.access_log = self.access_log.map(|path| {
            if path.as_os_str() == "-" { AccessLog::Stdout } else { AccessLog::File(path) }
        });
        config.threads = self.threads;
        let limits = self.limits;
        config.limits = Limits {
            connections: limits.max_connections,
            // The proxy in front has one address.
            connections_per_address: limits
                .max_connections_per_address
                .or(self.trust_forwarded.map(|_| NonZeroUsize::MAX)),
            upstream_requests: limits.max_upstream_requests,
            upstream_idle: limits.keepalive,
            header_bytes: limits.max_header,
            uri_bytes: limits.max_uri,
            h2_streams: limits.max_streams,
            body_rate: limits.min_body_rate,
            ..Limits::default()
        };
        let timeouts = self.timeouts;
        config.timeouts = Timeouts {
            connect: timeouts.connect_timeout,
            head: timeouts.upstream_timeout,
            body: timeouts.upstream_timeout,
            upstream_idle: timeouts.keepalive_timeout,
            client_head: timeouts.header_timeout,
            client_stalled: timeouts.client_timeout,
            client_idle: timeouts.idle_timeout,
            drain: timeouts.drain_timeout,
        };
        config.background = background(self.background.cc, self.background.dscp);
        config
    }
}
