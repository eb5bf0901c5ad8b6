//! What a large step leaves behind. To free it takes as long as to make it, so the caller does that when others do
//! not wait for the replica.

use std::sync::Arc;

use super::buffer::Places;
use super::{Replica, Step};
use crate::types::Change;

/// Something large that is not needed any more: to be dropped where nobody waits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Garbage(pub(super) Kind);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Step(Arc<Step>),
    Changes(Arc<Vec<Change>>),
    Places(Box<Places>),
}

impl<P: Clone> Replica<P> {
    /// What to drop where nobody waits.
    pub fn poll_garbage(&mut self) -> Option<Garbage> {
        self.output.garbage.pop()
    }
}
