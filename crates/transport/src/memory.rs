//! Memory of many connections, returned to the system.

use crate::sys;

/// Returns free memory of the allocator to the system. glibc keeps freed buffers that lie between smaller
/// allocations in use, such as those of connections that were opened at once.
pub fn release_free_memory() {
    sys::release_free_memory();
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Memory in use, in pages.
    fn resident() -> usize {
        let text = fs::read_to_string("/proc/self/statm").expect("Linux has it");
        text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number of pages")
    }

    #[test]
    #[cfg(target_env = "gnu")]
    fn freed_buffers_between_others_are_released() {
        // Each buffer lies before a small allocation that stays, as the state of a connection does.
        let mut all: Vec<(Vec<u8>, Box<[u8; 64]>)> =
            (0..2_000).map(|_| (vec![1; 16 << 10], Box::new([1; 64]))).collect();
        all.iter_mut().for_each(|(buffer, _)| *buffer = Vec::new());
        let before = resident();
        release_free_memory();
        let released = before.saturating_sub(resident());
        // 32 MB are 8,000 pages of 4 KiB; a page at each end of a buffer may stay.
        assert!(released > 3_000, "{released} of {before}");
        drop(all);
    }
}
