//! Tickets, and what becomes of them.

use core::time::Duration;

use lull_replication::message::{Enrol, Enrolled, NotEnrolled};
use lull_replication::time::WallTime;
use lull_replication::types::ReplicaId;
use serde::{Deserialize, Serialize};

use super::issuing::certify;
use super::{Open, OriginIdentity, REPLACED, ReplicaRecord};
use crate::identity::{EnrolError, IdentityError, Ticket, fingerprint, random, ticket};

/// The role that a ticket permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TicketKind {
    /// A replica.
    Replica,
    /// A replica that may serve others.
    Relay,
    /// A one-off receiver. Such a ticket can be used until it expires.
    Receiver,
}

impl OriginIdentity {
    /// Makes a ticket for a new replica of this name, valid for `valid`. If there is a replica of this name,
    /// the ticket lets it join again, and its earlier certificates then become invalid.
    ///
    /// # Errors
    /// As for [`ticket_for`](OriginIdentity::ticket_for).
    pub fn ticket(
        &mut self,
        name: &str,
        address: &str,
        now: WallTime,
        valid: Duration,
    ) -> Result<Ticket, IdentityError> {
        self.ticket_for(TicketKind::Replica, name, address, (now, valid))
    }

    /// The same for any kind of holder.
    ///
    /// # Errors
    /// If the address is not reachable, the name has another purpose, or the file cannot be written.
    pub fn ticket_for(
        &mut self,
        kind: TicketKind,
        name: &str,
        address: &str,
        (now, valid): (WallTime, Duration),
    ) -> Result<Ticket, IdentityError> {
        ticket::check(address)?;
        let (secret, is_for_receivers) = (random()?, kind == TicketKind::Receiver);
        self.change(|kept| {
            // The oldest authority: the origin shows a certificate of it.
            let authority = &kept.authorities[kept.authorities.len() - 1];
            let authority = fingerprint(&authority.certificate);
            let old = kept.replicas.iter().find(|(_, known)| known.name == name);
            if old.is_some_and(|(_, known)| known.receiver != is_for_receivers) {
                return Err(IdentityError::OtherPurpose(name.to_owned()));
            }
            let next = kept.replicas.last_key_value().map_or(0, |(last, _)| last + 1);
            let number = old.map_or(next, |(number, _)| *number);
            let new = || ReplicaRecord::new(name, is_for_receivers);
            let known = kept.replicas.entry(number).or_insert_with(new);
            known.relay = kind == TicketKind::Relay;
            let until = now.plus(valid).as_nanos();
            known.ticket = Some(Open { secret: blake3::hash(&secret).to_hex().to_string(), until });
            let (address, replica) = (address.to_owned(), ReplicaId(number));
            Ok(Ticket { address, authority, replica, secret, is_for_receivers })
        })
    }

    /// A machine without a certificate asks to become a replica: a ticket permits it, once. A receiver's ticket can be
    /// used again.
    ///
    /// # Errors
    /// If the ticket is not valid, the request is malformed, or the file cannot be written; then the ticket
    /// stays unused.
    pub fn enrol(&mut self, enrol: &Enrol, now: WallTime) -> Result<Enrolled, EnrolError> {
        self.change(|kept| {
            let known = kept.replicas.get_mut(&enrol.replica.0).ok_or(NotEnrolled::Ticket)?;
            let ticket = known.ticket.as_ref().ok_or(NotEnrolled::Ticket)?;
            let expected =
                blake3::Hash::from_hex(&ticket.secret).map_err(|_| NotEnrolled::Ticket)?;
            // Hashes of BLAKE3 are compared in constant time.
            if blake3::hash(&enrol.secret) != expected {
                return Err(NotEnrolled::Ticket.into());
            }
            if now.as_nanos() > ticket.until {
                return Err(NotEnrolled::Expired.into());
            }
            if !known.receiver {
                known.ticket = None;
                known.replaced.splice(0..0, known.certificates.drain(..));
                known.replaced.truncate(REPLACED);
            }
            known.revoked = false;
            certify(kept, enrol.replica, &enrol.request, now)
        })
    }
}
