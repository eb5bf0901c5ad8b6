//! The system calls that no safe crate wraps. All unsafe code of the crate is here.

use std::io;
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::{AsRawFd, BorrowedFd};

/// `SO_MAX_PACING_RATE` of asm-generic/socket.h, which x86, ARM and RISC-V use.
const SO_MAX_PACING_RATE: libc::c_int = 47;

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// `TCP_INFO`. Fields that the kernel does not know are zero; the number of written bytes is returned too.
pub(crate) fn tcp_info(socket: BorrowedFd<'_>) -> io::Result<(libc::tcp_info, usize)> {
    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: `info` and `length` live through the call, and `length` is the size of `info`.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    })?;
    // SAFETY: a tcp_info is made of integers, for which all zeroes is a value.
    Ok((unsafe { info.assume_init() }, length as usize))
}

/// `IOPRIO_WHO_PROCESS` of `linux/ioprio.h`: one thread.
const THREAD: libc::c_int = 1;

/// Sets the calling thread's I/O priority for disks: class and level, as `linux/ioprio.h` packs them.
pub(crate) fn set_io_priority(priority: u32) -> io::Result<()> {
    // SAFETY: the call takes three integers. Zero is the calling thread.
    let result = unsafe { libc::syscall(libc::SYS_ioprio_set, THREAD, 0, priority) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The present priority.
#[cfg(test)]
pub(crate) fn io_priority() -> io::Result<u32> {
    // SAFETY: the call takes two integers. Zero is the calling thread.
    let result = unsafe { libc::syscall(libc::SYS_ioprio_get, THREAD, 0) };
    u32::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Whether this many bytes of `TCP_INFO` include the count of delivered packets (Linux
/// 4.18), the newest field that the controller requires.
pub(crate) fn has_delivered_count(length: usize) -> bool {
    length >= offset_of!(libc::tcp_info, tcpi_delivered) + size_of::<u32>()
}

/// Limits the kernel's pacing of a socket, in bytes per second; `u64::MAX` for no limit.
///
/// Paces from then on even without an fq queue discipline.
pub(crate) fn set_max_pacing_rate(socket: BorrowedFd<'_>, rate: u64) -> io::Result<()> {
    // The kernel expects `unsigned long`; 32-bit kernels count to 4 GB/s.
    let rate = libc::c_ulong::try_from(rate).unwrap_or(libc::c_ulong::MAX);
    // SAFETY: `rate` lives through the call and its size is passed with it.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_MAX_PACING_RATE,
            (&raw const rate).cast(),
            size_of_val(&rate) as libc::socklen_t,
        )
    })
}

/// `malloc_trim`.
#[cfg(target_env = "gnu")]
pub(crate) fn release_free_memory() {
    // SAFETY: the call has no preconditions; it locks the allocator's arenas itself.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Other allocators return free memory by themselves.
#[cfg(not(target_env = "gnu"))]
pub(crate) fn release_free_memory() {}
