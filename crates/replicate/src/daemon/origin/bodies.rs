//! Bodies on their way to a replica: one after the other, in pieces.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::io::AsyncWrite;

use super::Shared;
use super::core::Link;
use crate::daemon::link::Outgoing;
use crate::daemon::{LinkError, look};
use crate::message::{BodyHeader, Channel, Frame};
use crate::shelf::Pin;
use crate::store::{Library, StoreError};
use crate::types::Content;
use crate::wire::{BodyPart, PIECE};

/// Sends what a channel of bodies is for, as fast as it is taken: the background connection takes as
/// much as there is spare capacity, which is what the queue drains by (SSR §6.2).
pub(super) async fn send(
    shared: &Arc<Shared>,
    link: &Arc<Link>,
    channel: Channel,
    mut outgoing: Outgoing<impl AsyncWrite + Unpin>,
) -> Result<(), LinkError> {
    let (wakes, number) = match channel {
        Channel::Demand => (&link.demand, 1),
        _ => (&link.speculative, 2),
    };
    loop {
        let next = shared.with(|core, _| match channel {
            _ if !core.is_current(link) => Err(LinkError::GivenUp),
            Channel::Demand => Ok(core.machine.poll_demand(link.replica)),
            _ => Ok(core.machine.poll_speculative(link.replica)),
        })?;
        let Some(frame) = next else {
            wakes.notified().await;
            continue;
        };
        let body = Sending { shared, link, number, frame: &frame };
        body.send(&mut outgoing).await?;
    }
}

/// A body that is being sent.
struct Sending<'a> {
    shared: &'a Arc<Shared>,
    link: &'a Link,
    number: usize,
    frame: &'a Frame<BodyHeader>,
}

impl Sending<'_> {
    async fn send(&self, to: &mut Outgoing<impl AsyncWrite + Unpin>) -> Result<(), LinkError> {
        let header = &self.frame.message;
        self.put(to, BodyPart::Header(header.clone()))?;
        if let Some(version) = header.version
            && version.content.size.0 > 0
            && !header.lost
            && !self.pieces(&version.content, to).await?
        {
            self.put(to, BodyPart::Broken)?;
        }
        self.flush(to).await
    }

    /// Sends the bytes; whether all of them.
    async fn pieces(
        &self,
        content: &Content,
        to: &mut Outgoing<impl AsyncWrite + Unpin>,
    ) -> Result<bool, LinkError> {
        let Content { digest, size, .. } = *content;
        if size.0 <= PIECE as u64 {
            let Some(bytes) = self.look(content, move |library| library.read(&digest)).await?
            else {
                return Ok(false);
            };
            self.put(to, BodyPart::Piece { number: 0, bytes: bytes.to_vec() })?;
            return Ok(true);
        }
        let library = &self.shared.library;
        let Some(outline) = self.shared.outlines.of(library, content, None).await? else {
            look_again(self.shared, content).await?;
            return Ok(false);
        };
        for part in outline.parts() {
            self.put(to, part)?;
            self.flush(to).await?;
        }
        for number in 0..u32::try_from(size.0.div_ceil(PIECE as u64)).unwrap_or(u32::MAX) {
            if !self.is_wanted() {
                return Ok(false);
            }
            let piece = self.look(content, move |library| library.piece(&digest, size, number));
            let Some(bytes) = piece.await? else { return Ok(false) };
            if !outline.has(number, &bytes) {
                look_again(self.shared, content).await?;
                return Ok(false);
            }
            self.put(to, BodyPart::Piece { number, bytes: bytes.to_vec() })?;
            self.flush(to).await?;
        }
        Ok(true)
    }

    fn is_wanted(&self) -> bool {
        self.shared.with(|core, _| core.machine.is_wanted(&self.frame.message))
    }

    /// Asks the store. What it does not have may be lost.
    async fn look<T: Send + 'static>(
        &self,
        content: &Content,
        ask: impl Fn(&Library) -> Result<Option<T>, StoreError> + Clone + Send + 'static,
    ) -> Result<Option<T>, LinkError> {
        let found = look(&self.shared.library, None, ask).await?;
        if found.is_none() {
            look_again(self.shared, content).await?;
        }
        Ok(found)
    }

    fn put(
        &self,
        to: &mut Outgoing<impl AsyncWrite + Unpin>,
        message: BodyPart,
    ) -> Result<(), LinkError> {
        Ok(to.put(&Frame { session: self.frame.session, message })?)
    }

    async fn flush(&self, to: &mut Outgoing<impl AsyncWrite + Unpin>) -> Result<(), LinkError> {
        let sent = to.flush().await?;
        self.link.sent[self.number].fetch_add(sent, Ordering::Relaxed);
        Ok(())
    }
}

/// A body that cannot go.
struct Pinned<'a> {
    shared: &'a Shared,
    pin: Pin,
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        self.shared.try_with(|core, _| core.machine.unpin(self.pin));
    }
}

/// A body was not found, or is not what it should be. It is lost only if it is still so when it cannot go: it
/// may have been dropped before it was looked for, and stored anew since.
pub(super) async fn look_again(shared: &Shared, content: &Content) -> Result<(), StoreError> {
    let Content { digest, size, .. } = *content;
    let Some(pin) = shared.with(|core, _| core.machine.pin(&digest)) else { return Ok(()) };
    let _pinned = Pinned { shared, pin };
    let found = look(&shared.library, None, move |library| library.outline(&digest, size)).await?;
    if found.is_none() {
        shared.with(|core, now| core.machine.handle_missing(now, &digest));
    }
    Ok(())
}
