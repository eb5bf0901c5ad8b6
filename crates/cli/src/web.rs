//! `lull web`: a proxy in front of a site.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use log_writer::LogWriter;
use lull_web::proxy::{Config, Event, Inherited, Listener, Server, Signals, Site};
use reload::Reload;
use serde_json::json;
use server_args::ServerArgs;
use site_args::SiteArgs;

mod config_file;
mod log_writer;
mod prefetch;
mod reload;
mod server_args;
mod site_args;

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
      listen on a free port, and log it as JSON
  lull web --check /etc/lull/web.toml
      check a file that describes several sites
  lull web --config /etc/lull/web.toml
      serve these sites";

const USAGE: &str = "\
lull web --upstream <URL> --listen <ADDR>... [OPTIONS]
       lull web --config <FILE> [--json]
       lull web --check <FILE>";

/// Run a reverse proxy in front of a web site that prefetches pages before the click
///
/// The proxy adds one script to pages. After a page has loaded, the script requests hints and fetches the hinted
/// pages into the browser's cache, with spare capacity of server and network only. Signed-in users get the page
/// unchanged.
///
/// SIGTERM and SIGINT end the proxy after the current requests; a second signal ends it at once. SIGHUP and SIGUSR1
/// reload the certificate, reopen the access log and fetch robots.txt again. SIGHUP also reloads the sites of --config,
/// without an end of connections. SIGUSR2 reports a new server, such as a
/// release with other response times: the proxy learns the usual times again. It logs to standard error, one line
/// per event. Set RUST_LOG=warn to log only warnings and errors.
///
/// The exit code is 0 after SIGTERM or SIGINT, 1 if the proxy cannot start, and 2 if the arguments are wrong.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, override_usage = USAGE)]
pub(crate) struct Args {
    /// Read sites and all other options from this file, in TOML
    #[arg(long, value_name = "FILE", conflicts_with_all = ["upstream", "listen", "check"])]
    config: Option<PathBuf>,
    /// Check a configuration file, print what is wrong with it, and exit
    #[arg(long, value_name = "FILE", conflicts_with_all = ["upstream", "listen"])]
    check: Option<PathBuf>,
    /// Log events as JSON, one object per line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    site: SiteArgs,
}

/// A proxy, ready to start.
struct Setup {
    config: Config,
    hooks: Vec<Option<Arc<dyn Site>>>,
    reload: Option<Reload>,
}

impl Args {
    /// The configuration that the options or the file describe.
    fn setup(self, listener: &Listener) -> anyhow::Result<Setup> {
        let Some(path) = &self.config else { return self.of_options() };
        let setup =
            config_file::Setup::read(path).map_err(|why| crate::UsageError(why.to_string()))?;
        let reload = Reload::new(path.clone(), &setup, listener.clone());
        Ok(Setup { reload: Some(reload), ..Setup::of_file(setup)? })
    }

    fn of_options(self) -> anyhow::Result<Setup> {
        let Args { server, site, .. } = self;
        let Some(upstream) = site.upstream.clone() else {
            let text = "no site: give --upstream URL and --listen ADDR, or --config FILE";
            return Err(crate::UsageError(text.into()).into());
        };
        if server.listen.is_empty() {
            let text = "nothing to listen on: give --listen ADDR";
            return Err(crate::UsageError(text.into()).into());
        }
        let hook = site.prefetching.nps(server.trust_forwarded)?;
        let mut config = server.config(vec![site.config(upstream)]);
        config.listen_background = site.prefetching.service_worker();
        let hooks = vec![hook.map(|nps| Arc::new(nps) as _)];
        Ok(Setup { config, hooks, reload: None })
    }
}

impl Setup {
    fn of_file(setup: config_file::Setup) -> anyhow::Result<Self> {
        let trusts = setup.server.trust_forwarded;
        let (config, sites) = setup.into_config();
        let mut hooks = Vec::new();
        for (prefetching, hosts) in sites {
            let nps = prefetching.nps_of(hosts, trusts)?;
            hooks.push(nps.map(|nps| Arc::new(nps) as _));
        }
        Ok(Setup { config, hooks, reload: None })
    }
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match run_or_check(args) {
        Err(error) if error.is::<crate::UsageError>() => {
            crate::print_error(&error);
            Ok(ExitCode::from(crate::USAGE))
        }
        ended => ended,
    }
}

fn run_or_check(args: Args) -> anyhow::Result<ExitCode> {
    if let Some(path) = &args.check {
        return check(path);
    }
    let (json, writer) = (args.json, LogWriter::start().context("cannot start a thread")?);
    lull_cli::log::start(writer.lines())?;
    let listener = Listener::new(move |event| {
        let line = if json { as_json(event) } else { as_text(event) };
        match event.is_warning() {
            true => tracing::warn!(target: "lull::web", "{line}"),
            false => tracing::info!(target: "lull::web", "{line}"),
        }
    });
    let ended = serve(args, listener);
    writer.finish();
    ended
}

/// Checks a file, and prints a summary of it.
fn check(path: &Path) -> anyhow::Result<ExitCode> {
    let setup = config_file::Setup::read(path).map_err(|why| crate::UsageError(why.to_string()))?;
    let sites = setup.sites.len();
    for site in &setup.sites {
        site.prefetching
            .check(setup.server.trust_forwarded)
            .with_context(|| path.display().to_string())?;
    }
    println!("{}: good, {sites} {}", path.display(), if sites == 1 { "site" } else { "sites" });
    Ok(ExitCode::SUCCESS)
}

fn serve(args: Args, listener: Listener) -> anyhow::Result<ExitCode> {
    let signals = Signals::take().context("cannot run as a daemon")?;
    let inherited = Inherited::take()?;
    let Setup { config, hooks, mut reload } = args.setup(&listener)?;
    let server = Server::start_on(inherited, config, hooks, listener)?;
    signals.run(server, |server| reload.iter_mut().for_each(|reload| reload.run(server)));
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
        Event::SitesReplaced { sites } => object["sites"] = json!(sites),
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
        Event::ServerUnhealthy { server, why } => {
            object["server"] = json!(server);
            object["why"] = json!(why);
        }
        Event::CertificateNotIssued { name, why } => {
            object["name"] = json!(name);
            object["why"] = json!(why);
        }
        Event::ServerHealthy { server } => object["server"] = json!(server),
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
        | Event::ConfigKept { why }
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
    use std::num::NonZeroUsize;

    use clap::Parser;
    use lull_web::proxy::{Limits, Timeouts};

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    fn parse(arguments: &[&str]) -> Result<Config, clap::Error> {
        Ok(parsed(arguments)?.server.config(Vec::new()))
    }

    pub(super) fn parsed(arguments: &[&str]) -> Result<Args, clap::Error> {
        let always = ["web", "--upstream", "http://127.0.0.1:8080", "--listen", "127.0.0.1:0"];
        Ok(Command::try_parse_from(always.iter().chain(arguments))?.args)
    }

    #[test]
    fn defaults_are_those_of_the_library() {
        let config = parse(&[]).unwrap();
        assert_eq!(config.limits, Limits::default());
        assert_eq!(config.timeouts, Timeouts::default());
    }

    #[test]
    fn invalid_torture_options_are_rejected() {
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
            &["--behind-cdn", "--speculation-rules"],
            &["--behind-cdn", "--service-worker", "127.0.0.1:0"],
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
    fn clients_behind_another_proxy_share_one_address() {
        fn found(arguments: &[&str]) -> (bool, Option<NonZeroUsize>) {
            let config = parse(arguments).unwrap();
            (config.trust_forwarded, config.limits.connections_per_address)
        }
        assert_eq!(found(&[]), (false, None));
        for trusts in ["--trust-forwarded", "--trust-forwarded=1", "--trust-forwarded=3"] {
            assert_eq!(found(&[trusts]), (true, Some(NonZeroUsize::MAX)), "{trusts}");
        }
        // The following argument is another option.
        assert!(found(&["--trust-forwarded", "--plain"]).0);
    }

    #[test]
    fn pattern_that_never_matches_is_reported() {
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
    fn site_is_a_host_name_without_url() {
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
    fn json_event_contains_the_port() {
        let event = Event::Listening { address: "127.0.0.1:8080".parse().unwrap(), secure: true };
        let object: serde_json::Value = serde_json::from_str(&as_json(&event)).unwrap();
        assert_eq!(object["event"], "listening");
        assert_eq!(object["port"], 8080);
        assert_eq!(object["secure"], true);
    }
}
