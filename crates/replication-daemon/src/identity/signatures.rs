//! Signatures of TLS handshakes, for verifiers of our own: they decide about certificates only.

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::CertificateDer;
use rustls::{DigitallySignedStruct, Error, SignatureScheme};

use super::provider;

/// Verifies the signature of a TLS 1.2 handshake by the key of a certificate.
pub(super) fn verify_tls12(
    message: &[u8],
    shown: &CertificateDer<'_>,
    dss: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, Error> {
    let schemes = provider().signature_verification_algorithms;
    verify_tls12_signature(message, shown, dss, &schemes)
}

/// The same for TLS 1.3.
pub(super) fn verify_tls13(
    message: &[u8],
    shown: &CertificateDer<'_>,
    dss: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, Error> {
    let schemes = provider().signature_verification_algorithms;
    verify_tls13_signature(message, shown, dss, &schemes)
}

/// The accepted signature schemes.
pub(super) fn schemes() -> Vec<SignatureScheme> {
    provider().signature_verification_algorithms.supported_schemes()
}
