//! Bodies that the origin has under names that the client has not asked for.

use std::path::PathBuf;

use super::{Client, ClientError, Published};
use crate::http::origin::{Done, MAX_ORDER_BYTES, Order};
use crate::http::transaction::{Head, PutContent};

/// Bodies in one question: each takes 64 digits, two quotes and a comma.
const AT_A_TIME: usize = MAX_ORDER_BYTES / 80;

impl Client {
    /// Bodies that the origin has are not sent to it.
    pub(super) async fn leave_out_stored(
        &self,
        heads: &mut [(Head, Option<PathBuf>)],
        published: &mut Published,
    ) -> Result<(), ClientError> {
        let is_sent = |(head, _): &&mut (Head, _)| matches!(head.put, PutContent::Body(_));
        let mut sent: Vec<_> = heads.iter_mut().filter(is_sent).collect();
        for some in sent.chunks_mut(AT_A_TIME) {
            let digest = |(head, _): &&mut (Head, _)| match &head.put {
                PutContent::Body(file) | PutContent::Stored(file) => Some(file.digest.clone()),
                PutContent::Delete => None,
            };
            let digests = some.iter().filter_map(digest).collect();
            let Done::Stored(stored) = self.order(&Order::Bodies { digests }).await? else {
                return Err(ClientError::Unexpected);
            };
            for ((head, file), _) in some.iter_mut().zip(stored).filter(|(_, stored)| *stored) {
                if let PutContent::Body(content) = &head.put {
                    published.bytes -= content.size;
                    (head.put, *file) = (PutContent::Stored(content.clone()), None);
                }
            }
        }
        Ok(())
    }
}
