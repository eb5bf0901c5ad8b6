//! Locks for data that threads share.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks the mutex. A thread that panicked has reported it, and its unfinished changes do not matter.
pub(super) fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}
