//! Checks of a file as a whole.

use std::collections::BTreeMap;

use lull_web::proxy::check_certificate;
use toml::Spanned;
use toml::de::DeTable;

use super::{Result, SiteSetup, Source};
use crate::web::server_args::ServerArgs;

/// Checks what several keys say together.
pub(super) fn check(
    source: &Source<'_>,
    server: &ServerArgs,
    sites: &[SiteSetup],
    has_acme: bool,
    table: &Spanned<DeTable<'_>>,
) -> Result<()> {
    names(source, sites)?;
    let listen = table.get_ref().iter().find(|(key, _)| key.get_ref() == "listen");
    let Some((listen, _)) = listen.filter(|_| !server.listen.is_empty()) else {
        return Err(source.error(0, "nothing to listen on: write listen = [\"HOST:PORT\"]"));
    };
    let has_certificate =
        sites.iter().any(|site| site.config.certificate.is_some() || site.config.acme);
    let is_secure = |secure: Option<bool>| secure.unwrap_or(has_certificate);
    let has_https = server.listen.iter().any(|one| is_secure(one.secure));
    if has_https && !has_certificate {
        let why = "https needs a certificate: write cert and key in a [[site]]";
        return Err(source.error(listen.span().start, why));
    }
    let has_http = server.listen.iter().any(|one| !is_secure(one.secure));
    for site in sites {
        if site.config.acme {
            acme(source, site, has_acme, has_http)?;
        }
        if let Some(files) = &site.config.certificate {
            check_certificate(files, &site.config.names)
                .map_err(|why| source.error(site.at.certificate, why.to_string()))?;
        }
        if site.config.redirect_to_https.is_some() && !has_https {
            let why = "redirects need an https address in listen: add one";
            return Err(source.error(site.at.redirect, why));
        }
        let mut prefixes = site.config.routes.iter().map(|route| route.prefix.as_str());
        let mut seen = Vec::new();
        if let Some(twice) = prefixes.find(|one| {
            seen.contains(one) || {
                seen.push(one);
                false
            }
        }) {
            let why = format!("two routes have the path {twice}: leave one out");
            return Err(source.error(site.at.table, why));
        }
    }
    Ok(())
}

/// Whether a site can get its certificate.
fn acme(source: &Source<'_>, site: &SiteSetup, has_acme: bool, has_http: bool) -> Result<()> {
    let why = if !has_acme {
        "acme = true needs a table [acme] with a folder at the top of the file"
    } else if site.config.certificate.is_some() {
        "the site has cert and key as well: leave them out, or acme"
    } else if !has_http {
        "the CA asks over HTTP: add an address to listen that is http, on port 80"
    } else if site.config.names.is_empty() {
        "acme needs the names of the site: write names = [\"HOST\"]"
    } else if site.config.names.iter().any(|name| name.starts_with('*')) {
        "the CA issues no wildcard by a challenge over HTTP: name each host, or use cert and key"
    } else {
        return Ok(());
    };
    Err(source.error(site.at.acme, why))
}

/// Each host belongs to one site.
fn names(source: &Source<'_>, sites: &[SiteSetup]) -> Result<()> {
    let (mut known, mut rest) = (BTreeMap::new(), None);
    for site in sites {
        if site.config.names.is_empty() && rest.replace(site.at.table).is_some() {
            let why = "two sites have no names: write names = [\"HOST\"] in all but one";
            return Err(source.error(site.at.table, why));
        }
        for name in &site.config.names {
            if known.insert(name.as_str(), site.at.names).is_some() {
                let why = format!("{name} is in two sites: a host belongs to one site");
                return Err(source.error(site.at.names, why));
            }
        }
    }
    Ok(())
}
