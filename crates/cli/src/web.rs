//! `lull web`: a proxy in front of a site.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use http::HeaderValue;
use lull_cli::arguments::{dscp, seconds};
use lull_transport::{Dscp, Options};
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
      in front of a site on this machine
  lull web --upstream http://127.0.0.1:8080 --listen 0.0.0.0:80 --log access.log --model site.model
      what visitors did is known from the start, and what they do is kept
  lull web --upstream unix:/run/app.sock --listen https://[::]:443 --listen http://[::]:80 \\
      --cert /etc/ssl/site.pem --key /etc/ssl/site.key
      with TLS; SIGHUP loads a new certificate, and so does a change of the files
  lull web --upstream http://127.0.0.1:8080 --listen 0.0.0.0:443 --service-worker 0.0.0.0:8443 \\
      --cert /etc/ssl/site.pem --key /etc/ssl/site.key
      in Firefox as well, by a service worker that fetches from port 8443
  lull web --upstream http://127.0.0.1:8080 --listen 127.0.0.1:0 --json
      on a free port, which is told as JSON";

/// Stand in front of a web site as a reverse proxy that prefetches pages before the click.
///
/// Pages get one script; the script asks for hints, and fetches what they name into the browser's
/// cache when the page has loaded, from spare capacity of server and network only. Who is signed in
/// gets pages as they are.
///
/// SIGTERM and SIGINT end it after what is under way, a second one at once. SIGHUP and SIGUSR1 load
/// the certificate, open the access log and ask for robots.txt anew. SIGUSR2 says that the site's server is
/// another one, such as a release that takes longer: what is usual of it is learned anew. What happens is
/// told on standard error, one line each.
///
/// The exit code is 0 after a signal, 1 if it cannot start, and 2 for arguments that make no sense.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The site's server: http://HOST:PORT, https://HOST:PORT or unix:/PATH
    #[arg(long, value_name = "URL")]
    upstream: Upstream,
    /// Where clients come in: HOST:PORT, http://HOST:PORT or https://HOST:PORT. May be repeated.
    /// Without a scheme it is https if there is a certificate
    #[arg(long, value_name = "ADDR", required = true)]
    listen: Vec<Listen>,
    /// The certificate chain for https, in PEM
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Its private key, in PEM
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// What the upstream gets as Host, instead of the client's
    #[arg(long, value_name = "HOST")]
    upstream_host: Option<HeaderValue>,
    /// Certificates, in PEM, that an https upstream is judged by, instead of the system's
    #[arg(long, value_name = "FILE")]
    upstream_ca: Option<PathBuf>,
    /// Believe X-Forwarded-* of clients: another proxy stands in front of this one, and nobody
    /// gets past it. Also lifts the limit per address. N, 1 if it is left out: so many stand in a row,
    /// each of which adds an address
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true,
        default_missing_value = "1")]
    trust_forwarded: Option<NonZeroUsize>,
    /// Add this name to Via. nginx as an upstream stops compressing when it sees one
    #[arg(long, value_name = "NAME")]
    via: Option<HeaderValue>,
    /// Write an access log in Combined format; - is standard output
    #[arg(long, value_name = "FILE")]
    access_log: Option<PathBuf>,
    /// Threads that carry the traffic [default: one for each core]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// Tell what happens as JSON, one object a line
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
    /// Open connections of clients [default: half of the open files that are allowed]
    #[arg(long, value_name = "N")]
    max_connections: Option<NonZeroUsize>,
    /// Those of one address, IPv6: of one /64 [default: an eighth of all]
    #[arg(long, value_name = "N")]
    max_connections_per_address: Option<NonZeroUsize>,
    /// Requests with the upstream at a time [default: a quarter of the open files]
    #[arg(long, value_name = "N")]
    max_upstream_requests: Option<NonZeroUsize>,
    /// Idle connections that are kept to the upstream
    #[arg(long, value_name = "N", default_value_t = Limits::default().upstream_idle)]
    keepalive: usize,
    /// Bytes of a request's or response's headers, 8192 at least
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().header_bytes,
        value_parser = header_bytes)]
    max_header: usize,
    /// Bytes of a request's target
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().uri_bytes)]
    max_uri: usize,
    /// Requests at a time on one HTTP/2 connection
    #[arg(long, value_name = "N", default_value_t = Limits::default().h2_streams)]
    max_streams: u32,
    /// Bytes a second that a request's body must bring, on the average of --client-timeout
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().body_rate)]
    min_body_rate: u64,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Timeouts, in seconds")]
struct TimeoutArgs {
    /// For the upstream to take a connection
    #[arg(long, value_name = "S", default_value = "5", value_parser = seconds)]
    connect_timeout: Duration,
    /// For the upstream to begin its answer, and for each next piece of it
    #[arg(long, value_name = "S", default_value = "60", value_parser = seconds)]
    upstream_timeout: Duration,
    /// How long a connection to the upstream is kept idle: less than the upstream keeps it
    #[arg(long, value_name = "S", default_value = "4", value_parser = seconds)]
    keepalive_timeout: Duration,
    /// For a client's request head, from its first byte, and its TLS handshake
    #[arg(long, value_name = "S", default_value = "10", value_parser = seconds)]
    header_timeout: Duration,
    /// For a client that neither sends the body it has announced nor takes its answer
    #[arg(long, value_name = "S", default_value = "30", value_parser = seconds)]
    client_timeout: Duration,
    /// How long a client's connection is kept idle
    #[arg(long, value_name = "S", default_value = "75", value_parser = seconds)]
    idle_timeout: Duration,
    /// How long what is under way may last once it is to end
    #[arg(long, value_name = "S", default_value = "30", value_parser = seconds)]
    drain_timeout: Duration,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "How prefetches are sent")]
struct BackgroundArgs {
    /// The congestion control that prefetches are sent by; without it in the kernel, lull paces
    /// them itself
    #[arg(long, value_name = "NAME", default_value = "nice")]
    cc: String,
    /// The class of their packets: le or none
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
        config.background =
            Options::new().congestion_control(self.background.cc).dscp(self.background.dscp);
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
