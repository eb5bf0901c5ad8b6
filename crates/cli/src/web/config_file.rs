//! The configuration file of `lull web`: TOML whose keys are the options' names, with one table for each site.

mod acme;
mod checks;
mod keys;
mod options;
#[cfg(test)]
mod reference;
mod site;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use http::HeaderValue;
use lull_web::proxy::{AcmeConfig, Config, SiteConfig};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::prefetch::PrefetchArgs;
use super::server_args::ServerArgs;
use options::LocatedTable;

/// An error in a file, in one line.
#[derive(Debug)]
pub(super) struct FileError {
    path: PathBuf,
    /// From 1 on; none if it is the whole file.
    line: Option<usize>,
    why: String,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, why) = (self.path.display(), &self.why);
        match self.line {
            Some(line) => write!(f, "{path}:{line}: {why}"),
            None => write!(f, "{path}: {why}"),
        }
    }
}

impl std::error::Error for FileError {}

type Result<T> = std::result::Result<T, FileError>;

/// A file as it was read.
struct Source<'a> {
    path: &'a Path,
    text: &'a str,
}

impl Source<'_> {
    fn error(&self, at: usize, why: impl Into<String>) -> FileError {
        let before = self.text.as_bytes().iter().take(at);
        let line = before.filter(|byte| **byte == b'\n').count() + 1;
        FileError { path: self.path.to_owned(), line: Some(line), why: why.into() }
    }

    /// A path in the file is relative to its folder.
    fn resolve(&self, path: &str) -> PathBuf {
        let folder = self.path.parent().unwrap_or(Path::new(""));
        folder.join(path)
    }
}

/// A proxy as a file describes it.
#[derive(Debug)]
pub(super) struct Setup {
    /// Options of the proxy.
    pub(super) server: ServerArgs,
    /// The method of getting certificates, if a site uses it.
    acme: Option<AcmeConfig>,
    /// The sites in the order of the file.
    pub(super) sites: Vec<SiteSetup>,
}

/// A site, with its place in the file.
#[derive(Debug)]
pub(super) struct SiteSetup {
    pub(super) config: SiteConfig,
    pub(super) prefetching: PrefetchArgs,
    /// The site's names without wildcards, for prefetching.
    pub(super) hosts: Vec<HeaderValue>,
    /// Where its table begins, and keys that later checks name.
    at: site::KeyOffsets,
}

impl Setup {
    /// Reads a file and checks it, as far as it can be checked without listening.
    ///
    /// # Errors
    /// The first error, with its line and remedy.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).map_err(|error| FileError {
            path: path.to_owned(),
            line: None,
            why: format!("it cannot be read ({error})"),
        })?;
        let source = Source { path, text: &text };
        let table = DeTable::parse(&text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            source.error(at, error.message().replace('\n', ", "))
        })?;
        let mut server = options::Options::default();
        let (mut sites, mut acme) = (Vec::new(), None);
        let mut service_worker = None;
        for (key, value) in in_order(table.get_ref()) {
            if key.get_ref() == "site" {
                for table in tables(&source, key.span().start, value)? {
                    sites.push(site::read(&source, table, &mut service_worker)?);
                }
            } else if key.get_ref() == "acme" {
                acme = Some(acme::read(&source, key.span().start, value)?);
            } else {
                server.add::<ServerArgs>(&source, key, value, ["acme", "site"].into_iter())?;
            }
        }
        let server = server.parse::<ServerArgs>(&source, 0)?;
        if sites.is_empty() {
            return Err(
                source.error(text.len(), "there is no site: write [[site]] and its upstream")
            );
        }
        checks::check(&source, &server, &sites, acme.is_some(), &table)?;
        Ok(Setup { server, acme, sites })
    }

    /// The settings outside of sites, as text to compare.
    pub(super) fn shared(&self) -> String {
        let background = self.sites.iter().find_map(|site| site.prefetching.service_worker());
        format!("{:?} {:?} {background:?}", self.server, self.acme)
    }

    /// The proxy's configuration, and what each site prefetches by.
    pub(super) fn into_config(self) -> (Config, Vec<(PrefetchArgs, Vec<HeaderValue>)>) {
        let background = self.sites.iter().find_map(|site| site.prefetching.service_worker());
        let (mut sites, mut prefetching) = (Vec::new(), Vec::new());
        for site in self.sites {
            sites.push(site.config);
            prefetching.push((site.prefetching, site.hosts));
        }
        let mut config = self.server.config(sites);
        config.listen_background = background;
        config.acme = self.acme;
        (config, prefetching)
    }
}

/// The entries of a table as they are written.
fn in_order<'t, 'i>(
    table: &'t DeTable<'i>,
) -> Vec<(&'t Spanned<std::borrow::Cow<'i, str>>, &'t Spanned<DeValue<'i>>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

/// The tables of `[[NAME]]`.
fn tables<'t, 'i>(
    source: &Source<'_>,
    at: usize,
    value: &'t Spanned<DeValue<'i>>,
) -> Result<Vec<LocatedTable<'t, 'i>>> {
    let error = || source.error(at, "it is a list of tables: write its name in double brackets");
    let DeValue::Array(all) = value.get_ref() else { return Err(error()) };
    let table = |one: &'t Spanned<DeValue<'i>>| match one.get_ref() {
        DeValue::Table(table) => Ok(LocatedTable { table, at: one.span().start }),
        _ => Err(error()),
    };
    all.iter().map(table).collect()
}

#[cfg(test)]
mod tests;
