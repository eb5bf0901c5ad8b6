//! The replica's side: joining, renewing, connecting.

use core::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lull_replication::message::{Enrol, Enrolled};
use lull_replication::time::WallTime;
use lull_replication::token::{Keyring, TokenKey};
use lull_replication::types::ReplicaId;
use rcgen::{CertificateParams, KeyPair};
use rustls::client::danger::ServerCertVerifier;
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::{ParsedCertificate, VerifierBuilderError, WebPkiClientVerifier};
use rustls::time_provider::TimeProvider;
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use serde::{Deserialize, Serialize};

use super::named::{IsNamed, Named};
use super::pinned::Pinned;
use super::{
    IdentityError, ORIGIN_NAME, RECEIVER_NAME, RELAY_NAME, Ticket, certificate, files, fingerprint,
    is_old, key, provider, ticket,
};

/// The contents of the file.
#[derive(Clone, Serialize, Deserialize)]
struct ReplicaFile {
    replica: u32,
    address: String,
    key: Vec<u8>,
    certificate: Vec<u8>,
    authorities: Vec<Vec<u8>>,
    /// The key that makes session tokens.
    token_key: [u8; 32],
    /// A second accepted key, during a replacement.
    #[serde(default, alias = "previous_token_key")]
    other_token_key: Option<[u8; 32]>,
    issued: i64,
}

/// The name to connect to, at any address of the origin.
fn server_name() -> ServerName<'static> {
    ServerName::try_from(ORIGIN_NAME).expect("a name")
}

/// Whether a certificate, which TLS has verified, is a receiver's.
pub(crate) fn is_of_receiver(shown: &CertificateDer<'_>) -> bool {
    let name = ServerName::try_from(RECEIVER_NAME).expect("a name");
    ParsedCertificate::try_from(shown).is_ok_and(|shown| verify_server_name(&shown, &name).is_ok())
}

/// The name of any relay.
fn relay_name() -> ServerName<'static> {
    ServerName::try_from(RELAY_NAME).expect("a name")
}

/// A certificate request for the key. The origin uses only the key in it.
fn request(key: &KeyPair) -> Result<Vec<u8>, IdentityError> {
    Ok(CertificateParams::default().serialize_request(key)?.der().to_vec())
}

/// A replica that has a ticket and is not enrolled so far, or one that is to become another.
pub struct Joining {
    ticket: Ticket,
    key: KeyPair,
    request: Vec<u8>,
    /// The folder has an identity, which the new one replaces.
    again: bool,
}

impl fmt::Debug for Joining {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Joining").field("ticket", &self.ticket).finish_non_exhaustive()
    }
}

impl Joining {
    /// Begins with a ticket, and makes a key.
    ///
    /// # Errors
    /// If the machine gives no random bytes.
    pub fn new(ticket: Ticket) -> Result<Self, IdentityError> {
        let key = KeyPair::generate()?;
        let request = request(&key)?;
        Ok(Joining { ticket, key, request, again: false })
    }

    /// Begins to replace an identity, of which nothing else is used any more.
    ///
    /// # Errors
    /// As for [`new`](Joining::new), and if that identity does not trust the origin of the ticket: then the
    /// ticket may be another origin's.
    pub fn again(ticket: Ticket, before: &ReplicaIdentity) -> Result<Self, IdentityError> {
        let mut authorities = before.kept.authorities.iter();
        if !authorities.any(|one| fingerprint(one) == ticket.authority) {
            return Err(IdentityError::Another(before.folder.clone()));
        }
        Ok(Joining { again: true, ..Joining::new(ticket)? })
    }

    /// How to connect to the origin, at the address of the ticket: without a certificate, and only to the
    /// origin whose authority has the ticket's hash.
    ///
    /// # Errors
    /// If TLS cannot be set up.
    pub fn connect(
        &self,
        time: Arc<dyn TimeProvider>,
    ) -> Result<(Arc<ClientConfig>, ServerName<'static>), IdentityError> {
        let config = ClientConfig::builder_with_details(provider(), time)
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Pinned::new(self.ticket.authority)))
            .with_no_client_auth();
        Ok((Arc::new(config), server_name()))
    }

    /// The enrolment request.
    pub fn enrol(&self) -> Enrol {
        Enrol {
            replica: self.ticket.replica,
            secret: self.ticket.secret,
            request: self.request.clone(),
        }
    }

    /// The origin has answered: from now on the identity is kept in `folder`.
    ///
    /// # Errors
    /// If there is one that must not be replaced, or the file cannot be written.
    pub fn finish(
        self,
        folder: &Path,
        enrolled: Enrolled,
        now: WallTime,
    ) -> Result<ReplicaIdentity, IdentityError> {
        let again = self.again;
        let identity = self.identity(folder, enrolled, now);
        if again {
            files::write(folder, &identity.kept)?;
        } else {
            files::create(folder, &identity.kept)?;
        }
        Ok(identity)
    }

    /// The identity of a receiver, which is in memory only.
    pub(crate) fn receiver(self, enrolled: Enrolled, now: WallTime) -> ReplicaIdentity {
        self.identity(Path::new(""), enrolled, now)
    }

    fn identity(self, folder: &Path, enrolled: Enrolled, now: WallTime) -> ReplicaIdentity {
        let kept = ReplicaFile {
            replica: enrolled.replica.0,
            address: self.ticket.address,
            key: self.key.serialize_der(),
            certificate: enrolled.certificate,
            authorities: enrolled.authorities,
            token_key: enrolled.token_key,
            other_token_key: enrolled.other_token_key,
            issued: now.as_nanos(),
        };
        ReplicaIdentity { folder: folder.to_owned(), kept }
    }
}

/// The identity of a replica.
pub struct ReplicaIdentity {
    folder: PathBuf,
    kept: ReplicaFile,
}

impl fmt::Debug for ReplicaIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplicaIdentity")
            .field("replica", &self.kept.replica)
            .finish_non_exhaustive()
    }
}

/// A new key without a certificate so far. It is written to the disk only with its certificate: until then
/// the old one is used.
pub struct Renewal {
    key: KeyPair,
    /// The certificate request, in DER.
    pub request: Vec<u8>,
}

impl fmt::Debug for Renewal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Renewal(…)")
    }
}

impl ReplicaIdentity {
    /// The identity in `folder`.
    ///
    /// # Errors
    /// If there is no replica, or it is damaged.
    pub fn open(folder: &Path) -> Result<Self, IdentityError> {
        Ok(ReplicaIdentity { folder: folder.to_owned(), kept: files::read(folder)? })
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Its certificate, and the key for that.
    #[cfg(test)]
    pub(super) fn shown(&self) -> super::Shown {
        (vec![certificate(&self.kept.certificate)], key(&self.kept.key))
    }

    /// The replica's number.
    pub fn replica(&self) -> ReplicaId {
        ReplicaId(self.kept.replica)
    }

    /// The address of the origin.
    pub fn address(&self) -> &str {
        &self.kept.address
    }

    /// Sets the address of the origin; its certificate proves its identity there.
    ///
    /// # Errors
    /// If the address is not reachable, or the file cannot be written.
    pub fn set_address(&mut self, address: &str) -> Result<(), IdentityError> {
        if self.kept.address == address {
            return Ok(());
        }
        ticket::check(address)?;
        let kept = ReplicaFile { address: address.to_owned(), ..self.kept.clone() };
        files::write(&self.folder, &kept)?;
        self.kept = kept;
        Ok(())
    }

    /// The keys of session tokens.
    pub fn keyring(&self) -> Keyring {
        let other = self.kept.other_token_key.map(TokenKey::new);
        Keyring::new(TokenKey::new(self.kept.token_key), other)
    }

    /// How to connect to the origin.
    ///
    /// # Errors
    /// If the file has invalid keys or certificates.
    pub fn connect(
        &self,
        time: Arc<dyn TimeProvider>,
    ) -> Result<(Arc<ClientConfig>, ServerName<'static>), IdentityError> {
        let roots = self.roots()?;
        let config = ClientConfig::builder_with_details(provider(), time)
            .with_protocol_versions(&[&TLS13])?
            .with_root_certificates(roots)
            .with_client_auth_cert(
                vec![certificate(&self.kept.certificate)],
                key(&self.kept.key),
            )?;
        Ok((Arc::new(config), server_name()))
    }

    /// How to connect to a relay of the origin.
    ///
    /// # Errors
    /// If the file has invalid keys or certificates.
    pub fn connect_to_relay(
        &self,
        time: Arc<dyn TimeProvider>,
    ) -> Result<(Arc<ClientConfig>, ServerName<'static>), IdentityError> {
        Ok((self.connect(time)?.0, relay_name()))
    }

    /// How to connect to a neighbour, which shows a named certificate.
    pub(crate) fn connect_to_neighbour(
        &self,
        time: Arc<dyn TimeProvider>,
        is_named: IsNamed,
    ) -> Result<(Arc<ClientConfig>, ServerName<'static>), IdentityError> {
        let config = ClientConfig::builder_with_details(provider(), time)
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Named(is_named)))
            .with_client_auth_cert(
                vec![certificate(&self.kept.certificate)],
                key(&self.kept.key),
            )?;
        Ok((Arc::new(config), relay_name()))
    }

    /// How to accept connections of neighbours, which show named certificates.
    pub(crate) fn accept_neighbours(
        &self,
        time: Arc<dyn TimeProvider>,
        is_named: IsNamed,
    ) -> Result<Arc<ServerConfig>, IdentityError> {
        let mut config = ServerConfig::builder_with_details(provider(), time)
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(Arc::new(Named(is_named)))
            .with_single_cert(vec![certificate(&self.kept.certificate)], key(&self.kept.key))?;
        // Each connection shows its certificate.
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }

    fn roots(&self) -> Result<RootCertStore, IdentityError> {
        let mut roots = RootCertStore::empty();
        for authority in &self.kept.authorities {
            roots.add(certificate(authority))?;
        }
        Ok(roots)
    }

    /// How to accept connections of other replicas, as a relay. Only replicas with a certificate can connect; the origin
    /// says whether it is valid.
    ///
    /// # Errors
    /// If the origin has not made this replica a relay.
    pub fn accept(&self, time: Arc<dyn TimeProvider>) -> Result<Arc<ServerConfig>, IdentityError> {
        let roots = Arc::new(self.roots()?);
        let invalid = |error: VerifierBuilderError| rustls::Error::General(error.to_string());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), provider())
            .build()
            .map_err(invalid)?;
        let (own, now) = (certificate(&self.kept.certificate), time.current_time());
        let now = now.ok_or(IdentityError::NoRelay)?;
        verifier
            .verify_server_cert(&own, &[], &relay_name(), &[], now)
            .map_err(|_| IdentityError::NoRelay)?;
        let clients = WebPkiClientVerifier::builder_with_provider(roots, provider())
            .build()
            .map_err(invalid)?;
        let mut config = ServerConfig::builder_with_details(provider(), time)
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(clients)
            .with_single_cert(vec![own], key(&self.kept.key))?;
        // Each connection shows its certificate, so that none outlives it.
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }

    /// Whether it is time for [`renew`](ReplicaIdentity::renew): two thirds of the certificate's lifetime are
    /// over.
    pub fn is_old(&self, now: WallTime) -> bool {
        is_old(WallTime::from_nanos(self.kept.issued), now)
    }

    /// A new key, to be certified by [`OriginIdentity::renew`](super::OriginIdentity::renew).
    ///
    /// # Errors
    /// If the machine gives no random bytes.
    pub fn renew(&self) -> Result<Renewal, IdentityError> {
        let key = KeyPair::generate()?;
        let request = request(&key)?;
        Ok(Renewal { key, request })
    }

    /// The origin has answered: from now on the new key and certificate are used.
    ///
    /// # Errors
    /// If the file cannot be written: then the old ones are used.
    pub fn renewed(
        &mut self,
        renewal: Renewal,
        enrolled: Enrolled,
        now: WallTime,
    ) -> Result<(), IdentityError> {
        let kept = ReplicaFile {
            replica: self.kept.replica,
            address: self.kept.address.clone(),
            key: renewal.key.serialize_der(),
            certificate: enrolled.certificate,
            authorities: enrolled.authorities,
            token_key: enrolled.token_key,
            other_token_key: enrolled.other_token_key,
            issued: now.as_nanos(),
        };
        files::write(&self.folder, &kept)?;
        self.kept = kept;
        Ok(())
    }
}
