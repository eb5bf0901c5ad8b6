//! Certificates: the proxy's own, loaded anew when their files change, and those that an `https`
//! upstream is judged by.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use sha2::{Digest, Sha256};

use crate::proxy::{CertificateFiles, Error, Result};

/// What clients may speak, the best first.
const PROTOCOLS: [&[u8]; 3] = [b"h2", b"http/1.1", b"http/1.0"];

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// What a pair of files held.
type Fingerprint = [u8; 32];

/// A certificate with its key, and the files that it comes from.
#[derive(Debug)]
pub(crate) struct Certificates {
    files: CertificateFiles,
    current: Arc<Current>,
    /// What was looked at last, good or bad: a bad pair is told of once.
    seen: Mutex<Fingerprint>,
}

/// What new connections get.
#[derive(Debug)]
struct Current(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl Certificates {
    /// # Errors
    /// [`Error::Read`], [`Error::Pem`] and [`Error::Pair`].
    pub(crate) fn load(files: CertificateFiles) -> Result<Self> {
        let (certificates, key) = read_both(&files)?;
        let pair = pair_of(&files, &certificates, &key)?;
        Ok(Certificates {
            files,
            current: Arc::new(Current(RwLock::new(Arc::new(pair)))),
            seen: Mutex::new(fingerprint(&certificates, &key)),
        })
    }

    /// Uses what the files hold now, if that has changed and is a pair; says whether it did.
    ///
    /// # Errors
    /// Those of [`load`](Self::load), once for each change; what is in use stays in use.
    pub(crate) fn reload(&self) -> Result<bool> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let read = read_both(&self.files);
        // Files that are not there have a fingerprint, too, so that it is told once.
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

    /// TLS 1.2 and 1.3, with tickets so that a visitor who comes back saves a round trip.
    ///
    /// # Errors
    /// [`Error::Tls`] if this build cannot.
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

/// The certificates in a file, to judge others by.
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

/// How an `https` upstream is spoken to: HTTP/1.1, because that is what the pool keeps.
///
/// # Errors
/// [`Error::Tls`] if this build cannot.
pub(crate) fn client(roots: RootCertStore) -> Result<ClientConfig> {
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
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

    fn in_use(certificates: &Certificates) -> Vec<CertificateDer<'static>> {
        certificates.current.0.read().unwrap().cert.clone()
    }

    #[test]
    fn a_new_pair_is_used_and_a_broken_one_told_once() {
        let folder = tempfile::tempdir().unwrap();
        let files = files_in(folder.path());
        let certificates = Certificates::load(files.clone()).unwrap();
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
    fn a_key_of_another_certificate_is_no_pair() {
        let folder = tempfile::tempdir().unwrap();
        let files = files_in(folder.path());
        let certificates = fs::read(&files.certificates).unwrap();
        write_pair(&files, "other.example");
        fs::write(&files.certificates, certificates).unwrap();
        assert!(matches!(Certificates::load(files), Err(Error::Pair { .. })));
    }

    #[test]
    fn what_is_no_pem_is_told_by_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let files = files_in(folder.path());
        fs::write(&files.key, "").unwrap();
        let error = Certificates::load(files.clone()).unwrap_err().to_string();
        assert!(error.contains("key.pem holds no private key"), "{error}");
        fs::remove_file(&files.key).unwrap();
        assert!(matches!(Certificates::load(files), Err(Error::Read { .. })));
    }
}
