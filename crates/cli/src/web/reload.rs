//! Reloads the configuration file on SIGHUP, without an end of connections.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use lull_web::proxy::{Event, Listener, NextSite, Server};

use super::config_file::{Setup, SiteSetup};

/// A file's contents at the last reading, to find changes.
#[derive(Debug, Default, PartialEq, Eq)]
struct FileContents {
    /// Everything that is no site.
    server: String,
    sites: Vec<String>,
}

impl FileContents {
    fn of(setup: &Setup) -> Self {
        let site = |site: &SiteSetup| format!("{:?} {:?}", site.config, site.prefetching);
        FileContents { server: setup.shared(), sites: setup.sites.iter().map(site).collect() }
    }
}

/// The file of a running proxy.
pub(super) struct Reload {
    path: PathBuf,
    known: FileContents,
    listener: Listener,
}

impl Reload {
    /// The proxy runs with `setup`, as it was read from the file.
    pub(super) fn new(path: PathBuf, setup: &Setup, listener: Listener) -> Self {
        Reload { path, known: FileContents::of(setup), listener }
    }

    /// Uses what the file says now. A file with a fault changes nothing.
    pub(super) fn run(&mut self, server: &Server) {
        let why = match self.reconfigure(server) {
            Ok(true) => return,
            Ok(false) => {
                "only [[site]] tables are reloaded: restart lull web to use the other changes"
                    .into()
            }
            Err(error) => format!("{error:#}"),
        };
        self.listener.report(&Event::ConfigKept { why });
    }

    /// Whether all of the file is used.
    fn reconfigure(&mut self, server: &Server) -> anyhow::Result<bool> {
        let setup = Setup::read(&self.path)?;
        let trusts = setup.server.trust_forwarded;
        for site in &setup.sites {
            site.prefetching.check(trusts).with_context(|| self.path.display().to_string())?;
        }
        let mut known = FileContents::of(&setup);
        let is_all = known.server == self.known.server;
        if known.sites != self.known.sites {
            let next = setup.sites.into_iter().zip(&known.sites);
            let next = next.map(|(site, text)| {
                let before = self.known.sites.iter().position(|one| one == text);
                before.map_or_else(|| self.changed(site, trusts), NextSite::Kept)
            });
            server.replace_sites(next.collect())?;
        }
        // It is reported again until it is used.
        known.server.clone_from(&self.known.server);
        self.known = known;
        Ok(is_all)
    }

    fn changed(&self, site: SiteSetup, trusts: Option<NonZeroUsize>) -> NextSite {
        let SiteSetup { config, prefetching, hosts, .. } = site;
        let (listener, name) = (self.listener.clone(), config.names.join(", "));
        let make = move || match prefetching.nps_of(hosts, trusts) {
            Ok(nps) => nps.map(|nps| Arc::new(nps) as _),
            Err(error) => {
                let why = format!("{name} is served without prefetching: {error:#}");
                listener.report(&Event::ConfigKept { why });
                None
            }
        };
        NextSite::New(Box::new(config), Box::new(make))
    }
}
