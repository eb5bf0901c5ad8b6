//! The table of a site.

use std::borrow::Cow;
use std::fs;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use lull_web::nps::site_name;
use lull_web::proxy::{
    ErrorPage, HeaderRules, HealthCheck, Listen, MAX_SERVERS, Route, SiteConfig, Upstream,
    UpstreamConfig,
};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::{HEALTH_CHECK, ROUTE, SITE, names};
use super::options::{LocatedTable, Options, unknown};
use super::{Result, SiteSetup, Source, in_order, tables};
use crate::web::site_args::SiteArgs;

/// `max-age` of a year, as the preload list wants it.
const A_YEAR: &str = "max-age=31536000";
/// A longer error page is rejected: visitors do not read that far.
const MAX_PAGE_BYTES: u64 = 1 << 20;

/// The places of keys, for later checks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KeyOffsets {
    pub(super) table: usize,
    pub(super) names: usize,
    pub(super) certificate: usize,
    pub(super) redirect: usize,
    pub(super) acme: usize,
}

type Key<'i> = Spanned<Cow<'i, str>>;
type Value<'i> = Spanned<DeValue<'i>>;

/// Reads the table of a site.
pub(super) fn read(
    source: &Source<'_>,
    table: LocatedTable<'_, '_>,
    service_worker: &mut Option<Listen>,
) -> Result<SiteSetup> {
    let mut options = Options::default();
    let mut at = KeyOffsets { table: table.at, ..KeyOffsets::default() };
    let mut site = None;
    let mut own = Vec::new();
    for (key, value) in in_order(table.table) {
        match key.get_ref().as_ref() {
            "upstream" => {
                site = Some(SiteConfig::new(upstreams(source, key, value)?.swap_remove(0)))
            }
            name if names(SITE).any(|known| known == name) => {}
            // The names say it.
            "site" => return Err(source.error(key.span().start, "write names = [\"HOST\"] here")),
            name => {
                if name == "cert" {
                    at.certificate = key.span().start;
                }
                options.add::<SiteArgs>(source, key, value, names(SITE))?;
                continue;
            }
        }
        own.push((key, value));
    }
    let args = options.parse::<SiteArgs>(source, table.at)?;
    let Some(mut site) = site else {
        let why = "the site has no upstream: write upstream = \"http://HOST:PORT\"";
        return Err(source.error(table.at, why));
    };
    site.certificate = args.certificate();
    for (key, value) in own {
        take(source, key, value, &mut site, &mut at)?;
    }
    site.upstream.host.clone_from(&args.upstream_host);
    site.upstream.roots.clone_from(&args.upstream_ca);
    site.upstream.prefetch_servers.clone_from(&args.prefetching.prefetch_upstream);
    if let Some(listen) = args.prefetching.service_worker()
        && service_worker.replace(listen).is_some_and(|before| before != listen)
    {
        let why = "another site has another service-worker address: name the same one for all";
        return Err(source.error(table.at, why));
    }
    let is_plain = |name: &&String| !name.starts_with('*');
    let hosts =
        site.names.iter().filter(is_plain).filter_map(|name| site_name(name).ok()).collect();
    Ok(SiteSetup { config: site, prefetching: args.prefetching, hosts, at })
}

/// Takes a key that is not an option.
fn take(
    source: &Source<'_>,
    key: &Key<'_>,
    value: &Value<'_>,
    site: &mut SiteConfig,
    at: &mut KeyOffsets,
) -> Result<()> {
    match key.get_ref().as_ref() {
        "names" => {
            at.names = key.span().start;
            for (text, at) in texts(source, key, value)? {
                site.names.push(name(source, at, text)?);
            }
        }
        "upstream" => site.upstream.servers = upstreams(source, key, value)?,
        "redirect-to-https" => {
            at.redirect = key.span().start;
            site.redirect_to_https = match value.get_ref() {
                DeValue::Boolean(is) => is.then_some(443),
                DeValue::Integer(port) => match port.as_str().parse() {
                    Ok(port) if port > 0 => Some(port),
                    _ => return Err(source.error(at.redirect, "the port is from 1 to 65535")),
                },
                _ => return Err(source.error(at.redirect, "write true, or the port of HTTPS")),
            };
        }
        "acme" => {
            at.acme = key.span().start;
            let DeValue::Boolean(is) = value.get_ref() else {
                return Err(source.error(at.acme, "acme is true or false in a site"));
            };
            site.acme = *is;
        }
        "hsts" => {
            let text = match value.get_ref() {
                DeValue::Boolean(false) => return Ok(()),
                DeValue::Boolean(true) => A_YEAR,
                DeValue::String(text) if is_hsts(text) => text.as_ref(),
                _ => {
                    let why = "write hsts = true, or \"max-age=SECONDS; includeSubDomains\"";
                    return Err(source.error(key.span().start, why));
                }
            };
            site.hsts = HeaderValue::from_str(text).ok();
        }
        "request-headers" => site.request_headers = header_rules(source, key, value)?,
        "response-headers" => site.response_headers = header_rules(source, key, value)?,
        "error-pages" => error_pages(source, key, value, site)?,
        "health-check" => site.upstream.health = Some(health_check(source, key, value)?),
        _ => {
            for table in tables(source, key.span().start, value)? {
                site.routes.push(route(source, table)?);
            }
        }
    }
    Ok(())
}

/// RFC 6797 §6.1: `max-age` is required.
fn is_hsts(text: &str) -> bool {
    let mut directives = text.split(';').map(str::trim);
    let age = directives.find_map(|one| one.strip_prefix("max-age="));
    age.is_some_and(|age| age.trim_matches('"').parse::<u64>().is_ok())
        && HeaderValue::from_str(text).is_ok()
}

/// A string, or a list of some, each with its place.
fn texts<'t>(
    source: &Source<'_>,
    key: &Key<'_>,
    value: &'t Value<'_>,
) -> Result<Vec<(&'t str, usize)>> {
    let text = |one: &'t Value<'_>| match one.get_ref() {
        DeValue::String(text) => Ok((text.as_ref(), one.span().start)),
        _ => {
            let why = format!("{} is a text, or a list of texts", key.get_ref());
            Err(source.error(one.span().start, why))
        }
    };
    match value.get_ref() {
        DeValue::Array(all) if !all.is_empty() => all.iter().map(text).collect(),
        _ => Ok(vec![text(value)?]),
    }
}

/// The name of a site, as it is compared with hosts.
fn name(source: &Source<'_>, at: usize, text: &str) -> Result<String> {
    let bare = text.strip_prefix("*.").unwrap_or(text);
    let read = site_name(bare).map_err(|why| source.error(at, format!("'{text}': {why}")))?;
    let read = read.to_str().unwrap_or_default();
    let has_port = read.rfind(':').is_some_and(|colon| !read[colon..].contains(']'));
    if has_port {
        return Err(source.error(at, format!("'{text}': write the name without its port")));
    }
    let star = if bare.len() < text.len() { "*." } else { "" };
    Ok(format!("{star}{}", read.strip_suffix('.').unwrap_or(read)))
}

fn upstreams(source: &Source<'_>, key: &Key<'_>, value: &Value<'_>) -> Result<Vec<Upstream>> {
    let mut servers = Vec::new();
    for (text, at) in texts(source, key, value)? {
        let server = text.parse::<Upstream>().map_err(|why| source.error(at, why.to_string()))?;
        servers.push(server);
    }
    if servers.len() > MAX_SERVERS {
        let why = format!("at most {MAX_SERVERS} servers serve one site or route");
        return Err(source.error(key.span().start, why));
    }
    Ok(servers)
}

fn table<'t, 'i>(
    source: &Source<'_>,
    key: &Key<'_>,
    value: &'t Value<'i>,
) -> Result<&'t DeTable<'i>> {
    match value.get_ref() {
        DeValue::Table(table) => Ok(table),
        _ => {
            let why = format!("{} is a table: write [site.{}]", key.get_ref(), key.get_ref());
            Err(source.error(key.span().start, why))
        }
    }
}

fn header_rules(source: &Source<'_>, key: &Key<'_>, value: &Value<'_>) -> Result<HeaderRules> {
    let mut rules = HeaderRules::default();
    for (key, value) in in_order(table(source, key, value)?) {
        let (text, at) = (key.get_ref().as_ref(), key.span().start);
        let name = HeaderName::try_from(text)
            .map_err(|_| source.error(at, format!("'{text}' is not the name of a header")))?;
        if !HeaderRules::may_change(&name) {
            let why = format!(
                "the proxy itself sets {name}: leave it out (for Host there is upstream-host)"
            );
            return Err(source.error(at, why));
        }
        let value = match value.get_ref() {
            DeValue::Boolean(false) => None,
            DeValue::String(text) => Some(HeaderValue::from_str(text).map_err(|_| {
                source.error(at, format!("the value of {name} has a character that no header may"))
            })?),
            _ => {
                let why = format!("write {name} = \"VALUE\", or {name} = false to remove it");
                return Err(source.error(at, why));
            }
        };
        rules.push(name, value);
    }
    Ok(rules)
}

fn error_pages(
    source: &Source<'_>,
    key: &Key<'_>,
    value: &Value<'_>,
    site: &mut SiteConfig,
) -> Result<()> {
    for (key, value) in in_order(table(source, key, value)?) {
        let (text, at) = (key.get_ref().as_ref(), key.span().start);
        let status = text.parse().ok().filter(|status| [400, 421, 502, 503, 504].contains(status));
        let Some(status) = status else {
            let why = format!(
                "the proxy answers no {text} itself: pages are for 400, 421, 502, 503 and 504"
            );
            return Err(source.error(at, why));
        };
        let DeValue::String(file) = value.get_ref() else {
            return Err(source.error(at, format!("write {text} = \"FILE\"")));
        };
        let path = source.resolve(file);
        let shown = path.display();
        let read = fs::metadata(&path).and_then(|found| Ok((found.len(), fs::read(&path)?)));
        let (length, body) =
            read.map_err(|error| source.error(at, format!("cannot read {shown} ({error})")))?;
        if length > MAX_PAGE_BYTES {
            return Err(
                source.error(at, format!("{shown} is longer than 1 MiB: write a shorter page"))
            );
        }
        let kind = match path.extension().and_then(|ending| ending.to_str()) {
            Some("json") => "application/json",
            Some("txt") => "text/plain; charset=utf-8",
            _ => "text/html; charset=utf-8",
        };
        let kind = HeaderValue::from_static(kind);
        site.error_pages.insert(status, ErrorPage { kind, body: body.into() });
    }
    Ok(())
}

fn health_check(source: &Source<'_>, key: &Key<'_>, value: &Value<'_>) -> Result<HealthCheck> {
    let mut check = HealthCheck {
        path: String::new(),
        interval: Duration::from_secs(10),
        timeout: Duration::from_secs(5),
    };
    let at = key.span().start;
    for (key, value) in in_order(table(source, key, value)?) {
        let (name, at) = (key.get_ref().as_ref(), key.span().start);
        match (name, value.get_ref()) {
            ("path", DeValue::String(path)) if path.starts_with('/') => {
                check.path = path.clone().into_owned();
            }
            ("path", _) => return Err(source.error(at, "the path must begin with /")),
            ("interval" | "timeout", value) => {
                let text = match value {
                    DeValue::Integer(number) => number.to_string(),
                    DeValue::Float(number) => number.to_string(),
                    _ => String::new(),
                };
                let time = lull_cli::arguments::seconds(&text)
                    .map_err(|why| source.error(at, format!("{name}: {why}")))?;
                *(if name == "interval" { &mut check.interval } else { &mut check.timeout }) = time;
            }
            _ => {
                return Err(source.error(at, unknown(name, names(HEALTH_CHECK))));
            }
        }
    }
    if check.path.is_empty() {
        return Err(source.error(at, "a health check needs a path: write path = \"/health\""));
    }
    Ok(check)
}

fn route(source: &Source<'_>, table: LocatedTable<'_, '_>) -> Result<Route> {
    let (mut prefix, mut upstream) = (None, None);
    let (mut host, mut roots, mut health) = (None, None, None);
    let mut prefetch_servers = Vec::new();
    for (key, value) in in_order(table.table) {
        let (name, at) = (key.get_ref().as_ref(), key.span().start);
        match (name, value.get_ref()) {
            ("path", DeValue::String(path)) if path.starts_with('/') => {
                prefix = Some(path.clone().into_owned());
            }
            ("path", _) => return Err(source.error(at, "the path must begin with /")),
            ("upstream", _) => upstream = Some(upstreams(source, key, value)?),
            ("prefetch-upstream", _) => prefetch_servers = upstreams(source, key, value)?,
            ("upstream-host", DeValue::String(text)) => {
                let value = HeaderValue::from_str(text);
                host = Some(value.map_err(|_| source.error(at, "it is not the name of a host"))?);
            }
            ("upstream-ca", DeValue::String(text)) => roots = Some(source.resolve(text)),
            ("upstream-host" | "upstream-ca", _) => {
                return Err(source.error(at, format!("{name} is a text")));
            }
            ("health-check", _) => health = Some(health_check(source, key, value)?),
            _ => {
                return Err(source.error(at, unknown(name, names(ROUTE))));
            }
        }
    }
    let missing = |what| source.error(table.at, format!("the route has no {what}"));
    let prefix = prefix.ok_or_else(|| missing("path: write path = \"/api/\""))?;
    let servers =
        upstream.ok_or_else(|| missing("upstream: write upstream = \"http://HOST:PORT\""))?;
    Ok(Route {
        prefix,
        upstream: UpstreamConfig { servers, host, roots, health, prefetch_servers },
    })
}
