//! When a certificate is due to be replaced.

use std::time::{Duration, SystemTime};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Whether a chain in PEM is to be replaced at `now`: it cannot be read, is self-signed, or has less than a third of
/// its life left, as CAs recommend.
pub(super) fn is_due(pem: &[u8], now: SystemTime) -> bool {
    let Ok(der) = CertificateDer::from_pem_slice(pem) else { return true };
    let Ok((_, certificate)) = X509Certificate::from_der(&der) else { return true };
    if certificate.issuer() == certificate.subject() {
        return true;
    }
    let validity = certificate.validity();
    let at = |seconds: i64| {
        SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
    };
    let (begin, end) = (at(validity.not_before.timestamp()), at(validity.not_after.timestamp()));
    let life = end.duration_since(begin).unwrap_or_default();
    let left = end.duration_since(now).unwrap_or_default();
    left < life / 3
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, Issuer, KeyPair, date_time_ymd};

    use super::*;

    const DAY: u64 = 24 * 3600;

    #[test]
    fn certificate_is_due_in_the_last_third_of_its_life() {
        let (ca_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let mut ca = CertificateParams::default();
        ca.distinguished_name.push(DnType::CommonName, "CA");
        let issuer = Issuer::new(ca, ca_key);
        let mut params = CertificateParams::new(["a.example".to_owned()]).unwrap();
        params.not_before = date_time_ymd(2026, 1, 1);
        params.not_after = date_time_ymd(2026, 4, 1);
        let pem = params.signed_by(&key, &issuer).unwrap().pem();
        // The first of January of 2026.
        let begin = SystemTime::UNIX_EPOCH + Duration::from_secs(20_454 * DAY);
        for (day, expected) in [(0, false), (59, false), (61, true), (89, true), (100, true)] {
            let now = begin + Duration::from_secs(day * DAY);
            assert_eq!(is_due(pem.as_bytes(), now), expected, "{day}");
        }
    }

    #[test]
    fn self_signed_or_unreadable_certificate_is_due() {
        let own = rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap().cert.pem();
        for pem in
            [own.as_str(), "", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
        {
            assert!(is_due(pem.as_bytes(), SystemTime::UNIX_EPOCH), "{pem}");
        }
    }
}
