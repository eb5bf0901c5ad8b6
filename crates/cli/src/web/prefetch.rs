//! The prefetching options of `lull web`.

use std::fs::File;
use std::io::{self, Read};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use http::HeaderValue;
use lull_cc::Bytes;
use lull_cli::arguments::{seconds, token};
use lull_speculate::budget::Parameters;
use lull_web::nps::{
    Access, ByteCaps, KEPT_TIMES, MinBenefit, MonitorSettings, Nps, Save, ServiceWorker, Settings,
    ShareSettings, site_name,
};
use lull_web::policy::{self, Harmless, OwnersRules, Pattern, Policy};
use lull_web::proxy::{Listen, MAX_SERVERS, Upstream};

use crate::predict;
use lull_cli::logs::LogArgs;
use lull_durable::Replacement;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Prefetching")]
pub(super) struct PrefetchArgs {
    /// Only forward requests: no script in pages, no hints
    #[arg(long)]
    plain: bool,
    /// Name of the site, as in the address bar. Requests for other hosts are forwarded unchanged. The first
    /// name is used for requests to the server. May be repeated [default: all hosts are the same site]
    #[arg(long, value_name = "HOST[:PORT]", conflicts_with = "plain", value_parser = site_name)]
    site: Vec<HeaderValue>,
    /// Learn from the lines of this access log that are later than the model, while the site is served. A log
    /// of the server behind Lull contains prefetches: log Sec-Purpose, for example as JSON with nginx's
    /// $http_sec_purpose, or learn from --access-log. May be repeated
    #[arg(long, value_name = "LOG", conflicts_with = "plain")]
    log: Vec<PathBuf>,
    #[command(flatten)]
    how: LogArgs,
    /// Save the model to this file every minute and at the end, URLs that are barred for a day to FILE.bars,
    /// and the usual response times of the server to FILE.times
    #[arg(long, value_name = "FILE", conflicts_with = "plain")]
    model: Option<PathBuf>,
    /// File with a secret for counting clients; it is created if needed. Without it, counts start from zero
    /// at each start
    #[arg(long, value_name = "FILE", conflicts_with = "plain")]
    model_key: Option<PathBuf>,
    /// Never prefetch URLs whose path matches from its beginning: * is any text, $ is the end. May be
    /// repeated
    #[arg(long, value_name = "PATTERN", conflicts_with = "plain")]
    deny: Vec<Pattern>,
    /// Prefetch URLs that match, although they look like actions
    #[arg(long, value_name = "PATTERN", conflicts_with = "plain")]
    allow: Vec<Pattern>,
    /// Prefetch URLs that match, although they have a query. The query is then part of the name:
    /// /list?page=*. An existing model learns such pages only from new visits
    #[arg(long, value_name = "PATTERN", conflicts_with = "plain")]
    allow_query: Vec<Pattern>,
    /// A cookie that does not change responses, in addition to the known ones of analytics, consent tools and
    /// load balancers. A name that ends in * is a prefix. An empty name removes the known ones, and
    /// disables the learning of others. May be repeated
    #[arg(long, value_name = "NAME", conflicts_with = "plain")]
    harmless_cookie: Vec<String>,
    /// Limit of prefetching. "scheduler": the proxy sends a prefetch when the server has room, which it learns from
    /// visitors' requests. "probes": the monitor sets a rate by the response times of probes. "paper": for experiments
    /// only, see docs/budget.md; needs --paper-budget
    #[arg(long, value_name = "HOW", conflicts_with = "plain", default_value = "scheduler")]
    budget: Budget,
    /// A second instance of the upstream, for prefetches only, which runs at a low priority, such as nice 19. Then
    /// prefetches use what visitors leave of the processor. May be repeated
    #[arg(long, value_name = "URL", conflicts_with = "plain")]
    pub(super) prefetch_upstream: Vec<Upstream>,
    /// Path of a public object that is probed. May be repeated. With --budget scheduler, for a server that
    /// others use as well: nothing is prefetched while probes are late [default with --budget probes: the most wanted
    /// page, the most wanted part of pages, and a slow page]
    #[arg(long, value_name = "PATH", conflicts_with = "plain")]
    probe: Vec<String>,
    /// For experiments: with --budget paper, a probe is late from this many seconds on. The budget grows by one, never
    /// doubles, and grants lists at random. Once for each --probe
    #[arg(long, value_name = "S", conflicts_with = "plain", requires = "probe",
        value_parser = seconds)]
    paper_budget: Vec<Duration>,
    /// Prefetch a page before the visitor points at its link only if it saves this many seconds of waiting
    /// per megabyte on average. A larger value saves bytes; 0 prefetches everything that may be wanted
    #[arg(long, alias = "least-worth", value_name = "SECONDS", conflicts_with = "plain",
        default_value_t = MinBenefit::default().0, value_parser = worth)]
    min_benefit: f32,
    /// Most bytes per day that one visitor prefetches: an IPv4 address or an IPv6 /64, which an office may
    /// share. The count starts from zero at each start
    #[arg(long, value_name = "BYTES", conflicts_with = "plain",
        default_value_t = ByteCaps::default().visitor.0)]
    visitor_bytes: u64,
    /// Maximum bytes per day that all visitors together prefetch. The count starts from zero at each start [default: no
    /// limit]
    #[arg(long, value_name = "BYTES", conflicts_with = "plain")]
    daily_bytes: Option<u64>,
    /// Share of visitors who get no hints: the control group, which the dashboard compares with the others
    #[arg(long, alias = "hold-back", value_name = "SHARE", conflicts_with = "plain",
        default_value = "0.05", value_parser = share)]
    control_group_share: u16,
    /// Let browsers prefetch by speculation rules instead of the script, if they and the page's policies
    /// permit it. These prefetches are not in the background: they use the foreground connections, at most
    /// three at a time, and do not yield
    #[arg(long, conflicts_with = "plain")]
    speculation_rules: bool,
    /// Also prefetch in Firefox, by a service worker that fetches over this address. Visitors must reach its
    /// port under the site's name, and over https if the site uses it. Not for sites with their own service
    /// worker
    #[arg(long, value_name = "ADDR", conflicts_with = "plain")]
    service_worker: Option<Listen>,
    /// Prefetch behind a CDN or another shared cache that keeps pages. The CDN must pass requests with an X-Lull header
    /// on to Lull; replies have Vary: X-Lull. Needs --trust-forwarded
    #[arg(long, conflicts_with_all = ["plain", "speculation_rules", "service_worker"])]
    behind_cdn: bool,
    /// Only predict, and count correct predictions; pages stay unchanged
    #[arg(long, conflicts_with = "plain")]
    shadow: bool,
    /// Kill switch: no prefetches while this file exists, or its existence cannot be checked
    #[arg(long, value_name = "FILE", conflicts_with = "plain")]
    off_file: Option<PathBuf>,
    /// File whose first line is the token for the dashboard and metrics below /.lull/, as password or bearer
    /// token [default: each start creates a token and logs a URL with it; no access, if an ADDR of --listen
    /// may be public]
    #[arg(long, value_name = "FILE", conflicts_with = "plain")]
    token_file: Option<PathBuf>,
    /// Share the model, barred URLs, the budget and the control group with other proxies of the site, through these
    /// NATS servers with JetStream: nats://HOST:PORT or nats://USER:PASSWORD@HOST:PORT, or tls:// instead of nats://,
    /// separated by commas. All proxies need the same file for --model-key
    #[arg(
        long,
        value_name = "URL",
        conflicts_with = "plain",
        requires = "model_key",
        value_delimiter = ','
    )]
    #[arg(value_parser = nats_server)]
    share: Vec<String>,
}

/// The address of a NATS server.
fn nats_server(text: &str) -> Result<String, &'static str> {
    let rest = text.strip_prefix("nats://").or_else(|| text.strip_prefix("tls://"));
    let is_address = rest.is_some_and(|rest| rest.parse::<http::uri::Authority>().is_ok());
    if is_address {
        Ok(text.to_owned())
    } else {
        Err("write nats://HOST:PORT or tls://HOST:PORT, several separated by commas")
    }
}

/// The name of a site in subjects of NATS.
fn share_name(hosts: &[HeaderValue]) -> String {
    let name = hosts.first().and_then(|host| host.to_str().ok()).unwrap_or("site");
    name.chars().map(|one| if one.is_ascii_alphanumeric() { one } else { '-' }).collect()
}

/// A share, of 10,000.
fn share(text: &str) -> Result<u16, &'static str> {
    let share = text.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
    share.map(|share| (share * 1e4).round() as u16).ok_or("write a share from 0 to 1, such as 0.05")
}

/// Seconds a megabyte.
fn worth(text: &str) -> Result<f32, &'static str> {
    let worth = text.parse::<f32>().ok().filter(|worth| worth.is_finite() && *worth >= 0.0);
    worth.ok_or("write seconds, such as 0.04")
}

/// The access to the dashboard.
fn access(file: Option<&Path>) -> anyhow::Result<Access> {
    Ok(match file {
        Some(path) => Access::Token(token(path)?),
        None => Access::Generated(format!("{:032x}", u128::from_be_bytes(predict::random_key()?))),
    })
}

/// How much is prefetched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Budget {
    #[default]
    Scheduler,
    Probes,
    Paper,
}

/// The parameters of the epochs' budget for this many objects; none if the upstream's scheduler replaces it.
fn budget(
    how: Budget,
    late_from: &[Duration],
    objects: usize,
) -> anyhow::Result<Option<Parameters>> {
    match late_from.len() {
        0 if how == Budget::Paper => {
            let text = "--budget paper needs --paper-budget, the time from which a response to a probe \
                 is late";
            Err(crate::UsageError(text.into()).into())
        }
        0 if how == Budget::Probes => Ok(Some(Parameters::shipped(objects.max(1)))),
        0 => Ok(None),
        _ if how == Budget::Probes => {
            let text = "--paper-budget is for --budget paper: leave it out with --budget probes";
            Err(crate::UsageError(text.into()).into())
        }
        count if count == objects => Ok(Some(Parameters::paper(late_from.iter().copied()))),
        count => {
            let text = format!(
                "--paper-budget is given {count} times, and --probe {objects} \
                                times"
            );
            Err(crate::UsageError(text).into())
        }
    }
}

impl PrefetchArgs {
    /// The address from which the service worker fetches, if enabled.
    pub(super) fn service_worker(&self) -> Option<Listen> {
        self.service_worker
    }

    /// Prefetching as requested; none if it is off.
    ///
    /// # Errors
    /// If a log, the model or the key cannot be opened, or the token cannot be used.
    pub(super) fn nps(&self, trust_forwarded: Option<NonZeroUsize>) -> anyhow::Result<Option<Nps>> {
        self.make(self.settings(trust_forwarded)?)
    }

    /// The same for a site that gets requests for its hosts only.
    ///
    /// # Errors
    /// As for [`nps`](Self::nps).
    pub(super) fn nps_of(
        &self,
        hosts: Vec<HeaderValue>,
        trust_forwarded: Option<NonZeroUsize>,
    ) -> anyhow::Result<Option<Nps>> {
        self.make(Settings { hosts, is_routed: true, ..self.settings(trust_forwarded)? })
    }

    /// Checks what can be checked without starting.
    ///
    /// # Errors
    /// As for [`nps`](Self::nps).
    pub(super) fn check(&self, trust_forwarded: Option<NonZeroUsize>) -> anyhow::Result<()> {
        self.check_options()?;
        self.settings(trust_forwarded).map(|_| ())
    }

    fn check_options(&self) -> anyhow::Result<()> {
        if self.how.are_given() && self.log.is_empty() {
            let text = "--format, --client-field and --trusted-proxy describe a log: name the log \
                        with --log LOG";
            return Err(crate::UsageError(text.into()).into());
        }
        if let Some(path) = self.probe.iter().find(|path| !path.starts_with('/')) {
            let text = format!("'{path}' is not a path to probe: begin it with /");
            return Err(crate::UsageError(text).into());
        }
        let has_scheduler = self.budget == Budget::Scheduler && self.paper_budget.is_empty();
        if !self.prefetch_upstream.is_empty() && !has_scheduler {
            let text = "--prefetch-upstream is for --budget scheduler: leave one of them out";
            return Err(crate::UsageError(text.into()).into());
        }
        if self.prefetch_upstream.len() > MAX_SERVERS {
            let text = format!(
                "--prefetch-upstream is given {} times, at most {MAX_SERVERS} are possible",
                self.prefetch_upstream.len()
            );
            return Err(crate::UsageError(text).into());
        }
        Ok(())
    }

    /// How this proxy shares with others of the site.
    ///
    /// # Errors
    /// If the key cannot be read.
    fn share(&self, hosts: &[HeaderValue]) -> anyhow::Result<Option<ShareSettings>> {
        let Some(key) = self.model_key.as_deref().filter(|_| !self.share.is_empty()) else {
            return Ok(None);
        };
        Ok(Some(ShareSettings {
            servers: self.share.clone(),
            name: share_name(hosts),
            key: predict::key_of(key)?,
        }))
    }

    fn make(&self, mut settings: Settings) -> anyhow::Result<Option<Nps>> {
        self.check_options()?;
        if self.plain {
            return Ok(None);
        }
        settings.share = self.share(&settings.hosts)?;
        let names = settings.rules.urls.clone();
        let sites: Vec<String> = settings
            .hosts
            .iter()
            .filter_map(|name| name.to_str().ok())
            .map(str::to_owned)
            .collect();
        let learn = predict::learn_site(
            self.model.as_deref(),
            self.model_key.as_deref(),
            (&self.log, &self.how),
            &sites,
            move |target| names.is_named_by_query(target),
        )?;
        let save_model = self.model.clone().map(|path| save(path, "the model"));
        let nps = Nps::learning(settings, learn, save_model);
        let Some(model) = &self.model else { return Ok(Some(nps)) };
        let (bars, times) = (sibling_path(model, ".bars"), sibling_path(model, ".times"));
        // The first bytes of any version.
        let bars_before = read_saved(&bars, &Policy::KEPT_BARS[..7])?;
        let times_before = read_saved(&times, &KEPT_TIMES[..11])?;
        let nps = nps.with_saved_bars(&bars_before, save(bars, "the bars"));
        let nps = nps.with_saved_times(&times_before, save(times, "the times"));
        if self.share.is_empty() {
            return Ok(Some(nps));
        }
        let unsent = sibling_path(model, ".unsent");
        let unsent_before = read_saved(&unsent, &Nps::KEPT_UNSENT[..10])?;
        Ok(Some(nps.with_saved_unsent(&unsent_before, save(unsent, "the messages"))))
    }

    /// The settings of the site's owner.
    ///
    /// # Errors
    /// If the token cannot be used, the numbers of times and objects differ, or clients behind a CDN have no addresses.
    fn settings(&self, trust_forwarded: Option<NonZeroUsize>) -> anyhow::Result<Settings> {
        let urls = OwnersRules {
            deny: self.deny.clone(),
            allow: self.allow.clone(),
            allow_query: self.allow_query.clone(),
        };
        if self.behind_cdn && trust_forwarded.is_none() {
            let text = "--behind-cdn needs --trust-forwarded: otherwise all visitors have the address of the CDN";
            return Err(crate::UsageError(text.into()).into());
        }
        let harmless = Harmless::new(self.harmless_cookie.iter().map(String::as_str));
        Ok(Settings {
            rules: policy::Settings { harmless, urls },
            hosts: self.site.clone(),
            is_routed: false,
            trust_forwarded: trust_forwarded.is_some(),
            forwarded_before: trust_forwarded.map_or(0, |count| count.get() - 1),
            monitor: MonitorSettings {
                objects: self.probe.clone(),
                parameters: budget(self.budget, &self.paper_budget, self.probe.len())?,
            },
            caps: ByteCaps {
                visitor: Bytes(self.visitor_bytes),
                daily: self.daily_bytes.map(Bytes),
            },
            min_benefit: MinBenefit(self.min_benefit),
            held_back: self.control_group_share,
            behind_cdn: self.behind_cdn,
            speculation_rules: self.speculation_rules,
            service_worker: self.service_worker.map(|_| ServiceWorker::default()),
            shadow: self.shadow,
            off_file: self.off_file.clone(),
            access: access(self.token_file.as_deref())?,
            share: None,
        })
    }
}

/// The path of a file beside the model.
fn sibling_path(model: &Path, ending: &str) -> PathBuf {
    let mut path = model.as_os_str().to_owned();
    path.push(ending);
    path.into()
}

/// The earlier contents of that file, which must have this prefix; nothing if there is no such file.
fn read_saved(path: &Path, begins: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut before = Vec::new();
    match File::open(path).and_then(|file| file.take(MAX_KEPT).read_to_end(&mut before)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        read => {
            read.with_context(|| format!("{} cannot be read", path.display()))?;
        }
    }
    if !before.is_empty() && !before.starts_with(begins) {
        bail!("{} exists and was not written by lull web: name another model", path.display());
    }
    Ok(before)
}

/// The limit of what is read. The largest number of bars takes half of it.
const MAX_KEPT: u64 = 10_000_000;

/// Saves `what` into a file that exists whole or not at all.
fn save(path: PathBuf, what: &'static str) -> Save {
    Box::new(move |kept: &[u8]| {
        let saved = Replacement::begin(&path).and_then(|file| file.finish(|to| to.write_all(kept)));
        saved.map_err(|error| {
            let path = path.display();
            io::Error::new(error.kind(), format!("{what} {path} cannot be written ({error})"))
        })
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn settings(arguments: &[&str]) -> Settings {
        let args = crate::web::tests::parsed(arguments).unwrap();
        args.site.prefetching.settings(None).unwrap()
    }

    #[test]
    fn prefetch_settings_default_to_the_library() {
        let (found, shipped) = (settings(&[]), Settings { held_back: 500, ..Settings::default() });
        assert!(matches!(found.access, Access::Generated(_)));
        assert_eq!(
            format!("{found:?}"),
            format!("{:?}", Settings { access: found.access.clone(), ..shipped })
        );
    }

    #[test]
    fn each_option_changes_its_setting() {
        let of = |option, value| settings(&[option, value]);
        let pattern = || vec![Pattern::new("/a*")];
        assert_eq!(of("--deny", "/a*").rules.urls.deny, pattern());
        assert_eq!(of("--allow", "/a*").rules.urls.allow, pattern());
        assert_eq!(of("--allow-query", "/a*").rules.urls.allow_query, pattern());
        assert_eq!(of("--harmless-cookie", "mine").rules.harmless, Harmless::new(["mine"]));
        assert_eq!(of("--harmless-cookie", "").rules.harmless, Harmless::none());
        assert_eq!(of("--site", "www.example.org").hosts, ["www.example.org"]);
        assert_eq!(of("--probe", "/p").monitor.objects, ["/p"]);
        assert_eq!(of("--visitor-bytes", "7").caps.visitor, Bytes(7));
        assert_eq!(of("--daily-bytes", "8").caps.daily, Some(Bytes(8)));
        assert_eq!(of("--min-benefit", "0.5").min_benefit, MinBenefit(0.5));
        assert_eq!(of("--control-group-share", "0.1").held_back, 1000);
        // Earlier names.
        assert_eq!(of("--least-worth", "0.5").min_benefit, MinBenefit(0.5));
        assert_eq!(of("--hold-back", "0.1").held_back, 1000);
        assert_eq!(of("--off-file", "off").off_file, Some("off".into()));
        assert!(of("--service-worker", "127.0.0.1:0").service_worker.is_some());
        assert!(settings(&["--speculation-rules"]).speculation_rules);
        assert!(settings(&["--shadow"]).shadow);
        let behind_cdn = crate::web::tests::parsed(&["--behind-cdn"]).unwrap().site.prefetching;
        assert!(behind_cdn.settings(NonZeroUsize::new(1)).unwrap().behind_cdn);
        assert!(behind_cdn.settings(None).unwrap_err().is::<crate::UsageError>());
        let paper = settings(&["--probe", "/p", "--paper-budget", "0.01"]).monitor.parameters;
        assert_eq!(paper, Some(Parameters::paper([Duration::from_millis(10)])));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, "0123456789abcdef").unwrap();
        let token = of("--token-file", path.to_str().unwrap()).access;
        assert!(matches!(token, Access::Token(token) if token == "0123456789abcdef"));
    }

    #[test]
    fn proxies_that_share_need_a_server_and_a_key() {
        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join("key");
        let parsed = |arguments: &[&str]| {
            let both = [arguments, &["--model-key", key.to_str().unwrap()]].concat();
            crate::web::tests::parsed(&both).map(|args| args.site.prefetching)
        };
        let args = parsed(&["--share", "nats://a:4222,tls://user:pass@b:4222"]).unwrap();
        let hosts = [HeaderValue::from_static("www.example.org:8443")];
        let found = args.share(&hosts).unwrap().unwrap();
        assert_eq!(found.servers, ["nats://a:4222", "tls://user:pass@b:4222"]);
        assert_eq!(
            (found.name.as_str(), fs::read(&key).unwrap()),
            ("www-example-org-8443", found.key.into())
        );
        assert_eq!(share_name(&[]), "site");
        assert_eq!(parsed(&[]).unwrap().share(&hosts).unwrap(), None);
        assert!(parsed(&["--share", "http://a:4222"]).is_err());
        assert!(parsed(&["--share", "nats://"]).is_err());
        assert!(crate::web::tests::parsed(&["--share", "nats://a:4222"]).is_err(), "no key");
    }

    #[test]
    fn prefetch_share_is_between_zero_and_one() {
        assert_eq!((share("0"), share("0.05"), share("1")), (Ok(0), Ok(500), Ok(10_000)));
        for text in ["-0.1", "1.1", "NaN", "5%", ""] {
            assert!(share(text).is_err(), "{text}");
        }
    }

    #[test]
    fn paper_budget_has_a_time_per_object() {
        let times = [Duration::from_millis(10), Duration::from_millis(120)];
        assert_eq!(budget(Budget::Scheduler, &[], 2).unwrap(), None);
        assert_eq!(budget(Budget::Probes, &[], 2).unwrap(), Some(Parameters::shipped(2)));
        for how in [Budget::Scheduler, Budget::Paper] {
            assert_eq!(budget(how, &times, 2).unwrap(), Some(Parameters::paper(times)));
        }
        let misuses =
            [(Budget::Paper, &[][..], 2), (Budget::Probes, &times, 2), (Budget::Paper, &times, 1)];
        for (how, times, objects) in misuses {
            assert!(budget(how, times, objects).unwrap_err().is::<crate::UsageError>());
        }
    }

    #[test]
    fn prefetch_servers_need_the_scheduler_and_are_limited() {
        let parsed = |arguments: &[&str]| {
            crate::web::tests::parsed(arguments).map(|args| args.site.prefetching)
        };
        let one = ["--prefetch-upstream", "http://127.0.0.1:8081"];
        assert!(parsed(&one).unwrap().check(None).is_ok());
        for more in [&["--budget", "probes"][..], &["--probe", "/p", "--paper-budget", "0.01"]] {
            let error = parsed(&[&one, more].concat()).unwrap().check(None).unwrap_err();
            assert!(error.is::<crate::UsageError>(), "{error}");
        }
        let error = parsed(&one.repeat(MAX_SERVERS + 1)).unwrap().check(None).unwrap_err();
        assert!(error.to_string().contains("65 times"), "{error}");
    }

    #[test]
    fn only_valid_files_beside_the_model_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = sibling_path(&folder.path().join("site.model"), ".bars");
        assert_eq!(path, folder.path().join("site.model.bars"));
        assert_eq!(read_saved(&path, b"lullbar").unwrap(), b"");
        let mut save = save(path.clone(), "the bars");
        save(Policy::KEPT_BARS).unwrap();
        assert_eq!(read_saved(&path, b"lullbar").unwrap(), Policy::KEPT_BARS);
        assert!(read_saved(&path, b"lull times").is_err());
        fs::write(&path, "a shopping list").unwrap();
        let why = read_saved(&path, b"lullbar").unwrap_err().to_string();
        assert!(why.contains("not written by lull web"), "{why}");
    }

    #[test]
    fn token_is_an_unguessable_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        assert!(access(Some(&path)).is_err());
        fs::write(&path, "short\n").unwrap();
        assert!(access(Some(&path)).unwrap_err().to_string().contains("too short"));
        fs::write(&path, "0123456789abcdef\nanother line").unwrap();
        let found = access(Some(&path)).unwrap();
        assert!(matches!(found, Access::Token(token) if token == "0123456789abcdef"));
    }

    #[test]
    fn missing_token_is_generated_on_each_start() {
        let made = || match access(None).unwrap() {
            Access::Generated(token) => token,
            other => panic!("{other:?}"),
        };
        let token = made();
        assert_eq!(token.len(), 32);
        assert!(token.bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert_ne!(token, made());
    }
}
