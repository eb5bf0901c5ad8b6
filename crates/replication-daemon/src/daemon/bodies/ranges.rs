//! The pieces of a long body that its replica wants: those that it does not have, from an earlier transfer or in an older
//! version of the object.

use std::sync::Arc;

use lull_replication::types::Content;
use lull_replication::wire::{BodyPart, Chunk, Outline};
use tokio::io::AsyncWrite;
use tokio::sync::oneshot::{self, error::TryRecvError};

use super::{Coming, Next, SendState, Sending, Serves};
use crate::daemon::LinkError;
use crate::daemon::chunk_lists::Chunks;
use crate::daemon::link::Outgoing;
use crate::store::StoreError;

/// The wanted piece behind another one.
pub(super) fn after(ranges: &[(u32, u32)], number: u32) -> u32 {
    let next = number + 1;
    let mut behind = ranges.iter().filter(|(first, count)| first + count > next);
    behind.next().map_or(next, |(first, _)| next.max(*first))
}

/// Whether no piece is wanted behind this one.
pub(super) fn is_behind(ranges: &[(u32, u32)], number: u32) -> bool {
    ranges.last().is_none_or(|(first, count)| first + count <= number + 1)
}

impl<S: Serves> Sending<'_, S> {
    /// Looks for the answer of the replica.
    pub(super) fn answer(
        &mut self,
        content: Content,
        outline: Arc<Outline>,
        to: &mut Outgoing<impl AsyncWrite + Unpin>,
    ) -> Result<SendState, LinkError> {
        if !self.is_wanted(0) {
            return self.broken(to);
        }
        let (replica, number) = (self.link.replica, self.number);
        let wanted =
            self.shared.with_machine(|machine| machine.take_wanted(replica, &self.frame, number));
        let Some((ranges, has_more)) = wanted else { return Ok(SendState::Waits) };
        self.has_more = has_more;
        self.next = match ranges.first() {
            Some((first, _)) => Next::Pieces(outline, *first),
            None if has_more => Next::Answer(outline),
            None => Next::Chunking(outline, self.find_chunks(content)),
        };
        self.ranges = ranges;
        Ok(SendState::Goes)
    }

    /// Begins to look for the chunks, which may read the whole body.
    fn find_chunks(&self, content: Content) -> Coming<Result<Chunks, StoreError>> {
        let (lists, reader) =
            (self.shared.chunk_lists().clone(), self.shared.body_reader().clone());
        let (link, demand) = (Arc::clone(self.link), self.frame.message.demand);
        let (sender, found) = oneshot::channel();
        let is_here = self.spool.is_none();
        let waiting = tokio::spawn(async move {
            if is_here {
                let _ = sender.send(lists.get_or_read(&reader, content).await);
                let wakes = if demand { &link.demand } else { &link.speculative };
                wakes.notify_one();
            }
        });
        Coming { found, waiting: waiting.abort_handle() }
    }

    /// Waits for the chunks. Those of a body that still arrives come from its sender.
    pub(super) fn chunking(
        &mut self,
        outline: Arc<Outline>,
        found: Result<Result<Chunks, StoreError>, TryRecvError>,
        to: &mut Outgoing<impl AsyncWrite + Unpin>,
    ) -> Result<SendState, LinkError> {
        if !self.is_wanted(0) {
            return self.broken(to);
        }
        let chunks = match (&self.spool, found) {
            (Some(spool), _) => spool.chunks(),
            (None, Ok(found)) => Some(found?),
            (None, Err(TryRecvError::Empty)) => None,
            // Only when the runtime ends.
            (None, Err(TryRecvError::Closed)) => return Err(LinkError::GivenUp),
        };
        let Some(chunks) = chunks else { return Ok(SendState::Waits) };
        self.next = Next::Chunks(outline, chunks, 0);
        Ok(SendState::Goes)
    }

    /// The message of chunks with this number. Behind the last one the replica answers again.
    pub(super) fn chunks(
        &mut self,
        outline: Arc<Outline>,
        chunks: Chunks,
        number: usize,
        to: &mut Outgoing<impl AsyncWrite + Unpin>,
    ) -> Result<SendState, LinkError> {
        if !self.is_wanted(0) {
            return self.broken(to);
        }
        let part: Option<BodyPart> = Chunk::part(self.lane, &chunks, number);
        self.next = match part {
            Some(part) => {
                self.put(to, part)?;
                Next::Chunks(outline, chunks, number + 1)
            }
            None => Next::Answer(outline),
        };
        Ok(SendState::Goes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unwanted_pieces_are_left_out() {
        let ranges = [(2, 3), (7, 1), (9, 2)];
        let mut all = vec![2];
        while let Some(last) = all.last()
            && *last < 10
        {
            all.push(after(&ranges, *last));
        }
        assert_eq!(all, [2, 3, 4, 7, 9, 10]);
        assert_eq!(after(&[], 4), 5, "without ranges all are wanted");
        assert_eq!([9, 10].map(|number| is_behind(&ranges, number)), [false, true]);
    }
}
