//! Certificates from a certificate authority (CA) by ACME (RFC 8555), with the challenge over HTTP (§8.3).
//!
//! The certificate and the key of a site lie in a folder as PEM files, which the proxy loads like any others.
//! A site without one uses a self-signed certificate until the CA has issued one. This module requests a
//! certificate if the one at hand is self-signed, or has less than a third of its life left.

mod challenges;
mod expiry;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use instant_acme::{
    Account, AccountCredentials, AuthorizationStatus, ChallengeType, Identifier, NewAccount,
    NewOrder, OrderStatus, RetryPolicy,
};
use lull_durable::replace_private;
use tokio::time::sleep;

use super::config::CertificateFiles;
use super::error::{Error, Result};
use super::event::{Event, Listener};
use super::site_config::SiteConfig;

pub(crate) use challenges::Challenges;

/// How often the certificates are checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(3600);
/// After a failure it is tried again: soon at first, then rarely, as CAs count failures.
const RETRY_PAUSE: Duration = Duration::from_secs(60);
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(12 * 3600);
/// How long the CA may take to check the challenges and to issue.
const TIMEOUT: Duration = Duration::from_secs(120);

/// How certificates are requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeConfig {
    /// The directory of the CA, as a URL.
    pub directory: String,
    /// A certificate, in PEM, that the CA's own server is judged by, instead of the system's.
    pub roots: Option<PathBuf>,
    /// Where the CA writes to, as `mailto:` URLs.
    pub contact: Vec<String>,
    /// The folder of account, certificates and keys.
    pub folder: PathBuf,
}

impl AcmeConfig {
    /// The directory of Let's Encrypt.
    pub const LETS_ENCRYPT: &'static str = "https://acme-v02.api.letsencrypt.org/directory";

    /// The files of a site's certificate.
    fn files(&self, site: &SiteConfig) -> CertificateFiles {
        let name = site.names.first().map_or("site", String::as_str);
        CertificateFiles {
            certificates: self.folder.join(format!("{name}.pem")),
            key: self.folder.join(format!("{name}.key")),
        }
    }
}

/// Why a certificate was not issued.
#[derive(Debug, thiserror::Error)]
enum NotIssued {
    #[error(transparent)]
    Acme(#[from] instant_acme::Error),
    #[error("the CA offers no challenge over HTTP for {0}")]
    NoChallenge(String),
    #[error(
        "the CA did not accept the challenge ({0:?}): port 80 of each name must lead to this proxy, also from \
         outside"
    )]
    Order(OrderStatus),
    #[error("{path} cannot be written ({source})")]
    Write { path: PathBuf, source: io::Error },
    #[error("{0} does not contain an account: remove it, and Lull creates a new one")]
    Account(PathBuf),
}

/// Gives the sites that want one the files of their certificate; makes a self-signed one where there is none.
///
/// # Errors
/// If the folder cannot be written.
pub(crate) fn prepare(acme: &AcmeConfig, sites: &mut [SiteConfig]) -> Result<()> {
    for site in sites.iter_mut().filter(|site| site.acme) {
        let files = acme.files(site);
        if !files.certificates.exists() || !files.key.exists() {
            let error = |path: &Path| {
                let path = path.to_owned();
                move |source| Error::Write { path, source }
            };
            fs::create_dir_all(&acme.folder).map_err(error(&acme.folder))?;
            let made = rcgen::generate_simple_self_signed(site.names.clone());
            let pair = made.map_err(|why| Error::SelfSigned(why.to_string()))?;
            let write = |path: &Path, text: String| {
                replace_private(path, text.as_bytes()).map_err(error(path))
            };
            write(&files.key, pair.signing_key.serialize_pem())?;
            write(&files.certificates, pair.cert.pem())?;
        }
        site.certificate = Some(files);
    }
    Ok(())
}

/// Keeps the certificate of a site up to date, until it is dropped. `issued` is called for each new one.
pub(crate) async fn renew_certificates(
    acme: AcmeConfig,
    site: SiteConfig,
    challenges: Arc<Challenges>,
    listener: Listener,
    issued: impl Fn() + Send + Sync,
) {
    let files = acme.files(&site);
    let mut again = RETRY_PAUSE;
    loop {
        let is_due = fs::read(&files.certificates)
            .map_or(true, |pem| expiry::is_due(&pem, SystemTime::UNIX_EPOCH + since_1970()));
        if !is_due {
            sleep(CHECK_INTERVAL).await;
            continue;
        }
        match issue(&acme, &site, &files, &challenges).await {
            Ok(()) => {
                again = RETRY_PAUSE;
                issued();
            }
            Err(why) => {
                let name = site.names.first().cloned().unwrap_or_default();
                listener.report(&Event::CertificateNotIssued { name, why: why.to_string() });
                sleep(again).await;
                again = (again * 3).min(MAX_RETRY_PAUSE);
            }
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "a certificate expires by the wall clock")]
fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// Requests a certificate for all names of a site.
async fn issue(
    acme: &AcmeConfig,
    site: &SiteConfig,
    files: &CertificateFiles,
    challenges: &Challenges,
) -> std::result::Result<(), NotIssued> {
    let account = account(acme).await?;
    let names: Vec<_> = site.names.iter().cloned().map(Identifier::Dns).collect();
    let mut order = account.new_order(&NewOrder::new(&names)).await?;
    let mut offered = challenges.offer();
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        if authorization.status == AuthorizationStatus::Valid {
            continue;
        }
        let name = authorization.identifier().to_string();
        let challenge = authorization.challenge(ChallengeType::Http01);
        let mut challenge = challenge.ok_or(NotIssued::NoChallenge(name))?;
        offered.add(&challenge.token, challenge.key_authorization().as_str());
        challenge.set_ready().await?;
    }
    let retries = RetryPolicy::default().timeout(TIMEOUT);
    let status = order.poll_ready(&retries).await?;
    if status != OrderStatus::Ready {
        return Err(NotIssued::Order(status));
    }
    let key = order.finalize().await?;
    let chain = order.poll_certificate(&retries).await?;
    for (path, text) in [(&files.key, &key), (&files.certificates, &chain)] {
        let path = path.clone();
        replace_private(&path, text.as_bytes())
            .map_err(|source| NotIssued::Write { path, source })?;
    }
    Ok(())
}

/// The previous account, or a new one.
async fn account(acme: &AcmeConfig) -> std::result::Result<Account, NotIssued> {
    let path = acme.folder.join("account.json");
    let builder = match &acme.roots {
        Some(roots) => Account::builder_with_root(roots)?,
        None => Account::builder()?,
    };
    if let Ok(kept) = fs::read(&path) {
        let read = serde_json::from_slice::<(String, AccountCredentials)>(&kept);
        let (directory, credentials) = read.map_err(|_| NotIssued::Account(path.clone()))?;
        // An account is of one CA.
        if directory == acme.directory {
            return Ok(builder.from_credentials(credentials).await?);
        }
    }
    let contact: Vec<&str> = acme.contact.iter().map(String::as_str).collect();
    let new = NewAccount {
        contact: &contact,
        terms_of_service_agreed: true,
        only_return_existing: false,
    };
    let (account, credentials) = builder.create(&new, acme.directory.clone(), None).await?;
    let kept = serde_json::to_string(&(&acme.directory, &credentials)).unwrap_or_default();
    replace_private(&path, kept.as_bytes()).map_err(|source| NotIssued::Write { path, source })?;
    Ok(account)
}
