//! The origin's side: the authority, tickets, and admission.

mod issuing;
mod shared;
mod tickets;

use core::fmt;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lull_replication::message::{Enrolled, NotEnrolled};
use lull_replication::time::WallTime;
use lull_replication::token::{Keyring, TokenKey};
use lull_replication::types::{Digest, ReplicaId, Sequence};
use rustls::pki_types::CertificateDer;
use rustls::server::WebPkiClientVerifier;
use rustls::time_provider::TimeProvider;
use rustls::version::TLS13;
use rustls::{RootCertStore, ServerConfig};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use issuing::{certify, make_authority, make_origin};
pub use tickets::TicketKind;

use super::{
    EnrolError, IdentityError, NotAdmitted, Peer, certificate, files, fingerprint, hex, is_old,
    key, provider, random,
};

/// Certificates of receivers with one ticket, at most: the oldest one is not valid any more.
const RECEIVERS: usize = 256;
/// Superseded certificates of a name that are remembered, so that their holders get the reason.
const REPLACED: usize = 16;

/// A certificate and its key, both in DER.
#[derive(Clone, Serialize, Deserialize)]
struct Certified {
    certificate: Vec<u8>,
    key: Vec<u8>,
    issued: i64,
}

/// A ticket that was not used.
#[derive(Clone, Serialize, Deserialize)]
struct Open {
    /// The hash of its secret, so that the file alone does not reveal it.
    secret: String,
    until: i64,
}

#[derive(Clone, Serialize, Deserialize)]
struct ReplicaRecord {
    name: String,
    ticket: Option<Open>,
    /// Hashes of its certificates, the newest first. The second one is valid until the first was used.
    certificates: Vec<String>,
    /// Certificates of earlier holders of its name, the newest first.
    #[serde(default)]
    replaced: Vec<String>,
    /// The hash of the authority that issued the newest one.
    authority: Option<String>,
    /// The newest one came with a second trusted authority, during a replacement.
    #[serde(default)]
    trusts_both: bool,
    /// And with a second accepted key of session tokens.
    #[serde(default)]
    believes_both: bool,
    revoked: bool,
    /// It may serve other replicas.
    #[serde(default)]
    relay: bool,
    /// One-off receivers use this name: it is no replica.
    #[serde(default)]
    receiver: bool,
}

/// The contents of the file.
#[derive(Clone, Serialize, Deserialize)]
struct OriginFile {
    /// The issuing authority, and during a replacement the previous one.
    authorities: Vec<Certified>,
    origin: Certified,
    /// The key that makes session tokens.
    token_key: [u8; 32],
    /// A second accepted key. During a replacement of the authority it is the next one, so that all know it
    /// before any token is made with it. Afterwards it is the previous one, until its tokens do not matter
    /// any more.
    #[serde(default)]
    other_token_key: Option<[u8; 32]>,
    replicas: BTreeMap<u32, ReplicaRecord>,
    /// Encrypts this identity in the log that several origins share.
    #[serde(default)]
    log_key: Option<[u8; 32]>,
}

/// The identity of an origin, and its knowledge of the replicas. Each change is durable when the call
/// returns.
pub struct OriginIdentity {
    folder: PathBuf,
    kept: OriginFile,
    /// The last state that a token of the replaced key may name: the last one when the last such token could
    /// be made. Not in the file: after a start a later state is used, which is also safe.
    old_tokens: Option<Sequence>,
    /// Stores each change before it is valid.
    publish: Option<shared::Publish>,
}

impl fmt::Debug for OriginIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let replicas = self.kept.replicas.len();
        f.debug_struct("OriginIdentity").field("replicas", &replicas).finish_non_exhaustive()
    }
}

/// Why a replacement of the authority cannot be begun or finished.
#[derive(Debug, Error)]
pub enum RotationError {
    /// A replacement is in progress.
    #[error("the CA is being replaced already: `lull origin rotate DIR --finish` ends that")]
    UnderWay,
    /// There is no replacement in progress.
    #[error("the CA is not being replaced: `lull origin rotate DIR` begins that")]
    NotBegun,
    /// The replaced session-token key of the last rotation is still accepted.
    #[error(
        "session tokens of the old key are still valid: wait for the replicas that `lull status` \
         lists with old session tokens, or revoke them"
    )]
    Unsettled,
    /// Replicas that have not renewed their certificates would be rejected afterwards.
    #[error(
        "{} would be rejected afterwards: wait until they have connected and renewed their \
         certificates, or revoke them",
        .0.join(", ")
    )]
    Behind(Vec<String>),
    /// The identity cannot be written.
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

impl OriginIdentity {
    /// Makes the identity of a new origin in `folder`.
    ///
    /// # Errors
    /// If there is one already, or the file cannot be written.
    pub fn create(folder: &Path, now: WallTime) -> Result<Self, IdentityError> {
        let authority = make_authority(now)?;
        let origin = make_origin(&authority, now)?;
        let kept = OriginFile {
            authorities: vec![authority],
            origin,
            token_key: random()?,
            other_token_key: None,
            replicas: BTreeMap::new(),
            log_key: None,
        };
        files::create(folder, &kept)?;
        Ok(OriginIdentity { folder: folder.to_owned(), kept, old_tokens: None, publish: None })
    }

    /// The identity in `folder`. The origin's own certificate is renewed if it is old.
    ///
    /// # Errors
    /// If there is no origin, it is damaged, or it cannot be written.
    pub fn open(folder: &Path, now: WallTime) -> Result<Self, IdentityError> {
        let kept: OriginFile = files::read(folder)?;
        if kept.authorities.is_empty() {
            return Err(IdentityError::Damaged(files::file(folder)));
        }
        let folder = folder.to_owned();
        let mut identity = OriginIdentity { folder, kept, old_tokens: None, publish: None };
        identity.renew_if_old(now)?;
        Ok(identity)
    }

    /// Renews the origin's own certificate if it is old. To be called before connections are accepted, so
    /// that it does not expire while the origin runs.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn renew_if_old(&mut self, now: WallTime) -> Result<(), IdentityError> {
        if !is_old(WallTime::from_nanos(self.kept.origin.issued), now) {
            return Ok(());
        }
        self.change(|kept| {
            // By the one that all replicas trust.
            let authority = &kept.authorities[kept.authorities.len() - 1];
            kept.origin = make_origin(authority, now)?;
            Ok(())
        })
    }

    /// Changes the persistent data, in the file first.
    fn change<T, E: From<IdentityError>>(
        &mut self,
        change: impl FnOnce(&mut OriginFile) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut kept = self.kept.clone();
        let value = change(&mut kept)?;
        if let Some(publish) = &self.publish {
            publish(shared::encrypt(&kept)?)?;
        }
        files::write(&self.folder, &kept)?;
        self.kept = kept;
        Ok(value)
    }

    /// The keys of session tokens, as replicas have them.
    pub fn keyring(&self) -> Keyring {
        let other = self.kept.other_token_key.map(TokenKey::new);
        Keyring::new(TokenKey::new(self.kept.token_key), other)
    }

    /// Drops the replaced session-token key when its tokens no longer matter. Then no replica makes them,
    /// because each has used a newer certificate. And each answers reads with the last state of that moment
    /// or a later one. So no holder of such a token has seen a newer state. `last` returns the last state.
    /// `reached` returns the state with which a replica answers reads, as far as it has reported it in this
    /// incarnation of the origin. True if the key was dropped now: all replicas must drop it as well.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn drop_replaced_token_key(
        &mut self,
        last: impl FnOnce() -> Sequence,
        reached: impl Fn(ReplicaId) -> Option<Sequence>,
    ) -> Result<bool, IdentityError> {
        let kept = &self.kept;
        if kept.other_token_key.is_none() || kept.makes_old_tokens() {
            return Ok(false);
        }
        // Requested now, when there are no further ones.
        let until = *self.old_tokens.get_or_insert_with(last);
        let mut joined = kept.replicas.iter().filter(|(_, known)| known.has_joined());
        if !joined.all(|(number, _)| reached(ReplicaId(*number)).is_some_and(|at| at >= until)) {
            return Ok(false);
        }
        self.change(|kept| {
            kept.other_token_key = None;
            Ok::<_, IdentityError>(())
        })?;
        self.old_tokens = None;
        Ok(true)
    }

    /// The state that replicas have to answer reads with, before the session-token key that was replaced is
    /// dropped. None if that waits for nothing, or for certificates.
    pub fn to_reach(&self) -> Option<Sequence> {
        self.old_tokens
    }

    /// Whether the authority is being replaced.
    pub fn is_rotating(&self) -> bool {
        self.kept.authorities.len() > 1
    }

    /// An admitted replica requests a certificate for a new key. Its current one is valid until the new one
    /// is used.
    ///
    /// # Errors
    /// If the replica was revoked meanwhile, the request is malformed, or the file cannot be written.
    pub fn renew(
        &mut self,
        replica: ReplicaId,
        request: &[u8],
        now: WallTime,
    ) -> Result<Enrolled, EnrolError> {
        self.change(|kept| {
            let known = kept.replicas.get(&replica.0).ok_or(NotEnrolled::Ticket)?;
            if known.revoked {
                return Err(NotEnrolled::Revoked.into());
            }
            if known.receiver {
                return Err(NotEnrolled::Ticket.into());
            }
            certify(kept, replica, request, now)
        })
    }

    /// From now on the replica is not admitted. The caller has to close its connections. True if there is
    /// such a replica.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn revoke(&mut self, replica: ReplicaId) -> Result<bool, IdentityError> {
        self.change(|kept| {
            let Some(known) = kept.replicas.get_mut(&replica.0) else { return Ok(false) };
            known.revoked = true;
            known.ticket = None;
            Ok(true)
        })
    }

    /// The replicas and their names; whether they have ever joined, and were not revoked. Receivers have not joined.
    pub fn replicas(&self) -> impl Iterator<Item = (ReplicaId, &str, bool)> {
        self.kept
            .replicas
            .iter()
            .map(|(number, known)| (ReplicaId(*number), &*known.name, known.has_joined()))
    }

    /// The peer of a connection, by the certificates that it presented and TLS verified. To be called for
    /// each connection before anything is read from it.
    ///
    /// # Errors
    /// If the connection has to be closed.
    pub fn admit(&mut self, shown: Option<&[CertificateDer<'_>]>) -> Result<Peer, NotAdmitted> {
        let Some((replica, at, certificates)) = self.find(shown)? else {
            return Ok(Peer::Newcomer);
        };
        let peer = self.peer(replica);
        if peer == Peer::Replica(replica) {
            self.note_use(replica, at, certificates);
        }
        Ok(peer)
    }

    /// The peer that has a certificate of this number.
    fn peer(&self, replica: ReplicaId) -> Peer {
        let is_receiver = self.kept.replicas.get(&replica.0).is_some_and(|known| known.receiver);
        if is_receiver { Peer::Receiver(replica) } else { Peer::Replica(replica) }
    }

    /// Whether this is the number of receivers.
    pub(crate) fn is_for_receivers(&self, replica: ReplicaId) -> bool {
        self.peer(replica) == Peer::Receiver(replica)
    }

    /// A relay asks about a replica that has shown it the certificate with this hash.
    ///
    /// # Errors
    /// If the relay must not serve it.
    pub fn vouch(&mut self, replica: ReplicaId, certificate: &Digest) -> Result<(), NotAdmitted> {
        let (found, at, certificates) = self.find_hash(&hex(certificate))?;
        if found != replica || self.is_for_receivers(found) {
            return Err(NotAdmitted::Unknown);
        }
        self.note_use(replica, at, certificates);
        Ok(())
    }

    /// A replica has used the certificate at this place among its own.
    fn note_use(&mut self, replica: ReplicaId, at: usize, certificates: usize) {
        if at == 0 && certificates > 1 {
            // The replica has the new one. If this cannot be written, the old one is valid a little longer,
            // and the next connection tries again.
            let _ = self.change(|kept| {
                if let Some(known) = kept.replicas.get_mut(&replica.0) {
                    known.certificates.truncate(1);
                }
                Ok::<_, IdentityError>(())
            });
        }
    }

    /// Whether the peer admitted by these certificates still is admitted. To be called again when it names
    /// its channel: it may have been revoked since then, or a successor may have joined in its place.
    ///
    /// # Errors
    /// If the connection has to be closed.
    pub fn still_admits(
        &self,
        peer: Peer,
        shown: Option<&[CertificateDer<'_>]>,
    ) -> Result<(), NotAdmitted> {
        let found = self.find(shown)?;
        let now = found.map_or(Peer::Newcomer, |(replica, ..)| self.peer(replica));
        if now == peer { Ok(()) } else { Err(NotAdmitted::Unknown) }
    }

    /// Returns whose certificate it is, its index among the replica's from the newest on, and how many the
    /// replica has. None if none was shown.
    fn find(
        &self,
        shown: Option<&[CertificateDer<'_>]>,
    ) -> Result<Option<(ReplicaId, usize, usize)>, NotAdmitted> {
        let Some(first) = shown.and_then(|shown| shown.first()) else { return Ok(None) };
        self.find_hash(&hex(&fingerprint(first))).map(Some)
    }

    /// The same for the hash of a certificate.
    fn find_hash(&self, hash: &String) -> Result<(ReplicaId, usize, usize), NotAdmitted> {
        let known = self.kept.replicas.iter().find_map(|(number, known)| {
            let at = known.certificates.iter().position(|one| one == hash)?;
            Some((ReplicaId(*number), at, known))
        });
        let (replica, at, known) = known.ok_or_else(|| self.why_unknown(hash))?;
        if known.revoked {
            return Err(NotAdmitted::Revoked(replica));
        }
        Ok((replica, at, known.certificates.len()))
    }

    fn why_unknown(&self, hash: &String) -> NotAdmitted {
        let mut all = self.kept.replicas.iter();
        let replaced = all.find(|(_, known)| known.replaced.contains(hash));
        replaced
            .map_or(NotAdmitted::Unknown, |(number, _)| NotAdmitted::Replaced(ReplicaId(*number)))
    }

    /// How to accept connections. To be called again after a change of the authority.
    ///
    /// # Errors
    /// If the file has invalid keys or certificates.
    pub fn accept(&self, time: Arc<dyn TimeProvider>) -> Result<Arc<ServerConfig>, IdentityError> {
        let mut roots = RootCertStore::empty();
        for authority in &self.kept.authorities {
            roots.add(certificate(&authority.certificate))?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
            // A joining replica has no certificate: `admit` decides.
            .allow_unauthenticated()
            .build()
            .map_err(|error| rustls::Error::General(error.to_string()))?;
        let authority = &self.kept.authorities[self.kept.authorities.len() - 1];
        // With the authority, because a joining replica knows only its hash.
        let chain =
            vec![certificate(&self.kept.origin.certificate), certificate(&authority.certificate)];
        let mut config = ServerConfig::builder_with_details(provider(), time)
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key(&self.kept.origin.key))?;
        // Each connection shows its certificate, so that none outlives it.
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }

    /// Begins to change the authority: replicas get certificates of the new one, and trust it, when they
    /// renew. The old one is still trusted, and the origin still shows a certificate of it. The key of
    /// session tokens changes in the same steps: all get the new one, but still make tokens with the old one.
    ///
    /// # Errors
    /// If a replacement is in progress, the last one is not finished, or the file cannot be written.
    pub fn begin_rotation(&mut self, now: WallTime) -> Result<(), RotationError> {
        self.change(|kept| {
            if kept.authorities.len() > 1 {
                return Err(RotationError::UnderWay);
            }
            // Otherwise there could be tokens of three keys, and replicas know two.
            if kept.other_token_key.is_some() {
                return Err(RotationError::Unsettled);
            }
            kept.authorities.insert(0, make_authority(now)?);
            // An attacker who has the authority's key has the token key too.
            kept.other_token_key = Some(random()?);
            Ok(())
        })
    }

    /// Whether a replica needs a new certificate. Its own is of an authority that is being replaced, or was
    /// issued with an authority or a token key that was replaced since.
    pub fn is_behind(&self, replica: ReplicaId) -> bool {
        let kept = &self.kept;
        kept.replicas.get(&replica.0).is_some_and(|known| {
            behind(kept, known)
                || kept.authorities.len() == 1 && known.trusts_both
                || kept.other_token_key.is_none() && known.believes_both
        })
    }

    /// Finishes it: the old authority is no longer trusted. From now on tokens are made with the new key;
    /// [`drop_replaced_token_key`](OriginIdentity::drop_replaced_token_key) says when the old one is dropped.
    ///
    /// # Errors
    /// If replicas would be rejected afterwards, no replacement was begun, or the file cannot be written.
    pub fn finish_rotation(&mut self, now: WallTime) -> Result<(), RotationError> {
        self.change(|kept| {
            if kept.authorities.len() < 2 {
                return Err(RotationError::NotBegun);
            }
            let behind: Vec<String> = kept
                .replicas
                .values()
                .filter(|known| behind(kept, known))
                .map(|known| known.name.clone())
                .collect();
            if !behind.is_empty() {
                return Err(RotationError::Behind(behind));
            }
            kept.authorities.truncate(1);
            kept.origin = make_origin(&kept.authorities[0], now)?;
            if let Some(next) = kept.other_token_key {
                kept.other_token_key = Some(core::mem::replace(&mut kept.token_key, next));
            }
            for known in kept.replicas.values_mut() {
                // They name the old authority.
                known.ticket = None;
            }
            Ok(())
        })
    }
}

impl OriginFile {
    /// Whether session tokens with the replaced key may still be made: a replica has not used a newer
    /// certificate.
    fn makes_old_tokens(&self) -> bool {
        let may = |known: &ReplicaRecord| {
            known.has_joined() && (known.trusts_both || known.certificates.len() > 1)
        };
        self.authorities.len() > 1 || self.replicas.values().any(may)
    }
}

impl ReplicaRecord {
    fn new(name: &str, receiver: bool) -> Self {
        ReplicaRecord {
            name: name.to_owned(),
            ticket: None,
            certificates: Vec::new(),
            replaced: Vec::new(),
            authority: None,
            trusts_both: false,
            believes_both: false,
            revoked: false,
            relay: false,
            receiver,
        }
    }

    fn has_joined(&self) -> bool {
        !self.receiver && !self.certificates.is_empty() && !self.revoked
    }
}

/// Whether a replica may not trust the newest authority so far: it has used no certificate of it.
fn behind(kept: &OriginFile, known: &ReplicaRecord) -> bool {
    let newest = hex(&fingerprint(&kept.authorities[0].certificate));
    known.has_joined()
        && (known.certificates.len() > 1 || known.authority.as_deref() != Some(&newest[..]))
}
