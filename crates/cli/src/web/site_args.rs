//! Options of one site: its server, its certificate, and prefetching.

use std::path::PathBuf;

use http::HeaderValue;
use lull_web::proxy::{CertificateFiles, SiteConfig, Upstream};

use super::prefetch::PrefetchArgs;

/// A site.
#[derive(Debug, clap::Args)]
pub(super) struct SiteArgs {
    /// The server of the site: http://HOST:PORT, https://HOST:PORT, h2c://HOST:PORT, h2://HOST:PORT or unix:/PATH
    #[arg(long, help_heading = None, value_name = "URL")]
    pub(super) upstream: Option<Upstream>,
    /// Certificate chain for https, in PEM
    #[arg(long, help_heading = None, value_name = "FILE", requires = "key")]
    pub(super) cert: Option<PathBuf>,
    /// Private key of the certificate, in PEM
    #[arg(long, help_heading = None, value_name = "FILE", requires = "cert")]
    pub(super) key: Option<PathBuf>,
    /// Host header for the upstream, instead of the client's
    #[arg(long, help_heading = None, value_name = "HOST")]
    pub(super) upstream_host: Option<HeaderValue>,
    /// CA certificates for an https upstream, in PEM, instead of the system's
    #[arg(long, help_heading = None, value_name = "FILE")]
    pub(super) upstream_ca: Option<PathBuf>,
    #[command(flatten)]
    pub(super) prefetching: PrefetchArgs,
}

impl SiteArgs {
    /// The site for all hosts in front of `upstream`.
    pub(super) fn config(&self, upstream: Upstream) -> SiteConfig {
        let mut site = SiteConfig::new(upstream);
        site.certificate = self.certificate();
        site.upstream.host.clone_from(&self.upstream_host);
        site.upstream.roots.clone_from(&self.upstream_ca);
        site.upstream.prefetch_servers.clone_from(&self.prefetching.prefetch_upstream);
        site
    }

    /// The files of its certificate.
    pub(super) fn certificate(&self) -> Option<CertificateFiles> {
        let (certificates, key) = self.cert.clone().zip(self.key.clone())?;
        Some(CertificateFiles { certificates, key })
    }
}
