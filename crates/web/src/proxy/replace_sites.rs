//! Other sites without an end of connections: those that stay keep what they have learned.

use std::sync::Arc;

use super::acme;
use super::error::Result;
use super::event::Event;
use super::hosted_site::HostedSite;
use super::server::Server;
use super::site::Site;
use super::site_config::SiteConfig;
use super::site_setup::{self, PreparedSite};
use super::tls::Certificates;

/// Makes the hook of a site; `None` serves it without one.
pub type MakeHook = Box<dyn FnOnce() -> Option<Arc<dyn Site>>>;

/// A site after a change.
pub enum NextSite {
    /// The site at this position stays as it is.
    Kept(usize),
    /// A new one. Its hook is made when the hooks of sites that are gone have ended, so that it may use their files.
    New(Box<SiteConfig>, MakeHook),
}

enum Prepared {
    Kept(usize),
    New(Box<PreparedSite>, MakeHook),
}

impl Server {
    /// Serves these sites from the next request on. Requests in progress end as they began.
    ///
    /// # Errors
    /// A problem of a certificate or an upstream, in one line: then nothing changes.
    pub fn replace_sites(&self, next: Vec<NextSite>) -> Result<()> {
        let (setup, before) = (&self.setup, self.sites());
        let mut configs: Vec<_> = next
            .iter()
            .map(|one| match one {
                NextSite::Kept(at) => before.all()[*at].config.clone(),
                NextSite::New(config, _) => (**config).clone(),
            })
            .collect();
        if let Some(acme) = &setup.config.acme {
            acme::prepare(acme, &mut configs)?;
        }
        for address in &setup.addresses {
            site_setup::check_loop(&configs, address)?;
        }
        let certificates = match &setup.certificates {
            Some(current) => Some((current, Certificates::load(&configs)?)),
            None => None,
        };
        let mut prepared = Vec::new();
        for (one, config) in next.into_iter().zip(&configs) {
            prepared.push(match one {
                NextSite::Kept(at) => Prepared::Kept(at),
                NextSite::New(_, make) => Prepared::New(Box::new(setup.prepare(config)?), make),
            });
        }
        // From here on nothing fails.
        if let Some((current, loaded)) = certificates {
            current.replace(loaded);
        }
        self.serve(prepared);
        Ok(())
    }

    fn serve(&self, prepared: Vec<Prepared>) {
        let (setup, before) = (&self.setup, self.sites());
        for (at, site) in before.all().iter().enumerate() {
            let stays =
                prepared.iter().any(|one| matches!(one, Prepared::Kept(kept) if *kept == at));
            if let Some(hook) = site.hook.as_ref().filter(|_| !stays) {
                hook.ended();
            }
        }
        let mut sites = Vec::new();
        for one in prepared {
            sites.push(match one {
                Prepared::Kept(at) => HostedSite::clone(&before.all()[at]),
                Prepared::New(site, make) => {
                    let site = setup.host(*site, make());
                    setup.start_hook(&site);
                    site
                }
            });
        }
        let (sites, upstreams) = site_setup::number(sites);
        let count = sites.all().len();
        self.use_sites(sites, &upstreams);
        setup.listener.report(&Event::SitesReplaced { sites: count });
    }
}
