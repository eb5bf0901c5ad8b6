//! Certificates: the proxy's own, reloaded when their files change, and the roots for an `https` upstream.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use rustls::client::verify_server_name;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use sha2::{Digest, Sha256};

use super::config::CertificateFiles;
use super::error::{Error, Result};
use super::site_config::SiteConfig;

/// The protocols for clients, the best first.
const PROTOCOLS: [&[u8]; 3] = [b"h2", b"http/1.1", b"http/1.0"];

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// The hash of a pair of files.
type Fingerprint = [u8; 32];

/// The certificates of all sites. A client gets the one of the site that it names (SNI, RFC 6066 §3), and the first
/// one if it names none.
#[derive(Debug)]
pub(crate) struct Certificates {
    current: Arc<CurrentCertificates>,
}

/// The certificates in use. A reload replaces them as a whole.
#[derive(Debug)]
struct CurrentCertificates(RwLock<Arc<LoadedCertificates>>);

/// Certificates that were read.
#[derive(Debug)]
pub(crate) struct LoadedCertificates {
    pairs: Vec<ReloadedPair>,
    by_name: ByName,
}

/// A certificate with its key, and their files.
#[derive(Debug)]
struct ReloadedPair {
    files: CertificateFiles,
    current: Arc<Current>,
    /// The hash of the files at the last check, valid or not: a bad pair is reported once.
    seen: Mutex<Fingerprint>,
}

/// The certificate for new connections.
#[derive(Debug)]
struct Current(RwLock<Arc<CertifiedKey>>);

impl Current {
    fn key(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The same by the names of sites.
#[derive(Debug)]
struct ByName {
    names: BTreeMap<String, Arc<Current>>,
    first: Arc<Current>,
}

impl ByName {
    fn find(&self, name: Option<&str>) -> &Arc<Current> {
        let named = || {
            let name = name?.to_ascii_lowercase();
            let wildcard = || self.names.get(&format!("*.{}", name.split_once('.')?.1));
            self.names.get(&name).or_else(wildcard)
        };
        named().unwrap_or(&self.first)
    }
}

impl CurrentCertificates {
    fn get(&self) -> Arc<LoadedCertificates> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ResolvesServerCert for CurrentCertificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.get().by_name.find(hello.server_name()).key())
    }
}

impl ReloadedPair {
    /// # Errors
    /// [`Error::Read`], [`Error::Pem`] and [`Error::Pair`].
    fn load(files: CertificateFiles) -> Result<Self> {
        let (certificates, key) = read_both(&files)?;
        let pair = pair_of(&files, &certificates, &key)?;
        Ok(ReloadedPair {
            files,
            current: Arc::new(Current(RwLock::new(Arc::new(pair)))),
            seen: Mutex::new(fingerprint(&certificates, &key)),
        })
    }

    /// Uses what the files hold now, if that has changed and is a pair; whether it did.
    ///
    /// # Errors
    /// The errors of [`load`](Self::load), once for each change; the pair in use stays in use.
    fn reload(&self) -> Result<bool> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let read = read_both(&self.files);
        // Files that are not there have a fingerprint, too, so that it is reported once.
        let (certificates, key) = read.as_ref().map_or((&[][..], &[][..]), |(a, b)| (a, b));
        let print = fingerprint(certificates, key);
        if std::mem::replace(&mut *seen, print) == print {
            return Ok(false);
        }
        let (certificates, key) = read?;
        let pair = Arc::new(pair_of(&self.files, &certificates, &key)?);
        *self.current.0.write().unwrap_or_else(PoisonError::into_inner) = pair;
        Ok(true)
    }
}

impl Certificates {
    /// The certificates of all sites that have one; `None` if no site has.
    ///
    /// # Errors
    /// The errors of [`load`](Self::load).
    pub(crate) fn of_sites(sites: &[SiteConfig]) -> Result<Option<Self>> {
        if sites.iter().all(|site| site.certificate.is_none()) {
            return Ok(None);
        }
        let current = CurrentCertificates(RwLock::new(Arc::new(Self::load(sites)?)));
        Ok(Some(Certificates { current: Arc::new(current) }))
    }

    /// Reads those of all sites.
    ///
    /// # Errors
    /// [`Error::Read`], [`Error::Pem`] and [`Error::Pair`]; [`Error::NoCertificateLeft`] if no site has one.
    pub(crate) fn load(sites: &[SiteConfig]) -> Result<LoadedCertificates> {
        let (mut pairs, mut names) = (Vec::<ReloadedPair>::new(), BTreeMap::new());
        for site in sites {
            let Some(files) = &site.certificate else { continue };
            let known = pairs.iter().find(|pair| pair.files == *files);
            let current = match known {
                Some(pair) => Arc::clone(&pair.current),
                None => {
                    let pair = ReloadedPair::load(files.clone())?;
                    let current = Arc::clone(&pair.current);
                    pairs.push(pair);
                    current
                }
            };
            names.extend(site.names.iter().map(|name| (name.clone(), Arc::clone(&current))));
        }
        let first = pairs.first().map(|pair| Arc::clone(&pair.current));
        let first = first.ok_or(Error::NoCertificateLeft)?;
        Ok(LoadedCertificates { pairs, by_name: ByName { names, first } })
    }

    /// Uses other certificates for connections from now on.
    pub(crate) fn replace(&self, loaded: LoadedCertificates) {
        *self.current.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(loaded);
    }

    /// Uses what the files hold now, where that has changed and is a pair: one result for each pair.
    pub(crate) fn reload(&self) -> Vec<Result<bool>> {
        self.current.get().pairs.iter().map(ReloadedPair::reload).collect()
    }

    /// TLS 1.2 and 1.3, with tickets, which save a returning visitor a round trip.
    ///
    /// # Errors
    /// [`Error::Tls`] if this build does not support it.
    pub(crate) fn server_config(&self) -> Result<ServerConfig> {
        let resolver: Arc<dyn ResolvesServerCert> = Arc::clone(&self.current) as _;
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(resolver);
        config.alpn_protocols = PROTOCOLS.iter().map(|name| name.to_vec()).collect();
        config.ticketer = ring::Ticketer::new()?;
        Ok(config)
    }
}

fn fingerprint(certificates: &[u8], key: &[u8]) -> Fingerprint {
    let mut hash = Sha256::new();
    hash.update((certificates.len() as u64).to_le_bytes());
    hash.update(certificates);
    hash.update(key);
    hash.finalize().into()
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|source| Error::Read { path: path.to_owned(), source })
}

fn read_both(files: &CertificateFiles) -> Result<(Vec<u8>, Vec<u8>)> {
    Ok((read(&files.certificates)?, read(&files.key)?))
}

fn certificates_in(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    let error = |why: String| Error::Pem { path: path.to_owned(), what: "certificate", why };
    let chain: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<std::result::Result<_, _>>()
        .map_err(|why| error(why.to_string()))?;
    if chain.is_empty() { Err(error("there is none".to_owned())) } else { Ok(chain) }
}

fn pair_of(files: &CertificateFiles, certificates: &[u8], key: &[u8]) -> Result<CertifiedKey> {
    let chain = certificates_in(&files.certificates, certificates)?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|why| Error::Pem {
        path: files.key.clone(),
        what: "private key",
        why: why.to_string(),
    })?;
    CertifiedKey::from_der(chain, key, &provider()).map_err(|why| Error::Pair {
        certificates: files.certificates.clone(),
        key: files.key.clone(),
        why: why.to_string(),
    })
}

/// Whether a pair of files is a certificate with its key, and names each of these hosts.
///
/// # Errors
/// [`Error::Read`], [`Error::Pem`], [`Error::Pair`] and [`Error::OtherName`].
pub fn check_certificate(files: &CertificateFiles, names: &[String]) -> Result<()> {
    let (certificates, key) = read_both(files)?;
    let pair = pair_of(files, &certificates, &key)?;
    let Some(own) = pair.cert.first() else { return Ok(()) };
    let own = ParsedCertificate::try_from(own)?;
    for name in names {
        // A name with a star has to be there for any label.
        let host = name.replacen('*', "any", 1);
        let is_named = ServerName::try_from(host.as_str())
            .is_ok_and(|host| verify_server_name(&own, &host).is_ok());
        if !is_named {
            let (path, name) = (files.certificates.clone(), name.clone());
            return Err(Error::OtherName { path, name });
        }
    }
    Ok(())
}

/// The certificates in a file, for verifying others.
///
/// # Errors
/// [`Error::Read`] and [`Error::Pem`].
pub(crate) fn roots_of(path: &Path) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates_in(path, &read(path)?)? {
        roots.add(certificate).map_err(|why| Error::Pem {
            path: path.to_owned(),
            what: "usable certificate",
            why: why.to_string(),
        })?;
    }
    Ok(roots)
}

/// The TLS settings for an upstream over HTTP/1.1, or over HTTP/2.
///
/// # Errors
/// [`Error::Tls`] if this build does not support it.
pub(crate) fn client(roots: RootCertStore, is_h2: bool) -> Result<ClientConfig> {
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![if is_h2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write_pair(files: &CertificateFiles, name: &str) {
        let pair = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        fs::write(&files.certificates, pair.cert.pem()).unwrap();
        fs::write(&files.key, pair.signing_key.serialize_pem()).unwrap();
    }

    fn files_in(folder: &Path) -> CertificateFiles {
        let files =
            CertificateFiles { certificates: folder.join("cert.pem"), key: folder.join("key.pem") };
        write_pair(&files, "first.example");
        files
    }

    fn in_use(pair: &ReloadedPair) -> Vec<CertificateDer<'static>> {
        pair.current.key().cert.clone()
    }

    #[test]
    fn new_pair_is_used_and_an_invalid_one_is_reported_once() {
        let folder = tempfile::tempdir().unwrap();
        let files = files_in(folder.path());
        let certificates = ReloadedPair::load(files.clone()).unwrap();
        let first = in_use(&certificates);
        assert!(!certificates.reload().unwrap(), "nothing has changed");

        write_pair(&files, "second.example");
        assert!(certificates.reload().unwrap());
        let second = in_use(&certificates);
        assert_ne!(first, second);

        fs::write(&files.certificates, "half a fi").unwrap();
        let error = certificates.reload().unwrap_err().to_string();
        assert!(error.contains("cert.pem") && !error.contains('\n'), "{error}");
        assert!(!certificates.reload().unwrap(), "told once");
        assert_eq!(in_use(&certificates), second);

        fs::remove_file(&files.certificates).unwrap();
        assert!(certificates.reload().is_err());
        assert!(!certificates.reload().unwrap(), "told once");

        write_pair(&files, "third.example");
        assert!(certificates.reload().unwrap());
        assert_ne!(in_use(&certificates), second);
    }

    #[test]
    fn key_of_another_certificate_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let files = files_in(folder.path());
        let certificates = fs::read(&files.certificates).unwrap();
        write_pair(&files, "other.example");
        fs::write(&files.certificates, certificates).unwrap();
        assert!(matches!(ReloadedPair::load(files), Err(Error::Pair { .. })));
    }

    #[test]
    fn invalid_pem_error_names_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let files = files_in(folder.path());
        fs::write(&files.key, "").unwrap();
        let error = ReloadedPair::load(files.clone()).unwrap_err().to_string();
        assert!(error.contains("key.pem contains no private key"), "{error}");
        fs::remove_file(&files.key).unwrap();
        assert!(matches!(ReloadedPair::load(files), Err(Error::Read { .. })));
    }

    #[test]
    fn certificate_is_that_of_the_name_that_the_client_says() {
        let folder = tempfile::tempdir().unwrap();
        let site = |name: &str, names: &[&str]| {
            let files = CertificateFiles {
                certificates: folder.path().join(format!("{name}.pem")),
                key: folder.path().join(format!("{name}.key")),
            };
            write_pair(&files, name);
            let mut site = SiteConfig::new("http://127.0.0.1:1".parse().unwrap());
            site.names = names.iter().map(|name| (*name).to_owned()).collect();
            site.certificate = Some(files);
            site
        };
        let sites =
            [site("a", &["a.example", "*.a.example"]), site("b", &["b.example", "c.a.example"])];
        let certificates = Certificates::of_sites(&sites).unwrap().unwrap();
        let keys: Vec<_> =
            certificates.current.get().pairs.iter().map(|pair| pair.current.key()).collect();
        for (name, expected) in [
            (Some("a.example"), 0),
            (Some("b.example"), 1),
            (Some("B.Example"), 1),
            (Some("www.a.example"), 0),
            (Some("c.a.example"), 1),
            (Some("x.www.a.example"), 0),
            (Some("other.example"), 0),
            (None, 0),
        ] {
            let found = certificates.current.get().by_name.find(name).key();
            assert!(Arc::ptr_eq(&found, &keys[expected]), "{name:?}");
        }
        let without = SiteConfig::new("http://127.0.0.1:1".parse().unwrap());
        assert!(Certificates::of_sites(&[without]).unwrap().is_none());
    }
}
