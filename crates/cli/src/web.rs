//! `lull web`: a proxy in front of a site.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use http::HeaderValue;
use lull_cli::arguments::{background, dscp, seconds};
use lull_transport::Dscp;
use lull_web::proxy::{
    AccessLog, CertificateFiles, Config, Event, Inherited, Limits, Listen, Listener, Server,
    Signals, Site, Timeouts, Upstream,
};
use serde_json::json;
use telling::Teller;

mod prefetch;
mod telling;

const EXAMPLES: &str = "\
Examples:
  lull web --upstream http://127.0.0.1:8080 --listen 0.0.0.0:80
      put the proxy in front of a server on this machine
  lull web --upstream http://127.0.0.1:8080 --listen 0.0.0.0:80 --log access.log --model site.model
      learn from a log at the start, and keep the model in a file
  lull web --upstream unix:/run/app.sock --listen https://[::]:443 --listen http://[::]:80 \\
      --cert /etc/ssl/site.pem --key /etc/ssl/site.key
      use TLS; SIGHUP or a change of the files loads a new certificate
  lull web --upstream http://127.0.0.1:8080 --listen 0.0.0.0:443 --service-worker 0.0.0.0:8443 \\
      --cert /etc/ssl/site.pem --key /etc/ssl/site.key
      also prefetch in Firefox, by a service worker that fetches from port 8443
  lull web --upstream http://127.0.0.1:8080 --listen 127.0.0.1:0 --json
      listen on a free port, and log it as JSON";

/// Run a reverse proxy in front of a web site that prefetches pages before the click
///
/// The proxy adds one script to pages. After a page has loaded, the script requests hints and fetches the hinted
/// pages into the browser's cache, with spare capacity of server and network only. Signed-in users get the page
/// unchanged.
///
/// SIGTERM and SIGINT end the proxy after the current requests; a second signal ends it at once. SIGHUP and SIGUSR1
/// reload the certificate, reopen the access log and fetch robots.txt again. SIGUSR2 reports a new server, such as a
/// release with other response times: the proxy learns the usual times again. It logs to standard error, one line
/// per event.
///
/// The exit code is 0 after a signal, 1 if the proxy cannot start, and 2 if the arguments are wrong.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The server of the site: http://HOST:PORT, https://HOST:PORT or unix:/PATH
    #[arg(long, value_name = "URL")]
    upstream: Upstream,
    /// Address for clients: HOST:PORT, http://HOST:PORT or https://HOST:PORT. Without a scheme it is https if
    /// there is a certificate. May be repeated
    #[arg(long, value_name = "ADDR", required = true)]
    listen: Vec<Listen>,
    /// Certificate chain for https, in PEM
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Private key of the certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Host header for the upstream, instead of the client's
    #[arg(long, value_name = "HOST")]
    upstream_host: Option<HeaderValue>,
    /// CA certificates for an https upstream, in PEM, instead of the system's
    #[arg(long, value_name = "FILE")]
    upstream_ca: Option<PathBuf>,
    /// Trust X-Forwarded-* headers of clients. Use it only if every client comes through another proxy. N
    /// such proxies are in a row [default: 1], each of which appends an address. Also removes the limit per
    /// address
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true,
        default_missing_value = "1")]
    trust_forwarded: Option<NonZeroUsize>,
    /// Add this name to Via. If nginx is the upstream, it then stops compressing
    #[arg(long, value_name = "NAME")]
    via: Option<HeaderValue>,
    /// Write an access log in Combined format; - is standard output
    #[arg(long, value_name = "FILE")]
    access_log: Option<PathBuf>,
    /// Threads for traffic [default: one per core]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// Log events as JSON, one object per line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    timeouts: TimeoutArgs,
    #[command(flatten)]
    background: BackgroundArgs,
    #[command(flatten)]
    prefetching: prefetch::PrefetchArgs,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Limits")]
struct LimitArgs {
    /// Open client connections [default: half of the limit of open files]
    #[arg(long, value_name = "N")]
    max_connections: Option<NonZeroUsize>,
    /// Open client connections per IPv4 address or IPv6 /64 [default: an eighth of --max-connections]
    #[arg(long, value_name = "N")]
    max_connections_per_address: Option<NonZeroUsize>,
    /// Concurrent requests to the upstream [default: a quarter of the limit of open files]
    #[arg(long, value_name = "N")]
    max_upstream_requests: Option<NonZeroUsize>,
    /// Idle connections to the upstream
    #[arg(long, value_name = "N", default_value_t = Limits::default().upstream_idle)]
    keepalive: usize,
    /// Bytes of the headers of a request or response, at least 8192
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().header_bytes,
        value_parser = header_bytes)]
    max_header: usize,
    /// Bytes of a request target
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().uri_bytes)]
    max_uri: usize,
    /// Concurrent requests on one HTTP/2 connection
    #[arg(long, value_name = "N", default_value_t = Limits::default().h2_streams)]
    max_streams: u32,
    /// Least bytes per second of a request body, averaged over --client-timeout
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

impl Args {
    fn config(self) -> Config {
        let mut config = Config::new(self.upstream);
        config.listen = self.listen;
        config.listen_background = self.prefetching.service_worker();
        config.certificate = self
            .cert
            .zip(self.key)
            .map(|(certificates, key)| CertificateFiles { certificates, key });
        config.upstream_host = self.upstream_host;
        config.upstream_roots = self.upstream_ca;
        config.trust_forwarded = self.trust_forwarded.is_some();
        config.via = self.via;
        config.access_log = self.access_log.map(|path| {
            if path.as_os_str() == "-" { AccessLog::Stdout } else { AccessLog::File(path) }
        });
        config.threads = self.threads;
        let limits = self.limits;
        config.limits = Limits {
            connections: limits.max_connections,
            // The proxy in front is one address.
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

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (json, teller) = (args.json, Teller::start().context("cannot start a thread")?);
    let tell = teller.lines();
    let listener = Listener::new(move |event| {
        tell.line(if json { as_json(event) } else { as_text(event) });
    });
    let ended = serve(args, listener);
    teller.finish();
    ended
}

fn serve(args: Args, listener: Listener) -> anyhow::Result<ExitCode> {
    let signals = Signals::take().context("cannot run as a daemon")?;
    let inherited = Inherited::take()?;
    let nps = match args.prefetching.nps(args.trust_forwarded) {
        Ok(nps) => nps.map(Arc::new),
        Err(error) if error.is::<crate::Misuse>() => {
            crate::complain(&error);
            return Ok(ExitCode::from(crate::USAGE));
        }
        Err(error) => return Err(error),
    };
    let site = nps.map(|nps| nps as Arc<dyn Site>);
    let server = Server::start_on(inherited, args.config(), site, listener)?;
    signals.run(server);
    Ok(ExitCode::SUCCESS)
}

fn as_text(event: &Event) -> String {
    format!("lull: {event}")
}

fn as_json(event: &Event) -> String {
    let mut object = json!({
        "event": event.name(),
        "warning": event.is_warning(),
        "text": event.to_string(),
    });
    match event {
        Event::Listening { address, secure } => {
            object["address"] = json!(address.to_string());
            object["port"] = json!(address.port());
            object["secure"] = json!(secure);
        }
        Event::Draining { connections } => object["connections"] = json!(connections),
        Event::Stopped { cut } => object["cut"] = json!(cut),
        Event::AddressRefused { address } => object["address"] = json!(address.to_string()),
        Event::FiguresOff { address } => object["address"] = json!(address.to_string()),
        Event::BehindCdn { name } => object["name"] = json!(name),
        Event::Figures { url } => object["url"] = json!(url),
        Event::Learned { requests, unread } => {
            object["requests"] = json!(requests);
            object["unread"] = json!(unread);
        }
        Event::NoneOfSite { host } => object["host"] = json!(host),
        Event::ForwardedUnread { value } => object["value"] = json!(value),
        Event::SiteHasWorker { path } => object["path"] = json!(path),
        Event::ProbesFail { path, why } => {
            object["path"] = json!(path);
            object["why"] = json!(why);
        }
        Event::NotLearned { why }
        | Event::ModelAside { why }
        | Event::ModelUnsaved { why }
        | Event::NoBudget { why }
        | Event::CertificateKept { why }
        | Event::UpstreamDown { why }
        | Event::NotSwitched { why }
        | Event::LogLost { why }
        | Event::RobotsUnknown { why }
        | Event::CannotAccept { why } => object["why"] = json!(why),
        _ => {}
    }
    object.to_string()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    fn parse(arguments: &[&str]) -> Result<Config, clap::Error> {
        Ok(parsed(arguments)?.config())
    }

    pub(super) fn parsed(arguments: &[&str]) -> Result<Args, clap::Error> {
        let always = ["web", "--upstream", "http://127.0.0.1:8080", "--listen", "127.0.0.1:0"];
        Ok(Command::try_parse_from(always.iter().chain(arguments))?.args)
    }

    #[test]
    fn the_defaults_are_those_of_the_library() {
        let config = parse(&[]).unwrap();
        assert_eq!(config.limits, Limits::default());
        assert_eq!(config.timeouts, Timeouts::default());
    }

    #[test]
    fn what_makes_no_sense_is_told() {
        for arguments in [
            &["--cert", "a.pem"][..],
            &["--connect-timeout", "0"],
            &["--connect-timeout", "-1"],
            &["--connect-timeout", "inf"],
            &["--max-header", "100"],
            &["--dscp", "ef"],
            &["--listen", "nowhere"],
            &["--threads", "0"],
            &["--plain", "--speculation-rules"],
            &["--plain", "--service-worker", "127.0.0.1:0"],
            &["--service-worker", "nowhere"],
            &["--trust-forwarded=0"],
            &["--trust-forwarded=all"],
            &["--plain", "--site", "www.example.org"],
            &["--paper-budget", "0.01"],
            &["--probe", "/", "--paper-budget", "0"],
        ] {
            assert!(parse(arguments).is_err(), "{arguments:?}");
        }
    }

    #[test]
    fn behind_another_proxy_all_clients_have_one_address() {
        fn found(arguments: &[&str]) -> (bool, Option<NonZeroUsize>) {
            let config = parse(arguments).unwrap();
            (config.trust_forwarded, config.limits.connections_per_address)
        }
        assert_eq!(found(&[]), (false, None));
        for trusts in ["--trust-forwarded", "--trust-forwarded=1", "--trust-forwarded=3"] {
            assert_eq!(found(&[trusts]), (true, Some(NonZeroUsize::MAX)), "{trusts}");
        }
        // What comes behind it is another option.
        assert!(found(&["--trust-forwarded", "--plain"]).0);
    }

    #[test]
    fn a_pattern_that_could_never_match_is_told() {
        for option in ["--deny", "--allow", "--allow-query"] {
            for text in ["admin", "private/", "?print="] {
                let error = parse(&[option, text]).unwrap_err();
                assert_eq!(error.exit_code(), i32::from(crate::USAGE));
                let said = error.to_string();
                assert!(said.contains(&format!("'/{text}'")), "{said}");
                assert!(said.contains(&format!("'*{text}'")), "{said}");
            }
            assert!(parse(&[option, "/admin", option, "*.zip$"]).is_ok(), "{option}");
        }
    }

    #[test]
    fn a_site_has_names_and_no_url() {
        for (site, words) in [
            ("https://www.example.org", "it is a URL"),
            ("www.example.org/shop", "it is a URL"),
            ("*.example.org", "repeat"),
            ("www.example.org:https", "HOST or HOST:PORT"),
            ("", "HOST or HOST:PORT"),
        ] {
            let error = parse(&["--site", site]).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        assert!(parse(&["--site", "www.example.org", "--site", "example.org:8443"]).is_ok());
    }

    #[test]
    fn an_event_as_json_says_the_port() {
        let event = Event::Listening { address: "127.0.0.1:8080".parse().unwrap(), secure: true };
        let object: serde_json::Value = serde_json::from_str(&as_json(&event)).unwrap();
        assert_eq!(object["event"], "listening");
        assert_eq!(object["port"], 8080);
        assert_eq!(object["secure"], true);
    }
}
