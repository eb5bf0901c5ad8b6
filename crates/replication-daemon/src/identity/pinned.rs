//! Verification for a joining replica: the authority is unknown, but its hash is known.

use core::fmt;
use std::sync::Arc;

use lull_replication::types::Digest;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};
use thiserror::Error;

use super::signatures::{schemes, verify_tls12, verify_tls13};
use super::{fingerprint, provider};

/// Why a joining replica rejects a server: it is not the origin of the ticket. Found within
/// [`CertificateError::Other`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "the server is not the origin that made the ticket: check the address, or ask for a new ticket"
)]
pub struct OtherOrigin;

/// Takes the authority with the expected hash from the server's certificates, and then verifies as usual.
pub(super) struct Pinned {
    authority: Digest,
}

impl Pinned {
    pub(super) fn new(authority: Digest) -> Self {
        Pinned { authority }
    }
}

impl fmt::Debug for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pinned({})", self.authority)
    }
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let other = || Error::from(CertificateError::Other(OtherError(Arc::new(OtherOrigin))));
        let authority = intermediates
            .iter()
            .find(|one| fingerprint(one) == self.authority)
            .ok_or_else(other)?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
            .build()
            .map_err(|error| Error::General(error.to_string()))?;
        verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        schemes()
    }
}
