//! Certificates that the authority issues.

use lull_replication::message::{Enrolled, NotEnrolled};
use lull_replication::time::WallTime;
use lull_replication::types::{Digest, ReplicaId};
use rcgen::{
    CertificateParams, CertificateSigningRequestParams, ExtendedKeyUsagePurpose, Issuer, KeyPair,
    PublicKeyData, SanType,
};
use rustls::pki_types::CertificateSigningRequestDer;

use super::super::{
    EnrolError, IdentityError, ORIGIN_NAME, RECEIVER_NAME, RELAY_NAME, authority_parameters,
    certificate, end_at, fingerprint, hex, leaf_parameters, random,
};
use super::{Certified, OriginFile, RECEIVERS};

pub(super) fn make_authority(now: WallTime) -> Result<Certified, IdentityError> {
    let key = KeyPair::generate()?;
    let certificate = authority_parameters(&Digest(random()?), now).self_signed(&key)?;
    Ok(certified(certificate.der(), &key, now))
}

fn certified(certificate: &[u8], key: &KeyPair, now: WallTime) -> Certified {
    Certified {
        certificate: certificate.to_vec(),
        key: key.serialize_der(),
        issued: now.as_nanos(),
    }
}

fn issue(
    authority: &Certified,
    parameters: &CertificateParams,
    to: &impl PublicKeyData,
) -> Result<Vec<u8>, IdentityError> {
    let signer = KeyPair::try_from(&authority.key[..])?;
    let issuer = Issuer::from_ca_cert_der(&certificate(&authority.certificate), signer)?;
    Ok(parameters.signed_by(to, &issuer)?.der().to_vec())
}

pub(super) fn make_origin(
    authority: &Certified,
    now: WallTime,
) -> Result<Certified, IdentityError> {
    let key = KeyPair::generate()?;
    let usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let mut parameters = leaf_parameters("Lull origin", usages, now);
    parameters.subject_alt_names = vec![SanType::DnsName(ORIGIN_NAME.try_into()?)];
    Ok(certified(&issue(authority, &parameters, &key)?, &key, now))
}

/// Issues a certificate for the key of a request, and notes it.
pub(super) fn certify(
    kept: &mut OriginFile,
    replica: ReplicaId,
    request: &[u8],
    now: WallTime,
) -> Result<Enrolled, EnrolError> {
    let request = CertificateSigningRequestDer::from(request);
    let request =
        CertificateSigningRequestParams::from_der(&request).map_err(|_| NotEnrolled::Request)?;
    let authority = &kept.authorities[0];
    let name = format!("Lull replica {}", replica.0);
    let known = kept.replicas.get(&replica.0).ok_or(NotEnrolled::Ticket)?;
    let (is_relay, is_receiver) = (known.relay, known.receiver);
    let mut usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    usages.extend(is_relay.then_some(ExtendedKeyUsagePurpose::ServerAuth));
    let mut parameters = leaf_parameters(&name, usages, now);
    if is_relay || is_receiver {
        let name = if is_relay { RELAY_NAME } else { RECEIVER_NAME };
        let name = name.try_into().map_err(IdentityError::Certificate)?;
        parameters.subject_alt_names = vec![SanType::DnsName(name)];
    }
    if let Some(ticket) = known.ticket.as_ref().filter(|_| is_receiver) {
        // Relays do not ask about receivers.
        end_at(&mut parameters, WallTime::from_nanos(ticket.until));
    }
    let certificate = issue(authority, &parameters, &request.public_key)?;
    let authorities = kept.authorities.iter().map(|one| one.certificate.clone()).collect();
    let of = hex(&fingerprint(&authority.certificate));
    let (both, other_token_key) = (kept.authorities.len() > 1, kept.other_token_key);
    let known = kept.replicas.get_mut(&replica.0).ok_or(NotEnrolled::Ticket)?;
    known.authority = Some(of);
    known.trusts_both = both;
    known.believes_both = other_token_key.is_some();
    known.certificates.insert(0, hex(&fingerprint(&certificate)));
    if is_receiver {
        known.certificates.truncate(RECEIVERS);
        let (token_key, other_token_key) = Default::default();
        // A receiver makes no session tokens.
        return Ok(Enrolled { replica, certificate, authorities, token_key, other_token_key });
    }
    // An unused one makes room for the next.
    if known.certificates.len() > 2 {
        known.certificates.remove(1);
    }
    let token_key = kept.token_key;
    Ok(Enrolled { replica, certificate, authorities, token_key, other_token_key })
}
