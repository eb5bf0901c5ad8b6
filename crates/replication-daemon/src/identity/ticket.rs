//! Tickets, which a person carries from the origin to a new replica.

use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;

use lull_replication::types::{Digest, ReplicaId};
use thiserror::Error;

/// The prefix of a ticket's text: the version of its layout.
const PREFIX: &str = "lull1";
/// The prefix for one-off receivers. It differs, so `lull fetch` cannot use up the ticket of a replica.
const RECEIVER_PREFIX: &str = "lullfetch1";
/// Hash of the authority, number, secret; then the address; then the checksum.
const FIXED: usize = 32 + 4 + 32;
const CHECKSUM: usize = 4;
/// The longest address: a name of a host and a port.
const MAX_ADDRESS_BYTES: usize = 300;

/// Lets one replica join, once, or receivers fetch files until it expires. Its holder can become that replica, or fetch
/// all files, so it is a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Ticket {
    /// The address of the origin, or several that are separated by commas: of origins that share a log.
    pub address: String,
    /// The hash of the certificate of its authority.
    pub authority: Digest,
    /// The number that the replica will have.
    pub replica: ReplicaId,
    /// The secret that proves it.
    pub secret: [u8; 32],
    /// It is for one-off receivers.
    pub is_for_receivers: bool,
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket")
            .field("address", &self.address)
            .field("replica", &self.replica)
            .finish_non_exhaustive()
    }
}

/// Why an address cannot lead to the origin.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AddressError {
    /// It does not name a host and a port.
    #[error(
        "{0:?} is not an address: write HOST:PORT; separate the addresses of several origins with commas"
    )]
    NoPort(String),
    /// A ticket has no room for it.
    #[error(
        "the address has {0} bytes, and a ticket has room for {MAX_ADDRESS_BYTES}: use a shorter \
         host name"
    )]
    Long(usize),
}

/// Checks an address before it is carried to a place where it cannot be corrected. Whether the host exists is
/// not checked: it may have another name there.
pub(crate) fn check(address: &str) -> Result<(), AddressError> {
    if address.len() > MAX_ADDRESS_BYTES {
        return Err(AddressError::Long(address.len()));
    }
    if all(address).all(can_be) { Ok(()) } else { Err(AddressError::NoPort(address.to_owned())) }
}

/// The addresses of all origins that share a log; one, if there is no other.
pub(crate) fn all(address: &str) -> impl Iterator<Item = &str> {
    address.split(',')
}

/// Whether it is one host and a port.
fn can_be(address: &str) -> bool {
    // The end of an IPv6 address that stands alone looks like a port.
    let is_alone = address.parse::<IpAddr>().is_ok();
    let is_pair = |(host, port): (&str, &str)| {
        let is_port = port.parse::<u16>().is_ok_and(|port| port != 0);
        is_port && !host.is_empty() && !host.contains(char::is_whitespace)
    };
    !is_alone && address.rsplit_once(':').is_some_and(is_pair)
}

/// Why a text is not a valid ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TicketError {
    /// The text does not have the form of a ticket.
    #[error("this is not a ticket: copy all of it, from `lull` to the end")]
    Malformed,
    /// One of its characters is wrong or missing.
    #[error("the checksum of the ticket is wrong: copy all of it, from `lull` to the end")]
    Checksum,
    /// It is for receivers, and a replica needs its own.
    #[error("this ticket is for `lull fetch`: print one with `lull origin ticket DIR NAME`")]
    ForReceivers,
    /// It is for a replica, which would be used up.
    #[error("this ticket is for a replica: print one with `lull origin ticket DIR NAME --fetch`")]
    ForReplica,
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = self.authority.0.to_vec();
        bytes.extend(self.replica.0.to_le_bytes());
        bytes.extend(self.secret);
        bytes.extend(self.address.as_bytes());
        let checksum = Digest::of(&bytes);
        bytes.extend(&checksum.0[..CHECKSUM]);
        f.write_str(if self.is_for_receivers { RECEIVER_PREFIX } else { PREFIX })?;
        bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Ticket {
    type Err = TicketError;

    fn from_str(text: &str) -> Result<Self, TicketError> {
        let (text, of_receivers) = (text.trim(), text.trim().strip_prefix(RECEIVER_PREFIX));
        let is_for_receivers = of_receivers.is_some();
        let digits = of_receivers.or_else(|| text.strip_prefix(PREFIX));
        let digits = digits.ok_or(TicketError::Malformed)?;
        let longest = 2 * (FIXED + MAX_ADDRESS_BYTES + CHECKSUM);
        if digits.len() > longest || !digits.is_ascii() || digits.len() % 2 != 0 {
            return Err(TicketError::Malformed);
        }
        let bytes: Result<Vec<u8>, _> = (0..digits.len() / 2)
            .map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16))
            .collect();
        let bytes = bytes.map_err(|_| TicketError::Malformed)?;
        let (rest, checksum) =
            bytes.split_last_chunk::<CHECKSUM>().ok_or(TicketError::Malformed)?;
        if Digest::of(rest).0[..CHECKSUM] != checksum[..] {
            return Err(TicketError::Checksum);
        }
        let (authority, rest) = rest.split_first_chunk().ok_or(TicketError::Malformed)?;
        let (replica, rest) = rest.split_first_chunk().ok_or(TicketError::Malformed)?;
        let (secret, address) = rest.split_first_chunk().ok_or(TicketError::Malformed)?;
        Ok(Ticket {
            address: String::from_utf8(address.to_vec()).map_err(|_| TicketError::Malformed)?,
            authority: Digest(*authority),
            replica: ReplicaId(u32::from_le_bytes(*replica)),
            secret: *secret,
            is_for_receivers,
        })
    }
}
