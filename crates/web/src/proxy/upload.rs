//! The progress of a request's body.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use atomic_waker::AtomicWaker;
use tokio::task::AbortHandle;

/// The progress of a request's body, for the caller that waits for the answer.
#[derive(Debug, Default)]
pub(crate) struct Upload {
    /// Whether the client got `100 Continue`, if it waits for that.
    pub(super) is_open: AtomicBool,
    pub(super) opened: AtomicWaker,
    pub(super) bytes: AtomicU64,
    pub(super) is_waiting: AtomicBool,
    pub(super) is_done: AtomicBool,
    /// The task that continues it after the answer.
    rest: OnceLock<AbortHandle>,
}

impl Upload {
    /// `is_open`: whether the client sends without `100 Continue`.
    pub(crate) fn new(is_open: bool) -> Arc<Self> {
        Arc::new(Upload { is_open: AtomicBool::new(is_open), ..Upload::default() })
    }

    /// Lets the client send.
    pub(crate) fn open(&self) {
        self.is_open.store(true, Ordering::Release);
        self.opened.wake();
    }

    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    /// Bytes so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether the client is the cause of waiting.
    pub(crate) fn is_waiting(&self) -> bool {
        self.is_waiting.load(Ordering::Relaxed)
    }

    /// Whether it is complete.
    pub(crate) fn is_done(&self) -> bool {
        self.is_done.load(Ordering::Relaxed)
    }

    /// The response has been sent, and the request continues in this task.
    pub(crate) fn goes_on_in(&self, task: AbortHandle) {
        // It is answered once.
        let _ = self.rest.set(task);
    }

    /// Ends it, if it is answered.
    pub(crate) fn end_rest(&self) {
        if let Some(task) = self.rest.get() {
            task.abort();
        }
    }
}
