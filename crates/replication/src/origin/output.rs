//! Output of the origin: what its caller has to do, or may look at.

use std::collections::VecDeque;

use super::interface::{Counters, Event};

/// Events and counts until the caller asks for them.
#[derive(Debug, Default)]
pub(super) struct Output {
    pub(super) events: VecDeque<Event>,
    pub(super) counters: Counters,
}
