//! Files mapped into memory. All unsafe code of these tests is here.

use core::ffi::c_void;
use core::num::NonZeroUsize;
use core::ptr::NonNull;
use std::fs::File;

use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

/// A file mapped into memory, for reads and writes that others see.
pub(crate) struct Mapping {
    file: File,
    at: NonNull<c_void>,
    length: NonZeroUsize,
}

// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps the first `length` bytes of a file that is open for reading and writing.
    pub(crate) fn new(file: File, length: usize) -> nix::Result<Self> {
        let length = NonZeroUsize::new(length).ok_or(nix::errno::Errno::EINVAL)?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: the kernel chooses the address, so no memory of the program is replaced.
        let at = unsafe { mmap(None, length, protection, MapFlags::MAP_SHARED, &file, 0) }?;
        Ok(Mapping { file, at, length })
    }

    /// Writes one byte, unless the file has become too short for it. No other thread shortens it meanwhile.
    pub(crate) fn write(&mut self, at: usize, byte: u8) {
        let length = self.file.metadata().map_or(0, |metadata| metadata.len());
        if at < self.length.get() && (at as u64) < length {
            // SAFETY: it is within the mapping, and within the file.
            unsafe { self.at.as_ptr().cast::<u8>().add(at).write_volatile(byte) };
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and no reference into it is given out.
        unsafe { munmap(self.at, self.length.get()) }.expect("it is mapped");
    }
}
