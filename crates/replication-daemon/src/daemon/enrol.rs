//! Certificates by wire: joining with a ticket, renewing, and the origin's answers.

use std::io;
use std::path::Path as FilePath;
use std::sync::Arc;

use lull_replication::message::{Channel, Enrolled, Frame, FromAuthority, Session, ToAuthority};
use lull_replication::types::ReplicaId;
use rustls::pki_types::ServerName;
use rustls::{CertificateError, ClientConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::clock::certificate_time;
use super::link::{Incoming, Outgoing, ask, prepare, soon};
use super::{Clock, DaemonError, LinkError};
use crate::identity::{
    IdentityError, Joining, OtherOrigin, ReplicaIdentity, Ticket, TicketError, all_addresses,
};
use crate::store::{ReplicaState, Settings, Store, StoreError};

/// Becomes the replica of a ticket: afterwards its identity and a store are in `folder`. If a replica of the
/// same origin was there, its identity becomes invalid, and its data need not be transferred again.
///
/// # Errors
/// If the folder has a replica of another origin, or one that runs. If the origin cannot be reached, is not
/// that of the ticket, or rejects the ticket.
pub async fn join(
    folder: &FilePath,
    ticket: Ticket,
    clock: &Arc<dyn Clock>,
) -> Result<ReplicaId, DaemonError> {
    // All these before the ticket is used up.
    if ticket.is_for_receivers {
        return Err(TicketError::ForReceivers.into());
    }
    let address = ticket.address.clone();
    let joining = match ReplicaIdentity::open(folder) {
        Err(IdentityError::Nothing(_)) => Joining::new(ticket)?,
        before => Joining::again(ticket, &before?)?,
    };
    let settings = Settings::default();
    match Store::<ReplicaState>::create_replica(folder, settings) {
        // Of that replica, or of a join that the origin has rejected.
        Err(StoreError::Exists(_)) => {
            drop(Store::<ReplicaState>::open(folder, settings, clock.read().wall)?);
        }
        made => made?,
    }
    Ok(finish(folder, &address, joining, clock).await?.replica())
}

/// Uses a ticket up: the identity is in `folder` then, without a store.
pub(crate) async fn enrol(
    folder: &FilePath,
    ticket: Ticket,
    clock: &Arc<dyn Clock>,
) -> Result<ReplicaIdentity, DaemonError> {
    let address = ticket.address.clone();
    finish(folder, &address, Joining::new(ticket)?, clock).await
}

/// Becomes a receiver with a ticket, which can be used again. Its identity is in memory only.
pub(super) async fn enrol_receiver(
    ticket: Ticket,
    clock: &Arc<dyn Clock>,
) -> Result<ReplicaIdentity, DaemonError> {
    if !ticket.is_for_receivers {
        return Err(TicketError::ForReplica.into());
    }
    let address = ticket.address.clone();
    let joining = Joining::new(ticket)?;
    let connect = joining.connect(certificate_time(clock))?;
    let enrolled = request(&address, connect, ToAuthority::Enrol(joining.enrol())).await?;
    Ok(joining.receiver(enrolled, clock.read().wall))
}

async fn finish(
    folder: &FilePath,
    address: &str,
    joining: Joining,
    clock: &Arc<dyn Clock>,
) -> Result<ReplicaIdentity, DaemonError> {
    let connect = joining.connect(certificate_time(clock))?;
    let enrolled = request(address, connect, ToAuthority::Enrol(joining.enrol())).await?;
    Ok(joining.finish(folder, enrolled, clock.read().wall)?)
}

/// Gets a new certificate if the current one is old.
pub(super) async fn renew(
    identity: &mut ReplicaIdentity,
    clock: &Arc<dyn Clock>,
) -> Result<(), DaemonError> {
    let renewal = identity.renew()?;
    let connect = identity.connect(certificate_time(clock))?;
    let question = ToAuthority::Renew(renewal.request.clone());
    let enrolled = request(identity.address(), connect, question).await?;
    identity.renewed(renewal, enrolled, clock.read().wall)?;
    Ok(())
}

/// One question to the origin as an authority. Of several addresses the first one that answers counts.
async fn request(
    address: &str,
    connect: (Arc<ClientConfig>, ServerName<'static>),
    question: ToAuthority,
) -> Result<Enrolled, DaemonError> {
    let mut last = None;
    for address in all_addresses(address) {
        let (connect, question) = (connect.clone(), question.clone());
        match request_at(address, connect, question).await {
            Err(error @ DaemonError::Origin { .. }) => last = Some(error),
            outcome => return outcome,
        }
    }
    let none = || DaemonError::Origin { address: address.to_owned(), why: LinkError::GivenUp };
    Err(last.unwrap_or_else(none))
}

async fn request_at(
    address: &str,
    connect: (Arc<ClientConfig>, ServerName<'static>),
    question: ToAuthority,
) -> Result<Enrolled, DaemonError> {
    let at = |why| DaemonError::Origin { address: address.to_owned(), why };
    let answer = soon(async {
        let stream = dial(address, connect, Channel::Enrolment).await?;
        let (read, write) = tokio::io::split(stream);
        let (mut incoming, mut outgoing) = (Incoming::new(read), Outgoing::new(write));
        outgoing.put(&Frame { session: Session::default(), message: question })?;
        outgoing.flush().await?;
        Ok(incoming.next().await?.message)
    });
    match answer.await {
        Ok(FromAuthority::Enrolled(enrolled)) => Ok(enrolled),
        Ok(FromAuthority::Refused(why)) => Err(DaemonError::NotEnrolled(why)),
        Err(LinkError::Io(error)) if is_another(&error) => Err(OtherOrigin.into()),
        Err(why) => Err(at(why)),
    }
}

/// Whether TLS has found another origin than that of the ticket.
fn is_another(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(
        inner,
        Some(rustls::Error::InvalidCertificate(CertificateError::Other(other)))
            if other.0.is::<OtherOrigin>()
    )
}

/// Connects to an origin.
pub(crate) async fn dial(
    address: &str,
    how: (Arc<ClientConfig>, ServerName<'static>),
    channel: Channel,
) -> Result<TlsStream<TcpStream>, LinkError> {
    Ok(dial_through(address, how, channel, |tcp| tcp).await?.0)
}

/// The same over the connection that `through` returns: TLS is above that. Also returns the version to speak.
pub(super) async fn dial_through<S: AsyncRead + AsyncWrite + Unpin>(
    address: &str,
    (config, name): (Arc<ClientConfig>, ServerName<'static>),
    channel: Channel,
    through: impl FnOnce(TcpStream) -> S,
) -> Result<(TlsStream<S>, u16), LinkError> {
    soon(async {
        let tcp = TcpStream::connect(address).await?;
        prepare(&tcp)?;
        let mut stream = TlsConnector::from(config).connect(name, through(tcp)).await?;
        let version = ask(&mut stream, channel).await?;
        Ok((stream, version))
    })
    .await
}
