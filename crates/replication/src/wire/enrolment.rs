//! The messages by which a replica enrols, or renews its certificate.

use super::WireError;
use super::cursor::{Reader, Writer};
use super::sealed::Coded;
use crate::message::{Enrol, Enrolled, FromAuthority, NotEnrolled, ToAuthority};

/// Bytes of a certificate or a request for one, at most. Lull's have 300 to 500.
const MAX_CERTIFICATE_BYTES: usize = 4_096;
/// Authorities that are trusted at a time, at most: two during a replacement.
const AUTHORITIES: (&str, usize) = ("authorities", 4);

const ENROL: u8 = 0x31;
const RENEW: u8 = 0x32;
const ENROLLED: u8 = 0x51;
const NOT_ENROLLED: u8 = 0x52;

impl Coded for ToAuthority {
    const MAX_FRAME_BYTES: usize = super::HEADER - 4 + 4 + 32 + 2 + MAX_CERTIFICATE_BYTES;

    fn kind(&self) -> u8 {
        match self {
            ToAuthority::Enrol(_) => ENROL,
            ToAuthority::Renew(_) => RENEW,
        }
    }

    fn write(&self, to: &mut Writer<'_>) -> Result<(), WireError> {
        match self {
            ToAuthority::Enrol(Enrol { replica, secret, request }) => {
                to.replica(*replica);
                to.bytes(secret);
                to.blob(("request", MAX_CERTIFICATE_BYTES), request)
            }
            ToAuthority::Renew(request) => to.blob(("request", MAX_CERTIFICATE_BYTES), request),
        }
    }

    fn read(kind: u8, from: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(match kind {
            ENROL => ToAuthority::Enrol(Enrol {
                replica: from.replica("replica")?,
                secret: from.digest("secret")?.0,
                request: from.blob(("request", MAX_CERTIFICATE_BYTES))?,
            }),
            RENEW => ToAuthority::Renew(from.blob(("request", MAX_CERTIFICATE_BYTES))?),
            other => return Err(WireError::Kind(other)),
        })
    }
}

impl Coded for FromAuthority {
    const MAX_FRAME_BYTES: usize = super::HEADER - 4
        + 4
        + 32
        + (1 + 32)
        + 4
        + (1 + AUTHORITIES.1) * (2 + MAX_CERTIFICATE_BYTES);

    fn kind(&self) -> u8 {
        match self {
            FromAuthority::Enrolled(_) => ENROLLED,
            FromAuthority::Refused(_) => NOT_ENROLLED,
        }
    }

    fn write(&self, to: &mut Writer<'_>) -> Result<(), WireError> {
        match self {
            FromAuthority::Enrolled(enrolled) => {
                to.replica(enrolled.replica);
                to.bytes(&enrolled.token_key);
                to.option(enrolled.other_token_key.as_ref(), |to, key| {
                    to.bytes(key);
                    Ok(())
                })?;
                to.blob(("certificate", MAX_CERTIFICATE_BYTES), &enrolled.certificate)?;
                to.list(AUTHORITIES, &enrolled.authorities, |to, authority| {
                    to.blob(("authority", MAX_CERTIFICATE_BYTES), authority)
                })
            }
            FromAuthority::Refused(why) => {
                to.u8(match why {
                    NotEnrolled::Ticket => 0,
                    NotEnrolled::Expired => 1,
                    NotEnrolled::Revoked => 2,
                    NotEnrolled::Request => 3,
                    NotEnrolled::Failed => 4,
                });
                Ok(())
            }
        }
    }

    fn read(kind: u8, from: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(match kind {
            ENROLLED => FromAuthority::Enrolled(Enrolled {
                replica: from.replica("replica")?,
                token_key: from.digest("token key")?.0,
                other_token_key: from
                    .option("other token key", |from| Ok(from.digest("other token key")?.0))?,
                certificate: from.blob(("certificate", MAX_CERTIFICATE_BYTES))?,
                authorities: from
                    .list(AUTHORITIES, 2, |from| from.blob(("authority", MAX_CERTIFICATE_BYTES)))?,
            }),
            NOT_ENROLLED => FromAuthority::Refused(match from.u8("reason")? {
                0 => NotEnrolled::Ticket,
                1 => NotEnrolled::Expired,
                2 => NotEnrolled::Revoked,
                3 => NotEnrolled::Request,
                4 => NotEnrolled::Failed,
                _ => return Err(WireError::Value("reason")),
            }),
            other => return Err(WireError::Kind(other)),
        })
    }
}
