//! The identities of the origin and its replicas: TLS 1.3 with certificates on both sides.
//!
//! The origin is its own certificate authority. Other certificates are not accepted, and host names do not
//! matter: the holder of the key of a valid certificate that the origin has issued to replica 3 is replica 3.
//!
//! ```text
//!   OriginIdentity                                   replica
//!     │ ticket: address, hash of the authority,        │
//!     │         number, a secret for one use           │
//!     ├───────────────── (by a person) ───────────────▶│ Joining: makes a key, connects; the
//!     │                                                │ authority has to have that hash
//!     │◀──────────── Enrol: secret, request ───────────┤
//!     │ admits the secret once                         │
//!     ├──── Enrolled: certificate, authorities ───────▶│ ReplicaIdentity
//!     │                                                │
//!     │◀─────────── later: a new request ──────────────┤ renewal; the old certificate counts until
//!     ├───────────────── Enrolled ────────────────────▶│ the new one was used
//! ```
//!
//! The messages are in [`message`](lull_replication::message), from
//! [`ToAuthority`](lull_replication::message::ToAuthority) on; `rustls` has the cryptography, with ring.

mod files;
mod named;
mod origin;
mod pinned;
mod replica;
mod sealed;
mod signatures;
#[cfg(test)]
mod tests;
mod ticket;

use core::time::Duration;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lull_replication::message::{NotEnrolled, Refusal};
use lull_replication::time::WallTime;
use lull_replication::types::{Digest, ReplicaId};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose,
    date_time_ymd,
};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use thiserror::Error;

use crate::remedies;

pub use origin::{OriginIdentity, RotationError, TicketKind};
pub use pinned::OtherOrigin;
pub(crate) use replica::is_of_receiver;
pub use replica::{Joining, Renewal, ReplicaIdentity};
pub use ticket::{AddressError, Ticket, TicketError};
pub(crate) use ticket::{all as all_addresses, check as check_address};

/// The name in the origin's certificate: the authority certifies only one origin, at any address.
const ORIGIN_NAME: &str = "origin.lull.internal";
/// The name in the certificates of replicas that may serve others. Only replicas that are to connect to a relay accept it,
/// so no relay can impersonate the origin.
const RELAY_NAME: &str = "relay.lull.internal";
/// The name in the certificates of one-off receivers. They may fetch files, and are no replicas.
const RECEIVER_NAME: &str = "receiver.lull.internal";
/// How long an authority lasts.
const AUTHORITY: Duration = Duration::from_secs(20 * 365 * 86_400);
/// How long other certificates last; they are renewed when two thirds are over.
const LIFETIME: Duration = Duration::from_secs(365 * 86_400);
/// Certificates are valid from some time before they are issued, for clocks that are slow.
const BEFORE: Duration = Duration::from_secs(86_400);

/// Whether a folder has an identity.
pub(crate) fn exists(folder: &Path) -> bool {
    files::file(folder).exists()
}

/// Why an identity cannot be made or used.
#[derive(Debug, Error)]
pub enum IdentityError {
    /// The folder has no identity.
    #[error(
        "`{}` has no identity: `lull origin init DIR` makes an origin, `lull replica join TICKET \
         DIR` a replica",
        .0.display()
    )]
    Nothing(PathBuf),
    /// There is one already.
    #[error("`{}` has an identity already: name another folder", .0.display())]
    Exists(PathBuf),
    /// There is one of another origin.
    #[error(
        "`{}` belongs to a replica of another origin, or the origin's CA was replaced: name \
         another folder, or delete identity.json in it to keep only its files",
        .0.display()
    )]
    Another(PathBuf),
    /// Its contents are corrupt.
    #[error("`{}` is damaged: restore it from a backup, or use a new folder", .0.display())]
    Damaged(PathBuf),
    /// The file cannot be read or written.
    #[error("`{}` cannot be used{}", path.display(), remedies::of_file(source))]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The certificate does not permit to serve replicas.
    #[error(
        "this replica may not be a relay: let it join again with a ticket of `lull origin ticket DIR NAME --relay`"
    )]
    NoRelay,
    /// The name has another purpose.
    #[error(
        "`{0}` is the name of a replica, and receivers need one of their own, or the other way round: use another name"
    )]
    OtherPurpose(String),
    /// A certificate could not be made.
    #[error("a certificate could not be made")]
    Certificate(#[from] rcgen::Error),
    /// Keys or certificates do not fit together.
    #[error("the certificate cannot be used for TLS")]
    Tls(#[from] rustls::Error),
    /// The machine gives no random bytes.
    #[error("the machine gives no random bytes")]
    Random,
    /// The identity was copied from an origin that had no log.
    #[error(
        "`{}` has no store, and identity.json in it was copied before the origin used a log: copy it again from an \
         origin that runs with --log",
        .0.display()
    )]
    NoLogKey(PathBuf),
    /// An encrypted identity is not of this origin.
    #[error("it is encrypted with another key")]
    Sealed,
    /// The log of the origin has not stored the change.
    #[error("the change cannot be written to the log: {0}")]
    Log(String),
    /// The given address of the origin is invalid.
    #[error(transparent)]
    Address(#[from] AddressError),
}

/// Why the origin enrols no replica, or renews no certificate.
#[derive(Debug, Error)]
pub enum EnrolError {
    /// Because of the request.
    #[error(transparent)]
    Refused(#[from] NotEnrolled),
    /// The origin has a problem, which is not reported to the peer.
    #[error(transparent)]
    Origin(#[from] IdentityError),
}

impl EnrolError {
    /// The error for the peer.
    pub fn to_peer(&self) -> NotEnrolled {
        match self {
            EnrolError::Refused(why) => *why,
            EnrolError::Origin(_) => NotEnrolled::Failed,
        }
    }
}

/// The peer of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A replica.
    Replica(ReplicaId),
    /// A one-off receiver with the ticket of this number.
    Receiver(ReplicaId),
    /// A peer without a certificate, which may enrol and do nothing else.
    Newcomer,
}

/// Why a connection has to be closed although TLS had no objection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NotAdmitted {
    /// The certificate is one of this authority's, but not valid any more: the replica has used a newer one,
    /// or the origin was restored from a backup that does not know it.
    #[error("the origin does not know this certificate: join again with a new ticket")]
    Unknown,
    /// Another machine has joined in its place.
    #[error("another machine has joined as replica {}: join again with a ticket of another name", .0.0)]
    Replaced(ReplicaId),
    /// The replica was revoked.
    #[error("replica {} was revoked: join again with a new ticket", .0.0)]
    Revoked(ReplicaId),
}

impl From<NotAdmitted> for Refusal {
    fn from(why: NotAdmitted) -> Self {
        match why {
            NotAdmitted::Unknown => Refusal::Unknown,
            NotAdmitted::Replaced(_) => Refusal::Replaced,
            NotAdmitted::Revoked(_) => Refusal::Revoked,
        }
    }
}

fn provider() -> Arc<CryptoProvider> {
    // Explicit, not the process's default: that depends on other linked crates.
    Arc::new(ring::default_provider())
}

/// Random bytes.
pub(crate) fn random() -> Result<[u8; 32], IdentityError> {
    let mut bytes = [0; 32];
    provider().secure_random.fill(&mut bytes).map_err(|_| IdentityError::Random)?;
    Ok(bytes)
}

/// The identifier of a certificate.
fn fingerprint(certificate: &[u8]) -> Digest {
    Digest::of(certificate)
}

fn hex(digest: &Digest) -> String {
    digest.to_string()
}

/// Parameters of a certificate for `name`, valid from `now` on.
fn parameters(name: &str, now: WallTime, lifetime: Duration) -> CertificateParams {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name.push(DnType::CommonName, name);
    let since_epoch = Duration::from_nanos(u64::try_from(now.as_nanos()).unwrap_or(0));
    let epoch = date_time_ymd(1970, 1, 1);
    parameters.not_before = epoch + since_epoch.saturating_sub(BEFORE);
    parameters.not_after = epoch + since_epoch + lifetime;
    parameters
}

/// Parameters of a new authority. It has a unique name, so that certificates of another authority are not
/// verified with it.
fn authority_parameters(number: &Digest, now: WallTime) -> CertificateParams {
    let mut parameters = parameters(&format!("Lull authority {number}"), now, AUTHORITY);
    // It issues certificates, and no further authorities.
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    parameters
}

/// Parameters of a certificate that its holder uses on these sides of connections only, so that no replica can
/// impersonate the origin.
fn leaf_parameters(
    name: &str,
    usages: Vec<ExtendedKeyUsagePurpose>,
    now: WallTime,
) -> CertificateParams {
    let mut parameters = parameters(name, now, LIFETIME);
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    parameters.extended_key_usages = usages;
    parameters.use_authority_key_identifier_extension = true;
    parameters
}

/// Ends a certificate at that time, if it would be valid for longer.
fn end_at(parameters: &mut CertificateParams, until: WallTime) {
    let since_epoch = Duration::from_nanos(u64::try_from(until.as_nanos()).unwrap_or(0));
    parameters.not_after = parameters.not_after.min(date_time_ymd(1970, 1, 1) + since_epoch);
}

/// Whether a certificate issued at `issued` is to be renewed: it will expire, or a fast clock issued it, so
/// that it is not valid so far.
fn is_old(issued: WallTime, now: WallTime) -> bool {
    now.since(issued) > LIFETIME * 2 / 3 || issued.since(now) > BEFORE
}

fn certificate(der: &[u8]) -> CertificateDer<'static> {
    CertificateDer::from(der.to_vec())
}

/// A chain of certificates and the key of the first.
#[cfg(test)]
type Shown = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// A key in DER (PKCS #8), as returned by `rcgen`.
fn key(der: &[u8]) -> PrivateKeyDer<'static> {
    PrivateKeyDer::Pkcs8(der.to_vec().into())
}
