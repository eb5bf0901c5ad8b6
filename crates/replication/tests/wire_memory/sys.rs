//! An allocator that counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Bytes that are allocated now, and the most since that was last reset.
static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: it gives what the system's allocator gives, and changes nothing of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        MOST.fetch_max(NOW.fetch_add(layout.size(), Relaxed) + layout.size(), Relaxed);
        // SAFETY: the caller keeps to what the trait asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: it was allocated by the system's allocator, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// The most bytes that were allocated at a time while `work` was done, beyond those before it.
pub(crate) fn most_allocated<T>(work: impl FnOnce() -> T) -> usize {
    let before = NOW.load(Relaxed);
    MOST.store(before, Relaxed);
    drop(work());
    MOST.load(Relaxed).saturating_sub(before)
}
